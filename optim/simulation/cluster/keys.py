"""Compiled keys: the numbers by which jobs are ordered, waiting or running."""

from optim.core.compile_cache import inner
from optim.models.cluster.workload import PPM
from optim.simulation.cluster.index_policy import Key, Tie
from optim.simulation.cluster.state import NEVER

_, DRAWN, REMAINING_TIME, REMAINING_SERVICE, ATTAINED_TIME, ATTAINED_SERVICE, TABLE = map(int, Key)
BY_FIRST_START = int(Tie.FIRST_START)


@inner
def work_in(elapsed, factor):
    """Return the work done in a time at a slowdown in parts per million, rounded down, without leaving 64 bits."""
    if factor == PPM:  # divisions cost more than all the rest of a pass
        return elapsed
    return elapsed // factor * PPM + elapsed % factor * PPM // factor


@inner
def time_for(work, factor):
    """Return the time that work takes at a slowdown, rounded up."""
    return work // PPM * factor + (work % PPM * factor + PPM - 1) // PPM


@inner
def table_rank(threshold, threshold_rank, service):
    """Return the rank of an attained service: that behind the last threshold reached."""
    low, high = 0, len(threshold)
    while low < high:
        middle = (low + high) // 2
        if threshold[middle] <= service:
            low = middle + 1
        else:
            high = middle
    return threshold_rank[low]


@inner
def first_key(key, drawn, duration, width, executed, served, threshold, threshold_rank):
    """Return what orders a job that has run for `executed` and done `served`.

    It takes numbers, not the state: handing that over would cost more than the pass.
    """
    if key == DRAWN:
        return drawn
    if key == REMAINING_TIME:
        return duration - served
    if key == REMAINING_SERVICE:
        return (duration - served) * width
    if key == ATTAINED_TIME:
        return executed
    if key == ATTAINED_SERVICE:
        return executed * width
    if key == TABLE:
        return table_rank(threshold, threshold_rank, executed * width)
    return 0


@inner
def key_of_waiting(u, s, job):
    """Return the key and tie of a job that doesn't run."""
    tie = s.first_start[job] if u.tie == BY_FIRST_START else 0
    first = first_key(
        u.key,
        u.rank[job],
        u.duration[job],
        u.width[job],
        s.executed[job],
        s.served[job],
        u.threshold,
        u.threshold_rank,
    )
    return first, tie


@inner
def next_crossing(u, s, job):
    """Return when a job that just started reaches its next threshold, `NEVER` if there is none."""
    service = s.executed[job] * u.width[job]
    for at in range(len(u.crossing)):
        if u.crossing[at] > service:
            return s.run_since[job] + (u.crossing[at] - service + u.width[job] - 1) // u.width[job]
    return NEVER

"""The least cost of a job under a deadline over zones, everything known beforehand: a dynamic programme over ticks.

A situation is a tick, the ticks without work until then, and either the place of the state with nothing held, or a place
where machines are set up. Values are computed backwards and are themselves the potential that proves the least cost.
"""

import numpy as np

from optim.core.compile_cache import compiled
from optim.core.errors import InvalidOptionError
from optim.models.bidding.instance import BoolArray, IntArray
from optim.models.bidding.zones.market import HOUR_S, KINDS, Optimum, Stay, ZoneJob, ZoneMarket, place_costs

FAR = 2**58
"""The value of situations from which the job can't be done in time."""

MOST_VALUES = 2**27
"""Values in memory at once, a GiB."""


def least_cost(market: ZoneMarket, job: ZoneJob, first: int) -> Optimum:
    """Return the least cost of a job that starts at a tick, with plan and proof.

    Parameters
    ----------
    market, job
        The traces and the job.
    first
        The tick.

    Raises
    ------
    InvalidOptionError
        If the deadline is so far that the values fill more than a GiB.
    InvalidProblemError
        If the traces end before the deadline.

    Notes
    -----
    Time and memory grow with deadline x (deadline - work) x zones; time once more with zones.
    """
    slack = job.deadline - job.work
    if (job.deadline + 1) * (slack + 1) * (3 * market.num_zones + 1) > MOST_VALUES:
        raise InvalidOptionError(
            f"a deadline {slack} ticks after the work of {job.work} needs more than a GiB; give a nearer one or longer ticks"
        )
    cost, has = place_costs(market, job, first)
    idle, working = _values(cost, has, job.setup, HOUR_S * job.move_micro, job.work, job.deadline)
    stays = _plan(cost, has, job.setup, HOUR_S * job.move_micro, job.work, idle, working)
    plan = tuple(Stay(zone=p // KINDS, is_spot=p % KINDS == 0, begin=b, end=e) for p, b, e in stays.tolist())
    return Optimum(first=first, units=int(idle[0, 0, 0]), plan=plan, idle=idle, working=working)


@compiled
def _values(
    cost: IntArray, has: BoolArray, setup: IntArray, move: IntArray, work: int, deadline: int
) -> tuple[IntArray, IntArray]:
    """Return the least still to be paid, as `Optimum.idle` and `Optimum.working`."""
    places, states, slack = cost.shape[1], len(setup), deadline - work
    idle = np.full((deadline + 1, slack + 1, states), FAR)
    working = np.full((deadline + 1, slack + 1, places), FAR)
    paid = np.zeros((deadline + 1, places), np.int64)
    until = np.empty((deadline + 1, places), np.int64)
    until[deadline] = deadline
    for t in range(deadline):
        for p in range(places):  # adding slices takes seconds to compile
            paid[t + 1, p] = paid[t, p] + cost[t, p]
    for t in range(deadline - 1, -1, -1):
        for p in range(places):
            until[t, p] = until[t + 1, p] if has[t, p] else t
    for t in range(deadline, -1, -1):
        for lost in range(max(0, t - work), min(t, slack) + 1):
            if t - lost == work:
                idle[t, lost] = 0
                working[t, lost] = 0
                continue
            for p in range(places):
                if has[t, p]:
                    working[t, lost, p] = min(FAR, cost[t, p] + working[t + 1, lost, p])
            for c in range(states):
                best = idle[t + 1, lost + 1, c] if lost < slack else FAR
                for p in range(places):
                    s = setup[c, p // KINDS]
                    if lost + s <= slack and until[t, p] - t >= s:
                        value = paid[t + s, p] - paid[t, p] + move[c, p // KINDS] + working[t + s, lost + s, p]
                        best = min(best, value)
                idle[t, lost, c] = best
            for p in range(places):
                working[t, lost, p] = min(working[t, lost, p], idle[t, lost, 1 + p // KINDS])
    return idle, working


@compiled
def _plan(
    cost: IntArray, has: BoolArray, setup: IntArray, move: IntArray, work: int, idle: IntArray, working: IntArray
) -> IntArray:
    """Return the stays of a cheapest plan as rows (place, begin, end): wait as long as nothing is lost by it."""
    places, slack = cost.shape[1], idle.shape[1] - 1
    stays = np.empty((len(idle), 3), np.int64)
    size, t, lost, state = 0, 0, 0, 0
    while t - lost < work:
        value = idle[t, lost, state]
        if lost < slack and idle[t + 1, lost + 1, state] == value:
            t, lost = t + 1, lost + 1
            continue
        for p in range(places):
            s = setup[state, p // KINDS]
            held = max(s, 1)  # what is ready at once works its first tick
            if lost + s > slack or not has[t : t + held, p].all():
                continue
            ready = working[t + held, lost + s, p]
            if cost[t : t + held, p].sum() + move[state, p // KINDS] + ready == value:
                break
        stays[size] = p, t, t + held
        t, lost, state = t + held, lost + s, 1 + p // KINDS
        while t - lost < work and has[t, p] and working[t, lost, p] == cost[t, p] + working[t + 1, lost, p]:
            t += 1
        stays[size, 2] = t
        size += 1
    return stays[:size]

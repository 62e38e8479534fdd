"""How many processes stand for the machines of a lease."""

from collections.abc import Iterator, Sequence

from optim.core.errors import UnsupportedProblemError
from optim.simulation.live.timeline import Change, LeaseFacts, Timeline
from optim.simulation.spot.policy import Recovery


def processes_of(lease: LeaseFacts, work_per_process: int) -> int:
    """Return the processes of a lease: its work an hour over that of one, rounded up."""
    return -(-round(1000 * lease.count * lease.rate) // (1000 * work_per_process))


def peak(timeline: Timeline, work_per_process: int) -> int:
    """Return the most processes at once."""
    sizes = [processes_of(lease, work_per_process) for lease in timeline.leases]
    return max(sum(sizes[number] for number in held) for held in _held(timeline))


def _held(timeline: Timeline) -> Iterator[list[int]]:
    """Yield the leases with processes, step by step: those of an elastic job end with the warning."""
    gone: set[int | None] = set()
    for step in timeline.steps:
        if timeline.recovery is Recovery.ELASTIC:
            gone |= {number for change, number in step.changes if change is Change.WARNED}
        yield [number for number in step.held if number not in gone]


def fit_scale(timelines: Sequence[Timeline], max_processes: int) -> int:
    """Return the least work an hour for which a process must stand, so that no policy ever has too many.

    One unit of work an hour is a c3.xlarge. Every lease has one process at least: which of a policy's machines are
    evicted is what a replay is about.

    Raises
    ------
    UnsupportedProblemError
        If there are more leases than processes allowed.
    """

    def most(scale: int) -> int:
        return max(peak(timeline, scale) for timeline in timelines)

    leases = max(len(held) for timeline in timelines for held in _held(timeline))
    if leases > max_processes:
        raise UnsupportedProblemError(
            f"a policy holds {leases} leases at once, more than max_processes {max_processes}; raise it"
        )
    low, high = 0, 1  # most(low) is too many, most(high) isn't
    while most(high) > max_processes:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if most(middle) > max_processes else (low, middle)
    return high

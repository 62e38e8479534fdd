"""Options of the engine, and machine failures, which are the same for all policies."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from heapq import heapify, heapreplace, merge

import numpy as np

from optim.core.arrays import IntArray
from optim.core.errors import InvalidOptionError, check_choices, check_in
from optim.core.options import NOT_BY_NAME
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.rules import ENDLESS, Retries, Rules
from optim.models.cluster.workload import LATEST_US, PPM, US

MIN_MTBF_HOURS = 1e-7
"""Minimum of `mtbf_hours`, a third of a millisecond; integer microseconds are too coarse for shorter times."""


class Placement(StrEnum):
    """Rule that chooses among the machines that can hold a gang; ties go to the machine with the lowest number."""

    BEST_FIT = "best-fit"
    FIRST_FIT = "first-fit"
    WORST_FIT = "worst-fit"
    FGD = "fgd"


class Preempted(StrEnum):
    """Work that a job retains when it is stopped for another job."""

    KEEPS_ALL = "keeps-all"
    CHECKPOINT = "checkpoint"
    RESTART = "restart"


class RetryRule(StrEnum):
    """Handling of jobs with failing attempts."""

    AS_RUN = "as-run"
    BLIND = "blind"
    BY_CLASS = "by-class"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Simulation rules that apply to every policy.

    Parameters
    ----------
    placement
        Machine for a gang that fits on one machine: the fullest machine with enough free GPUs, the first, the emptiest,
        or the machine on which fragmentation increases least for the workload's mix of gangs. Wider gangs take
        completely free machines, largest first.
    spread
        Whether a gang for which `placement` finds no machines takes GPUs anywhere, on as few machines as possible,
        instead of waiting.
    overhead_s
        Seconds without progress at each start after a preemption, while the job has its GPUs.
    startup_s
        Seconds without progress at a job's first start, while it loads.
    sharing
        Whether jobs take only their share of a GPU.
    neighbour
        Slowdown factor of a multi-GPU job while another multi-GPU job has GPUs on one of its machines; 1 for no
        slowdown.
    mtbf_hours
        Mean time in hours between a machine's repair and its next failure, exponential; 0 for machines that never fail.
    repair_hours
        Mean time of a repair in hours, exponential.
    checkpoint_min
        Minutes of work between two checkpoints of a job; at a machine failure, the work since the last checkpoint is
        lost.
    preempted
        Effect on a job that is preempted, moved or resized: it keeps all work (`keeps-all`), loses the work since its
        last checkpoint or stop (`checkpoint`), or restarts from zero (`restart`). Under `checkpoint` and `restart`,
        jobs with a checkpoint interval in the workload (`Workload.checkpoint_us`) use that interval.
    retries
        Handling of jobs with failing attempts. `as-run`: their run time, which includes all attempts, is simulated in
        one piece. `blind`: each attempt starts from zero, and is queued again when it fails. `by-class`: only failures
        for which a retry helps (table 7 of the Philly study), or of unknown reason, are retried; otherwise the job
        ends.
    max_retries
        Maximum number of retries under `by-class`.
    retry_wait_min
        Minutes of back-off after a failed attempt.
    planned
        Planned outages, each with its machine, begin and end in microseconds after the first submission; an end of
        `2**62` means permanent removal.

    Raises
    ------
    InvalidOptionError
        If a value is out of range.
    """

    placement: Placement = Placement.BEST_FIT
    spread: bool = False
    overhead_s: float = 30.0
    startup_s: float = 0.0
    sharing: bool = False
    neighbour: float = 1.0
    mtbf_hours: float = 0.0
    repair_hours: float = 4.0
    checkpoint_min: float = 30.0
    preempted: Preempted = Preempted.KEEPS_ALL
    retries: RetryRule = RetryRule.AS_RUN
    max_retries: int = 3
    retry_wait_min: float = 2.0
    planned: tuple[tuple[int, int, int], ...] = field(default=(), metadata=NOT_BY_NAME)

    def __post_init__(self) -> None:
        """Check the ranges."""
        choices = {"placement": tuple(Placement), "retries": tuple(RetryRule), "preempted": tuple(Preempted)}
        check_choices(self, choices)
        object.__setattr__(self, "preempted", Preempted(self.preempted))
        object.__setattr__(self, "placement", Placement(self.placement))  # strings are accepted as well
        object.__setattr__(self, "retries", RetryRule(self.retries))
        check_in("[0, 86400]", self, "overhead_s", "startup_s")
        check_in("[1, 1000]", self, "neighbour")
        check_in("[0, 1e6]", self, "mtbf_hours")
        check_in("(0, 1e5]", self, "repair_hours", "checkpoint_min")
        check_in("[0, 1000]", self, "max_retries")
        check_in("[0, 1e5]", self, "retry_wait_min")
        if 0 < self.mtbf_hours < MIN_MTBF_HOURS:
            raise InvalidOptionError(
                f"mtbf_hours must be 0 (machines never fail) or at least {MIN_MTBF_HOURS}, got {self.mtbf_hours:g}"
            )

    @property
    def overhead_us(self) -> int:
        """Overhead of a restart in integer microseconds."""
        return round(self.overhead_s * US)

    @property
    def startup_us(self) -> int:
        """Overhead of a job's first start in integer microseconds."""
        return round(self.startup_s * US)

    @property
    def checkpoint_us(self) -> int:
        """Work between two checkpoints in integer microseconds; 0 if machines never fail or leave."""
        return self._step_us if self.mtbf_hours or self.planned else 0

    @property
    def preempt_checkpoint_us(self) -> int:
        """Work between two checkpoints of a preempted job in integer microseconds; 0 if it keeps all work."""
        steps = {Preempted.KEEPS_ALL: 0, Preempted.CHECKPOINT: self._step_us, Preempted.RESTART: LATEST_US}
        return steps[self.preempted]

    def gone_from(self, cluster: Cluster) -> IntArray:
        """Return the time of each machine's planned permanent removal in microseconds, `2**62` for never.

        The result has shape (machines,).
        """
        found = np.full(cluster.num_machines, ENDLESS)
        for machine, begin, end in self.planned:
            if end >= ENDLESS:
                found[machine] = min(int(found[machine]), begin)
        return found

    @property
    def _step_us(self) -> int:
        return max(1, round(self.checkpoint_min * 60 * US))

    def on_failures(self, rules: Rules) -> Rules:
        """Return rules to which these options add the costs of first starts, failures, and the placement of gangs."""
        kind = Retries[self.retries.name]
        return replace(
            rules,
            startup_us=self.startup_us,
            checkpoint_us=self.checkpoint_us,
            preempt_checkpoint_us=self.preempt_checkpoint_us,
            retries=int(kind),
            max_retries=self.max_retries if kind is Retries.BY_CLASS else 0,
            retry_wait_us=round(self.retry_wait_min * 60 * US) if kind is not Retries.AS_RUN else 0,
            may_spread=self.spread,
        )

    @property
    def neighbour_ppm(self) -> int:
        """Slowdown by neighbours in parts per million."""
        return round(self.neighbour * PPM)

    @property
    def needs_planning(self) -> bool:
        """Whether these options require planning policies."""
        return self.sharing or self.neighbour > 1


STREAM = 0x0A7A6E
"""Key that separates these random draws from a policy's draws with the same seed."""

MAX_FAILURES = 1_000_000
"""Number of failures without an end or a submission of a job after which a run ends with unfinished jobs, because
no job makes progress."""

MAX_STALLED = 100
"""Number of successive stops per waiting or running job, each of which undid all work since the job's start, after which
a run ends with unfinished jobs."""

MAX_IDLE_CALLS = 1_000
"""Number of consecutive instants without a running job, although all machines that will return are up, after which a run
ends with unfinished jobs."""

BY_FAILURES, BY_STOPS, BY_MACHINES = range(2, 5)

HALTS = (
    "",
    "",
    f"machines failed {MAX_FAILURES:,} times while no job ended; set a smaller checkpoint_min, or a larger mtbf_hours",
    "jobs were repeatedly stopped before their next checkpoint and made no progress; set checkpoint_min below the "
    "policy's turns, or preempted=keeps-all",
    "no waiting job could start although all returning machines were up; remove gangs that are too wide for them, or "
    "let more machines return",
)
"""Reasons for the end of a run with unfinished jobs."""

Outage = tuple[int, int, bool]
"""Time in microseconds, machine, and whether it fails or leaves (True), or is repaired or returns (False)."""


def outages(cluster: Cluster, options: EngineOptions, seed: int, since: int = 0) -> Iterator[Outage]:
    """Yield outages of machines, by failures or planned, and returns, ordered by time and then by machine.

    A machine that failed during a planned outage returns once it is repaired and the outage is over.

    Parameters
    ----------
    since
        Begin of the run in microseconds.
    """
    begun = [
        (machine, max(begin, since + 1 if since else 0), end) for machine, begin, end in options.planned if end > since
    ]
    planned = [(begin, machine, True) for machine, begin, _ in begun]
    planned += [(end, machine, False) for machine, _, end in begun if end < ENDLESS]
    absent = np.zeros(cluster.num_machines, np.int64)
    for time, machine, leaves in merge(failures(cluster, options, seed, since), sorted(planned)):
        was_there = absent[machine] == 0
        absent[machine] += 1 if leaves else -1
        if was_there != (absent[machine] == 0):
            yield time, machine, leaves


def failures(cluster: Cluster, options: EngineOptions, seed: int, since: int = 0) -> Iterator[Outage]:
    """Yield failures and repairs without end, ordered by time and then by machine; none if machines never fail.

    Up times have mean `mtbf_hours` and down times mean `repair_hours`. Up and down times alternate, are exponential, and are
    rounded up to a microsecond.
    """
    if not options.mtbf_hours:
        return
    rng = np.random.default_rng([STREAM, seed])
    hour_us = 3600 * US

    def span(mean_hours: float) -> int:
        return 1 + int(rng.exponential(mean_hours * hour_us))

    ahead = [(since + span(options.mtbf_hours), machine, True) for machine in range(cluster.num_machines)]
    heapify(ahead)
    while True:
        time, machine, fails = ahead[0]
        heapreplace(ahead, (time + span(options.repair_hours if fails else options.mtbf_hours), machine, not fails))
        yield time, machine, fails


STEPS = 20_000
"""Number of instants that a compiled loop simulates between two checks of progress and interruption; takes some
milliseconds."""

KNOWN_OUTAGES = 1_024
"""Number of future failures and repairs passed to a compiled loop."""

LOGGED = 65_536
"""Maximum number of events in a compiled loop's log, in addition to those of one instant."""


class OutageFeed:
    """Failures and repairs for the engines, taken one by one or several at once."""

    def __init__(self, cluster: Cluster, options: EngineOptions, seed: int, since: int = 0) -> None:
        self._ahead = outages(cluster, options, seed, since)
        self.next: Outage | None = next(self._ahead, None)

    def take(self) -> Outage:
        """Remove the next outage and return it; there must be one."""
        taken = self.next
        assert taken is not None
        self.next = next(self._ahead, None)
        return taken

    def take_many(self, least: int) -> IntArray:
        """Remove and return at least `least` outages, all of the last one's instant included; no rows if machines never fail.

        The columns of the result are time, machine, and 1 for a failure or 0 for a repair.
        """
        rows: list[Outage] = []
        while self.next is not None and (len(rows) < least or rows[-1][0] == self.next[0]):
            rows.append(self.take())
        return np.array(rows, np.int64).reshape(-1, 3)

"""Options of the engine, and machine failures drawn once for all policies."""

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
"""A third of a millisecond: below it time in microseconds would be too coarse."""


class Placement(StrEnum):
    """Which of the machines that hold a gang takes it; ties go to the lowest number."""

    BEST_FIT = "best-fit"
    FIRST_FIT = "first-fit"
    WORST_FIT = "worst-fit"
    FGD = "fgd"


class Preempted(StrEnum):
    """What a job that is stopped for another one has of its work."""

    KEEPS_ALL = "keeps-all"
    CHECKPOINT = "checkpoint"
    RESTART = "restart"


class RetryRule(StrEnum):
    """What becomes of jobs whose tries fail."""

    AS_RUN = "as-run"
    BLIND = "blind"
    BY_CLASS = "by-class"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """What every policy is played under.

    Parameters
    ----------
    placement
        Machine of a gang that one machine can hold: the fullest that has room, the first, the emptiest, or the one whose
        fragmentation for the workload's mix of gangs grows least. Wider gangs take wholly free machines, largest first.
    spread
        Whether a gang that finds no such place takes GPUs anywhere, fewest machines first, instead of waiting.
    overhead_s
        Time without progress, with GPUs held, at each start after a preemption.
    startup_s
        The same at a job's first start, as it loads.
    sharing
        Whether jobs take only their share of a GPU.
    neighbour
        Slowdown of a job of several GPUs while another such job has GPUs in one of its machines; 1 for none.
    mtbf_hours
        Mean time between a machine's repair and its next failure, exponential; 0 for machines that never fail.
    repair_hours
        Mean time of a repair, exponential.
    checkpoint_min
        Minutes of work between two checkpoints of a job; what it did since the last one is lost when a machine fails.
    preempted
        Whether a job that loses its GPUs to another one, is moved, or changes its width keeps all of its work (`keeps-all`),
        loses what it did since its last checkpoint or stop (`checkpoint`), or starts again from nothing (`restart`). Jobs with
        an interval of their own (`Workload.checkpoint_us`) go by it under the latter two.
    retries
        What becomes of a job of which tries fail: its run time, which holds them all, is played in one piece (`as-run`); each
        try starts anew from nothing and is queued again when it fails (`blind`); or only where a retry helps by the Philly
        study's table 7, or the reason isn't known, and else the job is over (`by-class`).
    max_retries
        How often a try is repeated at most by class.
    retry_wait_min
        How long a job is held back after a try of it failed.
    planned
        When machines leave and return by plan: number, begin and end in microseconds after the first submission, `2**62` for good.

    Raises
    ------
    InvalidOptionError
        If a value is outside its range.
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
        object.__setattr__(self, "placement", Placement(self.placement))  # a plain text does as well
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
        """Overhead in whole microseconds."""
        return round(self.overhead_s * US)

    @property
    def startup_us(self) -> int:
        """Overhead of a job's first start in whole microseconds."""
        return round(self.startup_s * US)

    @property
    def checkpoint_us(self) -> int:
        """Work between two checkpoints in whole microseconds; 0 if machines never fail or leave."""
        return self._step_us if self.mtbf_hours or self.planned else 0

    @property
    def preempt_checkpoint_us(self) -> int:
        """Work between two checkpoints of a job that is preempted in whole microseconds; 0 if it keeps all."""
        steps = {Preempted.KEEPS_ALL: 0, Preempted.CHECKPOINT: self._step_us, Preempted.RESTART: LATEST_US}
        return steps[self.preempted]

    def gone_from(self, cluster: Cluster) -> IntArray:
        """Return from when each machine is away for good by plan, in microseconds, `2**62` for never; shape (machines,)."""
        found = np.full(cluster.num_machines, ENDLESS)
        for machine, begin, end in self.planned:
            if end >= ENDLESS:
                found[machine] = min(int(found[machine]), begin)
        return found

    @property
    def _step_us(self) -> int:
        return max(1, round(self.checkpoint_min * 60 * US))

    def on_failures(self, rules: Rules) -> Rules:
        """Return rules with what these options say of first starts, of machines and tries that fail, and of where gangs are placed."""
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
        """Whether only planning policies can be played under these options."""
        return self.sharing or self.neighbour > 1


STREAM = 0x0A7A6E
"""Parts these draws from a policy's own of the same seed."""

MAX_FAILURES = 1_000_000
"""Failures without an end or a submission after which a run ends with its jobs unfinished: none of them gets on any more."""

MAX_STALLED = 100
"""Stops for each job that waits or runs, all of which undid the work of the turn that they ended, after which a run ends likewise."""

MAX_IDLE_CALLS = 1_000
"""Instants in a row without a running job, those when all machines are up that return, after which a run ends likewise."""

BY_FAILURES, BY_STOPS, BY_MACHINES = range(2, 5)

HALTS = (
    "",
    "",
    f"machines failed {MAX_FAILURES:,} times without a job's end; set a smaller checkpoint_min, or a larger mtbf_hours",
    "jobs were stopped again and again before their next checkpoint, so that none got on; set checkpoint_min below the policy's turns, "
    "or preempted=keeps-all",
    "no job was started any more though all machines that return were up; leave out gangs that are too wide for them, or let more return",
)
"""Why a run ended with its jobs unfinished."""

Outage = tuple[int, int, bool]
"""When, in microseconds; which machine; whether it fails or leaves, or is repaired or returns."""


def outages(cluster: Cluster, options: EngineOptions, seed: int, since: int = 0) -> Iterator[Outage]:
    """Yield when machines leave and return, in the order of their times and then machines: by failures and by plan.

    A machine that failed while it was away by plan returns when it is repaired and its window is over, too.

    Parameters
    ----------
    since
        When the run begins, in microseconds.
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
    """Yield failures and repairs in the order of their times and then machines, without end; none if machines never fail.

    A machine is up for a time with mean `mtbf_hours` and then down for one with mean `repair_hours`, both exponential and
    rounded up to a microsecond, one after the other.
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
"""Instants that a compiled loop plays between two looks at progress and interruption: some milliseconds."""

KNOWN_OUTAGES = 1_024
"""Failures and repairs that a compiled loop is told of ahead."""

LOGGED = 65_536
"""Events that a compiled loop's log holds at a time besides one instant's."""


class OutageFeed:
    """Failures and repairs as engines take them: the next one, or several at once, all of an instant together."""

    def __init__(self, cluster: Cluster, options: EngineOptions, seed: int, since: int = 0) -> None:
        self._ahead = outages(cluster, options, seed, since)
        self.next: Outage | None = next(self._ahead, None)

    def take(self) -> Outage:
        """Take the next one; there must be one."""
        taken = self.next
        assert taken is not None
        self.next = next(self._ahead, None)
        return taken

    def take_many(self, least: int) -> IntArray:
        """Take at least so many; return time, machine, and whether it fails (1), one row per outage, none if machines never fail."""
        rows: list[Outage] = []
        while self.next is not None and (len(rows) < least or rows[-1][0] == self.next[0]):
            rows.append(self.take())
        return np.array(rows, np.int64).reshape(-1, 3)

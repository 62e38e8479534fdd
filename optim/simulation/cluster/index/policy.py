"""Index policies: jobs run in the order of a compiled key."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from itertools import pairwise

import numpy as np

from optim.core.arrays import IntArray
from optim.core.errors import InvalidOptionError
from optim.models.cluster.metrics import GANG_CLASSES, HOUR_US
from optim.models.cluster.workload import Workload

MIN_QUANTUM_US = 1_000
"""Work of a slowed-down job is rounded down to microseconds at each stop: shorter turns would never get it done."""


class Key(IntEnum):
    """What orders jobs, smaller first."""

    SUBMISSION = 0
    DRAWN = 1
    REMAINING_TIME = 2
    REMAINING_SERVICE = 3
    ATTAINED_TIME = 4
    ATTAINED_SERVICE = 5
    TABLE = 6


class Tie(IntEnum):
    """What orders jobs of one key: submission, or first start with jobs that never ran behind."""

    SUBMISSION = 0
    FIRST_START = 1


class Preempts(IntEnum):
    """When running jobs may lose their GPUs to jobs of a smaller key: never, at any event, at multiples of the quantum."""

    NEVER = 0
    AT_EVENTS = 1
    AT_TICKS = 2


class Guess(StrEnum):
    """How long jobs are thought to run that state no estimate."""

    PAST = "past"
    FACTOR = "factor"


MAX_PRIORITY = 2**32 - 1
"""Priorities are whole numbers of 32 bits."""

CHARGE_UNIT = 1_000_000
"""Charges are counted in millionths of a GPU, so that sums don't hang on their order."""

ALL = 2**40
"""Reservations for all jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservations:
    """Which waiting jobs have reservations, and by what estimates.

    Jobs start in their order as long as there is room. The first ones that find none get the earliest start at which some place has
    their GPUs for all of their estimate, by the estimates of those that run or have reservations, and by the machines' plans; others
    start only where that holds up no reserved start. A reserved start moves earlier when GPUs become free before they were expected
    to, and later only where a job outruns its estimate, or a machine fails: what is reserved on its machines is planned again.

    Parameters
    ----------
    depth
        How many waiting jobs have one, at least 1: 1 as EASY, `ALL` as conservative backfilling.
    kills
        Whether a job is stopped for good once it has run for its stated estimate. Otherwise, as with guessed ones, one that outruns it
        is thought to take twice as long as it has run.
    guess
        How long a job is thought to run that states no estimate.
    quantile, past
        Of the run times of its user's last so many jobs that are over, of all users' where there are none.
    default_us
        Where no job is over yet.
    factor
        Of its true run time.

    References
    ----------
    Lifka, "The ANL/IBM SP Scheduling System", JSSPP 1995. Mu'alem, Feitelson, "Utilization, Predictability, Workloads, and User Runtime
    Estimates in Scheduling the IBM SP2 with Backfilling", IEEE TPDS 12(6), 2001. Tsafrir, Etsion, Feitelson, "Backfilling Using
    System-Generated Predictions Rather than User Runtime Estimates", IEEE TPDS 18(6), 2007, on guesses from the past and their correction.
    """

    depth: int = 1
    kills: bool = False
    guess: Guess = Guess.PAST
    quantile: float = 0.9
    past: int = 20
    default_us: int = 86_400_000_000
    factor: float = 2.0


def stated_estimates(jobs: Workload, rule: Reservations) -> IntArray:
    """Return the estimated run time of each job in microseconds, -1 where it is to be guessed from the past."""
    guessed = np.full(len(jobs), -1)
    if rule.guess is Guess.FACTOR:
        guessed = np.maximum(1, np.rint(jobs.duration_us * rule.factor)).astype(np.int64)
    return np.where(jobs.estimate_us > 0, jobs.estimate_us, guessed)


def histories(jobs: Workload) -> tuple[IntArray, int]:
    """Return whose past tells of each job, users' or else virtual clusters', as numbers, and how many there are."""
    if len(jobs.users) > 1:
        return jobs.user, len(jobs.users)
    return jobs.group, len(jobs.groups)


def promises(
    submit_us: IntArray, gpus: IntArray, reserved_us: IntArray, promised_us: IntArray, first_start_us: IntArray
) -> dict[str, float]:
    """Return what became of reserved starts: jobs that had one, those that started later, and by gang the longest times from the submission to the reservation and to the promised start.

    Parameters
    ----------
    reserved_us, promised_us
        When a start was first reserved for each job, and which; -1 where none was.
    """
    has_one = promised_us >= 0
    late = np.where(has_one, first_start_us - promised_us, 0)
    figures = {
        "reserved_jobs": float(has_one.sum()),
        "started_late": float((late > 0).sum()),
        "late_max_h": float(max(0, late.max())) / HOUR_US,
    }
    for name, least, most in GANG_CLASSES:
        inside = has_one & (gpus >= least) & (gpus <= most)
        if inside.any():
            figures[f"reserved_wait_max_{name}_h"] = float((reserved_us - submit_us)[inside].max()) / HOUR_US
            figures[f"promised_wait_max_{name}_h"] = float((promised_us - submit_us)[inside].max()) / HOUR_US
    return figures


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPolicy:
    """A policy that orders jobs by a number.

    A pass goes through all jobs in the order (key, tie, submission, row). A running job keeps its GPUs; a waiting one is
    placed if there is room; if not, and preemption is allowed now, running jobs of larger keys make room for it, least
    urgent first. A job that finds no room ends the pass, or with `backfill` only holds up jobs as wide as itself.

    Parameters
    ----------
    name
        Its name.
    key, tie, preempts, backfill
        See above.
    quantum_us
        Distance of the ticks, counted from the first submission.
    thresholds, ranks
        For `Key.TABLE`: attained service (GPU-microseconds) at which the rank changes, increasing; one rank more.
    demotion_thresholds
        Attained service at which a running job calls for a pass, increasing.
    reservations
        Which waiting jobs have reservations; the key is then one that doesn't change while a job waits, and no job is preempted.
    needs
        What of a job it sees that a real scheduler wouldn't, for people; empty if nothing.

    Raises
    ------
    InvalidOptionError
        If the table isn't one, or a quantum is missing.
    """

    name: str
    key: Key
    tie: Tie = Tie.SUBMISSION
    preempts: Preempts = Preempts.NEVER
    backfill: bool = True
    quantum_us: int = 0
    thresholds: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    demotion_thresholds: tuple[int, ...] = ()
    reservations: Reservations | None = None
    needs: str = ""

    def __post_init__(self) -> None:
        """Check the table and the quantum."""
        if self.preempts is Preempts.AT_TICKS and self.quantum_us < MIN_QUANTUM_US:
            raise InvalidOptionError(f"{self.name}: quantum must be at least a millisecond, got {self.quantum_us} us")
        if self.key is Key.TABLE and len(self.ranks) != len(self.thresholds) + 1:
            raise InvalidOptionError(f"{self.name}: {len(self.thresholds)} thresholds need one rank more")
        if self.reservations and (self.key is not Key.SUBMISSION or self.preempts is not Preempts.NEVER):
            raise InvalidOptionError(f"{self.name}: only the order of submission, without preemption, has reservations")
        for values in (self.thresholds, self.demotion_thresholds):
            if any(a >= b for a, b in pairwise(values)) or (values and values[0] < 1):
                raise InvalidOptionError(f"{self.name}: thresholds must increase and be positive, got {values[:5]}")

    @property
    def sees_run_times(self) -> bool:
        """Whether what is still to come of a job's work tells it something."""
        guesses = self.reservations is not None and self.reservations.guess is Guess.FACTOR
        return guesses or self.key in (Key.REMAINING_TIME, Key.REMAINING_SERVICE)

    @property
    def draws_rank(self) -> bool:
        """Whether jobs are ordered by lot."""
        return self.key is Key.DRAWN


def random_priorities(seed: int, count: int) -> IntArray:
    """Return the lot that each job draws at its submission, whatever jobs come after it; shape (jobs,)."""
    return np.random.default_rng(seed).integers(0, 2**62, count)

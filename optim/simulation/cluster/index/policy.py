"""Index policies: jobs run in order of a compiled key."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from itertools import pairwise

import numpy as np

from optim.core.arrays import IntArray
from optim.core.errors import InvalidOptionError
from optim.models.cluster.metrics import GANG_CLASSES, HOUR_US
from optim.models.cluster.workload import Workload

MIN_QUANTUM_US = 1_000
"""Minimum quantum: the work of a slowed-down job is rounded down to microseconds at each stop, so shorter turns would
never complete it."""


class Key(IntEnum):
    """Key that orders jobs, smaller first."""

    SUBMISSION = 0
    DRAWN = 1
    REMAINING_TIME = 2
    REMAINING_SERVICE = 3
    ATTAINED_TIME = 4
    ATTAINED_SERVICE = 5
    TABLE = 6


class Tie(IntEnum):
    """Order of jobs with equal keys: by submission, or by first start with jobs that never ran last."""

    SUBMISSION = 0
    FIRST_START = 1


class Preempts(IntEnum):
    """Times at which jobs of a smaller key may preempt: never, at any event, at multiples of the quantum."""

    NEVER = 0
    AT_EVENTS = 1
    AT_TICKS = 2


class Guess(StrEnum):
    """Rule that estimates the run time of jobs without a stated estimate."""

    PAST = "past"
    FACTOR = "factor"


MAX_PRIORITY = 2**32 - 1
"""Maximum priority, since priorities are unsigned 32-bit integers."""

CHARGE_UNIT = 1_000_000
"""Number of charge units per GPU. Charges are integers, so that sums do not depend on the order of summation."""

ALL = 2**40
"""`Reservations.depth` with which all waiting jobs have reservations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservations:
    """Number of waiting jobs with reservations, and the estimates behind them.

    Jobs start in order as long as they fit. The first jobs that do not fit get a reservation: the earliest start from which the
    placement rule finds their GPUs free for their estimated run time. This start is computed from the estimates of running and
    reserved jobs, and from planned outages. Other jobs start only if this delays no reserved start. A reserved start moves
    earlier when GPUs become free before the expected time. It moves later only if a job exceeds its estimate or a machine
    fails; then reservations on the affected machines are planned again.

    Parameters
    ----------
    depth
        Number of waiting jobs with a reservation, at least 1: 1 for EASY, `ALL` for conservative backfilling.
    kills
        Whether a job is stopped permanently at its stated estimate. Otherwise, as with guessed estimates, a job that
        exceeds its estimate is expected to run twice its time so far.
    guess
        Rule for the run time of jobs without a stated estimate.
    quantile, past
        With `Guess.PAST`, the estimate is this quantile of the run times of the user's last `past` completed jobs. A user
        without completed jobs gets the quantile over the last `past` jobs of all users.
    default_us
        Estimate before any job has completed, in microseconds.
    factor
        With `Guess.FACTOR`, the estimate is this multiple of the true run time.

    References
    ----------
    Lifka, "The ANL/IBM SP Scheduling System", JSSPP 1995. Mu'alem, Feitelson, "Utilization, Predictability, Workloads,
    and User Runtime Estimates in Scheduling the IBM SP2 with Backfilling", IEEE TPDS 12(6), 2001. Tsafrir, Etsion,
    Feitelson, "Backfilling Using System-Generated Predictions Rather than User Runtime Estimates", IEEE TPDS 18(6),
    2007, for estimates from the past and their correction.
    """

    depth: int = 1
    kills: bool = False
    guess: Guess = Guess.PAST
    quantile: float = 0.9
    past: int = 20
    default_us: int = 86_400_000_000
    factor: float = 2.0


def stated_estimates(jobs: Workload, rule: Reservations) -> IntArray:
    """Return the estimated run time of each job in microseconds, -1 if it has to be estimated from past jobs."""
    guessed = np.full(len(jobs), -1)
    if rule.guess is Guess.FACTOR:
        guessed = np.maximum(1, np.rint(jobs.duration_us * rule.factor)).astype(np.int64)
    return np.where(jobs.estimate_us > 0, jobs.estimate_us, guessed)


def histories(jobs: Workload) -> tuple[IntArray, int]:
    """Return for each job the index of its history of run times, and the number of histories.

    A history belongs to a user, or to a virtual cluster if users are unknown.
    """
    if len(jobs.users) > 1:
        return jobs.user, len(jobs.users)
    return jobs.group, len(jobs.groups)


def promises(
    submit_us: IntArray, gpus: IntArray, reserved_us: IntArray, promised_us: IntArray, first_start_us: IntArray
) -> dict[str, float]:
    """Return statistics of reserved starts.

    The statistics are the number of jobs with a reservation, the number of late starts, and, for each class of gang
    sizes, the longest times from submission to reservation and to the promised start.

    Parameters
    ----------
    reserved_us, promised_us
        Time of each job's first reservation, and the start that this reservation promised; -1 without a reservation.
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

    A pass goes through all jobs in the order (key, tie, submission, row). A running job keeps its GPUs; a waiting job
    is placed if it fits. If it does not fit and preemption is allowed now, running jobs of larger keys are stopped for
    it, least urgent first. A job that still does not fit ends the pass; with `backfill` it blocks only jobs of its
    width.

    Parameters
    ----------
    name
        Name of the policy.
    key, tie, preempts, backfill
        Key, order of jobs with equal keys, times of preemption, and whether jobs may pass a job that does not fit; see
        above.
    quantum_us
        Time between two ticks in microseconds; ticks are counted from the first submission.
    thresholds, ranks
        For `Key.TABLE`: increasing values of attained service (GPU-microseconds) at which the rank changes; rank below
        the first threshold, followed by the rank from each threshold on.
    demotion_thresholds
        Increasing values of attained service at which a running job triggers a pass.
    reservations
        Rule of reservations. It requires a key that is constant while a job waits, and excludes preemption.
    needs
        Description of information that the policy uses and a real scheduler lacks; empty if none.

    Raises
    ------
    InvalidOptionError
        If the table is invalid, or a quantum is missing.
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
            raise InvalidOptionError(
                f"{self.name}: {len(self.thresholds)} thresholds need {len(self.thresholds) + 1} ranks"
            )
        if self.reservations and (self.key is not Key.SUBMISSION or self.preempts is not Preempts.NEVER):
            raise InvalidOptionError(f"{self.name}: reservations require the order of submission without preemption")
        for values in (self.thresholds, self.demotion_thresholds):
            if any(a >= b for a, b in pairwise(values)) or (values and values[0] < 1):
                raise InvalidOptionError(f"{self.name}: thresholds must increase and be positive, got {values[:5]}")

    @property
    def sees_run_times(self) -> bool:
        """Whether the key or the estimates of reservations depend on the jobs' true run times."""
        guesses = self.reservations is not None and self.reservations.guess is Guess.FACTOR
        return guesses or self.key in (Key.REMAINING_TIME, Key.REMAINING_SERVICE)

    @property
    def draws_rank(self) -> bool:
        """Whether jobs have a random order."""
        return self.key is Key.DRAWN


def random_priorities(seed: int, count: int) -> IntArray:
    """Return the random rank that each job draws at its submission, independent of later jobs; shape (jobs,)."""
    return np.random.default_rng(seed).integers(0, 2**62, count)

"""Index policies: jobs run in the order of a compiled key."""

from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

import numpy as np

from optim.core.arrays import IntArray
from optim.core.errors import InvalidOptionError

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
    needs: str = ""

    def __post_init__(self) -> None:
        """Check the table and the quantum."""
        if self.preempts is Preempts.AT_TICKS and self.quantum_us < MIN_QUANTUM_US:
            raise InvalidOptionError(f"{self.name}: quantum must be at least a millisecond, got {self.quantum_us} us")
        if self.key is Key.TABLE and len(self.ranks) != len(self.thresholds) + 1:
            raise InvalidOptionError(f"{self.name}: {len(self.thresholds)} thresholds need one rank more")
        for values in (self.thresholds, self.demotion_thresholds):
            if any(a >= b for a, b in pairwise(values)) or (values and values[0] < 1):
                raise InvalidOptionError(f"{self.name}: thresholds must increase and be positive, got {values[:5]}")

    @property
    def draws_rank(self) -> bool:
        """Whether jobs are ordered by lot."""
        return self.key is Key.DRAWN


def random_priorities(seed: int, count: int) -> IntArray:
    """Return the lot that each job draws at its submission, whatever jobs come after it; shape (jobs,)."""
    return np.random.default_rng(seed).integers(0, 2**62, count)

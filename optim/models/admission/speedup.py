"""How much faster a job is with more workers: whole twentieths, so that work is decided without rounding.

Without a table a job of Y workers is Y times as fast as with one, as in the paper. With one, row (2) counts twentieths of
the worker-slots that one worker would need: ``sum_t p_i(Y_i(t)) >= ceil(20 E N M kappa) x_i`` with p_i(Y) the table's
entry; the last entry holds for more workers than are listed (docs/mathematics/admission.md, (A.2s)).
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from optim.core.errors import InvalidProblemError

if TYPE_CHECKING:
    from optim.models.admission.instance import Jobs

IntArray = NDArray[np.int64]

TWENTIETHS = 20
"""Units of a speed-up: a table's entries are multiples of 0.05."""

MOST_SPEEDUP = 10**6


def progress_by_workers(speedup: Sequence[int], most: int) -> IntArray:
    """Return the progress that Y = 0, ..., most workers make in a slot, in twentieths of one worker's.

    Parameters
    ----------
    speedup
        Twentieths by 1, 2, ... workers, at least one entry.
    most
        Most workers.
    """
    listed = np.array([0, *speedup], dtype=np.int64)
    return listed[np.minimum(np.arange(most + 1), len(speedup))]


def curve_of(jobs: "Jobs", job: int) -> tuple[int, ...]:
    """Return a job's table, empty where its speed is linear in workers."""
    return jobs.speedup[job] if jobs.speedup else ()


def validate_speedups(jobs: "Jobs") -> None:
    """Raise unless every table begins at 1 and never falls.

    Raises
    ------
    InvalidProblemError
        With the job, its entry and the remedy.
    """
    if jobs.speedup and len(jobs.speedup) != len(jobs):
        raise InvalidProblemError(f"jobs.speedup must hold one table a job or none, got {len(jobs.speedup)}")
    for i, table in enumerate(jobs.speedup):
        for fault in _faults(table):
            raise InvalidProblemError(f"jobs[{i}].speedup {fault}")


def _faults(table: Sequence[int]) -> Iterator[str]:
    if not table:
        return
    if table[0] != TWENTIETHS:
        yield f"must begin with 1, the speed of one worker, got {table[0] / TWENTIETHS:g}; divide all entries by it"
    for k in range(1, len(table)):
        if table[k] < table[k - 1]:
            yield (
                f"must not fall, got {table[k] / TWENTIETHS:g} after {table[k - 1] / TWENTIETHS:g} for {k + 1} workers; "
                "repeat the entry before: workers may be idle"
            )
    if table[-1] > MOST_SPEEDUP * TWENTIETHS:
        yield f"must be at most {MOST_SPEEDUP}, got {table[-1] / TWENTIETHS:g}"

"""Tiresias' second form: the Gittins index of the distribution of jobs' total service.

``G(a) = sup_D P(S - a <= D | S > a) / E[min(S - a, D) | S > a]``, the supremum over all D; the released simulator adds up S
instead of S - a.
"""

from dataclasses import dataclass

import numpy as np

from optim.core.errors import InvalidOptionError
from optim.models.cluster.workload import Workload
from optim.models.cluster.world import FloatArray, IntArray
from optim.simulation.cluster.index_policy import IndexPolicy, Key, Preempts, Tie


@dataclass(frozen=True, slots=True, kw_only=True)
class GittinsOptions:
    """Options.

    Parameters
    ----------
    levels
        At how many values of attained service, at most, the index changes.

    Raises
    ------
    InvalidOptionError
        If it is outside its range.
    """

    levels: int = 32

    def __post_init__(self) -> None:
        """Check the range."""
        if not 1 <= self.levels <= 4096:
            raise InvalidOptionError(f"levels must lie in 1..4096, got {self.levels}")


def gittins_index(service: IntArray, attained: IntArray) -> FloatArray:
    """Return the index of each attained service, under the empirical distribution of total service.

    Parameters
    ----------
    service
        Total service of jobs, shape (jobs,).
    attained
        Where the index is wanted, shape (levels,); 0 where no job has more.
    """
    ordered = np.sort(service).astype(float)
    index = np.zeros(len(attained))
    for at, done in enumerate(attained.tolist()):
        left = ordered[np.searchsorted(ordered, done, side="right") :] - done
        if len(left):
            many = np.arange(1, len(left) + 1)
            spent = np.cumsum(left) + (len(left) - many) * left
            index[at] = (many / spent).max()
    return index


def gittins(options: GittinsOptions, jobs: Workload) -> IndexPolicy:
    """Return the policy; the distribution is that of the workload's own jobs."""
    service = np.unique(jobs.gpus * jobs.duration_us)
    picks = np.unique(np.linspace(0, len(service) - 1, min(options.levels, len(service))).round().astype(int))
    thresholds = service[picks]
    index = gittins_index(jobs.gpus * jobs.duration_us, np.concatenate([[0], thresholds]))
    _, rank = np.unique(-index, return_inverse=True)
    return IndexPolicy(
        name="tiresias-gittins",
        source="Gu et al., Tiresias, NSDI 2019; Gittins 1979",
        key=Key.TABLE,
        tie=Tie.FIRST_START,
        preempts=Preempts.AT_EVENTS,
        thresholds=tuple(thresholds.tolist()),
        ranks=tuple(rank.tolist()),
        crossings=tuple(thresholds.tolist()),
        needs="the distribution of the jobs' total service (not which job has which)",
    )

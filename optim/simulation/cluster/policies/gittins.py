"""Tiresias' second form: the Gittins index of the distribution of jobs' total service.

``G(a) = sup_D P(S - a <= D | S > a) / E[min(S - a, D) | S > a]``, the supremum over all D; the released simulator adds up S
instead of S - a.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from optim.core.errors import InvalidOptionError
from optim.models.cluster.workload import US, Workload
from optim.models.cluster.world import FloatArray, IntArray
from optim.simulation.cluster.index_policy import IndexPolicy, Key, Preempts, Tie


@dataclass(frozen=True, slots=True, kw_only=True)
class GittinsOptions:
    """Options.

    Parameters
    ----------
    levels
        At how many values of attained service, at most, the index changes.
    service
        A file with a sample of jobs' total service, such as Tiresias' (`duration` in GPU-seconds) or Gavel's (`duration_s` and
        `num_gpus`): what a scheduler may know from the past. The workload's own jobs without one.

    Raises
    ------
    InvalidOptionError
        If it is outside its range, or there is no such file.
    """

    levels: int = 32
    service: Path | None = None

    def __post_init__(self) -> None:
        """Check the range."""
        if not 1 <= self.levels <= 4096:
            raise InvalidOptionError(f"levels must lie in 1..4096, got {self.levels}")
        if self.service is not None and not self.service.is_file():
            raise InvalidOptionError(f"service {self.service} is no file; give the path of one")

    def sample(self, jobs: Workload) -> IntArray:
        """Return the total service of jobs, in GPU-microseconds; shape (sample,)."""
        if self.service is None:
            return np.asarray(jobs.gpus * jobs.duration_us, np.int64)
        from optim.workloads.traces.summaries import read_samples

        seconds, gpus = read_samples(self.service)
        return np.asarray(np.maximum(1, np.rint(seconds * gpus * US)), np.int64)


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
    """Return the policy; the distribution is that of a sample, or of the workload's own jobs."""
    sample = options.sample(jobs)
    service = np.unique(sample)
    picks = np.unique(np.linspace(0, len(service) - 1, min(options.levels, len(service))).round().astype(int))
    thresholds = service[picks]
    index = gittins_index(sample, np.concatenate([[0], thresholds]))
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
        needs="" if options.service else "the distribution of the jobs' total service (not which job has which)",
    )

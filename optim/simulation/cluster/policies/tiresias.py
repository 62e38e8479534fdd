"""Tiresias: queues by attained service, and the variant with the Gittins index.

Assumptions: jobs are rescheduled when a job reaches a queue's limit, is submitted or ends. Default limits are quantiles of the
jobs' total service, which an operator would know from the past. Starved jobs are promoted only if `promote` is set.

``G(a) = sup_D P(S - a <= D | S > a) / E[min(S - a, D) | S > a]``, the supremum over all D; the released simulator sums S
instead of S - a.
"""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidOptionError, check_in
from optim.core.policies import policy
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.workload import US, Workload
from optim.simulation.cluster.index.policy import IndexPolicy, Key, Preempts, Tie
from optim.simulation.cluster.planning.index_adapter import IndexPolicyAdapter
from optim.simulation.cluster.planning.policy import Plan, PlanningPolicy, View

BY_QUANTILES, OF_AUTHORS = "quantiles", "authors"

AUTHORS = "3250:7200:18000"
"""Limits in the authors' simulator, for the trace of their paper."""

QUANTILES = tuple(1 - 4.0**-power for power in range(1, 6))
"""Levels of the default limits, as quantiles of the jobs' total service: three quarters of a queue's jobs end in it, a
quarter move to the next queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TiresiasOptions:
    """Options.

    Parameters
    ----------
    limits_gpu_s
        Attained service in GPU-seconds at which a job is demoted to the next queue: increasing numbers separated by colons,
        ``quantiles`` (0.75, 0.9375, ... of the jobs' total service, so that three quarters of a queue's jobs end in it), or
        ``authors`` (3250:7200:18000, as in the authors' simulator).
    promote
        Multiple of its run time since its last promotion for which a job must wait without interruption to be promoted to the
        first queue; 0 for no promotion.

    Raises
    ------
    InvalidOptionError
        If limits aren't increasing positive numbers, or `promote` is outside its range.
    """

    limits_gpu_s: str = BY_QUANTILES
    promote: float = 0.0

    def __post_init__(self) -> None:
        """Check the limits."""
        check_in("[0, 1e6]", self, "promote")
        if self.limits_gpu_s == BY_QUANTILES:
            return
        try:
            values = [float(part) for part in self._limits.split(":")]
        except ValueError:
            values = []
        if not values or not values[0] >= 0.001 or any(a >= b for a, b in pairwise(values)):
            raise InvalidOptionError(
                f"limits_gpu_s must be {BY_QUANTILES}, {OF_AUTHORS}, or increasing numbers such as 3250:7200, "
                f"got {self.limits_gpu_s[:40]!r}"
            )

    @property
    def _limits(self) -> str:
        return AUTHORS if self.limits_gpu_s == OF_AUTHORS else self.limits_gpu_s

    def limits_us(self, jobs: Workload) -> tuple[int, ...]:
        """Return the limits in GPU-microseconds."""
        if self.limits_gpu_s != BY_QUANTILES:
            return tuple(round(float(part) * US) for part in self._limits.split(":"))
        service = np.sort(jobs.gpus * jobs.duration_us)
        at = [min(len(service) - 1, int(share * len(service))) for share in QUANTILES]
        return tuple(np.unique(service[at]).tolist())


class Promoting(IndexPolicyAdapter):
    """Queues by the service since the last promotion; starving jobs are promoted to the first."""

    def __init__(self, policy: IndexPolicy, jobs: Workload, promote: float) -> None:
        super().__init__(policy, jobs)
        self.promote = promote

    def begin(self, cluster: Cluster, seed: int) -> None:
        """Forget promotions."""
        super().begin(cluster, seed)
        self.base = np.zeros(len(self.jobs), np.int64)
        self.promotions = 0

    def executed(self, view: View) -> IntArray:
        """Return each job's time of progress with GPUs since its last promotion."""
        return np.asarray(view.executed_us - self.base[: len(view.gpus)])

    def _due(self, view: View, waiting: IntArray) -> IntArray:
        """Return each job's promotion time if it waits until then; the wait of running jobs starts now."""
        begun = np.where(np.isin(waiting, list(view.running)), view.now_us, view.stopped_us[waiting])
        return np.asarray(begun + np.maximum(1, np.ceil(self.promote * self.executed(view)[waiting])).astype(np.int64))

    def plan(self, view: View) -> Plan:
        """Promote the jobs that are due, then schedule all jobs."""
        waiting = view.waiting[self.executed(view)[view.waiting] > 0]
        starved = waiting[self._due(view, waiting) <= view.now_us]
        self.base[starved] = view.executed_us[starved]
        self.promotions += len(starved)
        return super().plan(view)

    def _next_time(self, view: View, gpus: "dict[int, tuple[int, ...]]") -> int | None:
        waiting = np.array([job for job in view.jobs.tolist() if job not in gpus], np.int64)
        due = self._due(view, waiting[self.executed(view)[waiting] > 0])
        times = [super()._next_time(view, gpus), *due[due > view.now_us].tolist()]
        return min((time for time in times if time is not None), default=None)

    def figures(self) -> dict[str, float]:
        """Return the number of promotions."""
        return {"promotions": float(self.promotions)}


@policy(
    "tiresias",
    world="cluster",
    options=TiresiasOptions,
    summary="Queue jobs by attained service; order each queue by first start; preempt at events and limits.",
    source="Gu et al., Tiresias, NSDI 2019",
    is_default=True,
)
def tiresias(options: TiresiasOptions, jobs: Workload) -> IndexPolicy | PlanningPolicy:
    """Return the policy that needs no distribution of job sizes (2D-LAS in queues)."""
    limits = options.limits_us(jobs)
    policy = IndexPolicy(
        name="tiresias",
        key=Key.TABLE,
        tie=Tie.FIRST_START,
        preempts=Preempts.AT_EVENTS,
        thresholds=limits,
        ranks=tuple(range(len(limits) + 1)),
        demotion_thresholds=limits,
        needs="quantiles of the jobs' total service, not that of a single job"
        if options.limits_gpu_s == BY_QUANTILES
        else "",
    )
    return Promoting(policy, jobs, options.promote) if options.promote else policy


@dataclass(frozen=True, slots=True, kw_only=True)
class GittinsOptions:
    """Options.

    Parameters
    ----------
    levels
        Maximum number of values of attained service at which the index changes, in 1..4096.
    service
        File with a sample of past jobs' total service, such as Tiresias' (`duration` in GPU-seconds) or Gavel's (`duration_s`
        and `num_gpus`). The default is the jobs of the workload.

    Raises
    ------
    InvalidOptionError
        If `levels` is outside its range, or `service` isn't a file.
    """

    levels: int = 32
    service: Path | None = None

    def __post_init__(self) -> None:
        """Check the range."""
        if not 1 <= self.levels <= 4096:
            raise InvalidOptionError(f"levels must lie in 1..4096, got {self.levels}")
        if self.service is not None and not self.service.is_file():
            raise InvalidOptionError(f"service must be the path of a file, got {self.service}")

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
        Values of attained service for which to compute the index, shape (levels,); the index is 0 for values that no
        job exceeds.
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


@policy(
    "tiresias-gittins",
    world="cluster",
    options=GittinsOptions,
    summary="Schedule by the Gittins index of attained service; preempt at events and levels.",
    source="Gu et al., Tiresias, NSDI 2019; Gittins 1979",
    is_default=True,
)
def gittins(options: GittinsOptions, jobs: Workload) -> IndexPolicy:
    """Return the policy for the distribution of the sample file, or else of the workload's jobs."""
    sample = options.sample(jobs)
    service = np.unique(sample)
    picks = np.unique(np.linspace(0, len(service) - 1, min(options.levels, len(service))).round().astype(int))
    thresholds = service[picks]
    index = gittins_index(sample, np.concatenate([[0], thresholds]))
    _, rank = np.unique(-index, return_inverse=True)
    return IndexPolicy(
        name="tiresias-gittins",
        key=Key.TABLE,
        tie=Tie.FIRST_START,
        preempts=Preempts.AT_EVENTS,
        thresholds=tuple(thresholds.tolist()),
        ranks=tuple(rank.tolist()),
        demotion_thresholds=tuple(thresholds.tolist()),
        needs="" if options.service else "the distribution of the jobs' total service, not that of a single job",
    )

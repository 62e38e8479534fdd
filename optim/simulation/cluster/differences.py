"""Difference between two policies on a trace, paired by job, with a confidence interval over weeks."""

from dataclasses import dataclass

import numpy as np

from optim.models.cluster.metrics import HOUR_US
from optim.models.cluster.run_file import LoggedRun
from optim.models.cluster.waiting import last_times
from optim.models.cluster.workload import US, Workload
from optim.statistics import MIN_BLOCKS, BlockMean, block_mean

WEEK_US = 7 * 86_400 * US


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Completion time under `policy` minus under `baseline`, in hours: mean over the jobs that both completed."""

    policy: str
    baseline: str
    hours: BlockMean

    def __str__(self) -> str:
        """Return a one-line summary."""
        said, hours = f"{self.policy} instead of {self.baseline}: {self.hours.mean:+.3g} h", self.hours
        weeks = f"{hours.blocks} week" if hours.blocks == 1 else f"{hours.blocks} weeks"
        if hours.blocks < MIN_BLOCKS:
            return f"{said}, {weeks}: no interval: at least {MIN_BLOCKS} weeks are needed"
        told = f"{said} [{hours.low:+.3g}, {hours.high:+.3g}], {weeks}"
        return told if hours.is_told else f"{told}: not significant, the interval contains 0"


def difference(jobs: Workload, policy: LoggedRun, baseline: LoggedRun, seed: int = 0) -> Difference:
    """Return the paired difference of completion times, with a 95 % interval.

    The interval is from a circular block bootstrap over weeks of submission. Only jobs that both runs completed count.
    """
    count = len(jobs)
    is_done = policy.log.is_done(count) & baseline.log.is_done(count)
    hours = (last_times(policy.log, count) - last_times(baseline.log, count))[is_done] / HOUR_US
    week = ((jobs.submit_us - jobs.submit_us[0]) // WEEK_US)[is_done]
    number = int((jobs.submit_us[-1] - jobs.submit_us[0]) // WEEK_US) + 1
    totals, counts = np.bincount(week, hours, number).astype(float), np.bincount(week, minlength=number).astype(float)
    if not counts.any():
        nothing = BlockMean(mean=0.0, half=np.inf, blocks=0)
        return Difference(policy=policy.policy, baseline=baseline.policy, hours=nothing)
    found = block_mean(totals, counts, np.random.default_rng(seed))
    return Difference(policy=policy.policy, baseline=baseline.policy, hours=found)

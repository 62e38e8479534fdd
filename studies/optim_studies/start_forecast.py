"""How well forecasts of starts hold on weeks that they don't know: coverage and error on published lists of jobs.

A list is played under a policy, which tells when each job starts. At moments of the later weeks, at which jobs wait, the state is
taken and forecast from what ended before it alone. Run it as
``python -m optim_studies.start_forecast pollux pollux_philly_82k.csv.gz --gpus 84x8 --policy fifo --days 0``.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from optim.core.arrays import FloatArray
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import Run
from optim.models.cluster.present import present_at
from optim.models.cluster.workload import US, Workload
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import Policy, simulate
from optim.simulation.cluster.forecast import ForecastOptions, History, estimated, forecast
from optim.simulation.cluster.run_times import JobTraits, RunTimes
from optim.workloads.cluster.jobs import Oversized, Selection, cluster_jobs
from optim.workloads.traces.formats import read_jobs
from optim.workloads.traces.job_table import ReadOptions

HELD_OUT = 0.4
"""Share of the list's time before the first moment."""
LAST = 0.98
LEAST_PENDING = 20
HOUR_US = 3_600 * US


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What came of one forecast: which jobs' intervals hold their start, and errors in hours of the median and of group means; shape (pending,)."""

    is_covered: FloatArray
    error_h: FloatArray
    error_of_means_h: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A list that was played to its end under a policy."""

    jobs: Workload
    cluster: Cluster
    run: Run
    policy: str
    backfill: bool

    def make(self, jobs: Workload) -> Policy:
        """Return the policy."""
        return make_policy(self.policy, jobs, {"backfill": True} if self.backfill else {})

    def moments(self, count: int, seed: int) -> list[int]:
        """Return times of the later weeks at which at least `LEAST_PENDING` jobs wait."""
        end = int(self.jobs.submit_us[-1])
        times = np.arange(int(HELD_OUT * end), int(LAST * end), HOUR_US // 2)
        begun = np.searchsorted(np.sort(self.run.first_start_us), times, side="right")
        busy = times[np.searchsorted(self.jobs.submit_us, times, side="right") - begun >= LEAST_PENDING]
        rng = np.random.default_rng(seed)
        return [int(time) for time in np.sort(rng.choice(busy, min(count, len(busy)), replace=False))]

    def forecast_at(self, now: int, options: ForecastOptions, seed: int) -> Moment | None:
        """Return what comes of the forecast at a moment, None if no job is pending."""
        rest, present = present_at(self.jobs, self.run.log, now)
        here = np.flatnonzero(rest.submit_us <= now)
        jobs, truth = rest.select(here), self.run.first_start_us[self.run.end_us > now][here]
        if not present.is_pending(jobs).any():
            return None
        past = np.flatnonzero(self.jobs.submit_us <= now)
        has_ended = self.run.end_us[past] <= now
        ran = np.where(has_ended, self.jobs.duration_us[past], np.maximum(0, now - self.run.first_start_us[past]))
        history = History(jobs=self.jobs.select(past), run_us=ran, has_ended=has_ended, now_us=now)
        made = forecast(jobs, present, self.cluster, self.make, history, options=options, seed=seed)
        held = present.held_us(len(jobs))
        mean_s = history.run_times(jobs, present).mean_s(JobTraits.of(jobs), held / US)
        meant = replace(jobs, duration_us=np.maximum(held + 1, np.rint(mean_s * US).astype(np.int64)))
        by_means = simulate(meant, self.cluster, self.make(meant), present=present)
        assert by_means is not None
        low, middle, high = made.quantiles_us()
        start = truth[made.rows]
        return Moment(
            is_covered=((start >= low) & (start <= high)).astype(np.float64),
            error_h=np.abs(middle - start) / HOUR_US,
            error_of_means_h=np.abs(by_means.first_start_us[made.rows] - start) / HOUR_US,
        )


def with_estimates(jobs: Workload) -> Workload:
    """Return jobs that, where they state nothing, state what 90 % of their group's stayed below in the time before the first moment."""
    past = np.flatnonzero(jobs.submit_us <= HELD_OUT * jobs.submit_us[-1])
    known = RunTimes(JobTraits.of(jobs).select(past), jobs.duration_us[past] / US, np.ones(len(past), np.bool_))
    return estimated(jobs, known, JobTraits.of(jobs), np.zeros(len(jobs), np.int64))


def main(words: Sequence[str] | None = None) -> None:
    """Play a list, forecast at some moments, and print coverage and errors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace_format", choices=("pollux", "philly"))
    parser.add_argument("trace")
    parser.add_argument("--gpus", default="84x8")
    parser.add_argument("--policy", default="fifo", help="fifo, fifo.backfill or easy")
    parser.add_argument("--days", type=float, default=7.0, help="of new jobs; 0 where later jobs pass nobody")
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--moments", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(words)
    cluster = Cluster.grid(asked.gpus)
    table = read_jobs(asked.trace, asked.trace_format, ReadOptions())
    jobs = with_estimates(cluster_jobs(table, Selection(oversized=Oversized.DROP), cluster))
    name, _, backfill = asked.policy.partition(".")
    run = simulate(jobs, cluster, make_policy(name, jobs, {"backfill": True} if backfill else {}))
    assert run is not None
    world = World(jobs=jobs, cluster=cluster, run=run, policy=name, backfill=bool(backfill))
    options, began = ForecastOptions(draws=asked.draws, arrival_days=asked.days), time.process_time()
    found: list[Moment] = []
    for now in world.moments(asked.moments, asked.seed):
        moment = world.forecast_at(now, options, asked.seed)
        if moment is not None:
            found.append(moment)
            sys.stdout.write(
                f"day {now / 24 / HOUR_US:.1f}: {len(moment.error_h)} pending, {moment.is_covered.mean():.0%} covered, median "
                f"error {np.median(moment.error_h):.2f} h, by means {np.median(moment.error_of_means_h):.2f} h\n"
            )
            sys.stdout.flush()
    covered, error, means = (
        np.concatenate([getattr(each, part) for each in found])
        for part in ("is_covered", "error_h", "error_of_means_h")
    )
    sys.stdout.write(
        f"{len(found)} moments, {len(error):,} pending jobs: 80 % intervals cover {covered.mean():.1%} (mean of moments "
        f"{np.mean([each.is_covered.mean() for each in found]):.1%}); median absolute error {np.median(error):.2f} h, of group means "
        f"{np.median(means):.2f} h, ratio {np.median(error) / np.median(means):.2f}; {time.process_time() - began:.0f} s of processor time\n"
    )


if __name__ == "__main__":
    main()

"""Accuracy of start forecasts on held-out weeks: coverage and error on published lists of jobs.

A list is simulated under a policy, which gives each job's start. At times with waiting jobs, a forecast is made from the state and from
the jobs that ended before. Ranges of later forecasts are stretched by the outcomes of earlier ones, as in `simulate cluster --forecast`.
Run it as ``python -m optim_studies.start_forecast pollux pollux_philly_82k.csv.gz --gpus 84x8 --policy fifo --days 0``.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.workload import US, Workload
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import Policy, first_starts, simulate
from optim.simulation.cluster.forecast import WEEK_US, ForecastOptions, estimated, forecast
from optim.simulation.cluster.forecast_calibration import Outcome, PastMoment, Played, learn_spread
from optim.simulation.cluster.run_times import JobTraits, RunTimes
from optim.workloads.cluster.jobs import Oversized, Selection, cluster_jobs
from optim.workloads.traces.formats import read_jobs
from optim.workloads.traces.job_table import ReadOptions

FIRST = 0.1
"""Share of the list's time before the first forecast used for calibration."""
HELD_OUT = 0.4
"""Share of the list's time before the first counted forecast."""
LAST = 0.98
LEAST_PENDING = 20
HOUR_US = 3_600 * US


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Outcome of one forecast.

    Parameters
    ----------
    now_us, num_known, start_us, drawn_us
        See `optim.simulation.cluster.forecast_calibration.Outcome`.
    spread
        Factor on the ranges, from earlier forecasts.
    held, held_as_drawn
        Fraction of the pending jobs whose start is in the stretched interval, and in the original interval.
    error_h, error_of_means_h
        Errors of the median and of group means in hours, one per pending job; those of the means only on request.
    """

    now_us: int
    num_known: int
    start_us: list[int]
    drawn_us: list[list[int]]
    spread: float
    held: float
    held_as_drawn: float
    error_h: list[float]
    error_of_means_h: list[float]

    def outcome(self) -> Outcome:
        """Return the data for calibration."""
        return Outcome(
            now_us=self.now_us,
            num_known=self.num_known,
            start_us=np.array(self.start_us),
            drawn_us=np.array(self.drawn_us),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A list of jobs, simulated to its end under a policy."""

    played: Played
    cluster: Cluster
    policy: str
    backfill: bool

    def make(self, jobs: Workload) -> Policy:
        """Return the policy."""
        return make_policy(self.policy, jobs, {"backfill": True} if self.backfill else {})

    def busy(self, share: float) -> list[int]:
        """Return the times after a share of the list's time at which at least `LEAST_PENDING` jobs wait."""
        end = int(self.played.jobs.submit_us[-1])
        return [int(each) for each in self.played.busy_times_us(int(share * end), int(LAST * end), LEAST_PENDING)]

    def counting(self, count: int, seed: int) -> list[int]:
        """Return a random sample of the held-out times with waiting jobs."""
        busy, rng = self.busy(HELD_OUT), np.random.default_rng(seed)
        return [int(each) for each in np.sort(rng.choice(busy, min(count, len(busy)), replace=False))]

    def spaced(self, count: int) -> list[int]:
        """Return evenly spaced times among all times with waiting jobs."""
        busy = self.busy(FIRST)
        return sorted({busy[at] for at in np.linspace(0, len(busy) - 1, count).astype(int).tolist()}) if count else []

    def forecast_at(
        self, now: int, options: ForecastOptions, seed: int, before: Sequence[Outcome], *, with_means: bool
    ) -> Moment:
        """Return the outcome of the forecast at a time, with ranges stretched by earlier outcomes."""
        then = self.played.moment(now)
        made = forecast(then.jobs, then.present, self.cluster, self.make, then.history, options=options, seed=seed)
        start = then.start_us[made.rows]
        few = Outcome.of(then, made)
        spread = learn_spread(before, now, few.num_known).spread
        held = []
        for each in (spread, 0.0):
            low, high = replace(made, spread=each).quantiles_us((0.1, 0.9))
            held.append(float(((start >= np.floor(low)) & (start <= np.ceil(high))).mean()))
        means = self._starts_by_means(then, made.rows) if with_means else start[:0]
        return Moment(
            now_us=now,
            num_known=few.num_known,
            start_us=few.start_us.tolist(),
            drawn_us=few.drawn_us.tolist(),
            spread=spread,
            held=held[0],
            held_as_drawn=held[1],
            error_h=_hours(made.quantiles_us((0.5,))[0] - start),
            error_of_means_h=_hours(means - start) if with_means else [],
        )

    def _starts_by_means(self, then: PastMoment, pending: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> FloatArray:
        """Return the starts of pending jobs if each run time is its group's mean."""
        held = then.present.held_us(len(then.jobs))
        mean_s = then.history.run_times(then.jobs, then.present).mean_s(JobTraits.of(then.jobs), held / US)
        meant = replace(then.jobs, duration_us=np.maximum(held + 1, np.rint(mean_s * US).astype(np.int64)))
        return first_starts(meant, self.cluster, self.make(meant), then.present, pending).astype(np.float64)


def _hours(error_us: FloatArray | IntArray) -> list[float]:
    return [round(abs(each) / HOUR_US, 4) for each in error_us.tolist()]


def with_estimates(jobs: Workload) -> Workload:
    """Return jobs with estimates; a missing one is the 90 % quantile of its group before the first forecast."""
    past = np.flatnonzero(jobs.submit_us <= HELD_OUT * jobs.submit_us[-1])
    known = RunTimes(JobTraits.of(jobs).select(past), jobs.duration_us[past] / US, np.ones(len(past), np.bool_))
    return estimated(jobs, known, JobTraits.of(jobs), np.zeros(len(jobs), np.int64))


def summary(name: str, counted: Sequence[Moment]) -> str:
    """Return a line that summarises forecasts: pooled over jobs, and as means over forecasts."""
    sizes = [len(each.error_h) for each in counted]
    held, drawn = [each.held for each in counted], [each.held_as_drawn for each in counted]
    noise = np.std(held, ddof=1) / np.sqrt(len(held)) if len(held) > 1 else np.nan
    return (
        f"{name}: {len(counted)} moments, {sum(sizes):,} pending jobs; 80 % intervals hold {np.average(held, weights=sizes):.1%} "
        f"(mean of moments {np.mean(held):.1%}, standard error {noise:.1%}); as drawn {np.average(drawn, weights=sizes):.1%} "
        f"({np.mean(drawn):.1%}); mean spread {np.mean([each.spread for each in counted]):.2f}\n"
    )


def main(words: Sequence[str] | None = None) -> None:
    """Simulate a list, forecast at some times, and print coverage and errors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace_format", choices=("pollux", "philly"))
    parser.add_argument("trace")
    parser.add_argument("--gpus", default="84x8")
    parser.add_argument("--policy", default="fifo", help="fifo, fifo.backfill or easy")
    parser.add_argument(
        "--days", type=float, default=7.0, help="days of new jobs to simulate; 0 if later jobs cannot overtake"
    )
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--moments", type=int, default=20, help="number of forecasts, drawn from the held-out weeks")
    parser.add_argument(
        "--spaced", type=int, default=60, help="additional forecasts, evenly over all weeks, to calibrate ranges"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, help="file of JSON lines; forecasts that it contains are not repeated")
    asked = parser.parse_args(words)
    cluster = Cluster.grid(asked.gpus)
    table = read_jobs(asked.trace, asked.trace_format, ReadOptions())
    jobs = with_estimates(cluster_jobs(table, Selection(oversized=Oversized.DROP), cluster))
    name, _, backfill = asked.policy.partition(".")
    run = simulate(jobs, cluster, make_policy(name, jobs, {"backfill": True} if backfill else {}))
    assert run is not None
    world = World(played=Played(jobs=jobs, run=run), cluster=cluster, policy=name, backfill=bool(backfill))
    options, began = ForecastOptions(draws=asked.draws, arrival_days=asked.days), time.process_time()
    drawn, spaced = world.counting(asked.moments, asked.seed), world.spaced(asked.spaced)
    same = {key: str(getattr(asked, key)) for key in ("trace", "gpus", "policy", "days", "draws", "spaced", "seed")}
    found = _stored(asked.results, same)
    times = sorted({*drawn, *spaced})
    for number, now in enumerate(times):
        if now not in found or (now in drawn and not found[now].error_of_means_h):
            begin = now - options.history_weeks * WEEK_US
            before = [found[each].outcome() for each in spaced if begin <= each < now]
            found[now] = world.forecast_at(now, options, asked.seed, before, with_means=now in drawn)
            if asked.results is not None:
                with asked.results.open("a") as file:
                    file.write(json.dumps({"asked": same, **asdict(found[now])}) + "\n")
        moment = found[now]
        sys.stdout.write(
            f"{number + 1} of {len(times)}, day {now / 24 / HOUR_US:.1f}: {len(moment.error_h)} pending, {moment.held:.0%} held, "
            f"{moment.held_as_drawn:.0%} as drawn, median error {np.median(moment.error_h):.2f} h\n"
        )
        sys.stdout.flush()
    counted = [found[now] for now in drawn]
    sys.stdout.write(summary("drawn moments", counted))
    sys.stdout.write(summary("all moments of those weeks", [found[now] for now in times if now >= drawn[0]]))
    error, means = (
        np.concatenate([getattr(each, part) for each in counted]) for part in ("error_h", "error_of_means_h")
    )
    sys.stdout.write(
        f"median absolute error {np.median(error):.2f} h, of group means {np.median(means):.2f} h, ratio "
        f"{np.median(error) / np.median(means):.2f}; {time.process_time() - began:.0f} s of processor time\n"
    )


def _stored(path: Path | None, asked: dict[str, str]) -> dict[int, Moment]:
    """Return the stored forecasts of a file with the same settings."""
    if path is None or not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
    same = [row for row in rows if row.pop("asked") == asked]
    return {row["now_us"]: Moment(**row) for row in same}


if __name__ == "__main__":
    main()

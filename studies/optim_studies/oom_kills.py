"""The study `oom-kills`: requests of killed containers, by the available data on kills, at equal allocation.

Containers are generated; some get a memory limit below their peak. A container that needs more is killed, restarts within 45 s
and continues. A scrape every minute reads one sample in four, and the counter of kills. Each rule recommends memory for the
next hour. All rules have the total allocation of the Vertical Pod Autoscaler's rule with its margin of 1.15. That rule requests
the peak; after kills it requests a fifth, and at least 100 MiB, more than limit and peak. The recommender uses the multiplier
that gives this allocation, once with the counters and once without; without them a fall from the limit counts as a kill. A
container whose need in the next hour exceeds its request counts as a kill.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.benchmarks.suite import FULL, SMALL
from optim.core.arrays import FloatArray
from optim.core.driver import PhaseClock
from optim.core.errors import check_in
from optim.core.options import options_as_dict
from optim.core.progress import Progress
from optim.core.stopping import SolveState, StoppingCriterion
from optim.models.containers.series import ContainerSeries
from optim.rightsizing.recommendation import Recommender, RecommendOptions
from optim.rightsizing.tuning import Slo
from optim.rightsizing.vpa import OOM_FACTOR, OOM_STEP
from optim.statistics import Interval
from optim_studies.recommendation import drawn_block

MARGIN = 1.15
"""Margin of the Vertical Pod Autoscaler."""

HOUR, SCRAPE = 240, 4
"""Samples of 15 s per hour, and per scrape."""

DOWN, DOWN_SHARE = 3, 0.15
"""Samples per restart, and the share of the limit used in them."""

LOW, HIGH = 0.6, 0.95
"""Range of limits, relative to the previous peak."""

MULTIPLIERS = np.concatenate([[0.0], np.geomspace(1e-3, 1e3, 240)])

RULES = ("told", "untold", "vpa")


@dataclass(frozen=True, slots=True, kw_only=True)
class KillOptions:
    """Sizes of the study.

    Parameters
    ----------
    draws
        Number of draws of containers, at least 2.
    containers
        Number of containers per draw.
    hours
        Known hours of each container.
    limited
        Share of containers with a limit.
    """

    draws: int = 2
    containers: int = 40
    hours: int = 4
    limited: float = 0.5

    def __post_init__(self) -> None:
        check_in("[2, 1000]", self, "draws")
        check_in("[4, 10000]", self, "containers")
        check_in("[2, 200]", self, "hours")
        check_in("[0, 1]", self, "limited")


SIZES: Mapping[str, KillOptions] = MappingProxyType({SMALL: KillOptions(), FULL: KillOptions(draws=20, containers=100)})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Killed:
    """A draw: the scraped data, and the need in the next hour.

    Attributes
    ----------
    series
        CPU and memory per minute, with limits and kills.
    need
        Shape (containers,): maximum memory demand in the next hour, in GiB.
    kills
        Number of kills of all containers.
    """

    series: ContainerSeries
    need: FloatArray
    kills: float


def draw_killed(options: KillOptions, seed: int) -> Killed:
    """Generate containers, limit some, and kill containers whose demand exceeds their limit."""
    number, known = options.containers, HOUR * options.hours
    drawn = drawn_block(0, number, known + HOUR, seed)
    cpu, memory = (drawn.values[:, column].reshape(number, -1) for column in range(2))
    rng = np.random.default_rng([seed, number])
    peak = memory[:, :known].max(axis=1)
    limit = np.where(rng.random(number) < options.limited, rng.uniform(LOW, HIGH, number) * peak, np.inf)
    used, kills = memory[:, :known].copy(), np.zeros((number, known))
    for row, bound in enumerate(limit.tolist()):
        time = 0
        while (above := np.flatnonzero(used[row, time:] > bound)).size:
            time += int(above[0])
            kills[row, time], used[row, time] = 1.0, bound
            down = slice(time + 1, time + 1 + DOWN)
            used[row, down] = np.minimum(used[row, down], DOWN_SHARE * bound)
            time += 1 + DOWN
    scraped = np.stack([cpu[:, :known:SCRAPE], used[:, ::SCRAPE]], axis=2)
    counted = kills.reshape(number, -1, SCRAPE).sum(axis=2)
    series = ContainerSeries.from_arrays(
        {f"c{row}": scraped[row] for row in range(number)}, ("cpu", "memory"), 15.0 * SCRAPE
    )
    unknown = np.full(number, np.nan)
    return Killed(
        series=replace(
            series,
            limit=np.stack([unknown, np.where(np.isfinite(limit), limit, np.nan)], axis=1),
            kills=np.stack([np.full(counted.size, np.nan), counted.ravel()], axis=1),
        ),
        need=memory[:, known:].max(axis=1),
        kills=float(kills.sum()),
    )


def vpa_requests(series: ContainerSeries) -> FloatArray:
    """Return memory by the Vertical Pod Autoscaler's rule without its margin, shape (containers,)."""
    peak = np.maximum.reduceat(series.values[:, 1], series.starts)
    limit, kills = (np.zeros(0) if each is None else each[:, 1] for each in (series.limit, series.kills))
    is_killed = np.add.reduceat(kills, series.starts) > 0
    used = np.maximum(np.where(np.isfinite(limit), limit, 0.0), peak)
    return np.asarray(np.where(is_killed, np.maximum(OOM_FACTOR * used, used + OOM_STEP), peak))


def requests_of(rule: str, drawn: Killed, budget: float, seed: int) -> FloatArray:
    """Return a rule's memory requests, shape (containers,), scaled to the sum `budget`.

    The recommender's requests are those of the largest multiplier whose sum is at most the budget.
    """
    if rule == "vpa":
        found = vpa_requests(drawn.series)
        return np.asarray(found * (budget / found.sum()))
    series = drawn.series if rule == "told" else replace(drawn.series, kills=None)
    options = RecommendOptions(interval_s=15.0 * SCRAPE, max_gap_s=60.0 * SCRAPE, requirement=Slo(kills=0.05))
    found = Recommender(series, options, seed).requests_at(series, MULTIPLIERS.tolist())[:, :, 1]
    total = found.sum(axis=1)
    chosen = found[max(0, int((total <= budget).sum()) - 1)]
    return np.asarray(chosen * (budget / chosen.sum()))


@dataclass(frozen=True, kw_only=True)
class KillWork(AbstractStudy):
    """Count the kills of each rule by draw, with paired differences."""

    options_type = KillOptions

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Draw, recommend by each rule, and count."""
        options, clock, rows = self.chosen, PhaseClock(), []
        before = 0.0
        progress.start("draws", options.draws)
        for number in range(options.draws):
            with clock.phase("build"):
                drawn = draw_killed(options, options.draws * self.seed + number)
                before += drawn.kills / options.containers
            budget = MARGIN * float(vpa_requests(drawn.series).sum())
            with clock.phase("solve"):
                requests = [requests_of(rule, drawn, budget, number) for rule in RULES]
            rows.append([float((drawn.need > request * (1 + 1e-9)).mean()) for request in requests])
            progress.update(number + 1)
            if stop(SolveState(elapsed_s=clock.elapsed_s, iterations=number + 1)) is not None:
                break
        progress.finish()
        shares = np.array(rows)
        findings: dict[str, Any] = {"draws": len(rows), "kills_before": before / len(rows)}
        findings |= {f"{rule}_killed": float(shares[:, place].mean()) for place, rule in enumerate(RULES)}
        for place, rule in enumerate(RULES[1:], start=1):
            findings |= _difference(f"told_less_{rule}", shares[:, 0] - shares[:, place])
        return Finding(
            findings=findings,
            seconds=clock.seconds,
            iterations=len(rows),
            is_whole=len(rows) == options.draws,
        )


def _difference(name: str, values: FloatArray) -> dict[str, float]:
    """Return the mean of paired differences with its 95 % interval by Student's t; NaN for a single pair."""
    found = Interval.of(values) if len(values) > 1 else Interval(mean=float(values.mean()), half=float("nan"))
    return {name: found.mean, f"{name}_low": found.low, f"{name}_high": found.high}


def _subjects(options: KillOptions, seed: int) -> Iterator[tuple[StudySubject, Mapping[str, Any]]]:
    name = f"kills-{options.draws}-{options.containers}-{seed}"
    yield StudySubject(name=name, topic="phases", drawn_from=options_as_dict(options), parameters={}), {}


SPEC = register_study(
    "oom-kills",
    "phases",
    "kills after a recommendation at equal memory: with and without counters of past kills, and by the Vertical Pod Autoscaler's rule",
    kind=KillWork,
    sizes=SIZES,
    subjects=_subjects,
    ways=("knn",),
    columns=("told_killed", "untold_killed", "vpa_killed", "told_less_vpa", "told_less_vpa_low", "told_less_vpa_high"),
)

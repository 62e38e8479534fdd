"""The study `evictions`: time to estimate an eviction table of a full price history, compared with plain frequencies."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.benchmarks.suite import FULL, SMALL
from optim.core.arrays import IntArray
from optim.core.driver import PhaseClock
from optim.core.options import options_as_dict
from optim.core.progress import Progress
from optim.core.stopping import StoppingCriterion
from optim.models.bidding.market.evictions import EvictionTable, crossings, fit_evictions
from optim.models.bidding.market.prices import HOUR_S, MINUTE_S, PriceHistory, PricePath
from optim.workloads.bidding.generator import GeneratorOptions, history_for

FULL_DAYS = 180.0

FREQUENCY_TOL = 0.02
"""Maximum difference between a probability and the frequency among hours without a gap; censoring and order change little."""

SIZES: Mapping[str, GeneratorOptions] = MappingProxyType(
    {SMALL: GeneratorOptions(), FULL: GeneratorOptions(days=FULL_DAYS)}
)


@dataclass(frozen=True, kw_only=True)
class EvictionWork(AbstractStudy):
    """Estimate the table of one price history."""

    options_type = GeneratorOptions
    is_stoppable = False

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Read or draw prices, estimate, and compare with frequencies."""
        del stop, progress
        clock = PhaseClock()
        with clock.phase("build"):
            history = history_for(self.chosen, self.seed)
        with clock.phase("solve"):
            table = fit_evictions(history)
        with clock.phase("verify"):
            furthest = furthest_from_frequency(history, table)
        return Finding(
            findings={
                "markets": history.num_markets,
                "deltas": len(table.deltas_micro),
                "days": (history.end_s - history.begin_s) / (24 * HOUR_S),
                "changes": sum(len(path) for path in history.paths),
                "mean_evicted": float(table.beta[:, :-1].mean()),
                "furthest": furthest,
            },
            seconds=clock.seconds,
            problems=[] if furthest <= FREQUENCY_TOL else [f"a probability is {furthest:.3f} off the frequency"],
            iterations=history.num_markets * (len(table.deltas_micro) + 1),
        )


def furthest_from_frequency(history: PriceHistory, table: EvictionTable) -> float:
    """Return the largest difference between the table and the plain frequency among hours with a complete record."""
    furthest = 0.0
    for m, path in enumerate(history.paths):
        start = np.arange(-(-int(path.time_s[0]) // 120) * 120, history.end_s - HOUR_S, 120, dtype=np.int64)
        for begin, end in history.gaps.tolist():
            start = start[(start + HOUR_S <= begin) | (start >= end)]
        for d, delta in enumerate(table.deltas_micro.tolist()):
            if len(start):
                furthest = max(furthest, abs(evictions_within(path, start, delta)[0] - float(table.beta[m, d])))
    return furthest


def _subjects(options: GeneratorOptions, seed: int) -> Iterator[tuple[StudySubject, Mapping[str, Any]]]:
    drawn_from = sorted(options_as_dict(options).items())
    yield StudySubject(name=f"history-{options.days:g}-{seed}", topic="bidding", drawn_from=drawn_from), {}


SPEC = register_study(
    "evictions",
    "bidding",
    "eviction probabilities from complete price histories (furthest: maximum difference from plain frequencies)",
    kind=EvictionWork,
    sizes=SIZES,
    subjects=_subjects,
    ways=("product-limit",),
    others="the study estimates tables without a solver",
    columns=("markets", "deltas", "days", "changes", "mean_evicted", "furthest"),
)


def evictions_within(
    path: PricePath, start_s: IntArray, delta_micro: int, *, horizon_s: int = HOUR_S
) -> tuple[float, float]:
    """Return the fraction of bids that are outbid within the horizon, and their mean minutes until then.

    These are plain frequencies of one path, without censoring.

    Parameters
    ----------
    path
        A price path.
    start_s
        Shape (starts,): when the bids `price + delta` are made.
    delta_micro
        Bid delta in micro-dollars.
    horizon_s
        Length of the horizon in seconds. A crossing counts if it is later than the start and before the horizon's end.
    """
    step = np.searchsorted(path.time_s, start_s, side="right") - 1
    lag = crossings(path, np.array([delta_micro]))[0][step] - start_s
    evicted = lag < horizon_s
    return float(evicted.mean()), float(lag[evicted].mean() / MINUTE_S) if evicted.any() else float("nan")

"""Intervals of means, shares, medians and resamples, compared with SciPy's."""

import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import optim
from optim.simulation.spot.backtest import MEASURES, Row, compare, summarise
from optim.statistics import Interval, bootstrap, of_median, wilson


@pytest.mark.parametrize("count", [2, 3, 4, 10, 11, 12, 30, 200])
def test_a_means_interval_is_students_at_any_number(count):
    values = np.random.default_rng(count).normal(3.0, 2.0, count)
    found = Interval.of(values.tolist())
    known = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((known.low, known.high), rel=1e-9)
    assert found.mean == pytest.approx(values.mean())


@pytest.mark.parametrize(("hits", "count"), [(0, 1), (0, 12), (3, 12), (12, 12), (199, 200)])
def test_a_share_has_wilsons_interval(hits, count):
    known = stats.binomtest(hits, count).proportion_ci(0.95, method="wilson")
    low, high = wilson(hits / count, count)
    assert (float(low), float(high)) == pytest.approx((known.low, known.high), abs=1e-12)


def test_wilsons_interval_of_many_shares_is_that_of_each():
    shares, numbers = np.array([[0.0, 0.5], [1.0, 0.2]]), np.array([[10.0], [40.0]])
    low, high = wilson(shares, numbers)
    for at in np.ndindex(2, 2):
        assert (low[at], high[at]) == wilson(shares[at], numbers[at[0], 0])


@pytest.mark.parametrize("count", [1, 5, 20, 101])
def test_a_medians_interval_holds_it_95_times_of_100(count):
    rng = np.random.default_rng(0)
    inside = [low <= 0.0 <= high for low, high in (of_median(rng.normal(size=count)) for _ in range(2000))]
    assert np.mean(inside) >= (0.94 if count > 5 else 0.0)
    ordered = np.sort(rng.normal(size=count))
    assert of_median(ordered[::-1]) == of_median(ordered)


def test_resamples_keep_their_middle_95_per_cent():
    low, high = bootstrap(np.column_stack([np.arange(1001.0), np.zeros(1001)]))
    assert (low.tolist(), high.tolist()) == ([25.0, 0.0], [975.0, 0.0])


def row(cost: float, met: bool) -> Row:
    return Row(
        policy="p",
        start="s",
        cost_usd=cost,
        hours=1.0,
        work_done=1.0,
        is_done=True,
        cost_per_work=cost,
        deadline_met=met,
    )


def test_a_back_test_of_few_starts_has_students_interval_and_wilsons_for_shares():
    costs = [1.0, 2.0, 4.0, 5.0]
    rows = [row(cost, met=True) for cost in costs]
    found = summarise("p", rows)
    known = stats.ttest_1samp(costs, 0.0).confidence_interval(0.95)
    assert (found.low["cost_usd"], found.high["cost_usd"]) == pytest.approx((known.low, known.high), rel=1e-9)
    share = stats.binomtest(4, 4).proportion_ci(0.95, method="wilson")
    assert (found.mean["deadline_met"], found.low["deadline_met"]) == (1.0, pytest.approx(share.low, abs=1e-12))
    assert found.high["deadline_met"] == pytest.approx(1.0)
    others = [row(cost, met=True) for cost in (1.0, 1.0, 1.0, 1.0)]
    paired, differences = compare(rows, others), stats.ttest_rel(costs, [1.0] * 4).confidence_interval(0.95)
    assert (paired.low, paired.high) == pytest.approx((differences.low, differences.high), rel=1e-9)
    assert {"cost_usd", "deadline_met"} <= set(MEASURES)


def test_no_other_module_has_quantiles_of_its_own():
    """A normal or t quantile written out anywhere else would be another type of interval under the same name."""
    home = Path(optim.__file__).parent
    quantile = re.compile(r"\b1\.96\b|\b1\.9599|\bT_95\b|norm\.ppf|\bt\.ppf|0\.025, 0\.975|\b12\.706")
    found = [str(path.relative_to(home)) for path in sorted(home.rglob("*.py")) if quantile.search(path.read_text())]
    assert found == ["statistics.py"]


def test_an_interval_by_cluster_is_that_of_the_clusters_means_if_all_are_alike():
    values = np.random.default_rng(0).random(24)
    by_cluster = Interval.of_clusters(values, [k // 4 for k in range(24)])
    means = Interval.of(values.reshape(6, 4).mean(axis=1))
    assert (by_cluster.mean, by_cluster.half) == pytest.approx((means.mean, means.half))
    alone = Interval.of_clusters(values, range(24))
    assert alone.half == pytest.approx(Interval.of(values).half)

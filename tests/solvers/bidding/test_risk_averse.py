"""The risk-averse footprints against trying all footprints, and against plain definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.models.bidding.cost_per_work import evaluate, evaluate_many
from optim.models.bidding.data import ScenarioOutlook
from optim.models.reference import reference_instance
from optim.solvers.bidding.risk_averse import RiskOptions, risk_ratio, scenario_values, tail_mean
from optim.solvers.solve import solve
from tests.support.bidding.small_markets import all_footprints, small_instances


@given(loss=st.lists(st.floats(-5, 5), min_size=1, max_size=8), alpha=st.sampled_from([0.0, 0.5, 0.8, 0.95]))
def test_the_tail_mean_is_the_minimum_of_rockafellar_and_uryasev(loss, alpha):
    loss = np.array(loss)
    weight = np.full(len(loss), 1.0 / len(loss))
    smallest = min(t + float(weight @ np.maximum(loss - t, 0)) / (1 - alpha) for t in loss)
    assert float(tail_mean(loss, weight, alpha)) == pytest.approx(smallest, abs=1e-9)


@given(instance=small_instances)
def test_at_its_risk_ratio_a_footprint_has_no_positive_risk(instance):
    if not isinstance(instance.outlook, ScenarioOutlook):
        return
    options = RiskOptions(alpha=0.5)
    table = all_footprints(instance)
    ratios = risk_ratio(instance, table, options)
    cost, work = scenario_values(instance, instance.outlook, table)
    mean_cost, mean_work = evaluate_many(instance, table)
    assert cost @ instance.outlook.weight == pytest.approx(mean_cost)
    assert work @ instance.outlook.weight == pytest.approx(mean_work)
    for c, w, q, mc, mw in zip(cost, work, ratios, mean_cost, mean_work, strict=True):
        if np.isfinite(q):
            assert float(tail_mean(c - q * w, instance.outlook.weight, 0.5)) <= 1e-6
            assert q >= mc / mw * (1 - 1e-9)


@pytest.mark.parametrize("name", ["spot-tiny-windows", "spot-tiny-market", "spot-tiny-own"])
def test_the_safe_footprint_is_never_riskier_than_the_neutral_one(name):
    counts = solve(reference_instance(name), "risk-averse").stats.counts
    assert counts["risk_ratio"] <= counts["neutral_risk_ratio"]


def test_without_aversion_the_risk_ratio_is_the_cost_per_work():
    instance = reference_instance("spot-tiny-windows")
    counts = np.array([1, 0, 2, 0] * 3)
    ratio = risk_ratio(instance, counts[None], RiskOptions(weight=0.0))[0]
    assert ratio == pytest.approx(evaluate(instance, counts).ratio)

"""Resampled allocations against a plain loop, where the order of multipliers matters."""

import numpy as np
import pytest

from optim.simulation.containers.bootstrap import RiskCurve, curve_at, interval, resampled_allocation, resampled_demand
from optim.simulation.containers.catalogue import make_plan
from optim.simulation.containers.metrics import measure
from tests.support.containers.worlds import world_of

CURVE = RiskCurve(
    multiplier=np.array([[1.0], [2.0], [3.0]]),
    under_samples=np.array([[[8.0], [4.0], [0.0]], [[6.0], [2.0], [0.0]]]),
    allocation=np.array([[[10.0], [20.0], [40.0]], [[5.0], [6.0], [9.0]]]),
)


def test_the_allocation_at_a_risk_lies_on_the_straight_line_between_multipliers():
    world = world_of([np.ones(20), np.ones(20)])
    counts = np.array([[1, 1], [2, 0]])
    # Both once: risks 14/40, 6/40, 0 at totals 15, 26, 49. The first twice: 16/40, 8/40, 0 at 20, 40, 80.
    found = resampled_allocation(world, CURVE, counts, 0.1)
    assert found[:, 0] == pytest.approx([26 + (0.15 - 0.1) / 0.15 * (49 - 26), 40 + (0.2 - 0.1) / 0.2 * (80 - 40)])
    assert resampled_allocation(world, CURVE, counts, 0.5)[:, 0].tolist() == [15.0, 20.0]
    assert resampled_allocation(world, CURVE, counts, 0.25)[0, 0] == pytest.approx(15 + 0.1 / 0.2 * 11)


def test_curves_add_up_containers_not_segments():
    world = world_of([np.array([1.0, 5.0, 1.0, 5.0, 1.0, 5.0]), np.full(9, 2.0)], cycle_samples=3)
    plan = make_plan(world, "prev-step-max")
    curve = curve_at(world, plan, np.array([[0.5, 0.5], [1.0, 1.0]]))
    for place, multiplier in enumerate((0.5, 1.0)):
        outcome = measure(world, plan.allocate(np.full(2, multiplier)))
        for own, group in enumerate(world.group.tolist()):
            assert curve.allocation[group, place] == pytest.approx(outcome.allocation[own])
            assert curve.under_samples[group, place] == pytest.approx(outcome.under_samples[own])
    counts = np.array([[2, 1], [0, 3]])
    demand = np.zeros((2, 2))
    for own, group in enumerate(world.group.tolist()):
        demand += counts[:, group, None] * outcome.demand[own]
    assert resampled_demand(world, outcome, counts) == pytest.approx(demand)


def test_intervals_hold_the_middle_95_per_cent():
    low, high = interval(np.column_stack([np.arange(1001.0), np.zeros(1001)]))
    assert (low.tolist(), high.tolist()) == ([25.0, 0.0], [975.0, 0.0])

"""Allocation against risk: figures worked out by hand, and those of tuned policies once more."""

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError
from optim.simulation.containers import PhaseLabels, compare_policies, make_world
from optim.simulation.containers.trade_off import RISKS, trade_curve, trade_points
from optim.simulation.containers.tuning import MOST
from optim.workloads.containers import ContainerOptions, generate_containers
from tests.support.containers.worlds import world_of


@pytest.fixture(scope="module")
def drawn():
    """Twelve generated containers with their true phases, as many for training."""
    series = generate_containers(ContainerOptions(num_containers=24), seed=3)
    training, own = series.select(np.arange(12)), series.select(np.arange(12, 24))
    return make_world(own, training, PhaseLabels(labels=own.phase, training=training.phase, num_phases=5))


@pytest.mark.parametrize("multiplier", [0.0, 0.5, 0.94, 0.96, 2.0])
def test_constant_demand_has_a_closed_form(multiplier):
    world = world_of([np.full(12, 2.0)], cycle_samples=4)
    cpu, memory = trade_points(world, "prev-step-max", [multiplier])
    # The first cycle of three gets what training containers need, the others the multiplier times the demand.
    assert cpu.allocation_over_demand == pytest.approx((1 + 2 * multiplier) / 3)
    assert cpu.under_time == pytest.approx(0.0 if multiplier > 0.95 else 2 / 3)
    assert cpu.over_share == pytest.approx(2 / 3 * max(0.0, multiplier - 1.05))
    assert cpu.under_share == pytest.approx(2 / 3 * max(0.0, 0.95 - multiplier))
    assert memory.oom == (2 if multiplier < 1 else 0)
    assert (cpu.multiplier, cpu.oom) == (multiplier, 0)


@pytest.mark.parametrize("name", ["phase-shift", "quantile-95", "oracle-cheapest"])
def test_points_at_tuned_multipliers_are_the_rows_of_the_comparison(drawn, name):
    (group,) = compare_policies(drawn, [name], risk=0.05, num_resamples=2, seed=0)
    for row in group[:2]:
        points = {point.resource: point for point in trade_points(drawn, name, [row.multiplier])}
        for field in ("under_time", "allocation_over_demand", "over_share", "under_share", "oom", "changes"):
            assert getattr(points[row.resource], field) == pytest.approx(getattr(row, field))


@pytest.mark.parametrize("name", ["prev-step-rules", "phase-price", "oracle-cheapest"])
def test_a_curve_goes_from_risky_and_cheap_to_safe_and_dear(drawn, name):
    curve = trade_curve(drawn, name, num_points=9)
    for resource in ("cpu", "memory"):
        own = [point for point in curve if point.resource == resource]
        assert len(own) == 9
        assert own[0].under_time <= RISKS[1]
        safest = trade_points(drawn, name, [MOST])[("cpu", "memory").index(resource)]
        assert own[-1].under_time <= max(RISKS[0], safest.under_time)
        assert own[-1].multiplier <= MOST
        assert own[-1].allocation_over_demand <= safest.allocation_over_demand
        assert (np.diff([point.under_time for point in own]) <= 0).all()
        assert (np.diff([point.allocation_over_demand for point in own]) >= -1e-12).all()
    widest = {point.resource: point.under_time for point in curve[:2]}
    assert min(widest.values()) > RISKS[0]


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_impossible_multipliers_are_refused(drawn, bad):
    with pytest.raises(InvalidOptionError, match="multiplier must be at least 0"):
        trade_points(drawn, "static", [1.0, bad])

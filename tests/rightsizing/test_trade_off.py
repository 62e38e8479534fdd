"""Allocation against risk: figures worked out by hand, and those of tuned policies once more."""

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError
from optim.rightsizing import CalibrationTestSplit, Measure, PhaseLabels, Slo, compare_policies, make_world
from optim.rightsizing.comparison import RISKS, trade_curve, trade_points
from optim.rightsizing.tuning import MAX_MULTIPLIER
from optim.workloads.containers import ContainerOptions, generate_containers
from tests.support.containers.worlds import world_of

PAPERS = Slo(measure=Measure.UNDER_TIME)


@pytest.fixture(scope="module")
def drawn():
    """Twelve generated containers with their true phases, as many for training."""
    series = generate_containers(ContainerOptions(num_containers=24), seed=3)
    training, own = series.select(np.arange(12)), series.select(np.arange(12, 24))
    return make_world(own, training, PhaseLabels(labels=own.phase, training=training.phase, num_phases=5))


@pytest.mark.parametrize("multiplier", [0.0, 0.5, 0.94, 0.96, 2.0])
def test_constant_demand_has_a_closed_form(multiplier):
    world = world_of([np.full(12, 2.0)], cycle_samples=4)
    cpu, memory = trade_points(world, "prev-step-max", PAPERS, [multiplier])
    # The first of three cycles gets the need of the training containers, the others the multiplier times the demand.
    assert cpu.allocation_over_demand == pytest.approx((1 + 2 * multiplier) / 3)
    assert cpu.under_time == pytest.approx(0.0 if multiplier > 0.95 else 2 / 3)
    assert cpu.over_share == pytest.approx(2 / 3 * max(0.0, multiplier - 1.05))
    assert cpu.under_share == pytest.approx(2 / 3 * max(0.0, 0.95 - multiplier))
    assert memory.kills == (2 if multiplier < 1 else 0)
    assert (cpu.multiplier, cpu.kills) == (multiplier, 0)


@pytest.mark.parametrize("wanted", [PAPERS, Slo(kills=0.1, throttled=0.1)])
@pytest.mark.parametrize("name", ["phase-price", "quantile-95", "vpa"])
def test_points_at_tuned_multipliers_are_the_rows_of_the_comparison(drawn, name, wanted):
    trial = CalibrationTestSplit(calibration=drawn, test=drawn)
    (group,) = compare_policies(trial, [name], wanted, num_resamples=2, seed=0)
    # Restarts for lack of memory are charged to CPU as well, so its total depends on both multipliers.
    for row, total in zip(group[:2], ((), ("allocation_over_demand",)), strict=True):
        points = {point.resource: point for point in trade_points(drawn, name, wanted, [row.multiplier])}
        for field in ("risk", "under_time", *total, "over_share", "under_share", "kills", "changes"):
            assert getattr(points[row.resource], field) == pytest.approx(getattr(row, field))


@pytest.mark.parametrize("name", ["prev-step-rules", "phase-price", "current-step-rules"])
def test_a_curve_goes_from_risky_and_cheap_to_safe_and_dear(drawn, name):
    curve = trade_curve(drawn, name, PAPERS, num_points=9)
    for resource in ("cpu", "memory"):
        own = [point for point in curve if point.resource == resource]
        assert len(own) == 9
        assert own[0].under_time <= RISKS[1]
        safest = trade_points(drawn, name, PAPERS, [MAX_MULTIPLIER])[("cpu", "memory").index(resource)]
        assert own[-1].under_time <= max(RISKS[0], safest.under_time)
        assert own[-1].multiplier <= MAX_MULTIPLIER
        assert own[-1].allocation_over_demand <= safest.allocation_over_demand
        assert (np.diff([point.under_time for point in own]) <= 0).all()
        assert (np.diff([point.allocation_over_demand for point in own]) >= -1e-12).all()
    widest = {point.resource: point.under_time for point in curve[:2]}
    assert min(widest.values()) > RISKS[0]


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_impossible_multipliers_are_refused(drawn, bad):
    with pytest.raises(InvalidOptionError, match="multiplier must be at least 0"):
        trade_points(drawn, "static", PAPERS, [1.0, bad])

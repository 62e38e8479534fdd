"""Rows of a comparison: equal risk, intervals that hold, and the savings one can work out by hand."""

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError
from optim.simulation.containers import PhaseLabels, compare_policies, make_plan, make_world, measure
from optim.simulation.containers.bootstrap import resampled_allocation, resamples, risk_curve
from optim.simulation.containers.tuning import tune
from optim.workloads.containers import ContainerOptions, generate_containers
from tests.support.containers.worlds import world_of

RISK = 0.05


@pytest.fixture(scope="module")
def drawn():
    """Forty generated containers whose true phases are known, thirty of them for training."""
    series = generate_containers(ContainerOptions(num_containers=40), seed=1)
    training, own = series.select(np.arange(30)), series.select(np.arange(30, 40))
    return make_world(own, training, PhaseLabels(labels=own.phase, training=training.phase, num_phases=5))


def rows_of(world, *names, seed=0):
    found = compare_policies(world, names, risk=RISK, num_resamples=100, seed=seed)
    return {(row.policy, row.resource): row for rows in found for row in rows}


def test_every_policy_meets_the_same_risk(drawn):
    rows = rows_of(drawn, "prev-step-rules", "phase-shift", "phase-price", "vpa")
    assert len(rows) == 12
    assert all(row.under_time <= RISK for row in rows.values() if row.is_reached)
    assert all(row.is_reached for row in rows.values())


def test_reductions_are_against_the_reference(drawn):
    rows = rows_of(drawn, "phase-shift", "prev-step-rules")
    for resource in ("cpu", "memory", "all"):
        own, reference = rows["phase-shift", resource], rows["prev-step-rules", resource]
        assert own.reduction == pytest.approx(1 - own.total_allocation / reference.total_allocation)
        assert own.reduction_low <= own.reduction <= own.reduction_high
        assert reference.reduction == reference.reduction_low == reference.reduction_high == 0.0


def test_the_same_seed_gives_the_same_rows_whatever_else_is_compared(drawn):
    assert rows_of(drawn, "ewma-5")["ewma-5", "all"] == rows_of(drawn, "vpa", "ewma-5")["ewma-5", "all"]
    assert rows_of(drawn, "ewma-5", seed=1) != rows_of(drawn, "ewma-5")


def test_resampling_each_container_once_gives_back_the_tuned_allocation(drawn):
    plan = make_plan(drawn, "prev-step-rules")
    found = resampled_allocation(drawn, risk_curve(drawn, plan, RISK), np.ones((1, 10), dtype=np.int64), RISK)
    tuned = measure(drawn, plan.allocate(tune(drawn, plan, RISK).multiplier)).total_allocation
    np.testing.assert_allclose(found[0], tuned, rtol=0.02)


def test_resamples_hold_as_many_containers_as_there_are(drawn):
    counts = resamples(drawn, 50, np.random.default_rng(0))
    assert counts.shape == (50, 10)
    assert (counts.sum(axis=1) == 10).all()


def test_known_savings_on_constant_demand():
    """At demand 2 all need 0.95 x 2 = 1.9, whatever the policy; the first cycle is the same for all."""
    world = world_of([np.full(40, 2.0)] * 3)
    rows = rows_of(world, "prev-step-max", "static")
    for row in rows.values():
        assert row.reduction == pytest.approx(1 - (2 + 9 * 1.9) / (2 + 9 * 2.0))


def test_a_resource_that_nobody_uses_saves_nothing_and_costs_nothing():
    used = np.tile([2.0, 1.0, 3.0], 8)
    idle = [np.stack([used, np.zeros(24)], axis=1)] * 3
    rows = rows_of(world_of(idle), "prev-step-rules", "running-max", "level-price", "oracle-cheapest")
    for name in ("prev-step-rules", "running-max", "level-price", "oracle-cheapest"):
        own = rows[name, "memory"]
        assert (own.reduction, own.reduction_low, own.reduction_high) == (0.0, 0.0, 0.0)
        assert own.total_allocation == 0.0
        assert own.allocation_over_demand == 1.0
        cpu = rows[name, "cpu"].allocation_over_demand
        assert rows[name, "all"].total_allocation == pytest.approx((cpu + 1.0) / 2)
    assert rows["oracle-cheapest", "cpu"].reduction > 0


@pytest.mark.parametrize("risk", [0.0, 1.0])
def test_a_risk_out_of_range_is_refused(risk):
    with pytest.raises(InvalidOptionError, match="risk must be in"):
        compare_policies(world_of([np.ones(8)]), ["static"], risk=risk, num_resamples=1, seed=0)


def test_an_unknown_policy_is_refused_before_any_work():
    with pytest.raises(InvalidOptionError, match="unknown policy"):
        compare_policies(world_of([np.ones(8)]), ["best"], risk=RISK, num_resamples=1, seed=0)

"""References against brute force over all plans, and metrics against sums one by one."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.simulation.containers import make_plan, measure, policy_names, tune
from optim.simulation.containers.metrics import under_time
from optim.simulation.containers.oracles import CheapestPlan
from tests.support.containers.worlds import drawn_worlds, world_of

OTHERS = tuple(name for name in policy_names() if name != "oracle-cheapest")


def cheapest_by_enumeration(demand, cycle_samples, allowed):
    """Least total of a plan, constant in each cycle, with at most so many samples under 95 % of demand."""
    cycles = [demand[k : k + cycle_samples] for k in range(0, len(demand), cycle_samples)]
    choices = [sorted({0.0, *(0.95 * cycle)}) for cycle in cycles]
    best = np.inf
    for plan in itertools.product(*choices):
        under = sum(int((y < 0.95 * cycle).sum()) for y, cycle in zip(plan, cycles, strict=True))
        if under <= allowed:
            best = min(best, sum(y * len(cycle) for y, cycle in zip(plan, cycles, strict=True)))
    return best


@pytest.mark.parametrize("seed", range(12))
def test_no_plan_beats_the_bound_and_prices_find_plans_that_meet_it(seed):
    rng = np.random.default_rng(seed)
    demand = rng.integers(1, 9, size=int(rng.integers(5, 13))) * 1.0
    world = world_of([demand], cycle_samples=4)
    plan = CheapestPlan(world)
    for price in (0.05, 0.3, 1.0, 3.0, 10.0):
        allocation = plan.allocate(np.full(2, price))
        outcome = measure(world, allocation)
        under = outcome.under_samples.sum(axis=0)
        # Its own risk makes each priced plan the best one.
        best = cheapest_by_enumeration(demand, 4, under[0])
        assert outcome.total_allocation[0] == pytest.approx(best)
        assert plan.lower_bound(np.full(2, price), under)[0] == pytest.approx(best)
        for allowed in range(len(demand)):
            bound = plan.lower_bound(np.full(2, price), np.full(2, allowed))[0]
            assert bound <= cheapest_by_enumeration(demand, 4, allowed) + 1e-9


@pytest.mark.parametrize("allowed", range(4))
def test_the_best_constant_allocation_of_a_cycle_is_an_order_statistic(allowed):
    demand = np.array([4.0, 1.0, 3.0, 2.0])
    candidates = np.linspace(0, 5, 5001)
    brute = min(y for y in candidates if (y < 0.95 * demand - 1e-12).sum() <= allowed)
    assert brute == pytest.approx(0.95 * np.sort(demand)[3 - allowed], abs=1e-3)
    assert cheapest_by_enumeration(demand, 4, allowed) == pytest.approx(4 * brute, abs=5e-3)


@given(world=drawn_worlds(), name=st.sampled_from(OTHERS), multiplier=st.floats(0, 3), price=st.floats(0, 20))
def test_no_policy_is_below_the_bound_at_its_own_risk(world, name, multiplier, price):
    outcome = measure(world, make_plan(world, name).allocate(np.full(2, multiplier)))
    bound = CheapestPlan(world).lower_bound(np.full(2, price), outcome.under_samples.sum(axis=0))
    assert (outcome.total_allocation >= bound - 1e-9 * (1 + np.abs(bound))).all()


@given(world=drawn_worlds(), name=st.sampled_from(policy_names()), risk=st.sampled_from([0.02, 0.05, 0.2]))
def test_tuning_meets_the_risk_and_hardly_less_would_not(world, name, risk):
    plan = make_plan(world, name)
    tuned = tune(world, plan, risk)
    share = under_time(world, plan.allocate(tuned.multiplier))
    assert (share[tuned.is_reached] <= risk).all()
    less = under_time(world, plan.allocate(tuned.multiplier * (1 - 1e-6)))
    known = tuned.is_reached & (tuned.multiplier > 0)
    assert (less[known] > risk).all()


def test_metrics_are_the_sums_that_they_say():
    demand = np.array([1.0, 2.0, 4.0, 2.0, 2.0, 2.0])
    world = world_of([demand], cycle_samples=4)
    allocation = np.array([[[2.0, 2.0], [1.0, 2.05]]])
    outcome = measure(world, allocation)
    assert outcome.allocation.tolist() == [[2.0 * 4 + 1.0 * 2, 2.0 * 4 + 2.05 * 2]]
    assert outcome.over[0] == pytest.approx([2 - 1.05, 2 - 1.05])
    assert outcome.under[0] == pytest.approx([0.95 * 4 - 2 + 2 * (0.95 * 2 - 1), 0.95 * 4 - 2])
    assert outcome.under_samples.tolist() == [[3, 1]]
    # Only memory is held: one cycle has a kill.
    assert outcome.oom.tolist() == [[0, 1]]
    assert outcome.changes.tolist() == [[1, 0]]
    assert outcome.under_time.tolist() == [0.5, 1 / 6]
    assert outcome.container_percentiles()[1] == pytest.approx([10 / 13, 12.1 / 13])


@given(world=drawn_worlds(), multiplier=st.floats(0, 3))
def test_metrics_equal_a_loop_over_samples(world, multiplier):
    allocation = make_plan(world, "prev-step-max").allocate(np.full(2, multiplier))
    outcome = measure(world, allocation)
    over, under, count = np.zeros(2), np.zeros(2), np.zeros(2)
    for place, length in enumerate(world.lengths.tolist()):
        for row in range(length):
            y, x = allocation[place, row // world.cycle_samples], world.values[place, row]
            over += np.maximum(0, y - 1.05 * x)
            under += np.maximum(0, 0.95 * x - y)
            count += y < 0.95 * x
    np.testing.assert_allclose(outcome.over.sum(axis=0), over, atol=1e-9)
    np.testing.assert_allclose(outcome.under.sum(axis=0), under, atol=1e-9)
    assert outcome.under_samples.sum(axis=0).tolist() == count.tolist()

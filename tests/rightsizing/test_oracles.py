"""References that know the future, metrics against sums one by one, and tuning as tight as it can be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.rightsizing import make_plan, measure, policy_names, tune
from optim.rightsizing.engine import under_time
from tests.support.containers.worlds import drawn_worlds, world_of


@given(world=drawn_worlds(), name=st.sampled_from(policy_names()), risk=st.sampled_from([0.02, 0.05, 0.2]))
def test_tuning_meets_what_is_required_and_hardly_less_would_not(world, name, risk):
    plan = make_plan(world, name)
    tuned = tune(plan, lambda allocation: under_time(world, allocation) <= risk, 2)
    share = under_time(world, plan.allocate(tuned.multiplier))
    assert (share[tuned.is_reached] <= risk).all()
    less = under_time(world, plan.allocate(tuned.multiplier * (1 - 1e-6)))
    known = tuned.is_reached & (tuned.multiplier > 0)
    assert (less[known] > risk).all()


def test_references_know_the_future_but_not_the_first_cycle():
    world = world_of([np.array([9.0, 9.0, 9.0, 9.0, 2.0, 4.0, 6.0, 1.0])], training=[np.full(8, 3.0)])
    for name, later in (("current-step-max", 6.0), ("oracle-static", 9.0)):
        assert make_plan(world, name).allocate(np.ones(2))[0, :, 0].tolist() == [3.0, later]
        assert make_plan(world, name).allocate(np.zeros(2))[0, :, 0].tolist() == [3.0, 0.0]
    own = np.array([2.0, 4.0, 6.0, 1.0])
    found = make_plan(world, "current-step-rules").allocate(np.full(2, 2.0))[0, 1, 0]
    assert found == pytest.approx(own.mean() + 2 * own.std())


def test_metrics_are_the_sums_that_they_say():
    demand = np.array([1.0, 2.0, 4.0, 2.0, 2.0, 2.0])
    world = world_of([demand], cycle_samples=4)
    allocation = np.array([[[2.0, 2.0], [1.0, 2.05]]])
    outcome = measure(world, allocation)
    assert outcome.allocation.tolist() == [[2.0 * 4 + 1.0 * 2, 2.0 * 4 + 2.05 * 2]]
    assert outcome.over[0] == pytest.approx([2 - 1.05, 2 - 1.05])
    assert outcome.under[0] == pytest.approx([0.95 * 4 - 2 + 2 * (0.95 * 2 - 1), 0.95 * 4 - 2])
    assert outcome.under_samples.tolist() == [[3, 1]]
    # Only memory is limited: one cycle has a kill.
    assert outcome.violations.kills.tolist() == [[0, 1]]
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

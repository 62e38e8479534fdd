"""Polyak's steps on functions whose minimum is known."""

import numpy as np
import pytest

from optim.solvers.admission.packing.dual_points import PolyakSteps


def test_a_step_goes_to_where_the_tangent_meets_the_goal() -> None:
    limit, use = np.array([4.0, 10.0]), np.array([6.0, 5.0])
    point, bound = np.array([1.0, 2.0]), 30.0
    moved = PolyakSteps(limit, 3).next(point, bound, use, 28.0)
    assert moved is not None
    assert bound + (limit - use) @ (moved - point) == pytest.approx(28.0)
    # In prices of complete rows, the step is along the gradient.
    assert (moved - point) * limit == pytest.approx(-(2.0 / 0.5) * (limit - use) / limit)


def test_prices_stay_at_least_0_and_those_without_capacity_where_they_are() -> None:
    moved = PolyakSteps(np.array([1.0, 1.0, 0.0]), 3).next(np.array([0.1, 0.0, 7.0]), 9.0, np.zeros(3), 0.0)
    assert moved is not None
    assert moved.tolist() == [0.0, 0.0, 7.0]


def test_no_step_at_the_goal_or_where_no_price_helps() -> None:
    steps = PolyakSteps(np.ones(2), 3)
    assert steps.next(np.ones(2), 5.0, np.zeros(2), 5.0) is None
    assert steps.next(np.ones(2), 5.0, np.ones(2), 1.0) is None
    assert steps.next(np.zeros(2), 5.0, np.zeros(2), 1.0) is None


def test_steps_are_halved_where_the_bound_stalls() -> None:
    def length(steps: PolyakSteps) -> float:
        moved = steps.next(np.array([8.0]), 9.0, np.zeros(1), 5.0)
        assert moved is not None
        return 8.0 - float(moved[0])

    steps = PolyakSteps(np.ones(1), 2)
    assert length(steps) == 4.0
    steps.watch(10.0, 10.0)
    assert length(steps) == 4.0
    steps.watch(9.0, 10.0)
    steps.watch(10.0 - 1e-6, 10.0)
    assert length(steps) == 4.0
    steps.watch(11.0, 10.0)
    assert length(steps) == 2.0
    steps.watch(11.0, 10.0)
    assert length(steps) == 2.0

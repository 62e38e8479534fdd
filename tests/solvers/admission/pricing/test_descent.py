"""The compiled descent against the same steps written out, with separate calls for pricing and moves."""

import numpy as np
import pytest

from optim.solvers.admission.packing import dual_points
from optim.solvers.admission.packing.capacity_rows import CapacityRows, total_use
from optim.solvers.admission.packing.dual_points import MIN_TARGET, PATIENCE, DualPoint, PolyakSteps, evaluate, improve
from optim.solvers.admission.pricing.classes import JobTables, price
from tests.support.admission.slot_runs import seeded_instance
from tests.support.admission.tiny import BY_HAND


def improved_step_by_step(tables, rows, start, target, num_steps):
    """Take the steps one by one."""
    best, point = start, start.row_prices
    steps = PolyakSteps(rows.capacity, PATIENCE)
    for _ in range(num_steps):
        priced = price(tables, rows.prices(point))
        bound = float(priced.payoff.sum() + point @ rows.capacity)
        steps.watch(bound, best.bound)
        if bound < best.bound:
            best = DualPoint(row_prices=point, payoff=priced.payoff, bound=bound)
        goal = max(target, MIN_TARGET * best.bound)
        moved = steps.next(point, bound, total_use(tables, rows, priced), goal)
        if moved is None:
            break
        point = moved
    return best


INSTANCES = {f"seed {seed}": seeded_instance(seed, max_jobs=9) for seed in range(40)} | BY_HAND
"""Own and shared servers, demands by segments, capacities by slot, none at all."""


@pytest.mark.parametrize(("share", "small"), [(0.0, dual_points.SMALL), (0.5, 0), (0.97, dual_points.SMALL)])
def test_equals_the_steps_one_by_one(monkeypatch, share, small):
    """Also if each step is a separate call, as on large instances."""
    monkeypatch.setattr(dual_points, "SMALL", small)
    moved = 0
    for number, instance in enumerate(INSTANCES.values()):
        tables = JobTables.build(instance)
        rows = CapacityRows.of(tables)
        rng = np.random.default_rng(number)
        drawn = rng.random(rows.num_rows) * (rng.random(rows.num_rows) < 0.7)
        worth = float(tables.value.max(axis=1, initial=0.0).sum())
        start = evaluate(tables, rows, drawn * worth / max(float(drawn @ rows.capacity), 1e-9))
        given = start.row_prices.copy(), start.payoff.copy()
        for num_steps in (0, 1, 2, 3, 40):
            found = improve(tables, rows, start, target=share * start.bound, num_steps=num_steps)
            expected = improved_step_by_step(tables, rows, start, share * start.bound, num_steps)
            assert found.bound == pytest.approx(expected.bound, rel=1e-9, abs=1e-9)
            assert found.row_prices == pytest.approx(expected.row_prices, rel=1e-7, abs=1e-9)
            assert found.payoff == pytest.approx(expected.payoff, rel=1e-7, abs=1e-9)
        moved += expected.bound < start.bound
        np.testing.assert_array_equal(given[0], start.row_prices)  # the start is unchanged
        np.testing.assert_array_equal(given[1], start.payoff)
    assert moved > 20

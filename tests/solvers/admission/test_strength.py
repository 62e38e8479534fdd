"""Strength of the solvers' parts, without times: limits on rounds, and on gaps after a number of steps, moves or nodes.

Limits are slightly above the current results. Raise none of them without a reason; lower them when a part improves.
"""

import numpy as np
import pytest

import optim
from optim.core.driver import Monitor
from optim.solvers.admission.local_search.plan_moves import Neighbourhood
from optim.solvers.admission.packing.capacity_rows import CapacityRows
from optim.solvers.admission.packing.dual_points import certified_point, evaluate
from optim.solvers.admission.packing.packing_lp import PackingLP
from optim.solvers.admission.packing.subgradient import SubgradientOptions
from optim.solvers.admission.pricing.classes import JobTables
from tests.support.admission.planted import planted

SMALL = ("small-0", "small-1", "small-2")


@pytest.mark.prove
def test_column_generation_needs_few_newton_steps():
    # 47; 59 without points between the best prices and the master's, 193 with Polyak's steps the wrong way.
    steps = 0
    for name in SMALL:
        tables = JobTables.build(optim.reference_instance(name))
        lp = PackingLP(tables, CapacityRows.of(tables))
        walk = SubgradientOptions(num_steps=60, add_every=4)
        steps += lp.run(Monitor(), tol=1e-6, first=walk, between=SubgradientOptions(num_steps=10)).newton_steps
    assert steps <= 54


@pytest.mark.parametrize(("name", "bound"), list(zip(SMALL, (462.0, 581.0, 508.0), strict=True)))
def test_sixty_steps_from_no_prices_come_near_the_lp(name, bound):
    tables = JobTables.build(optim.reference_instance(name))
    rows = CapacityRows.of(tables)
    lp = PackingLP(tables, rows)
    lp.search.subgradient_steps(np.zeros(rows.num_rows), SubgradientOptions(num_steps=60, add_every=4), None)
    assert lp.search.best.bound <= bound


def planted_search(seed):
    """Return a planted instance and a filled-up plan at the prices that prove its optimum."""
    found = planted(seed, horizon=16, servers=4, gpus=8, decoys=20)
    tables = JobTables.build(found.instance)
    rows = CapacityRows.of(tables)
    prices = np.zeros(rows.num_rows)
    prices[: rows.num_worker_rows].reshape(rows.worker_shape)[:, :, 0] = 1.0
    point = evaluate(tables, rows, prices)
    search = Neighbourhood(tables, rows, point, seed)
    search.fill_up(point.payoff, (1.0, 0.7, 0.4, 0.1))
    return found, point, search


@pytest.mark.parametrize("seed", range(3))
def test_the_planted_optimum_is_what_its_prices_prove(seed):
    found, point, search = planted_search(seed)
    assert point.bound == pytest.approx(found.optimum, rel=1e-9)
    assert 0.85 * found.optimum < search.incumbent_value < found.optimum


@pytest.mark.prove
def test_moves_close_most_of_what_filling_up_leaves_of_planted_optima():
    # 0.13 % on average of six; 2.2 without ejection chains, 7.5 without moves.
    gaps = []
    for seed in range(6):
        found, _, search = planted_search(seed)
        for k in range(0, 3_000, 200):
            search.run_at(0.5 * 0.04 ** (k / 3_000), 200, 10)
        gaps.append(1.0 - search.incumbent_value / found.optimum)
    assert np.mean(gaps) <= 0.004


def test_few_nodes_prove_tiny_optima():
    # 5 bounded nodes; 170 with the worst candidates. Parts of a node that its dual point closes are not bounded.
    options = {"search_moves": 0, "max_nodes": 400}
    names = ("tiny-0", "tiny-1", "tiny-2")
    solved = [optim.solve(optim.reference_instance(name), "branch-and-price", options=options) for name in names]
    assert all(solution.termination == "optimal" for solution in solved)
    assert sum(solution.stats.iterations for solution in solved) <= 10


def test_subgradient_steps_lower_the_bound_of_a_plan_that_came_without_one():
    instance = optim.reference_instance("small-0")
    tables = JobTables.build(instance)
    plan = optim.solve(instance, "fifo").decision
    scaled, improved = (certified_point(tables, plan, num_steps=steps).bound for steps in (0, 25))
    assert improved < 0.9 * scaled

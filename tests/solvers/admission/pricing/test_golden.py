"""What pricing finds at drawn prices, against a record: see `tests.support.golden`."""

import numpy as np
import pytest

import optim
from optim.core.driver import Monitor
from optim.solvers.admission.packing.capacity_rows import CapacityRows, plan_schedules, plan_usage
from optim.solvers.admission.packing.column_pool import ColumnPool
from optim.solvers.admission.packing.dual_points import certified_point, search_scale
from optim.solvers.admission.packing.packing_lp import PackingLP
from optim.solvers.admission.packing.subgradient import SubgradientOptions
from optim.solvers.admission.posted_prices.online_run import run_online
from optim.solvers.admission.posted_prices.price_functions import PriceFloorRule, ZeroStartPrice, price_ranges
from optim.solvers.admission.pricing.classes import JobTables, price
from tests.support.admission.seeded import seeded_instance as of_all_traits
from tests.support.admission.slot_runs import seeded_instance
from tests.support.admission.tiny import BY_HAND
from tests.support.golden import check


def priced(instance, seed=0):
    """Price all jobs at drawn prices, pool what is found, and bound the plan of the online rule."""
    tables, rng = JobTables.build(instance), np.random.default_rng(seed)
    rows = CapacityRows.of(tables)
    pool, found = ColumnPool(tables, rows), [tables, rows]
    for scale in (0.0, 0.03, 0.1, 0.3, 1.0):
        prices = scale * rng.uniform(0, 1, rows.num_rows) * (rng.random(rows.num_rows) < 0.8)
        schedules = price(tables, rows.prices(prices))
        found += [schedules, pool.add(schedules)]
    found += [pool.share, pool.job, pool.value, [pool.schedule(k) for k in range(len(pool.value))]]
    start = np.divide(1.0, rows.capacity, out=np.zeros(rows.num_rows), where=rows.capacity > 0)
    found.append(search_scale(tables, rows, start))
    bounds = price_ranges(instance, PriceFloorRule.UNIT_FREE_LAMBDA)
    plan = run_online(instance, bounds=bounds, function=ZeroStartPrice()).plan
    found += [plan_usage(tables, rows, plan), plan_schedules(tables, plan)]
    return [*found, certified_point(tables, plan, num_steps=3)]


def walked(instance):
    """Solve the packing LP roughly."""
    tables = JobTables.build(instance)
    lp = PackingLP(tables, CapacityRows.of(tables))
    return lp.run(
        Monitor(),
        tol=1e-3,
        first=SubgradientOptions(num_steps=10, add_every=2),
        between=SubgradientOptions(num_steps=3),
    ).point


def tightened(instance):
    """Search a tree of which some nodes have cuts."""
    return optim.solve(instance, "branch-and-price", options={"search_moves": 0, "max_nodes": 3})


RUNS = {
    "tiny": lambda: [priced(optim.reference_instance(f"tiny-{k}"), k) for k in range(3)],
    "by-hand": lambda: [priced(one) for one in BY_HAND.values()],
    "drawn": lambda: [priced(seeded_instance(seed, max_jobs=9), seed) for seed in range(10)],
    "traits": lambda: [priced(of_all_traits(seed), seed) for seed in range(0, 32, 2)],
    "walks": lambda: [walked(optim.reference_instance(f"tiny-{k}")) for k in range(3)],
    "cuts": lambda: [tightened(of_all_traits(seed)) for seed in range(1, 32, 10)],
    "threads": lambda: optim.solve(
        optim.reference_instance("tiny-1"), "column-generation", options={"engine": "threads"}
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_does_what_the_golden_record_says(name):
    check("solvers/admission/pricing", name, RUNS[name])

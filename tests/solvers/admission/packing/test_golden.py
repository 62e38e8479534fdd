"""What the packing LP's parts return on the way, against a record: see `tests.support.golden`."""

import pytest

import optim
from optim.core.driver import Monitor
from optim.core.stopping import IterationLimit
from optim.solvers.admission.packing.capacity_rows import CapacityRows
from optim.solvers.admission.packing.packing_lp import PackingLP
from optim.solvers.admission.packing.subgradient import SubgradientOptions
from optim.solvers.admission.pricing.classes import JobTables
from optim.solvers.lp.pdhg import solve_pdhg
from tests.support.admission.seeded import seeded_instance as of_all_traits
from tests.support.admission.slot_runs import seeded_instance
from tests.support.admission.tiny import BY_HAND
from tests.support.golden import check


def bounded(name, **options):
    """Solve the LP."""
    return optim.solve(optim.reference_instance(name), "column-generation", options=options)


def tightened(instance, **options):
    """Solve the LP with cuts."""
    return optim.solve(instance, "search", options={"num_moves": 0, "dives": False, "chains": 1, **options})


def first_order():
    """Solve the last master of an LP by first-order steps, from nothing and from where it ended before."""
    tables = JobTables.build(optim.reference_instance("tiny-2"))
    lp = PackingLP(tables, CapacityRows.of(tables))
    pool = lp.run(
        Monitor(),
        tol=1e-4,
        first=SubgradientOptions(num_steps=20, add_every=2),
        between=SubgradientOptions(num_steps=3),
    ).pool
    master = (pool.share, pool.job, pool.value, tables.num_jobs)
    cold = solve_pdhg(*master, tol=1e-3, most_steps=150)
    return cold, solve_pdhg(*master, tol=1e-4, most_steps=90, x=cold.last_x, row_price=cold.last_price)


def stopped():
    """Stop the LP and its cuts after few rounds."""
    instance, found = optim.reference_instance("tiny-2"), []
    for rounds in (0, 1, 3):
        stop = IterationLimit(rounds)
        found.append(optim.solve(instance, "column-generation", stop=stop, options={"first_steps": 2}))
    return found


RUNS = {
    "central": lambda: bounded("tiny-1"),
    "without-start": lambda: bounded("tiny-2", warm_start=False, first_steps=4, steps_between=0),
    "cuts": lambda: tightened(optim.reference_instance("tiny-2"), count_rounds=2),
    "by-hand": lambda: [tightened(one, count_rounds=1) for one in BY_HAND.values()],
    "drawn": lambda: [tightened(seeded_instance(seed)) for seed in range(5)],
    "traits": lambda: [tightened(of_all_traits(seed), count_rounds=1) for seed in range(1, 32, 6)],
    "stopped": stopped,
    "first-order": first_order,
}


@pytest.mark.prove
@pytest.mark.parametrize("name", RUNS)
def test_does_what_the_golden_record_says(name):
    check("solvers/admission/packing", name, RUNS[name])

"""What insertions, moves and dives make of plans, against a record: see `tests.support.golden`."""

import numpy as np
import pytest

import optim
from optim.core.driver import Monitor
from optim.solvers.admission.local_search.plan_moves import Neighbourhood, dive
from optim.solvers.admission.packing.capacity_rows import CapacityRows
from optim.solvers.admission.packing.dual_points import search_scale
from optim.solvers.admission.packing.packing_lp import PackingLP
from optim.solvers.admission.packing.subgradient import SubgradientOptions
from optim.solvers.admission.pricing.classes import JobTables
from tests.support.admission.seeded import seeded_instance as of_all_traits
from tests.support.admission.slot_runs import seeded_instance
from tests.support.admission.tiny import BY_HAND
from tests.support.golden import check


def moved(instance, seed=0, heats=(0.2, 0.02), moves=15):
    """Fill a plan up at one price for all that is there, and move it; return what it is worth every few moves."""
    tables = JobTables.build(instance)
    rows = CapacityRows.of(tables)
    start = np.divide(1.0, rows.capacity, out=np.zeros(rows.num_rows), where=rows.capacity > 0)
    search = Neighbourhood(tables, rows, search_scale(tables, rows, start), seed)
    found = []
    for scale in (1.0, 0.3, 0.0):
        search.construct(np.arange(tables.num_jobs), scale)
        found += [search.value, search.best_plan()]
    for heat in heats:
        for _ in range(6):
            search.run_at(heat, moves, 4)
            found += [
                search.value,
                search.incumbent_value,
                search.state.completion.copy(),
                search.state.workers.residual.copy(),
            ]
            found += [search.state.ps.residual.copy(), search.state.workers.used.copy(), search.state.ps.used.copy()]
    found.append(search.best_plan())
    search.return_to_best()
    search.run(5, 1.0, 3)
    plan = search.best_plan()
    search.clear()
    search.adopt(plan)
    return [*found, search.value, search.state.workers.rows.copy()]


def dived(instance):
    """Dive from the LP's prices, and put the columns of the LP one after the other on servers."""
    tables = JobTables.build(instance)
    rows = CapacityRows.of(tables)
    solved = PackingLP(tables, rows).run(
        Monitor(),
        tol=1e-4,
        first=SubgradientOptions(num_steps=20, add_every=4),
        between=SubgradientOptions(num_steps=3),
    )
    search = Neighbourhood(tables, rows, solved.point, 1, solved.weight())
    found = [dive(tables, rows, solved.point, solved.weight(), Monitor())]
    for column in np.argsort(-solved.x, kind="stable").tolist():
        schedule = solved.pool.schedule(column)
        if search.state.completion[schedule.job] < 0:
            found.append(search.try_schedule(schedule))
    search.fill_up(solved.point.payoff, (1.0, 0.1))
    search.run_at(0.1, 30, 5)
    return [*found, search.value, search.best_plan()]


RUNS = {
    "tiny": lambda: [moved(optim.reference_instance(f"tiny-{k}"), k, moves=150) for k in range(3)],
    "by-hand": lambda: [moved(one) for one in BY_HAND.values()],
    "drawn": lambda: [moved(seeded_instance(seed, max_jobs=12), seed) for seed in range(14)],
    "traits": lambda: [moved(of_all_traits(seed), seed, heats=(0.3,)) for seed in range(32)],
    "dives-traits": lambda: [dived(of_all_traits(seed)) for seed in range(0, 32, 6)],
    "dives": lambda: [dived(optim.reference_instance(f"tiny-{k}")) for k in range(3)],
    "dives-drawn": lambda: [dived(seeded_instance(seed, max_jobs=9)) for seed in range(5)],
}


@pytest.mark.parametrize("name", RUNS)
def test_does_what_the_golden_record_says(name):
    check("solvers/admission/neighbourhood", name, RUNS[name])

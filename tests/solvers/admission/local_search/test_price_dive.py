"""Dives: feasible plans; re-pricing is on average no worse than one pass at the first prices."""

from functools import cache

import numpy as np
import pytest

import optim
from optim.core.driver import Monitor
from optim.core.solution import Certificate, CertificateKind, PointStatus, Sense, Solution, Termination
from optim.core.stopping import Never, TimeLimit
from optim.solvers.admission.local_search.plan_moves import dive
from optim.solvers.admission.packing.capacity_rows import CapacityRows
from optim.solvers.admission.packing.packing_lp import PackingLP
from optim.solvers.admission.packing.subgradient import SubgradientOptions
from optim.solvers.admission.pricing.classes import JobTables

NAMES = ["tiny-0", "tiny-1", "tiny-2", "small-0", "small-1", "small-2"]


@cache
def relaxed_of(name):
    """An instance, its tables and rows, and the LP's solution."""
    instance = optim.reference_instance(name)
    tables = JobTables.build(instance)
    rows = CapacityRows.of(tables)
    walk = SubgradientOptions(num_steps=10)
    return instance, tables, rows, PackingLP(tables, rows).run(Monitor(), tol=1e-6, first=walk, between=walk)


def dived(name, stop):
    """A plan by diving from the LP, and the LP's bound."""
    instance, tables, rows, relaxed = relaxed_of(name)
    weight = np.bincount(relaxed.pool.job, relaxed.x, tables.num_jobs)
    return instance, dive(tables, rows, relaxed.point, weight, Monitor(stop)), relaxed.point.bound


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("stop", [Never(), TimeLimit(0.0)])
def test_plans_are_feasible_and_below_the_bound(name, stop):
    instance, plan, bound = dived(name, stop)
    claim = Solution(
        problem="admission",
        instance=name,
        solver="dive",
        sense=Sense.MAXIMISE,
        termination=Termination.COMPLETED,
        primal=PointStatus.FEASIBLE,
        decision=plan,
        objective=plan.objective(instance),
        certificate=Certificate(kind=CertificateKind.FEASIBLE_ONLY, statement=""),
    )
    assert optim.verify(instance, claim).is_ok
    assert 0 < plan.objective(instance) <= bound


@pytest.mark.prove
def test_re_pricing_earns_more_on_the_whole_than_prices_that_stay():
    repriced = sum(plan.objective(instance) for instance, plan, _ in (dived(name, Never()) for name in NAMES))
    posted = sum(plan.objective(instance) for instance, plan, _ in (dived(name, TimeLimit(0.0)) for name in NAMES))
    assert repriced > posted

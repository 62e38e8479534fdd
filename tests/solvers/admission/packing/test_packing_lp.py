"""Column generation: the optimum of the textbook method, and a bound at every stop."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csc_array

import optim
from optim.core.driver import Monitor
from optim.core.stopping import IterationLimit
from optim.solvers.admission.column_generation import ColumnGenerationOptions, solve_packing_lp
from optim.solvers.admission.packing.capacity_rows import CapacityRows, usage_matrix
from optim.solvers.admission.packing.packing_lp import PackingLP, shares_that_fit
from optim.solvers.admission.packing.subgradient import SubgradientOptions
from optim.solvers.admission.pricing.classes import JobTables
from tests.support.admission.textbook_lp import textbook_optimum
from tests.support.admission.tiny import job_document, tiny_instance


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.prove if name in ("small-0", "small-1") else ())
        for name in ("tiny-0", "tiny-1", "tiny-2", "small-0", "small-1", "small-2")
    ],
)
def test_reaches_the_optimum_of_the_textbook_method(name):
    instance = optim.reference_instance(name)
    central = optim.solve(instance, "column-generation")
    master, bound = textbook_optimum(instance)
    assert central.termination == "completed"
    assert central.objective is None
    assert central.stats.counts["lp_gap"] <= 1e-6
    assert master <= bound * (1 + 1e-9)
    assert central.bound == pytest.approx(bound, rel=3e-6)
    assert central.stats.counts["master"] <= bound * (1 + 1e-9)
    assert optim.verify(instance, central).is_ok


@pytest.mark.parametrize("warm_start", [False, True])
def test_the_master_of_a_single_column_attains_the_bound(warm_start):
    """Alone on the cluster a job earns its best value, 16 in slot 0 with two workers on four GPUs."""
    instance = tiny_instance(job_document("a", epochs=1))
    alone = optim.solve(instance, "column-generation", options={"warm_start": warm_start})
    assert alone.stats.counts["columns"] == 1
    assert alone.bound == pytest.approx(16.0, rel=1e-6)
    assert alone.stats.counts["master"] == pytest.approx(16.0, rel=1e-6)
    nobody = optim.solve(tiny_instance(job_document("a", worker=[9, 0])), "column-generation")
    assert (nobody.bound, nobody.stats.counts["master"], nobody.stats.counts["columns"]) == (0.0, 0.0, 0.0)


@cache
def bound_of(name):
    """Return the bound of an instance's packing LP."""
    return optim.solve(optim.reference_instance(name), "column-generation").bound


@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_any_stop_leaves_a_bound_that_verifies(rounds):
    instance = optim.reference_instance("small-2")
    stopped = optim.solve(instance, "column-generation", stop=IterationLimit(rounds))
    assert stopped.bound >= bound_of("small-2") * (1 - 1e-6)
    assert optim.verify(instance, stopped).is_ok


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_the_point_of_any_stop_is_worth_the_masters_value_and_fits(rounds):
    instance = optim.reference_instance("small-2")
    tables = JobTables.build(instance)
    rows = CapacityRows.of(tables)
    result = solve_packing_lp(tables, rows, ColumnGenerationOptions(), Monitor(IterationLimit(rounds)))
    assert (result.pool.share @ result.x <= 1 + 1e-9).all()
    assert result.pool.value @ result.x <= result.master * (1 + 1e-9)


def test_the_masters_point_satisfies_every_row():
    instance = optim.reference_instance("small-0")
    tables = JobTables.build(instance)
    rows = CapacityRows.of(tables)
    walk = SubgradientOptions(num_steps=30)
    result = PackingLP(tables, rows).run(Monitor(), tol=1e-6, first=walk, between=walk)
    assert (result.pool.share @ result.x <= 1 + 1e-6).all()
    assert (np.bincount(result.pool.job, result.x) <= 1 + 1e-6).all()
    assert result.gap <= 1e-6


@given(seed=st.integers(0, 2**32 - 1), load=st.floats(0.1, 5.0))
def test_columns_give_way_where_a_row_overflows_and_no_further(seed, load):
    rng = np.random.default_rng(seed)
    dense = np.where(rng.random((6, 9)) < 0.4, rng.random((6, 9)), 0.0)
    x = load * rng.random(9)
    use = dense @ x
    shares = shares_that_fit(csc_array(dense), use)
    assert (dense @ (shares * x) <= 1 + 1e-12).all()
    assert (shares >= 1 / max(1.0, use.max()) - 1e-15).all()
    is_free = np.array([(use[dense[:, j] > 0] <= 1).all() for j in range(9)])
    assert (shares[is_free] == 1).all()
    assert shares_that_fit(csc_array((6, 2)), np.full(6, 2.0)).tolist() == [1.0, 1.0]  # columns without entries


def test_columns_that_are_kept_keep_their_schedules():
    instance = optim.reference_instance("small-1")
    tables = JobTables.build(instance)
    rows = CapacityRows.of(tables)
    walk = SubgradientOptions(num_steps=20)
    pool = PackingLP(tables, rows).run(Monitor(), tol=1e-3, first=walk, between=walk).pool
    for column in range(len(pool)):
        schedule = pool.schedule(column)
        assert schedule.job == pool.job[column]
        assert pool.value[column] == instance.value[schedule.job, schedule.completion]
        assert schedule.workers[:, 2].sum() == instance.work[schedule.job]
        assert schedule.workers[:, 1].max() == schedule.completion


def test_usage_is_count_times_demand():
    instance = optim.reference_instance("tiny-0")
    tables = JobTables.build(instance)
    rows = CapacityRows.of(tables)
    from optim.solvers.admission.pricing.classes import price

    priced = price(tables, rows.prices(np.full(rows.num_rows, 1e-3)))
    usage = usage_matrix(tables, rows, priced).toarray()
    for k in np.flatnonzero(priced.completion >= 0):
        worker = priced.workers[k][:, :, None] * tables.worker_demand[k]
        ps = priced.ps[k][:, :, None] * tables.ps_demand[k]
        np.testing.assert_allclose(usage[:, k], np.concatenate([worker.ravel(), ps.ravel()]))


@pytest.mark.parametrize(("name", "optimum"), [("tiny-0", 63.885), ("tiny-1", 168.3453577), ("tiny-2", 307.8381276)])
def test_server_cuts_lower_the_bound_and_never_below_the_optimum(name, optimum):
    from optim.core.solution import Certificate, CertificateKind, PointStatus, Sense, Solution, Termination
    from optim.solvers.admission.packing.packing_lp import solve_with_cuts

    instance = optim.reference_instance(name)
    tables = JobTables.build(instance)
    rows = CapacityRows.of(tables)
    bounds = []
    for cut_rounds in (0, 5):
        result = solve_with_cuts(tables, rows, Monitor(), tol=1e-6, cut_rounds=cut_rounds).result
        bounds.append(result.point.bound)
        solution = Solution(
            problem="admission",
            instance=name,
            solver="cuts",
            sense=Sense.MAXIMISE,
            termination=Termination.COMPLETED,
            primal=PointStatus.NONE,
            dual=PointStatus.FEASIBLE,
            bound=result.point.bound,
            certificate=Certificate(kind=CertificateKind.BOUND, statement="", proof=result.point.proof(rows)),
        )
        assert optim.verify(instance, solution).violations == ()
    assert optimum - 1e-6 <= bounds[1] < bounds[0] * (1 - 1e-3)

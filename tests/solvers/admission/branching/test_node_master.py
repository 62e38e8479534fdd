"""The restricted master of the tree: the jobs' parts of its points, and the remaining cuts."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optim
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.branching.node import NodeBounder, NodeMaster
from optim.solvers.admission.branching.node_pricing import BranchRestrictions
from optim.solvers.admission.branching.tree import ROOT_EFFORT
from optim.solvers.admission.cuts.separation import CutSeparator
from optim.solvers.admission.packing.capacity_rows import CapacityRows, dominated_rows, usage_matrix
from optim.solvers.admission.packing.column_pool import ColumnPool
from optim.solvers.admission.pricing.classes import JobTables, price
from tests.support.admission.strategies import tiny_instances


def bounded_root(name: str) -> tuple[JobTables, CapacityRows, NodeBounder]:
    """Bound the root of an instance's tree."""
    tables = JobTables.build(optim.reference_instance(name))
    rows = CapacityRows.of(tables)
    bounder = NodeBounder(tables, rows)
    limits, start = BranchRestrictions.free(tables), bounder.zero_dual_point()
    bounder.bound(limits, start, cutoff=0.0, effort=ROOT_EFFORT, should_stop=lambda _: False)
    return tables, rows, bounder


def test_counts_are_those_of_a_pool_of_the_same_schedules() -> None:
    tables, rows, bounder = bounded_root("tiny-1")
    schedules = bounder.master.schedules
    pool = ColumnPool(tables, rows)
    pool.add(schedules)
    weight = np.random.default_rng(0).random(len(schedules)) * (np.arange(len(schedules)) % 3 > 0)
    # The pool sorts schedules by job, earlier ones first.
    expected = pool.counts(weight[np.argsort(schedules.jobs, kind="stable")])
    for found, known in zip(bounder.master.counts(weight), expected, strict=True):
        assert np.array_equal(found, known)


@pytest.mark.parametrize("name", ["tiny-1", "tiny-2"])
def test_its_prices_pay_for_its_value(name: str) -> None:
    """Strong duality: the payments for rows, cuts and jobs sum to the value, with cuts and without."""
    tables, rows, bounder = bounded_root(name)
    plain = NodeMaster(tables, rows, penalty=1000.0)
    plain.load_node(BranchRestrictions.free(tables))
    plain.add_schedules(bounder.master.schedules)
    for master in (bounder.master, plain):
        point = master.solve()
        paid = point.row_prices @ rows.capacity + point.multiplier @ master.cuts.right_hand_side
        assert (point.row_prices >= 0).all()
        assert paid + point.job_price.sum() == pytest.approx(point.value, rel=1e-9)
    assert point.row_prices.any()


def test_forgets_cuts_without_a_price_and_nothing_else() -> None:
    _, _, bounder = bounded_root("tiny-2")
    master = bounder.master
    before, schedules, num_cuts = master.solve(), master.schedules, len(master.cuts)
    priced = [cut for cut, value in zip(master.cuts.cuts, before.multiplier.tolist(), strict=True) if value > 0]
    master.drop_idle_cuts()
    assert list(master.cuts.cuts) == priced
    assert 0 < len(priced) < num_cuts
    assert np.array_equal(master.schedules.workers, schedules.workers)
    after = master.solve()
    assert after.value == pytest.approx(before.value, rel=1e-9)
    separator = CutSeparator(optim.reference_instance("tiny-2"))
    master.add_cuts(separator.separate(*master.loads(np.ones(len(schedules)))))
    assert master.solve().value <= after.value + 1e-9


def test_an_admitted_job_without_schedules_costs_its_penalty_which_rises_a_hundredfold_up_to_a_millionfold() -> None:
    """The next node starts with the first penalty again."""
    tables = JobTables.build(optim.reference_instance("tiny-1"))
    master = NodeMaster(tables, CapacityRows.of(tables), penalty=7.0)
    limits = BranchRestrictions.free(tables)
    limits.is_admitted[[0, 2]] = 1
    master.load_node(limits)
    for factor in (1.0, 1e2, 1e4, 1e6):
        point = master.solve()
        assert (point.infeasibility, point.value) == pytest.approx((2.0, -2 * 7.0 * factor))
        assert master.raise_penalty() == (factor < 1e6)
    master.load_node(limits)
    assert master.solve().value == pytest.approx(-14.0)


def check_left_out_rows(instance: AdmissionInstance, seed: int) -> bool:
    """Load random schedules, such that the fullest row of a class and slot stays; return whether any row is left out."""
    tables = JobTables.build(instance)
    rows = CapacityRows.of(tables)
    is_left_out, rng, side = dominated_rows(tables, rows), np.random.default_rng(seed), rows.num_worker_rows
    for _ in range(10):
        priced = price(tables, rows.prices(rng.exponential(0.01, rows.num_rows)))
        use = usage_matrix(tables, rows, priced) @ rng.exponential(size=len(priced))
        share = np.divide(use, rows.capacity, out=np.zeros_like(use), where=rows.capacity > 0)
        stays = np.where(is_left_out, 0.0, share)
        for part in (slice(0, side), slice(side, None)):
            places = (-1, instance.num_resources)
            full, kept = share[part].reshape(places), stays[part].reshape(places)
            assert (full.max(axis=1, initial=0.0) <= kept.max(axis=1, initial=0.0) * (1 + 1e-12)).all()
    return bool(is_left_out.any())


@given(st.booleans().flatmap(lambda is_shared: tiny_instances(is_shared=is_shared)), st.integers(0, 2**32 - 1))
def test_rows_that_are_left_out_follow_from_others(instance: AdmissionInstance, seed: int) -> None:
    check_left_out_rows(instance, seed)


@pytest.mark.parametrize("name", ["small-0", "shared-0"])
def test_half_of_the_rows_are_left_out_of_real_mixes(name: str) -> None:
    assert check_left_out_rows(optim.reference_instance(name), 0)


def test_a_forgotten_schedule_leaves_a_basis_that_still_leads_to_the_optimum() -> None:
    _, _, bounder = bounded_root("tiny-1")
    master = bounder.master
    basis, value = master.basis(), master.solve().value
    assert len(basis.columns) == len(basis.rows)
    master.purge_columns(4, 3_000)
    assert len(master.schedules) == 2
    limits = BranchRestrictions.free(JobTables.build(optim.reference_instance("tiny-1")))
    master.load_node(limits, basis)
    assert master.solve().value <= value
    # Without further cuts, which might lower the bound beyond.
    effort = replace(ROOT_EFFORT, max_cut_rounds=0)
    point = bounder.bound(limits, bounder.zero_dual_point(), cutoff=0.0, effort=effort, should_stop=lambda _: False)
    assert point.point.bound == pytest.approx(value, rel=1e-6)


def test_an_estimate_falls_with_its_steps_down_to_the_value_and_limits_no_later_solve() -> None:
    """Every step of the dual simplex method leaves a bound on the programme's value."""
    tables, rows, bounder = bounded_root("tiny-2")
    plain = NodeMaster(tables, rows, penalty=1000.0)
    plain.load_node(BranchRestrictions.free(tables))
    plain.add_schedules(bounder.master.schedules)
    whole = plain.solve()
    used = plain.schedules.jobs[np.argmax(whole.weight)]
    limits = BranchRestrictions.free(tables)
    limits.is_refused[used] = 1
    basis = plain.basis()
    plain.load_node(limits, basis)
    value = plain.solve().value
    estimates = []
    for max_iterations in (0, 1, 2, 1_000):
        plain.load_node(limits, basis)
        estimates.append(plain.estimate(max_iterations))
    assert estimates == sorted(estimates, reverse=True)
    assert estimates[0] > value
    assert estimates[-1] == pytest.approx(value, rel=1e-9)
    plain.load_node(limits, basis)
    plain.estimate(0)
    assert plain.solve().value == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("name", ["tiny-1", "tiny-2"])
def test_schedules_of_the_point_are_paid_their_jobs_price(name: str) -> None:
    """Complementary slackness: used schedules have no loss, and known schedules no gain."""
    _, _, bounder = bounded_root(name)
    point, schedules = bounder.master.solve(), bounder.master.schedules
    slack = point.job_price[schedules.jobs] - bounder.payoff(schedules, point)
    assert slack.min() >= -1e-6
    assert slack[point.weight > 1e-6] == pytest.approx(0.0, abs=1e-6)

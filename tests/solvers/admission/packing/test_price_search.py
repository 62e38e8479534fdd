"""Subgradient steps and line searches lower the bound, and the certificates of plans are more than a scaled ray."""

import numpy as np
import pytest

import optim
from optim.core.driver import Monitor
from optim.solvers.admission.cuts.cut_table import CutTable
from optim.solvers.admission.packing.capacity_rows import CapacityRows, total_use, usage_matrix
from optim.solvers.admission.packing.column_pool import ColumnPool
from optim.solvers.admission.packing.dual_points import evaluate, improve, search_scale
from optim.solvers.admission.packing.subgradient import PriceSearch, SubgradientOptions
from optim.solvers.admission.pricing.classes import JobTables, price
from tests.support.admission.tiny import BY_HAND

LP_OPTIMUM = {"small-0": 439.1209, "small-1": 573.4873, "small-2": 498.5897}
"""Value of the packing LP, by the textbook method."""


def laid_out(name):
    instance = optim.reference_instance(name)
    tables = JobTables.build(instance)
    return tables, CapacityRows.of(tables)


def price_search(tables, rows):
    return PriceSearch(tables, rows, ColumnPool(tables, rows), CutTable(tables.instance), Monitor())


@pytest.mark.parametrize("name", sorted(LP_OPTIMUM))
def test_a_walk_comes_close_to_the_lp_optimum_and_never_below(name):
    tables, rows = laid_out(name)
    search = price_search(tables, rows)
    search.subgradient_steps(np.zeros(rows.num_rows), SubgradientOptions(num_steps=1), None)
    free = search.best.bound
    search.subgradient_steps(np.zeros(rows.num_rows), SubgradientOptions(num_steps=150), LP_OPTIMUM[name])
    assert LP_OPTIMUM[name] * (1 - 1e-6) <= search.best.bound <= 1.03 * LP_OPTIMUM[name]
    assert search.best.bound < 0.95 * free


@pytest.mark.parametrize("name", sorted(LP_OPTIMUM))
def test_between_two_points_there_is_a_better_one(name):
    tables, rows = laid_out(name)
    good = price_search(tables, rows)
    good.subgradient_steps(np.zeros(rows.num_rows), SubgradientOptions(num_steps=60), LP_OPTIMUM[name])
    far = 4.0 * good.best.prices
    search = price_search(tables, rows)
    search.subgradient_steps(np.zeros(rows.num_rows), SubgradientOptions(num_steps=1), None)
    ends = search.best.bound, evaluate(tables, rows, far).bound
    search.in_out_line_search(far, 6)
    assert search.best.bound < min(ends) * (1 - 1e-3)
    assert 0 < search.best.prices.max() < far.max()


@pytest.mark.parametrize("name", sorted(LP_OPTIMUM))
def test_subgradient_steps_improve_on_the_best_scale(name):
    tables, rows = laid_out(name)
    even = np.divide(1.0, rows.capacity, out=np.zeros(rows.num_rows), where=rows.capacity > 0)
    scaled = search_scale(tables, rows, even)
    stepped = improve(tables, rows, scaled, target=0.9 * LP_OPTIMUM[name], num_steps=40)
    assert LP_OPTIMUM[name] * (1 - 1e-6) <= stepped.bound < scaled.bound * (1 - 1e-3)


@pytest.mark.parametrize("name", BY_HAND)
def test_summed_use_is_the_sum_of_each_schedules_use(name):
    tables = JobTables.build(BY_HAND[name])
    rows = CapacityRows.of(tables)
    priced = price(tables, rows.prices(np.full(rows.num_rows, 1e-3)))
    expected = np.asarray(usage_matrix(tables, rows, priced).sum(axis=1)).ravel()
    assert expected.any()
    np.testing.assert_array_equal(total_use(tables, rows, priced), expected)

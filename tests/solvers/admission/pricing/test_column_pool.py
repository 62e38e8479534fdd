"""The pool of known schedules, transferred to the remaining problem."""

from dataclasses import replace

import numpy as np
import pytest

from optim.solvers.admission.packing.capacity_rows import CapacityRows
from optim.solvers.admission.packing.column_pool import ColumnPool
from optim.solvers.admission.pricing.classes import JobTables, price
from tests.support.admission.tiny import BY_HAND, tiny_instance


@pytest.mark.parametrize("name", BY_HAND)
def test_a_pool_on_other_capacities_is_the_one_that_is_filled_anew(name) -> None:
    tables = JobTables.build(BY_HAND[name])
    rows = CapacityRows.of(tables)
    draw = np.random.default_rng(0)
    value = tables.value.copy()
    value[0], value[1:, 0] = 0, value[1:, 0] / 2
    rest = replace(tables, value=value)
    now = replace(rows, capacity=rows.capacity * draw.uniform(0.2, 1.0, rows.num_rows))
    first, fresh = ColumnPool(tables, rows), ColumnPool(rest, now)
    for _ in range(6):
        found = price(tables, rows.prices(draw.uniform(0, 1, rows.num_rows) ** 2))
        first.add(found)
        fresh.add(found.select(np.flatnonzero(value[found.jobs, found.completion] > 0)))
    first.set_weight(np.arange(len(first)) / len(first))
    pool = first.on(rest, now)
    weight = {first.key(k): first.weight[k] for k in range(len(first))}
    assert len(pool) > 0
    assert name == "shared-capped" or len(pool) < len(first)  # one job alone earns there
    assert [pool.key(k) for k in range(len(pool))] == [fresh.key(k) for k in range(len(fresh))]
    assert pool.weight.tolist() == [weight[pool.key(k)] for k in range(len(pool))]
    np.testing.assert_array_equal(pool.job, fresh.job)
    np.testing.assert_array_equal(pool.value, fresh.value)
    np.testing.assert_allclose(pool.share.toarray(), fresh.share.toarray(), rtol=1e-12)
    # Known schedules are not added again, and the first pool is unchanged.
    again = price(tables, rows.prices(np.zeros(rows.num_rows)))
    kept = again.select(np.flatnonzero(value[again.jobs, again.completion] > 0))
    assert pool.add(kept) == fresh.add(kept)
    assert len(first) == len(weight)


def test_a_pool_without_schedules_has_arrays_without_columns() -> None:
    tables = JobTables.build(tiny_instance())
    rows = CapacityRows.of(tables)
    pool = ColumnPool(tables, rows)
    assert len(pool) == 0
    assert [column.shape for column in (pool.job, pool.value, pool.weight, pool.idle)] == [(0,)] * 4
    assert pool.share.shape == (rows.num_rows, 0)


@pytest.mark.parametrize("name", BY_HAND)
def test_columns_are_in_order_also_right_after_some_were_added(name) -> None:
    tables = JobTables.build(BY_HAND[name])
    rows = CapacityRows.of(tables)
    draw = np.random.default_rng(0)
    pools = [ColumnPool(tables, rows) for _ in range(3)]
    for _ in range(4):
        found = price(tables, rows.prices(draw.uniform(0, 1, rows.num_rows) ** 2))
        for pool in pools:
            pool.add(found)
        assert len(pools[0].value) == len(pools[0])  # asking puts this one in order
    in_order, counted, cut = pools
    x = draw.uniform(0.1, 1, len(in_order))
    for one, other in zip(counted.counts(x), in_order.counts(x), strict=True):
        np.testing.assert_array_equal(one, other)
    half = np.arange(0, len(in_order), 2)
    keys = [in_order.key(k) for k in half.tolist()]
    cut.keep(half)
    assert [cut.key(k) for k in range(len(cut))] == keys
    np.testing.assert_array_equal(cut.value, in_order.value[half])

"""The best point on a ray of prices, where the bound is a broken line known by hand."""

import numpy as np
import pytest

from optim.solvers.admission.packing.capacity_rows import CapacityRows
from optim.solvers.admission.packing.dual_points import SCALE_RATIO, evaluate, search_scale
from optim.solvers.admission.pricing.classes import JobTables
from tests.models.admission.check.test_cuts import TWO_LARGE_JOBS

TABLES = JobTables.build(TWO_LARGE_JOBS)
ROWS = CapacityRows.of(TABLES)
"""Two jobs of value 16 that take four of six GPUs in slot 0: at a price p the bound is 2 (16 - 4 p)+ + 6 p, at best 24 at 4."""


def priced(price):
    prices = np.zeros(ROWS.num_rows)
    prices[: ROWS.num_worker_rows].reshape(ROWS.worker_shape)[0, 0, 0] = price
    return prices


@pytest.mark.parametrize("price", [0.0, 1.0, 4.0, 7.0])
def test_the_bound_is_what_jobs_earn_and_servers_are_paid(price):
    assert evaluate(TABLES, ROWS, priced(price)).bound == pytest.approx(2 * max(0.0, 16 - 4 * price) + 6 * price)


@pytest.mark.parametrize("steps", range(-5, 6))
def test_finds_the_best_scale_from_above_and_from_below(steps):
    found = search_scale(TABLES, ROWS, priced(4.0 * SCALE_RATIO**steps))
    assert found.bound == pytest.approx(24.0)
    assert found.row_prices.max() == pytest.approx(4.0)


def test_no_scale_of_prices_for_what_is_plentiful_is_better_than_none():
    plenty = np.zeros(ROWS.num_rows)
    plenty[: ROWS.num_worker_rows].reshape(ROWS.worker_shape)[0, 3, 0] = 1.0  # slot 3, which no job uses
    assert search_scale(TABLES, ROWS, plenty).bound == pytest.approx(32.0)
    assert search_scale(TABLES, ROWS, priced(0.0)).bound == pytest.approx(32.0)

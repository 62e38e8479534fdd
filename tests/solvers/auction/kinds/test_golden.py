"""What programmes and trees over kinds of bundles comes to, against a record: see `tests.support.golden`."""

import pytest

import optim
from tests.support.auction.golden_auctions import whole
from tests.support.golden import check

RUNS = {
    "exact": lambda: [optim.solve(one, "exact", options={"payments": "closed"}) for one in whole()],
    "decided": lambda: [optim.solve(one, "exact", options={"main_nodes": 3}) for one in whole()],
}


@pytest.mark.parametrize("name", RUNS)
def test_does_what_the_golden_record_says(name):
    check("solvers/auction/kinds", name, RUNS[name])

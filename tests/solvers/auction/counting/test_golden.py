"""What counting GPUs comes to, against a record: see `tests.support.golden`."""

import pytest

import optim
from tests.support.auction.all_forms import auctions_of_all_forms
from tests.support.golden import check

RUNS = {
    "exact": lambda: [optim.solve(one, "exact") for one in auctions_of_all_forms()],
}


@pytest.mark.parametrize("name", RUNS)
def test_does_what_the_golden_record_says(name):
    check("solvers/auction/counting", name, RUNS[name])

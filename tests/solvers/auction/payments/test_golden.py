"""What deciding and settling payments comes to, against a record: see `tests.support.golden`."""

import pytest

import optim
from tests.support.auction.all_forms import auctions_of_all_forms
from tests.support.golden import check

RULES = ("floor", "nearest", "ceil", "lottery")

RUNS = {
    "decided": lambda: [
        optim.solve(one, "exact", options={"rule": rule}) for one in auctions_of_all_forms() for rule in RULES
    ],
    "closed": lambda: [
        optim.solve(one, "exact", options={"payments": "closed", "payment_nodes": 3}) for one in auctions_of_all_forms()
    ],
    "greedy": lambda: [
        optim.solve(one, "greedy", options={"rule": rule}) for one in auctions_of_all_forms() for rule in RULES
    ],
}


@pytest.mark.parametrize("name", RUNS)
def test_does_what_the_golden_record_says(name):
    check("solvers/auction/payments", name, RUNS[name])

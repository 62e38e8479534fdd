"""What job plans over zones come to, against a record: see `tests.support.golden`."""

import pytest

from optim.solvers.bidding.zones import least_cost
from tests.support.golden import check
from tests.support.spot.zones import drawn


def planned():
    """Plan drawn jobs, from later ticks, too."""
    found = []
    for seed in range(60):
        market, job = drawn(seed, ticks=11)
        found.append(least_cost(market, job, 0))
        try:
            found.append(least_cost(market, job, 1))
        except ValueError:
            found.append("too late")
    return found


RUNS = {"plans": planned}


@pytest.mark.parametrize("name", RUNS)
def test_does_what_the_golden_record_says(name):
    check("solvers/bidding/zones", name, RUNS[name])

"""What job plans over zones come to, against a record: see `tests.support.golden`."""

import numpy as np
import pytest

from optim.solvers.bidding.zones import least_cost, min_means
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


def means():
    """Work out the mean costs of all situations of drawn chains."""
    found = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        work, setup = int(rng.integers(1, 5)), int(rng.integers(0, 3))
        found.append(
            min_means(
                float(rng.choice([0.0, 0.4, 0.9, 1.0])), float(rng.choice([0.0, 0.3, 1.0])), float(rng.integers(1, 9)),
                float(rng.integers(5, 20)), (1, 1, setup, work, setup + int(rng.integers(0, 4))),
            )
        )  # fmt: skip
    return found


RUNS = {"plans": planned, "means": means}


@pytest.mark.parametrize("name", RUNS)
def test_does_what_the_golden_record_says(name):
    check("solvers/bidding/zones", name, RUNS[name])

"""What local searches try and take, against a record: see `tests.support.golden`."""

import numpy as np
import pytest

import optim
from optim.core.driver import Monitor, run_iteration
from optim.solvers.bidding.steps import GreedySearch, SteepestAdditions, is_feasible, lack_of, neighbours
from tests.support.bidding.small_markets import drawn, lasting, published_vector, varied
from tests.support.golden import check

INSTANCES = [published_vector(), *(form(seed) for seed in range(4) for form in (drawn, varied, lasting))]


def stepped():
    """List what is within reach of drawn footprints, and what they lack; add steepest and greedily from nothing."""
    found = []
    for seed, instance in enumerate(INSTANCES):
        rng = np.random.default_rng(seed)
        for _ in range(2):
            table = neighbours(instance, rng.integers(0, instance.bids.max_count + 1))
            found += [table, lack_of(instance, table), is_feasible(instance, table)]
        found += [run_iteration(search(instance), Monitor()) for search in (SteepestAdditions, GreedySearch)]
    return found


RUNS = {
    "steps": stepped,
    "exchange": lambda: [optim.solve(one, "exchange") for one in INSTANCES],
    "greedy": lambda: [optim.solve(one, "greedy") for one in INSTANCES],
}


@pytest.mark.parametrize("name", RUNS)
def test_does_what_the_golden_record_says(name):
    check("solvers/bidding/local_search", name, RUNS[name])

"""What trees of boxes bound, cut and split, against a record: see `tests.support.golden`."""

import numpy as np
import pytest

from optim.core.driver import Monitor, run_iteration
from optim.solvers.bidding.outcome import make_tree
from tests.support.bidding.small_markets import best_of_all, drawn, lasting, published_vector, varied
from tests.support.golden import check


def searched(instances, scale, **limits):
    """Search trees at a ratio beside the best one."""
    found = []
    for instance in instances:
        ratio = best_of_all(instance) * scale
        if 0 < ratio < np.inf:
            tree = make_tree(instance, ratio, None, **{"cutoff": 9.0, "gap": 1e-9, **limits})
            result = run_iteration(tree, Monitor())
            found += [result, result.proof(ratio)]
    return found


RUNS = {
    "above": lambda: searched([published_vector(), *(drawn(seed) for seed in range(12))], 1.1),
    "below": lambda: searched([varied(seed) for seed in range(12)], 0.95),
    "everything": lambda: searched([varied(seed) for seed in range(6)], 1.3, all_of_interest=True),
    "lasting": lambda: searched([lasting(seed) for seed in range(9)], 1.05),
}


@pytest.mark.parametrize("name", RUNS)
def test_does_what_the_golden_record_says(name):
    check("solvers/bidding/tree", name, RUNS[name])

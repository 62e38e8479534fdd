"""What covers and probabilities come to, against a record: see `tests.support.golden`."""

import numpy as np
import pytest

from optim.solvers.bidding.survival import CoverPool, shortfall
from tests.support.bidding.small_markets import all_footprints, lasting
from tests.support.golden import check


def covered():
    """Look for rows that drawn counts miss, for the least counts, and for what to split."""
    found = []
    for seed in range(40):
        instance, rng = lasting(seed), np.random.default_rng(seed)
        pool, high = CoverPool(instance), instance.bids.max_count
        low = np.minimum(rng.integers(0, 2, len(high)), high)
        for _ in range(3):
            counts = rng.uniform(0, 1, instance.num_bids) * high
            found += [pool.missed(counts), pool.choose(counts, low, high), pool.choose(np.floor(counts), low, high)]
        found += [pool.rows, pool.rows_of([0] if pool.covers else []), pool.min_counts(0 * high, high)]
        found += [pool.min_counts(low, high), pool.keeps(all_footprints(instance))]
        found.append(shortfall(instance, all_footprints(instance)))
    return found


@pytest.mark.parametrize("name", ["covers"])
def test_does_what_the_golden_record_says(name):
    check("solvers/bidding/lasting", name, covered)

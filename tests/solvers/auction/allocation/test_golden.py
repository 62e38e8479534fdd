"""What allocations and their upgrades comes to, against a record: see `tests.support.golden`."""

import numpy as np
import pytest

import optim
from optim.solvers.auction.allocation import Allocator
from optim.solvers.auction.tables import Tables
from tests.support.auction.all_forms import auctions_of_all_forms
from tests.support.golden import check


def steps():
    """Fill, repair, empty and improve allocations step by step."""
    found = []
    for seed, instance in enumerate(auctions_of_all_forms()):
        tables = Tables.build(instance)
        allocator, rng = Allocator(tables), np.random.default_rng(seed)
        rows = [np.append(np.arange(*tables.offset[i : i + 2]), -1) for i in range(tables.num_apps)]
        wanted = np.array([rng.choice(own) for own in rows])
        full = allocator.filled(allocator.empty())
        repaired = allocator.repaired(wanted, absent=1)
        found += [full, repaired, full.placement, allocator.filled(repaired, absent=1)]
        found += [allocator.without(full, app) for app in range(tables.num_apps)]
        for moves in (1, 3, 20):
            found += [allocator.improved(full, seed=seed, moves=moves, absent=absent) for absent in (-1, 0)]
        found.append(allocator.from_placement(tables.chosen_rows(full.choice), full.placement))
    return found


RUNS = {
    "greedy": lambda: [optim.solve(one, "greedy", options={"moves": 40}, seed=3) for one in auctions_of_all_forms()],
    "steps": steps,
}


@pytest.mark.parametrize("name", RUNS)
def test_does_what_the_golden_record_says(name):
    check("solvers/auction/allocation", name, RUNS[name])

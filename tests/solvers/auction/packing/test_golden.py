"""What packing bundles comes to, against a record: see `tests.support.golden`."""

import numpy as np
import pytest

import optim
from optim.models.auction.data import Locality
from optim.solvers.auction.packing import Packer, PlacementSearch, placing_order
from optim.solvers.auction.tables import Tables
from tests.support.auction.all_forms import auctions_of_all_forms
from tests.support.golden import check


def placed():
    """Place bundles drawn from the bids, at once and thoroughly."""
    found = []
    for seed, instance in enumerate(auctions_of_all_forms()):
        tables, rng = Tables.build(instance), np.random.default_rng(seed)
        packer = Packer(instance, seed)
        for _ in range(6):
            kept = [np.append(tables.row[slice(*tables.offset[i : i + 2])], -1) for i in range(tables.num_apps)]
            row = np.array([rng.choice(own) for own in kept])
            found += [packer.fits_first(row[row >= 0]), packer.place(row), packer.place(row, is_thorough=True)]
            found.append(packer.search(row))
    return found


def rooms():
    """Look for room for drawn items among all placements."""
    found = []
    for seed, instance in enumerate(auctions_of_all_forms()):
        room, rng = PlacementSearch(instance), np.random.default_rng(seed)
        named = range(instance.cluster.num_machines)
        for number in (1, 2, 3, 4, 5):
            levels = rng.choice([0, 1, 2, 3], number).tolist()
            items = [(level, int(rng.integers(1, 5)), -1) for level in levels]
            if number == 3:
                items.append((int(Locality.NAMED), 1, int(rng.choice(named))))
            found += [room.fits(tuple(sorted(items))), room.places(tuple(sorted(items)))]
            found.append(placing_order(tuple(sorted(items))))
    return found


RUNS = {
    "exact": lambda: [optim.solve(one, "exact") for one in auctions_of_all_forms()],
    "greedy": lambda: [optim.solve(one, "greedy", seed=2) for one in auctions_of_all_forms()],
    "placed": placed,
    "rooms": rooms,
}


@pytest.mark.parametrize("name", RUNS)
def test_does_what_the_golden_record_says(name):
    check("solvers/auction/packing", name, RUNS[name])

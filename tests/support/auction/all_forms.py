"""Auctions of every form: racks of machines of slots, bids at every locality, gangs, named machines."""

import numpy as np

from optim.models.auction.instance import AuctionInstance
from tests.support.auction.builders import auction, fractional

LOCALITIES = ("slot", "machine", "rack", "cluster")


def drawn(seed: int, *, apps: int = 6) -> AuctionInstance:
    """Return a small auction by a seed: racks of machines of slots, bids at every locality, some for named machines."""
    rng = np.random.default_rng(seed)
    racks = np.sort(rng.integers(0, 2, int(rng.integers(2, 6))))
    racks -= racks[0]
    machines = [(int(rack), rng.integers(0, 5, int(rng.integers(1, 3))).tolist()) for rack in racks]
    gangs = rng.choice([1, 1, 2], apps).tolist()
    bids = []
    for gang in gangs:
        rows = [
            (gang * int(rng.integers(1, 7 // gang)), str(rng.choice(LOCALITIES)), int(rng.integers(9, 64)) / 8)
            for _ in range(int(rng.integers(1, 5)))
        ]
        if seed % 3 == 0 and gang == 1 and rng.random() < 0.7:
            rows.append(({int(m): int(rng.integers(1, 3)) for m in range(int(rng.integers(1, 3)))}, 5.5))
        bids.append(rows)
    return auction(machines, *bids, gangs=gangs, name=f"drawn-{seed}")


def auctions_of_all_forms() -> list[AuctionInstance]:
    """Return auctions of all forms."""
    return [fractional(), *(drawn(seed) for seed in range(9))]

"""Ground truth by enumeration: every choice of bids, every way to place it. Slow and plain; reads raw fields only."""

import math
from itertools import product

import numpy as np

from optim.models.auction.data import Locality
from optim.models.auction.instance import AuctionInstance


def placements(instance: AuctionInstance, row: int, free: list[int]) -> list[dict[int, int]]:
    """Return every way to place one row on free slots, as GPUs by slot."""
    cluster, bids = instance.cluster, instance.bids
    machine = cluster.slot_machine.tolist()
    rack = [int(cluster.machine_rack[m]) for m in machine]
    size, level = int(bids.gpus[row]), Locality(int(bids.locality[row]))
    found = []
    for counts in product(*[range(min(size, f) + 1) for f in free]):
        if sum(counts) != size:
            continue
        slots = [s for s, count in enumerate(counts) if count]
        groups = {
            Locality.SLOT: {*slots},
            Locality.MACHINE: {machine[s] for s in slots},
            Locality.RACK: {rack[s] for s in slots},
        }.get(level, {0})
        if level is Locality.NAMED:
            named = {
                int(m): int(g)
                for b, m, g in zip(bids.named_row, bids.named_machine, bids.named_gpus, strict=True)
                if b == row
            }
            held: dict[int, int] = {}
            for s in slots:
                held[machine[s]] = held.get(machine[s], 0) + counts[s]
            if held != named:
                continue
        if len(groups) == 1:
            found.append({s: counts[s] for s in slots})
    return found


def can_place(instance: AuctionInstance, rows: list[int], free: list[int]) -> bool:
    """Return whether rows can be placed together, by enumeration."""
    if not rows:
        return True
    for placed in placements(instance, rows[0], free):
        left = [f - placed.get(s, 0) for s, f in enumerate(free)]
        if can_place(instance, rows[1:], left):
            return True
    return False


def values(instance: AuctionInstance) -> list[float]:
    """Return log welfare of each row above the empty one, positive convention."""
    empty = instance.apps.empty_rho
    return [math.log(empty[a] / r) for a, r in zip(instance.bids.app.tolist(), instance.bids.rho.tolist(), strict=True)]


def optimum(instance: AuctionInstance, absent: int | None = None, worth: list[float] | None = None) -> float:
    """Return the largest log welfare of all apps, or of all but one."""
    worth = values(instance) if worth is None else worth
    options = [
        [-1, *np.flatnonzero(instance.bids.app == i).tolist()] if i != absent else [-1]
        for i in range(instance.num_apps)
    ]
    free = instance.cluster.slot_free.tolist()
    choices = sorted(product(*options), key=lambda rows: -sum(worth[b] for b in rows if b >= 0))
    for rows in choices:
        chosen = [b for b in rows if b >= 0]
        if sum(int(instance.bids.gpus[b]) for b in chosen) <= sum(free) and can_place(instance, chosen, free):
            return sum(worth[b] for b in chosen)
    raise AssertionError("the empty choice can always be placed")

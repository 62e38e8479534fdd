"""Find room for bundles by largest-first best fit; a witness that it fits needs no placement of its own."""

import numpy as np

from optim.models.auction.check.facts import Facts
from optim.models.auction.instance import IntArray, Locality


def fits(facts: Facts, row: IntArray) -> bool:
    """Tell whether best fit finds room for the rows; if not, there may still be some.

    Room is counted on slots, machines, racks and in all; a bundle takes room on its own level and above.
    Bundles that may spread within a rack come first, into the fullest rack that holds them, then those of one
    slot or one machine, largest first, into the fullest that holds them, then those that may spread anywhere.
    """
    if (facts.instance.bids.locality[row[row >= 0]] == Locality.NAMED).any():
        return _named_fits(facts, row)
    bids = facts.instance.bids
    rows = row[row >= 0]
    items = list(zip(bids.locality[rows].tolist(), bids.gpus[rows].tolist(), strict=True))
    slot = facts.slot_free.copy()
    machine = np.bincount(facts.slot_machine, slot).astype(np.int64)
    machine_rack = facts.instance.cluster.machine_rack
    rack = np.bincount(machine_rack, machine).astype(np.int64)
    if sum(size for _, size in items) > facts.num_free:
        return False
    for _, size in sorted((item for item in items if item[0] == Locality.RACK), key=lambda item: -item[1]):
        r = _fullest(np.where(rack >= size, rack, -1))
        if r < 0:
            return False
        rack[r] -= size
    inner = [item for item in items if item[0] in (Locality.SLOT, Locality.MACHINE)]
    slot_room = np.empty_like(slot)
    for level, size in sorted(inner, key=lambda item: (-item[1], item[0])):
        machine_room = np.minimum(machine, rack[machine_rack])
        if level == Locality.SLOT:
            np.minimum(slot, machine_room[facts.slot_machine], out=slot_room)
            s = _fullest(np.where(slot_room >= size, machine[facts.slot_machine] * 1000 + slot, -1))
            if s < 0:
                return False
            slot[s] -= size
            m = int(facts.slot_machine[s])
        else:
            m = _fullest(np.where(machine_room >= size, machine, -1))
            if m < 0:
                return False
        machine[m] -= size
        rack[machine_rack[m]] -= size
    return True


def _fullest(room: IntArray) -> int:
    """Return the first place with the least room that isn't marked by -1, -1 if all are."""
    possible = np.flatnonzero(room >= 0)
    return int(possible[np.argmin(room[possible])]) if len(possible) else -1


def _named_fits(facts: Facts, row: IntArray) -> bool:
    """Rows that all name their machines fit where no machine is asked for too much; others aren't tried."""
    bids = facts.instance.bids
    rows = row[row >= 0]
    if (bids.locality[rows] != Locality.NAMED).any():
        return False
    entries = np.isin(bids.named_row, rows)
    free = np.bincount(facts.slot_machine, facts.slot_free).astype(np.int64)
    used = np.bincount(bids.named_machine[entries], bids.named_gpus[entries], len(free))
    return bool((used <= free).all())

"""Check bundles against the cluster: placements match their rows, no GPU is used twice, and bundles fit together."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from optim.core.arrays import IntArray
from optim.core.solution import Violation, violation
from optim.models.auction.check.exact_instance import ExactInstance
from optim.models.auction.data import Locality


def fits(facts: ExactInstance, row: IntArray) -> bool:
    """Return whether best fit places the rows; False does not prove that they cannot fit.

    Free GPUs are counted per slot, machine and rack; a bundle reduces the counts of its level and above. Bundles
    within a rack are placed first, each in the fullest rack that can host it. Then bundles of one slot or one
    machine follow, largest first, each in the fullest slot or machine that can host it. Bundles that may spread over
    racks only need enough free GPUs in total.
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
    slot_capacity = np.empty_like(slot)
    for level, size in sorted(inner, key=lambda item: (-item[1], item[0])):
        machine_capacity = np.minimum(machine, rack[machine_rack])
        if level == Locality.SLOT:
            np.minimum(slot, machine_capacity[facts.slot_machine], out=slot_capacity)
            s = _fullest(np.where(slot_capacity >= size, machine[facts.slot_machine] * 1000 + slot, -1))
            if s < 0:
                return False
            slot[s] -= size
            m = int(facts.slot_machine[s])
        else:
            m = _fullest(np.where(machine_capacity >= size, machine, -1))
            if m < 0:
                return False
        machine[m] -= size
        rack[machine_rack[m]] -= size
    return True


def _fullest(free: IntArray) -> int:
    """Return the first index of the smallest number of free GPUs, ignoring entries of -1; -1 if all entries are -1."""
    possible = np.flatnonzero(free >= 0)
    return int(possible[np.argmin(free[possible])]) if len(possible) else -1


def _named_fits(facts: ExactInstance, row: IntArray) -> bool:
    """Return whether rows that all name their machines fit; False if a row names none."""
    bids = facts.instance.bids
    rows = row[row >= 0]
    if (bids.locality[rows] != Locality.NAMED).any():
        return False
    entries = np.isin(bids.named_row, rows)
    free = np.bincount(facts.slot_machine, facts.slot_free).astype(np.int64)
    used = np.bincount(bids.named_machine[entries], bids.named_gpus[entries], len(free))
    return bool((used <= free).all())


MAX_STATES = 100_000
"""Maximum number of states in memory; a claim that needs more is rejected."""

Machine = tuple[int, int, tuple[int, ...]]
"""Machine number if rows name it (else -1), free GPUs, free GPUs of each slot."""

Rack = tuple[int, tuple[Machine, ...]]
"""Free GPUs, and the machines of the rack."""

State = tuple[Rack, ...]


def is_unpackable(facts: ExactInstance, items: Sequence[tuple[int, int, int]]) -> bool:
    """Return whether items (locality, size, machine or -1) provably do not fit together.

    Items are placed one after the other, the largest first, in all distinct ways. Equal slots, machines and racks,
    and states equal up to order, count once. If no state remains, the items do not fit. Items that may spread over
    the cluster are ignored: they constrain only the number of GPUs, which the prices of a proof cover.
    """
    named = {machine for level, _, machine in items if level == Locality.NAMED}
    states = {_start(facts, named)}
    inner = [item for item in items if item[0] != Locality.CLUSTER]
    for level, size, machine in sorted(inner, key=lambda item: (-item[1], item)):
        states = {after for state in states for after in _placed(state, level, size, machine)}
        if len(states) > MAX_STATES:
            return False
        if not states:
            return True
    return False


def _start(facts: ExactInstance, named: set[int]) -> State:
    slots: dict[int, list[int]] = {}
    for machine, free in zip(facts.slot_machine.tolist(), facts.slot_free.tolist(), strict=True):
        slots.setdefault(machine, []).append(free)
    racks: dict[int, list[Machine]] = {}
    for machine, free_slots in slots.items():
        entry = (machine if machine in named else -1, sum(free_slots), tuple(sorted(free_slots)))
        racks.setdefault(int(facts.instance.cluster.machine_rack[machine]), []).append(entry)
    return tuple(sorted((sum(m[1] for m in machines), tuple(sorted(machines))) for machines in racks.values()))


def _placed(state: State, level: int, size: int, machine: int) -> set[State]:
    """Return the states after one more item, over all distinct placements."""
    states = set()
    for r in range(len(state)):
        if r and state[r] == state[r - 1]:
            continue
        rack_free, machines = state[r]
        if rack_free < size:
            continue
        rest = state[:r] + state[r + 1 :]
        if level == Locality.RACK:
            states.add(tuple(sorted((*rest, (rack_free - size, machines)))))
            continue
        for m, (name, free, slots) in enumerate(machines):
            if (m and machines[m] == machines[m - 1]) or free < size or (level == Locality.NAMED and name != machine):
                continue
            others = machines[:m] + machines[m + 1 :]
            for smaller in _slots_after(slots, size) if level == Locality.SLOT else [slots]:
                machine_state = tuple(sorted((*others, (name, free - size, smaller))))
                states.add(tuple(sorted((*rest, (rack_free - size, machine_state)))))
    return states


def _slots_after(slots: tuple[int, ...], size: int) -> set[tuple[int, ...]]:
    return {
        tuple(sorted((*slots[:s], slots[s] - size, *slots[s + 1 :]))) for s in range(len(slots)) if slots[s] >= size
    }


BID = "one bid"

BUNDLE = "bundle"

CAPACITY = "capacity"

ENTRIES = "entries"


def check_rows(facts: ExactInstance, row: IntArray) -> list[Violation]:
    """Check that every app is awarded one of its bids, or none."""
    if row.shape != (facts.num_apps,):
        return [violation(BID, f"there must be one row per app, got shape {row.shape}")]
    violations = []
    for i, b in enumerate(row.tolist()):
        if b != -1 and not facts.first[i] <= b < facts.first[i + 1]:
            violations.append(violation(BID, f"row {b} is not a bid of the app", where=f"app {facts.app_name(i)}"))
    return violations


def check_entries(facts: ExactInstance, entries: IntArray, name: str) -> list[Violation]:
    """Check that (app, slot, count) entries are valid, and use at most the free GPUs of each slot."""
    if entries.ndim != 2 or entries.shape[1] != 3:
        return [violation(ENTRIES, f"{name} must have rows of app, slot and count, got shape {entries.shape}")]
    if not len(entries):
        return []
    app, slot, count = entries.T
    if (
        app.min() < 0
        or app.max() >= facts.num_apps
        or slot.min() < 0
        or slot.max() >= len(facts.slot_free)
        or count.min() < 1
    ):
        return [violation(ENTRIES, f"{name} has an app or a slot outside the instance, or a count below 1")]
    if len(np.unique(entries[:, :2], axis=0)) < len(entries):
        return [violation(ENTRIES, f"{name} lists an app twice on one slot")]
    used = np.bincount(slot, count, len(facts.slot_free)).astype(np.int64)
    over = np.flatnonzero(used > facts.slot_free)
    return [
        violation(
            CAPACITY,
            f"{used[s]} GPUs are used, {facts.slot_free[s]} are free ({name})",
            amount=str(used[s] - facts.slot_free[s]),
            where=f"slot {s}, machine {facts.slot_machine[s]}",
        )
        for s in over.tolist()
    ]


def check_bundles(facts: ExactInstance, row: IntArray, placement: IntArray) -> list[Violation]:
    """Check that each app's placement matches its awarded row."""
    placed: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for app, slot, count in placement.tolist():
        placed[app].append((slot, count))
    violations = []
    for i, b in enumerate(row.tolist()):
        reason = _mismatch(facts, b, placed.get(i, []))
        if reason:
            violations.append(violation(BUNDLE, reason, where=f"app {facts.app_name(i)}"))
    return violations


def _mismatch(facts: ExactInstance, row: int, entries: list[tuple[int, int]]) -> str:
    """Return how a placement differs from its row; an empty string if it matches."""
    if row < 0:
        return "the app is awarded no GPUs (the empty row), but GPUs are placed for it" if entries else ""
    bids = facts.instance.bids
    total, asked, level = sum(count for _, count in entries), int(bids.gpus[row]), int(bids.locality[row])
    if total != asked:
        return f"row {row} asks for {asked} GPUs, but {total} are placed"
    slots = {slot for slot, _ in entries}
    if level == Locality.NAMED:
        by_machine: dict[int, int] = defaultdict(int)
        for slot, count in entries:
            by_machine[int(facts.slot_machine[slot])] += count
        return (
            ""
            if dict(by_machine) == facts.named(row)
            else f"GPUs are placed on machines {dict(by_machine)}, but row {row} names others"
        )
    groups = {
        Locality.SLOT: slots,
        Locality.MACHINE: {int(facts.slot_machine[s]) for s in slots},
        Locality.RACK: {int(facts.slot_rack[s]) for s in slots},
    }.get(Locality(level), set())
    if len(groups) > 1:
        return (
            f"row {row} asks for one {Locality(level).name.lower()}, but its GPUs lie in {len(groups)} different ones"
        )
    return ""

"""Bundles against the cluster: every awarded bid is placed as it asks, and no GPU is given twice."""

from collections import defaultdict

import numpy as np

from optim.core.verification import Violation, violation
from optim.models.auction.check.facts import Facts
from optim.models.auction.instance import IntArray, Locality

BID = "one bid"
BUNDLE = "bundle"
CAPACITY = "capacity"
ENTRIES = "entries"


def check_rows(facts: Facts, row: IntArray) -> list[Violation]:
    """Check that every app is awarded one of its own bids, or none."""
    if row.shape != (facts.num_apps,):
        return [violation(BID, f"there must be one row an app, got shape {row.shape}")]
    found = []
    for i, b in enumerate(row.tolist()):
        if b != -1 and not facts.first[i] <= b < facts.first[i + 1]:
            found.append(violation(BID, f"row {b} is none of the app's bids", where=f"app {facts.app_name(i)}"))
    return found


def check_entries(facts: Facts, entries: IntArray, name: str) -> list[Violation]:
    """Check that (app, slot, count) entries make sense, and that no slot gives more than it offers."""
    if entries.ndim != 2 or entries.shape[1] != 3:
        return [violation(ENTRIES, f"{name} must be (app, slot, count) entries, got shape {entries.shape}")]
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
        return [violation(ENTRIES, f"{name} names an app or a slot that isn't there, or a count below 1")]
    if len(np.unique(entries[:, :2], axis=0)) < len(entries):
        return [violation(ENTRIES, f"{name} lists an app twice on one slot")]
    used = np.bincount(slot, count, len(facts.slot_free)).astype(np.int64)
    over = np.flatnonzero(used > facts.slot_free)
    return [
        violation(
            CAPACITY,
            f"{used[s]} GPUs are given, {facts.slot_free[s]} are on offer ({name})",
            amount=str(used[s] - facts.slot_free[s]),
            where=f"slot {s}, machine {facts.slot_machine[s]}",
        )
        for s in over.tolist()
    ]


def check_bundles(facts: Facts, row: IntArray, placement: IntArray) -> list[Violation]:
    """Check that each app's placement is what its awarded row asks for."""
    held: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for app, slot, count in placement.tolist():
        held[app].append((slot, count))
    found = []
    for i, b in enumerate(row.tolist()):
        reason = _mismatch(facts, b, held.get(i, []))
        if reason:
            found.append(violation(BUNDLE, reason, where=f"app {facts.app_name(i)}"))
    return found


def _mismatch(facts: Facts, row: int, entries: list[tuple[int, int]]) -> str:
    """Say how a placement differs from what the row asks for; empty if it doesn't."""
    if row < 0:
        return "it holds the empty row, but GPUs are placed" if entries else ""
    bids = facts.instance.bids
    total, asked, level = sum(count for _, count in entries), int(bids.gpus[row]), int(bids.locality[row])
    if total != asked:
        return f"row {row} asks for {asked} GPUs, {total} are placed"
    slots = {slot for slot, _ in entries}
    if level == Locality.NAMED:
        by_machine: dict[int, int] = defaultdict(int)
        for slot, count in entries:
            by_machine[int(facts.slot_machine[slot])] += count
        return "" if dict(by_machine) == facts.named(row) else f"row {row} names other machines than {dict(by_machine)}"
    groups = {
        Locality.SLOT: slots,
        Locality.MACHINE: {int(facts.slot_machine[s]) for s in slots},
        Locality.RACK: {int(facts.slot_rack[s]) for s in slots},
    }.get(Locality(level), set())
    if len(groups) > 1:
        return f"row {row} asks for one {Locality(level).name.lower()}, but the GPUs lie in {len(groups)}"
    return ""

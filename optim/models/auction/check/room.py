"""Show that bundles find no room together, by going through all ways to place them."""

from collections.abc import Sequence

from optim.models.auction.check.facts import Facts
from optim.models.auction.instance import Locality

MOST_STATES = 100_000
"""States kept at once; a claim that needs more is not accepted."""

Machine = tuple[int, int, tuple[int, ...]]
"""Number if rows name it (-1 otherwise), GPUs left, GPUs left on each slot."""

Rack = tuple[int, tuple[Machine, ...]]
"""GPUs left, and its machines."""

State = tuple[Rack, ...]


def has_no_room(facts: Facts, items: Sequence[tuple[int, int, int]]) -> bool:
    """Tell whether it is certain that items (locality, size, machine or -1) don't fit together.

    Items are placed one after the other, the largest first, in all ways that differ; equal places, and states
    that differ by an order only, count once. If at some point no state is left, there is no room. Items that may
    spread anywhere are left out: they need GPUs alone, which prices count.
    """
    named = {machine for level, _, machine in items if level == Locality.NAMED}
    states = {_start(facts, named)}
    inner = [item for item in items if item[0] != Locality.CLUSTER]
    for level, size, machine in sorted(inner, key=lambda item: (-item[1], item)):
        states = {after for state in states for after in _placed(state, level, size, machine)}
        if len(states) > MOST_STATES:
            return False
        if not states:
            return True
    return False


def _start(facts: Facts, named: set[int]) -> State:
    slots: dict[int, list[int]] = {}
    for machine, free in zip(facts.slot_machine.tolist(), facts.slot_free.tolist(), strict=True):
        slots.setdefault(machine, []).append(free)
    racks: dict[int, list[Machine]] = {}
    for machine, free_slots in slots.items():
        entry = (machine if machine in named else -1, sum(free_slots), tuple(sorted(free_slots)))
        racks.setdefault(int(facts.instance.cluster.machine_rack[machine]), []).append(entry)
    return tuple(sorted((sum(m[1] for m in machines), tuple(sorted(machines))) for machines in racks.values()))


def _placed(state: State, level: int, size: int, machine: int) -> set[State]:
    """Return the states after one more item, placed in each way that differs."""
    found = set()
    for r in range(len(state)):
        if r and state[r] == state[r - 1]:
            continue
        left, machines = state[r]
        if left < size:
            continue
        rest = state[:r] + state[r + 1 :]
        if level == Locality.RACK:
            found.add(tuple(sorted((*rest, (left - size, machines)))))
            continue
        for m, (name, free, slots) in enumerate(machines):
            if (m and machines[m] == machines[m - 1]) or free < size or (level == Locality.NAMED and name != machine):
                continue
            others = machines[:m] + machines[m + 1 :]
            for smaller in _slots_after(slots, size) if level == Locality.SLOT else [slots]:
                held = tuple(sorted((*others, (name, free - size, smaller))))
                found.add(tuple(sorted((*rest, (left - size, held)))))
    return found


def _slots_after(slots: tuple[int, ...], size: int) -> set[tuple[int, ...]]:
    return {
        tuple(sorted((*slots[:s], slots[s] - size, *slots[s + 1 :]))) for s in range(len(slots)) if slots[s] >= size
    }

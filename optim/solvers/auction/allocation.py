"""Allocations on concrete GPUs, compiled: greedy upgrades, ruin and re-create, repair of a choice.

`allocated[i, s]` is app i's number of GPUs on slot s; `choice[i]` is its table row, -1 for none. `named`
is (offset, machine, GPUs): the machines that table row b names, and the GPUs on each, have indices offset[b] to
offset[b + 1] - 1.
"""

from dataclasses import dataclass, replace

import numpy as np

from optim.compiled import compiled, copy_first, largest, total
from optim.core.arrays import IntArray
from optim.models.auction.decision import sorted_entries
from optim.solvers.auction.packing import below
from optim.solvers.auction.tables import Tables

SLOT, MACHINE, RACK, CLUSTER, NAMED = range(5)

FAR = 1 << 60

NONE = np.int64(-1)

YES, NO = np.bool_(True), np.bool_(False)
"""Typed constants: a literal as an argument would make the compiler compile a separate function."""

MIN_GAIN = 1e-12
"""Smaller gains of upgrades count as rounding."""


@compiled
def _take_from_machine(allocated, free, slot_machine, app, machine, count):
    """Take GPUs of one machine: from the fullest slot with enough free GPUs, otherwise from the emptiest slots first."""
    while count > 0:
        chosen, least = -1, FAR
        largest = -1
        for s in range(len(free)):
            if slot_machine[s] == machine and free[s] > 0:
                if free[s] >= count and free[s] < least:
                    chosen, least = s, free[s]
                if largest < 0 or free[s] > free[largest]:
                    largest = s
        if chosen < 0:
            chosen = largest
        num_taken = min(count, free[chosen])
        free[chosen] -= num_taken
        allocated[app, chosen] += num_taken
        count -= num_taken


@compiled
def _spread(allocated, free, slot_machine, machine_rack, machine_free, app, rack, count, is_whole):
    """Take GPUs from several machines of a rack, or of the cluster if `rack` is -1.

    With `is_whole`, take few machines: first those with the most free GPUs, if all of these are needed. Otherwise take
    the machines with the fewest free GPUs first.
    """
    while count > 0:
        chosen = NONE
        for m in range(len(machine_free)):
            if machine_free[m] <= 0 or (rack >= 0 and machine_rack[m] != rack):
                continue
            if chosen < 0:
                chosen = m
            elif is_whole:
                inside, best_inside = machine_free[m] <= count, machine_free[chosen] <= count
                if (inside and (not best_inside or machine_free[m] > machine_free[chosen])) or (
                    not inside and not best_inside and machine_free[m] < machine_free[chosen]
                ):
                    chosen = m
            elif machine_free[m] < machine_free[chosen]:
                chosen = m
        num_taken = min(count, machine_free[chosen])
        _take_from_machine(allocated, free, slot_machine, app, chosen, num_taken)
        machine_free[chosen] -= num_taken
        count -= num_taken


@compiled
def put(b, app, level, size, named, allocated, free, slot_machine, machine_rack):
    """Place row b for an app by best fit; return whether it fits."""
    named_offset, named_machine, named_gpus = named
    machine_free = np.zeros(len(machine_rack), dtype=np.int64)
    for s in range(len(free)):
        machine_free[slot_machine[s]] += free[s]
    need, lv = size[b], level[b]
    if lv == NAMED:
        for e in range(named_offset[b], named_offset[b + 1]):
            if machine_free[named_machine[e]] < named_gpus[e]:
                return False
        for e in range(named_offset[b], named_offset[b + 1]):
            _take_from_machine(allocated, free, slot_machine, app, named_machine[e], named_gpus[e])
        return True
    chosen, least = NONE, FAR
    if lv == SLOT:
        for s in range(len(free)):
            key = machine_free[slot_machine[s]] * 1000 + free[s]
            if free[s] >= need and key < least:
                chosen, least = s, key
        if chosen < 0:
            return False
        free[chosen] -= need
        allocated[app, chosen] += need
    elif lv == MACHINE:
        for m in range(len(machine_free)):
            if need <= machine_free[m] < least:
                chosen, least = m, machine_free[m]
        if chosen < 0:
            return False
        _take_from_machine(allocated, free, slot_machine, app, chosen, need)
    elif lv == RACK:
        by_rack = np.zeros(largest(machine_rack) + 1, dtype=np.int64)
        for m in range(len(machine_free)):
            by_rack[machine_rack[m]] += machine_free[m]
        for r in range(len(by_rack)):
            if need <= by_rack[r] < least:
                chosen, least = r, by_rack[r]
        if chosen < 0:
            return False
        _spread(allocated, free, slot_machine, machine_rack, machine_free, app, chosen, need, YES)
    else:
        if total(machine_free) < need:
            return False
        _spread(allocated, free, slot_machine, machine_rack, machine_free, app, NONE, need, NO)
    return True


@compiled
def take_back(app, allocated, free):
    """Free all GPUs of an app."""
    for s in range(len(free)):
        free[s] += allocated[app, s]
        allocated[app, s] = 0


@compiled
def _best_upgrade(i, offset, size, weight, now, num_free, is_out):
    """Return the app's row with the largest gain of log welfare per GPU, and this rate; -1 if none is possible."""
    best, best_rate = NONE, 0.0
    had, current_size = (weight[now], size[now]) if now >= 0 else (0.0, 0)
    for b in range(offset[i], offset[i + 1]):
        gain, more = weight[b] - had, size[b] - current_size
        if is_out[b] or gain <= MIN_GAIN or more > num_free:
            continue
        rate = gain / more if more > 0 else 1e9 + gain
        if rate > best_rate:
            best, best_rate = b, rate
    return best, best_rate


@compiled
def fill_up(offset, level, size, weight, named, choice, allocated, free, slot_machine, machine_rack, absent):
    """Upgrade apps while rows fit, in order of the largest gain of log welfare per GPU (ties: the first row)."""
    num_apps = len(choice)
    is_out = np.zeros(len(size), dtype=np.bool_)
    num_free = total(free)
    wanted, rate = np.zeros(num_apps, dtype=np.int64), np.zeros(num_apps)
    for i in range(num_apps):
        if i != absent:
            wanted[i], rate[i] = _best_upgrade(i, offset, size, weight, choice[i], num_free, is_out)
    before = np.empty(len(free), dtype=np.int64)
    while True:
        i, best_rate = NONE, 0.0
        for j in range(num_apps):
            if rate[j] > best_rate:
                i, best_rate = j, rate[j]
        if i < 0:
            return
        best, now = wanted[i], choice[i]
        had = size[now] if now >= 0 else 0
        if size[best] - had <= num_free:
            copy_first(len(before), allocated[i], before)
            take_back(i, allocated, free)
            if put(best, i, level, size, named, allocated, free, slot_machine, machine_rack):
                num_free -= size[best] - had
                choice[i] = best
            else:
                # The app's larger bundles of no wider locality don't fit either: free capacity only shrinks.
                for b in range(offset[i], offset[i + 1]):
                    if b == best or (size[b] >= size[best] and level[b] <= level[best] and level[best] != NAMED):
                        is_out[b] = True
                for s in range(len(free)):
                    allocated[i, s] = before[s]
                    free[s] -= before[s]
        wanted[i], rate[i] = _best_upgrade(i, offset, size, weight, choice[i], num_free, is_out)


@compiled
def welfare(choice, weight):
    """Return the log welfare of a choice."""
    result = 0.0
    for i in range(len(choice)):
        if choice[i] >= 0:
            result += weight[choice[i]]
    return result


@compiled
def exchange(
    offset, level, size, weight, named, choice, allocated, free, slot_machine, machine_rack, absent, seed, moves
):
    """Free the bundles of up to four apps, give a random app a random row, then fill up; keep improvements.

    Returns the number of moves that improved the welfare.
    """
    random = np.array([seed], dtype=np.uint64)
    num_apps = len(choice)
    improved = 0
    best = welfare(choice, weight)
    if num_apps == 0:
        return 0
    for _ in range(moves):
        trial, trial_allocated, trial_free = choice.copy(), allocated.copy(), free.copy()
        for _ in range(2 + below(random, 3)):
            j = below(random, num_apps)
            if trial[j] >= 0:
                take_back(j, trial_allocated, trial_free)
                trial[j] = -1
        i = below(random, num_apps)
        if i != absent and offset[i + 1] > offset[i]:
            b = offset[i] + below(random, offset[i + 1] - offset[i])
            take_back(i, trial_allocated, trial_free)
            trial[i] = -1
            if put(b, i, level, size, named, trial_allocated, trial_free, slot_machine, machine_rack):
                trial[i] = b
        fill_up(
            offset, level, size, weight, named, trial, trial_allocated, trial_free, slot_machine, machine_rack, absent
        )
        value = welfare(trial, weight)
        if value > best + MIN_GAIN:
            best = value
            improved += 1
            copy_first(num_apps, trial, choice)
            copy_first(len(free), trial_free, free)
            for j in range(num_apps):
                copy_first(len(free), trial_allocated[j], allocated[j])
    return improved


@compiled
def insert(order, wanted, level, size, named, choice, allocated, free, slot_machine, machine_rack):
    """Place the wanted rows in order, without the rows that don't fit; return the number of placed rows."""
    placed = 0
    for i in order:
        b = wanted[i]
        if b >= 0 and put(b, i, level, size, named, allocated, free, slot_machine, machine_rack):
            choice[i] = b
            placed += 1
    return placed


NO_APP = -1


@dataclass(frozen=True, kw_only=True, eq=False)
class Allocation:
    """Table row of each app, and its placement.

    Parameters
    ----------
    choice
        Shape (apps,): table row of each app, -1 for none.
    allocated
        Shape (apps, slots): GPUs of each app on each slot.
    free
        Shape (slots,): free GPUs.
    """

    choice: IntArray
    allocated: IntArray
    free: IntArray

    @property
    def placement(self) -> IntArray:
        """The allocated GPUs as (app, slot, count) entries."""
        app, slot = np.divmod(np.flatnonzero(self.allocated), self.allocated.shape[1])
        return sorted_entries(np.column_stack([app, slot, self.allocated[app, slot]]))


class Allocator:
    """Builds allocations for one auction."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        cluster = tables.instance.cluster
        self._tree = (cluster.slot_machine, cluster.machine_rack)
        self._rows = (tables.offset, tables.level, tables.size, tables.weight, _named_entries(tables))

    def empty(self) -> Allocation:
        """Return the empty allocation."""
        cluster = self._tables.instance.cluster
        n = self._tables.num_apps
        return Allocation(
            choice=np.full(n, -1, dtype=np.int64),
            allocated=np.zeros((n, len(cluster.slot_free)), dtype=np.int64),
            free=cluster.slot_free.copy(),
        )

    def from_placement(self, row: IntArray, placement: IntArray) -> Allocation:
        """Return the allocation of instance rows with a known placement."""
        allocation = self.empty()
        allocation.choice[:] = np.where(row >= 0, np.searchsorted(self._tables.row, row), NO_APP)
        np.add.at(allocation.allocated, (placement[:, 0], placement[:, 1]), placement[:, 2])
        np.subtract.at(allocation.free, placement[:, 1], placement[:, 2])
        return allocation

    def repaired(self, wanted: IntArray, absent: int = NO_APP) -> Allocation:
        """Return an allocation near a choice of table rows; rows that don't fit are replaced by rows that do."""
        allocation = self.empty()
        size = np.append(self._tables.size, 0)[wanted]
        order = np.lexsort((np.arange(len(wanted)), -size))
        parts = (allocation.choice, allocation.allocated, allocation.free)
        _, level, row_size, _, named = self._rows
        insert(order, wanted, level, row_size, named, *parts, *self._tree)
        return self.filled(allocation, absent)

    def without(self, allocation: Allocation, app: int) -> Allocation:
        """Return the allocation after an app's bundle is freed and its GPUs are given to the other apps."""
        copy = _copy(allocation)
        take_back(app, copy.allocated, copy.free)
        copy.choice[app] = -1
        self._fill(copy, app)
        return copy

    def filled(self, allocation: Allocation, absent: int = NO_APP) -> Allocation:
        """Return the allocation with greedy upgrades until no row fits."""
        copy = _copy(allocation)
        self._fill(copy, absent)
        return copy

    def _fill(self, allocation: Allocation, absent: int) -> None:
        fill_up(*self._rows, allocation.choice, allocation.allocated, allocation.free, *self._tree, absent)

    def improved(self, allocation: Allocation, *, seed: int, moves: int, absent: int = NO_APP) -> Allocation:
        """Return the allocation after `moves` moves of exchange."""
        copy = _copy(allocation)
        exchange(*self._rows, copy.choice, copy.allocated, copy.free, *self._tree, absent, seed % 2**31, moves)
        return copy


def _copy(allocation: Allocation) -> Allocation:
    return replace(
        allocation, choice=allocation.choice.copy(), allocated=allocation.allocated.copy(), free=allocation.free.copy()
    )


def _named_entries(tables: Tables) -> tuple[IntArray, IntArray, IntArray]:
    """Return the machines that table rows name, as the arrays of `named`."""
    bids, first = tables.instance.bids, tables.instance.named_offset
    count = np.diff(first)[tables.row] if len(tables.row) else np.zeros(0, dtype=np.int64)
    offset = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
    picked = [np.arange(first[b], first[b + 1]) for b in tables.row[count > 0].tolist()]
    entries = np.concatenate(picked) if picked else np.zeros(0, dtype=np.int64)
    return offset, bids.named_machine[entries].astype(np.int64), bids.named_gpus[entries].astype(np.int64)

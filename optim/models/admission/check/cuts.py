"""Whether a server cut holds: its largest left-hand side over the integer packings of one server."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from optim.core.verification import Violation
from optim.models.admission.check import rows
from optim.models.admission.check.facts import Demand, Facts
from optim.models.admission.check.room import ps_beside_on_one, units_on_server
from optim.models.admission.check.rows import in_class, violation
from optim.models.admission.proof import ServerCut, Side

NODE_LIMIT = 200_000
"""Nodes of one search; a cut that needs more is refused as not shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One job in a cut: gains and demands of a worker and of a PS, and which counts one server holds.

    `most_ps` lists for 0, 1, ... workers the most PSs beside them on an empty server.
    """

    gains: tuple[int, int]
    demand: Demand
    most_ps: tuple[int, ...]


class CutCheck:
    """Check cuts, each distinct one once: trees repeat the same cuts at many leaves."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._known: dict[Any, str | None] = {}

    def violations(self, cut: Any, number: int, leaf: str) -> list[Violation]:
        """Return what is wrong with a cut, nothing if it is valid."""
        cause = self._malformed(cut)
        where = f"{number}{leaf}"
        if cause is None:
            where = f"{number}, {in_class(self._facts, cut.side, cut.server_class, cut.slot)}{leaf}"
            items = self._items(cut)
            room = self._facts.servers(cut.side).room(cut.server_class, cut.slot)
            right_hand_side = int(cut.right_hand_side)
            key = (items, room, right_hand_side)
            if key not in self._known:
                self._known[key] = why_invalid(items, room, right_hand_side)
            cause = self._known[key]
        return [] if cause is None else [violation(rows.CUT, cause, where=where)]

    def _malformed(self, cut: Any) -> str | None:
        if not isinstance(cut, ServerCut):
            return f"a cut must be a ServerCut, got {type(cut).__name__}"
        facts = self._facts
        if cut.side not in tuple(Side) or (facts.is_shared and cut.side is not Side.WORKER):
            return f"side {cut.side!r} isn't one of the instance's"
        num_classes = len(facts.servers(cut.side).count)
        if not (_is_index(cut.server_class, num_classes) and _is_index(cut.slot, facts.horizon)):
            return f"class {cut.server_class} or slot {cut.slot} is outside the instance"
        arrays = [np.asarray(a) for a in (cut.jobs, cut.worker_coefficient, cut.ps_coefficient)]
        if any(
            a.ndim != 1 or len(a) != len(arrays[0]) or (a.size and a.dtype.kind not in "iu") for a in arrays
        ):
            return "jobs and coefficients must be whole numbers, one each an item"
        jobs = arrays[0].tolist()
        if jobs != sorted(set(jobs)) or any(not 0 <= job < len(facts.jobs) for job in jobs):
            return "jobs must be different, ascending jobs of the instance"
        if any(bool((a < 0).any()) for a in arrays[1:]):
            return "coefficients must not be negative"
        other = arrays[2] if cut.side is Side.WORKER else arrays[1]
        if not facts.is_shared and other.any():
            return "coefficients of the other side's units must be 0 on separate servers"
        if not isinstance(cut.right_hand_side, int | np.integer) or cut.right_hand_side < 0:
            return f"the right-hand side must be a whole number >= 0, got {cut.right_hand_side}"
        if not (
            isinstance(cut.multiplier, float | int) and math.isfinite(cut.multiplier) and cut.multiplier >= 0
        ):
            return f"the multiplier must be a finite number >= 0, got {cut.multiplier}"
        return None

    def _items(self, cut: ServerCut) -> tuple[Item, ...]:
        """Return the jobs that can be there in the slot at all."""
        items = []
        room = self._facts.servers(cut.side).room(cut.server_class, cut.slot)
        columns = (np.asarray(a).tolist() for a in (cut.jobs, cut.worker_coefficient, cut.ps_coefficient))
        for index, worker_gain, ps_gain in zip(*columns, strict=True):
            job = self._facts.jobs[index]
            if not job.arrival <= cut.slot <= job.deadline or worker_gain + ps_gain == 0:
                continue
            demand = job.smallest_demand
            most = (job.most_workers, job.ps_needed(job.most_workers))
            if self._facts.is_shared:
                most_ps = _pairs(demand, room, self._facts.share, most)
            elif cut.side is Side.WORKER:
                most_ps = (0,) * (1 + units_on_server(demand.worker, room, self._facts.share, most[0]))
            else:
                most_ps = (units_on_server(demand.ps, room, self._facts.share, most[1]),)
            items.append(Item(gains=(worker_gain, ps_gain), demand=demand, most_ps=most_ps))
        return tuple(items)


def why_invalid(items: Sequence[Item], room: tuple[int, ...], right_hand_side: int) -> str | None:
    """Return why some packing may exceed the right-hand side, None if none does."""
    search = _Search(items, room)
    try:
        is_exceeded = search.can_reach(0, search.room, right_hand_side + 1)
    except _TooManyNodesError:
        return f"{NODE_LIMIT} nodes don't suffice to show that no packing exceeds {right_hand_side}"
    return f"a packing of one server exceeds the right-hand side {right_hand_side}" if is_exceeded else None


class _TooManyNodesError(Exception):
    """The search was given up."""


class _Search:
    """Depth-first search for a packing of one server with a large enough left-hand side."""

    def __init__(self, items: Sequence[Item], room: tuple[int, ...]) -> None:
        # Jobs that gain most a server come first, so that a packing is found early if there is one.
        self._items = sorted(items, key=_most_gain, reverse=True)
        self._most_after = [0] * (len(items) + 1)
        for index in range(len(items) - 1, -1, -1):
            self._most_after[index] = self._most_after[index + 1] + _most_gain(self._items[index])
        # A resource that all items together can't exhaust needs no account.
        binding = [r for r in range(len(room)) if sum(_most_use(item, r) for item in self._items) > room[r]]
        self.room = tuple(room[r] for r in binding)
        self._units = [
            (tuple(item.demand.worker[r] for r in binding), tuple(item.demand.ps[r] for r in binding))
            for item in self._items
        ]
        self._by_density = [self._order(r) for r in range(len(binding))]
        self._unreachable: dict[tuple[int, tuple[int, ...]], int] = {}
        self._nodes = 0

    def can_reach(self, index: int, rest: tuple[int, ...], need: int) -> bool:
        """Tell whether the items from `index` on gain at least `need` in the rest of the server."""
        if need <= 0:
            return True
        if self._most_after[index] < need or self._unreachable.get((index, rest), need + 1) <= need:
            return False
        if any(self._relaxed(index, r, rest[r]) < need for r in range(len(rest))):
            return False
        self._nodes += 1
        if self._nodes > NODE_LIMIT:
            raise _TooManyNodesError
        item, (worker, ps) = self._items[index], self._units[index]
        for y in range(len(item.most_ps) - 1, -1, -1):
            after_workers = tuple(a - y * b for a, b in zip(rest, worker, strict=True))
            if any(amount < 0 for amount in after_workers):
                continue
            for z in range(item.most_ps[y] if item.gains[1] else 0, -1, -1):
                left = tuple(a - z * b for a, b in zip(after_workers, ps, strict=True))
                if any(amount < 0 for amount in left):
                    continue
                if self.can_reach(index + 1, left, need - y * item.gains[0] - z * item.gains[1]):
                    return True
        known = self._unreachable.get((index, rest), need)
        self._unreachable[index, rest] = min(known, need)
        return False

    def _order(self, r: int) -> list[tuple[int, int, int, int]]:
        """Return (item, gain, demand, most) of every kind of unit by falling gain a unit of resource r."""
        kinds = []
        for index, item in enumerate(self._items):
            worker, ps = self._units[index]
            kinds.append((index, item.gains[0], worker[r], len(item.most_ps) - 1))
            kinds.append((index, item.gains[1], ps[r], max(item.most_ps)))
        kinds = [kind for kind in kinds if kind[1] > 0 and kind[3] > 0]
        return sorted(
            kinds, key=lambda kind: Fraction(kind[1], kind[2]) if kind[2] else math.inf, reverse=True
        )

    def _relaxed(self, index: int, r: int, rest: int) -> int:
        """Return the most that fractional units gain if only resource r binds, rounded down."""
        gain = 0
        for item, unit_gain, unit, most in self._by_density[r]:
            if item < index:
                continue
            if unit * most <= rest:
                gain += unit_gain * most
                rest -= unit * most
            else:
                return gain + unit_gain * rest // unit
        return gain


def _pairs(
    demand: Demand, room: tuple[int, ...], share: Fraction | None, most: tuple[int, int]
) -> tuple[int, ...]:
    """Return for 0, 1, ... workers the most PSs that one shared server holds beside them."""
    result = []
    for y in range(most[0] + 1):
        z = ps_beside_on_one(demand, room, share, y, most[1])
        if z < 0:
            break
        result.append(z)
    return tuple(result)


def _most_gain(item: Item) -> int:
    return item.gains[0] * (len(item.most_ps) - 1) + item.gains[1] * max(item.most_ps)


def _most_use(item: Item, r: int) -> int:
    return item.demand.worker[r] * (len(item.most_ps) - 1) + item.demand.ps[r] * max(item.most_ps)


def _is_index(value: Any, size: int) -> bool:
    return isinstance(value, int | np.integer) and 0 <= int(value) < size

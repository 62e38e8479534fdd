"""Whether server cuts and count cuts hold, over all integer packings.

The servers are looked at as one large one that holds the sum of their capacities. It holds whatever they do, so that a cut
that is shown for it is shown for them; a cut that holds for single servers only is refused. On shared servers a job's
workers and PSs are looked at as two that have nothing to do with each other, which holds whatever both may be.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.solution import Violation, violation
from optim.models.admission.check import placement
from optim.models.admission.check.exact_instance import (
    Demand,
    ExactInstance,
    ps_beside_on_one,
    smallest_demand,
    units_on_server,
)
from optim.models.admission.check.placement import in_class
from optim.models.admission.decision import CountCut, ServerCut, Side

STATE_LIMIT = 50_000
"""Partial packings kept at once in a search; a cut that needs more is refused as not shown."""

MAX_GAIN = 2**50
"""Largest left-hand side: sums of gains stay exact in 64 bits and in doubles."""

ROUNDING = 1e-9
"""Far more than the relative rounding error of the relaxations, which are raised by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One job in a cut: gains and demands of a worker and of a PS, and which counts one server holds.

    `most_ps` lists for 0, 1, ... workers the most PSs beside them on an empty server.
    """

    gains: tuple[int, int]
    demand: Demand
    most_ps: tuple[int, ...]

    @property
    def units(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Demands of a worker and of a PS."""
        return self.demand.worker, self.demand.ps


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Workers or PSs of one job in a cut: what 0, 1, ... gain, as many as the class holds, and what one uses."""

    gains: tuple[int, ...]
    unit: tuple[int, ...]


class CutCheck:
    """Check cuts of both forms, each distinct one once: trees repeat the same cuts at many leaves."""

    def __init__(self, exact: ExactInstance) -> None:
        self._exact = exact
        self._known: dict[Any, str | None] = {}

    def violations(
        self, cut: Any, number: int, leaf: str, form: type[ServerCut] | type[CountCut] = ServerCut
    ) -> list[Violation]:
        """Return what is wrong with a cut that should have a form, nothing if it is valid."""
        prefix = "count " if form is CountCut else ""
        cause = self._malformed(cut, form, f"a {prefix}cut")
        where = f"{prefix}{number}{leaf}"
        if cause is None:
            where = f"{prefix}{number}, {in_class(self._exact, cut.side, cut.server_class, cut.slot)}{leaf}"
            servers = self._exact.servers(cut.side)
            room = servers.room(cut.server_class, cut.slot)
            if form is CountCut:
                count = servers.count[cut.server_class]
                room = tuple(count * amount for amount in room)
            jobs = self._choices(cut) if form is CountCut else self._items(cut)
            key = (jobs, room, int(cut.right_hand_side))
            if key not in self._known:
                self._known[key] = find_violation(*key) if form is CountCut else why_invalid(*key)  # type: ignore[arg-type]
            cause = self._known[key]
        return [] if cause is None else [violation(placement.CUT, cause, where=where)]

    def _malformed(self, cut: Any, form: type[Any], what: str) -> str | None:
        if not isinstance(cut, form):
            return f"{what} must be a {form.__name__}, got {type(cut).__name__}"
        exact = self._exact
        if not isinstance(cut.side, Side) or (exact.is_shared and cut.side is not Side.WORKER):
            return f"side {cut.side!r} isn't one of the instance's"
        places = ((cut.server_class, len(exact.servers(cut.side).count)), (cut.slot, exact.horizon))
        if not all(isinstance(at, int | np.integer) and 0 <= at < size for at, size in places):
            return f"class {cut.server_class} or slot {cut.slot} is outside the instance"
        cause = self._malformed_gains(cut) if form is CountCut else self._malformed_coefficients(cut)
        if cause is not None:
            return cause
        if not isinstance(cut.right_hand_side, int | np.integer) or cut.right_hand_side < 0:
            return f"the right-hand side must be a whole number >= 0, got {cut.right_hand_side}"
        if not (isinstance(cut.multiplier, float | int) and math.isfinite(cut.multiplier) and cut.multiplier >= 0):
            return f"the multiplier must be a finite number >= 0, got {cut.multiplier}"
        return None

    def _are_jobs(self, jobs: IntArray) -> bool:
        """Tell whether numbers are different, ascending jobs of the instance."""
        numbers = jobs.tolist()
        return numbers == sorted(set(numbers)) and all(0 <= job < len(self._exact.jobs) for job in numbers)

    def _malformed_coefficients(self, cut: ServerCut) -> str | None:
        arrays = [np.asarray(a) for a in (cut.jobs, cut.worker_coefficient, cut.ps_coefficient)]
        if any(a.ndim != 1 or len(a) != len(arrays[0]) or (a.size and a.dtype.kind not in "iu") for a in arrays):
            return "jobs and coefficients must be whole numbers, one each an item"
        if not self._are_jobs(arrays[0]):
            return "jobs must be different, ascending jobs of the instance"
        if any(bool((a < 0).any()) for a in arrays[1:]):
            return "coefficients must not be negative"
        other = arrays[2] if cut.side is Side.WORKER else arrays[1]
        if not self._exact.is_shared and other.any():
            return "coefficients of the other side's units must be 0 on separate servers"
        return None

    def _malformed_gains(self, cut: CountCut) -> str | None:
        if (cut.ps_gain is not None) != self._exact.is_shared:
            return "PSs have gains beside the workers' where both share servers, and nowhere else"
        jobs, gains = np.asarray(cut.jobs), [np.asarray(gain) for _, gain in self._sides(cut)]
        if (
            jobs.ndim != 1
            or any(gain.ndim != 2 or len(gain) != len(jobs) for gain in gains)
            or any(a.size and a.dtype.kind != "i" for a in (jobs, *gains))
        ):
            return "jobs and gains must be whole numbers, one row of gains a job"
        if not self._are_jobs(jobs):
            return "jobs must be different, ascending jobs of the instance"
        if any(bool((gain < 0).any()) or bool((np.diff(gain, axis=1) < 0).any()) for gain in gains):
            return "gains must not be negative, and must not fall with the number of units"
        return None

    def _items(self, cut: ServerCut) -> tuple[Item, ...]:
        """Return the jobs that can be there in the slot at all."""
        items = []
        room = self._exact.servers(cut.side).room(cut.server_class, cut.slot)
        columns = (np.asarray(a).tolist() for a in (cut.jobs, cut.worker_coefficient, cut.ps_coefficient))
        for index, worker_gain, ps_gain in zip(*columns, strict=True):
            job = self._exact.jobs[index]
            if not job.arrival <= cut.slot <= job.deadline or worker_gain + ps_gain == 0:
                continue
            demand = smallest_demand(job.demands)
            most = (job.most_workers, job.ps_needed(job.most_workers))
            if self._exact.is_shared:
                most_ps = _pairs(demand, room, self._exact.share, most)
            elif cut.side is Side.WORKER:
                most_ps = (0,) * (1 + units_on_server(demand.worker, room, self._exact.share, most[0]))
            else:
                most_ps = (units_on_server(demand.ps, room, self._exact.share, most[1]),)
            items.append(Item(gains=(worker_gain, ps_gain), demand=demand, most_ps=most_ps))
        return tuple(items)

    def _sides(self, cut: CountCut) -> list[tuple[Side, IntArray]]:
        """Return whose units gain what."""
        own = [(cut.side, cut.gain)]
        return own if cut.ps_gain is None else [*own, (Side.PS, cut.ps_gain)]

    def _choices(self, cut: CountCut) -> tuple[Choice, ...]:
        """Return the jobs that can be there in the slot at all, each with as many units as the class holds of it."""
        exact, servers = self._exact, self._exact.servers(cut.side)
        room, count = servers.room(cut.server_class, cut.slot), servers.count[cut.server_class]
        found = []
        for side, gains in self._sides(cut):
            for index, gain in zip(np.asarray(cut.jobs).tolist(), np.asarray(gains).tolist(), strict=True):
                job = exact.jobs[index]
                if not job.arrival <= cut.slot <= job.deadline or not any(gain):
                    continue
                unit = smallest_demand(job.demands).of(side)
                most = job.most_workers if side is Side.WORKER else job.ps_needed(job.most_workers)
                units = min(most, count * units_on_server(unit, room, exact.share, most))
                found.append(Choice(gains=(0, *(gain[min(n, len(gain)) - 1] for n in range(1, units + 1))), unit=unit))
        return tuple(found)


def why_invalid(items: Sequence[Item], room: tuple[int, ...], right_hand_side: int) -> str | None:
    """Return why some packing may exceed the right-hand side, None if none does."""
    if sum(map(_max_gain, items)) > MAX_GAIN:
        return f"the left-hand side may exceed {MAX_GAIN}, too much to be checked; scale the cut down"
    search = _Search(items, room, right_hand_side + 1)
    while search.advance():
        if search.num_states > STATE_LIMIT:
            return f"{STATE_LIMIT} packings don't suffice to show that none exceeds {right_hand_side}"
    return f"a packing of one server exceeds the right-hand side {right_hand_side}" if search.is_reached else None


class _Search:
    """Search for a packing of one server that gains at least `need`: one job after the other, all packings at once.

    A packing is given up where even fractions of the jobs to come can't gain what it lacks. That relaxation
    looks at one resource at a time, and at their sum with the weights of the linear programme's dual:
    whatever the weights, it holds. Rooms and gains are exact; the relaxation is rounded outward.
    """

    def __init__(self, items: Sequence[Item], room: tuple[int, ...], need: int) -> None:
        # A resource that all items together can't exhaust needs no account.
        binding = [r for r in range(len(room)) if sum(_max_use(item, r) for item in items) > room[r]]
        kinds = _kinds(items, binding)
        capacity = np.array([room[r] for r in binding], dtype=np.float64)
        self._weights = np.vstack([np.eye(len(binding)), _dual_weights(kinds, capacity)])
        densities = {kind.item: 0.0 for kind in kinds}
        for kind in kinds:
            density = kind.gain / max(float(self._weights[-1] @ np.array(kind.unit)), 1e-300)
            densities[kind.item] = max(densities[kind.item], density)
        order = sorted(range(len(items)), key=lambda index: (-densities.get(index, 0.0), index))
        self._items = [items[index] for index in order]
        self._binding = binding
        self._relaxed = [_relaxations(kinds, set(order[at:]), self._weights) for at in range(len(order) + 1)]
        self._margin = ROUNDING * (1 + sum(map(_max_gain, items)))
        self._need = need
        self._next = 0
        self._rest = np.array([[room[r] for r in binding]], dtype=np.int64).reshape(1, len(binding))
        self._gain = np.zeros(1, dtype=np.int64)

    @property
    def num_states(self) -> int:
        """How many packings of the jobs so far are kept."""
        return len(self._gain)

    @property
    def is_reached(self) -> bool:
        """Whether a packing gains what is needed."""
        return bool((self._gain >= self._need).any())

    def advance(self) -> bool:
        """Add one job to every packing; return False at the end, or once the need is reached."""
        if self._next == len(self._items) or self.is_reached or not self.num_states:
            return False
        item = self._items[self._next]
        self._next += 1
        worker, ps = (np.array([unit[r] for r in self._binding], dtype=np.int64) for unit in item.units)
        rests, gains = [], []
        for y, most_ps in enumerate(item.most_ps):
            for z in range(most_ps + 1 if item.gains[1] else 1):
                rest = self._rest - (y * worker + z * ps)
                fits = (rest >= 0).all(axis=1)
                rests.append(rest[fits])
                gains.append(self._gain[fits] + (y * item.gains[0] + z * item.gains[1]))
        self._rest, self._gain = _without_repeats(np.concatenate(rests), np.concatenate(gains))
        self._prune()
        return True

    def _prune(self) -> None:
        """Give up the packings that can't gain what is needed."""
        most = self._gain.astype(np.float64)
        outlook = np.full(len(most), np.inf)
        sums = self._rest @ self._weights.T
        for column, (weight, gain) in enumerate(self._relaxed[self._next]):
            outlook = np.minimum(outlook, np.interp(sums[:, column] * (1 + ROUNDING), weight, gain))
        keeps = most + outlook + self._margin >= self._need
        self._rest, self._gain = self._rest[keeps], self._gain[keeps]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """A worker or a PS of a job: the item it belongs to, gain, binding demands, most on one server."""

    item: int
    gain: int
    unit: tuple[int, ...]
    most: int


def _kinds(items: Sequence[Item], binding: Sequence[int]) -> list[_Kind]:
    kinds = []
    for index, item in enumerate(items):
        for gain, unit, most in zip(item.gains, item.units, (len(item.most_ps) - 1, max(item.most_ps)), strict=True):
            if gain > 0 and most > 0:
                kinds.append(_Kind(item=index, gain=gain, unit=tuple(unit[r] for r in binding), most=most))
    return kinds


def _dual_weights(kinds: Sequence[_Kind], capacity: FloatArray) -> FloatArray:
    """Return the dual prices of the fractional packing problem; equal shares where there are none."""
    from scipy.optimize import linprog

    shares = 1.0 / np.maximum(capacity, 1.0)
    if not kinds or not len(capacity):
        return shares
    result = linprog(
        [-float(kind.gain) for kind in kinds],
        A_ub=np.array([kind.unit for kind in kinds], dtype=np.float64).T * shares[:, None],
        b_ub=capacity * shares,
        bounds=[(0, kind.most) for kind in kinds],
        method="highs",
    )
    weights = np.maximum(-result.ineqlin.marginals, 0.0) * shares if result.success else shares
    return weights if weights.any() else shares


def _relaxations(kinds: Sequence[_Kind], left: set[int], weights: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
    """Return for each weighting of the resources the most gain by total weight, as a broken line."""
    lines = []
    for row in weights:
        chosen = [(float(row @ np.array(kind.unit, dtype=np.float64)), kind) for kind in kinds if kind.item in left]
        chosen.sort(key=lambda pair: (pair[0] / pair[1].gain, pair[1].item))
        steps = [(weight * kind.most, float(kind.gain * kind.most)) for weight, kind in chosen]
        free = sum(gain for weight, gain in steps if weight == 0)
        paid = [(weight, gain) for weight, gain in steps if weight > 0]
        line = np.cumsum(np.array([(0.0, free), *paid]), axis=0)
        lines.append((line[:, 0], line[:, 1]))
    return lines


def _without_repeats(rest: IntArray, gain: IntArray) -> tuple[IntArray, IntArray]:
    """Keep of packings that leave the same room the one that gains most."""
    order = np.lexsort((-gain, *rest.T))
    rest, gain = rest[order], gain[order]
    is_new = np.ones(len(gain), dtype=bool)
    is_new[1:] = (rest[1:] != rest[:-1]).any(axis=1)
    return rest[is_new], gain[is_new]


def _pairs(demand: Demand, room: tuple[int, ...], share: Fraction | None, most: tuple[int, int]) -> tuple[int, ...]:
    """Return for 0, 1, ... workers the most PSs that one shared server holds beside them."""
    result = []
    for y in range(most[0] + 1):
        z = ps_beside_on_one(demand, room, share, y, most[1])
        if z < 0:
            break
        result.append(z)
    return tuple(result)


def _max_gain(item: Item) -> int:
    return item.gains[0] * (len(item.most_ps) - 1) + item.gains[1] * max(item.most_ps)


def _max_use(item: Item, r: int) -> int:
    return item.demand.worker[r] * (len(item.most_ps) - 1) + item.demand.ps[r] * max(item.most_ps)


def find_violation(choices: Sequence[Choice], room: tuple[int, ...], right_hand_side: int) -> str | None:
    """Return why some counts may exceed the right-hand side, None if none do.

    One job after the other, all counts so far at once. Of counts that leave the same room those that gain most are kept;
    and none that can't exceed it, whatever the jobs to come gain: each at its best gain a unit of a resource, up to its
    largest gain, one resource at a time.
    """
    largest = [max(choice.gains) for choice in choices]
    if sum(largest) > MAX_GAIN:
        return f"the left-hand side may exceed {MAX_GAIN}, too much to be checked; scale the cut down"
    order = sorted(range(len(choices)), key=lambda index: (-largest[index], index))
    rest, gained = np.array([room], dtype=np.int64).reshape(1, len(room)), np.zeros(1, dtype=np.int64)
    for place, index in enumerate(order):
        rest, gained = _with_job(choices[index], rest, gained)
        if bool((gained > right_hand_side).any()):
            return f"counts that the class may hold exceed the right-hand side {right_hand_side}"
        can_exceed = gained + _outlook([choices[other] for other in order[place + 1 :]], rest) > right_hand_side
        rest, gained = _without_repeats(rest[can_exceed], gained[can_exceed])
        if len(gained) > STATE_LIMIT:
            return f"{STATE_LIMIT} counts don't suffice to show that none exceed {right_hand_side}"
    return None


def _with_job(choice: Choice, rest: IntArray, gained: IntArray) -> tuple[IntArray, IntArray]:
    """Return all states with 0, 1, ... units of one more job."""
    rests, gains = [rest], [gained]
    unit = np.array(choice.unit, dtype=np.int64)
    for units in range(1, len(choice.gains)):
        # As many units as gain no more than fewer are of no use.
        if choice.gains[units] == choice.gains[units - 1]:
            continue
        left = rest - units * unit
        fits = (left >= 0).all(axis=1)
        rests.append(left[fits])
        gains.append(gained[fits] + choice.gains[units])
    return np.concatenate(rests), np.concatenate(gains)


def _outlook(choices: Sequence[Choice], rest: IntArray) -> IntArray:
    """Return the most that the jobs to come may gain in each state's rest, one resource at a time."""
    total = np.full(len(rest), sum(max(choice.gains) for choice in choices), dtype=np.int64)
    for r in range(rest.shape[1]):
        steps = []
        for choice in choices:
            used = [(n * choice.unit[r], gain) for n, gain in enumerate(choice.gains) if gain > 0]
            if used:
                slope = max(gain / need if need else math.inf for need, gain in used)
                steps.append((slope, float(max(choice.gains))))
        steps.sort(key=lambda step: -step[0])
        ends = np.cumsum([0.0, *(gain / slope if slope < math.inf else 0.0 for slope, gain in steps)])
        line = np.cumsum([0.0, *(gain for _, gain in steps)])
        free = sum(gain for slope, gain in steps if slope == math.inf)
        # Doubles are raised by far more than they err; gains are whole.
        reach = np.interp(rest[:, r] * (1 + 1e-9), ends, np.maximum(line, free))
        total = np.minimum(total, np.floor(reach * (1 + 1e-9) + 1e-6).astype(np.int64))
    return total

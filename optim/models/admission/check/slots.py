"""What a job pays at least for Y workers, and the PSs they need, in each slot at given prices.

Identical servers are one class of full capacity. All numbers are sums of non-negative products, so
that their rounding errors are relative and small; `Pricing.num_operations` bounds how many there are
on top of each other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from optim.models.admission.check.facts import Demand, Facts, JobFacts
from optim.models.admission.check.restrictions import Restriction
from optim.models.admission.check.room import most_in_class, most_ps_beside
from optim.models.admission.instance import MICRO, FloatArray, IntArray
from optim.models.admission.proof import Side

HUGE = 1e290
"""Costs of one worker or PS are cut down to this, so that no sum of them overflows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutCharge:
    """What a cut adds to the cost of each worker or PS of a job in a class and slot."""

    side: Side
    server_class: int
    slot: int
    charge: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CountCharge:
    """What a count cut adds for 1, 2, ... units of a job in a class and slot; for more units as for the last."""

    side: Side
    server_class: int
    slot: int
    charge: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prices:
    """The prices of a dual point, checked to be finite and non-negative.

    Parameters
    ----------
    worker, ps
        Shape (classes, slots, resources), utils a unit; the same array on shared servers.
    charges, count_charges
        What cuts add, by job.
    """

    worker: FloatArray
    ps: FloatArray
    charges: dict[int, tuple[CutCharge, ...]]
    count_charges: dict[int, tuple[CountCharge, ...]] = field(default_factory=dict)


def no_prices(facts: Facts) -> Prices:
    """Return the prices at which everything is free."""
    size = (facts.horizon, len(facts.resources))
    return Prices(
        worker=np.zeros((len(facts.worker_servers.count), *size)),
        ps=np.zeros((len(facts.ps_servers.count), *size)),
        charges={},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pricing:
    """The question what one job's schedules within a range of slots cost.

    Parameters
    ----------
    facts, job
        The instance and the job.
    slots
        Slots in which the job may run.
    prices
        What resources cost.
    restriction
        What branches leave of the schedules.
    """

    facts: Facts
    job: JobFacts
    slots: range
    prices: Prices
    restriction: Restriction

    @property
    def num_operations(self) -> int:
        """Most rounded operations on top of each other in the cost of a schedule."""
        num_classes = len(self.prices.worker) + len(self.prices.ps)
        a_class = 70 if self.facts.is_shared else 2
        num_charges = sum(
            len(each.get(self.job.index, ())) for each in (self.prices.charges, self.prices.count_charges)
        )
        return len(self.slots) + a_class * num_classes + len(self.facts.resources) + 2 * num_charges + 8

    def unit_costs(self, demand: Demand, side: Side) -> FloatArray:
        """Return what one worker or one PS costs in each class and slot, shape (classes, slots)."""
        price = self.prices.worker if side is Side.WORKER else self.prices.ps
        quantity = np.array(demand.of(side), dtype=np.float64)
        first = self.slots.start
        with np.errstate(over="ignore"):
            cost: FloatArray = (price[:, first : self.slots.stop] * quantity).sum(axis=2) / MICRO
            for item in self.prices.charges.get(self.job.index, ()):
                if item.side is side and item.slot in self.slots:
                    cost[item.server_class, item.slot - first] += item.charge
        return np.minimum(cost, HUGE)

    def count_charges(self, side: Side) -> dict[int, dict[int, list[FloatArray]]]:
        """Return what count cuts add on a side, by slot since the first and by class."""
        found: dict[int, dict[int, list[FloatArray]]] = {}
        for item in self.prices.count_charges.get(self.job.index, ()):
            if item.side is side and item.slot in self.slots:
                found.setdefault(item.slot - self.slots.start, {}).setdefault(item.server_class, []).append(item.charge)
        return found

    def limits(self, demand: Demand, side: Side) -> tuple[IntArray, IntArray]:
        """Return the fewest and the most units in each class and slot, shape (classes, slots) each."""
        at_most = most_in_class(self.facts, self.job, demand, side, self.slots)
        at_least = np.zeros_like(at_most)
        for (on, c, slot), limit in self.restriction.at_least.items():
            if on is side and slot in self.slots:
                at_least[c, slot - self.slots.start] = limit
        for (on, c, slot), limit in self.restriction.at_most.items():
            if on is side and slot in self.slots:
                place = (c, slot - self.slots.start)
                at_most[place] = min(int(at_most[place]), limit)
        return at_least, at_most


def slot_costs(pricing: Pricing, demand: Demand) -> FloatArray:
    """Return the least cost of Y workers with their PSs in each slot.

    Returns
    -------
    FloatArray
        Shape (slots, Y = 0, ..., most that fit in any of the slots); infinite where Y don't fit.
    """
    job = pricing.job
    limits = pricing.limits(demand, Side.WORKER)
    ps_limits = pricing.limits(demand, Side.PS)
    most = min(job.most_workers, int(limits[1].sum(axis=0).max(initial=0)))
    needed = np.array([job.ps_needed(y) for y in range(most + 1)], dtype=np.int64)
    if pricing.facts.is_shared:
        pairs = _shared_costs(pricing, demand, (limits, ps_limits), (most, int(needed[-1])))
        return pairs[:, np.arange(most + 1), needed]
    workers = _cheapest_charged(pricing, demand, Side.WORKER, limits, most)
    return workers + _cheapest_charged(pricing, demand, Side.PS, ps_limits, int(needed[-1]))[:, needed]


def _cheapest_charged(pricing: Pricing, demand: Demand, side: Side, limits: "Limits", most: int) -> FloatArray:
    """Return what `_cheapest` does, with what count cuts add; shape (slots, most + 1)."""
    unit = pricing.unit_costs(demand, side)
    cost = _cheapest(unit, *limits, most)
    for k, by_class in pricing.count_charges(side).items():
        cost[k] = np.inf
        cost[k, 0] = 0.0
        for c in range(len(unit)):
            low, high = int(limits[0][c, k]), min(int(limits[1][c, k]), most)
            following = np.full(most + 1, np.inf)
            own = _charged_units(unit[c, k], by_class.get(c, []), high)
            for n, pays in zip(range(low, high + 1), own[low:].tolist(), strict=True):
                following[n:] = np.minimum(following[n:], cost[k, : most + 1 - n] + pays)
            cost[k] = following
    return cost


def _charged_units(unit: float, charges: Sequence[FloatArray], most: int) -> FloatArray:
    """Return what 0, ..., most units of one class cost with what count cuts add, shape (most + 1,)."""
    numbers = np.arange(most + 1)
    own: FloatArray = unit * numbers.astype(np.float64)
    for charge in charges:
        own += np.concatenate([[0.0], charge])[np.minimum(numbers, len(charge))]
    return np.minimum(own, HUGE).astype(np.float64, copy=False)


def _cheapest(unit: FloatArray, at_least: IntArray, at_most: IntArray, most: int) -> FloatArray:
    """Return the cost of the 0, ..., most cheapest units in each slot; shape (slots, most + 1)."""
    order = np.argsort(unit, axis=0, kind="stable")
    spare = np.take_along_axis(at_most - at_least, order, axis=0)
    before = np.cumsum(spare, axis=0) - spare
    free = np.arange(most + 1)[None, :] - at_least.sum(axis=0)[:, None]
    is_consistent = np.all(spare >= 0, axis=0).reshape(-1, 1)
    is_possible = (free >= 0) & (free <= spare.sum(axis=0)[:, None]) & is_consistent
    taken = np.clip(free[None, :, :] - before[:, :, None], 0, np.maximum(spare, 0)[:, :, None])
    cost = (np.take_along_axis(unit, order, axis=0)[:, :, None] * taken).sum(axis=0)
    cost += (unit * at_least).sum(axis=0)[:, None]
    return np.where(is_possible, cost, np.inf)


Limits = tuple[IntArray, IntArray]
"""Fewest and most units in each class and slot."""


def _shared_costs(pricing: Pricing, demand: Demand, limits: tuple[Limits, Limits], most: tuple[int, int]) -> FloatArray:
    """Return the least cost of Y workers and Z PSs on shared servers, shape (slots, Y, Z).

    A dynamic programme over the classes; in each class the pairs that its servers hold together.
    """
    facts, slots = pricing.facts, pricing.slots
    servers = facts.worker_servers
    unit, ps_unit = (pricing.unit_costs(demand, side) for side in (Side.WORKER, Side.PS))
    charges = [pricing.count_charges(side) for side in (Side.WORKER, Side.PS)]
    cost = np.full((len(slots), most[0] + 1, most[1] + 1), np.inf)
    cost[:, 0, 0] = 0.0
    for c, count in enumerate(servers.count):
        following = np.full_like(cost, np.inf)
        for group in _equal_slots(servers.capacity[c, slots.start : slots.stop], c, limits):
            k = group[0]
            room = servers.room(c, slots.start + k)
            pairs = _Pairs(
                beside=most_ps_beside(demand, room, facts.share, count, most),
                workers=(int(limits[0][0][c, k]), int(limits[0][1][c, k])),
                ps=(int(limits[1][0][c, k]), int(limits[1][1][c, k])),
            )
            plain = [k for k in group if not any(c in charged.get(k, {}) for charged in charges)]
            following[plain] = _add_class(cost[plain], pairs, unit[c, plain], ps_unit[c, plain])
            for k in sorted(set(group) - set(plain)):
                own = [
                    _charged_units(float(units[c, k]), charged.get(k, {}).get(c, []), limit)
                    for units, charged, limit in zip((unit, ps_unit), charges, most, strict=True)
                ]
                following[k] = _add_charged_class(cost[k], pairs, own[0], own[1])
        cost = following
    return cost


def _add_charged_class(cost: FloatArray, pairs: "_Pairs", worker: FloatArray, ps: FloatArray) -> FloatArray:
    """Return one slot's costs with one more class, in which so many workers and PSs cost as listed."""
    result = np.full_like(cost, np.inf)
    for y in range(pairs.workers[0], min(pairs.workers[1], len(pairs.beside) - 1, len(worker) - 1) + 1):
        for z in range(pairs.ps[0], min(pairs.ps[1], int(pairs.beside[y]), len(ps) - 1) + 1):
            reached = result[y:, z:]
            pays = min(float(worker[y]) + float(ps[z]), HUGE)
            np.minimum(reached, cost[: cost.shape[0] - y, : cost.shape[1] - z] + pays, out=reached)
    return result


def _equal_slots(capacity: IntArray, c: int, limits: tuple[Limits, Limits]) -> Iterator[list[int]]:
    """Group the slots in which a class has equal capacity and equal limits."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for k, row in enumerate(capacity.tolist()):
        bounds = (int(bound[c, k]) for side in limits for bound in side)
        groups.setdefault((*row, *bounds), []).append(k)
    yield from groups.values()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Pairs:
    """Counts that a class may take in a slot: y and z within their limits, z <= beside[y]."""

    beside: IntArray
    workers: tuple[int, int]
    ps: tuple[int, int]


def _add_class(cost: FloatArray, pairs: _Pairs, unit: FloatArray, ps_unit: FloatArray) -> FloatArray:
    """Return the costs with one more class, whose unit costs are given by slot."""
    result = np.full_like(cost, np.inf)
    windows = _Windows(_shifted(cost, pairs.ps[0], ps_unit), ps_unit)
    for y in range(pairs.workers[0], min(pairs.workers[1], len(pairs.beside) - 1) + 1):
        length = min(pairs.ps[1], int(pairs.beside[y])) - pairs.ps[0] + 1
        if length >= 1:
            reached = result[:, y:]
            pays = windows.least(length)[:, : cost.shape[1] - y] + (unit * y)[:, None, None]
            np.minimum(reached, pays, out=reached)
    return result


class _Windows:
    """Least cost with 0, ..., length - 1 further PSs in one class, by doubling the window.

    Costs are only added, never subtracted, so that rounding errors stay relative.
    """

    def __init__(self, cost: FloatArray, unit: FloatArray) -> None:
        self._unit = unit
        self._doubled = [cost]
        self._known: dict[int, FloatArray] = {1: cost}

    def least(self, length: int) -> FloatArray:
        """Return the table for a window of `length` counts."""
        length = min(length, self._doubled[0].shape[2])
        if length not in self._known:
            exponent = length.bit_length() - 1
            while len(self._doubled) <= exponent:
                last = self._doubled[-1]
                self._doubled.append(np.minimum(last, _shifted(last, 1 << (len(self._doubled) - 1), self._unit)))
            part = self._doubled[exponent]
            self._known[length] = np.minimum(part, _shifted(part, length - (1 << exponent), self._unit))
        return self._known[length]


def _shifted(cost: FloatArray, number: int, unit: FloatArray) -> FloatArray:
    """Return the costs after `number` further PSs, infinite where there would be too few."""
    if number == 0:
        return cost
    result = np.full_like(cost, np.inf)
    if number < cost.shape[2]:
        result[:, :, number:] = cost[:, :, :-number] + (unit * number)[:, None, None]
    return result

"""The best payoff of one job at given prices, rounded up, under the restrictions of branches.

Identical servers form one class. All numbers are sums of non-negative products, so that their relative
rounding errors are small; `Pricing.num_operations` bounds the number of nested operations.

Only schedules without superfluous workers and PSs are considered. Superfluous are PSs beyond row (6), workers
of the last slot beyond row (2), and slots after the work is done. Removing them from a plan violates no row
and loses no value, so a bound on the remaining plans bounds all plans.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from optim.core.arrays import FloatArray, IntArray
from optim.models.admission.check.exact_instance import (
    UNIT_ROUNDOFF,
    Demand,
    ExactInstance,
    ExactJob,
    max_in_class,
    max_ps_beside,
    ps_beside_on_one,
    shrink_factor,
    units_on_server,
)
from optim.models.admission.data import MICRO
from optim.models.admission.decision import Branch, BranchKind, Side

Place = tuple[Side, int, int]
"""Side, server class and slot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restriction:
    """Conditions on one job's schedule.

    Parameters
    ----------
    is_refused, is_admitted
        Whether the job must be rejected, or must be admitted.
    after, until
        A schedule completes after slot `after` and by slot `until` (None: no limit).
    at_least, at_most
        Limits on the number of workers or PSs by side, class and slot.
    """

    is_refused: bool = False
    is_admitted: bool = False
    after: int = -1
    until: int | None = None
    at_least: Mapping[Place, int] = field(default_factory=dict)
    at_most: Mapping[Place, int] = field(default_factory=dict)

    @property
    def forced_slots(self) -> tuple[int, ...]:
        """Slots in which the job must have workers or PSs."""
        return tuple(slot for _, _, slot in self.at_least)

    @property
    def is_contradictory(self) -> bool:
        """Whether the conditions visibly contradict each other, so that no plan meets them."""
        return (self.is_refused and self.is_admitted) or any(limit < 0 for limit in self.at_most.values())

    def narrowed(self, branch: Branch, *, is_high: bool) -> "Restriction":
        """Return the restriction in the high or the low child of `branch`."""
        limit = branch.value
        match branch.kind:
            case BranchKind.ADMITTED:
                return replace(self, is_admitted=True) if is_high else replace(self, is_refused=True)
            case BranchKind.COMPLETION if is_high:
                return replace(self, after=max(self.after, limit))
            case BranchKind.COMPLETION:
                return replace(self, until=limit if self.until is None else min(self.until, limit))
        side = Side.WORKER if branch.kind is BranchKind.WORKERS else Side.PS
        place = (side, branch.server_class, branch.slot)
        if not is_high:
            return replace(self, at_most={**self.at_most, place: min(self.at_most.get(place, limit), limit)})
        if limit < 0:
            return self  # at least v + 1 <= 0 units is no condition
        at_least = {**self.at_least, place: max(self.at_least.get(place, 0), limit + 1)}
        return replace(self, is_admitted=True, at_least=at_least)


FREE = Restriction()
"""The restriction without conditions."""

HUGE = 1e290
"""Largest cost of one worker or PS; larger costs are clipped, so that sums cannot overflow."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CutCharge:
    """Charge that a cut adds to the cost of a job's workers or PSs in a class and slot.

    A number is the charge per unit. An array lists the charges of 1, 2, ... units together; its last entry
    holds for more units.
    """

    side: Side
    server_class: int
    slot: int
    charge: float | FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SlotCharge:
    """Charge that a slot cut adds to the cost of a job's workers in a slot.

    The array lists the charges of 1, 2, ... workers on all servers together; its last entry holds for more workers.
    """

    slot: int
    charge: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prices:
    """The prices of a dual point, checked to be finite and non-negative.

    Parameters
    ----------
    worker, ps
        Shape (classes, slots, resources), utility per unit of the resource; the same array on shared servers.
    charges
        Charges of server cuts and count cuts, by job.
    slot_charges
        Charges of slot cuts, by job.
    """

    worker: FloatArray
    ps: FloatArray
    charges: Mapping[int, Sequence[CutCharge]]
    slot_charges: Mapping[int, Sequence[SlotCharge]] = field(default_factory=dict)


def no_prices(exact: ExactInstance) -> Prices:
    """Return prices of 0."""
    size = (exact.horizon, len(exact.resources))
    return Prices(
        worker=np.zeros((len(exact.worker_servers.count), *size)),
        ps=np.zeros((len(exact.ps_servers.count), *size)),
        charges={},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pricing:
    """The pricing problem of one job: the costs of its schedules within a range of slots.

    Parameters
    ----------
    exact, job
        The instance and the job.
    slots
        Slots in which the job may run.
    prices
        Prices of resources.
    restriction
        Conditions on the schedules.
    """

    exact: ExactInstance
    job: ExactJob
    slots: range
    prices: Prices
    restriction: Restriction

    @property
    def num_operations(self) -> int:
        """Largest number of nested rounded operations in the cost of a schedule."""
        num_classes = len(self.prices.worker) + len(self.prices.ps)
        a_class = 70 if self.exact.is_shared else 2
        num_charges = sum(
            len(charges.get(self.job.index, ())) for charges in (self.prices.charges, self.prices.slot_charges)
        )
        return len(self.slots) + a_class * num_classes + len(self.exact.resources) + 2 * num_charges + 8

    def _charges(self, side: Side) -> Iterator[CutCharge]:
        """Yield the charges of cuts on a side within the slots."""
        for item in self.prices.charges.get(self.job.index, ()):
            if item.side is side and item.slot in self.slots:
                yield item

    def unit_costs(self, demand: Demand, side: Side) -> FloatArray:
        """Return the cost of one worker or one PS in each class and slot, shape (classes, slots)."""
        price = self.prices.worker if side is Side.WORKER else self.prices.ps
        quantity = np.array(demand.of(side), dtype=np.float64)
        first = self.slots.start
        with np.errstate(over="ignore"):
            cost: FloatArray = (price[:, first : self.slots.stop] * quantity).sum(axis=2) / MICRO
            for item in self._charges(side):
                if isinstance(item.charge, float):
                    cost[item.server_class, item.slot - first] += item.charge
        return np.minimum(cost, HUGE)

    def count_charges(self, side: Side) -> dict[int, dict[int, list[FloatArray]]]:
        """Return the charges of count cuts on a side, by slot (relative to the first) and by class."""
        by_slot: dict[int, dict[int, list[FloatArray]]] = {}
        for item in self._charges(side):
            if not isinstance(item.charge, float):
                by_slot.setdefault(item.slot - self.slots.start, {}).setdefault(item.server_class, []).append(
                    item.charge
                )
        return by_slot

    def with_slot_charges(self, cost: FloatArray) -> FloatArray:
        """Return the cost of 0, 1, ... workers in each slot with the charges of slot cuts, shape as `cost`."""
        numbers = np.arange(cost.shape[1])
        charged = cost.copy()
        for item in self.prices.slot_charges.get(self.job.index, ()):
            if item.slot in self.slots:
                charge = np.concatenate([[0.0], np.minimum(item.charge, HUGE)])
                charged[item.slot - self.slots.start] += charge[np.minimum(numbers, len(item.charge))]
        return charged

    def limits(self, demand: Demand, side: Side) -> tuple[IntArray, IntArray]:
        """Return the minimum and maximum numbers of units in each class and slot, shape (classes, slots) each."""
        at_most = max_in_class(self.exact, self.job, demand, side, self.slots)
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
        Shape (slots, most + 1), for Y = 0, ..., most, the largest number of workers that fits in any of the slots;
        infinite where Y workers do not fit.
    """
    job = pricing.job
    limits = pricing.limits(demand, Side.WORKER)
    ps_limits = pricing.limits(demand, Side.PS)
    most = min(job.max_workers, int(limits[1].sum(axis=0).max(initial=0)))
    needed = np.array([job.ps_needed(y) for y in range(most + 1)], dtype=np.int64)
    if pricing.exact.is_shared:
        pairs = _shared_costs(pricing, demand, (limits, ps_limits), (most, int(needed[-1])))
        return pricing.with_slot_charges(pairs[:, np.arange(most + 1), needed])
    workers = _cheapest_charged(pricing, demand, Side.WORKER, limits, most)
    ps = _cheapest_charged(pricing, demand, Side.PS, ps_limits, int(needed[-1]))[:, needed]
    return pricing.with_slot_charges(workers + ps)


def _cheapest_charged(pricing: Pricing, demand: Demand, side: Side, limits: "Limits", most: int) -> FloatArray:
    """Return the least cost of 0, ..., most units in each slot, with the charges of count cuts; shape (slots, most + 1)."""
    unit = pricing.unit_costs(demand, side)
    cost = _cheapest(unit, *limits, most)
    for k, by_class in pricing.count_charges(side).items():
        cost[k] = np.inf
        cost[k, 0] = 0.0
        for c in range(len(unit)):
            low, high = int(limits[0][c, k]), min(int(limits[1][c, k]), most)
            following = np.full(most + 1, np.inf)
            class_cost = _charged_units(unit[c, k], by_class.get(c, []), high)
            for n, pays in zip(range(low, high + 1), class_cost[low:].tolist(), strict=True):
                following[n:] = np.minimum(following[n:], cost[k, : most + 1 - n] + pays)
            cost[k] = following
    return cost


def _charged_units(unit: float, charges: Sequence[FloatArray], most: int) -> FloatArray:
    """Return the cost of 0, ..., most units of one class with the charges of count cuts, shape (most + 1,)."""
    numbers = np.arange(most + 1)
    cost: FloatArray = unit * numbers.astype(np.float64)
    for charge in charges:
        cost += np.concatenate([[0.0], charge])[np.minimum(numbers, len(charge))]
    return np.minimum(cost, HUGE).astype(np.float64, copy=False)


def _cheapest(unit: FloatArray, at_least: IntArray, at_most: IntArray, most: int) -> FloatArray:
    """Return the least total cost of 0, ..., most units in each slot, shape (slots, most + 1)."""
    order = np.argsort(unit, axis=0, kind="stable")
    spare = np.take_along_axis(at_most - at_least, order, axis=0)
    before = np.cumsum(spare, axis=0) - spare
    free = np.arange(most + 1)[None, :] - at_least.sum(axis=0)[:, None]
    is_consistent = np.all(spare >= 0, axis=0).reshape(-1, 1)
    is_possible = (free >= 0) & (free <= spare.sum(axis=0)[:, None]) & is_consistent
    class_units = np.clip(free[None, :, :] - before[:, :, None], 0, np.maximum(spare, 0)[:, :, None])
    cost = (np.take_along_axis(unit, order, axis=0)[:, :, None] * class_units).sum(axis=0)
    cost += (unit * at_least).sum(axis=0)[:, None]
    return np.where(is_possible, cost, np.inf)


Limits = tuple[IntArray, IntArray]
"""Minimum and maximum numbers of units in each class and slot."""


def _shared_costs(pricing: Pricing, demand: Demand, limits: tuple[Limits, Limits], most: tuple[int, int]) -> FloatArray:
    """Return the least cost of Y workers and Z PSs on shared servers, shape (slots, largest Y + 1, largest Z + 1).

    A dynamic programme over the classes; the choices in each class are the pairs that fit its servers.
    """
    exact, slots = pricing.exact, pricing.slots
    servers = exact.worker_servers
    unit, ps_unit = (pricing.unit_costs(demand, side) for side in (Side.WORKER, Side.PS))
    charges = [pricing.count_charges(side) for side in (Side.WORKER, Side.PS)]
    cost = np.full((len(slots), most[0] + 1, most[1] + 1), np.inf)
    cost[:, 0, 0] = 0.0
    for c, count in enumerate(servers.count):
        following = np.full_like(cost, np.inf)
        for group in _equal_slots(servers.capacity[c, slots.start : slots.stop], c, limits):
            k = group[0]
            capacity = servers.capacity_at(c, slots.start + k)
            pairs = _Pairs(
                beside=max_ps_beside(demand, capacity, exact.share, count, most),
                workers=(int(limits[0][0][c, k]), int(limits[0][1][c, k])),
                ps=(int(limits[1][0][c, k]), int(limits[1][1][c, k])),
            )
            plain = [k for k in group if not any(c in charged.get(k, {}) for charged in charges)]
            following[plain] = _add_class(cost[plain], pairs, unit[c, plain], ps_unit[c, plain])
            for k in sorted(set(group) - set(plain)):
                charged_costs = [
                    _charged_units(float(units[c, k]), charged.get(k, {}).get(c, []), limit)
                    for units, charged, limit in zip((unit, ps_unit), charges, most, strict=True)
                ]
                following[k] = _add_charged_class(cost[k], pairs, charged_costs[0], charged_costs[1])
        cost = following
    return cost


def _add_charged_class(cost: FloatArray, pairs: "_Pairs", worker: FloatArray, ps: FloatArray) -> FloatArray:
    """Return one slot's costs with one more class; `worker` and `ps` are the costs of 0, 1, ... units on this class."""
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
    """Pairs (y, z) of workers and PSs that a class can host in a slot: both within their limits, z <= beside[y]."""

    beside: IntArray
    workers: tuple[int, int]
    ps: tuple[int, int]


def _add_class(cost: FloatArray, pairs: _Pairs, unit: FloatArray, ps_unit: FloatArray) -> FloatArray:
    """Return the costs with one more class; `unit` and `ps_unit` are the costs of a worker and a PS on it by slot."""
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
    """Least cost if one class hosts at most `length` - 1 further PSs, computed by doubling this range.

    Costs are only added, so that relative rounding errors stay small.
    """

    def __init__(self, cost: FloatArray, unit: FloatArray) -> None:
        self._unit = unit
        self._doubled = [cost]
        self._known: dict[int, FloatArray] = {1: cost}

    def least(self, length: int) -> FloatArray:
        """Return the least costs over 0, ..., `length` - 1 further PSs."""
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
    """Return the costs after `number` further PSs, infinite for totals below `number`."""
    if number == 0:
        return cost
    result = np.full_like(cost, np.inf)
    if number < cost.shape[2]:
        result[:, :, number:] = cost[:, :, :-number] + (unit * number)[:, None, None]
    return result


BLOCK = 2**17
"""Elements of one block of the dynamic programme's sums; small enough for a processor's cache."""

UNDERFLOW = 1e-290
"""Upper bound on the total loss from products that underflow below the smallest double."""


def min_payoff(
    exact: ExactInstance, job: ExactJob, prices: Prices, restriction: Restriction, *, enough: float = -math.inf
) -> float:
    """Return the largest value minus cost of the job's schedules, rounded up.

    Parameters
    ----------
    exact, job
        The instance and the job.
    prices
        Non-negative prices.
    restriction
        Conditions on the schedules.
    enough
        Schedules whose value is at most this are skipped; costs are at least 0.

    Returns
    -------
    float
        An upper bound on value minus cost over all schedules whose value may exceed `enough`; -infinity if there
        are none.
    """
    ceiling = _ceiling(job, restriction)
    worthwhile = np.flatnonzero(ceiling > max(enough, 0.0))
    is_late = any(slot < job.arrival for slot in restriction.forced_slots)
    if restriction.is_refused or restriction.is_contradictory or is_late or not worthwhile.size:
        return -math.inf
    slots = range(job.arrival, int(worthwhile[-1]) + 1)
    pricing = Pricing(exact=exact, job=job, slots=slots, prices=prices, restriction=restriction)
    cost = completion_costs(pricing)
    value = ceiling[slots.start : slots.stop]
    can_complete = np.isfinite(cost) & (value > 0)
    if not can_complete.any():
        return -math.inf
    value, cost = value[can_complete], cost[can_complete]
    rounding = (value + cost) * (4 * UNIT_ROUNDOFF) + UNDERFLOW
    return float((value - cost * shrink_factor(pricing.num_operations) + rounding).max())


def has_schedule(exact: ExactInstance, job: ExactJob, restriction: Restriction) -> bool:
    """Return whether any schedule of the job meets the restriction."""
    return min_payoff(exact, job, no_prices(exact), restriction) > -math.inf


def earliest_completion(exact: ExactInstance, job: ExactJob) -> int | None:
    """Return the first slot in which the job can complete alone and earns anything, None if there is none."""
    if job.deadline < job.arrival:
        return None
    slots = range(job.arrival, job.deadline + 1)
    cost = completion_costs(Pricing(exact=exact, job=job, slots=slots, prices=no_prices(exact), restriction=FREE))
    can_complete = np.flatnonzero(np.isfinite(cost))
    return slots[int(can_complete[0])] if can_complete.size else None


def completion_costs(pricing: Pricing) -> FloatArray:
    """Return for each slot the least cost of a schedule that completes the job in it, infinite if impossible.

    A dynamic programme over the progress before a slot.
    """
    job, num_slots = pricing.job, len(pricing.slots)
    demands = [demand for demand in job.demands if demand.start < job.target]
    tables = [slot_costs(pricing, demand) for demand in demands]
    most = max(table.shape[1] for table in tables) - 1
    done = np.full(num_slots, np.inf)
    if job.progress(most) * num_slots < job.target:
        return done
    progress = np.array([min(job.progress(y), job.target) for y in range(most + 1)], dtype=np.int64)
    tables = [_widened(table, most + 1) for table in tables]
    # Among numbers of workers with equal progress only the smallest counts.
    steps = [y for y in range(most + 1) if y == 0 or progress[y - 1] < progress[y] < job.target]
    reached = min(job.target, (num_slots - 1) * int(progress[steps[-1]]) + 1)
    ends = [*(demand.start for demand in demands[1:]), job.target]
    advance = _Advance(progress[steps], reached)
    finish = np.searchsorted(progress, job.target - np.arange(reached), side="left")
    cost = np.full(reached, np.inf)
    cost[0] = 0.0
    for k in range(num_slots):
        following = np.full(reached, np.inf)
        for table, demand, end in zip(tables, demands, ends, strict=True):
            source = _only(cost, demand.start, end)
            done[k] = min(done[k], _finished(source, table[k], finish))
            if k + 1 < num_slots:
                np.minimum(following, advance.after(source, table[k, steps]), out=following)
        cost = following
    return done


def _ceiling(job: ExactJob, restriction: Restriction) -> FloatArray:
    """Return the largest value of completing in a slot or later, rounded up; 0 where completion is forbidden.

    Later slots count because utilities may rise by a rounding error, and the removal of superfluous workers
    may advance a completion.
    """
    rounded = np.array(job.value) * (1.0 + 2.0 * job.value_error)
    ceiling = np.maximum.accumulate(rounded[::-1])[::-1].copy()
    ceiling[: max(job.arrival, restriction.after + 1, *restriction.forced_slots, 0)] = 0.0
    if restriction.until is not None:
        ceiling[max(restriction.until + 1, 0) :] = 0.0
    return ceiling


def _widened(table: FloatArray, width: int) -> FloatArray:
    """Return a table extended to `width` counts by infinite costs."""
    result = np.full((table.shape[0], width), np.inf)
    result[:, : table.shape[1]] = table
    return result


def _only(cost: FloatArray, start: int, end: int) -> FloatArray:
    """Return the costs by progress, infinite outside ``start:end``."""
    if start == 0 and end >= len(cost):
        return cost
    result = np.full_like(cost, np.inf)
    result[start:end] = cost[start:end]
    return result


def _finished(cost: FloatArray, slot_cost: FloatArray, finish: IntArray) -> float:
    """Return the least cost of completing the job in a slot; `finish` lists the workers needed from each progress."""
    first = int(np.searchsorted(-finish, -(len(slot_cost) - 1), side="left"))
    if first >= len(cost):
        return math.inf
    return float((cost[first:] + slot_cost[finish[first:]]).min())


class _Advance:
    """Step of the dynamic programme over one slot, for choices of given progress; buffers are reused between slots."""

    def __init__(self, progress: IntArray, size: int) -> None:
        self._widest = int(progress[-1])
        self._padded = np.full(size + self._widest, np.inf)
        self._windows = sliding_window_view(self._padded, size)
        self._first = self._widest - progress
        self._block = max(1, BLOCK // size)

    def after(self, cost: FloatArray, step_cost: FloatArray) -> FloatArray:
        """Return ``min over choices of cost[d - progress] + step_cost`` for every progress d."""
        self._padded[self._widest :] = cost
        result = np.full(len(cost), np.inf)
        for begin in range(0, len(step_cost), self._block):
            part = slice(begin, begin + self._block)
            sums = self._windows[self._first[part]]
            sums += step_cost[part, None]
            np.minimum(result, sums.min(axis=0), out=result)
        return result


def max_share(exact: ExactInstance) -> Fraction:
    """Return eps, the largest share of one server's resource that one job can use in a slot.

    The maximum is over jobs that can complete alone in time.
    """
    share = Fraction(0)
    for job in exact.jobs:
        if job.deadline >= job.arrival and has_schedule(exact, job, FREE):
            share = max(share, _share_of(exact, job))
    return share


def _share_of(exact: ExactInstance, job: ExactJob) -> Fraction:
    """Return the largest share of one server's resource that the job can use in a slot."""
    share = Fraction(0)
    most = (job.max_workers, job.ps_needed(job.max_workers))
    for side in (Side.WORKER,) if exact.is_shared else (Side.WORKER, Side.PS):
        servers = exact.servers(side)
        for c in range(len(servers.count)):
            capacities = {servers.capacity_at(c, slot) for slot in range(job.arrival, job.deadline + 1)}
            for capacity in capacities:
                for demand in job.demands:
                    if exact.is_shared:
                        beside = (
                            (y, ps_beside_on_one(demand, capacity, exact.share, y, most[1])) for y in range(most[0] + 1)
                        )
                        pairs = [(y, z) for y, z in beside if z >= 0]
                    elif side is Side.WORKER:
                        pairs = [(units_on_server(demand.worker, capacity, exact.share, most[0]), 0)]
                    else:
                        pairs = [(0, units_on_server(demand.ps, capacity, exact.share, most[1]))]
                    for y, z in pairs:
                        for worker, ps, limit in zip(demand.worker, demand.ps, capacity, strict=True):
                            used = y * worker + z * ps
                            if used:
                                share = max(share, Fraction(used, limit))
    return share

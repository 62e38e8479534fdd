"""The best payoff of one job at given prices, rounded up: what row (21) asks of the job's payoff.

Only schedules without superfluous workers and PSs are looked at. Every plan can be stripped of them
(PSs beyond row (6), workers of the last slot beyond row (2), slots after the work is done) without
violating a row or losing value, and a bound on stripped plans bounds them all.
"""

import math

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from optim.models.admission.check.facts import Facts, JobFacts
from optim.models.admission.check.restrictions import Restriction
from optim.models.admission.check.rounding import UNIT_ROUNDOFF, shrink_factor
from optim.models.admission.check.slots import Prices, Pricing, no_prices, slot_costs
from optim.models.admission.instance import FloatArray, IntArray

BLOCK = 2**17
"""Elements of one block of the dynamic programme's sums, small enough for a cache."""

UNDERFLOW = 1e-290
"""More than all that products of tiny prices can lose below the smallest double."""


def least_payoff(
    facts: Facts, job: JobFacts, prices: Prices, restriction: Restriction, *, enough: float = -math.inf
) -> float:
    """Return the largest value less cost of the job's schedules, rounded up.

    Parameters
    ----------
    facts, job
        The instance and the job.
    prices
        Non-negative prices.
    restriction
        What branches leave of the schedules.
    enough
        Schedules that can't be worth more than this are left out: their costs are at least 0.

    Returns
    -------
    float
        An upper bound on value less cost over all schedules that may be worth more than `enough`;
        -infinity if there is none.
    """
    ceiling = _ceiling(job, restriction)
    worthwhile = np.flatnonzero(ceiling > max(enough, 0.0))
    is_late = any(slot < job.arrival for slot in restriction.forced_slots)
    if restriction.is_refused or restriction.is_contradictory or is_late or not worthwhile.size:
        return -math.inf
    slots = range(job.arrival, int(worthwhile[-1]) + 1)
    pricing = Pricing(facts=facts, job=job, slots=slots, prices=prices, restriction=restriction)
    cost = completion_costs(pricing)
    value = ceiling[slots.start : slots.stop]
    can_complete = np.isfinite(cost) & (value > 0)
    if not can_complete.any():
        return -math.inf
    value, cost = value[can_complete], cost[can_complete]
    rounding = (value + cost) * (4 * UNIT_ROUNDOFF) + UNDERFLOW
    return float((value - cost * shrink_factor(pricing.num_operations) + rounding).max())


def has_schedule(facts: Facts, job: JobFacts, restriction: Restriction) -> bool:
    """Tell whether any schedule of the job meets the restriction."""
    return least_payoff(facts, job, no_prices(facts), restriction) > -math.inf


def completion_costs(pricing: Pricing) -> FloatArray:
    """Return the least cost of completing the job in each slot exactly, infinite if impossible.

    A dynamic programme over the progress done before a slot.
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
    # Fewer workers with the same progress serve as well: of equal ones only the first count.
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


def _ceiling(job: JobFacts, restriction: Restriction) -> FloatArray:
    """Return the most that completing in a slot or later earns, rounded up; 0 where it is not allowed.

    The later slots are there because utilities may rise by a rounding error, and stripping a plan
    of superfluous workers may bring its completion forward.
    """
    rounded = np.array(job.worth) * (1.0 + 2.0 * job.worth_error)
    ceiling = np.maximum.accumulate(rounded[::-1])[::-1].copy()
    ceiling[: max(job.arrival, restriction.after + 1, *restriction.forced_slots, 0)] = 0.0
    if restriction.until is not None:
        ceiling[max(restriction.until + 1, 0) :] = 0.0
    return ceiling


def _widened(table: FloatArray, width: int) -> FloatArray:
    """Return a table with infinite costs for counts that it lacks."""
    result = np.full((table.shape[0], width), np.inf)
    result[:, : table.shape[1]] = table
    return result


def _only(cost: FloatArray, start: int, end: int) -> FloatArray:
    """Return the costs with everything outside a range of progress made infinite."""
    if start == 0 and end >= len(cost):
        return cost
    result = np.full_like(cost, np.inf)
    result[start:end] = cost[start:end]
    return result


def _finished(cost: FloatArray, slot_cost: FloatArray, finish: IntArray) -> float:
    """Return the least cost of finishing in this slot: `finish` workers from each progress."""
    first = int(np.searchsorted(-finish, -(len(slot_cost) - 1), side="left"))
    if first >= len(cost):
        return math.inf
    return float((cost[first:] + slot_cost[finish[first:]]).min())


class _Advance:
    """One slot's step of the programme, for given progress of each choice; keeps its memory between slots."""

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

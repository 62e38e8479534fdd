"""Check the minimum cost of a job over zones from the traces alone, by (B.13) of docs/mathematics/bidding.md.

A potential assigns to every situation a lower bound of the remaining cost. The checker verifies that each step costs at
least the decrease of the potential. Summed over the steps, every plan then costs at least the potential of the start.
A situation consists of a tick, the time without work so far, and either the zone of the saved state (if there are no
machines) or the place (zone and kind, spot or on demand) of machines that are set up. Steps are:

- wait for one tick;
- launch machines, and use them until the first tick after the set-up, or until the job's end if that is earlier;
- launch machines, and lose them free of charge;
- work for one tick, or until the job's end;
- return the machines.

A launch that ends before its set-up leads to the same situation as waiting, and costs no less.
"""

from collections.abc import Iterator

import numpy as np

from optim.core.arrays import BoolArray, IntArray
from optim.models.bidding.market.billing import Billing, PlaceCosts, bill_stay, place_costs
from optim.models.bidding.market.prices import HOUR_S
from optim.models.bidding.market.zones import KINDS, Optimum, ZoneJob, ZoneMarket

LARGEST = 2**60
"""Largest potential; sums of larger ones could overflow."""

NEVER = -(2**61)
"""Potential of situations without steps; below every other potential."""


def check_optimum(
    market: ZoneMarket, job: ZoneJob, claim: Optimum, billing: Billing = Billing.PER_SECOND
) -> tuple[str, ...]:
    """Return the errors of a claim; empty if its plan's cost is correct and its potential proves the bound.

    Parameters
    ----------
    market, job
        The traces and the job.
    claim
        The claim.
    billing
        The billing rule.
    """
    shape = (job.num_ticks(market.tick_s) + 1, job.slack_s // job.unit_s(market.tick_s) + 1)
    zones, classes = market.num_zones, int(job.state_class.max()) + 1
    if claim.idle.shape != (*shape, classes) or claim.working.shape != (*shape, KINDS * zones):
        return ("the shape of the potential doesn't match the job",)
    for values in (claim.idle, claim.working):
        if values.dtype != np.int64 or (np.abs(values) > LARGEST).any():
            return ("the potential must have integers of at most 2^60",)
    costs = place_costs(market, job, claim.first, billing)
    problems = [*_plan_problems(market, job, claim, costs, billing), *_Steps(market, job, claim, costs).problems()]
    if claim.units > claim.idle[0, 0, 0]:
        problems.append(f"a minimum cost of {claim.units} is claimed, but the potential proves {claim.idle[0, 0, 0]}")
    if claim.plan_units < claim.units or (costs.is_exact and claim.plan_units != claim.units):
        problems.append(f"the plan costs {claim.plan_units}, but a minimum cost of {claim.units} is claimed")
    return tuple(problems)


def _plan_problems(
    market: ZoneMarket, job: ZoneJob, claim: Optimum, costs: PlaceCosts, billing: Billing
) -> Iterator[str]:
    """Yield the errors of a plan in availability, overlaps, work, deadline and cost."""
    now, work, paid, state, tick_s = 0, 0, 0, 0, market.tick_s
    for number, stay in enumerate(claim.plan):
        is_last = number == len(claim.plan) - 1
        if not (now <= stay.begin_s < stay.end_s <= job.deadline_s and 0 <= stay.zone < market.num_zones):
            yield f"the stay from {stay.begin_s} to {stay.end_s} s overlaps another, or the deadline"
            return
        if stay.begin_s % tick_s or (stay.end_s % tick_s and not is_last):
            yield f"the stay from {stay.begin_s} to {stay.end_s} s begins or ends between ticks"
        place, begin, end = KINDS * stay.zone + (not stay.is_spot), stay.begin_s // tick_s, -(-stay.end_s // tick_s)
        if not costs.has[begin:end, place].all():
            yield f"{market.zones[stay.zone]} isn't available throughout ticks {begin} to {end}"
        if stay.is_lost and (is_last or stay.end_s % tick_s or costs.has[end, place]):
            yield f"{market.zones[stay.zone]} isn't lost at {stay.end_s} s"
        setup = int(job.setup_s[state, stay.zone])
        work += max(0, stay.end_s - stay.begin_s - setup)
        paid += bill_stay(market, job, claim.first, stay, billing).units
        paid += HOUR_S * int(job.move_micro[state, stay.zone])
        state = 1 + stay.zone if stay.end_s - stay.begin_s >= setup else state
        now = stay.end_s
    if work != job.work_s:
        yield f"the plan does {work} s of work, but the job needs {job.work_s} s"
    if paid != claim.plan_units:
        yield f"the plan costs {paid}, not {claim.plan_units}"


class _Steps:
    """The steps of (B.13) over all ticks (rows) and units of time without work (columns) at once.

    Arrays of potentials have the units of time without work as their last axis, so that contiguous rows are compared.
    Situations without steps have the potential `NEVER`, so that they never violate a condition.
    """

    def __init__(self, market: ZoneMarket, job: ZoneJob, claim: Optimum, costs: PlaceCosts) -> None:
        self.job, self.costs = job, costs
        self.tick_s, self.unit_s = market.tick_s, job.unit_s(market.tick_s)
        self.ticks, self.steps = len(costs.cost), job.slack_s // self.unit_s
        lost_s = self.unit_s * np.arange(self.steps + 1)
        tick = np.arange(self.ticks)[:, None]
        self.remaining_s = job.work_s - tick * self.tick_s + lost_s
        self.is_open = (lost_s <= tick * self.tick_s) & (self.remaining_s > 0)
        self.idle, self.working = (
            np.ascontiguousarray(values.transpose(0, 2, 1)) for values in (claim.idle, claim.working)
        )
        self.state_class = job.state_class
        self.from_idle = np.where(self.is_open[:, None], self.idle[:-1], NEVER)
        zero = np.zeros((1, costs.cost.shape[1]), dtype=np.int64)
        self.total = np.concatenate([zero, np.cumsum(costs.cost, axis=0)])
        self.lacks = np.concatenate([zero, np.cumsum(~costs.has, axis=0)])

    def problems(self) -> Iterator[str]:
        """Yield a message for each kind of step that costs less than the decrease of the potential."""
        per_tick = self.tick_s // self.unit_s
        waited = self.idle[1:, :, per_tick:]
        if (self.from_idle[:, :, : waited.shape[2]] > waited).any():
            yield "waiting a tick lowers the potential"
        first_of_class = np.unique(self.state_class, return_index=True)[1]
        for place in range(self.costs.cost.shape[1]):
            zone = place // KINDS
            place_working = np.where(self.is_open, self.working[:-1, place], NEVER)
            if self._lowers(place_working, place, setup_s=0, move_cost=0):
                yield f"a tick of work at place {place} costs less than the potential falls"
            if (place_working > self.idle[:-1, self.state_class[1 + zone]]).any():
                yield f"returning machines of place {place} lowers the potential"
            for state in first_of_class:
                now = self.from_idle[:, self.state_class[state]]
                setup_s, move_cost = int(self.job.setup_s[state, zone]), HOUR_S * int(self.job.move_micro[state, zone])
                if self._lowers(now, place, setup_s, move_cost) or self._free_lowers(now, place, setup_s, move_cost):
                    yield f"a launch at place {place} with the state at {state} costs less than the potential falls"

    def _lowers(self, now: IntArray, place: int, setup_s: int, move_cost: int) -> bool:
        """Return whether the use of machines costs less than the decrease of the potential.

        Machines are used until the first tick after the set-up, or until the job's end if that is earlier.
        """
        lost, num_ticks = setup_s // self.unit_s, max(1, -(-setup_s // self.tick_s))
        if lost > self.steps or num_ticks > self.ticks:
            return False
        size, count = self.steps + 1 - lost, self.ticks + 1 - num_ticks
        before = self.total[num_ticks - 1 : self.ticks, place] - self.total[:count, place] + move_cost
        last = self.costs.cost[num_ticks - 1 :, place]
        lacks = self.lacks[num_ticks:, place] != self.lacks[:count, place]
        before = np.where(lacks, LARGEST, before)
        now = now[:count, :size]
        then = self.working[num_ticks:, place, lost:] + (before + last)[:, None]
        # Remaining work increases with the time without work: the job can end within the last tick only from this row on.
        ending = int(np.searchsorted(-self.remaining_s[:count, 0], setup_s - num_ticks * self.tick_s))
        seconds = self.remaining_s[ending:count, :size] + (setup_s - (num_ticks - 1) * self.tick_s)
        paid = last[ending:, None] if self.costs.is_whole else last[ending:, None] // self.tick_s * seconds
        then[ending:] = np.where(seconds <= self.tick_s, before[ending:, None] + paid, then[ending:])
        return bool((now > then).any())

    def _free_lowers(self, now: IntArray, place: int, setup_s: int, move_cost: int) -> bool:
        """Return whether a launch of machines that are lost free of charge costs less than the decrease of the potential."""
        lost, gone = setup_s // self.unit_s, self.costs.free_until[:, place]
        lease_s = (gone - np.arange(self.ticks)) * self.tick_s
        rows = np.flatnonzero((lease_s > 0) & (lease_s >= setup_s))
        if not len(rows) or lost > self.steps:
            return False
        size = self.steps + 1 - lost
        then = move_cost + self.idle[gone[rows], self.state_class[1 + place // KINDS], lost:]
        is_step: BoolArray = self.remaining_s[rows, :size] + setup_s > lease_s[rows, None]
        return bool((is_step & (now[rows, :size] > then)).any())

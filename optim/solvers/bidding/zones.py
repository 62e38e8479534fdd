"""The minimal cost of a deadline job over zones.

A situation is a tick, the idle time so far, and either no machines and the zone of the job's saved state, or machines
that are set up in a zone. The minimal remaining costs, computed backwards, are also the potential that proves the
minimal cost: (B.13) of docs/mathematics/bidding.md.
"""

import numpy as np

from optim.compiled import compiled
from optim.core.arrays import BoolArray, IntArray
from optim.core.errors import InvalidOptionError, check_choices
from optim.models.bidding.market.billing import Billing, bill_stay, place_costs
from optim.models.bidding.market.prices import HOUR_S
from optim.models.bidding.market.zones import (
    KINDS,
    Allocation,
    Optimum,
    ZoneJob,
    ZoneMarket,
)

FAR = 2**58
"""Value of situations in which the job can't finish in time."""

MAX_VALUES = 2**27
"""Maximal number of values in memory at once, 1 GiB."""


def least_cost(market: ZoneMarket, job: ZoneJob, first: int, billing: Billing = Billing.PER_SECOND) -> Optimum:
    """Return the minimal cost of a job that starts at a tick, with plan and proof.

    Parameters
    ----------
    market, job
        The traces and the job.
    first
        The starting tick.
    billing
        The billing rule. Under Amazon's rules only a lower bound is proven; the plan's bill may be slightly higher.

    Raises
    ------
    InvalidOptionError
        If the billing rule is unknown. Also if the values need more than a GiB, because the deadline is late, or set-ups
        and ticks have a small common divisor.
    InvalidProblemError
        If the traces end before the deadline, the job's zones differ, or its costs are too large to be exact.

    Notes
    -----
    No policy that acts at ticks pays less. Let u be the greatest common divisor of ticks and set-ups. Time and memory
    grow with ticks x (deadline - work) / u x zones; time also with the number of classes of saved states.
    """
    check_choices({"billing": billing}, {"billing": [rule.value for rule in Billing]})
    billing = Billing(billing)
    tick_s, unit = market.tick_s, job.unit_s(market.tick_s)
    ticks, steps = job.num_ticks(tick_s), job.slack_s // unit
    state_class = job.state_class
    rows = np.unique(state_class, return_index=True)[1]
    if (ticks + 1) * (steps + 1) * (KINDS * market.num_zones + len(rows)) > MAX_VALUES:
        raise InvalidOptionError(
            f"a job of {job.work_s} s with {job.slack_s} s of slack needs more than a GiB of memory in time steps of {unit} s, the common "
            f"divisor of ticks ({tick_s} s) and set-ups; give an earlier deadline, or set-ups with a larger common divisor"
        )
    costs = place_costs(market, job, first, billing)
    setup, move, classes = job.setup_s[rows] // unit, HOUR_S * job.move_micro[rows], state_class[1:]
    times = (tick_s // unit, unit, job.work_s, steps, costs.is_whole)
    idle, working = _values(costs.cost, costs.has, costs.free_until, setup, move, classes, times)
    stays = _plan(costs.cost, costs.has, costs.free_until, setup, move, classes, times, idle, working)
    plan = tuple(
        Allocation(zone=p // KINDS, is_spot=p % KINDS == 0, begin_s=b, end_s=e, is_lost=bool(lost))
        for p, b, e, lost in stays.tolist()
    )
    bills = sum(bill_stay(market, job, first, stay, billing).units for stay in plan)
    state, moves = 0, 0
    for stay in plan:
        moves += HOUR_S * int(job.move_micro[state, stay.zone])
        if stay.end_s - stay.begin_s >= job.setup_s[state, stay.zone]:
            state = 1 + stay.zone
    return Optimum(
        first=first,
        units=int(idle[0, 0, 0]),
        plan_units=bills + moves,
        plan=plan,
        idle=idle.transpose(0, 2, 1),
        working=working.transpose(0, 2, 1),
    )


@compiled
def _values(
    cost: IntArray,
    has: BoolArray,
    free_until: IntArray,
    setup: IntArray,
    move: IntArray,
    classes: IntArray,
    times: tuple[int, int, int, int, bool],
) -> tuple[IntArray, IntArray]:
    """Return the minimal remaining costs, as `Optimum.idle` and `Optimum.working`, but with the idle units as last index.

    `times` are units per tick, seconds per unit, seconds of work, maximal idle units, and whether the last tick is
    charged in full. Rows of `setup` and `move` are classes of saved states; `classes` is the class of a state in each zone. The
    cost of a step hardly depends on the idle units, so the processor's vector instructions handle all of them at once.
    """
    per_tick, unit, work, steps, is_whole = times
    tick_s = per_tick * unit
    ticks, places, states = len(cost), cost.shape[1], len(setup)
    idle = np.full((ticks + 1, states, steps + 1), FAR)
    working = np.full((ticks + 1, places, steps + 1), FAR)
    paid = np.zeros((ticks + 1, places), np.int64)
    until = np.empty((ticks + 1, places), np.int64)
    until[ticks] = ticks
    for t in range(ticks):
        for p in range(places):  # slice assignment takes seconds to compile
            paid[t + 1, p] = paid[t, p] + cost[t, p]
    for t in range(ticks - 1, -1, -1):
        for p in range(places):
            until[t, p] = until[t + 1, p] if has[t, p] else t
    for t in range(ticks, -1, -1):
        size = min(t * per_tick, steps) + 1
        late_s = t * tick_s - work
        done = _within(late_s, unit, size)  # idle units for which no work remains
        for c in range(states):
            for lost in range(done):
                idle[t, c, lost] = 0
            if t < ticks:
                _lower(idle[t, c, done:size], idle[t + 1, c, done + per_tick :], 0)
        for p in range(places):
            for lost in range(done):
                working[t, p, lost] = 0
            if has[min(t, ticks - 1), p] and t < ticks:
                now = working[t, p]
                _end(now[done:size], 0, cost[t, p], tick_s, unit, work + done * unit - t * tick_s, is_whole)
                begin = max(done, _within(late_s + tick_s, unit, size))
                _lower(now[begin:size], working[t + 1, p, begin:], cost[t, p])
        for p in range(places if t < ticks else 0):
            for c in range(states):
                s = setup[c, p // KINDS]
                open_size = min(size, steps + 1 - s)
                start = move[c, p // KINDS]
                num_ticks = max(1, -(-s // per_tick))
                if until[t, p] - t >= num_ticks:
                    before = start + paid[t + num_ticks - 1, p] - paid[t, p]
                    last_s = s * unit - (num_ticks - 1) * tick_s  # seconds of the set-up in its last tick
                    last = cost[t + num_ticks - 1, p]
                    now = idle[t, c]
                    remaining_s = last_s + work + done * unit - t * tick_s
                    _end(now[done : max(done, open_size)], before, last, tick_s, unit, remaining_s, is_whole)
                    begin = max(done, _within(late_s + tick_s - last_s, unit, size))
                    if begin < open_size:
                        _lower(now[begin:open_size], working[t + num_ticks, p, begin + s :], before + last)
                gone = free_until[t, p]
                if (gone - t) * per_tick >= s and gone > t:
                    begin = max(done, _within((gone - t) * tick_s - s * unit + late_s, unit, size))
                    if begin < open_size:
                        _lower(idle[t, c, begin:open_size], idle[gone, classes[p // KINDS], begin + s :], start)
        for p in range(places):
            _lower(working[t, p, done:size], idle[t, classes[p // KINDS], done:size], 0)
    return idle, working


@compiled
def _within(late_s: int, unit: int, size: int) -> int:
    """Return how many of the idle times of 0 to ``size - 1`` units are at most `late_s` seconds."""
    return min(size, max(0, late_s // unit + 1))


@compiled
def _lower(value: IntArray, other: IntArray, more: int) -> None:
    """Lower each entry of `value` to the entry of `other` plus the cost `more`, if that is lower."""
    for k in range(min(len(value), len(other))):
        value[k] = min(value[k], other[k] + more)


@compiled
def _end(value: IntArray, before: int, last: int, tick_s: int, unit: int, remaining_s: int, is_whole: bool) -> None:
    """Lower values to the cost of ending the job within a tick; value k needs `remaining_s` seconds plus k units."""
    for k in range(min(len(value), max(0, (tick_s - remaining_s) // unit + 1))):
        value[k] = min(value[k], before + (last if is_whole else last // tick_s * (remaining_s + k * unit)))


@compiled
def _plan(
    cost: IntArray,
    has: BoolArray,
    free_until: IntArray,
    setup: IntArray,
    move: IntArray,
    classes: IntArray,
    times: tuple[int, int, int, int, bool],
    idle: IntArray,
    working: IntArray,
) -> IntArray:
    """Return a cheapest plan's stays as rows (place, begin, end, is_lost); the plan waits wherever waiting costs no more.

    Places 2 z and 2 z + 1 are the spot and the on-demand machines of zone z.

    Values have the idle units as last index, as returned by `_values`.
    """
    per_tick, unit, work, steps, is_whole = times
    tick_s, ticks, places = per_tick * unit, len(cost), cost.shape[1]
    stays = np.empty((ticks + 1, 4), np.int64)
    size, t, lost, state = 0, 0, 0, 0
    while work - t * tick_s + lost * unit > 0:
        value, remaining_s = idle[t, state, lost], work - t * tick_s + lost * unit
        if lost + per_tick <= steps and idle[t + 1, state, lost + per_tick] == value:
            t, lost = t + 1, lost + per_tick
            continue
        end, gone = 0, 0
        for p in range(places):
            s = setup[state, p // KINDS]
            num_ticks = max(1, -(-s // per_tick))
            if lost + s > steps or not has[t, p]:
                continue
            start = move[state, p // KINDS]
            gone = free_until[t, p]
            is_free = (gone - t) * per_tick >= s and gone > t and s * unit + remaining_s > (gone - t) * tick_s
            if is_free and start + idle[gone, classes[p // KINDS], lost + s] == value:
                end = gone * tick_s
                break
            gone = 0
            if t + num_ticks > ticks or not has[t : t + num_ticks, p].all():
                continue
            before = start + cost[t : t + num_ticks - 1, p].sum()
            last_s = s * unit + remaining_s - (num_ticks - 1) * tick_s
            if last_s <= tick_s:
                if (
                    before + (cost[t + num_ticks - 1, p] if is_whole else cost[t + num_ticks - 1, p] // tick_s * last_s)
                    == value
                ):
                    end = (t + num_ticks - 1) * tick_s + last_s
                    break
            elif before + cost[t + num_ticks - 1, p] + working[t + num_ticks, p, lost + s] == value:
                break
        stays[size, 0], stays[size, 1] = p, t * tick_s
        lost, state = lost + s, classes[p // KINDS]
        if end == 0:
            t += num_ticks
            remaining_s = work - t * tick_s + lost * unit
            while end == 0 and t < ticks and has[t, p]:
                if remaining_s <= tick_s:
                    if working[t, p, lost] != (cost[t, p] if is_whole else cost[t, p] // tick_s * remaining_s):
                        break
                    end = t * tick_s + remaining_s
                elif working[t, p, lost] == cost[t, p] + working[t + 1, p, lost]:
                    t, remaining_s = t + 1, remaining_s - tick_s
                else:
                    break
        is_done = end > 0 and gone == 0
        stays[size, 2] = end if end > 0 else t * tick_s
        stays[size, 3] = gone > 0 or (not is_done and t < ticks and not has[t, p])
        size += 1
        if is_done:
            break
        if gone > 0:
            t = gone
    return stays[:size]

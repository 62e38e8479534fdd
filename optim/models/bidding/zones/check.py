"""Check the least cost of a job over zones from the traces alone, by (B.13) of docs/mathematics/bidding.md.

Let a potential say of every situation how much is still to be paid at least. If no step, whatever it is, costs less than
the potential falls by it, then no plan from the start costs less than the start's potential: the sum over its steps.
Situations are ticks, ticks without work so far, and either a place of the state with nothing held, or a place where
machines are set up. Steps are: wait a tick; launch, and hold through the set-up, or a first tick of work if there is none; work a
tick; return the machines. A
launch that is given up, or lost, before its set-up ends leaves what waiting leaves, and costs no less.
"""

from collections.abc import Iterator

import numpy as np

from optim.models.bidding.instance import BoolArray, IntArray
from optim.models.bidding.zones.market import HOUR_S, KINDS, Optimum, ZoneJob, ZoneMarket, place_costs

LARGEST = 2**60
"""Larger potentials could overflow where they are added."""


def check_optimum(market: ZoneMarket, job: ZoneJob, claim: Optimum) -> tuple[str, ...]:
    """Return what is wrong with a claim: nothing if its plan costs what it says, and its potential proves it.

    Parameters
    ----------
    market, job
        The traces and the job.
    claim
        What is claimed.
    """
    slack = job.deadline - job.work
    shape = (job.deadline + 1, slack + 1)
    zones = market.num_zones
    if claim.idle.shape != (*shape, zones + 1) or claim.working.shape != (*shape, KINDS * zones):
        return ("the potential has the shape of another job",)
    for values in (claim.idle, claim.working):
        if values.dtype != np.int64 or (np.abs(values) > LARGEST).any():
            return ("the potential must be whole numbers below 2^60",)
    cost, has = place_costs(market, job, claim.first)
    problems = [*_plan_problems(market, job, claim, cost, has), *_step_problems(job, claim, cost, has)]
    if claim.units > claim.idle[0, 0, 0]:
        problems.append(f"the least cost is said to be {claim.units}, the potential proves {claim.idle[0, 0, 0]}")
    return tuple(problems)


def _plan_problems(market: ZoneMarket, job: ZoneJob, claim: Optimum, cost: IntArray, has: BoolArray) -> Iterator[str]:
    """Yield what is wrong with a plan: what can't be had, overlaps, work, deadline and bill."""
    now, work, paid, state = 0, 0, 0, 0
    for stay in claim.plan:
        if not (now <= stay.begin < stay.end <= job.deadline and 0 <= stay.zone < market.num_zones):
            yield f"the stay from {stay.begin} to {stay.end} overlaps another, or the deadline"
            return
        place = KINDS * stay.zone + (not stay.is_spot)
        if not has[stay.begin : stay.end, place].all():
            yield f"{market.zones[stay.zone]} can't be had throughout ticks {stay.begin} to {stay.end}"
        setup = int(job.setup[state, stay.zone])
        work += max(0, stay.end - stay.begin - setup)
        paid += int(cost[stay.begin : stay.end, place].sum()) + HOUR_S * int(job.move_micro[state, stay.zone])
        state = 1 + stay.zone if stay.end - stay.begin >= setup else state
        now = stay.end
    if work != job.work:
        yield f"the plan works {work} of {job.work} ticks"
    if paid != claim.units:
        yield f"the plan costs {paid}, not {claim.units}"


def _step_problems(job: ZoneJob, claim: Optimum, cost: IntArray, has: BoolArray) -> Iterator[str]:
    """Yield the kinds of steps that cost less than the potential falls."""
    deadline, slack = job.deadline, job.deadline - job.work
    tick, lost = np.arange(deadline)[:, None], np.arange(slack + 1)
    left = job.work - tick + lost
    is_open = (lost <= tick) & (left > 0)
    idle, working = claim.idle[:-1], claim.working[:-1]
    total = np.concatenate([np.zeros((1, cost.shape[1]), dtype=np.int64), np.cumsum(cost, axis=0)])
    lacks = np.concatenate([np.zeros((1, cost.shape[1]), dtype=np.int64), np.cumsum(~has, axis=0)])
    waited = claim.idle[1:, 1:]
    if (is_open[:, :-1, None] & (idle[:, :-1] > waited)).any():
        yield "waiting a tick lowers the potential"
    for place in range(cost.shape[1]):
        zone = place // KINDS
        worked = cost[:, place, None] + np.where(left == 1, 0, claim.working[1:, :, place])
        if (is_open & has[:, place, None] & (working[:, :, place] > worked)).any():
            yield f"a tick of work at place {place} costs less than the potential falls"
        if (is_open & (working[:, :, place] > idle[:, :, 1 + zone])).any():
            yield f"returning machines of place {place} lowers the potential"
        for state in range(job.setup.shape[0]):
            setup, move = int(job.setup[state, zone]), HOUR_S * int(job.move_micro[state, zone])
            if setup > slack:
                continue
            rows = slice(0, deadline - setup)
            ready = claim.working[setup:deadline, setup:, place]
            if setup == 0:  # a launch that is ready at once works its first tick
                ready = np.where(has[:, place, None], worked, LARGEST)
            paid = (total[setup:deadline, place] - total[rows, place])[:, None] + move
            can = (lacks[setup:deadline, place] == lacks[rows, place])[:, None] & is_open[rows, : slack + 1 - setup]
            if (can & (idle[rows, : slack + 1 - setup, state] > paid + ready)).any():
                yield f"a launch at place {place} with the state at {state} costs less than the potential falls"

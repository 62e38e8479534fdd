"""The checker of least costs rejects every bill, plan and potential that claims too much."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.models.bidding.check.zones import check_optimum
from optim.models.bidding.market.billing import Billing, place_costs
from optim.models.bidding.market.zones import Allocation, ZoneJob
from optim.solvers.bidding.zones import least_cost
from tests.support.spot.zones import cheapest_by_trying, drawn, drawn_in_seconds, zone_job, zone_market


@pytest.fixture(scope="module")
def claim():
    """A job that moves between two zones, and its least cost."""
    market = zone_market("xxx---", "---xxx", spot=[1.0, 1.0])
    job = zone_job(market, 4, 7 - 1, move=0.25)
    return market, job, least_cost(market, job, 0)


def lifted(values, amount):
    """Return a potential whose first entry is larger by an amount."""
    found = values.copy()
    found[0, 0, 0] += amount
    return found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: {"plan_units": c.units + 1}, "the plan costs"),
        (lambda c: {"plan_units": c.units - 1}, "the plan costs"),
        (lambda c: {"units": c.units - 1}, "but a minimum cost of"),
        (lambda c: {"units": c.units + 1, "plan_units": c.units + 1}, "the potential proves"),
        (lambda c: {"plan": (c.plan[0], replace(c.plan[1], is_lost=True))}, "z1 isn't lost at 21600 s"),
        (lambda c: {"plan": (replace(c.plan[0], end_s=9000), c.plan[1])}, "begins or ends between ticks"),
        (lambda c: {"plan": c.plan[:1]}, "the plan does 7200 s of work, but the job needs 14400 s"),
        (lambda c: {"plan": (Allocation(0, True, 0, 14_400), *c.plan[1:])}, "overlaps another"),
        (lambda c: {"plan": (*c.plan[:1], Allocation(1, True, 10_800, 25_200))}, "overlaps another, or the deadline"),
        (
            lambda c: {"plan": (Allocation(1, True, 0, 10_800), *c.plan[1:])},
            "z1 isn't available throughout ticks 0 to 3",
        ),
        (lambda c: {"plan": (Allocation(2, True, 0, 10_800), *c.plan[1:])}, "overlaps"),
        (lambda c: {"idle": lifted(c.idle, 1)}, "costs less than the potential falls"),
        (lambda c: {"idle": c.idle - 1}, "the potential proves"),
        (lambda c: {"working": c.working + 1}, "returning machines"),
        (lambda c: {"idle": c.idle[:-1]}, "doesn't match the job"),
        (lambda c: {"idle": c.idle.astype(float)}, "must have integers"),
        (lambda c: {"idle": c.idle + 2**61}, "at most 2"),
    ],
)
def test_refuses_what_is_not_so(claim, change, message):
    market, job, best = claim
    assert check_optimum(market, job, best) == ()
    assert any(message in problem for problem in check_optimum(market, job, replace(best, **change(best))))


def test_a_stay_shorter_than_its_set_up_leaves_nothing_to_start_from():
    """The first of two allocations ends before its two ticks of set-up; the second has to start the set-up again."""
    market = zone_market("xxxxxxxxxx", spot=[1.0])
    job = zone_job(market, 3, 10, setup=[[2], [1]])
    claim = replace(
        least_cost(market, job, 0), plan=(Allocation(0, True, 10_800, 14_400), Allocation(0, True, 18_000, 32_400))
    )
    assert any(
        "the plan does 7200 s of work, but the job needs 10800 s" in problem
        for problem in check_optimum(market, job, claim)
    )


@pytest.mark.parametrize("state", range(4))
def test_refuses_a_potential_that_takes_launches_from_any_state_for_dearer_than_they_are(state):
    """Never launched, or last in any of three zones: the potential of a job whose launches from there cost $5 more."""
    market = zone_market("xxxxx", "xxxxx", "xxxxx", spot=[1.0, 1.5, 2.0])
    job, dear = zone_job(market, 2, 5), zone_job(market, 2, 5)
    for each in (job, dear):
        each.move_micro[:] += np.arange(4)[:, None]  # all states differ
    dear.move_micro[state] += 5_000_000
    above = least_cost(market, dear, 0)
    claim = replace(least_cost(market, job, 0), idle=above.idle, working=above.working)
    wrong = [problem for problem in check_optimum(market, job, claim) if "launch" in problem]
    assert wrong
    assert all(f"with the state at {state} costs less" in problem for problem in wrong)


@given(seed=st.integers(0, 10**6), data=st.data(), draw=st.sampled_from([drawn, drawn_in_seconds]))
def test_a_potential_that_says_more_than_the_least_is_never_taken(seed, data, draw):
    market, job = draw(seed, ticks=7)
    best = least_cost(market, job, 0)
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    values = {name: getattr(best, name) + rng.integers(0, 2, getattr(best, name).shape) for name in ("idle", "working")}
    claim = replace(best, **values, units=best.units + 1)
    assert any("potential" in problem for problem in check_optimum(market, job, claim))
    assert best.units == cheapest_by_trying(market, job)


def test_a_launch_that_is_ready_at_once_works_its_first_tick():
    # Passing through the second zone without a tick of work there would make the move to the third free.
    market = zone_market("x----", "xxxxx", "-xxxx", spot=[1.0, 9.0, 1.0])
    job = zone_job(market, 4, 4, setup=0)
    job.move_micro[1, 2] = 10_000_000
    best = least_cost(market, job, 0)
    assert check_optimum(market, job, best) == ()
    assert best.units == cheapest_by_trying(market, job)


def test_a_launch_after_whose_set_up_the_job_ends_within_a_tick_costs_no_more_than_its_seconds():
    market = zone_market("xxx", spot=[1.0], tick_s=600)
    setup_s = np.full((2, 1), 720)
    job = ZoneJob(work_s=300, deadline_s=1020, setup_s=setup_s, move_micro=np.zeros((2, 1), dtype=np.int64))
    best = least_cost(market, job, 0)
    assert best.units == 1020 * 1_000_000
    more = replace(best, units=best.units + 1, plan_units=best.units + 1, idle=lifted(best.idle, 1))
    assert any("a launch at place 0" in problem for problem in check_optimum(market, job, more))


def lowered(market, job, claim, billing):
    """Return the types of steps of (B.13) that cost less than the potential falls, by a loop over all states."""
    costs, tick_s, unit = place_costs(market, job, claim.first, billing), market.tick_s, job.unit_s(market.tick_s)
    ticks, steps = len(costs.cost), job.slack_s // unit
    found = set()

    def held(t, lost, place, setup_s):
        """Return the cost of a launch, and the tick and units without work after it; None if it isn't available."""
        count = max(1, -(-setup_s // tick_s))
        end, then = t + count, lost + setup_s // unit
        if end > ticks or then > steps or not costs.has[t:end, place].all():
            return None
        last_s = job.work_s - t * tick_s + lost * unit + setup_s - (count - 1) * tick_s
        before, last = int(costs.cost[t : end - 1, place].sum()), int(costs.cost[end - 1, place])
        if last_s <= tick_s:
            return before + (last if costs.is_whole else last // tick_s * last_s)
        return before + last + int(claim.working[end, then, place])

    for t in range(ticks):
        for lost in range(min(steps, t * tick_s // unit) + 1):
            left = job.work_s - t * tick_s + lost * unit
            if left <= 0:
                continue
            for c, state in enumerate(np.unique(job.state_class, return_index=True)[1]):
                now, waited = int(claim.idle[t, lost, c]), lost + tick_s // unit
                if waited <= steps and now > claim.idle[t + 1, waited, c]:
                    found.add("waiting")
                for place in range(2 * market.num_zones):
                    setup_s, move = int(job.setup_s[state, place // 2]), 3600 * int(job.move_micro[state, place // 2])
                    cost = held(t, lost, place, setup_s)
                    gone, then = int(costs.free_until[t, place]), lost + setup_s // unit
                    is_free = gone > t and setup_s <= (gone - t) * tick_s < left + setup_s and then <= steps
                    if (cost is not None and now > move + cost) or (
                        is_free and now > move + claim.idle[gone, then, job.state_class[1 + place // 2]]
                    ):
                        found.add(f"a launch at place {place} with the state at {state}")
            for place in range(2 * market.num_zones):
                now, cost = int(claim.working[t, lost, place]), held(t, lost, place, 0)
                if cost is not None and now > cost:
                    found.add(f"a tick of work at place {place}")
                if now > claim.idle[t, lost, job.state_class[1 + place // 2]]:
                    found.add(f"returning machines of place {place}")
    return found


@given(seed=st.integers(0, 10**6), raised=st.integers(0, 3), billing=st.sampled_from(list(Billing)))
def test_finds_every_kind_of_step_that_a_trial_of_each_situation_finds(seed, raised, billing):
    market, job = drawn_in_seconds(seed, ticks=7)
    best = least_cost(market, job, 0, billing)
    rng = np.random.default_rng([seed, raised])
    values = {}
    for name in ("idle", "working"):
        given_values = getattr(best, name)
        values[name] = given_values.copy()
        flat = values[name].reshape(-1)
        flat[rng.integers(0, len(flat), raised)] += 1
    claim = replace(best, **values)
    ends = (" lowers the potential", " costs less than the potential falls", " a tick")
    told = {problem for problem in check_optimum(market, job, claim, billing) if "potential" in problem}
    told = {problem for problem in told if "proves" not in problem}
    for end in ends:
        told = {problem.removesuffix(end) for problem in told}
    assert told == lowered(market, job, claim, billing)

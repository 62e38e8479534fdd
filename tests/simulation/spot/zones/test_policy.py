"""Guarded policies meet every feasible deadline, for any traces and any preferences of the policy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.models.bidding.market.billing import Billing
from optim.simulation.spot.zones import DeadlineGuard, Offer, facts_of, run_zones
from optim.solvers.bidding.zones import least_cost
from tests.support.policies import ZONE_POLICIES
from tests.support.spot.zones import drawn, drawn_in_seconds, ticks_of, zone_job, zone_market


class Restless(DeadlineGuard):
    """Want anything at all, at random."""

    name = "restless"

    def choose(self, view):
        rng = np.random.default_rng([view.tick, view.work_left_s])
        places = [Offer(zone, bool(kind)) for zone in range(len(self.facts.zones)) for kind in (0, 1)]
        return [places[k] for k in rng.permutation(len(places))[: rng.integers(0, len(places) + 1)]]


def keep_their_deadlines(seeds, ticks, billing=Billing.PER_SECOND):
    for seed in seeds:
        market, job = (drawn if seed % 2 else drawn_in_seconds)(seed, ticks=ticks)
        best = least_cost(market, job, 0, billing).units
        for policy in (Restless, *ZONE_POLICIES.values()):
            run = run_zones(market, job, policy(facts_of(market, job, billing)), 0, billing=billing)
            assert run.deadline_met, (seed, policy.name)
            assert run.units >= best, (seed, policy.name)


@given(seed=st.integers(0, 10**9), billing=st.sampled_from(Billing))
def test_no_deadline_is_missed_and_nobody_pays_less_than_the_least(seed, billing):
    keep_their_deadlines(range(seed, seed + 4), 12, billing)


@pytest.mark.prove
def test_no_deadline_is_missed_in_ten_thousand_traces():
    keep_their_deadlines(range(10_000), 24)


def test_on_demand_is_weighed_by_all_machines_of_the_job():
    market = zone_market("xx------", "--------", spot=[1.0, 1.0], on_demand=[3.0, 2.0])
    # Three hours of work and one of set-up, four of a dollar's difference: less than moving one machine, more than four do.
    for machines, zone in ((1, 0), (4, 1)):
        job = zone_job(market, 5, 8, move=5.0, machines=machines)
        policy = ZONE_POLICIES["greedy-spot"](facts_of(market, job))
        chosen = []

        def choose(view, policy=policy, chosen=chosen):
            chosen.append(policy.on_demand(view))
            return (Offer(0, True),) if view.tick < 2 else (chosen[-1],)

        policy.choose = choose
        run_zones(market, job, policy, 0)
        assert chosen[2] == Offer(zone, False)


def test_waits_until_the_last_tick_at_which_on_demand_is_in_time():
    market = zone_market("----------", spot=[1.0])
    job = zone_job(market, 3, 8, setup=2)
    run = run_zones(market, job, ZONE_POLICIES["greedy-spot"](facts_of(market, job)), 0)
    # Five ticks from a launch to the end: the launch is at tick 3, the first at which another tick's wait would be too
    # late.
    assert [ticks_of(stay, market) for stay in run.stays] == [(0, False, 3, 8)]


def test_stays_on_machines_at_work_even_without_a_tick_to_lose():
    market = zone_market("xxxx-xxx", spot=[1.0])
    job = zone_job(market, 5, 6)
    run = run_zones(market, job, ZONE_POLICIES["greedy-spot"](facts_of(market, job)), 0)
    # A launch that may fail would be too late at once; no slack, so on demand from the start.
    assert [ticks_of(stay, market) for stay in run.stays] == [(0, False, 0, 6)]
    loose = zone_job(market, 5, 7)
    run = run_zones(market, loose, ZONE_POLICIES["greedy-spot"](facts_of(market, loose)), 0)
    assert [ticks_of(stay, market) for stay in run.stays] == [(0, True, 0, 4), (0, False, 4, 7)]


def test_launches_on_demand_where_the_state_is_soonest_ready():
    market = zone_market("xx------", "--------", spot=[1.0, 1.0], on_demand=[4.0, 3.0])
    job = zone_job(market, 3, 6, setup=[[1, 1], [1, 3], [3, 1]])
    run = run_zones(market, job, ZONE_POLICIES["greedy-spot"](facts_of(market, job)), 0)
    assert [ticks_of(stay, market)[:3] for stay in run.stays] == [(0, True, 0), (0, False, 3)]
    assert run.deadline_met

"""Guarded policies keep every deadline that can be kept, whatever traces do and whatever they would rather do."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.simulation.spot.zones.engine import facts_of, run_zones
from optim.simulation.spot.zones.policies import ZONE_POLICIES
from optim.simulation.spot.zones.policy import GuardedPolicy, Place
from optim.solvers.bidding.zones.optimum import least_cost
from tests.support.spot.zones import drawn, zone_job, zone_market


class Restless(GuardedPolicy):
    """Want anything at all, at random."""

    name = "restless"

    def choose(self, view):
        rng = np.random.default_rng([view.tick, view.work_left])
        places = [Place(zone, bool(kind)) for zone in range(len(self.facts.zones)) for kind in (0, 1)]
        return [places[k] for k in rng.permutation(len(places))[: rng.integers(0, len(places) + 1)]]


def keep_their_deadlines(seeds, ticks):
    for seed in seeds:
        market, job = drawn(seed, ticks=ticks)
        best = least_cost(market, job, 0).units
        for policy in (Restless, *ZONE_POLICIES.values()):
            run = run_zones(market, job, policy(facts_of(market, job)), 0)
            assert run.deadline_met, (seed, policy.name)
            assert run.units >= best, (seed, policy.name)


@given(seed=st.integers(0, 10**9))
def test_no_deadline_is_missed_and_nobody_pays_less_than_the_least(seed):
    keep_their_deadlines(range(seed, seed + 4), 12)


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
            return (Place(0, True),) if view.tick < 2 else (chosen[-1],)

        policy.choose = choose
        run_zones(market, job, policy, 0)
        assert chosen[2] == Place(zone, False)


def test_waits_until_the_last_tick_at_which_on_demand_is_in_time():
    market = zone_market("----------", spot=[1.0])
    job = zone_job(market, 3, 8, setup=2)
    run = run_zones(market, job, ZONE_POLICIES["greedy-spot"](facts_of(market, job)), 0)
    # Five ticks from a launch to the end: it comes at tick 3, the first at which another tick's wait would be too late.
    assert [(stay.begin, stay.end, stay.is_spot) for stay in run.stays] == [(3, 8, False)]


def test_stays_on_machines_at_work_even_without_a_tick_to_lose():
    market = zone_market("xxxx-xxx", spot=[1.0])
    job = zone_job(market, 5, 6)
    run = run_zones(market, job, ZONE_POLICIES["greedy-spot"](facts_of(market, job)), 0)
    # A launch that may fail would be too late at once; no slack, so on demand from the start.
    assert [(stay.begin, stay.end, stay.is_spot) for stay in run.stays] == [(0, 6, False)]
    loose = zone_job(market, 5, 7)
    run = run_zones(market, loose, ZONE_POLICIES["greedy-spot"](facts_of(market, loose)), 0)
    assert [(stay.begin, stay.end, stay.is_spot) for stay in run.stays] == [(0, 4, True), (4, 7, False)]


def test_launches_on_demand_where_the_state_is_soonest_ready():
    market = zone_market("xx------", "--------", spot=[1.0, 1.0], on_demand=[4.0, 3.0])
    job = zone_job(market, 3, 6, setup=[[1, 1], [1, 3], [3, 1]])
    run = run_zones(market, job, ZONE_POLICIES["greedy-spot"](facts_of(market, job)), 0)
    assert [(stay.zone, stay.begin, stay.is_spot) for stay in run.stays] == [(0, 0, True), (0, 3, False)]
    assert run.deadline_met

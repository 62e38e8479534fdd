"""The engine over zones by hand: set-ups, moves, evictions, probes, and the policy's information."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import NotAllowedError
from optim.models.bidding.market.billing import Billing
from optim.models.bidding.market.zones import UNITS_USD, Allocation, ZoneJob
from optim.simulation.spot.zones import Offer, ZonePolicy, facts_of, run_zones
from optim.solvers.bidding.zones import least_cost
from tests.support.spot.zones import drawn, drawn_in_seconds, ticks_of, zone_job, zone_market

SPOT = [Offer(zone, True) for zone in range(3)]
OD = [Offer(zone, False) for zone in range(3)]


class Scripted(ZonePolicy):
    """Request offers by a script of ticks, and record the views."""

    name = "scripted"

    def __init__(self, script, probes=()):
        self._script, self._probes = dict(script), set(probes)
        self.wanted, self.views, self.answers = (), [], []

    def decide(self, view):
        self.views.append(view)
        if view.tick in self._probes:
            self.answers.append(view.probe(1))
        self.wanted = self._script.get(view.tick, self.wanted)
        return self.wanted


def test_a_launch_is_paid_for_from_its_first_tick_and_works_after_its_set_up():
    market = zone_market("xxxxxx", spot=[0.5], tick_s=1800)
    run = run_zones(market, zone_job(market, 3, 6, setup=2, machines=4), Scripted({0: SPOT[:1]}), 0)
    assert run.cost_usd == 4 * 0.5 * 0.5 * 5
    assert (run.end_s, run.work_done_s, run.deadline_met) == (5 * 1800, 3 * 1800, True)
    assert run.stays == (Allocation(0, True, 0, 5 * 1800),)


def test_an_eviction_ends_a_stay_and_the_first_zone_that_has_machines_is_taken():
    market = zone_market("xx--xx", "---xxx", "--xxxx", spot=[1.0, 1.0, 2.0])
    policy = Scripted({0: SPOT, 3: SPOT[2:]})
    run = run_zones(market, zone_job(market, 3, 6, move=0.5), policy, 0)
    # One hour of work in the first zone, then a launch and two hours in the third: its state moves there once.
    assert run.stays == (Allocation(0, True, 0, 7200, is_lost=True), Allocation(2, True, 7200, 18_000))
    assert (run.evictions, run.cost_usd) == (1, 2 * 1.0 + 0.5 + 3 * 2.0)
    assert [view.state for view in policy.views] == [0, 1, 1, 3, 3]
    assert [view.setup_left_s for view in policy.views] == [0] * 5
    assert policy.views[3].seen == ((2, False), (2, False), (3, True))


def test_a_state_stays_where_it_was_until_a_set_up_is_over():
    market = zone_market("xx-----", "--xx-xx", spot=[1.0, 1.0])
    policy = Scripted({0: SPOT[:2]})
    run = run_zones(market, zone_job(market, 2, 7, setup=[[1, 1], [1, 3], [3, 1]], move=0.5), policy, 0)
    # Lost in the second of three ticks of set-up, moved again, lost with the traces.
    assert [view.state for view in policy.views] == [0, 1, 1, 1, 1, 1, 1]
    assert [view.setup_left_s for view in policy.views] == [0, 0, 0, 7200, 0, 0, 7200]
    assert (run.is_done, run.deadline_met, run.work_done_s) == (False, False, 3600)
    assert run.cost_usd == 2.0 + 2 * (0.5 + 2.0)


def test_probes_cost_their_seconds_where_machines_are_and_nothing_elsewhere():
    market = zone_market("xxxx", "-x-x", spot=[1.0, 3.0])
    policy = Scripted({0: SPOT[:1]}, probes=(0, 1))
    run = run_zones(market, zone_job(market, 3, 4, machines=2), policy, 0, probe_s=120)
    assert (run.probes, policy.answers) == (2, [False, True])
    assert run.probe_units == 2 * 120 * 3 * UNITS_USD // 3600
    assert run.cost_usd == pytest.approx(2 * (4 * 1.0 + 3.0 * 120 / 3600))
    assert policy.views[1].seen[1] == (0, False)
    assert policy.views[3].seen[1] == (1, True)


def test_on_demand_is_never_lost_and_what_is_not_wanted_is_given_back():
    market = zone_market("----x", spot=[1.0])
    run = run_zones(market, zone_job(market, 2, 5), Scripted({0: OD[:1], 2: (), 3: (SPOT[0], OD[0])}), 0)
    assert [ticks_of(stay, market) for stay in run.stays] == [(0, False, 0, 2), (0, False, 3, 4), (0, True, 4, 5)]
    assert (run.is_done, run.evictions, run.cost_usd) == (False, 0, 3 * 3.0 + 1.0)


def test_a_job_that_is_late_goes_on_to_twice_its_deadline():
    market = zone_market("-----xxxxx", spot=[1.0])
    run = run_zones(market, zone_job(market, 2, 4), Scripted({0: SPOT[:1]}), 0)
    assert (run.end_s, run.is_done, run.deadline_met) == (8 * 3600, True, False)


def test_an_unknown_zone_is_refused():
    market = zone_market("x" * 5)
    with pytest.raises(NotAllowedError, match="'scripted' requests zone 7, expected a number from 0 to 0"):
        run_zones(market, zone_job(market, 1, 3), Scripted({0: (Offer(7, True),)}), 0)


def test_facts_tell_everything_but_the_traces():
    market = zone_market("x-", "-x")
    facts = facts_of(market, zone_job(market, 1, 2))
    assert (facts.zones, facts.on_demand_micro, facts.tick_s) == (("z0", "z1"), (3_000_000, 3_000_000), 3600)
    assert not hasattr(facts, "is_available")


def followed(market, job, best, billing):
    """Execute a plan."""
    script = {-(-stay.end_s // market.tick_s): () for stay in best.plan}
    script |= {stay.begin_s // market.tick_s: (Offer(stay.zone, stay.is_spot),) for stay in best.plan}
    return run_zones(market, job, Scripted(script), 0, billing=billing)


@given(seed=st.integers(0, 10**6), draw=st.sampled_from([drawn, drawn_in_seconds]), billing=st.sampled_from(Billing))
def test_a_cheapest_plan_costs_in_the_engine_what_it_says(seed, draw, billing):
    market, job = draw(seed)
    best = least_cost(market, job, 0, billing)
    run = followed(market, job, best, billing)
    assert (run.units, run.deadline_met, run.stays) == (best.plan_units, True, best.plan)


def test_a_set_up_may_end_within_a_tick_and_so_may_the_job():
    market = zone_market("xxxx", spot=[1.2], tick_s=600)
    job = ZoneJob(
        work_s=700, deadline_s=1500, setup_s=np.full((2, 1), 180), move_micro=np.zeros((2, 1), dtype=np.int64)
    )
    policy = Scripted({0: SPOT[:1]})
    run = run_zones(market, job, policy, 0)
    # 420 s of work in the first tick, 280 in the second: 880 s at 1.2 dollars per hour.
    assert [(view.work_left_s, view.setup_left_s) for view in policy.views] == [(700, 0), (280, 0)]
    assert (run.end_s, run.stays) == (880, (Allocation(0, True, 0, 880),))
    assert run.units == 880 * 1_200_000
    assert run_zones(market, job, policy, 0, billing=Billing.WHOLE_TICKS).units == 1200 * 1_200_000


def test_a_long_set_up_spans_ticks_and_is_lost_with_the_machines():
    market = zone_market("xx-xxxx", spot=[1.0], tick_s=600)
    job = ZoneJob(
        work_s=500, deadline_s=4200, setup_s=np.full((2, 1), 720), move_micro=np.zeros((2, 1), dtype=np.int64)
    )
    policy = Scripted({0: SPOT[:1]})
    run = run_zones(market, job, policy, 0)
    # 480 s of work before the loss at 1200 s; then again 720 s of set-up, and the last 20 s.
    assert [(view.work_left_s, view.setup_left_s, view.state) for view in policy.views] == [
        (500, 0, 0),
        (500, 120, 0),
        (20, 0, 1),
        (20, 0, 1),
        (20, 120, 1),
    ]
    assert run.stays == (Allocation(0, True, 0, 1200, is_lost=True), Allocation(0, True, 1800, 2540))


@pytest.mark.parametrize(
    ("billing", "usd", "free_s"),
    [
        ("per-second", 0.5 + 0.25 + 1.0, 0),
        ("whole-ticks", 0.5 + 0.25 + 1.0, 0),
        # The machines are lost after half an hour, and again after an hour and a half that began at 1 dollar per hour.
        ("aws-2017", 1.0 + 0.5, 1800),
        ("aws-2009", 1.0, 1800 + 1800),
    ],
)
def test_bills_follow_the_rule(billing, usd, free_s):
    market = zone_market("x-xxx-xxxxxx", spot=[[1.0, 1.0, 1.0, 0.5, 1.0, *[1.0] * 7]], tick_s=1800)
    job = zone_job(market, 12, 20, setup=0)
    run = run_zones(market, job, Scripted({0: SPOT[:1], 6: ()}), 0, billing=Billing(billing))
    assert (run.cost_usd, run.free_s) == (usd, free_s)


def plain_run(market, job, script, billing):
    """Return (units, end, work, lost) of a script, computed second by second in integers."""
    held, launched, setup, state, work, units, lost, now = None, 0, 0, 0, 0, 0, 0, 0
    while now < len(market) * market.tick_s and now < 2 * -(-job.deadline_s // market.tick_s) * market.tick_s:
        tick = now // market.tick_s
        if now % market.tick_s == 0:
            if held is not None and held[1] and not market.is_available[tick, held[0]]:
                held, lost = None, lost + 1
            wanted = script[tick]
            if wanted is not None and wanted[1] and not market.is_available[tick, wanted[0]]:
                wanted = None
            if wanted != held:
                held, launched = wanted, now
                if held is not None:
                    setup = int(job.setup_s[state, held[0]])
                    units += 3600 * int(job.move_micro[state, held[0]])
            if held is not None and billing is Billing.WHOLE_TICKS:
                units += market.tick_s * job.machines * price_of(market, held, tick)
        if held is not None:
            if billing is Billing.PER_SECOND:
                units += job.machines * price_of(market, held, tick)
            work += now - launched >= setup
            if now + 1 - launched >= setup:
                state = 1 + held[0]
        now += 1
        if work == job.work_s:
            break
    return units, now, work, lost


def price_of(market, held, tick):
    return int(market.spot_micro[tick, held[0]] if held[1] else market.on_demand_micro[held[0]])


@given(
    seed=st.integers(0, 10**6),
    draw=st.sampled_from([drawn, drawn_in_seconds]),
    billing=st.sampled_from([Billing.PER_SECOND, Billing.WHOLE_TICKS]),
)
def test_a_run_is_that_of_an_engine_that_counts_every_second(seed, draw, billing):
    market, job = draw(seed)
    rng = np.random.default_rng(seed)
    script, wanted = [], None
    for _ in range(len(market)):
        if rng.random() < 0.4:
            wanted = None if rng.random() < 0.3 else (int(rng.integers(market.num_zones)), bool(rng.integers(2)))
        script.append(wanted)
    places = {tick: () if one is None else (Offer(*one),) for tick, one in enumerate(script)}
    run = run_zones(market, job, Scripted(places), 0, billing=billing)
    assert (run.units, run.end_s, run.work_done_s, run.evictions) == plain_run(market, job, script, billing)

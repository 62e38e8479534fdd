"""The engine over zones by hand: set-ups, moves, evictions, probes, and what a policy gets to know."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import NotAllowedError
from optim.models.bidding.zones.market import UNITS_USD, Stay
from optim.simulation.spot.zones.engine import facts_of, run_zones
from optim.simulation.spot.zones.policy import Place, ZonePolicy
from optim.solvers.bidding.zones.optimum import least_cost
from tests.support.spot.zones import drawn, zone_job, zone_market

SPOT = [Place(zone, True) for zone in range(3)]
OD = [Place(zone, False) for zone in range(3)]


class Scripted(ZonePolicy):
    """Want what a script says from each tick on, and keep what was seen."""

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
    assert (run.ticks, run.work_done, run.deadline_met) == (5, 3, True)
    assert run.stays == (Stay(0, True, 0, 5),)


def test_an_eviction_ends_a_stay_and_the_first_zone_that_has_machines_is_taken():
    market = zone_market("xx--xx", "---xxx", "--xxxx", spot=[1.0, 1.0, 2.0])
    policy = Scripted({0: SPOT, 3: SPOT[2:]})
    run = run_zones(market, zone_job(market, 3, 6, move=0.5), policy, 0)
    # One hour of work in the first zone, then a launch and two hours in the third: its state moves there once.
    assert run.stays == (Stay(0, True, 0, 2), Stay(2, True, 2, 5))
    assert (run.evictions, run.cost_usd) == (1, 2 * 1.0 + 0.5 + 3 * 2.0)
    assert [view.state for view in policy.views] == [0, 1, 1, 3, 3]
    assert [view.setup_left for view in policy.views] == [0] * 5
    assert policy.views[3].seen == ((2, False), (2, False), (3, True))


def test_a_state_stays_where_it_was_until_a_set_up_is_over():
    market = zone_market("xx-----", "--xx-xx", spot=[1.0, 1.0])
    policy = Scripted({0: SPOT[:2]})
    run = run_zones(market, zone_job(market, 2, 7, setup=[[1, 1], [1, 3], [3, 1]], move=0.5), policy, 0)
    # Lost in the second of three ticks of set-up, moved again, lost with the traces.
    assert [view.state for view in policy.views] == [0, 1, 1, 1, 1, 1, 1]
    assert [view.setup_left for view in policy.views] == [0, 0, 0, 2, 0, 0, 2]
    assert (run.is_done, run.deadline_met, run.work_done) == (False, False, 1)
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
    assert run.stays == (Stay(0, False, 0, 2), Stay(0, False, 3, 4), Stay(0, True, 4, 5))
    assert (run.is_done, run.evictions, run.cost_usd) == (False, 0, 3 * 3.0 + 1.0)


def test_a_job_that_is_late_goes_on_to_twice_its_deadline():
    market = zone_market("-----xxxxx", spot=[1.0])
    run = run_zones(market, zone_job(market, 2, 4), Scripted({0: SPOT[:1]}), 0)
    assert (run.ticks, run.is_done, run.deadline_met) == (8, True, False)


def test_an_unknown_zone_is_refused():
    market = zone_market("x" * 5)
    with pytest.raises(NotAllowedError, match="'scripted' asks for zone 7, there are 1"):
        run_zones(market, zone_job(market, 1, 3), Scripted({0: (Place(7, True),)}), 0)


def test_facts_tell_everything_but_the_traces():
    market = zone_market("x-", "-x")
    facts = facts_of(market, zone_job(market, 1, 2))
    assert (facts.zones, facts.on_demand_micro, facts.tick_s) == (("z0", "z1"), (3_000_000, 3_000_000), 3600)
    assert not hasattr(facts, "is_available")


@given(seed=st.integers(0, 10**6))
def test_a_cheapest_plan_costs_in_the_engine_what_it_says(seed):
    market, job = drawn(seed)
    best = least_cost(market, job, 0)
    script = {stay.end: () for stay in best.plan} | {
        stay.begin: (Place(stay.zone, stay.is_spot),) for stay in best.plan
    }
    run = run_zones(market, job, Scripted(script), 0)
    assert (run.units, run.deadline_met) == (best.units, True)

"""`deadline-dp` in the engine: its mean on the chain that it knows is the least, and zones are weighed by a spell's cost."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.deadlines import SpellHazards
from optim.models.bidding.market.billing import Billing
from optim.models.bidding.market.zones import ZoneJob, ZoneMarket
from optim.simulation.spot.deadline_policy import DOUBT, LEVEL, MIN_CHANCE, SpellWatch, new_memory, table_of
from optim.simulation.spot.deadline_zones import DeadlineProgramme, least_mean_usd
from optim.simulation.spot.zones import Offer, facts_of, run_zones
from optim.statistics import Interval
from tests.support.spot.zones import ticks_of, zone_job, zone_market

CHAIN = SpellHazards(
    tick_s=600, hazard=np.array([[0.3, 0.2, 0.1, 0.05], [0.4, 0.2, 0.1, 0.03]]), source="four ages, by hand"
)


class Unlearning(DeadlineProgramme):
    """The programme without learning: it keeps the given hazards, which are the true ones."""

    def choose(self, view):
        self._rule._watch._log_weight[:] = new_memory()[1]
        return super().choose(view)


@pytest.mark.parametrize(
    ("billing", "setup_s"), [(Billing.PER_SECOND, 720), (Billing.WHOLE_TICKS, 180), (Billing.AWS_2009, 720)]
)
def test_the_mean_on_the_known_chain_is_the_least_of_any_rule(billing, setup_s):
    job = ZoneJob(
        work_s=36_000,
        deadline_s=45_000,
        setup_s=np.full((2, 1), setup_s),
        move_micro=np.zeros((2, 1), dtype=np.int64),
    )
    costs = []
    for seed in range(400):
        flags = CHAIN.draw(75, np.random.default_rng(seed))
        market = ZoneMarket(
            zones=("z",),
            regions=("r",),
            time_s=600 * np.arange(75),
            tick_s=600,
            is_available=flags[:, None],
            spot_micro=np.full((75, 1), 1_000_000),
            on_demand_micro=np.array([3_000_000]),
        )
        facts = facts_of(market, job, billing, CHAIN)
        run = run_zones(market, job, Unlearning(facts), 0, billing=billing, probe_s=0)
        assert run.deadline_met
        costs.append(run.cost_usd)
    least = least_mean_usd(facts, 1_000_000)
    found = Interval.of(costs)
    assert found.low < least < found.high
    assert found.half < 0.05 * least


def test_the_cheaper_zone_is_asked_first_and_a_move_that_pays_is_made():
    market = zone_market("xxxxxxxxxxxx", "--xxxxxxxxxx", spot=[2.0, 1.0], tick_s=600)
    job = zone_job(market, 8, 12, setup=0)
    run = run_zones(market, job, DeadlineProgramme(facts_of(market, job)), 0)
    assert next(ticks_of(stay, market)[0] for stay in run.stays) == 0
    far = zone_job(market, 8, 12, setup=0, move=5.0)
    stays = run_zones(market, far, DeadlineProgramme(facts_of(market, far)), 0).stays
    assert [stay.zone for stay in stays] == [0]  # a move costs more than it saves
    both = zone_market("xxxxxxxxxxxx", "xxxxxxxxxxxx", spot=[2.0, 1.0], tick_s=600)
    assert run_zones(both, job, DeadlineProgramme(facts_of(both, job)), 0).stays[0].zone == 1


def test_a_run_learns_that_spells_end_sooner_or_later():
    watch = SpellWatch(CHAIN)
    assert watch.levels == (0, 0)
    for tick in range(60):
        watch.see(600 * tick, is_available=tick % 2 == 0)
    assert watch.levels == (1, 1)
    calm = SpellWatch(CHAIN)
    for tick in range(400):
        calm.see(600 * tick, is_available=True)
    assert calm.levels[1] == -1
    assert calm.lasted_s(600 * 400, is_available=True) is None
    assert calm.lasted_s(600 * 400, is_available=False) == 0.0


@given(seed=st.integers(0, 10**9))
def test_a_watch_weighs_hazards_by_how_likely_what_it_saw_is(seed):
    rng = np.random.default_rng(seed)
    flags = CHAIN.draw(30, rng).tolist()
    ticks = sorted(rng.choice(30, size=int(rng.integers(2, 31)), replace=False).tolist())
    watch = SpellWatch(CHAIN)
    for tick in ticks:
        watch.see(600 * tick, is_available=flags[tick])
    likely = {(kind, power): math.exp(-DOUBT * abs(power)) for kind in (0, 1) for power in (-1, 0, 1)}
    for kind, power in likely:
        hazards = CHAIN.scaled(LEVEL**power, LEVEL**power)
        begun = None
        for then, now in itertools.pairwise(ticks):
            # The first spell's hazards are those of one that was met at a moment of the long run.
            chance = hazards.first_hazard(4)[min(then, 3), int(flags[then])]
            if begun is not None:
                chance = hazards.hazard[int(flags[then]), min(then - begun, 3)]
            lasts = (1.0 - min(max(chance, MIN_CHANCE), 1.0 - MIN_CHANCE)) ** (now - then)
            if flags[then] == kind:
                likely[kind, power] *= lasts if flags[now] == flags[then] else 1.0 - lasts
            if flags[now] != flags[then]:
                begun = now
    for kind, level in enumerate(watch.levels):
        assert likely[kind, level] == pytest.approx(max(likely[kind, power] for power in (-1, 0, 1)), rel=1e-9)
        for row, power in enumerate((-1, 0, 1)):
            assert math.exp(watch._log_weight[kind, row]) == pytest.approx(likely[kind, power], rel=1e-9)


def test_the_least_mean_is_told_by_the_table_that_was_played():
    market = zone_market("xx-xx-xx-xxxxxxx", tick_s=600)
    facts = facts_of(market, zone_job(market, 7, 12, setup=0))
    run_zones(market, facts.job, DeadlineProgramme(facts), 0)
    made = table_of.cache_info().misses
    assert least_mean_usd(facts, 1_000_000) > 0
    assert table_of.cache_info().misses == made


def test_waiting_for_machines_asks_for_them():
    market = zone_market("------------", tick_s=600)
    job = zone_job(market, 2, 12, setup=0)
    run = run_zones(market, job, DeadlineProgramme(facts_of(market, job)), 0)
    assert run.probes == 0
    assert [stay.is_spot for stay in run.stays] == [False]
    assert Offer(0, True) not in run.stays


@pytest.mark.parametrize("zones", [("--x-xxx---xx----",), ("--x-xxx---xx----", "----------------")])
def test_machines_that_are_launched_are_seen_at_that_tick_already(monkeypatch, zones):
    seen, see = set(), SpellWatch.see

    def note(self, now_s, *, is_available):
        seen.add((now_s // 600, is_available))
        see(self, now_s, is_available=is_available)

    monkeypatch.setattr(SpellWatch, "see", note)
    market = zone_market(*zones, tick_s=600)
    job = zone_job(market, 9, 16, setup=0)
    run = run_zones(market, job, DeadlineProgramme(facts_of(market, job)), 0)
    held = [stay for stay in run.stays if stay.is_spot]
    assert [stay.is_lost for stay in held].count(True) > 0
    for stay in held:
        ticks = range(stay.begin_s // 600, stay.end_s // 600)
        assert {(tick, True) for tick in ticks} <= seen

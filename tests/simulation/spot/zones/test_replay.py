"""Compiled runs in one zone are the engine's: the same stays, bills, probes and losses, start by start."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from optim.models.bidding.market.billing import Billing
from optim.models.bidding.market.spells import decision_s, prior_hazards
from optim.models.bidding.market.zones import ZoneJob, ZoneMarket
from optim.simulation.spot.backtest import default_zone_policies
from optim.simulation.spot.policies import policy_class
from optim.simulation.spot.replay import RULES, Replay
from optim.simulation.spot.zones import facts_of, run_zones
from tests.support.spot.zones import zone_job, zone_market

PLAIN = (Billing.PER_SECOND, Billing.WHOLE_TICKS)


def one_zone(rng, ticks):
    """Return a zone with random spells and prices, and a job with set-ups and moves of any length."""
    tick_s = int(rng.choice([60, 195, 300, 600, 3600]))
    changes = rng.random(ticks) < rng.uniform(0.02, 0.5)
    flags = np.cumsum(changes) % 2 == rng.integers(0, 2)
    micro = np.rint(1e6 * np.exp(np.cumsum(rng.normal(0.0, rng.choice([0.0, 0.02, 0.2]), ticks)))).astype(np.int64)
    market = ZoneMarket(
        zones=("z",),
        regions=("r",),
        time_s=tick_s * np.arange(ticks),
        tick_s=tick_s,
        is_available=flags[:, None],
        spot_micro=np.maximum(1, micro)[:, None],
        on_demand_micro=np.array([int(rng.integers(1, 6_000_000))]),
    )
    setup_s = rng.integers(0, 4 * tick_s, (2, 1)) * rng.integers(0, 2)
    work_s = int(rng.integers(1, ticks * tick_s // 4))
    slack_s = int(setup_s.max()) + int(rng.integers(0, ticks * tick_s // 4))
    job = ZoneJob(
        work_s=work_s,
        deadline_s=work_s + slack_s,
        setup_s=setup_s,
        move_micro=rng.integers(0, 100_000, (2, 1)) * rng.integers(0, 2),
        machines=int(rng.integers(1, 4)),
    )
    return market, job


def check_starts(seed, ticks, starts, names=tuple(RULES)):
    rng = np.random.default_rng(seed)
    market, job = one_zone(rng, ticks)
    billing = PLAIN[seed % 2]
    hazards = prior_hazards(decision_s(market.tick_s)).scaled(*rng.choice([0.1, 0.5, 1.0, 3.0, 10.0], 2))
    facts = facts_of(market, job, billing, hazards)
    replay = Replay(market, job, billing=billing, probe_s=45, hazards=hazards)
    for first in starts:
        for name in names:
            assert replay.can(name)
            made = policy_class(name, "zones")(facts)
            run = run_zones(market, job, made, first, billing=billing, probe_s=45)
            assert replay.run(name, first) == replace(run, policy=name), (seed, first, name)


@example(seed=0)
@given(seed=st.integers(0, 10**9))
def test_a_replay_is_the_engine_s_run(seed):
    check_starts(seed, 40, (3,))


@given(seed=st.integers(0, 10**9))
def test_losses_of_a_long_run_are_remembered_as_by_the_engine(seed):
    check_starts(seed, 250, (0, 5), [name for name in RULES if name != "deadline-dp"])


def test_of_equal_prices_spot_machines_come_first_in_both():
    market = zone_market("xx-xxxxxxx", spot=[3.0], on_demand=[3.0], tick_s=600)
    job = zone_job(market, 4, 8, setup=0)
    run = run_zones(market, job, policy_class("skynomad", "zones")(facts_of(market, job)), 0)
    assert Replay(market, job).run("skynomad", 0) == run
    assert any(stay.is_spot for stay in run.stays)


@pytest.mark.prove
def test_replays_are_the_engine_s_runs_on_many_markets():
    for seed in range(500):
        check_starts(seed, 120, (0, 17, 31))


def test_every_policy_of_one_zone_has_a_rule():
    assert set(RULES) == set(default_zone_policies(1)) - {"optimum"}


@pytest.mark.parametrize("billing", [Billing.AWS_2009, Billing.AWS_2017])
def test_what_the_loop_does_not_know_is_left_to_the_engine(billing):
    market = zone_market("x-xx", tick_s=600)
    job = zone_job(market, 2, 3)
    assert not Replay(market, job, billing=billing).can("greedy-spot")
    assert not Replay(market, job).can("cheapest-zone")
    two = zone_market("x-xx", "xxxx", tick_s=600)
    assert not Replay(two, zone_job(two, 2, 3)).can("greedy-spot")
    far = ZoneJob(work_s=1, deadline_s=10**8, setup_s=np.zeros((2, 1)), move_micro=np.zeros((2, 1)))
    assert not Replay(market, far).can("skynomad")

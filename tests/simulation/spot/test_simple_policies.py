"""The policies that BidBrain is measured against, decision by decision."""

import math
from dataclasses import replace

import numpy as np
import pytest

from optim.models.bidding.market.evictions import fit_evictions
from optim.models.bidding.market.prices import history_of
from optim.simulation.spot.policies import make_policy
from optim.simulation.spot.policy import LiveLease, Request, SpotOptions, View, World
from tests.support.spot.worlds import DAY_S, history

ON_DEMAND = 210_000


def world_of(rates, prices, **options):
    """A world of one market a rate, each at a constant price, on demand in proportion to its rate."""
    plain = history(*([(0, price)] for price in prices))
    markets = [
        replace(market, rate=rate, on_demand_micro=round(ON_DEMAND * rate))
        for market, rate in zip(plain.markets, rates, strict=True)
    ]
    known = history_of(markets, plain.paths, end_s=plain.end_s, gap_s=100 * DAY_S)
    return World(history=known, table=fit_evictions(known), options=SpotOptions(**options))


def view(prices, leases=(), room=192):
    return View(now_s=0, price_micro=tuple(prices), leases=tuple(leases), room=room, on_demand_room=64, work_left=1.0)


def lease(market, number=0):
    return LiveLease(
        number=number, market=market, count=1, bid_micro=ON_DEMAND, granted_s=0, ready_s=0, price_micro=50_000
    )


def decision(rates, prices, room=192, **options):
    return make_policy("standard", world_of(rates, prices, **options)).decide(view(prices, room=room))


def test_the_lowest_price_per_work_is_taken_not_the_lowest_price():
    assert decision([1.0, 4.0, 2.0], [40_000, 80_000, 50_000], baseline=64) == Request(
        market=1, count=16, bid_micro=4 * ON_DEMAND
    )


def test_as_many_are_taken_as_do_the_baselines_work_and_no_more_than_there_is_room_for():
    assert decision([1.0, 3.0], [900_000, 60_000], baseline=64).count == math.ceil(64 / 3)
    # Room is counted in machines of the baseline's size: for five of them one of three times the size, or ten of half.
    assert decision([1.0, 3.0], [900_000, 60_000], baseline=64, room=5).count == 1
    assert decision([1.0, 3.0], [900_000, 60_000], baseline=64, room=2) is None
    assert decision([1.0, 0.5], [900_000, 20_000], baseline=64, room=5).count == 10
    assert decision([1.0, 3.0], [900_000, 60_000], baseline=64, room=0) is None


def test_no_more_is_paid_than_on_demand():
    assert decision([1.0, 1.0], [ON_DEMAND + 1, ON_DEMAND]).market == 1
    assert decision([1.0, 1.0], [ON_DEMAND + 1, ON_DEMAND + 2]) is None


def test_a_market_without_a_price_yet_is_left_out_and_of_equals_the_first_is_taken():
    policy = make_policy("standard", world_of([1.0, 1.0, 1.0], [50_000] * 3))
    assert policy.decide(view([None, 50_000, 50_000])).market == 1


def test_nothing_is_asked_for_while_anything_is_held():
    policy = make_policy("standard", world_of([1.0], [50_000]))
    assert policy.wants_more((), 192)
    assert not policy.wants_more((lease(0),), 192)
    assert policy.decide(view([50_000], [lease(0)])) is None
    assert policy.should_renew(view([50_000], [lease(0)]), lease(0))


def test_checkpoints_come_at_youngs_interval_for_the_market_that_is_lost_soonest():
    plain = world_of([1.0, 1.0, 1.0], [50_000] * 3, checkpoint_min=5.0)
    means = np.full(plain.table.mean_h.shape, 1.0)
    means[:, -1] = [8.0, 2.0, np.nan]
    world = replace(plain, table=replace(plain.table, mean_h=means))
    policy = make_policy("standard-checkpoint", world)
    assert policy.checkpoint_every_s([lease(0)]) == pytest.approx(math.sqrt(2 * 300 * 8 * 3600))
    assert policy.checkpoint_every_s([lease(0), lease(1, 1)]) == pytest.approx(math.sqrt(2 * 300 * 2 * 3600))
    # Where no bid was ever granted, the median of the other markets replaces the estimate.
    assert policy.checkpoint_every_s([lease(2)]) == pytest.approx(math.sqrt(2 * 300 * 5 * 3600))
    assert policy.checkpoint_every_s([]) == math.inf


def test_on_demand_asks_once_for_the_whole_baseline_and_never_writes_checkpoints():
    policy = make_policy("on-demand", world_of([2.0, 1.0], [50_000] * 2, baseline=7))
    assert policy.wants_more((), 0)
    assert policy.decide(view([50_000] * 2)) == Request(market=0, count=7, bid_micro=None)
    assert not policy.wants_more((), 192)
    assert policy.decide(view([50_000] * 2)) is None
    assert policy.checkpoint_every_s([lease(0)]) == math.inf


@pytest.mark.parametrize(
    ("name", "has_reliable"),
    [("on-demand", False), ("standard", False), ("standard-checkpoint", False), ("standard-agile", True)],
)
def test_only_elastic_jobs_hold_reliable_machines(name, has_reliable):
    policy = make_policy(name, world_of([1.0], [50_000]))
    assert policy.name == name
    assert policy.has_reliable == has_reliable

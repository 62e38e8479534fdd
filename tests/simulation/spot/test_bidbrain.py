"""BidBrain's numbers against the programme that the exact solvers minimise, and its decisions on clear cases."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.models.bidding.cost_per_work import evaluate
from optim.models.bidding.data import EvictionTerm
from optim.simulation.spot.engine import run_policy
from optim.simulation.spot.footprint_value import Candidates
from optim.simulation.spot.policies import BidBrainCheckpoint, BidBrainPolicy, Proteus, _Footprint, make_policy
from optim.simulation.spot.policy import LiveLease, Recovery, View
from optim.workloads.bidding.instances import BiddingOptions, instance_at
from tests.support.spot.worlds import SEEDS, drawn_world, world

DELTAS = (0, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000, 400_000)


def added(count):
    return Candidates(np.array([count]), np.full(4, 192))


def view(job, now, leases=(), room=192, on_demand_room=64):
    prices = tuple(path.price_at(now) for path in job.history.paths)
    return View(
        now_s=now, price_micro=prices, leases=leases, room=room, on_demand_room=on_demand_room, work_left=job.job_work
    )


@given(seed=SEEDS, market=st.integers(0, 2), delta=st.integers(0, 12), count=st.sampled_from([1, 8, 64]))
def test_the_first_bid_is_valued_as_the_programme_values_it(seed, market, delta, count):
    job = drawn_world(seed)
    now = int(job.history.begin_s) + 86_400
    brain = Proteus(job)
    ratios = _Footprint(brain, view(job, now)).with_each(added(count))
    options = BiddingOptions(deltas_micro=DELTAS, max_count=192, total=192, term=EvictionTerm.PER_MARKET.value)
    instance = instance_at(job.history, job.table, now, options, "now")
    counts = np.zeros(instance.num_bids, dtype=np.int64)
    counts[market * len(DELTAS) + delta] = count
    if job.history.paths[market].price_at(now) + DELTAS[delta] > 210_000:
        assert np.isinf(ratios[market, delta, 0])  # no bid is above the price on demand
    else:
        assert ratios[market, delta, 0] == pytest.approx(evaluate(instance, counts).ratio, rel=1e-9)


def test_asks_for_the_cheaper_of_two_calm_markets():
    job = world(((0, 60_000),), ((0, 40_000),))
    request = Proteus(job).decide(view(job, 3600))
    assert request.market == 1
    assert request.bid_micro >= 40_000


def test_renews_what_is_cheap_and_lets_go_what_has_become_dear():
    cheap = ((0, 40_000),)
    risen = ((0, 40_000), (1800, 190_000))
    for path, is_kept in ((cheap, True), (risen, False)):
        job = world(cheap, path)
        leases = [
            LiveLease(number=m, market=m, count=32, bid_micro=210_000, granted_s=0, ready_s=180, price_micro=40_000)
            for m in (0, 1)
        ]
        brain = Proteus(job)
        assert brain.should_renew(view(job, 58 * 60, leases), leases[1]) == is_kept


def test_asks_for_nothing_without_room():
    job = world(((0, 60_000),))
    assert Proteus(job).decide(view(job, 3600, room=0)) is None


def expected_ratio(job, brain, now, leases, *, added=None, renewed=None, change_h=0.0, lost_h=None):
    """Return cost over work of a footprint in the next hour, lease by lease; ``added`` is (market, row, count)."""
    table, options, rates = job.table, job.options, [market.rate for market in job.history.markets]
    rows = [table.index[market.name] for market in job.history.markets]
    cost, parts, risk = options.reliable * job.baseline.on_demand_micro / 1e6, [], {}
    for lease in leases:
        price = job.history.paths[lease.market].price_at(now)
        row = table.row(lease.bid_micro - price)
        survival, usable = table.survival[rows[lease.market], row], table.omega[rows[lease.market], row]
        left = 0 if lease is renewed else 3600 - (now - lease.granted_s) % 3600
        paid = np.interp(left / 60, np.arange(61), survival) * lease.price_micro * left
        following = survival[60] * price * (3600 - left)
        cost += lease.count * (paid + following) / 3600 / 1e6
        wait = max(0, lease.ready_s - now) / 60
        parts.append((lease.count * rates[lease.market], max(0.0, usable[60] - np.interp(wait, np.arange(61), usable))))
        risk[lease.market] = max(risk.get(lease.market, 0.0), 1 - survival[60])
    if added is not None:
        market, row, count = added
        survival, usable = table.survival[rows[market], row], table.omega[rows[market], row]
        price = job.history.paths[market].price_at(now)
        cost += count * survival[60] * price / 1e6
        startup = round(options.startup_min)
        parts.append((count * rates[market], max(0.0, usable[60] - usable[startup])))
        risk[market] = max(risk.get(market, 0.0), 1 - survival[60])
        change_h = options.scale_min / 60
    stays = np.prod([1 - own for own in risk.values()])
    lost = (options.eviction_min / 60 if lost_h is None else lost_h) * (1 - stays) + change_h
    rate = sum(work * max(0.0, hours - lost) for work, hours in parts)
    work = rate / (1 - options.serial + options.serial * rate)
    return cost / work if work > 0 else np.inf


FOOTPRINTS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 40), st.integers(0, 3400), st.integers(0, 300_000)),
    min_size=1,
    max_size=4,
)


@given(seed=SEEDS, held=FOOTPRINTS)
def test_a_footprint_is_valued_lease_by_lease(seed, held):
    job = drawn_world(seed, eviction_min=20.0, scale_min=7.0, startup_min=4.0)
    now = int(job.history.begin_s) + 2 * 86_400
    prices = [path.price_at(now) for path in job.history.paths]
    leases = [
        LiveLease(
            number=number,
            market=market,
            count=count,
            bid_micro=prices[market] + delta,
            granted_s=now - age,
            ready_s=now - age + 240,
            price_micro=prices[market] + 500,
        )
        for number, (market, count, age, delta) in enumerate(held)
    ]
    brain = Proteus(job)
    seen = view(job, now, leases)
    footprint = _Footprint(brain, seen)
    assert footprint.ratio(0.0) == pytest.approx(expected_ratio(job, brain, now, leases))
    ratios = footprint.with_each(added(3))
    assert ratios.shape == (4, 14, 1)
    for market in range(3):
        for row in (0, 5, 9):
            if prices[market] + DELTAS[row] > 210_000:
                continue
            expected = expected_ratio(job, brain, now, leases, added=(market, row, 3))
            assert ratios[market, row, 0] == pytest.approx(expected)
    every, present = Candidates(np.array([1, 9, 96]), np.full(4, 192)), footprint.ratio(0.0)
    whole, cut = footprint.with_each(every), footprint.with_each(every, present)
    assert np.array_equal(np.where(whole < present, whole, np.inf), np.where(cut < present, cut, np.inf))
    first, *others = leases
    keep = expected_ratio(job, brain, now, leases, renewed=first)
    # Returning machines is a change of the footprint, at the cost of a change.
    drop = expected_ratio(job, brain, now, others, change_h=7 / 60)
    assert brain.should_renew(seen, first) == (keep <= drop)


def test_checkpoints_come_at_the_interval_of_all_that_is_held():
    job = drawn_world(1, checkpoint_min=5.0)
    brain = BidBrainCheckpoint(job)
    leases = [
        LiveLease(number=m, market=m, count=1, bid_micro=70_000, granted_s=0, ready_s=0, price_micro=50_000)
        for m in (0, 1)
    ]
    rows = [job.table.index[job.history.markets[m].name] for m in (0, 1)]
    survival = [job.table.survival[row, job.table.row(20_000), -1] for row in rows]
    mean_s = 3600 / -sum(np.log(max(1e-9, own)) for own in survival)
    assert brain.checkpoint_every_s(leases) == pytest.approx(np.sqrt(2 * 300 * mean_s))
    assert brain.checkpoint_every_s([]) == float("inf")


@pytest.mark.parametrize("checkpoint_min", [1.0, 600.0])
def test_an_eviction_costs_a_checkpointing_job_a_restart_and_half_an_interval_of_at_most_four_hours(checkpoint_min):
    job = drawn_world(2, checkpoint_min=checkpoint_min, restart_min=12.0)
    now = int(job.history.begin_s) + 86_400
    brain = BidBrainCheckpoint(job)
    price = job.history.paths[0].price_at(now)
    held = [
        LiveLease(number=0, market=0, count=9, bid_micro=price + 500, granted_s=now, ready_s=now, price_micro=price)
    ]
    usual_s = 3600 * np.nanmedian(job.table.mean_h[:, -1])
    interval = min(np.sqrt(2 * 60 * checkpoint_min * usual_s), 4 * 3600)
    expected = expected_ratio(job, brain, now, held, lost_h=(720 + interval / 2) / 3600)
    assert _Footprint(brain, view(job, now, held)).ratio(0.0) == pytest.approx(expected)


def test_takes_machines_on_demand_where_no_spot_price_is_below_and_gives_them_back_for_spot():
    dear = ((0, 300_000), (36_000, 40_000))
    job = world(dear, baseline=8, max_spot=8)
    brain = Proteus(job)
    request = brain.decide(view(job, 3600, room=8, on_demand_room=8))
    assert (request.market, request.count, request.bid_micro) == (0, 8, None)
    held = LiveLease(number=0, market=0, count=8, bid_micro=None, granted_s=0, ready_s=180, price_micro=210_000)
    assert brain.should_renew(view(job, 58 * 60, [held], room=8, on_demand_room=0), held)
    # Eight more machines for a fifth of the price are there by then.
    spot = LiveLease(
        number=1, market=0, count=8, bid_micro=50_000, granted_s=36_000, ready_s=36_180, price_micro=40_000
    )
    assert not brain.should_renew(view(job, 36_000 + 58 * 60, [held, spot], room=0, on_demand_room=0), held)


def test_asks_for_no_more_on_demand_than_may_be_taken():
    job = world(((0, 300_000),))
    brain = Proteus(job)
    assert brain.decide(view(job, 3600, on_demand_room=5)).count == 4
    assert brain.decide(view(job, 3600, on_demand_room=0)) is None


def test_a_machine_on_demand_is_valued_as_one_that_nobody_takes_away():
    job = drawn_world(3, eviction_min=20.0, scale_min=7.0, startup_min=4.0)
    now = int(job.history.begin_s) + 2 * 86_400
    ratio = _Footprint(Proteus(job), view(job, now)).with_each(added(6))[3]
    rate = 6 * (1 - 4 / 60 - 7 / 60)
    work = rate / (1 - 0.002 + 0.002 * rate)
    assert ratio[-1, 0] == pytest.approx((3 + 6) * 0.21 / work)
    assert ratio[0, 0] == ratio[-1, 0]
    assert np.isinf(ratio[1:-1]).all()


def test_never_an_hour_is_bought_above_the_price_on_demand():
    # A spike every ten hours: bids of half a dollar rode it through at ten times the price on demand.
    path = [step for k in range(40) for step in ((36_000 * k, 40_000), (36_000 * k + 34_000, 390_000))]
    job = world(path, job_hours=8, baseline=16, max_spot=48)
    for name in ("proteus", "bidbrain-checkpoint"):
        for start in (0, 33_000, 34_500):
            result = run_policy(job, make_policy(name, job), start)
            assert result.is_done
            assert max(line.price_micro for line in result.ledger if line.amount_micro) <= 210_000
            assert {line.market for line in result.ledger} >= {"c3.xlarge@z0"}


@given(seed=SEEDS, name=st.sampled_from(["proteus", "bidbrain-checkpoint"]))
def test_no_bid_is_above_the_price_on_demand_whatever_prices_do(seed, name):
    job = drawn_world(seed, job_hours=3, baseline=16, max_spot=48)
    result = run_policy(job, make_policy(name, job), int(job.history.begin_s) + 3600 * 24)
    assert all(line.price_micro <= 210_000 for line in result.ledger)


class _AskedAlways(BidBrainPolicy):
    def next_decision_tick(self, leases, rooms, ticks):
        return 0


class _AsksForLittle(BidBrainPolicy):
    """Request one machine whenever BidBrain requests any, and count every request."""

    asked = 0

    def decide(self, view):
        self.asked += 1
        found = super().decide(view)
        return None if found is None else replace(found, count=1)


@given(
    seed=SEEDS,
    recovery=st.sampled_from([Recovery.ELASTIC, Recovery.CHECKPOINT]),
    hours=st.sampled_from([1.5, 6.0]),
    tick_s=st.sampled_from([120, 420]),
    offset=st.integers(0, 7200),
)
def test_ticks_are_skipped_where_nothing_would_be_asked_for(seed, recovery, hours, tick_s, offset):
    job = drawn_world(seed, job_hours=hours, baseline=16, max_spot=48, tick_s=tick_s, checkpoint_min=1.0)
    start = int(job.history.begin_s) + 86_400 + offset
    variants = (type(base.__name__, (base,), {"recovery": recovery}) for base in (BidBrainPolicy, _AskedAlways))
    quick, plain = (run_policy(job, variant(job), start) for variant in variants)
    assert quick == plain


@pytest.mark.parametrize("paid", [40_000, 45_000, 50_000])
@pytest.mark.parametrize("age_s", [0, 1, 1800, 3598, 3599])
def test_the_first_tick_that_is_not_skipped_is_the_first_at_which_anything_is_asked_for(paid, age_s):
    """A lease's expensive hour, which leads to requests, may end at any second; from 9000 s on all prices are high."""
    job = world(((0, 40_000), (9_000, 42_000), (12_000, 100_000)), baseline=16)
    brain, now = Proteus(job), 7_200
    lease = LiveLease(
        number=0, market=0, count=60, bid_micro=210_000, granted_s=now - age_s, ready_s=0, price_micro=paid
    )
    for begin in (now, now + 1, now + 1200):
        ticks = range(begin, begin + 6 * 600, 600)
        asked = [k for k, tick in enumerate(ticks) if brain.decide(view(job, tick, [lease], 100, 0)) is not None]
        assert brain.next_decision_tick([lease], (100, 0), ticks) == (asked[0] if asked else len(ticks))


def test_a_policy_that_decides_for_itself_is_asked_at_every_tick():
    job = drawn_world(1, job_hours=2, baseline=16, max_spot=48)
    policy = _AsksForLittle(job)
    result = run_policy(job, policy, int(job.history.begin_s) + 86_400)
    assert policy.asked >= result.hours * 3600 / 120

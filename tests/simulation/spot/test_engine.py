"""The engine on worlds small enough to follow by hand, and its invariants on random ones."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidOptionError, NotAllowedError
from optim.models.bidding.market.billing import Reason
from optim.models.bidding.market.evictions import fit_evictions
from optim.simulation.spot.engine import run_policy
from optim.simulation.spot.policies import Proteus, checkpoint_interval, make_policy, write_cost_s
from optim.simulation.spot.policy import LiveLease, Policy, Recovery, Request, SpotOptions, World
from tests.support.policies import SPOT_POLICIES
from tests.support.spot.worlds import SEEDS, drawn_world, history, world

HOUR = 3600
CALM = ((0, 50_000),)
PLAIN = {"serial": 0.0, "startup_min": 0.0, "scale_min": 0.0, "eviction_min": 0.0, "baseline": 4, "reliable": 0}


class Scripted(Policy):
    """Request machines by a script of times."""

    name = "scripted"
    has_reliable = False

    def __init__(self, script, recovery=Recovery.ELASTIC, keep=True, every_s=float("inf")):
        self._script, self.recovery, self._keep, self._every = dict(script), recovery, keep, every_s

    def wants_more(self, leases, room):
        return True

    def decide(self, view):
        return self._script.get(view.now_s)

    def should_renew(self, view, lease):
        return self._keep

    def checkpoint_every_s(self, leases):
        return self._every


def ask(count, bid, market=0):
    return Request(market=market, count=count, bid_micro=bid)


def test_on_demand_takes_just_the_jobs_hours_and_costs_its_list_price():
    result = run_policy(world(CALM), make_policy("on-demand", world(CALM)), 0)
    assert result.hours == pytest.approx(20.0, abs=1e-3)
    assert result.cost_usd == pytest.approx(64 * 20 * 0.21)


def test_every_started_hour_is_paid_at_the_price_of_its_start():
    path = ((0, 50_000), (HOUR, 80_000), (HOUR + 60, 10_000))
    result = run_policy(world(path, job_hours=1.5, **PLAIN), Scripted({0: ask(4, 100_000)}), 0)
    assert result.hours == 1.5
    assert result.cost_micro == 4 * (50_000 + 80_000)


def test_the_hour_of_an_eviction_is_free_and_its_work_counts_up_to_the_end_of_the_warning():
    path = ((0, 50_000), (HOUR + 600, 200_000), (HOUR + 1200, 50_000))
    script = {0: ask(4, 100_000), HOUR + 1200: ask(4, 100_000)}
    result = run_policy(world(path, job_hours=2, **PLAIN), Scripted(script), 0)
    assert result.evictions == 1
    assert [line.reason for line in result.ledger].count(Reason.EVICTED_FREE) == 1
    assert result.cost_micro == 4 * 50_000 * 2
    assert result.hours == pytest.approx(2 + (1200 - 600 - 120) / HOUR)
    assert result.free_hours == pytest.approx(4 * 600 / HOUR)


def test_an_eviction_costs_an_elastic_trainer_a_pause_and_others_their_work():
    path = ((0, 50_000), (1800, 200_000), (2040, 50_000))
    script = {0: ask(4, 100_000), 2040: ask(4, 100_000)}
    options = {**PLAIN, "job_hours": 2, "eviction_min": 2.0, "restart_min": 5.0}
    hours = {recovery: run_policy(world(path, **options), Scripted(script, recovery), 0).hours for recovery in Recovery}
    idle = (2040 - 1920) / HOUR
    assert hours[Recovery.ELASTIC] == pytest.approx(
        2 + idle, abs=1e-3
    )  # the pause falls into the time without machines
    assert hours[Recovery.NOTHING] == pytest.approx(2040 / HOUR + 2)
    assert hours[Recovery.CHECKPOINT] == hours[Recovery.NOTHING]  # no checkpoint was written before


def test_a_checkpoint_saves_the_work_up_to_it():
    path = ((0, 50_000), (3000, 200_000), (3120, 50_000))
    script = {0: ask(4, 100_000), 3120: ask(4, 100_000)}
    options = {**PLAIN, "job_hours": 1, "checkpoint_min": 5.0, "restart_min": 5.0}
    policy = Scripted(script, Recovery.CHECKPOINT, every_s=1200)
    result = run_policy(world(path, **options), policy, 0)
    # 1200 s of work, 300 s to write, 1200 s of work, 300 s to write: saved 2400 s at 3000; gone at 3120 with 120 s more.
    # Again at 3120 with 300 s of restart: 1200 s are left, and the job is done as the next checkpoint would begin.
    assert result.hours * HOUR == pytest.approx(3120 + 300 + 1200)


def test_a_dropped_lease_ends_with_its_hour():
    script = {0: ask(2, 100_000), HOUR: ask(4, 100_000)}
    result = run_policy(world(CALM, job_hours=2, **PLAIN), Scripted(script, keep=False), 0)
    first = [line for line in result.ledger if line.begin_s == 0]
    assert [(line.begin_s, line.end_s) for line in first] == [(0, HOUR)]


def test_a_request_above_the_room_is_refused():
    with pytest.raises(NotAllowedError, match="requests 200 instances, but only 192 are allowed"):
        run_policy(world(CALM), Scripted({0: ask(200, 100_000)}), 0)


def test_a_request_below_the_price_is_not_granted():
    result = run_policy(world(CALM, job_hours=1, horizon=1.0, **PLAIN), Scripted({0: ask(4, 49_999)}), 0)
    assert not result.is_done
    assert result.cost_micro == 0


@given(seed=SEEDS, name=st.sampled_from(sorted(SPOT_POLICIES)), hours=st.sampled_from([2, 5]))
def test_ledgers_add_up_and_jobs_are_done_whatever_happens(seed, name, hours):
    """The engine compares its cost with the ledger's sum; this test adds the ledger up once more."""
    job = drawn_world(seed, job_hours=hours, baseline=16, max_spot=48)
    result = run_policy(job, make_policy(name, job), int(job.history.begin_s) + 3600 * 24)
    again = run_policy(job, make_policy(name, job), int(job.history.begin_s) + 3600 * 24)
    assert result == again
    assert result.cost_micro == sum(line.amount_micro for line in result.ledger)
    assert result.work_done <= job.job_work * (1 + 1e-9)
    assert result.is_done == (result.work_done >= job.job_work * (1 - 1e-9))
    hours_of_lines = sum(line.machine_hours for line in result.ledger)
    assert hours_of_lines == pytest.approx(result.on_demand_hours + result.paid_hours + result.free_hours)
    for line in result.ledger:
        assert (line.amount_micro == 0) == (line.reason is Reason.EVICTED_FREE)


@given(seed=SEEDS, count=st.integers(1, 9), hours=st.floats(0.2, 5.0))
def test_a_bid_above_all_prices_rides_through_and_pays_every_started_hour_at_its_first_price(seed, count, hours):
    job = drawn_world(seed, **{**PLAIN, "baseline": count, "job_hours": hours})
    begin, path = int(job.history.begin_s), job.history.paths[0]
    result = run_policy(job, Scripted({begin: ask(count, 10**9)}), begin)
    started = int(np.ceil(result.hours - 1e-12))
    assert result.is_done
    assert (result.evictions, result.free_hours) == (0, 0.0)
    assert result.cost_micro == count * sum(path.price_at(begin + HOUR * n) for n in range(started))


def test_lingering_never_costs_more():
    for seed in range(8):
        start = 3600 * 24
        costs = []
        for linger in (False, True):
            job = drawn_world(seed, job_hours=3, baseline=16, max_spot=48, linger=linger)
            costs.append(run_policy(job, make_policy("proteus", job), int(job.history.begin_s) + start).cost_micro)
        assert costs[1] <= costs[0]


def test_youngs_interval():
    assert checkpoint_interval(3600, 60) == pytest.approx(np.sqrt(2 * 60 * 3600))
    assert checkpoint_interval(float("inf"), 60) == float("inf")


@pytest.mark.parametrize("bad", [{"job_hours": 0}, {"serial": 1.0}, {"tick_s": 0}, {"horizon": 0.5}, {"max_spot": -1}])
def test_refuses_options_out_of_range(bad):
    with pytest.raises(InvalidOptionError):
        SpotOptions(**bad)


def test_refuses_an_unknown_baseline_and_policy():
    with pytest.raises(InvalidOptionError, match=r"baseline_type 'x.large' has no market; the prices have: c3.xlarge"):
        _ = world(CALM, baseline_type="x.large").baseline
    with pytest.raises(InvalidOptionError, match="unknown policy 'clever'"):
        make_policy("clever", world(CALM))


class Meddling(Scripted):
    """A policy that tries to change every lease that it receives."""

    def __init__(self, script, field, value):
        super().__init__(script)
        self._field, self._value = field, value
        self.refused = 0

    def _meddle(self, leases):
        for lease in leases:
            try:
                setattr(lease, self._field, self._value)
            except AttributeError:
                self.refused += 1

    def wants_more(self, leases, room):
        self._meddle(leases)
        return True

    def should_renew(self, view, lease):
        self._meddle([lease, *view.leases])
        return True


@pytest.mark.parametrize(
    ("field", "value"), [("granted_s", 10**6), ("count", 1), ("price_micro", 0), ("bid_micro", 10**9), ("ready_s", 0)]
)
def test_a_policy_that_writes_into_its_leases_is_refused_and_changes_no_bill(field, value):
    path = ((0, 50_000), (HOUR + 600, 200_000), (HOUR + 1200, 50_000))
    script = {0: ask(4, 100_000), HOUR + 1200: ask(4, 100_000)}
    job = world(path, job_hours=3, **PLAIN)
    policy = Meddling(script, field, value)
    assert run_policy(job, policy, 0).ledger == run_policy(job, Scripted(script), 0).ledger
    assert policy.refused > 0


class Noting(Scripted):
    """A policy that records every view, and the time and lease of every question about a renewal."""

    def __init__(self, script, **settings):
        super().__init__(script, **settings)
        self.asked, self.views = [], []

    def decide(self, view):
        self.views.append(view)
        return super().decide(view)

    def should_renew(self, view, lease):
        self.asked.append((view.now_s, lease))
        return super().should_renew(view, lease)


def seconds(job, policy):
    result = run_policy(job, policy, 0)
    assert result.is_done
    return result.hours * HOUR


def test_a_lease_is_decided_on_at_minute_58_and_then_shows_the_price_of_its_next_hour():
    path = ((0, 50_000), (3000, 70_000), (3500, 60_000), (5000, 90_000))
    policy = Noting({0: ask(4, 100_000)})
    run_policy(world(path, job_hours=2.5, **PLAIN), policy, 0)
    assert [(time, lease.price_micro) for time, lease in policy.asked] == [(58 * 60, 50_000), (HOUR + 58 * 60, 70_000)]
    shown = {view.now_s: view.leases[0].price_micro for view in policy.views if view.leases}
    assert (shown[3360], shown[3600], shown[7200]) == (50_000, 70_000, 90_000)


def test_a_policy_sees_prices_room_and_work_left_as_they_are():
    policy = Noting({0: ask(3, 100_000)})
    job = world(CALM, ((600, 70_000),), job_hours=1, max_spot=10, **PLAIN)
    run_policy(job, policy, 0)
    by_time = {view.now_s: view for view in policy.views}
    assert (by_time[0].price_micro, by_time[0].room, by_time[0].work_left) == ((50_000, None), 10, 4.0)
    assert (by_time[720].price_micro, by_time[720].room) == ((50_000, 70_000), 7)
    assert by_time[720].work_left == pytest.approx(4.0 - 3 * 720 / HOUR)


def test_machines_work_from_the_end_of_their_start_up_on():
    options = {**PLAIN, "job_hours": 1.1, "startup_min": 6.0}
    # The job is the baseline's work of one hour; the first six minutes are paid without work.
    assert seconds(world(CALM, **options), Scripted({0: ask(4, 100_000)})) == pytest.approx(HOUR + 360)


def test_every_checkpoint_costs_its_time_and_none_is_written_once_the_job_is_done():
    options = {**PLAIN, "job_hours": 1, "checkpoint_min": 5.0}
    policy = Scripted({0: ask(4, 100_000)}, Recovery.CHECKPOINT, every_s=1500)
    assert seconds(world(CALM, **options), policy) == pytest.approx(HOUR + 2 * 300)


def test_a_checkpoint_that_an_eviction_cuts_short_saves_nothing():
    path = ((0, 50_000), (1200, 200_000), (1440, 50_000))
    script = {0: ask(4, 100_000), 1440: ask(4, 100_000)}
    options = {**PLAIN, "job_hours": 1, "checkpoint_min": 5.0, "restart_min": 5.0}
    # The checkpoint begun at 1200 would be complete at 1500; the machines are lost at 1320.
    policy = Scripted(script, Recovery.CHECKPOINT, every_s=1200)
    assert seconds(world(path, **options), policy) == pytest.approx(1440 + HOUR + 2 * 300)


def test_a_restart_from_a_checkpoint_costs_its_time_and_the_work_since_is_done_again():
    path = ((0, 50_000), (2400, 200_000), (2640, 50_000))
    script = {0: ask(4, 100_000), 2640: ask(4, 100_000)}
    options = {**PLAIN, "job_hours": 1, "checkpoint_min": 2.0, "restart_min": 4.0}
    # Saved 1200 s at 1320; begun again at 2640 + 240 with 2400 s left, of which a checkpoint takes 120 s more.
    policy = Scripted(script, Recovery.CHECKPOINT, every_s=1200)
    assert seconds(world(path, **options), policy) == pytest.approx(2640 + 240 + 2400 + 120)


def test_an_elastic_job_pauses_for_machines_that_join_and_for_those_that_are_given_back():
    options = {**PLAIN, "job_hours": 2, "scale_min": 3.0}
    joined = Scripted({0: ask(2, 100_000), 600: ask(2, 100_000)})
    # Two machines work 600 s, then none for 180 s, then four.
    assert seconds(world(CALM, **options), joined) == pytest.approx(600 + 180 + (4 * 7200 - 2 * 600) / 4)
    dropped = Scripted({0: ask(4, 100_000), 1800: ask(4, 100_000)}, keep=False)
    found = run_policy(world(CALM, **{**options, "job_hours": 3}), dropped, 0)
    # Eight machines from 1800 to 3600, less the pause as four join; four until 5400, less the pause as the first leave.
    done = 4 * 1800 + 8 * (1800 - 180) + 4 * (1800 - 180)
    assert found.work_done == pytest.approx(min(done, 4 * 3 * HOUR) / HOUR)
    assert not found.is_done


def test_a_job_that_is_not_elastic_pauses_for_nothing_that_joins():
    options = {**PLAIN, "job_hours": 2, "scale_min": 3.0}
    policy = Scripted({0: ask(2, 100_000), 600: ask(2, 100_000)}, Recovery.NOTHING)
    assert seconds(world(CALM, **options), policy) == pytest.approx(600 + (4 * 7200 - 2 * 600) / 4)


def test_an_eviction_of_machines_that_never_worked_costs_no_pause():
    path = ((0, 50_000), (300, 200_000), (420, 50_000))
    options = {**PLAIN, "job_hours": 1.25, "startup_min": 15.0, "eviction_min": 30.0}
    result = run_policy(world(path, **options), Scripted({0: ask(4, 100_000), 480: ask(4, 100_000)}), 0)
    assert result.hours * HOUR == pytest.approx(480 + 900 + HOUR)
    assert result.evictions == 1


def test_an_elastic_job_pauses_after_an_eviction_of_machines_that_worked():
    path = ((0, 50_000), (1800, 120_000))
    script = {0: ask(2, 100_000), 120: ask(2, 150_000)}
    job = world(path, **{**PLAIN, "job_hours": 2, "eviction_min": 4.0})
    # Lost at 1920; the other two continue 240 s later.
    work = 2 * 120 + 4 * 1800
    assert seconds(job, Scripted(script)) == pytest.approx(1920 + 240 + (4 * 7200 - work) / 2)


def test_reliable_machines_hold_the_state_cost_their_list_price_and_do_no_work():
    policy = Scripted({0: ask(4, 100_000)})
    policy.has_reliable = True
    result = run_policy(world(CALM, job_hours=1.5, **{**PLAIN, "reliable": 3}), policy, 0)
    assert result.hours == pytest.approx(1.5)
    assert result.cost_micro == 2 * (4 * 50_000 + 3 * 210_000)
    assert (result.on_demand_hours, result.paid_hours) == (6.0, 8.0)
    assert {line.market for line in result.ledger} == {"c3.xlarge@z0", "c3.xlarge on demand"}


def test_lingering_for_an_eviction_makes_the_last_hour_free():
    path = ((0, 50_000), (HOUR + 3000, 200_000), (HOUR + 3300, 50_000))
    bills = {}
    for linger in (False, True):
        job = world(path, job_hours=1.5, linger=linger, **PLAIN)
        bills[linger] = run_policy(job, Scripted({0: ask(4, 100_000)}), 0)
    assert bills[False].cost_micro == 4 * 2 * 50_000
    assert bills[True].cost_micro == 4 * 50_000
    assert (bills[False].end_s, bills[True].end_s) == (5400, HOUR + 3000)
    assert bills[True].hours == bills[False].hours == 1.5


def test_a_run_is_given_up_at_the_horizon():
    result = run_policy(world(CALM, job_hours=2, horizon=1.5, **PLAIN), Scripted({0: ask(2, 100_000)}), 0)
    assert (result.hours, result.is_done, result.work_done) == (3.0, False, pytest.approx(6.0))
    assert result.cost_micro == 2 * 3 * 50_000


def test_machines_scale_by_amdahls_law():
    options = {**PLAIN, "serial": 0.1, "job_hours": 2}
    # Four of them do 4 / (0.9 + 0.4) units an hour, eight do 8 / (0.9 + 0.8).
    assert seconds(world(CALM, **options), Scripted({0: ask(8, 100_000)})) == pytest.approx(
        2 * HOUR * (4 / 1.3) / (8 / 1.7), abs=1
    )


def test_the_job_is_what_the_baseline_does_after_its_start_up():
    job = world(CALM, job_hours=3, baseline=5, startup_min=30.0, serial=0.0)
    assert job.job_work == pytest.approx(5 * 2.5)
    assert job.useful_rate(0.0) == 0.0
    assert job.baseline_price(-1) is None
    assert job.baseline_price(0) == 50_000


def test_machines_on_demand_are_of_the_type_that_was_asked_for_and_may_be_given_back():
    known = history(CALM, ((0, 60_000),))
    other = replace(known.markets[1], instance_type="c3.2xlarge", on_demand_micro=420_000, rate=2.0)
    known = replace(known, markets=(known.markets[0], other))
    job = World(history=known, table=fit_evictions(known), options=SpotOptions(job_hours=1.5, **PLAIN))
    policy = Noting({0: ask(2, None, market=1)})
    result = run_policy(job, policy, 0)
    assert result.hours == 1.5
    assert {line.market for line in result.ledger} == {"c3.2xlarge on demand"}
    assert result.cost_micro == 2 * 2 * 420_000
    assert [(time, lease.price_micro) for time, lease in policy.asked] == [(58 * 60, 420_000)]
    assert {view.on_demand_room for view in policy.views} == {4, 2}
    assert {view.room for view in policy.views} == {192}
    given_back = run_policy(job, Scripted({0: ask(2, None, market=1), HOUR: ask(4, 100_000)}, keep=False), 0)
    assert given_back.cost_micro == 2 * 420_000 + 4 * 50_000


def test_more_machines_on_demand_than_the_baseline_are_refused():
    with pytest.raises(NotAllowedError, match="requests 5 instances, but only 4 are allowed"):
        run_policy(world(CALM, job_hours=1, **PLAIN), Scripted({0: ask(5, None)}), 0)


def test_reliable_machines_may_be_of_a_type_of_their_own():
    known = history(CALM, ((0, 60_000),))
    other = replace(known.markets[1], instance_type="m3.medium", on_demand_micro=67_000, rate=0.25)
    known = replace(known, markets=(known.markets[0], other))
    options = SpotOptions(job_hours=1.5, **{**PLAIN, "reliable": 3, "reliable_type": "m3.medium"})
    job = World(history=known, table=fit_evictions(known), options=options)
    policy = Scripted({0: ask(4, 100_000)})
    policy.has_reliable = True
    result = run_policy(job, policy, 0)
    assert result.cost_micro == 2 * (4 * 50_000 + 3 * 67_000)
    assert {line.market for line in result.ledger} == {"c3.xlarge@z0", "m3.medium on demand"}
    assert Proteus(job).overheads.fixed_usd == pytest.approx(3 * 0.067)
    with pytest.raises(InvalidOptionError, match="reliable_type 'x' has no market"):
        _ = world(CALM, reliable_type="x").reliable


def test_a_checkpoints_seconds_and_dollars_follow_from_its_gigabytes():
    path = ((0, 50_000), (3000, 200_000), (3120, 50_000))
    script = {0: ask(4, 100_000), 3120: ask(4, 100_000)}
    storage = {"state_gb": 75.0, "write_gb_per_s": 0.5, "read_gb_per_s": 3.0, "checkpoint_usd_per_gb": 0.002}
    options = {**PLAIN, "job_hours": 1, "checkpoint_min": 99.0, "restart_min": 1.0, **storage}
    result = run_policy(world(path, **options), Scripted(script, Recovery.CHECKPOINT, every_s=1250), 0)
    # 1250 s of work, 150 s to write, 1250 s, 150 s: saved 2500 s at 2800; gone at 3120. Again 60 s and 25 s of reading:
    # 1100 s are left, which is less than a stretch. Work costs an hour free and one paid, each checkpoint 0.15 $.
    assert result.hours * HOUR == pytest.approx(3120 + 85 + 1100)
    written = [line for line in result.ledger if line.reason is Reason.WRITTEN]
    assert [(line.end_s, line.amount_micro, line.machine_hours) for line in written] == [
        (1400, 150_000, 0.0),
        (2800, 150_000, 0.0),
    ]
    assert result.cost_micro == 4 * 50_000 + 2 * 150_000


def test_dollars_of_checkpoints_make_them_rarer():
    job = drawn_world(1, state_gb=120.0)
    lease = LiveLease(number=0, market=0, count=8, bid_micro=70_000, granted_s=0, ready_s=0, price_micro=45_000)
    assert write_cost_s(job.options, [lease]) == 240.0
    dear = replace(job.options, checkpoint_usd_per_gb=0.001)
    # Eight machines at 0.045 $ per hour wait at a cost of 0.12 $: 1,200 s.
    assert write_cost_s(dear, [lease]) == pytest.approx(240.0 + 1200.0)
    assert write_cost_s(dear, []) == 240.0
    for name in ("standard-checkpoint", "bidbrain-checkpoint"):
        every = [
            make_policy(name, replace(job, options=options)).checkpoint_every_s([lease])
            for options in (job.options, dear)
        ]
        assert every[1] == pytest.approx(every[0] * np.sqrt(6.0))


def test_a_storage_that_writes_nothing_is_refused():
    with pytest.raises(InvalidOptionError, match="write_gb_per_s must be"):
        SpotOptions(write_gb_per_s=0.0)

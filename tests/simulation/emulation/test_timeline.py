"""A timeline agrees with the simulation: the same bill, free hours, work and machines, at every time."""

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from optim.core.errors import UnsupportedProblemError
from optim.models.bidding.market.billing import Reason
from optim.models.bidding.market.prices import MICRO
from optim.simulation.emulation.lease_run import fit_scale, peak, processes_of
from optim.simulation.emulation.timeline import Change, LeaseFacts, record_timeline
from optim.simulation.spot.engine import run_policy
from optim.simulation.spot.policies import make_policy
from tests.support.policies import SPOT_POLICIES
from tests.support.spot.worlds import DAY_S, drawn_world, world

CLOCKS = 50
JOB = {"job_hours": 4.0, "baseline": 16, "max_spot": 48, "horizon": 3.0}
SPIKE = [(0, 40_000), (9_000, 500_000), (9_600, 40_000), (14_500, 500_000), (15_000, 40_000)]
"""Two evictions of all bids at the on-demand price; checkpoints take five minutes each."""


@pytest.fixture(scope="module")
def spiky():
    """One market that evicts twice in a job of five hours."""
    return world(SPIKE, job_hours=5.0, baseline=8, max_spot=8)


@pytest.fixture(scope="module")
def drawn():
    """Four drawn worlds by seed."""
    return {seed: drawn_world(seed, **JOB) for seed in range(4)}


def start_of(drawn_one, day):
    return drawn_one.history.begin_s + DAY_S * day


@given(seed=st.integers(0, 3), day=st.integers(0, 8), policy=st.sampled_from(sorted(SPOT_POLICIES)))
def test_being_watched_changes_nothing_and_the_last_bill_is_the_ledgers(drawn, seed, day, policy):
    start = start_of(drawn[seed], day)
    alone = run_policy(drawn[seed], make_policy(policy, drawn[seed]), start)
    timeline = record_timeline(drawn[seed], policy, start)
    assert timeline.result == alone
    assert round(timeline.bill_usd(timeline.over_s) * MICRO) == sum(line.amount_micro for line in alone.ledger)
    assert timeline.free_hours(timeline.over_s) == pytest.approx(alone.free_hours, rel=1e-12)


@given(seed=st.integers(0, 3), day=st.integers(0, 8), policy=st.sampled_from(sorted(SPOT_POLICIES)))
def test_every_clock_comes_in_order_and_again_only_after_a_restart(drawn, seed, day, policy):
    timeline = record_timeline(drawn[seed], policy, start_of(drawn[seed], day))
    clock, before_s = 0, float(timeline.start_s)
    for index, step in enumerate(timeline.steps):
        if any(change is Change.RESTARTED for change, _ in step.changes):
            clock = timeline.clock_of(step.work_done, CLOCKS)
        for due, time_s in timeline.clock_times(CLOCKS, index):
            assert due == clock + 1
            assert before_s <= time_s <= timeline.steps[index + 1].time_s
            assert step.work_until(time_s) == pytest.approx(due * timeline.job_work / CLOCKS, rel=1e-6)
            clock, before_s = due, time_s
    assert clock == CLOCKS or not timeline.result.is_done


@given(seed=st.integers(0, 3), day=st.integers(0, 8), policy=st.sampled_from(sorted(SPOT_POLICIES)))
def test_leases_are_granted_once_and_go_once(drawn, seed, day, policy):
    timeline = record_timeline(drawn[seed], policy, start_of(drawn[seed], day))
    held = set()
    for step in timeline.steps:
        for change, number in step.changes:
            if change is Change.GRANTED:
                assert number not in held
                held.add(number)
            elif change in (Change.LOST, Change.RETURNED):
                held.remove(number)
        if step is not timeline.steps[-1]:
            assert set(step.held) == held
    lost = sum(change is Change.WARNED for step in timeline.steps for change, _ in step.changes)
    assert lost == timeline.result.evictions
    times = [step.time_s for step in timeline.steps]
    assert times == sorted(times)


def test_free_hours_count_from_the_eviction_on(spiky):
    timeline = record_timeline(spiky, "standard-checkpoint", 0)
    free = [line for line in timeline.result.ledger if line.reason is Reason.EVICTED_FREE]
    assert [line.end_s for line in free] == [9_000, 14_500]
    assert timeline.free_hours(8_999) == 0
    assert timeline.free_hours(9_000) == 8 * 1800 / 3600
    assert timeline.bill_usd(0) == pytest.approx(8 * 0.04)
    assert timeline.bill_usd(9_000) == pytest.approx(2 * 8 * 0.04)  # the third hour is never due


def test_an_eviction_takes_a_checkpointing_job_back_and_an_elastic_one_on(spiky):
    for policy, is_back in (("standard-checkpoint", True), ("standard-agile", False)):
        timeline = record_timeline(spiky, policy, 0)
        restarts = [step for step in timeline.steps if (Change.RESTARTED, None) in step.changes]
        assert bool(restarts) is is_back
        assert all(step.work_done == step.work_saved for step in restarts)
    saved = [s for s in record_timeline(spiky, "standard-checkpoint", 0).steps if (Change.SAVED, None) in s.changes]
    assert all(step.work_done == step.work_saved > 0 for step in saved)


@given(seed=st.integers(0, 3), day=st.integers(0, 8), most=st.integers(6, 30))
def test_the_scale_is_the_least_that_fits(drawn, seed, day, most):
    start = start_of(drawn[seed], day)
    timelines = [record_timeline(drawn[seed], policy, start) for policy in ("proteus", "standard-checkpoint")]
    try:
        scale = fit_scale(timelines, most)
    except UnsupportedProblemError:
        reject()
    assert max(peak(timeline, scale) for timeline in timelines) <= most
    assert scale == 1 or max(peak(timeline, scale - 1) for timeline in timelines) > most


def test_more_leases_than_processes_are_refused(spiky):
    timeline = record_timeline(
        spiky, "standard-agile", 0
    )  # machines on demand hold the state of the spot machines' work
    with pytest.raises(UnsupportedProblemError, match="holds 2 leases at once, more than max_processes 1"):
        fit_scale([timeline], 1)


def test_a_lease_has_a_process_for_each_share_of_work_and_one_at_least():
    def lease(count, rate):
        return LeaseFacts(number=0, market="m", count=count, rate=rate, is_spot=True)

    assert [processes_of(lease(count, 1.0), 10) for count in (1, 10, 11, 20)] == [1, 1, 2, 2]
    assert processes_of(lease(7, 9.0), 10) == 7
    assert processes_of(lease(1, 0.25), 10) == 1
    assert [processes_of(lease(count, 1.0), 1) for count in (999, 1_000, 5_003)] == [999, 1_000, 5_003]

"""Policies under a deadline: it is met on every trace that leaves the room that was promised."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidOptionError
from optim.models.bidding.availability import AvailabilityTrace
from optim.simulation.spot.backtest import run_deadlines
from optim.simulation.spot.deadline import (
    DEADLINE_POLICIES,
    DeadlineJob,
    DeadlinePolicy,
    DeadlineRun,
    DeadlineView,
    GreedySpot,
    State,
    UniformProgress,
    run_deadline,
)
from optim.workloads.bidding.availability_files import read_availability
from tests.support.public_traces import spot_file

STEP = 195


def trace(available, step=STEP, price=900_000):
    size = len(available)
    return AvailabilityTrace(
        zone="z",
        resource="v100_1",
        time_s=np.arange(size, dtype=np.int64) * step,
        is_available=np.array(available, dtype=bool),
        price_micro=np.full(size, price, dtype=np.int64),
        on_demand_micro=3_060_000,
        end_s=size * step,
    )


runs = st.lists(st.integers(1, 40), min_size=1, max_size=30)


@given(
    lengths=runs,
    first=st.booleans(),
    work=st.floats(0.3, 6.0),
    changeover=st.floats(0.0, 0.4),
    extra=st.floats(0.0, 3.0),
    step=st.sampled_from([60, 195, 600]),
    policy=st.sampled_from(["uniform-progress", "greedy-spot"]),
)
def test_the_deadline_is_met_whenever_it_leaves_two_changeovers_and_a_step(
    lengths, first, work, changeover, extra, step, policy
):
    flags = np.concatenate([[(k % 2 == 0) == first] * length for k, length in enumerate(lengths)])
    deadline = work + 2 * changeover + step / 3600 + extra + 1e-9
    need = int(np.ceil(deadline * 3600 / step)) + 2
    flags = np.resize(flags, max(need, len(flags)))
    job = DeadlineJob(work_h=work, deadline_h=deadline, changeover_h=changeover)
    result = run_deadline(trace(flags, step), job, policy, 0)
    assert result.deadline_met
    assert result.work_done == pytest.approx(work)
    assert result.cost_micro == sum(line.amount_micro for line in result.ledger)


def test_spot_all_the_time_costs_the_spot_price_and_one_changeover():
    job = DeadlineJob(work_h=2.0, deadline_h=4.0, changeover_h=0.1)
    for policy in ("uniform-progress", "greedy-spot"):
        result = run_deadline(trace([True] * 100), job, policy, 0)
        assert result.hours == pytest.approx(2.1, abs=1e-3)
        assert result.cost_usd == pytest.approx(2.1 * 0.9, abs=1e-3)
        assert result.evictions == 0


def test_without_spot_uniform_progress_runs_on_demand():
    job = DeadlineJob(work_h=2.0, deadline_h=4.0, changeover_h=0.1)
    uniform, greedy, baseline = (
        run_deadline(trace([False] * 100), job, name, 0) for name in ("uniform-progress", "greedy-spot", "on-demand")
    )
    assert baseline.cost_usd == pytest.approx(2.1 * 3.06, abs=1e-2)
    assert uniform.deadline_met
    assert greedy.deadline_met
    assert uniform.cost_usd >= baseline.cost_usd - 1e-6


def test_a_preemption_in_the_first_hour_is_free():
    flags = [True] * 10 + [False] * 90
    result = run_deadline(trace(flags), DeadlineJob(work_h=2.0, deadline_h=5.0), "greedy-spot", 0)
    assert result.evictions == 1
    assert result.free_hours == pytest.approx(10 * STEP / 3600)


@pytest.mark.parametrize("bad", [{"work_h": 0.0}, {"deadline_h": 1.0}, {"changeover_h": -0.1}])
def test_refuses_jobs_that_can_not_be(bad):
    with pytest.raises(InvalidOptionError):
        DeadlineJob(**{"work_h": 2.0, "deadline_h": 3.0, **bad})


def test_refuses_an_unknown_policy_and_a_trace_that_is_too_short():
    job = DeadlineJob(work_h=2.0, deadline_h=3.0)
    with pytest.raises(InvalidOptionError, match="unknown policy 'luck'"):
        run_deadline(trace([True] * 100), job, "luck", 0)
    with pytest.raises(InvalidOptionError, match="shorter than the deadline"):
        list(run_deadlines(trace([True] * 10), job, ["greedy-spot"], starts=1, seed=0))


@pytest.fixture(
    scope="module", params=["aws_v100_price_availability_2023.csv.gz", "skypilot_spot_traces_2022-2023.csv.gz"]
)
def recorded(request) -> list[AvailabilityTrace]:
    """All traces of a file that last two days or more."""
    traces = read_availability(spot_file(request.param), on_demand_micro=3_060_000).values()
    return [trace for trace in traces if trace.end_s - int(trace.time_s[0]) > 2 * 86_400]


@pytest.mark.prove
@given(
    place=st.integers(0, 10_000),
    share=st.floats(0.0, 1.0),
    work=st.floats(1.0, 24.0),
    changeover=st.floats(0.0, 0.5),
    extra=st.floats(0.0, 6.0),
    policy=st.sampled_from(sorted(DEADLINE_POLICIES)),
)
def test_the_deadline_is_met_on_every_recorded_trace(recorded, place, share, work, changeover, extra, policy):
    chosen = recorded[place % len(recorded)]
    deadline = work + 2 * changeover + chosen.longest_tick_s / 3600 + extra + 1e-9
    job = DeadlineJob(work_h=work, deadline_h=deadline, changeover_h=changeover)
    last = int(np.searchsorted(chosen.time_s, chosen.end_s - 3600 * deadline - chosen.longest_tick_s)) - 1
    result = run_deadline(chosen, job, policy, int(share * max(0, last)))
    assert result.deadline_met
    assert result.cost_micro == sum(line.amount_micro for line in result.ledger)


@pytest.mark.prove
def test_the_deadline_is_met_in_every_zone_of_2023():
    traces = read_availability(spot_file("aws_v100_price_availability_2023.csv.gz"), on_demand_micro=3_060_000)
    job = DeadlineJob(work_h=48.0, deadline_h=52.0, changeover_h=0.1)
    for zone in traces.values():
        for entry in run_deadlines(zone, job, list(DEADLINE_POLICIES), starts=10, seed=1):
            assert all(row.deadline_met for row in entry.rows)


JOB = DeadlineJob(work_h=10.0, deadline_h=20.0, changeover_h=0.5)


def seen(elapsed, left, state, *, has_spot=False):
    return DeadlineView(elapsed_h=elapsed, work_left_h=left, state=State(state), has_spot=has_spot, step_h=0.1)


@pytest.mark.parametrize(
    ("elapsed", "left", "state", "has_spot", "expected"),
    [
        # On a spot instance it stays, however far ahead or behind.
        (4.0, 9.5, "spot", True, "spot"),
        # Idle: spot where there is any; else on demand only where behind the line (half an hour of work an hour).
        (4.0, 8.1, "idle", True, "spot"),
        (4.0, 8.1, "idle", False, "on-demand"),
        (4.0, 7.9, "idle", False, "idle"),
        # On demand it stays until it is ahead by two changeovers: work of 0.5 h, or more, beyond the line.
        (4.0, 7.6, "on-demand", True, "on-demand"),
        (4.0, 7.4, "on-demand", True, "spot"),
        # Ahead, but without spot: leaving would cost a changeover more, and gain nothing.
        (4.0, 7.4, "on-demand", False, "on-demand"),
    ],
)
def test_uniform_progress_follows_its_rules(elapsed, left, state, has_spot, expected):
    assert UniformProgress().decide(seen(elapsed, left, state, has_spot=has_spot), JOB) == expected


@pytest.mark.parametrize("policy", [UniformProgress, GreedySpot])
def test_the_safety_net_locks_in_for_good_when_a_launch_can_be_put_off_no_longer(policy):
    # 10 h of work, two changeovers and a step: 11.1 h before the deadline.
    assert policy().decide(seen(8.8, 10.0, "idle", has_spot=True), JOB) == "spot"
    late = policy()
    assert late.decide(seen(9.0, 10.0, "idle", has_spot=True), JOB) == "on-demand"
    assert late.decide(seen(9.1, 1.0, "on-demand", has_spot=True), JOB) == "on-demand"
    assert policy().decide(seen(9.0, 10.0, "spot", has_spot=True), JOB) == "spot"


def test_greedy_spot_waits():
    assert GreedySpot().decide(seen(1.0, 9.9, "idle"), JOB) == "idle"
    assert GreedySpot().decide(seen(1.0, 9.9, "idle", has_spot=True), JOB) == "spot"


def test_the_ledger_of_a_run_by_hand():
    """Spot for an hour and a half, none for an hour, spot again: one changeover a launch, both leases by the second."""
    flags = [True] * 9 + [False] * 6 + [True] * 30
    result = run_deadline(
        trace(flags, step=600), DeadlineJob(work_h=2.0, deadline_h=7.0, changeover_h=0.25), "greedy-spot", 0
    )
    assert result.hours == pytest.approx(2.5 + 0.25 + 0.75)
    assert (result.evictions, result.deadline_met, result.is_done) == (1, True, True)
    assert result.paid_hours == pytest.approx(1.5 + 1.0)
    assert result.cost_usd == pytest.approx(2.5 * 0.9)
    assert result.end_s == 3.5 * 3600
    assert {line.market for line in result.ledger} == {"z spot"}


def test_an_on_demand_run_pays_for_its_changeover_by_the_second():
    result = run_deadline(
        trace([False] * 40, step=600), DeadlineJob(work_h=2.0, deadline_h=5.0, changeover_h=0.25), "on-demand", 2
    )
    assert result.start_s == 1200
    assert result.hours == pytest.approx(2.25)
    assert result.on_demand_hours == pytest.approx(2.25)
    assert (result.paid_hours, result.free_hours, result.evictions) == (0.0, 0.0, 0)
    assert result.cost_micro == round(2.25 * 3_060_000)


def test_a_policy_that_waits_for_ever_is_given_up_after_twice_the_time_and_may_not_take_what_is_not_there():
    class Stubborn(DeadlinePolicy):
        name = "stubborn"

        def decide(self, view, job):
            return State.SPOT

    job = DeadlineJob(work_h=2.0, deadline_h=3.0)
    result = DeadlineRun(trace([False] * 100, step=600), job, Stubborn(), 0).execute()
    assert (result.is_done, result.deadline_met, result.work_done, result.cost_micro) == (False, False, 0.0, 0)
    assert result.hours == pytest.approx(6 + 1 / 6)

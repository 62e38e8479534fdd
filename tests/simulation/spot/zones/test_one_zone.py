"""Jobs with a deadline in one zone: the published rule case by case, bills by hand, and recorded traces."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.models.bidding.check.zones import check_optimum
from optim.models.bidding.market.billing import Billing
from optim.models.bidding.market.zones import UNITS_USD, ZoneJob
from optim.simulation.spot.zone_policies import GreedySpotZones, UniformProgress, UniformProgressZones
from optim.simulation.spot.zones import Offer, ZoneView, facts_of, run_zones
from optim.solvers.bidding.zones import least_cost
from optim.workloads.prices.availability_files import ZoneOptions, job_of, market_of, read_availability
from tests.support.policies import ZONE_POLICIES
from tests.support.public_traces import spot_file
from tests.support.spot.zones import zone_market

HOUR = 3600
SPOT, ON_DEMAND = Offer(0, True), Offer(0, False)
HELD = {"idle": None, "spot": SPOT, "on-demand": ON_DEMAND}


def one_zone_job(work_h, deadline_h, changeover_h) -> ZoneJob:
    return ZoneJob(
        work_s=round(work_h * HOUR),
        deadline_s=round(deadline_h * HOUR),
        setup_s=np.full((2, 1), round(changeover_h * HOUR)),
        move_micro=np.zeros((2, 1), dtype=np.int64),
    )


def run(policy, letters, job, tick_s=600, billing=Billing.AWS_2017, first=0):
    market = zone_market(letters, spot=[0.9], on_demand=[3.06], tick_s=tick_s)
    return run_zones(market, job, ZONE_POLICIES[policy](facts_of(market, job, billing)), first, billing=billing)


def decided(policy, job, elapsed_h, left_h, state):
    """Return the first choice of a policy without a past at a moment of a job, of which all machines work."""
    market = zone_market("x" * 10, tick_s=360)
    view = ZoneView(
        tick=round(elapsed_h * 10),
        elapsed_s=round(elapsed_h * HOUR),
        left_s=job.deadline_s - round(elapsed_h * HOUR),
        work_left_s=round(left_h * HOUR),
        held=HELD[state],
        setup_left_s=0,
        state=1,
        spot_micro=(1_000_000,),
        seen=(None,),
        probe=lambda zone: True,
    )
    return tuple(policy(facts_of(market, job)).decide(view))


JOB = one_zone_job(10, 20, 0.5)


@pytest.mark.parametrize(
    ("elapsed", "left", "state", "expected"),
    [
        # On spot machines it stays, however far ahead or behind.
        (4.0, 9.5, "spot", (SPOT,)),
        # Idle: spot if available; otherwise on demand only if behind the line (half an hour of work per hour).
        (4.0, 8.1, "idle", (SPOT, ON_DEMAND)),
        (4.0, 8.0, "idle", (SPOT,)),
        (4.0, 7.9, "idle", (SPOT,)),
        # On demand it stays until it is ahead by two changeovers: work of 0.5 h, or more, beyond the line.
        (4.0, 7.6, "on-demand", (ON_DEMAND,)),
        (4.0, 7.5, "on-demand", (SPOT, ON_DEMAND)),
        # Ahead, but without spot: leaving would cost another changeover without any gain.
        (4.0, 7.4, "on-demand", (SPOT, ON_DEMAND)),
    ],
)
def test_uniform_progress_follows_its_rules(elapsed, left, state, expected):
    assert decided(UniformProgress, JOB, elapsed, left, state) == expected


def test_work_exactly_on_the_line_is_not_behind():
    # 0.8 of 48 hours after 1 of 60: in hours 48 - 47.2 is less than 0.8 by a rounding error.
    job = one_zone_job(48, 60, 0.1)
    assert 48 - 47.2 < 1.0 * 48 / 60
    for policy in (UniformProgress, UniformProgressZones):
        assert decided(policy, job, 1.0, 47.2, "idle") == (SPOT,)


@pytest.mark.parametrize(
    ("policy", "launches"), [(UniformProgress, 2), (UniformProgressZones, 1), (GreedySpotZones, 1)]
)
def test_the_guard_keeps_time_for_so_many_launches_and_a_tick(policy, launches):
    # 10 h of work, half an hour a launch, a tick of 6 minutes: in time to the second, not a second later.
    least = 10.1 + 0.5 * launches
    assert decided(policy, JOB, 20 - least, 10.0, "idle")[0] == SPOT
    assert decided(policy, JOB, 20 - least + 1 / HOUR, 10.0, "idle") == (ON_DEMAND,)
    assert decided(policy, JOB, 20 - 10.0, 10.0, "spot") == (SPOT,)


@pytest.mark.parametrize("policy", [UniformProgress, GreedySpotZones])
def test_a_locked_policy_stays_on_demand(policy):
    market = zone_market("-" * 17 + "x" * 100, tick_s=600)
    job = one_zone_job(2, 5, 0.1)
    held = run_zones(market, job, policy(facts_of(market, job)), 0).stays
    assert not held[-1].is_spot


def test_spot_all_the_time_costs_the_spot_price_and_one_changeover():
    for policy in ("uniform-progress", "greedy-spot"):
        found = run(policy, "x" * 100, one_zone_job(2, 4, 0.1), tick_s=195)
        assert (found.end_s, found.units, found.evictions) == (7560, 7560 * 900_000, 0)


def test_a_preemption_in_the_first_hour_is_free_at_amazon_today():
    found = run("greedy-spot", "x" * 10 + "-" * 90, one_zone_job(2, 5, 0.1), tick_s=195)
    assert (found.evictions, found.free_s) == (1, 1950)
    plain = run("greedy-spot", "x" * 10 + "-" * 90, one_zone_job(2, 5, 0.1), tick_s=195, billing=Billing.PER_SECOND)
    assert plain.units - found.units == 1950 * 900_000


def test_a_run_by_hand():
    """Spot for an hour and a half, none for an hour, spot again: one changeover a launch, both leases by the second."""
    found = run("greedy-spot", "x" * 9 + "-" * 6 + "x" * 30, one_zone_job(2, 7, 0.25))
    assert (found.end_s, found.evictions, found.deadline_met) == (3.5 * HOUR, 1, True)
    assert found.held_s(is_spot=True) == 2.5 * HOUR
    assert found.units == 2.5 * HOUR * 900_000


def test_an_on_demand_run_pays_for_its_changeover_by_the_second():
    found = run("on-demand", "-" * 40, one_zone_job(2, 5, 0.25), first=2)
    assert (found.end_s, found.held_s(is_spot=False)) == (2.25 * HOUR, 2.25 * HOUR)
    assert found.units == 2.25 * HOUR * 3_060_000
    whole = run("on-demand", "-" * 40, one_zone_job(2, 5, 0.25), billing=Billing.WHOLE_TICKS)
    assert whole.units == 14 * 600 * 3_060_000


@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=30),
    is_there=st.booleans(),
    work=st.integers(1000, 20_000),
    changeover=st.integers(0, 1500),
    extra=st.integers(0, 10_000),
    step=st.sampled_from([60, 195, 600]),
    policy=st.sampled_from(sorted(ZONE_POLICIES)),
)
def test_the_deadline_is_met_whenever_it_leaves_a_launch(lengths, is_there, work, changeover, extra, step, policy):
    job = one_zone_job(work / HOUR, (work + changeover + extra) / HOUR, changeover / HOUR)
    letters = "".join(("x" if (k % 2 == 0) == is_there else "-") * length for k, length in enumerate(lengths))
    letters = (letters * (job.num_ticks(step) // len(letters) + 1))[: job.num_ticks(step)]
    found = run(policy, letters, job, tick_s=step)
    assert found.deadline_met
    assert found.work_done_s == work


RECORDED = "skypilot_spot_traces_2022-2023.csv.gz"


@pytest.mark.prove
@pytest.mark.parametrize("changeover_h", [0.05, 0.2])
def test_no_policy_is_below_the_optimum_in_recorded_windows(changeover_h):
    """960 windows of the zones of 2022 on ticks of 600 s, half of them with each changeover, by the second."""
    traces = read_availability(spot_file(RECORDED), on_demand_micro=3_060_000, spot_micro=973_100)
    zones = [name for name in traces if name.startswith("aws-10-26-2022/")]
    assert len(zones) == 8
    rng = np.random.default_rng(round(100 * changeover_h))
    for zone in zones:
        market = market_of(traces, [zone])
        job = job_of(market, ZoneOptions(job_hours=48, deadline_hours=52, changeover_hours=changeover_h))
        for first in rng.choice(len(market) - job.num_ticks(600) + 1, 60, replace=False).tolist():
            best = least_cost(market, job, first)
            assert check_optimum(market, job, best) == ()
            for name, policy in ZONE_POLICIES.items():
                found = run_zones(market, job, policy(facts_of(market, job)), first)
                assert found.deadline_met, (zone, first, name)
                assert found.units >= best.units, (zone, first, name, found.cost_usd, best.units / UNITS_USD)

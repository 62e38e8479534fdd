"""The table's least mean equals that of enumeration, and its entries are safe for any hazards."""

from dataclasses import replace

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.models.bidding.market.billing import Billing
from optim.models.bidding.market.spells import SpellHazards, prior_hazards
from optim.solvers.bidding.deadline_table import DeadlineJob, check_table, solve_table
from tests.support.spot.deadlines import least_mean


def drawn_job(seed, billing):
    """Return a small job, and hazards of up to four ages, some of them 0 or 1."""
    rng = np.random.default_rng(seed)
    setup_s = int(rng.choice([0, 180, 300, 720, 1140]))
    work_s = int(rng.integers(1, 8)) * 300 + int(rng.integers(0, 2)) * 37
    job = DeadlineJob(
        work_s=work_s,
        deadline_s=work_s + setup_s + int(rng.integers(0, 30)) * 60,
        setup_s=setup_s,
        spot_usd=float(rng.integers(1, 4)),
        on_demand_usd=float(rng.integers(3, 6)),
        billing=billing,
    )
    hazard = np.round(rng.random((2, int(rng.integers(1, 5)))), 2)
    hazard[rng.random(hazard.shape) < 0.1] = rng.integers(0, 2)
    return job, SpellHazards(tick_s=600, hazard=hazard)


@pytest.mark.parametrize("billing", Billing)
@pytest.mark.parametrize("keeps_tick", [False, True])
def test_least_mean_is_that_of_trying_everything(billing, keeps_tick):
    for seed in range(60):
        job, hazards = drawn_job(seed, billing)
        job = replace(job, keeps_tick=keeps_tick)
        table = solve_table(job, hazards)
        first = hazards.first_hazard(40).tolist()
        for there in (False, True):
            tried = least_mean(job, hazards.hazard.tolist(), there, table.unit_s, first)
            assert table.mean_usd[int(there)] == pytest.approx(float(tried), rel=1e-9), (seed, there)


@pytest.mark.parametrize(
    ("billing", "tick_s", "is_told"),
    [(Billing.AWS_2009, 600, True), (Billing.AWS_2009, 585, False), (Billing.AWS_2017, 585, True)],
)
def test_the_least_mean_is_told_where_it_is_exact(billing, tick_s, is_told):
    job = DeadlineJob(
        work_s=36_000, deadline_s=45_000, setup_s=0, spot_usd=1.0, on_demand_usd=3.0, tick_s=tick_s, billing=billing
    )
    assert (solve_table(job, prior_hazards(tick_s)).least_mean_usd is not None) == is_told
    rough = replace(solve_table(job, prior_hazards(tick_s)), job=replace(job, setup_s=1))
    assert replace(rough, unit_s=tick_s).least_mean_usd is None


def test_a_lease_costs_a_minute_at_least():
    job = DeadlineJob(work_s=607, deadline_s=1800, setup_s=0, spot_usd=1.0, on_demand_usd=3.6, billing=Billing.AWS_2017)
    hazards = SpellHazards(tick_s=600, hazard=np.array([[0.0], [1.0]]))
    first = hazards.first_hazard(9).tolist()
    tried = least_mean(job, hazards.hazard.tolist(), True, 1, first)
    # One tick on spot machines is free, and seven seconds on demand after it are a minute.
    assert tried == pytest.approx(0.06)
    assert solve_table(job, hazards).mean_usd[1] == pytest.approx(0.06)


def test_hourly_bills_go_with_every_tick_of_back_tests():
    for tick_s in range(300, 601, 60):
        job = DeadlineJob(
            work_s=36_000,
            deadline_s=45_000,
            setup_s=720,
            spot_usd=1.0,
            on_demand_usd=3.0,
            tick_s=tick_s,
            billing=Billing.AWS_2009,
        )
        assert check_table(solve_table(job, prior_hazards(tick_s))) == []


def test_every_entry_is_safe_whatever_hazards_say():
    for seed in range(200):
        job, hazards = drawn_job(seed, list(Billing)[seed % 4])
        assert check_table(solve_table(job, hazards)) == []


def test_every_entry_keeps_a_tick_where_on_demand_is_forced():
    is_other = False
    for seed in range(100):
        job, hazards = drawn_job(seed, list(Billing)[seed % 4])
        free, kept = solve_table(job, hazards), solve_table(replace(job, keeps_tick=True), hazards)
        assert check_table(kept) == []
        problems = check_table(replace(free, job=kept.job))
        assert (problems == []) or "although the environment forces an on-demand launch" in problems[0]
        is_other |= problems != []
    assert is_other


def test_hazards_of_other_ticks_are_refused():
    job, _ = drawn_job(0, Billing.PER_SECOND)
    with pytest.raises(InvalidProblemError, match="ticks of 300 s"):
        solve_table(job, prior_hazards(300))


def test_a_deadline_that_on_demand_cannot_meet_is_refused():
    with pytest.raises(InvalidOptionError, match="can't be met even on demand: launch and work take 4200 s"):
        DeadlineJob(work_s=3600, deadline_s=4000, setup_s=600, spot_usd=1.0, on_demand_usd=3.0)

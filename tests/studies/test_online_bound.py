"""Lower bounds for online rules: against enumeration of every decision, and against policies on all weighted traces."""

from functools import cache
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optim_studies.online_bound import AvailabilityChain, fit_chain, min_mean_usd

from optim.core.errors import InvalidOptionError, InvalidProblemError, UnsupportedProblemError
from optim.models.bidding.market.zones import ZoneJob
from optim.simulation.spot.zones import facts_of, run_zones
from optim.solvers.bidding.zones import least_cost
from tests.support.policies import ZONE_POLICIES
from tests.support.spot.zones import zone_job, zone_market

CHANCES = st.sampled_from([0.0, 0.15, 0.5, 0.8, 1.0])


def bound_of(chain, job, spot=1.0, on_demand=3.0):
    return min_mean_usd(chain, job, spot_micro=round(1e6 * spot), on_demand_micro=round(1e6 * on_demand), tick_s=3600)


def job_with(work, slack, setup):
    """Return a job in hours of any length."""
    work, slack, setup = (round(3600 * hours) for hours in (work, slack, setup))
    return ZoneJob(
        work_s=work,
        deadline_s=work + setup + slack,
        setup_s=np.full((2, 1), setup),
        move_micro=np.zeros((2, 1), np.int64),
    )


def least_by_trying(chain, job, spot, on_demand):
    """Return the least mean cost by recursion over all decisions and all events, tick by tick."""
    setup = int(job.setup_s[0, 0])

    @cache
    def rest(t, worked, held, left, there):
        if worked == job.work_s:
            return 0.0
        if 3600 * t >= job.deadline_s:
            return float("inf")
        if held == "spot" and not there:
            held = None
        costs = []
        for kind, price in ((None, 0.0), ("spot", spot), ("demand", on_demand)):
            if kind == "spot" and not there:
                continue
            wait = left if kind == held else setup
            ends = kind is not None and wait + job.work_s - worked <= 3600
            if ends:
                needed = wait + job.work_s - worked
                costs.append(price * needed / 3600 if 3600 * t + needed <= job.deadline_s else float("inf"))
                continue
            done = worked + (max(0, 3600 - wait) if kind else 0)
            chance = chain.stays if there else chain.comes
            mean = 0.0
            for then, weight in ((True, chance), (False, 1 - chance)):
                if weight:
                    mean += weight * rest(t + 1, done, kind, max(0, wait - 3600) if kind else 0, then)
            costs.append(price + mean)
        return min(costs)

    return chain.share * rest(0, 0, None, 0, True) + (1 - chain.share) * rest(0, 0, None, 0, False)


@given(
    stays=CHANCES,
    comes=CHANCES,
    work=st.sampled_from([1, 2, 3, 0.4, 2.7]),
    slack=st.sampled_from([0, 1, 2, 3, 1.9]),
    setup=st.sampled_from([0, 1, 2, 0.3, 1.5]),
    spot=st.sampled_from([0.5, 1.0, 2.9]),
)
def test_the_least_mean_is_that_of_trying_everything(stays, comes, work, slack, setup, spot):
    chain, job = AvailabilityChain(stays=stays, comes=comes), job_with(work, slack, setup)
    assert bound_of(chain, job, spot) == pytest.approx(least_by_trying(chain, job, spot, 3.0))


@given(
    stays=CHANCES,
    comes=CHANCES,
    work=st.sampled_from([1, 3, 2.2]),
    slack=st.integers(0, 3),
    setup=st.sampled_from([0, 1, 0.3]),
)
def test_no_policys_mean_over_all_traces_is_below_it_and_the_least_costs_are(stays, comes, work, slack, setup):
    chain, job = AvailabilityChain(stays=stays, comes=comes), job_with(work, slack, setup)
    means = dict.fromkeys(("optimum", *ZONE_POLICIES), 0.0)
    for letters in product("x-", repeat=job.num_ticks(3600)):
        flags = [letter == "x" for letter in letters]
        weight = chain.share if flags[0] else 1 - chain.share
        for now, then in pairwise(flags):
            chance = chain.stays if now else chain.comes
            weight *= chance if then else 1 - chance
        if weight == 0:
            continue
        market = zone_market("".join(letters), spot=[1.0])
        means["optimum"] += weight * least_cost(market, job, 0).usd
        for name, policy in ZONE_POLICIES.items():
            means[name] += weight * run_zones(market, job, policy(facts_of(market, job)), 0).cost_usd
    bound = bound_of(chain, job)
    assert means["optimum"] <= bound * (1 + 1e-9)
    assert min(means[name] for name in ZONE_POLICIES) >= bound * (1 - 1e-9)


def test_without_chance_it_is_the_least_cost():
    always, never = AvailabilityChain(stays=1.0, comes=1.0), AvailabilityChain(stays=0.0, comes=0.0)
    assert bound_of(always, job_with(5, 3, 1)) == 6.0
    assert bound_of(never, job_with(5, 3, 1)) == 18.0


def test_refuses_several_zones():
    market = zone_market("xx", "xx")
    with pytest.raises(UnsupportedProblemError, match="the job has 2"):
        bound_of(AvailabilityChain(stays=0.5, comes=0.5), zone_job(market, 1, 2))


def test_a_fit_of_a_long_draw_is_the_chain():
    chain = AvailabilityChain(stays=0.9, comes=0.2)
    assert chain.share == pytest.approx(2 / 3)
    flags = chain.draw(40_000, np.random.default_rng(0))
    found = fit_chain(flags)
    assert (found.stays, found.comes) == (pytest.approx(0.9, abs=0.01), pytest.approx(0.2, abs=0.02))
    assert flags.mean() == pytest.approx(2 / 3, abs=0.02)


def test_a_fit_counts_changes():
    found = fit_chain(np.array([True, True, False, False, False, True]))
    assert (found.stays, found.comes) == (0.5, pytest.approx(1 / 3))


def test_traces_without_changes_and_wrong_chances_are_refused():
    with pytest.raises(InvalidProblemError, match="machines never become available"):
        fit_chain(np.ones(10, dtype=bool))
    with pytest.raises(InvalidOptionError, match="stays must be"):
        AvailabilityChain(stays=1.1, comes=0.0)
    assert AvailabilityChain(stays=1.0, comes=0.0).share == 0.5

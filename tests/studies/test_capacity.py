"""Hours simulated cause by cause, against the exact survival probability, and the study's report of contradictions."""

import numpy as np
import pytest
from optim_studies.capacity import StudyOptions, contradictions, simulate_capacity

from optim.benchmarks.suite import BenchRequest, choose_suites
from optim.core.errors import InvalidOptionError
from optim.core.progress import SilentProgress
from optim.core.stopping import Never
from optim.models.bidding.market.lifetimes import CommonShocks
from optim.solvers.solve import solve
from optim.workloads.bidding.generator import CapacityOptions, draw_capacity


@pytest.fixture(scope="module")
def draw():
    """Eight kinds of machines in four zones, of which 12 GPUs must survive."""
    options = CapacityOptions(zone_types=8, num_zones=4, num_regions=2, windows=16, min_gpus=12, min_probability=0.7)
    return draw_capacity(options, 2)


def test_the_played_hours_confirm_the_stated_probability(draw):
    solution = solve(draw.instance, "dinkelbach", options={"tol": 1e-4})
    assert solution.gap <= 1e-4
    kept, counts = solution.stats.counts["kept"], solution.decision.counts
    assert kept >= 0.7
    assert kept == draw.probability(counts, 12)
    share, error = simulate_capacity(draw.shocks, counts * draw.capacity, 12, runs=4000, seed=0)
    assert abs(share - kept) <= 3 * error
    assert error == pytest.approx(np.sqrt(share * (1 - share) / 4000))


@pytest.mark.parametrize(("least", "share"), [(1.0, 1.0), (1.0 + 1e-6, 0.0)])
def test_what_is_just_enough_is_enough_however_it_is_rounded(least, share):
    capacity = np.array([0.2, 0.7, 0.1])
    assert capacity.sum() < 1.0
    one = np.zeros(1)
    shocks = CommonShocks(zone=np.zeros(3, int), region=np.zeros(1, int), own=np.zeros(3), by_zone=one, by_region=one)
    assert simulate_capacity(shocks, capacity, least, runs=3, seed=0)[0] == share


def test_more_certainty_costs_no_less(draw):
    without = solve(
        draw_capacity(CapacityOptions(zone_types=8, num_zones=4, num_regions=2, windows=16), 2).instance, "dinkelbach"
    )
    found = solve(draw.instance, "dinkelbach", options={"tol": 1e-4})
    assert draw.probability(without.decision.counts, 12) < 0.7
    assert found.objective > without.objective


TINY = {"zone_types": 8, "num_zones": 4, "num_regions": 2, "windows": 4, "min_gpus": 12, "hours": 300}


def test_a_row_has_what_lasts_stated_and_played_beside_what_it_costs():
    (suite,) = choose_suites(("bidding",), ("capacity",))
    (work,) = suite.build(BenchRequest(options={**TINY, "min_probability": 0.7}, seeds=(2,)))
    record = work.run(Never(), SilentProgress())
    assert record.verified
    found = record.findings
    assert found["gap"] <= 1e-4
    assert found["kept"] >= 0.7
    assert abs(found["kept"] - found["played"]) <= 5 * found["standard_error"]
    assert found["usd_per_work"] >= found["usd_per_work_without"] * (1 - 1e-4)


def test_played_hours_far_off_are_told():
    assert contradictions({"kept": 0.8, "played": 0.81, "standard_error": 0.01}) == []
    (problem,) = contradictions({"kept": 0.8, "played": 0.9, "standard_error": 0.01})
    assert "0.9000 of the simulated hours, but the stated probability is 0.8000" in problem


def test_options_are_checked():
    with pytest.raises(InvalidOptionError, match="min_gpus"):
        StudyOptions(min_gpus=0)

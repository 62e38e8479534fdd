"""Hours played cause by cause, beside the exact probability that enough lasts."""

import numpy as np
import pytest
from optim_studies.capacity import simulate_capacity

from optim.models.bidding.market.lifetimes import CommonShocks
from optim.solvers.solve import solve
from optim.workloads.bidding.generator import CapacityOptions, draw_capacity


@pytest.fixture(scope="module")
def draw():
    """Eight kinds of machines in four zones, of which 12 GPUs must last."""
    options = CapacityOptions(
        zone_types=8, num_zones=4, num_regions=2, windows=16, least_gpus=12, least_probability=0.7
    )
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

"""Footprints that keep enough with enough probability, and hours played cause by cause."""

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError
from optim.models.bidding.cost_per_work import evaluate
from optim.simulation.spot.capacity import cheapest_reliable, simulate_capacity
from optim.solvers.bidding.frontier import FrontierOptions
from optim.workloads.bidding.capacity_generator import CapacityOptions, draw_capacity


@pytest.fixture(scope="module")
def draw():
    """Twelve kinds of machines in four zones."""
    return draw_capacity(CapacityOptions(zone_types=8, num_zones=4, num_regions=2, windows=16), 2)


def test_the_played_hours_confirm_the_stated_probability(draw):
    found = cheapest_reliable(draw, 16.0, 0.8, FrontierOptions(max_points=8))
    assert found.probability >= 0.8
    share, error = simulate_capacity(draw.shocks, found.counts * draw.capacity, 16.0, runs=4000, seed=0)
    assert abs(share - found.probability) <= 3 * error
    assert error == pytest.approx(np.sqrt(share * (1 - share) / 4000))
    assert found.value == evaluate(draw.instance, found.counts)
    assert found.bound_usd <= found.value.cost * (1 + 1e-9)
    assert found.bound_usd >= found.value.cost * (1 - 1e-2)


def test_more_certainty_costs_no_less(draw):
    options = FrontierOptions(max_points=8)
    costs = [cheapest_reliable(draw, 16.0, share, options).value.cost for share in (0.4, 0.8)]
    assert costs == sorted(costs)
    with pytest.raises(InvalidOptionError, match="no footprint of the frontier keeps 500 GPUs with probability"):
        cheapest_reliable(draw, 500.0, 0.9, options)

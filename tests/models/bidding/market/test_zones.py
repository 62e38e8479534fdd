"""Markets over zones reject contradictory data."""

from dataclasses import replace

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.models.bidding.market.billing import Billing, place_costs
from tests.support.spot.zones import zone_job, zone_market

MARKET = zone_market("xx-", "-xx", spot=[1.0, 2.0], on_demand=[3.0, 4.0], tick_s=600)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"regions": ("r",)}, "a region and on-demand price per zone"),
        ({"on_demand_micro": np.array([1])}, "on-demand price per zone"),
        ({"is_available": np.ones((2, 2), dtype=bool)}, "one value per tick and zone"),
        ({"time_s": np.array([0, 5, 5])}, "strictly ascending"),
        ({"tick_s": 0}, "last at least one second"),
        ({"spot_micro": np.zeros((3, 2), dtype=np.int64)}, "must be positive"),
    ],
)
def test_refuses_a_market_that_contradicts_itself(changes, message):
    with pytest.raises(InvalidProblemError, match=message):
        replace(MARKET, **changes)


def test_refuses_a_deadline_that_nobody_can_meet():
    assert zone_job(MARKET, 2, 3).min_deadline_s == 1800
    with pytest.raises(InvalidOptionError, match="1200 s can't be met even on demand: launch and work take 1800 s"):
        zone_job(MARKET, 2, 2)
    with pytest.raises(InvalidOptionError, match="at least 1"):
        zone_job(MARKET, 0, 3)
    with pytest.raises(
        InvalidProblemError, match=r"must have shape \(zones \+ 1, zones\).* row 0 is for a job without saved state"
    ):
        replace(zone_job(MARKET, 2, 3), setup_s=np.zeros((2, 2), dtype=np.int64))


def test_places_are_spot_and_on_demand_of_each_zone_paid_by_the_tick():
    costs = place_costs(MARKET, zone_job(MARKET, 1, 2, machines=3), 1, Billing.PER_SECOND)
    assert costs.cost.tolist() == [[600 * 3 * usd * 10**6 for usd in (1, 3, 2, 4)]] * 2
    assert costs.has.tolist() == [[True, True, True, True], [False, True, True, True]]

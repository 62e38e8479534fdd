"""The cost of a footprint at the prices of its markets."""

from optim.simulation.spot.policies import Proteus
from optim.simulation.spot.policy import LiveLease
from tests.support.spot.worlds import world

HOUR_S = 3600


def test_a_market_keeps_its_last_price_whatever_the_next_ones_first_was():
    """Machines at two fifths of the price of the held ones lower the cost per unit of work at the first tick."""
    cheap, dear = ((0, 40_000),), ((0, 200_000), (HOUR_S, 100_000))
    brain = Proteus(world(cheap, dear))
    held = LiveLease(
        number=0, market=1, count=60, bid_micro=210_000, granted_s=HOUR_S, ready_s=HOUR_S, price_micro=100_000
    )
    ticks = range(2 * HOUR_S, 2 * HOUR_S + 600, 120)
    assert brain.next_decision_tick([held], (100, 0), ticks) == 0

"""The market of an auction's bids, by hand."""

from optim.models.auction.market import market_of
from tests.support.auction.builders import auction, linear


def test_a_market_follows_from_the_bids():
    """A bid of value v has speed v here; of an app's bids that can use a GPU, the one with most speed a GPU counts."""
    instance = auction([4, 2], linear(4, 8.0, "slot"), [({1: 2}, 6.0)])
    found = market_of(instance)
    columns = sorted(zip(found.supply.tolist(), found.speed.T.tolist(), strict=True))
    assert columns == [(2.0, [2.0, 3.0]), (4.0, [2.0, 0.0])]
    assert found.cap.tolist() == [8.0, 6.0]


def test_the_fastest_bid_a_gpu_tells_the_speed_and_the_fastest_of_all_the_cap():
    """Returns that fall: one GPU at 4, two at 6, and four that no machine has; the second app asks for too many."""
    instance = auction([2, 2], [(1, "slot", 4.0), (2, "machine", 6.0), (4, "machine", 20.0)], [(5, "cluster", 9.0)])
    found = market_of(instance)
    assert (found.speed.tolist(), found.supply.tolist()) == ([[4.0]], [4.0])
    assert (found.cap.tolist(), found.app.tolist()) == ([6.0], [0])

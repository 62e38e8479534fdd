"""Bidding instances from plain Python and frames."""

import pytest

import optim
from optim.core.errors import InvalidProblemError
from optim.models.bidding.codec import document_from_instance

BID = {"market": "a", "max_count": 4, "price_usd": 0.1, "evicted": 0.2, "usable_h": 0.9}
DEAR = {**BID, "market": "b", "price_usd": 0.3, "evicted": 0.0, "usable_h": 1.0}


@pytest.mark.parametrize("name", ["spot-tiny-own", "spot-tiny-windows", "spot-hour-0", "spot-vector"])
def test_an_instances_frame_builds_it_again(name):
    instance = optim.reference_instance(name, optim.BiddingInstance)
    document = document_from_instance(instance)
    rest = {
        field: getattr(document, field)
        for field in document.__struct_fields__
        if field not in ("schema", "name", "markets", "bids", "caps")
    }
    again = optim.BiddingInstance.from_bids(
        instance.to_frame(),
        markets=instance.markets,
        name=instance.name,
        caps=[{"name": cap.name, "limit": cap.limit, "weights": cap.weights or None} for cap in document.caps],
        **{field: value or None for field, value in rest.items()},
    )
    assert document_from_instance(again) == document


def test_the_best_footprint_is_the_one_worked_out_by_hand():
    instance = optim.BiddingInstance.from_bids([BID, DEAR], caps={"machines": 6})
    solution = optim.solve(instance, "dinkelbach")
    # Linear speed: the ratio is that of the cheapest bid, 0.8 * 0.1 / 0.9.
    assert solution.raise_unless_optimal().objective == pytest.approx(0.08 / 0.9)
    assert solution.to_frame(instance).market.tolist() == ["a"]


def test_wrong_bids_are_refused_by_field():
    with pytest.raises(InvalidProblemError, match=r"bids\[0\].price_usd is missing"):
        optim.BiddingInstance.from_bids([{"market": "a", "max_count": 1}])
    with pytest.raises(InvalidProblemError, match="unknown field `colour`"):
        optim.BiddingInstance.from_bids([BID], colour="red")

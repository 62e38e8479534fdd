"""Auctions from Python lists are those of the file format, and wrong lists are named."""

import pytest

from optim.core.errors import InvalidProblemError
from optim.models.auction.instance import AuctionInstance
from optim.models.auction.problem import PROBLEM
from tests.support.auction.builders import auction

BIDS = {"a0": [(4, "machine", 0.25)], "a1": [(2, "slot", 0.5), ({0: 1, 1: 2}, 0.4)], "a2": []}


def test_lists_say_the_same_as_a_document():
    built = AuctionInstance.from_bids(
        [8, [4, 4]], BIDS, empty_rho=1.0, free=[3, [4, 0]], racks=[0, 1], gangs={"a0": 2}, name="by-hand"
    )
    written = auction(
        [(0, [3]), (1, [4, 0])], [(4, "machine", 4.0)], [(2, "slot", 2.0), ({0: 1, 1: 2}, 2.5)], [], gangs=[2, 1, 1]
    )
    assert built.cluster.slot_gpus.tolist() == [8, 4, 4]
    assert built.cluster.slot_free.tolist() == written.cluster.slot_free.tolist() == [3, 4, 0]
    assert built.apps.gang.tolist() == [2, 1, 1]
    assert built.bids.rho.tolist() == pytest.approx(written.bids.rho.tolist())
    assert built.bids.named_machine.tolist() == written.bids.named_machine.tolist()
    again = PROBLEM.write_instance(built)
    assert PROBLEM.write_instance(PROBLEM.read_instance(again)) == again


def test_an_empty_rho_may_be_given_for_each_app():
    built = AuctionInstance.from_bids([8], {"a": [(1, "slot", 0.5)], "b": []}, empty_rho={"a": 2.0, "b": 3.0})
    assert built.apps.empty_rho.tolist() == [2.0, 3.0]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"free": [8]}, "free must have one entry a machine, got 1 for 2"),
        ({"racks": [0]}, "racks must have one entry a machine"),
        ({"gangs": {"x": 2}}, "gangs names 'x', which has no bids"),
        ({"empty_rho": {"a0": 1.0}}, "empty_rho must have one number an app"),
        ({"gangs": {"a1": 4}}, "must ask for whole gangs of 4 GPUs, got 2"),
        ({"empty_value": "none"}, "empty_value"),
        ({"bids": {"a": [(1, "room", 0.5)]}}, "room"),
    ],
)
def test_refuses_lists_that_contradict_one_another(changes, text):
    known = {"machines": [8, 8], "bids": BIDS, "empty_rho": 1.0}
    with pytest.raises(InvalidProblemError, match=text):
        AuctionInstance.from_bids(**known | changes)

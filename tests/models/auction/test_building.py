"""Auctions from Python lists are those of the file format, and wrong lists are named."""

import pandas as pd
import pytest

import optim
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


@pytest.mark.parametrize("name", ["auction-tiny-0", "auction-named-0"])
def test_a_frame_of_bids_is_as_good_as_lists(name):
    instance = optim.reference_instance(name, optim.AuctionInstance)
    cluster = instance.cluster
    slots = [cluster.slot_gpus[cluster.slot_machine == m].tolist() for m in range(cluster.num_machines)]
    again = optim.AuctionInstance.from_bids(
        slots,
        instance.to_frame(),
        empty_rho=dict(zip(instance.apps.ids, instance.apps.empty_rho.tolist(), strict=True)),
        racks=cluster.machine_rack.tolist(),
        gangs=dict(zip(instance.apps.ids, instance.apps.gang.tolist(), strict=True)),
    )
    for field in ("app", "gpus", "locality", "rho", "named_row", "named_machine", "named_gpus"):
        assert getattr(again.bids, field).tolist() == getattr(instance.bids, field).tolist()


def test_a_frame_without_a_column_is_refused_by_its_name():
    with pytest.raises(InvalidProblemError, match=r"bids\[0\].locality is missing; add the column"):
        optim.AuctionInstance.from_bids([4], pd.DataFrame({"app": ["a"], "gpus": [1], "rho": [0.5]}), empty_rho=2.0)

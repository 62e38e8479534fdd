"""Auctions from Python lists and from files: written ones are read back, and errors are named."""

import json
from dataclasses import replace

import pandas as pd
import pytest

import optim
from optim.core.errors import InvalidProblemError
from optim.models.auction.data import Locality
from optim.models.auction.instance import AuctionInstance
from optim.models.auction.problem import PROBLEM
from optim.workloads.auction.generator import GeneratorOptions, generate
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
        ({"free": [8]}, "free must have one entry per machine, got 1 for 2"),
        ({"racks": [0]}, "racks must have one entry per machine"),
        ({"gangs": {"x": 2}}, "gangs names 'x', which has no bids"),
        ({"empty_rho": {"a0": 1.0}}, "empty_rho must have one number per app"),
        ({"gangs": {"a1": 4}}, "must be for complete gangs of 4 GPUs, got 2"),
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


MACHINES = [{"rack": 0, "slots": [4, 4], "free": [4, 1]}, {"rack": 0, "slots": [8]}]
ROW = [2, "slot", 0.5]


def document(**changes):
    app = {"id": "a", "bids": {"empty_rho": 2.0, "rows": [ROW]}}
    return {"schema": "optim/auction/1", "name": "x", "machines": MACHINES, "apps": [app], **changes}


def read(**changes):
    return PROBLEM.read_instance(json.dumps(document(**changes)).encode())


@pytest.mark.parametrize("bids", ["classes", "named"])
def test_reading_back_gives_the_same_document(bids):
    instance = generate(
        GeneratorOptions(num_apps=5, num_gpus=24, num_machines=3, allocated_share=0.2, bids=bids), seed=1
    )
    written = PROBLEM.write_instance(instance)
    assert PROBLEM.write_instance(PROBLEM.read_instance(written)) == written


def test_bids_follow_from_a_profile_where_none_are_given():
    profile = {"elapsed_min": 0, "active_apps": 2, "trials": [{"work_min": 60, "total_work_min": 60, "max_gpus": 3}]}
    profile["slowdown"] = "network-bound"
    instance = read(apps=[{"id": "a", "profile": profile}])
    assert set(instance.bids.gpus.tolist()) == {1, 2, 3}
    assert set(instance.bids.locality.tolist()) == {Locality.SLOT, Locality.MACHINE, Locality.RACK}
    assert instance.apps.ideal_min.tolist() == [40.0]


def test_counts_what_is_on_offer():
    cluster = read().cluster
    assert (cluster.num_gpus, cluster.num_free, cluster.num_racks) == (16, 13, 1)
    assert cluster.machine_free.tolist() == [5, 8]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"machines": []}, "at least one machine is required"),
        ({"machines": [{"rack": 1, "slots": [4]}]}, "racks must be numbered"),
        ({"machines": [{"rack": 0, "slots": [4], "free": [5]}]}, "free must be between 0 and the slot's 4"),
        ({"machines": [{"rack": 0, "slots": [4], "free": [1, 1]}]}, "free must list one number per slot"),
        ({"lease_min": 0}, "lease_min must be positive"),
        ({"apps": [{"id": "a"}]}, "needs bids, or a profile"),
        ({"apps": [{"id": "a", "bids": {"empty_rho": 0.5, "rows": [ROW]}}]}, "must be below empty_rho"),
        ({"apps": [{"id": "a", "bids": {"empty_rho": 2.0, "rows": [[1, "slot", -1.0]]}}]}, "rho must be positive"),
        ({"apps": [{"id": "a", "bids": {"empty_rho": 2.0, "rows": [[0, "slot", 1.0]]}}]}, "rows"),
        ({"apps": [{"id": "a", "bids": {"empty_rho": 2.0, "named": [[[[7, 1]], 1.0]]}}]}, "machine 7 is named"),
        (
            {"apps": [{"id": "a", "bids": {"empty_rho": 2.0, "named": [[[[0, 1], [0, 1]], 1.0]]}}]},
            "names a machine twice",
        ),
        ({"apps": [document()["apps"][0]] * 2}, "id 'a' is used twice"),
        ({"apps": [{**document()["apps"][0], "id": name} for name in "abcb"]}, "id 'b' is used twice"),
        ({"apps": [{**document()["apps"][0], "gang": 0}]}, "gang"),
        ({"apps": [{**document()["apps"][0], "work_min": 0}]}, "work_min must be finite and above 0"),
        ({"colour": "red"}, "unknown field"),
        ({"horizon": "ever"}, "horizon"),
    ],
)
def test_names_what_is_wrong(changes, text):
    with pytest.raises(InvalidProblemError, match=text):
        read(**changes)


def test_instances_meet_the_schema():
    jsonschema = pytest.importorskip("jsonschema")
    schema = PROBLEM.json_schema()
    instance = generate(GeneratorOptions(num_apps=3, num_gpus=8, num_machines=2), seed=0)
    jsonschema.validate(json.loads(PROBLEM.write_instance(instance)), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document(horizon="ever"), schema)


HELD = {"elapsed_min": 5, "active_apps": 2, "trials": [{"work_min": 60, "total_work_min": 90, "max_gpus": 8}]}


def holding(held):
    profile = {**HELD, "slowdown": {"slot": 1, "machine": 1.1, "rack": 1.5, "cluster": 2}, "held": held}
    return read(apps=[{"id": "a", "profile": profile}])


def test_a_file_says_where_held_gpus_are():
    instance = holding({"places": [[1, 3]]})
    assert instance.profiles[0].held_places == ((1, 3),)
    assert instance.profiles[0].held_gpus == 3
    assert (instance.bids.locality == Locality.NAMED).any()  # rows in addition to current GPUs
    written = PROBLEM.write_instance(instance)
    assert PROBLEM.write_instance(PROBLEM.read_instance(written)) == written
    far = holding({"gpus": 3, "locality": "slot"})
    assert far.bids.rho.min() > instance.bids.rho.min()  # it can't count on the same machine


@pytest.mark.parametrize(
    ("held", "text"),
    [
        ({}, "held must have gpus or places"),
        ({"places": [[0, 1]]}, "1 GPUs of slot 0, but only 0 GPUs of that slot are allocated"),
        ({"places": [[9, 1]]}, "1 GPUs of slot 9, but only 0 GPUs of that slot are allocated"),
        ({"places": [[1, 1], [1, 2]]}, "lists a slot twice"),
        ({"gpus": 2, "places": [[1, 3]]}, "held.gpus is 2, but the GPUs of held.places have another sum"),
    ],
)
def test_refuses_held_gpus_that_can_not_be(held, text):
    with pytest.raises(InvalidProblemError, match=text):
        holding(held)


@pytest.mark.parametrize("name", ["app", "gpus", "locality", "rho"])
def test_columns_of_bids_are_equally_long(name):
    instance = optim.reference_instance("auction-tiny-0")
    shorter = replace(instance.bids, **{name: getattr(instance.bids, name)[:-1]})
    with pytest.raises(InvalidProblemError, match="one entry per row"):
        replace(instance, bids=shorter)

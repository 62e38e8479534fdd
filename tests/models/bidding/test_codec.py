"""Bidding instances, footprints and proofs from Python, frames and JSON."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

import optim
from optim.core.errors import InvalidProblemError
from optim.models.bidding.codec import document_from_instance
from optim.models.bidding.problem import PROBLEM
from optim.models.files import read_solution, write_solution
from optim.solvers.solve import solve
from tests.support.bidding.small_markets import published_vector, small_instances, varied, with_survival


@given(instance=small_instances)
def test_an_instance_read_back_is_the_same(instance):
    document = PROBLEM.write_instance(instance)
    again = PROBLEM.read_instance(document)
    assert PROBLEM.write_instance(again) == document
    assert np.array_equal(again.unit_cost, instance.unit_cost)


FORMER_TERMS = {"per-bid": "own", "any-bid": "any", "per-market": "market"}


def first_version(instance):
    """Return an instance's document in the first format, ``optim/bidding/1``."""
    document = json.loads(PROBLEM.write_instance(instance)) | {"schema": "optim/bidding/1"}
    document["eviction_term"] = FORMER_TERMS[document.get("eviction_term", "per-market")]
    if "one_bid_per_market" in document:
        document["one_bid_a_market"] = document.pop("one_bid_per_market")
    if survival := document.pop("survival", None):
        survival["least"], survival["own"] = survival.pop("min_capacity"), survival.pop("by_market")
        document["lasting"] = survival
    return json.dumps(document).encode()


def test_a_file_of_the_first_version_is_the_same_instance():
    terms, any_bid = set(), optim.reference_instance("spot-tiny-any", optim.BiddingInstance)
    for seed in range(12):
        drawn = varied(seed)
        for instance in (drawn, with_survival(seed), replace(drawn, one_bid_per_market=True), any_bid):
            terms.add(json.loads(first_version(instance))["eviction_term"])
            assert PROBLEM.read_instance(first_version(instance)) == PROBLEM.read_instance(
                PROBLEM.write_instance(instance)
            )
    assert terms == set(FORMER_TERMS.values())


def test_a_wrong_value_in_a_file_of_the_first_version_is_named():
    document = first_version(published_vector()).replace(b'"eviction_term": "', b'"eviction_term": "my')
    with pytest.raises(InvalidProblemError, match="eviction_term"):
        PROBLEM.read_instance(document)


def test_a_solution_with_its_proof_read_back_is_the_same():
    instance = published_vector()
    document = write_solution(solve(instance, "dinkelbach"), instance)
    assert write_solution(read_solution(document, instance), instance) == document


def changed(path, value):
    """Return the published vector's document with one value changed."""
    document = json.loads(PROBLEM.write_instance(published_vector()))
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("bids", 1, "market"), "m9", r"bids\[1\].market must be one of markets, got 'm9'"),
        (("bids", 0, "evicted"), 1.5, r"bids\[0\].evicted must be between 0 and 1"),
        (("bids", 0, "price_usd"), -1, r"bids\[0\].price_usd must be between"),
        (("bids", 0, "max_count"), -1, "max_count"),
        (("bids", 0, "delta_usd"), 0.00000001, r"bids\[0\].delta_usd must be whole micro-dollars"),
        (("bids", 0, "charges_usd"), [1.0], r"bids\[0\].charges_usd is not allowed here"),
        (("fixed_usd",), -1, "fixed_usd must be between 0"),
        (("markets", 0), "m1", "different names"),
        (("caps", 0, "limit"), -1, r"caps\[0\].limit"),
        (("caps", 0, "weights"), [1.0], r"caps\[0\].weights must have one entry for each of the"),
        (("scalability", "serial"), 1.5, "serial must be in"),
        (("scalability", "kind"), "cubic", "kind"),
        (("schema",), "optim/else/1", "schema must be"),
        (("scenarios",), {"weights": [1.0], "slot_s": 60, "num_slots": 1}, r"bids\[0\].charges_usd is missing"),
        (("unknown",), 1, "unknown"),
    ],
)
def test_bad_documents_give_one_clear_line(path, value, message):
    with pytest.raises(InvalidProblemError, match=message) as raised:
        PROBLEM.read_instance(changed(path, value))
    assert "\n" not in str(raised.value)


def test_a_higher_bid_can_not_be_outbid_earlier():
    document = {
        "schema": "optim/bidding/2",
        "name": "x",
        "markets": ["m"],
        "scenarios": {"weights": [1.0], "slot_s": 600, "num_slots": 6},
        "bids": [
            {"market": "m", "delta_usd": d, "rate": 1, "max_count": 1, "charges_usd": [0], "evicted_s": [e]}
            for d, e in ((0.1, 900), (0.2, 800))
        ],
    }
    with pytest.raises(InvalidProblemError, match="higher bid of a market lasts longer"):
        PROBLEM.read_instance(json.dumps(document).encode())


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

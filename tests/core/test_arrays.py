"""Arrays of instances and decisions: whole numbers are rounded or refused, and nothing derived can be written."""

import inspect
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np
import pytest

import optim
from optim.core.arrays import ComparesByValue, whole_numbers
from optim.core.errors import InvalidProblemError
from optim.models.auction.plan import sorted_entries
from optim.models.bidding.instance import MICRO, Bids


def arrays_of(owner: Any, path: str) -> list[tuple[str, np.ndarray]]:
    """Return every array that a public attribute of an object, or of what it holds, gives."""
    if isinstance(owner, np.ndarray):
        return [(path, owner)]
    if isinstance(owner, tuple):
        return [found for k, part in enumerate(owner) for found in arrays_of(part, f"{path}[{k}]")]
    if not is_dataclass(owner):
        return []
    names = {field.name for field in fields(owner)}
    names |= {name for name, kind in inspect.getmembers(type(owner)) if hasattr(kind, "attrname")}
    return [found for name in sorted(names) for found in arrays_of(getattr(owner, name), f"{path}.{name}")]


@pytest.mark.parametrize("name", optim.reference_names())
def test_no_array_of_an_instance_can_be_written(name):
    found = arrays_of(optim.reference_instance(name), name)
    assert len(found) > 10
    assert [path for path, array in found if array.flags.writeable] == []


def test_writing_to_a_derived_array_raises():
    instance = optim.reference_instance("tiny-0")
    before = instance.value.copy()
    with pytest.raises(ValueError, match="read-only"):
        instance.value[0, :] = 1000
    with pytest.raises(ValueError, match="read-only"):
        instance.progress[0][0] = 7
    assert np.array_equal(instance.value, before)


@pytest.mark.parametrize(("name", "solver"), [("tiny-0", "online"), ("auction-tiny-0", "exact")])
def test_no_array_of_a_decision_can_be_written(name, solver):
    found = arrays_of(optim.solve(optim.reference_instance(name), solver).decision, name)
    assert found
    assert [path for path, array in found if array.flags.writeable] == []


def test_the_arrays_that_a_caller_gave_stay_the_callers():
    market, count = np.array([0]), np.array([3])
    bids = Bids(market=market, delta_micro=np.array([MICRO]), rate=np.ones(1), max_count=count, is_new=np.ones(1, bool))
    count[0] = 4
    assert not bids.max_count.flags.writeable
    assert count.flags.writeable


def test_a_plan_rounds_what_a_solver_of_integer_programmes_returns():
    plan = optim.AdmissionPlan.from_rows(workers=[(0, 2, 0, 2.999999999), (0, 1, 0, 1 - 1e-7)], ps=[(0, 1, 0, 1e-9)])
    assert plan.workers.tolist() == [[0, 1, 0, 1], [0, 2, 0, 3]]
    assert plan.ps.tolist() == []
    assert optim.FootprintPlan.of([0.9999999, 2.0000009]).counts.tolist() == [1, 2]
    assert sorted_entries([(0, 1, 0.9999999999)]).tolist() == [[0, 1, 1]]


@pytest.mark.parametrize("bad", [0.5, 2.7, 1 - 2e-6, 3 + 2e-6, float("nan"), float("inf"), 1e30, 2**63])
def test_a_plan_refuses_what_is_not_whole(bad):
    with pytest.raises(InvalidProblemError, match="must be whole numbers"):
        optim.AdmissionPlan.from_rows(workers=[(0, 1, 0, bad)], ps=[])
    with pytest.raises(InvalidProblemError, match="must be whole numbers"):
        optim.FootprintPlan.of([1, bad])
    with pytest.raises(InvalidProblemError, match="must be whole numbers"):
        sorted_entries([(0, 1, bad)])


@pytest.mark.parametrize("bad", [["a"], [None], [[1], [2, 3]]])
def test_texts_are_refused_in_words(bad):
    with pytest.raises(InvalidProblemError, match="a footprint's counts"):
        optim.FootprintPlan.of(bad)


def test_large_whole_numbers_keep_every_digit():
    assert whole_numbers([2**53 + 1, -(2**62)], "counts").tolist() == [2**53 + 1, -(2**62)]
    assert whole_numbers(np.array([7], np.uint64), "counts").tolist() == [7]
    assert whole_numbers([], "counts").dtype == np.int64


@dataclass(frozen=True, eq=False)
class Pair(ComparesByValue):
    name: str
    values: np.ndarray
    more: object = None
    note: str = field(default="", compare=False)


def test_objects_with_equal_fields_are_equal_and_hash_alike():
    one = Pair("a", np.array([1.0, np.nan]), (np.arange(3), {"k": np.zeros(2)}), note="x")
    other = Pair("a", np.array([1.0, np.nan]), (np.arange(3), {"k": np.zeros(2)}), note="y")
    assert one == other
    assert hash(one) == hash(other)
    assert len({one, other}) == 1
    assert Pair("a", np.zeros(1), float("nan")) == Pair("a", np.zeros(1), float("nan"))


@pytest.mark.parametrize(
    "other",
    [
        Pair("b", np.arange(2)),
        Pair("a", np.arange(3)),
        Pair("a", np.array([0, 2])),
        Pair("a", np.arange(2.0)),
        Pair("a", np.arange(2), (np.arange(2),)),
        Pair("a", np.arange(2), {"k": 1}),
        "a",
    ],
)
def test_objects_that_differ_in_a_field_are_not_equal(other):
    assert Pair("a", np.arange(2)) != other

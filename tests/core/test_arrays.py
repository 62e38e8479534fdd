"""Arrays of instances and decisions: whole numbers are rounded or refused, and nothing derived can be written."""

import copy
import inspect
import pickle
from dataclasses import dataclass, field, fields, is_dataclass, replace
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


@pytest.mark.parametrize(
    "name",
    [name if "tiny" in name else pytest.param(name, marks=pytest.mark.prove) for name in optim.reference_names()],
)
def test_no_array_of_an_instance_can_be_written(name):
    found = arrays_of(optim.reference_instance(name), name)
    assert len(found) > 10
    assert [path for path, array in found if array.flags.writeable] == []


COPIES = {"pickle": lambda it: pickle.loads(pickle.dumps(it)), "deepcopy": copy.deepcopy, "copy": copy.copy}


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize(
    "name",
    [
        name if "tiny" in name else pytest.param(name, marks=pytest.mark.prove)
        for name in optim.reference_names()
        if name.endswith("-0") and "medium" not in name
    ],
)
def test_a_copy_is_equal_and_can_be_written_no_more_than_its_original(name, way):
    instance = optim.reference_instance(name)
    arrays_of(instance, name)  # everything that is derived is there
    copied = COPIES[way](instance)
    assert copied == instance
    assert hash(copied) == hash(instance)
    found = arrays_of(copied, name)
    assert [path for path, array in found if array.flags.writeable] == []
    for (_, one), (_, other) in zip(found, arrays_of(instance, name), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_copy_of_an_instance_with_shared_servers_shares_them_still():
    instance = next(
        each
        for each in map(optim.reference_instance, optim.reference_names())
        if isinstance(each, optim.AdmissionInstance) and each.has_shared_servers
    )
    assert pickle.loads(pickle.dumps(instance)).has_shared_servers
    assert copy.deepcopy(instance).has_shared_servers


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize(("name", "solver"), [("tiny-0", "online"), ("spot-hour-0", "greedy")])
def test_no_array_of_a_copied_decision_can_be_written(name, solver, way):
    decision = optim.solve(optim.reference_instance(name), solver).decision
    copied = COPIES[way](decision)
    assert copied == decision
    assert [path for path, array in arrays_of(copied, name) if array.flags.writeable] == []


def test_reasons_of_jobs_that_never_run_can_not_be_written():
    instance = optim.reference_instance("tiny-0")
    with pytest.raises(TypeError, match="item assignment"):
        instance.never_run["x"] = "y"


def test_a_decision_owns_its_arrays():
    rows, counts = np.array([[0, 1, 0, 2]]), np.array([1, 2])
    plan, footprint = optim.AdmissionPlan(workers=rows, ps=rows[:0]), optim.FootprintPlan(counts=counts)
    auction = optim.solve(optim.reference_instance("auction-tiny-0"), "greedy").decision
    row, shares = auction.row.copy(), auction.share_low.copy()
    again = replace(auction, row=row, share_low=shares)
    rows[0, 3], counts[0], row[0], shares[0] = 9, 9, 9, 9.0
    assert plan.workers.tolist() == [[0, 1, 0, 2]]
    assert footprint.counts.tolist() == [1, 2]
    assert again == auction


def test_a_plan_takes_lists_and_refuses_rows_of_another_length():
    instance, plan = optim.reference_instance("tiny-0"), optim.solve(optim.reference_instance("tiny-0"), "online")
    listed = optim.AdmissionPlan(
        workers=[tuple(row) for row in plan.decision.workers.tolist()], ps=plan.decision.ps.tolist()
    )
    assert listed == plan.decision
    assert optim.verify(instance, replace(plan, decision=listed)).is_ok
    for bad in ([(0, 1, 0)], [0, 1, 0, 2]):
        with pytest.raises(InvalidProblemError, match=r"a plan's workers must be rows of"):
            optim.AdmissionPlan(workers=bad, ps=[])
    for flat in ([(0, 1, 0)], [0, 1, 0, 2]):
        with pytest.raises(InvalidProblemError, match=r"a plan's ps must be rows of job, slot, server and count, got"):
            optim.AdmissionPlan.from_rows([], flat)


def test_verify_names_what_is_no_solution():
    instance = optim.reference_instance("tiny-0")
    solution = optim.solve(instance, "online")
    with pytest.raises(InvalidProblemError, match="verify takes a Solution, got AdmissionPlan; give what"):
        optim.verify(instance, solution.decision)
    for name in ("objective", "bound"):
        with pytest.raises(InvalidProblemError, match=f"a solution's {name} must be a number or None, got '63.8'"):
            optim.verify(instance, replace(solution, **{name: "63.8"}))


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

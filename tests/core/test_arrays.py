"""Arrays of instances and decisions: integers are rounded or rejected, and derived arrays are read-only."""

import copy
import inspect
import pickle
from dataclasses import dataclass, field, fields, is_dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import optim
from optim.core.arrays import ComparesByValue, whole_numbers
from optim.core.errors import InvalidProblemError
from optim.models.admission import decision as admission
from optim.models.admission import decision as admission_plan
from optim.models.auction import decision as auction
from optim.models.auction import decision as auction_plan
from optim.models.auction.decision import AuctionPlan, PaymentRule, Witness, sorted_entries
from optim.models.bidding import decision as bidding
from optim.models.bidding import decision as bidding_plan
from optim.models.bidding.data import Bids
from optim.models.bidding.market.prices import MICRO
from optim.models.cluster import proof as cluster


def arrays_of(owner: Any, path: str) -> list[tuple[str, np.ndarray]]:
    """Return every array that a public attribute of an object, or of its parts, gives."""
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
@pytest.mark.parametrize(
    ("name", "solver"),
    [("tiny-0", "online"), ("spot-hour-0", "greedy"), ("auction-tiny-0", "exact"), ("auction-tiny-0", "greedy")],
)
def test_no_array_of_a_copied_decision_or_proof_can_be_written(name, solver, way):
    solution = optim.solve(optim.reference_instance(name), solver)
    for whole in (solution.decision, solution.certificate.proof):
        copied = COPIES[way](whole)
        assert copied == whole
        found = [path for path, array in arrays_of(copied, name) if array.flags.writeable]
        assert [path for path in found if way != "copy" or "[" not in path] == []  # a shallow copy shares the rest
    copies = COPIES[way]([solution.decision, solution.certificate.proof])
    assert copies == [solution.decision, solution.certificate.proof]


def whole(*numbers: int) -> np.ndarray:
    """Return integers as a writable array."""
    return np.array(numbers, dtype=np.int64)


def prices(*shape: int) -> np.ndarray:
    """Return numbers from 0 on in a shape."""
    return np.arange(np.prod(shape), dtype=np.float64).reshape(shape)


def examples_of_decisions_and_proofs() -> list[Any]:
    """Return at least one object of every class of decisions and proofs, made of writable arrays."""
    cuts = {
        "side": admission.Side.WORKER,
        "server_class": 0,
        "slot": 1,
        "jobs": whole(0),
        "right_hand_side": 3,
        "multiplier": 0.5,
    }
    server_cut = admission.ServerCut(**cuts, worker_coefficient=whole(2), ps_coefficient=whole(0))
    count_cut = admission.CountCut(**cuts, gain=whole(1, 2)[None], ps_gain=whole(0, 1)[None])
    slot_cut = admission.SlotCut(
        slot=1,
        jobs=whole(0),
        gain=whole(1, 2)[None],
        resource=whole(0),
        divisor=whole(1),
        right_hand_side=3,
        multiplier=0.5,
    )
    dual = admission.PriceProof(
        worker_price=prices(1, 2, 1),
        ps_price=prices(1, 2, 1),
        payoff=prices(3),
        cuts=(server_cut,),
        count_cuts=(count_cut,),
        slot_cuts=(slot_cut,),
    )
    branch = admission.Branch(kind=admission.BranchKind.ADMITTED, job=1)
    nodes = (admission.TreeNode(branch=branch, low=1, high=2), admission.TreeNode(proof=dual), admission.TreeNode())
    kinds = auction.PriceProof(kinds=whole(0, 1, -1)[None], row_price=prices(1), supply_price=prices(1))
    split = auction.TreeProof(
        nodes=(auction.TreeNode(low=1, high=2), auction.TreeNode(proof=kinds), auction.TreeNode(is_full=True))
    )
    shares = {"share_low": prices(2), "share_high": prices(2), "rule": PaymentRule.FLOOR}
    award = {"row": whole(0, -1), "placement": [[0, 1, 2]], "grants": [[0, 1, 1]], **shares}
    numbers = bidding.Multipliers(
        point=prices(1),
        eviction=prices(1),
        attribution_cell=whole(0),
        attribution_bid=whole(0),
        attribution=prices(1),
        cap=prices(0),
    )
    cover = bidding.Cover(weight=whole(1, 2), short_of=2)
    return [
        server_cut, count_cut, slot_cut, dual, branch, *nodes, admission.TreeProof(nodes=nodes),
        optim.AdmissionPlan(workers=[(0, 0, 0, 1)], ps=[]),
        auction.CountProof(), kinds, *split.nodes, split, auction.AuctionProof(welfare=kinds),
        auction.AuctionProof(welfare=split, without={1: kinds, 2: split}, others=kinds),
        auction.AuctionProof(welfare=split, without=MappingProxyType({1: kinds})),
        Witness(row=whole(0, 1)), Witness(row=whole(0, 1), placement=whole(0, 0, 1)[None]),
        AuctionPlan(**award), AuctionPlan(**award, witnesses=MappingProxyType({1: Witness(row=whole(0))})),
        AuctionPlan(**award, witnesses={1: Witness(row=whole(0))}),
        numbers, cover, bidding.TreeNode(bid=1), optim.FootprintPlan(counts=whole(1, 2)),
        bidding.RatioProof(ratio=0.5, nodes=(bidding.TreeNode(),), multipliers=(numbers,), covers=(cover,)),
        cluster.PriceProof(end_us=whole(1, 2), price=prices(2)), cluster.PriceProof.of_equal_slots(10**6, prices(2)),
        cluster.DivisibleSchedule(job=whole(0), weight=prices(1) + 1, gpu_type=whole(0), start_us=whole(0)),
        cluster.Worth(theta=prices(1, 3), slot_us=1, price=prices(2), utility=1.0, bound=2.0), cluster.LoadProof(from_us=1), cluster.IntervalProof(slowdown=2.0, from_us=0, to_us=1),
    ]  # fmt: skip


def test_no_class_that_is_compared_by_value_has_slots():
    """A frozen class with slots gets its own copy methods, which make the arrays of a copy writable."""
    waiting, seen = [ComparesByValue], set()
    while waiting:
        kind = waiting.pop()
        assert kind.__setstate__ is ComparesByValue.__setstate__, kind
        seen.add(kind.__name__)
        waiting += [each for each in kind.__subclasses__() if each.__module__.startswith("optim.")]
    assert {"Cover", "NeedsTable", "AdmissionInstance"} <= seen


MODULES = (admission, auction, bidding, cluster, auction_plan, admission_plan, bidding_plan)


def test_every_class_of_decisions_and_proofs_has_an_example():
    there = {
        kind for module in MODULES for kind in vars(module).values()
        if isinstance(kind, type) and is_dataclass(kind) and kind.__module__ == module.__name__
        and not kind.__name__.startswith("_")
    }  # fmt: skip
    assert {type(example) for example in examples_of_decisions_and_proofs()} == there


@pytest.mark.parametrize("way", COPIES)
def test_a_copy_of_any_decision_or_proof_is_equal_and_can_not_be_written(way):
    originals = examples_of_decisions_and_proofs()
    copies = COPIES[way](originals)
    assert copies == originals
    for original in originals:
        copied = COPIES[way](original)
        assert copied == original
        assert hash(copied) == hash(original)
        named = type(original).__name__
        found = arrays_of(copied, named)
        assert [
            path for path, array in found if array.flags.writeable and path.count(".") < 2 and "[" not in path
        ] == []
        if way != "copy":  # a shallow copy shares the arrays of the original
            assert [path for path, array in found if array.flags.writeable] == []
        for name in ("without", "witnesses"):
            mapping = getattr(original, name, None)
            if isinstance(mapping, MappingProxyType):
                with pytest.raises(TypeError, match="item assignment"):
                    getattr(copied, name)[0] = None


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
    with pytest.raises(InvalidProblemError, match="verify takes a Solution, got AdmissionPlan; give the result of"):
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


@pytest.mark.parametrize(
    ("name", "solver"), [("tiny-0", "branch-and-price"), ("auction-tiny-0", "exact"), ("spot-tiny-own", "dinkelbach")]
)
def test_no_array_of_a_certificate_can_be_written(name, solver):
    found = arrays_of(optim.solve(optim.reference_instance(name), solver).certificate, name)
    assert [path for path, array in found if array.flags.writeable] == []


def test_a_relaxation_is_shown_in_a_line():
    relaxation = optim.solve(optim.reference_instance("tiny-0"), "column-generation").relaxation
    assert repr(relaxation) == f"Relaxation(objective={relaxation.objective!r})"


def test_a_plans_floats_become_whole_numbers_or_are_refused():
    instance, none = optim.reference_instance("tiny-0"), np.zeros((0, 4))
    plan = optim.AdmissionPlan(workers=np.array([[0, 1, 0, 1 - 1e-9]]), ps=none)
    assert (plan.workers.dtype, plan.workers.tolist(), plan.ps.shape) == (np.int64, [[0, 1, 0, 1]], (0, 4))
    assert plan.objective(instance) == optim.AdmissionPlan.from_rows([(0, 1, 0, 1)], []).objective(instance)
    for bad in (1.5, np.nan):
        with pytest.raises(InvalidProblemError, match="a plan's workers must be whole numbers"):
            optim.AdmissionPlan(workers=np.array([[0, 1, 0, bad]]), ps=none)
    with pytest.raises(InvalidProblemError, match="a footprint's counts must be whole"):
        optim.FootprintPlan(counts=np.array([0.5]))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([(0, 1, 0, -1)], r"workers must be numbers of at least 0, got \(0, 1, 0, -1\)"),
        ([(-1, 1, 0, 1)], r"got \(-1, 1, 0, 1\)"),
        (
            [(0, 1, 0, 1), (0, 0, 0, 1), (0, 1, 0, 2)],
            r"two rows for the same job, slot and server \(0, 1, 0\); add their counts up",
        ),
    ],
)
def test_a_plan_refuses_rows_that_cannot_be(rows, said):
    with pytest.raises(InvalidProblemError, match=said):
        optim.AdmissionPlan.from_rows(rows, [])


@pytest.mark.parametrize(
    ("row", "said"), [((99, 1, 0, 1), "job 99, but instance 'tiny-0' has jobs 0 to 5"), ((0, 99, 0, 1), "slot 99")]
)
def test_rows_that_an_instance_lacks_are_named(row, said):
    instance, plan = optim.reference_instance("tiny-0"), optim.AdmissionPlan.from_rows([row], [])
    for use in (plan.objective, plan.columns):
        with pytest.raises(InvalidProblemError, match=said):
            use(instance)
    assert not optim.verify(instance, replace(optim.solve(instance, "fifo"), decision=plan)).is_ok


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

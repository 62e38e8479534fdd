"""Slot cuts: validity over knapsack rows and over all packings, and the improvement of a bound by them."""

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidProblemError
from optim.core.limits import read_limits
from optim.models.admission.check import check
from optim.models.admission.check.cuts import CutCheck
from optim.models.admission.check.exact_instance import read_exact_instance
from optim.models.admission.check.prices import check_prices
from optim.models.admission.check.schedules import FREE, Restriction
from optim.models.admission.decision import CountCut, PriceProof, SlotCut
from optim.models.admission.instance import AdmissionInstance
from optim.models.admission.problem import PROBLEM
from tests.models.admission.check.test_counts import check_bound
from tests.support.admission.count_cuts import make_count_cut
from tests.support.admission.enumeration import (
    Enumerator,
    Market,
    best_gain,
    best_total,
    meets,
    random_branch,
    random_market,
)
from tests.support.admission.plans import families, proven_by, solution_of
from tests.support.admission.slot_cuts import (
    GPU,
    left_side,
    make_slot_cut,
    most_over_rows,
    packed_numbers,
    random_slot_cut,
    scarce_instance,
)
from tests.support.admission.tiny import job_document, tiny_instance, tiny_instances

SEEDS = st.integers(0, 2**32 - 1)

SCARCE = SEEDS.map(scarce_instance)

BOUND = 17.0
"""Optimum of `THREE_JOBS`: job a or b with 16, and job c with 1."""


def causes(instance: AdmissionInstance, cut: Any) -> list[str]:
    """Return the reason for which the checker rejects a cut."""
    found = CutCheck(read_exact_instance(instance)).violations(cut, 0, "", SlotCut)
    return [violation.message for violation in found]


def three_jobs(**second: Any) -> AdmissionInstance:
    """Return two jobs that need two workers of two GPUs in slot 0, a small one, and servers of 3, 3 and 2 GPUs."""
    pair = {"epochs": 1, "worker": [2, 0], "utility": {"kind": "table", "table": [16]}}
    small = {"arrival": 1, "epochs": 1, "chunks": 1, "utility": {"kind": "table", "table": [1]}}
    gpus = [{"type": f"gpus{c}", "capacity": [capacity, 0], "count": 1} for c, capacity in enumerate((3, 3, 2))]
    jobs = (job_document("a", **pair), job_document("b", **(pair | second)), job_document("c", **small))
    return tiny_instance(*jobs, worker_servers=gpus)


THREE_JOBS = three_jobs()
"""The servers hold three workers of a and b, so that one of the two completes; their capacities are enough for four.

Each server is a class of its own, so that both workers of a job are in different classes.
"""


def market_of(*cuts: SlotCut) -> Market:
    """Return slot cuts on `THREE_JOBS` without prices."""
    return replace(random_market(THREE_JOBS, np.random.default_rng(0), share_free=1.0), slot_cuts=cuts)


def verification(proof: PriceProof, bound: float = BOUND) -> Any:
    """Check a bound on `THREE_JOBS`."""
    return check(THREE_JOBS, solution_of(THREE_JOBS, None, **proven_by(proof, bound)))


VALID = market_of(make_slot_cut()).proof([0.0, 0.0, 1.0])
"""At multiplier 16, a and b have payoff 0."""


@given(tiny_instances(max_jobs=3) | SCARCE, SEEDS)
def test_accepts_the_exact_right_hand_side_and_refuses_one_less(instance: AdmissionInstance, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(3):
        cut = random_slot_cut(instance, rng)
        assert causes(instance, cut) == []
        if cut.right_hand_side > 0:
            lower = replace(cut, right_hand_side=cut.right_hand_side - 1)
            assert "exceeds the right-hand side" in causes(instance, lower)[0]


@given(tiny_instances() | SCARCE, SEEDS)
def test_accepted_cuts_hold_for_all_packings_on_single_servers(instance: AdmissionInstance, seed: int) -> None:
    rng = np.random.default_rng(seed)
    packings = [packed_numbers(instance, slot) for slot in range(instance.horizon)]
    for _ in range(4):
        drawn = random_slot_cut(instance, rng)
        for cut in (drawn, replace(drawn, right_hand_side=int(rng.integers(8)))):
            if causes(instance, cut) == []:
                assert max(left_side(cut, numbers) for numbers in packings[cut.slot]) <= cut.right_hand_side


def test_the_oracles_by_hand() -> None:
    # The three servers hold three workers of a and b; the rows by pairs of GPUs say so, those by single GPUs do not.
    assert max(map(sum, packed_numbers(THREE_JOBS, 0).tolist())) == 3
    each = make_slot_cut(gain=np.array([[1, 2], [1, 2]]))
    assert most_over_rows(THREE_JOBS, each) == 3
    assert most_over_rows(THREE_JOBS, replace(each, divisor=np.array([GPU]))) == 4
    assert most_over_rows(THREE_JOBS, replace(each, resource=np.array([1]))) == 4


def test_lowers_the_bound_where_neither_capacity_nor_cuts_of_a_class_do() -> None:
    priced = random_market(THREE_JOBS, np.random.default_rng(0), share_free=1.0)
    price = priced.worker_price.copy()
    price[:, 0, 0] = 4.0
    listed = [[None, *Enumerator(THREE_JOBS).schedules(job)] for job in range(3)]
    for market, bound in ((replace(priced, worker_price=price), 33.0), (market_of(make_slot_cut()), BOUND)):
        payoff = [best_gain(market, own) for own in listed]
        found = verification(market.proof(payoff), bound)
        assert found.is_ok
        assert found.bound == pytest.approx(bound)


def test_charges_the_number_over_all_classes() -> None:
    """No class holds two workers of a, so that the gain of one class' number is 0."""
    assert verification(VALID).is_ok
    free = replace(VALID, slot_cuts=(make_slot_cut(jobs=np.array([1]), gain=np.array([[0, 1]])),))
    assert {violation.row for violation in verification(free, bound=33.0).violations} == {"(21) payoff [job a]"}


@pytest.mark.parametrize("is_shared", [False, True])
def test_charges_as_often_as_the_gain_and_once_for_the_number(is_shared: bool) -> None:
    """Three workers on two classes gain 5: not 2 x 1 + 1 x 2 nor three times the first gain."""
    wide = {"epochs": 1, "chunks": 3, "ps_mbps": 3, "utility": {"kind": "table", "table": [16]}}
    boxes = [{"type": f"box{c}", "capacity": [2, 2], "count": 1} for c in range(2)]
    kind = {"shared_servers": boxes} if is_shared else {"worker_servers": boxes}
    instance = tiny_instance(job_document("a", **wide), **kind)
    cut = make_slot_cut(jobs=np.array([0]), gain=np.array([[1, 2, 5]]), right_hand_side=5, multiplier=2.0)
    market = replace(random_market(instance, np.random.default_rng(0), share_free=1.0), slot_cuts=(cut,))
    found = check_prices(read_exact_instance(instance), market.proof([0.0]), CutCheck(read_exact_instance(instance)))
    assert float(found.violations[0].amount) == pytest.approx(6.0)
    assert float(found.bound or 0) == pytest.approx(6.0 + 10.0)


def test_bounds_exceed_the_exact_ones_despite_rounding() -> None:
    """A thousand charges of a little more than half a unit roundoff, each rounded up to a whole one."""
    multipliers = [1.0, *[2.0**-53 * 1.0001] * 1000]
    cuts = tuple(make_slot_cut(multiplier=multiplier) for multiplier in multipliers)
    exact = read_exact_instance(THREE_JOBS)
    found = check_prices(exact, market_of(*cuts).proof([0.0] * 3), CutCheck(exact))
    assert found.bound is not None
    total = sum(map(Fraction, multipliers))
    assert 0 <= found.bound - (2 * (16 - total) + 1 + total) < Fraction(1, 10**9)


def test_charges_beyond_the_largest_double_are_clipped() -> None:
    """A job that must be admitted pays what it must; an infinite charge would mean that it has no schedule."""
    cut = make_slot_cut(gain=np.array([[0, 100], [0, 100]]), right_hand_side=100, multiplier=1e308)
    exact = read_exact_instance(THREE_JOBS)
    found = check_prices(
        exact, market_of(cut).proof([-1e300, 0.0, 1.0]), CutCheck(exact), {0: Restriction(is_admitted=True)}
    )
    assert [violation.row for violation in found.violations] == ["(21) payoff [job a]"]


@given(tiny_instances(), SEEDS)
def test_bounds_are_those_of_an_enumeration(instance: AdmissionInstance, seed: int) -> None:
    rng = np.random.default_rng(seed)
    cuts = tuple(random_slot_cut(instance, rng) for _ in range(3))
    check_bound(replace(random_market(instance, rng, share_free=0.6, scale=0.5), slot_cuts=cuts))


@given(tiny_instances(max_count=1), SEEDS)
def test_no_bound_is_below_the_optimum_on_single_servers(instance: AdmissionInstance, seed: int) -> None:
    rng = np.random.default_rng(seed)
    cuts = tuple(random_slot_cut(instance, rng) for _ in range(3))
    market = replace(random_market(instance, rng, share_free=0.8, scale=0.2), slot_cuts=cuts)
    enumerator = Enumerator(instance)
    found = check_prices(
        read_exact_instance(instance),
        market.proof([0.0] * instance.num_jobs),
        CutCheck(read_exact_instance(instance)),
    )
    optimum = best_total(instance, lambda job: list(enumerator.schedules(job)))
    assert found.bound is not None
    assert float(found.bound) >= optimum * (1 - 1e-12)


@given(tiny_instances(max_jobs=1), SEEDS)
def test_payoffs_in_leaves_are_those_of_the_schedules_that_branches_leave(
    instance: AdmissionInstance, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    cuts = tuple(random_slot_cut(instance, rng) for _ in range(2))
    market = replace(random_market(instance, rng, share_free=0.6, scale=0.5), slot_cuts=cuts)
    left = list(Enumerator(instance).schedules(0))
    restriction = FREE
    exact = read_exact_instance(instance)
    for _ in range(2):
        branch, is_high = random_branch(instance, 0, rng), bool(rng.integers(2))
        restriction = restriction.narrowed(branch, is_high=is_high)
        left = [schedule for schedule in left if meets(schedule, branch, is_high=is_high)]
        found = check_prices(exact, market.proof([0.0]), CutCheck(exact), {0: restriction}, leaf=", leaf 1")
        assert found.bound is not None
        expected = max(0.0, best_gain(market, left)) + market.rents()
        assert float(found.bound) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(
    ("row", "fields"),
    [
        ("(21) payoff [job a]", {"slot": 1}),
        ("(21) payoff [job b]", {"jobs": np.array([0, 2])}),
        ("cut [slot cut 0, slot 0]", {"gain": np.array([[1, 1], [1, 1]])}),
        ("(21) payoff [job b]", {"gain": np.array([[0, 1], [0, 0]])}),
        ("cut [slot cut 0, slot 0]", {"resource": np.array([1])}),
        ("cut [slot cut 0, slot 0]", {"divisor": np.array([GPU])}),
        ("cut [slot cut 0, slot 0]", {"divisor": np.array([2 * GPU + 1])}),
        ("cut [slot cut 0, slot 0]", {"right_hand_side": 0}),
        ("bound", {"right_hand_side": 2}),
        ("(21) payoff [job a]", {"multiplier": 15.9}),
        ("bound", {"multiplier": 16.1}),
    ],
)
def test_refuses_a_proof_with_one_field_changed(row: str, fields: dict[str, Any]) -> None:
    changed = replace(VALID, slot_cuts=(make_slot_cut(**fields),))
    assert row in {violation.row for violation in verification(changed).violations}
    # The same in a file.
    read = PROBLEM.proof_from_json(THREE_JOBS, json.loads(json.dumps(PROBLEM.proof_to_json(THREE_JOBS, changed))))
    assert isinstance(read, PriceProof)
    assert row in {violation.row for violation in verification(read).violations}


def test_refuses_a_proof_without_the_cut_that_it_needs() -> None:
    assert families(verification(replace(VALID, slot_cuts=())).violations) == {"(21)", "bound"}


@pytest.mark.parametrize(
    ("cause", "fields"),
    [
        ("exceeds the right-hand side 0", {"right_hand_side": 0}),
        ("exceeds the right-hand side 1", {"gain": np.array([[1, 1], [1, 1]])}),
        ("exceeds the right-hand side 1", {"gain": np.array([[0, 1, 1], [1, 1, 1]])}),
        ("exceeds the right-hand side 1", {"resource": np.array([1])}),
        ("exceeds the right-hand side 1", {"divisor": np.array([GPU])}),
        ("right-hand side must be", {"right_hand_side": -1}),
        ("right-hand side must be", {"right_hand_side": 1.5}),
        ("right-hand side must be", {"right_hand_side": None}),
        ("multiplier", {"multiplier": -1e-9}),
        ("multiplier", {"multiplier": np.nan}),
        ("multiplier", {"multiplier": np.inf}),
        ("multiplier", {"multiplier": "1"}),
        ("multiplier", {"multiplier": 10**400}),
        ("must not be negative", {"gain": np.array([[-1, 1], [0, 1]])}),
        ("must not decrease", {"gain": np.array([[0, 1, 0], [0, 1, 1]])}),
        ("whole numbers", {"gain": np.array([[0.0, 1.0], [0.0, 1.0]])}),
        ("whole numbers", {"gain": np.array([[0, 1]])}),
        ("whole numbers", {"gain": np.array([0, 1])}),
        ("whole numbers", {"gain": None}),
        ("may exceed", {"gain": np.array([[0, 2**51], [0, 1]]), "right_hand_side": 2**52}),
        ("ascending", {"jobs": np.array([1, 0])}),
        ("ascending", {"jobs": np.array([0, 0])}),
        ("ascending", {"jobs": np.array([0, 3])}),
        ("ascending", {"jobs": np.array([-1, 0])}),
        ("slot 4 is outside", {"slot": 4}),
        ("slot -1 is outside", {"slot": -1}),
        ("slot 0.0 is outside", {"slot": 0.0}),
        ("resource of a row is outside", {"resource": np.array([2])}),
        ("resource of a row is outside", {"resource": np.array([-1])}),
        ("one resource and one divisor per row", {"resource": np.array([0, 1])}),
        ("one resource and one divisor per row", {"resource": np.array([[0]])}),
        ("one resource and one divisor per row", {"resource": np.array([0.0])}),
        ("one resource and one divisor per row", {"divisor": np.array([2.0 * GPU])}),
        ("one resource and one divisor per row", {"divisor": None}),
        ("at least 1, got 0", {"divisor": np.array([0])}),
        ("at least 1, got -2", {"divisor": np.array([-2])}),
    ],
)
def test_says_what_is_wrong_with_a_cut(cause: str, fields: dict[str, Any]) -> None:
    found = causes(THREE_JOBS, make_slot_cut(**fields))
    assert len(found) == 1
    assert cause in found[0]
    after_valid = CutCheck(read_exact_instance(THREE_JOBS))
    for multiplier in (1.0, 2.0):
        assert after_valid.violations(make_slot_cut(multiplier=multiplier), 0, "", SlotCut) == []
    again = after_valid.violations(make_slot_cut(**fields), 1, "", SlotCut)
    assert [violation.message for violation in again] == found


def test_refuses_another_form_of_cut() -> None:
    assert causes(THREE_JOBS, make_count_cut()) == ["a slot cut must be a SlotCut, got CountCut"]
    exact = CutCheck(read_exact_instance(THREE_JOBS))
    found = exact.violations(make_slot_cut(), 0, "", CountCut)
    assert [violation.message for violation in found] == ["a count cut must be a CountCut, got SlotCut"]


def test_names_the_cut_and_the_leaf() -> None:
    market = market_of(make_slot_cut(), make_slot_cut(right_hand_side=0), make_slot_cut(slot=9))
    exact = read_exact_instance(THREE_JOBS)
    found = check_prices(exact, market.proof([0.0, 0.0, 1.0]), CutCheck(exact), leaf=", leaf 3")
    assert [violation.row for violation in found.violations] == [
        "cut [slot cut 1, slot 0, leaf 3]",
        "cut [slot cut 2, leaf 3]",
    ]
    assert found.bound is None


def test_more_workers_than_are_listed_gain_as_the_last() -> None:
    one = make_slot_cut(gain=np.array([[1], [1]]))
    assert causes(THREE_JOBS, one) != []
    assert causes(THREE_JOBS, replace(one, right_hand_side=2)) == []
    assert causes(THREE_JOBS, make_slot_cut(gain=np.zeros((2, 0), dtype=np.int64), right_hand_side=0)) == []
    # Two workers are charged the gain of one.
    proof = market_of(replace(one, right_hand_side=2)).proof([0.0, 0.0, 1.0])
    assert verification(proof, bound=33.0).is_ok


def test_without_rows_every_job_gains_its_most() -> None:
    empty = np.zeros(0, dtype=np.int64)
    assert causes(THREE_JOBS, make_slot_cut(resource=empty, divisor=empty)) != []
    assert causes(THREE_JOBS, make_slot_cut(resource=empty, divisor=empty, right_hand_side=2)) == []


def test_counts_nothing_for_a_job_that_can_not_be_there() -> None:
    cut = make_slot_cut(gain=np.array([[0, 1], [1, 9]]))
    assert causes(THREE_JOBS, cut) != []
    assert causes(three_jobs(arrival=1), cut) == []
    assert causes(three_jobs(min_utility=17), cut) == []


def test_counts_the_numbers_whose_ps_fit_alone() -> None:
    """Job b needs one PS per worker, of two CPUs each: the PS server holds one of them."""
    cut = make_slot_cut(gain=np.array([[0, 0], [0, 9]]), right_hand_side=0)
    assert causes(THREE_JOBS, cut) != []
    assert causes(three_jobs(ps_mbps=1, ps=[0, 2]), cut) == []


def test_takes_the_smallest_demand_of_all_segments() -> None:
    segments = [{"start": 0, "worker": [2, 0], "ps": [0, 1]}, {"start": 1, "worker": [1, 0], "ps": [0, 1]}]
    document = job_document("b", epochs=1, segments=segments)
    pair = job_document("a", epochs=1, worker=[2, 0])
    gpus = [{"type": "gpus", "capacity": [3, 0], "count": 2}]
    assert causes(tiny_instance(pair, document, worker_servers=gpus), make_slot_cut()) != []
    same = [segment | {"worker": [2, 0]} for segment in segments]
    document = job_document("b", epochs=1, segments=same)
    assert causes(tiny_instance(pair, document, worker_servers=gpus), make_slot_cut()) == []


@pytest.mark.parametrize(("cpus", "most"), [(3, 2), (4, 3)])
def test_counts_workers_and_ps_together_on_shared_servers(cpus: int, most: int) -> None:
    """Three workers of two jobs take three CPUs and their PSs another two; the boxes have `cpus` and one."""
    wide = {"epochs": 1, "worker": [0, 1], "ps": [0, 1], "ps_mbps": 2}
    boxes = [{"type": "box", "capacity": [0, cpus], "count": 1}, {"type": "other", "capacity": [0, 1], "count": 1}]
    instance = tiny_instance(job_document("a", **wide), job_document("b", **wide), shared_servers=boxes)
    gain = np.array([[1, 2], [1, 2]])
    cut = make_slot_cut(gain=gain, resource=np.array([1]), divisor=np.array([GPU]), right_hand_side=most)
    assert causes(instance, cut) == []
    assert causes(instance, replace(cut, right_hand_side=most - 1)) != []


def test_capacities_beyond_64_bits_are_rounded_down() -> None:
    """20,000 servers of 10**9 GPUs have 2e19 micro-units; either job uses 1.2e19 of them."""
    num_servers, most = 20_000, 12_000
    wide = {"epochs": 1, "chunks": most, "worker": [10**9, 0], "ps_mbps": 10**6}
    gpus = [{"type": "gpus", "capacity": [10**9, 0], "count": num_servers}]
    instance = tiny_instance(job_document("a", **wide), job_document("b", **wide), worker_servers=gpus)
    gain = np.tile((np.arange(1, most + 1) == most).astype(np.int64), (2, 1))
    slot_cut = make_slot_cut(gain=gain, divisor=np.array([1]))
    assert causes(instance, slot_cut) == []
    assert "exceeds" in causes(instance, replace(slot_cut, right_hand_side=0))[0]
    count_cut = make_count_cut(gain=gain)
    assert CutCheck(read_exact_instance(instance)).violations(count_cut, 0, "", CountCut) == []


def test_gives_up_on_a_cut_that_is_too_hard_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    hard = make_slot_cut(gain=np.array([[0, 9], [0, 9]]), right_hand_side=9)
    assert causes(THREE_JOBS, hard) == []
    with monkeypatch.context() as patch:
        patch.setattr("optim.models.admission.check.cuts.STATE_LIMIT", 0)
        assert "needs more than 0 packings" in causes(THREE_JOBS, hard)[0]
    monkeypatch.setattr("optim.models.admission.check.cuts.USE_LIMIT", 1)
    assert causes(THREE_JOBS, hard) == ["the check of 2 gains in 1 rows needs more than 1 numbers"]
    monkeypatch.setattr("optim.models.admission.check.cuts.USE_LIMIT", 10**7)
    many = {"resource": np.zeros(1_001, dtype=np.int64), "divisor": np.full(1_001, 2 * GPU)}
    assert causes(THREE_JOBS, replace(hard, **many)) == ["the check accepts at most 1000 rows, got 1001"]
    assert causes(THREE_JOBS, replace(hard, **{name: row[1:] for name, row in many.items()})) == []


def test_files_hold_slot_cuts() -> None:
    cut = make_slot_cut(resource=np.array([0, 1, 0]), divisor=np.array([2 * GPU, 1, 1]))
    document = PROBLEM.proof_to_json(THREE_JOBS, market_of(cut).proof([0.0, 0.0, 1.0]))
    assert document["slot_cuts"] == [
        {
            "slot": 0,
            "gains": [("a", [0, 1]), ("b", [0, 1])],
            "rows": [(0, 2 * GPU), (1, 1), (0, 1)],
            "right_hand_side": 1,
            "multiplier": 16.0,
        }
    ]
    proof = PROBLEM.proof_from_json(THREE_JOBS, msgspec.json.decode(msgspec.json.encode(document)))
    assert isinstance(proof, PriceProof)
    assert proof.slot_cuts == (cut,)
    document["slot_cuts"][0]["gains"] = [("b", [1]), ("a", [0, 1])]
    (read,) = PROBLEM.proof_from_json(THREE_JOBS, document).slot_cuts
    assert (read.jobs.tolist(), read.gain.tolist()) == ([0, 1], [[0, 1], [1, 1]])


def test_files_without_slot_cuts_do_not_mention_them() -> None:
    document = PROBLEM.proof_to_json(THREE_JOBS, market_of().proof([16.0, 16.0, 1.0]))
    assert list(document) == ["kind", "worker_price", "ps_price", "payoff", "cuts", "count_cuts"]
    assert PROBLEM.proof_from_json(THREE_JOBS, document).slot_cuts == ()


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("slot", (-1, 4, 2**60, 1.5, "0", None)),
        ("gains", ([("z", [1])], [("a", [1]), ("a", [1])], [("a", [-1])], [("a", [1, 0])], [("a", 1)], [["a"]], 3)),
        ("rows", ([(2, 1)], [(0, 0)], [(0, -1)], [(0, 2**60)], [(0, 0.5)], [(-1, 1)], [(0,)], [(0, 1, 1)], None)),
        ("right_hand_side", (-1, 0, 2**60, 0.5, None)),
        ("multiplier", (-1.0, None, "1", 10**400)),
        ("unknown", (1,)),
    ],
)
def test_refuses_files_with_a_wrong_value(field: str, values: tuple[Any, ...]) -> None:
    text = json.dumps(PROBLEM.proof_to_json(THREE_JOBS, VALID))
    assert refusal(json.loads(text)) == ""
    for value in values:
        document = json.loads(text)
        document["slot_cuts"][0][field] = value
        assert refusal(document) != "", value
        del document["slot_cuts"][0][field]
        assert refusal(document) != "" or field == "unknown"


def test_refuses_files_whose_slot_cuts_are_no_list() -> None:
    assert "slot_cuts" in refusal(PROBLEM.proof_to_json(THREE_JOBS, VALID) | {"slot_cuts": None})


def refusal(document: Any) -> str:
    """Return why a proof in a file is refused, an empty text if it is accepted."""
    try:
        proof = PROBLEM.proof_from_json(THREE_JOBS, json.loads(json.dumps(document)))
    except InvalidProblemError as error:
        return str(error)
    assert isinstance(proof, PriceProof)
    return ", ".join(violation.message for violation in verification(proof).violations)


def test_limits_the_table_of_gains_in_a_file() -> None:
    document = PROBLEM.proof_to_json(THREE_JOBS, VALID)
    document["slot_cuts"][0]["gains"] = [("a", [1] * 60), ("b", [1])]
    with read_limits(cells=119), pytest.raises(InvalidProblemError, match="jobs times gains of a slot cut"):
        PROBLEM.proof_from_json(THREE_JOBS, document)

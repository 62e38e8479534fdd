"""The common base of all checkers: one tolerance, names and statuses, sentences, counters, and walks through a proof's tree."""

import math
import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.claims import MOST, AbstractClaims, CountRange, Descent, Recomputed, check_ranges, is_finite
from optim.core.errors import InvalidProblemError
from optim.core.limits import Effort, read_limits
from optim.core.solution import (
    Certificate,
    CertificateKind,
    PointStatus,
    Sense,
    Solution,
    Stats,
    Termination,
    violation,
)

KINDS = CertificateKind


class Toy(AbstractClaims):
    """A problem whose decision is its objective's terms, and whose proof is its bound's terms."""

    problem = "toy"
    sense = Sense.MAXIMISE
    decision_type = list
    proof_types = (tuple,)
    sentences = {  # noqa: RUF012 - a test's own
        KINDS.FEASIBLE_ONLY: ("it fits",),
        KINDS.BOUND: ("nothing beats {bound} in {leaves} leaves",),
        KINDS.OPTIMALITY: ("it attains {bound} to {tol}",),
    }
    objective_text = "it earns {}"
    bound_text = "nothing earns more than {}"
    optimality_text = "it is the best"

    def check_decision(self, decision):
        return [], Recomputed.total(decision)

    def check_proof(self, proof):
        return [], Recomputed.total(proof)

    def why_feasible(self):
        return "nothing is asked for"

    def counts(self):
        return {"terms": float(len(self.solution.decision or ()))}

    def count_ranges(self):
        return {"moves": CountRange.whole()}

    def check_related_counts(self, stated):
        wrong = stated.get("twins", 0.0) > stated.get("moves", 0.0)
        return [violation("counts", "more twins than moves", where="twins")] if wrong else []

    def figures(self):
        return {"leaves": 3.0}


class Dear(Toy):
    """The toy problem, minimised."""

    sense = Sense.MINIMISE


class Vast(Toy):
    """The toy problem, with an instance whose terms are large."""

    def max_terms(self):
        return 2e9


def solution(decision=(5.0, 4.0), proof=(6.0, 4.0), **fields) -> Solution:
    """Return an honest solution of the toy problem."""
    kind = KINDS.BOUND if proof else KINDS.FEASIBLE_ONLY
    known = {
        "problem": "toy",
        "instance": "one",
        "solver": "hand",
        "sense": Sense.MAXIMISE,
        "termination": Termination.COMPLETED,
        "primal": PointStatus.FEASIBLE if decision else PointStatus.NONE,
        "dual": PointStatus.FEASIBLE if proof else PointStatus.NONE,
        "decision": list(decision) if decision else None,
        "objective": sum(decision) if decision else None,
        "bound": sum(proof) if proof else None,
        "certificate": Certificate(kind=kind, statement="", proof=proof) if proof else None,
    }
    return Solution(**known | fields)


def certified(kind=KINDS.BOUND, statement="", proof=(6.0, 4.0), conditions=()):
    return Certificate(kind=kind, statement=statement, proof=proof, conditions=conditions)


def rows(claims) -> list[str]:
    return [found.row for found in claims.check().violations]


def checked(given: Solution) -> list[str]:
    return rows(Toy("one", given))


def test_an_honest_solution_is_accepted_and_says_what_is_proven() -> None:
    found = Toy("one", solution()).check()
    assert found.is_ok
    assert (found.objective, found.bound) == (9.0, 10.0)
    assert found.proven == ("it earns 9.0", "nothing earns more than 10.0")


def test_a_number_may_differ_by_a_billionth_of_its_terms() -> None:
    total = Recomputed.total([1e9, -1e9, 1.0])
    assert (total.value, total.terms) == (1.0, 2e9 + 1)
    assert total.matches(2.9)
    assert not total.matches(3.1)


def test_a_sum_of_nothing_is_exactly_nothing() -> None:
    assert Recomputed.total([]).matches(0.0)
    assert not Recomputed.total([]).matches(1e-300)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf"), None, "1", 10**400, True])
def test_what_is_no_number_agrees_with_nothing(number) -> None:
    assert not is_finite(number)
    assert not Recomputed(value=1.0, terms=1e30).matches(number)


@pytest.mark.parametrize(
    ("row", "fields"),
    [
        ("problem", {"problem": "other"}),
        ("instance", {"instance": "two"}),
        ("sense", {"sense": Sense.MINIMISE}),
        ("primal status", {"primal": PointStatus.NEARLY_FEASIBLE}),
        ("dual status", {"dual": PointStatus.NONE}),
        ("dual status", {"dual": PointStatus.CERTIFICATE}),
        ("dual status", {"dual": PointStatus.NEARLY_FEASIBLE}),
        ("objective", {"objective": 9.0 + 1e-7}),
        ("objective", {"objective": 9.0 - 1e-7}),
        ("objective", {"objective": None}),
        ("bound", {"bound": 10.0 - 1e-7}),
        ("bound", {"bound": None}),
        ("bound", {"bound": float("inf")}),
        ("bound", {"bound": float("nan")}),
        ("certificate", {"certificate": certified(KINDS.FEASIBLE_ONLY)}),
        ("certificate", {"certificate": certified(KINDS.OPTIMALITY)}),
        ("certificate", {"certificate": certified(conditions=("C1 holds",))}),
        ("termination", {"termination": Termination.OPTIMAL}),
        ("termination", {"termination": Termination.INFEASIBLE}),
        ("termination", {"termination": Termination.DUAL_INFEASIBLE}),
        ("termination", {"termination": Termination.NUMERICAL_ERROR}),
        ("counts [moves]", {"stats": Stats(counts={"moves": -1.0})}),
        ("counts [moves]", {"stats": Stats(counts={"moves": 1.5})}),
        ("counts [own]", {"stats": Stats(counts={"own": float("inf")})}),
        ("counts [twins]", {"stats": Stats(counts={"moves": 2.0, "twins": 3.0})}),
        ("counts [terms]", {"stats": Stats(counts={"terms": 3.0})}),
        ("gap", {"stated": {"gap": 0.11}}),
        ("gap", {"stated": {"gap": None}}),
    ],
)
def test_names_the_claim_that_does_not_hold(row, fields) -> None:
    assert row in checked(solution(**fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"objective": 9.0 + 1e-9},
        {"bound": 10.0 - 1e-9},
        {"bound": 11.0},
        {"termination": Termination.TIME_LIMIT},
        {"termination": Termination.GAP_LIMIT},
        {"stats": Stats(counts={"terms": 2.0, "moves": 7.0, "own": -0.5})},
        {"stated": {"gap": 1 / 9}},
        {"stated": {"gap": 1 / 9 + 1e-10}},
    ],
)
def test_accepts_what_is_true_to_rounding_or_says_less(fields) -> None:
    assert checked(solution(**fields)) == []


def test_a_bound_from_below_may_be_lower_and_not_higher() -> None:
    given = solution(decision=(5.0,), proof=(4.0,), sense=Sense.MINIMISE)
    assert rows(Dear("one", given)) == []
    assert rows(Dear("one", replace(given, bound=3.0))) == []
    assert rows(Dear("one", replace(given, bound=4.1))) == ["bound"]


def test_a_decision_better_than_the_bound_shows_that_one_of_them_is_wrong() -> None:
    assert checked(solution(proof=(8.0,))) == ["bound"]
    assert rows(Dear("one", solution(proof=(9.5,), sense=Sense.MINIMISE))) == ["bound"]


CANCELLING = (1e9, -1e9, 2.0)


def test_a_decision_may_pass_the_bound_by_the_rounding_of_either_sums_terms() -> None:
    """If either sum has terms of a billion, a difference of 1 is rounding; if both have small terms, it is an error."""
    assert checked(solution((1e9, -1e9, 3.0), (2.0,))) == []
    assert rows(Vast("one", solution((3.0,), CANCELLING))) == []
    assert rows(Vast("one", solution((3.0,), (2.0,)))) == ["bound"]
    assert checked(solution((3.0,), (2.0,))) == ["bound"]


class Endless(Toy):
    """The toy problem, with proofs that give no bound at all."""

    def check_proof(self, proof):
        return [], None


def test_a_bound_whose_proof_gives_none_is_refused() -> None:
    assert rows(Endless("one", solution())) == ["bound"]


class Wordy(Toy):
    """The toy problem, with a sentence whose figure no claim provides."""

    sentences = {**Toy.sentences, KINDS.BOUND: ("nothing beats {bound} in {rounds} rounds",)}  # noqa: RUF012


def test_a_figure_in_a_sentence_that_nothing_tells_of_is_refused() -> None:
    stating = certified(statement="nothing beats 10 in 7 rounds")
    assert rows(Wordy("one", solution(certificate=stating))) == ["certificate"]


def test_a_bounds_own_size_counts_without_its_sign() -> None:
    held = Recomputed(value=-5.0, terms=9.0)
    assert [held.capped(most).terms for most in (0.0, 7.0, 20.0)] == [5.0, 7.0, 9.0]
    assert held.capped(0.0).value == -5.0


def test_terms_that_only_a_proof_brings_buy_no_tolerance() -> None:
    """The author of a proof may let terms of any size cancel; the instance, or the bound itself, determines the scale."""
    assert checked(solution((3.0,), CANCELLING)) == ["bound"]
    assert checked(solution((1.0,), CANCELLING, bound=1.9)) == ["bound"]
    assert rows(Vast("one", solution((1.0,), CANCELLING, bound=0.1))) == []
    assert rows(Vast("one", solution((1.0,), (1e12, -1e12, 2.0), bound=-0.1))) == ["bound"]
    assert checked(solution((1.0,), (2e9,), bound=2e9 - 1.9)) == []


def optimal(objective: float, bound: float) -> list[str]:
    certificate = certified(KINDS.OPTIMALITY, proof=(bound,))
    return checked(solution((objective,), (bound,), certificate=certificate, termination=Termination.OPTIMAL))


def test_optimality_needs_a_gap_of_a_millionth() -> None:
    assert optimal(1000.0, 1000.0009) == []
    assert optimal(1000.0, 1000.0011) == ["certificate"]


@pytest.mark.parametrize("bound", [1000.0011, 1500.0])
def test_an_optimal_file_states_a_bound_that_shows_it_and_not_only_a_proof(bound: float) -> None:
    """A bound may claim less than its proof, but not together with a claim of optimality."""
    certificate = certified(KINDS.OPTIMALITY, proof=(1000.0,))
    stated = solution((1000.0,), (1000.0,), certificate=certificate, termination=Termination.OPTIMAL)
    assert checked(stated) == []
    assert checked(replace(stated, bound=bound)) == ["certificate"]
    weaker = replace(stated, bound=bound, certificate=certified(proof=(1000.0,)), termination=Termination.COMPLETED)
    assert checked(weaker) == []


@pytest.mark.parametrize("ended", [end for end in Termination if end is not Termination.OPTIMAL])
def test_proven_optimality_is_called_optimal_however_the_work_ended(ended: Termination) -> None:
    certificate = certified(KINDS.OPTIMALITY, proof=(9.0,))
    stated = solution((9.0,), (9.0,), certificate=certificate, termination=ended)
    assert set(checked(stated)) == {"termination"}


def test_a_problem_may_limit_the_absolute_gap_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Toy, "max_gap", 1e-6)
    assert optimal(1000.0, 1000.0009) == ["certificate"]
    assert optimal(1000.0, 1000.0000009) == []


def test_optimality_is_said_to_be_proven_only_where_it_is_claimed() -> None:
    certificate = certified(KINDS.OPTIMALITY, proof=(9.0,))
    found = Toy("one", solution((9.0,), (9.0,), certificate=certificate, termination=Termination.OPTIMAL)).check()
    assert found.proven[-1] == "it is the best"
    assert "it is the best" not in Toy("one", solution((9.0,), (9.0,))).check().proven


def test_what_is_wrong_elsewhere_is_not_said_to_be_proven() -> None:
    assert Toy("one", solution(objective=8.0)).check().proven == ("nothing earns more than 10.0",)
    assert Toy("one", solution(bound=9.5)).check().proven == ("it earns 9.0",)


@pytest.mark.parametrize(
    ("kind", "statement", "is_true"),
    [
        (KINDS.BOUND, "nothing beats 10 in 3 leaves", True),
        (KINDS.BOUND, "nothing beats 10.0 in 3 leaves", True),
        (KINDS.BOUND, "nothing beats 11 in 3 leaves", False),
        (KINDS.BOUND, "nothing beats 10 in 4 leaves", False),
        (KINDS.BOUND, "nothing beats 10 in few leaves", False),
        (KINDS.BOUND, "it attains 10 to 1e-06", False),
        (KINDS.BOUND, "everything beats 10 in 3 leaves", False),
        (KINDS.BOUND, "no decision is better than 10", True),
        (KINDS.BOUND, "no decision is better than 9", False),
        (KINDS.BOUND, "", True),
    ],
)
def test_a_sentence_is_recomputed_or_refused(kind, statement, is_true) -> None:
    assert checked(solution(certificate=certified(kind, statement))) == ([] if is_true else ["certificate"])


def test_a_sentence_names_no_smaller_gap_than_there_is() -> None:
    def says(tol: str) -> list[str]:
        certificate = certified(KINDS.OPTIMALITY, f"it attains 10 to {tol}", proof=(10.0,))
        return checked(solution((10.0 - 5e-6,), (10.0,), certificate=certificate, termination=Termination.OPTIMAL))

    assert says("1e-06") == []
    assert says("6e-07") == []
    assert says("4e-07") == ["certificate"]
    assert says("nothing") == ["certificate"]


def test_a_claim_without_decision_proof_or_bound_is_refused() -> None:
    nothing = solution(decision=(), proof=())
    assert checked(nothing) == []
    assert checked(replace(nothing, objective=1.0)) == ["objective"]
    assert checked(replace(nothing, bound=1.0)) == ["bound"]
    assert checked(replace(nothing, primal=PointStatus.FEASIBLE)) == ["primal status"]
    assert checked(replace(nothing, dual=PointStatus.FEASIBLE)) == ["dual status"]
    assert checked(replace(nothing, termination=Termination.INFEASIBLE)) == ["termination"]
    for kind in KINDS:
        assert "certificate" in checked(replace(nothing, certificate=certified(kind, proof=None)))


def test_what_has_another_type_is_no_decision_and_no_proof() -> None:
    assert checked(replace(solution(), decision="a plan")) == ["decision"]
    foreign = replace(solution(), certificate=certified(proof="trust me"))
    assert checked(foreign) == ["certificate"]


def test_violations_carry_the_row_and_its_place() -> None:
    assert violation("cap", "too much", where="gpu").row == "cap [gpu]"
    assert str(violation("cap", "too much", amount="2")) == "cap: too much"
    assert violation("cap", "x").amount == "1"


@pytest.mark.parametrize("number", [0, 3.0, 7, 0.0])
def test_a_count_is_a_whole_number_in_its_range(number):
    assert check_ranges({"moves": number}, {"moves": CountRange.whole(7)}) == []


@pytest.mark.parametrize("number", [-1, 0.5, 8, 7.0000000001, 1e308])
def test_what_is_no_count_is_named_with_its_range(number):
    (found,) = check_ranges({"moves": number}, {"moves": CountRange.whole(7)})
    assert str(found) == f"counts [moves]: moves must be a whole number from 0 to 7, got {number!r}"


@pytest.mark.parametrize("number", [math.nan, math.inf, 10**400, "3", None, True])
def test_a_counter_that_nobody_knows_is_a_number_at_least(number):
    assert check_ranges({"own": -0.5}, {}) == []
    assert [found.row for found in check_ranges({"own": number}, {})] == ["counts [own]"]


def test_no_count_is_larger_than_a_double_can_count_to():
    assert check_ranges({"moves": MOST}, {"moves": CountRange.whole()}) == []
    assert check_ranges({"moves": 2 * MOST}, {"moves": CountRange.whole(math.inf)}) != []


def test_an_amount_may_leave_its_range_through_rounding_alone():
    share = {"share": CountRange(high=1.0)}
    assert check_ranges({"share": 1 + 1e-10}, share) == check_ranges({"share": -1e-10}, share) == []
    assert check_ranges({"share": 1 + 1e-8}, share) != []
    (found,) = check_ranges({"gap": -1e-8}, {"gap": CountRange()})
    assert found.message == "gap must be a number of at least 0, got -1e-08"


TREES = st.recursive(
    st.none(), lambda inner: st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9), inner), max_size=3), max_leaves=25
)


def numbered(tree, nodes):
    """Return a tree as a list of nodes, each a list of (child, key, value)."""
    own = len(nodes)
    nodes.append([])
    for key, value, child in tree or ():
        at = len(nodes)
        numbered(child, nodes)
        nodes[own].append((at, key, value))
    return nodes


def by_copies(nodes):
    """Return each node's conditions, in the order of the walk, with a copy for each."""
    waiting, found = [(0, {})], []
    while waiting:
        number, conditions = waiting.pop()
        found.append((number, list(conditions.items())))
        for child, key, value in nodes[number]:
            before = conditions.get(key)
            waiting.append((child, {**conditions, key: value if before is None else 10 * before + value}))
    return found


@given(TREES)
def test_every_node_has_the_conditions_of_its_path_in_the_order_in_which_they_were_said(tree):
    nodes, heard = numbered(tree, []), {}
    walk = Descent(Effort("a tree"), lambda key, value: heard.update({key: value}))
    found = []
    for number in walk:
        found.append((number, list(walk.conditions.items())))
        assert walk.conditions == {key: value for key, value in heard.items() if value is not None}
        for child, key, value in nodes[number]:
            walk.add(child, key, lambda before, value=value: value if before is None else 10 * before + value)
    assert found == by_copies(nodes)


def test_a_chain_takes_the_room_of_one_path():
    depth = 10_000
    walk = Descent(Effort("a chain"))
    tracemalloc.start()
    for number in walk:
        if number < 2 * depth and number % 2 == 0:
            for child in (number + 1, number + 2):
                walk.add(child, number, lambda before: 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * 2**20


def walk_in_a_circle():
    walk = Descent(Effort("a circle"))
    for number in walk:
        walk.add(number, 0, lambda before: 1)


def test_a_walk_in_a_circle_ends():
    with read_limits(steps=1000), pytest.raises(InvalidProblemError, match=r"takes more than 1000 .*--limit steps=N"):
        walk_in_a_circle()


def test_effort_is_counted_to_the_step():
    with read_limits(steps=10):
        effort = Effort("it")
        effort.spend(4)
        effort.spend(6)
        with pytest.raises(InvalidProblemError, match="it takes more than 10 steps"):
            effort.spend(1)

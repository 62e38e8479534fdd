"""The checker accepts honest solutions and rejects every tampering, proof by proof."""

import copy
import json
from dataclasses import replace

import numpy as np
import pytest

from optim.core.errors import InvalidProblemError
from optim.core.solution import CertificateKind, PointStatus, Sense, Solution, Termination
from optim.models.bidding.check.exact_instance import VerifierContext
from optim.models.bidding.check.tree import check_form
from optim.models.bidding.cost_per_work import evaluate_many
from optim.models.bidding.data import Caps
from optim.models.bidding.decision import FootprintPlan, RatioProof, TreeNode
from optim.models.files import read_solution, verify, write_solution
from optim.solvers.solve import solve
from tests.support.bidding.small_markets import hour_instance, published_vector


def solved():
    instance = published_vector()
    return instance, solve(instance, "dinkelbach")


def with_proof(solution, **changes):
    """Return a solution with its proof changed."""
    return replace(
        solution, certificate=replace(solution.certificate, proof=replace(solution.certificate.proof, **changes))
    )


TAMPERINGS = {
    "a lower objective": lambda s: replace(s, objective=s.objective * 0.999),
    "a higher bound": lambda s: replace(s, bound=s.objective * 1.001),
    "another footprint": lambda s: replace(s, decision=FootprintPlan.of(np.array([0, 6, 0, 6]))),
    "too many instances": lambda s: replace(s, decision=FootprintPlan.of(np.array([7, 0, 0, 5]))),
    "a cap broken": lambda s: replace(s, decision=FootprintPlan.of(np.array([6, 6, 0, 6]))),
    "a negative count": lambda s: replace(s, decision=FootprintPlan.of(np.array([6, 0, -1, 6]))),
    "a higher ratio": lambda s: with_proof(replace(s, bound=s.objective), ratio=s.objective * 1.0001),
    "no tree": lambda s: with_proof(s, nodes=()),
    "a leaf lost": lambda s: with_proof(s, nodes=(TreeNode(bid=0, value=5, low=1, high=1), TreeNode())),
    "a circle": lambda s: with_proof(s, nodes=(TreeNode(bid=0, value=2, low=0, high=0),)),
    "negative prices": lambda s: with_proof(
        s, multipliers=tuple(replace(x, cap=-1 - x.cap) for x in s.certificate.proof.multipliers)
    ),
    "no proof": lambda s: replace(s, certificate=replace(s.certificate, proof=None)),
    "a foreign instance": lambda s: replace(s, instance="else"),
    "no dual point": lambda s: replace(s, dual=PointStatus.NONE),
    "infeasible": lambda s: replace(s, termination=Termination.INFEASIBLE),
}


def test_accepts_an_honest_solution():
    instance, solution = solved()
    assert solution.termination is Termination.OPTIMAL
    assert verify(instance, solution).is_ok


@pytest.mark.parametrize("name", TAMPERINGS)
def test_refuses(name):
    instance, solution = solved()
    assert not verify(instance, TAMPERINGS[name](solution)).is_ok


def test_a_proof_of_zero_needs_no_tree():
    instance, solution = solved()
    proof = RatioProof(ratio=0.0, nodes=(), multipliers=())
    weak = replace(
        solution,
        bound=0.0,
        termination=Termination.COMPLETED,
        certificate=replace(solution.certificate, kind=CertificateKind.BOUND, statement="", proof=proof),
    )
    assert verify(instance, weak).is_ok


@pytest.mark.parametrize("field", ["point", "cap", "eviction", "attribution"])
@pytest.mark.parametrize("number", [1e308, np.inf, np.nan, -1.0])
def test_numbers_of_a_proof_that_overflow_are_refused(field, number):
    instance, solution = solved()
    one = solution.certificate.proof.multipliers[0]
    changes = {field: np.full_like(getattr(one, field), number)}
    if field == "attribution":
        changes = {
            "attribution": np.array([number]),
            "attribution_cell": np.array([0]),
            "attribution_bid": np.array([0]),
        }
    assert not verify(instance, with_proof(solution, multipliers=(replace(one, **changes),) * 9)).is_ok


@pytest.mark.parametrize("ratio", [1e308, np.inf, np.nan, -1.0])
def test_a_ratio_that_is_none_is_refused(ratio):
    instance, solution = solved()
    assert not verify(instance, with_proof(solution, ratio=ratio)).is_ok


def test_the_empty_footprint_takes_nothing_from_a_bound_without_fixed_cost():
    """Without fixed cost the empty footprint has cost and work 0, which must not lower the bound on cost per work."""
    instance = hour_instance([0, 1], [0.1, 0.3], [1.0, 2.0], max_count=3, fixed_usd=0.0)
    solution = solve(instance, "dinkelbach")
    found = verify(instance, solution)
    assert found.is_ok
    assert found.bound == pytest.approx(0.1, rel=1e-6)
    assert solution.objective == pytest.approx(0.1)


def test_labels_counts_and_repeated_bids_are_compared_with_the_instance():
    instance, solution = solved()
    document = json.loads(write_solution(solution, instance))
    first = document["decision"]["taken"][0]
    for change in ({"market": "m9"}, {"delta_usd": 0.5}, {"count": 0}, {"bid": 99}):
        lying = copy.deepcopy(document)
        lying["decision"]["taken"][0].update(change)
        with pytest.raises(InvalidProblemError, match="solution"):
            read_solution(json.dumps(lying).encode(), instance)
    twice = copy.deepcopy(document)
    twice["decision"]["taken"].append(first)
    with pytest.raises(InvalidProblemError, match="lists bid 0 twice"):
        read_solution(json.dumps(twice).encode(), instance)
    del document["decision"]["taken"][0]["market"]
    assert verify(instance, read_solution(json.dumps(document).encode(), instance)).is_ok


def test_least_work_is_asked_of_the_footprint():
    instance, solution = solved()
    work = solution.stats.counts["work"]
    asking = replace(instance, min_work=work * 1.01)
    assert {found.row for found in verify(asking, solution).violations} >= {"work"}
    assert verify(replace(instance, min_work=work * (1 - 1e-12)), solution).is_ok


@pytest.mark.parametrize(
    "changes",
    [
        {"point": np.zeros(3)},
        {"eviction": np.zeros(2)},
        {"cap": np.zeros(0)},
        {"attribution": np.zeros(2)},
        {
            "attribution": np.zeros((1, 1)),
            "attribution_cell": np.zeros((1, 1), dtype=int),
            "attribution_bid": np.zeros((1, 1), dtype=int),
        },
        {"attribution": np.array([0.5]), "attribution_cell": np.array([1]), "attribution_bid": np.array([0])},
        {"attribution": np.array([0.5]), "attribution_cell": np.array([0]), "attribution_bid": np.array([4])},
        {"attribution": np.array([0.5]), "attribution_cell": np.array([-1]), "attribution_bid": np.array([0])},
        {"eviction": np.array([1.5])},
    ],
)
def test_multipliers_of_another_form_are_refused(changes):
    instance, solution = solved()
    facts, one = VerifierContext(instance=instance), solution.certificate.proof.multipliers[0]
    assert check_form(facts, one) is None
    assert check_form(facts, replace(one, **changes)).row == "certificate"


def test_a_leaf_without_multipliers_and_a_split_that_can_not_be_are_refused():
    instance, solution = solved()
    for nodes in (
        (TreeNode(multipliers=99),),
        (TreeNode(multipliers=-1),),
        (TreeNode(bid=4, value=1, low=1, high=1), TreeNode()),
        (TreeNode(bid=-1, value=1, low=1, high=1), TreeNode()),
        (TreeNode(bid=0, value=1, low=1, high=5), TreeNode()),
    ):
        assert not verify(instance, with_proof(solution, nodes=nodes)).is_ok


@pytest.mark.parametrize("value", [1e308, -1e308, 1e19, np.inf, np.nan, 0.5])
def test_a_split_at_what_is_no_count_is_refused_with_its_node(value):
    instance, solution = solved()
    nodes = (TreeNode(bid=0, value=value, low=1, high=2), TreeNode(), TreeNode())
    (found,) = verify(instance, with_proof(solution, nodes=nodes)).violations[:1]
    assert found.message == f"nodes[0]: the tree splits by bid 0 at {value}, an invalid split"


@pytest.mark.parametrize("name", ["ratios", "leaves", "nodes"])
def test_counters_of_the_search_are_counts(name):
    instance, solution = solved()
    for number, rows in ((3.0, []), (-1.0, [f"counts [{name}]"]), (1e308, [f"counts [{name}]"])):
        counts = {**solution.stats.counts, name: number}
        given = replace(solution, stats=replace(solution.stats, counts=counts))
        assert [found.row for found in verify(instance, given).violations] == rows


@pytest.mark.parametrize(
    ("fields", "is_hopeless"),
    [
        ({"max_count": 1}, False),
        ({"max_count": 0}, True),
        ({"max_count": 0, "fixed_rate": 0.5}, False),
        ({"max_count": 1, "cap": 1}, False),
        ({"max_count": 1, "cap": 0.5}, True),
        ({"max_count": 1, "usable_h": [0.0]}, True),
        ({"max_count": 4, "cap": 6, "min_work": 4.0}, False),
        ({"max_count": 4, "cap": 6, "min_work": 4.1}, True),
        ({"max_count": 9, "cap": 6, "min_work": 6.0}, False),
        ({"max_count": 9, "cap": 6, "min_work": 6.1}, True),
        ({"max_count": 0, "fixed_rate": 0.5, "min_work": 0.5}, False),
        ({"max_count": 0, "fixed_rate": 0.5, "min_work": 0.6}, True),
    ],
)
def test_infeasible_can_be_claimed_only_where_no_bid_works(fields, is_hopeless):
    instance = hour_instance([0], [0.1], [1.0], **fields)
    claim = Solution(
        problem="bidding", instance=instance.name, solver="by-hand", sense=Sense.MINIMISE,
        termination=Termination.INFEASIBLE, primal=PointStatus.NONE,
    )  # fmt: skip
    assert verify(instance, claim).is_ok is is_hopeless


@pytest.mark.parametrize("price", [1.0, 1e12])
def test_what_a_cap_may_be_exceeded_by_has_no_price(price):
    """A machine of `a` exceeds the cap by a rounding error, which is allowed: no price of the cap may exclude it."""
    limit = 0.3333333333
    caps = Caps(names=("c",), weight=np.array([[limit + 3e-11, 0.0]]), limit=np.array([limit]))
    instance = replace(hour_instance([0, 1], [0.1, 0.9], [1.0, 1.0], max_count=[2, 1]), caps=caps)
    found = solve(instance, "dinkelbach")
    assert (found.decision.counts.tolist(), verify(instance, found).is_ok) == ([1, 0], True)
    proof = found.certificate.proof
    free = replace(proof.multipliers[0], cap=np.zeros(1), work=0.0)
    tree = (TreeNode(bid=0, value=0, low=1, high=2), TreeNode(multipliers=0), TreeNode(multipliers=1))
    ratio = 0.9 * (1 - 1e-8)
    false = RatioProof(ratio=ratio, nodes=tree, multipliers=(free, replace(free, cap=np.array([price]))))
    refused = verify(instance, with_claim(found, [0, 1], false, ratio))
    assert "bound" in [wrong.row for wrong in refused.violations]


@pytest.mark.parametrize("price", [1.0, 1e10])
def test_what_the_least_work_may_be_missed_by_has_no_price(price):
    instance = hour_instance([0, 1], [0.1, 1.8], [1.0, 2.0], max_count=1, min_work=1.0000000005)
    found = solve(instance, "dinkelbach")
    assert (found.decision.counts.tolist(), verify(instance, found).is_ok) == ([1, 0], True)
    free = replace(found.certificate.proof.multipliers[0], cap=np.zeros(len(instance.caps.limit)))
    tree = (TreeNode(bid=1, value=0, low=1, high=2), TreeNode(multipliers=1), TreeNode(multipliers=0))
    ratio = 0.9 * (1 - 1e-8)
    false = RatioProof(ratio=ratio, nodes=tree, multipliers=(replace(free, work=0.0), replace(free, work=price)))
    refused = verify(instance, with_claim(found, [0, 1], false, ratio))
    assert "bound" in [wrong.row for wrong in refused.violations]


@pytest.mark.parametrize("solver", ["dinkelbach", "frontier", "greedy"])
@pytest.mark.parametrize(("least", "limit"), [(0.0, 3 * 0.1), (0.0, 0.3), (0.9999999999, 0.3), (1.0000000005, 0.3)])
def test_what_rounding_may_miss_is_an_answer_to_all(solver, least, limit):
    """0.1 + 0.1 + 0.1 exceeds 0.3 by 6e-17 in doubles; solvers and checker must accept this."""
    caps = Caps(names=("c",), weight=np.array([[0.1 + 0.1 + 0.1]]), limit=np.array([limit]))
    instance = replace(hour_instance([0], [0.1], [1.0], max_count=1, min_work=least), caps=caps)
    found = solve(instance, solver)
    assert found.decision.counts.tolist() == [1]
    assert verify(instance, found).is_ok


def with_claim(solution, counts, proof, bound):
    """Return a solution that claims another footprint to be the best."""
    plan = FootprintPlan.of(np.array(counts))
    certificate = replace(solution.certificate, kind=CertificateKind.BOUND, statement="", proof=proof)
    return replace(
        solution, decision=plan, objective=0.9, bound=bound, certificate=certificate,
        termination=Termination.COMPLETED, stats=replace(solution.stats, counts={}),
    )  # fmt: skip


def test_all_bids_together_show_that_enough_work_can_be_done():
    instance = hour_instance([0, 1], [0.1, 0.1], [1.0, 1.0], max_count=4, min_work=8.0)
    for given, is_hopeless in ((instance, False), (replace(instance, min_work=8.1), True)):
        claim = Solution(
            problem="bidding", instance=given.name, solver="by-hand", sense=Sense.MINIMISE,
            termination=Termination.INFEASIBLE, primal=PointStatus.NONE,
        )  # fmt: skip
        assert verify(given, claim).is_ok is is_hopeless


@pytest.mark.parametrize("solver", ["dinkelbach", "greedy", "frontier"])
def test_a_solver_that_finds_no_footprint_with_enough_work_says_nothing_false(solver):
    instance = hour_instance([0, 1], [0.1, 0.2], [1.0, 1.0], max_count=4, cap=6, min_work=10.0)
    found = solve(instance, solver)
    assert found.decision is None
    assert verify(instance, found).is_ok


def test_one_bid_a_market_is_counted_market_by_market():
    instance = hour_instance([0, 0, 1], [0.1, 0.1, 0.2], [1.0, 1.0, 1.0], one_bid_per_market=True)

    def rows(*counts):
        plan = FootprintPlan.of(np.array(counts))
        cost, work = evaluate_many(instance, np.array([counts]))
        claim = Solution(
            problem="bidding", instance=instance.name, solver="by-hand", sense=Sense.MINIMISE, decision=plan,
            termination=Termination.COMPLETED, primal=PointStatus.FEASIBLE, objective=float(cost[0] / work[0]),
        )  # fmt: skip
        return [found.row for found in verify(instance, claim).violations]

    assert rows(1, 0, 1) == rows(0, 2, 2) == []
    assert rows(1, 1, 0) == ["one bid [m0]"]
    assert rows(7, 0, 0) == ["bound [bid 0]"]

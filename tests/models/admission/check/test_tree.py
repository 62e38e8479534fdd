"""Branching trees: every plan is at one leaf, and no plan at a leaf earns more than its bound."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optim
from optim.core.solution import CertificateKind, Termination
from optim.models.admission.check import check
from optim.models.admission.decision import Branch, BranchKind, PriceProof, TreeNode, TreeProof
from optim.models.admission.instance import AdmissionInstance
from tests.models.admission.check.test_cuts import random_cut
from tests.support.admission.enumeration import (
    Enumerator,
    Market,
    Schedule,
    best_gain,
    best_total,
    meets,
    random_branch,
    random_market,
)
from tests.support.admission.plans import families, greedy_plan, proven_by, raw_plan, solution_of
from tests.support.admission.tiny import job_document, tiny_instance, tiny_instances

SEEDS = st.integers(0, 2**32 - 1)
Left = list[list[Schedule | None]]
"""The remaining schedules of each job; None means rejection."""


class TreeBuilder:
    """Builds a tree of random branches whose leaves are proven by enumeration."""

    def __init__(self, instance: AdmissionInstance, rng: np.random.Generator) -> None:
        self.instance = instance
        self.rng = rng
        self.nodes: list[TreeNode] = []
        self.bounds: list[float] = []

    def grow(self, left: Left, depth: int) -> int:
        """Add a subtree; return its root's number."""
        number = len(self.nodes)
        self.nodes.append(TreeNode())
        if depth == 0:
            self.nodes[number] = TreeNode(proof=self.leaf(left))
            return number
        branch = random_branch(self.instance, int(self.rng.integers(self.instance.num_jobs)), self.rng)
        children = [
            self.grow(
                [
                    [s for s in own if job != branch.job or meets(s, branch, is_high=is_high)]
                    for job, own in enumerate(left)
                ],
                int(self.rng.integers(depth)),
            )
            for is_high in (False, True)
        ]
        self.nodes[number] = TreeNode(branch=branch, low=children[0], high=children[1])
        return number

    def leaf(self, left: Left) -> PriceProof | None:
        """Return a proof for the remaining plans, None if there are none."""
        if not all(left):
            return None
        market = random_market(self.instance, self.rng, share_free=0.7)
        market = replace(market, cuts=tuple(random_cut(self.instance, self.rng) for _ in range(self.rng.integers(3))))
        payoff = [best_gain(market, own) for own in left]
        self.bounds.append(sum(payoff) + market.rents())
        return market.proof(payoff)


def all_schedules(instance: AdmissionInstance) -> Left:
    """Return every job's stripped schedules, and the choice to reject it."""
    enumerator = Enumerator(instance)
    return [[None, *enumerator.schedules(job)] for job in range(instance.num_jobs)]


def check_tree(instance: AdmissionInstance, nodes: Sequence[TreeNode], bound: float) -> Any:
    """Check a solution that claims only a tree's bound."""
    return check(instance, solution_of(instance, None, **proven_by(TreeProof(nodes=tuple(nodes)), bound)))


@given(tiny_instances(max_count=1, horizon=2), SEEDS, st.integers(0, 3))
def test_proves_a_bound_that_no_plan_exceeds(instance: AdmissionInstance, seed: int, depth: int) -> None:
    """Prices, cuts, trees of all shapes (depth 0 is a single leaf), on single servers."""
    left = all_schedules(instance)
    builder = TreeBuilder(instance, np.random.default_rng(seed))
    builder.grow(left, depth)
    found = check_tree(instance, builder.nodes, max(builder.bounds))
    assert found.violations == ()
    assert found.bound == pytest.approx(max(builder.bounds), rel=1e-9)
    assert found.bound >= best_total(instance, lambda job: [s for s in left[job] if s is not None]) - 1e-9


@given(tiny_instances(max_jobs=1), SEEDS)
def test_refuses_a_leaf_without_proof_that_is_not_empty(instance: AdmissionInstance, seed: int) -> None:
    builder = TreeBuilder(instance, np.random.default_rng(seed))
    builder.grow(all_schedules(instance), 3)
    proven = [number for number, node in enumerate(builder.nodes) if node.proof is not None]
    at = proven[seed % len(proven)]
    nodes = [TreeNode() if number == at else node for number, node in enumerate(builder.nodes)]
    found = check_tree(instance, nodes, max(builder.bounds))
    assert f"tree [leaf {at}]" in [violation.row for violation in found.violations]
    assert found.bound is None


def proven_leaf(market: Market, left: Left) -> TreeNode:
    """Return a leaf with the best payoffs at a market's prices."""
    return TreeNode(proof=market.proof([best_gain(market, own) for own in left]))


def two_leaves(instance: AdmissionInstance, branch: Branch) -> tuple[list[TreeNode], float]:
    """Return a tree of one branch at prices 0.5, and its bound."""
    drawn = random_market(instance, np.random.default_rng(0))
    market = replace(
        drawn, worker_price=np.full_like(drawn.worker_price, 0.5), ps_price=np.full_like(drawn.ps_price, 0.5)
    )
    nodes, bounds = [TreeNode(branch=branch, low=1, high=2)], []
    for is_high in (False, True):
        left = [
            [s for s in own if job != branch.job or meets(s, branch, is_high=is_high)]
            for job, own in enumerate(all_schedules(instance))
        ]
        nodes.append(proven_leaf(market, left) if all(left) else TreeNode())
        if all(left):
            bounds.append(market.rents() + sum(best_gain(market, own) for own in left))
    return nodes, max(bounds)


REFUSE_OR_ADMIT = Branch(kind=BranchKind.ADMITTED, job=0)


def test_accepts_a_negative_payoff_of_a_job_that_must_be_admitted() -> None:
    poor = tiny_instance(job_document("a", utility={"kind": "constant", "value": 1}))
    nodes, bound = two_leaves(poor, REFUSE_OR_ADMIT)
    assert nodes[2].proof is not None
    assert nodes[2].proof.payoff[0] == -2.0  # value 1, four worker-slots at 0.5 and two PS-slots at 0.5
    assert check_tree(poor, nodes, bound).is_ok
    nodes[1] = nodes[2]
    found = check_tree(poor, nodes, bound)
    assert "(21) payoff [job a, leaf 1]" in [violation.row for violation in found.violations]


def test_refuses_a_payoff_that_is_too_low_for_an_admitted_job() -> None:
    poor = tiny_instance(job_document("a", utility={"kind": "constant", "value": 1}))
    nodes, bound = two_leaves(poor, REFUSE_OR_ADMIT)
    assert nodes[2].proof is not None
    nodes[2] = TreeNode(proof=replace(nodes[2].proof, payoff=nodes[2].proof.payoff - 1e-6))
    assert [violation.row for violation in check_tree(poor, nodes, bound).violations] == ["(21) payoff [job a, leaf 2]"]


def test_names_the_leaf_of_a_price_that_is_no_price() -> None:
    instance = tiny_instance()
    nodes, bound = two_leaves(instance, REFUSE_OR_ADMIT)
    assert nodes[1].proof is not None
    nodes[1] = TreeNode(proof=replace(nodes[1].proof, worker_price=-nodes[1].proof.worker_price))
    found = check_tree(instance, nodes, bound)
    assert found.violations[0].row == "price [gpu, worker servers gpus, slot 0, leaf 1]"
    assert found.bound is None


@pytest.mark.parametrize(
    "branch",
    [
        Branch(kind=BranchKind.ADMITTED, job=0),
        Branch(kind=BranchKind.COMPLETION, job=0, value=0),
        Branch(kind=BranchKind.WORKERS, job=0, value=-1, server_class=0, slot=0),
        Branch(kind=BranchKind.WORKERS, job=0, value=2, server_class=0, slot=0),
        Branch(kind=BranchKind.PS, job=0, value=1, server_class=0, slot=3),
    ],
)
def test_accepts_an_empty_leaf_where_restrictions_contradict_each_other(branch: Branch) -> None:
    instance = tiny_instance(job_document("a", arrival=2, epochs=4))  # four slots of work, two slots left
    nodes, bound = two_leaves(instance, branch)
    assert (branch.kind is BranchKind.COMPLETION) == all(node.proof is not None for node in nodes[1:])
    assert check_tree(instance, nodes, bound).is_ok


@pytest.mark.parametrize(
    ("cause", "nodes"),
    [
        ("has no nodes", []),
        ("a child is node 5", [TreeNode(branch=REFUSE_OR_ADMIT, low=1, high=5), TreeNode()]),
        ("a child is node -1", [TreeNode(branch=REFUSE_OR_ADMIT, low=1, high=-1), TreeNode()]),
        ("node 0 is reached twice", [TreeNode(branch=REFUSE_OR_ADMIT, low=0, high=1), TreeNode()]),
        ("node 1 is reached twice", [TreeNode(branch=REFUSE_OR_ADMIT, low=1, high=1), TreeNode()]),
        ("a leaf must have no children", [TreeNode(low=1, high=2), TreeNode(), TreeNode()]),
        ("there are 1 jobs", [TreeNode(branch=Branch(kind=BranchKind.ADMITTED, job=1), low=1, high=2)]),
        (
            "outside the instance",
            [TreeNode(branch=Branch(kind=BranchKind.PS, job=0, server_class=0, slot=4), low=1, high=2)],
        ),
        (
            "outside the instance",
            [TreeNode(branch=Branch(kind=BranchKind.WORKERS, job=0, server_class=1, slot=0), low=1, high=2)],
        ),
        (
            "cannot read the branch",
            [TreeNode(branch=Branch(kind="workers", job=0, server_class=0, slot=0), low=1, high=2)],  # type: ignore[arg-type]
        ),
        (
            "must be whole numbers",
            [TreeNode(branch=Branch(kind=BranchKind.COMPLETION, job=0, value=0.5), low=1, high=2)],  # type: ignore[arg-type]
        ),
        ("must be a TreeNode", ["root"]),
        ("a leaf's proof must be", [TreeNode(proof="trust me")]),  # type: ignore[arg-type]
    ],
)
def test_refuses_what_is_no_tree(cause: str, nodes: list[Any]) -> None:
    found = check_tree(tiny_instance(), nodes, 16.0)
    assert families(found.violations) == {"tree"} or families(found.violations) == {"tree", "bound"}
    assert any(cause in violation.message for violation in found.violations)
    assert found.bound is None


def test_refuses_a_node_that_is_not_reached() -> None:
    instance = tiny_instance()
    nodes, bound = two_leaves(instance, REFUSE_OR_ADMIT)
    found = check_tree(instance, [*nodes, nodes[1]], bound)
    assert "node 3 is not reachable" in found.violations[0].message


def test_refuses_two_nodes_that_are_each_others_parents() -> None:
    instance = tiny_instance()
    nodes, bound = two_leaves(instance, REFUSE_OR_ADMIT)
    circle = [
        TreeNode(branch=REFUSE_OR_ADMIT, low=4, high=4),
        TreeNode(branch=REFUSE_OR_ADMIT, low=3, high=3),
    ]
    assert families(check_tree(instance, [*nodes, *circle], bound).violations) == {"tree"}


def test_refuses_a_leaf_that_is_swapped_with_its_sibling() -> None:
    instance = tiny_instance()
    nodes, bound = two_leaves(instance, REFUSE_OR_ADMIT)
    found = check_tree(instance, [nodes[0], nodes[2], nodes[1]], bound)
    assert "(21) payoff [job a, leaf 2]" in [violation.row for violation in found.violations]


def test_proves_optimality_by_a_tree() -> None:
    """If job b is rejected, job a's 16 remain; both don't fit into four slots."""
    instance = tiny_instance(
        job_document("a", utility={"kind": "table", "table": [16]}, epochs=1),
        job_document("b", utility={"kind": "table", "table": [8]}, epochs=1),
        worker_servers=[{"type": "gpus", "capacity": [3, 0], "count": 1}],
    )
    free = random_market(instance, np.random.default_rng(0), share_free=1.0)
    price = free.worker_price.copy()
    price[0, 0, 0] = 8.0
    high = replace(free, worker_price=price)
    nodes = [
        TreeNode(branch=Branch(kind=BranchKind.ADMITTED, job=1), low=1, high=2),
        TreeNode(proof=free.proof([16.0, 0.0])),
        TreeNode(proof=high.proof([0.0, -8.0])),
    ]
    plan = raw_plan([(0, 0, 0, 2)], [(0, 0, 0, 1)])
    optimal = proven_by(TreeProof(nodes=tuple(nodes)), 16.0, CertificateKind.OPTIMALITY)
    found = check(instance, solution_of(instance, plan, termination=Termination.OPTIMAL, **optimal))
    assert found.is_ok
    assert found.proven[-1] == "the plan is optimal to a relative gap of 1e-06"


def test_checks_a_tree_on_a_reference_instance() -> None:
    instance = optim.reference_instance("tiny-1")
    builder = TreeBuilder(instance, np.random.default_rng(4))
    builder.grow(all_schedules(instance), 4)
    plan = greedy_plan(instance)
    proof = TreeProof(nodes=tuple(builder.nodes))
    assert len(builder.nodes) > 3
    assert check(instance, solution_of(instance, plan, **proven_by(proof, max(builder.bounds)))).is_ok

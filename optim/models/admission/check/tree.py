"""What a branching tree proves: its leaves cover all plans, and each leaf's dual point bounds its part."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from optim.core.descent import Descent
from optim.core.limits import Effort
from optim.core.verification import Violation, violation
from optim.models.admission.check import rows
from optim.models.admission.check.crowding import is_crowded
from optim.models.admission.check.facts import Facts
from optim.models.admission.check.prices import BoundFindings, CutChecks, check_prices
from optim.models.admission.check.restrictions import FREE, Restriction
from optim.models.admission.check.schedules import has_schedule
from optim.models.admission.proof import Branch, BranchKind, PriceProof, Side, TreeNode, TreeProof

COPIED = 10
"""Steps that an entry of a copy counts for: it is kept as long as the path."""
SOUGHT = 1_000
"""Steps that looking for a job's schedule counts for."""

Restrictions = Mapping[int, Restriction]
"""What is left of the schedules, by job; jobs that aren't listed are free."""


def check_tree(facts: Facts, proof: TreeProof) -> BoundFindings:
    """Recompute the bound of a branching tree: the largest of its leaves'.

    Each branch sends every plan to one of its two children, so that every plan belongs to a leaf.
    """
    nodes = proof.nodes
    found: list[Violation] = []
    leaves: list[BoundFindings] = []
    is_complete = True
    cuts = CutChecks.of(facts)
    seen: set[int] = set()
    walk = Descent[int, Restriction](Effort("the tree"))
    known = _Known(facts, walk.effort)
    if not nodes:
        return _refused("the tree has no nodes")
    for number in walk:
        if not (isinstance(number, int | np.integer) and 0 <= number < len(nodes)):
            return _refused(f"a child is node {number}, but the nodes are 0 to {len(nodes) - 1}")
        if number in seen:
            return _refused(f"node {number} is reached twice")
        seen.add(number)
        node = nodes[number]
        cause = _malformed(facts, node)
        if cause is not None:
            return _refused(f"node {number}: {cause}")
        if node.branch is not None:
            for child, is_high in ((node.high, True), (node.low, False)):
                walk.add(child, node.branch.job, partial(_narrowed, walk.effort, node.branch, is_high=is_high))
            continue
        walk.effort.spend(len(walk.conditions))
        findings = _check_leaf(facts, node, number, walk.conditions, cuts, known)
        found += findings.violations
        if findings.bound is not None:
            leaves.append(findings)
        elif findings.violations:
            is_complete = False
    if len(seen) < len(nodes):
        lost = next(number for number in range(len(nodes)) if number not in seen)
        return _refused(f"node {lost} isn't reached from node 0")
    if not is_complete or not leaves:
        return BoundFindings(violations=tuple(found))
    return BoundFindings(
        violations=tuple(found),
        bound=max(leaf.bound for leaf in leaves if leaf.bound is not None),
    )


def _refused(text: str) -> BoundFindings:
    return BoundFindings(violations=(violation(rows.TREE, text),))


def _malformed(facts: Facts, node: Any) -> str | None:
    if not isinstance(node, TreeNode):
        return f"must be a TreeNode, got {type(node).__name__}"
    branch = node.branch
    if branch is None:
        if (node.low, node.high) != (-1, -1):
            return f"a leaf has no children, got {node.low} and {node.high}"
        if node.proof is not None and not isinstance(node.proof, PriceProof):
            return f"a leaf's proof must be a PriceProof, got {type(node.proof).__name__}"
        return None
    if not isinstance(branch, Branch) or not isinstance(branch.kind, BranchKind):
        return f"can't read the branch {branch!r}"
    numbers = (branch.job, branch.value, branch.server_class, branch.slot)
    if not all(isinstance(number, int | np.integer) for number in numbers):
        return f"a branch holds whole numbers, got {numbers}"
    if not 0 <= branch.job < len(facts.jobs):
        return f"the branch is on job {branch.job}, but there are {len(facts.jobs)} jobs"
    if branch.kind in (BranchKind.WORKERS, BranchKind.PS):
        side = Side.WORKER if branch.kind is BranchKind.WORKERS else Side.PS
        num_classes = len(facts.servers(side).count)
        if not (0 <= branch.server_class < num_classes and 0 <= branch.slot < facts.horizon):
            return f"the branch is on class {branch.server_class}, slot {branch.slot}, outside the instance"
    return None


def _narrowed(effort: Effort, branch: Branch, before: Restriction | None, *, is_high: bool) -> Restriction:
    """Return a job's restriction below a branch; what it holds by place is copied."""
    restriction = FREE if before is None else before
    effort.spend(COPIED * (len(restriction.at_least) + len(restriction.at_most)))
    return restriction.narrowed(branch, is_high=is_high)


def _check_leaf(
    facts: Facts, node: TreeNode, number: int, restrictions: Restrictions, cuts: CutChecks, known: "_Known"
) -> BoundFindings:
    if node.proof is not None:
        return check_prices(facts, node.proof, cuts, restrictions, leaf=f", leaf {number}")
    if any(known.is_empty(job, restriction) for job, restriction in sorted(restrictions.items(), key=_by_job)):
        return BoundFindings(violations=())
    if is_crowded(facts, restrictions):
        return BoundFindings(violations=())
    text = (
        f"leaf {number} has no proof, but neither do a job's restrictions contradict each other "
        "nor do they crowd any servers as far as could be shown"
    )
    return BoundFindings(violations=(violation(rows.TREE, text, where=f"leaf {number}"),))


def _by_job(item: tuple[int, Restriction]) -> int:
    return item[0]


class _Known:
    """Which restrictions no plan meets: found out once while a job has the same one, as on the way to the next leaf."""

    def __init__(self, facts: Facts, effort: Effort) -> None:
        self._facts, self._effort = facts, effort
        self._found: dict[int, tuple[Restriction, bool]] = {}

    def is_empty(self, job: int, restriction: Restriction) -> bool:
        """Tell whether no plan meets one job's restriction."""
        found = self._found.get(job)
        if found is None or found[0] is not restriction:
            found = self._found[job] = restriction, self._find(job, restriction)
        return found[1]

    def _find(self, job: int, restriction: Restriction) -> bool:
        if restriction.is_contradictory:
            return True
        if not restriction.is_admitted:
            return False
        self._effort.spend(SOUGHT)
        return not has_schedule(self._facts, self._facts.jobs[job], restriction)

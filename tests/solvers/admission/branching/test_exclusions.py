"""Exclusions by reduced costs: no good plan is lost, what their points prove, and the tree that contains them.

All prices, multipliers, demands and utilities are multiples of 1/16, so that sums are exact and ties are ties.
"""

from collections import Counter
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice

import numpy as np
import pytest

import optim
from optim.core.arrays import FloatArray
from optim.core.solution import Termination
from optim.models.admission.decision import Branch, BranchKind, TreeProof
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.branching.node import NodeBounder
from optim.solvers.admission.branching.node_pricing import BranchRestrictions
from optim.solvers.admission.branching.tree import ROOT_EFFORT, Child, Exclusion, OpenNode, SearchTree, exclusions
from optim.solvers.admission.packing.capacity_rows import CapacityRows
from optim.solvers.admission.packing.dual_points import DualPoint
from optim.solvers.admission.pricing.classes import JobTables
from tests.support.admission.enumeration import Enumerator, Market, Schedule, best_gain, meets, random_branch
from tests.support.admission.plans import proven_by, solution_of
from tests.support.admission.seeded import HORIZON, seeded_document
from tests.support.admission.tiny import read

Left = list[list[Schedule | None]]
"""The remaining schedules of each job; None means rejection."""

Told = tuple[BranchKind, int, int, bool]
"""Kind, job and value of an exclusion's branch, and whether the high child is closed."""

SEEDS = range(400)
MAX_SCHEDULES, MAX_PLANS = 100, 50_000
COUNTS = (BranchKind.WORKERS, BranchKind.PS)


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """A node, its remaining schedules, a dual point that is valid there, and a cutoff."""

    instance: AdmissionInstance
    rows: CapacityRows
    tables: JobTables
    bounder: NodeBounder
    limits: BranchRestrictions
    left: Left
    point: DualPoint
    market: Market
    cutoff: float

    @property
    def by_slot(self) -> FloatArray:
        """The product's payoffs."""
        return self.bounder.payoff_by_slot(self.point, self.limits)

    def found(self) -> list[Exclusion]:
        """The product's exclusions."""
        return list(exclusions(self.by_slot, self.limits, self.point, self.cutoff))


def single_servers(seed: int) -> AdmissionInstance:
    """Return an instance of three jobs with integral utilities, and one server in each class."""
    rng, document = np.random.default_rng([seed, 1]), seeded_document(seed)
    for job in document["jobs"]:
        table = (1 + np.cumsum(rng.integers(0, 7, HORIZON))[::-1]).tolist()
        job["utility"] = {"kind": "table", "table": table}
    for side in ("shared", "worker", "ps"):
        for servers in document.get(f"{side}_servers", ()):
            servers["count"] = 1
    return read(document)


def without(left: Left, branch: Branch, *, is_high: bool) -> Left:
    """Return the schedules that one child of a branch leaves."""
    return [
        [schedule for schedule in own if job != branch.job or meets(schedule, branch, is_high=is_high)]
        for job, own in enumerate(left)
    ]


def random_node(
    instance: AdmissionInstance, root: Left, rng: np.random.Generator
) -> tuple[list[tuple[Branch, bool]], Left]:
    """Draw up to three branches after which plans remain, and return the remaining schedules."""
    branches: list[tuple[Branch, bool]] = []
    left = root
    for _ in range(rng.integers(4)):
        branch = random_branch(instance, int(rng.integers(instance.num_jobs)), rng)
        is_high = bool(rng.integers(2))
        narrowed = without(left, branch, is_high=is_high)
        if all(narrowed) and (branch.kind not in COUNTS or branch.value >= 0):
            branches.append((branch, is_high))
            left = narrowed
    return branches, left


def rounded(prices: FloatArray) -> FloatArray:
    """Return prices as multiples of 1/8, at least 0."""
    return np.round(8.0 * np.maximum(prices, 0.0)) / 8.0


def priced_point(bounder: NodeBounder, rows: CapacityRows, limits: BranchRestrictions, at: DualPoint) -> DualPoint:
    """Return the dual point at the prices and multipliers of `at`: its bound is rents plus payoffs."""
    on_hand = Market.of(bounder._tables.instance, at.proof(rows))
    most = bounder.payoff_by_slot(at, limits).max(axis=1)
    payoff = np.where(limits.is_admitted == 1, most, np.maximum(most, 0.0))
    return replace(at, payoff=payoff, bound=on_hand.rents() + float(payoff.sum()))


@cache
def drawn(seed: int) -> Case | None:
    """Draw a case; None if there are too many plans, or hardly any.

    Prices are those of the root's dual point with noise; some points contain all cuts of the master, some a part of them.
    Some points are the root's, with larger payoffs than the node's. Some cutoffs are those of a tie.
    """
    instance, rng = single_servers(seed), np.random.default_rng([seed, 2])
    enumerator = Enumerator(instance)
    root: Left = [[None, *islice(enumerator.schedules(job), MAX_SCHEDULES)] for job in range(instance.num_jobs)]
    sizes = sorted(len(own) for own in root)
    if sizes[-1] > MAX_SCHEDULES or np.prod(sizes) > MAX_PLANS or sizes[-2] == 1:
        return None
    tables = JobTables.build(instance)
    rows, free = CapacityRows.of(tables), BranchRestrictions.free(tables)
    bounder = NodeBounder(tables, rows)
    relaxed = bounder.bound(
        free, bounder.zero_dual_point(), cutoff=0.0, effort=ROOT_EFFORT, should_stop=lambda _: False
    ).point
    noise = rng.exponential(1.0, rows.num_rows) * (rng.random(rows.num_rows) < 0.3)
    prices = rounded(rng.choice([0.5, 1.0, 1.5, 2.0]) * relaxed.row_prices + rng.choice([0.0, 0.5, 2.0]) * noise)
    cuts = bounder.master.cuts.cuts if rng.integers(2) else relaxed.cuts[:2]
    old = dict(zip(map(id, relaxed.cuts), relaxed.multiplier.tolist(), strict=True))
    multiplier = rounded(np.array([old.get(id(cut), 0.0) for cut in cuts]) + rng.choice([0.0, 0.25], len(cuts)))
    at = DualPoint(row_prices=prices, payoff=np.zeros(instance.num_jobs), bound=0.0, cuts=cuts, multiplier=multiplier)
    branches, left = random_node(instance, root, rng)
    limits = free
    for branch, is_high in branches:
        limits = limits.narrowed(tables, branch, is_high=is_high)
    point, own = (priced_point(bounder, rows, where, at) for where in (free if rng.integers(2) else limits, limits))
    proof = point.proof(rows)
    cutoff = own.bound - float(rng.integers(0, 32) / rng.choice([2.0, 8.0]))
    if rng.integers(2):
        # A random choice of a random job loses as much as the cutoff permits.
        by_slot = bounder.payoff_by_slot(own, limits)
        losses = own.payoff[:, None] - np.column_stack([np.zeros(instance.num_jobs), by_slot])
        cutoff = own.bound - float(rng.choice([1.0, *losses[(losses > 0.0) & (losses < np.inf)]]))
    return Case(
        instance=instance, rows=rows, tables=tables, bounder=bounder, limits=limits, left=left, point=point,
        market=Market.of(instance, proof),
        cutoff=cutoff,
    )  # fmt: skip


def cases() -> list[Case]:
    """Return all cases."""
    return [case for case in map(drawn, SEEDS) if case is not None]


def told(found: Exclusion) -> Told:
    """Return the fields of an exclusion."""
    return found.branch.kind, found.branch.job, found.branch.value, found.is_high


def best_value(instance: AdmissionInstance, left: Left) -> float:
    """Return the largest value of a plan of the remaining schedules, -infinity without a plan, by trying all of them."""
    shared = instance.has_shared_servers
    sides = [instance.worker_servers] if shared else [instance.worker_servers, instance.ps_servers]
    room = np.concatenate([side.capacity.ravel() for side in sides]).astype(np.float64)
    totals, worth = np.zeros((1, len(room))), np.zeros(1)
    for job, own in enumerate(left):
        loads = np.array([np.zeros(len(room)) if one is None else one.load for one in own]).reshape(-1, len(room))
        values = np.array([0.0 if one is None else instance.value[job, one.completion] for one in own])
        totals = (totals[:, None, :] + loads[None, :, :]).reshape(-1, len(room))
        worth = (worth[:, None] + values[None, :]).reshape(-1)
        fits = (totals <= room).all(axis=1)
        totals, worth = totals[fits], worth[fits]
    return float(worth.max(initial=-np.inf))


def bound_of(market: Market, left: Left) -> float:
    """Return the bound at a market's prices; -infinity if a job has no choice left."""
    return market.rents() + sum(best_gain(market, own) for own in left)


def plain_exclusions(case: Case) -> list[Told]:
    """Close by the bounds of listed schedules, job by job: rejection or admission, then early and late completion."""
    market, left = case.market, case.left
    found: list[Told] = []

    def is_closed(branch: Branch, *, is_high: bool) -> bool:
        return bound_of(market, without(left, branch, is_high=is_high)) <= case.cutoff

    for job in range(case.instance.num_jobs):
        slots = sorted({one.completion for one in left[job] if one is not None})
        admission = Branch(kind=BranchKind.ADMITTED, job=job)
        is_undecided = None in left[job] and bool(slots)
        sides = [is_closed(admission, is_high=is_high) for is_high in (False, True)]
        if all(sides) or not slots:
            continue
        if is_undecided and any(sides):
            found.append((BranchKind.ADMITTED, job, 0, sides[1]))
            left = without(left, admission, is_high=not sides[1])
        if None in left[job] or not slots or (is_undecided and sides[1]):
            continue
        splits = [Branch(kind=BranchKind.COMPLETION, job=job, value=slot) for slot in range(-1, case.instance.horizon)]
        early = [one.value for one in splits if is_closed(one, is_high=False)]
        late = [one.value for one in splits if is_closed(one, is_high=True)]
        if early and early[-1] >= slots[0]:
            found.append((BranchKind.COMPLETION, job, early[-1], False))
        if late and late[0] < slots[-1]:
            found.append((BranchKind.COMPLETION, job, late[0], True))
    return found


def test_payoffs_by_slot_are_those_of_listed_schedules_with_cuts() -> None:
    """The master's own cuts, and others."""
    kinds: Counter[tuple[bool, bool]] = Counter()
    num_slot_cuts = 0
    for case in cases():
        by_slot = case.by_slot
        for job, own in enumerate(case.left):
            for slot in range(case.instance.horizon):
                at = [one for one in own if one is not None and one.completion == slot]
                assert by_slot[job, slot] == best_gain(case.market, at)
        market, is_own = case.market, case.point.cuts is case.bounder.master.cuts.cuts
        kinds[is_own, bool(market.cuts or market.count_cuts)] += 1
        num_slot_cuts += len(market.slot_cuts)
    assert min(kinds[True, True], kinds[False, True]) >= 5
    assert num_slot_cuts >= 3


def test_no_plan_above_the_cutoff_is_in_a_closed_child() -> None:
    for case in cases():
        left = case.left
        for found in case.found():
            closed = without(left, found.branch, is_high=found.is_high)
            assert best_value(case.instance, closed) <= case.cutoff
            left = without(left, found.branch, is_high=not found.is_high)
            assert all(left)
        optimum = best_value(case.instance, case.left)
        if optimum > case.cutoff:
            assert best_value(case.instance, left) == optimum


def test_a_closed_childs_point_covers_its_schedules_and_has_a_bound_at_the_cutoff_or_below() -> None:
    for case in cases():
        left = case.left
        for found in case.found():
            point, closed = found.point, without(left, found.branch, is_high=found.is_high)
            assert point.bound <= case.cutoff
            assert point.bound == case.market.rents() + point.payoff.sum()
            assert all(payoff >= best_gain(case.market, own) for payoff, own in zip(point.payoff, closed, strict=True))
            assert closed[found.branch.job], "an empty child needs no exclusion"
            assert point.row_prices is case.point.row_prices
            assert (point.cuts, point.multiplier is case.point.multiplier) == (case.point.cuts, True)
            left = without(left, found.branch, is_high=not found.is_high)


def test_closes_all_that_the_bounds_of_listed_schedules_close() -> None:
    """Each kind occurs, also with a bound that equals the cutoff."""
    kinds: Counter[tuple[BranchKind, bool]] = Counter()
    ties: Counter[tuple[BranchKind, bool]] = Counter()
    for case in cases():
        found = case.found()
        assert [told(one) for one in found] == plain_exclusions(case)
        for one in found:
            kind = (one.branch.kind, one.is_high)
            kinds[kind] += 1
            ties[kind] += one.point.bound == case.cutoff
    every = [(kind, is_high) for kind in (BranchKind.ADMITTED, BranchKind.COMPLETION) for is_high in (False, True)]
    assert min(kinds[kind] for kind in every) >= 5
    assert min(ties[kind] for kind in every) >= 1


def exclude_all(tree: SearchTree, node: OpenNode, case: Case) -> OpenNode:
    """Exclude what the case's point closes, as the search does; check numbers and bound after each exclusion."""
    closed, standing, num_open = -np.inf, tree.bound, tree.num_open
    for found in exclusions(case.bounder.payoff_by_slot(case.point, node.limits), node.limits, case.point, case.cutoff):
        limits = node.limits.narrowed(case.tables, found.branch, is_high=not found.is_high)
        size = len(tree)
        node = tree.exclude(node, found, Child(limits=limits, point=case.point))
        closed = max(closed, found.point.bound)
        assert node.limits is limits
        assert (len(tree), tree.num_open) == (size + 2, num_open)
        assert tree.bound == max(standing, closed)
    return node


def test_an_exclusion_leaves_the_rest_as_the_taken_node_and_the_open_leaves_as_they_are() -> None:
    num_split = 0
    for case in cases():
        undecided = [job for job, own in enumerate(case.left) if None in own and len(own) > 1]
        if not undecided:
            continue
        tree = SearchTree(case.limits, case.point)
        branch = Branch(kind=BranchKind.ADMITTED, job=undecided[0])
        lower = replace(case.point, bound=case.point.bound - 64.0)
        low, high = (case.limits.narrowed(case.tables, branch, is_high=is_high) for is_high in (False, True))
        for opened in tree.split(
            tree.take(), branch, Child(limits=low, point=lower), Child(limits=high, point=case.point)
        ):
            assert opened is not None
            tree.put_back(opened, opened.point)
        node = tree.take()
        tree.lower(case.point.bound - 1.0)
        rest = exclude_all(tree, node, case)
        closed = tree._closed_bound
        num_split += closed > -np.inf
        assert tree.bound == max(case.point.bound - 1.0, closed)
        tree.lower(case.point.bound - 2.0)
        assert tree.bound == max(case.point.bound - 2.0, closed)
        tree.put_back(rest, replace(case.point, bound=case.point.bound - 32.0))
        assert tree.num_open == 2
        assert tree.bound == max(case.point.bound - 32.0, closed)
        again = tree.take()
        assert (again.number, again.limits) == (rest.number, rest.limits)
        tree.close(again, lower)
        assert (tree.num_open, tree.bound) == (1, max(lower.bound, closed))
    assert num_split >= 20


def test_the_checker_accepts_a_tree_of_exclusions() -> None:
    """At the root: the closed leaves and what is left cover all plans, and no leaf's bound is too small."""
    num_split = 0
    for case in cases():
        if any((a != b).any() for a, b in zip(case.limits, BranchRestrictions.free(case.tables), strict=True)):
            continue
        tree = SearchTree(case.limits, case.point)
        tree.close(exclude_all(tree, tree.take(), case), case.point)
        proven = proven_by(tree.proof(case.rows), tree.bound)
        verification = optim.verify(case.instance, solution_of(case.instance, None, **proven))
        assert verification.is_ok, verification.violations
        num_split += len(tree) > 1
    assert num_split >= 20


@pytest.mark.parametrize("name", ["tiny-0", "tiny-1"])
def test_a_search_proves_its_optimum_with_exclusions(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    instance, exclude = optim.reference_instance(name), SearchTree.exclude
    branches = []

    def noted(tree: SearchTree, node: OpenNode, excluded: Exclusion, rest: Child) -> OpenNode:
        branches.append(excluded.branch)
        return exclude(tree, node, excluded, rest)

    monkeypatch.setattr(SearchTree, "exclude", noted)
    solution = optim.solve(instance, "branch-and-price", options={"search_moves": 20})
    assert solution.termination is Termination.OPTIMAL
    assert optim.verify(instance, solution).is_ok
    assert solution.certificate is not None
    proof = solution.certificate.proof
    assert isinstance(proof, TreeProof)
    assert branches
    assert {id(branch) for branch in branches} <= {id(node.branch) for node in proof.nodes}

"""Branch and price: the branching tree, the choice of splits, dives for plans, and the search of the best bound first."""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.driver import AbstractIteration, Monitor, SolverState
from optim.core.solution import Termination
from optim.models.admission.decision import AdmissionPlan, Branch, BranchKind, TreeNode, TreeProof
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.branching.node import (
    MasterBasis,
    MasterPoint,
    NodeBounder,
    NodeEffortLimits,
    NodeResult,
)
from optim.solvers.admission.branching.node_pricing import BranchRestrictions
from optim.solvers.admission.branching.splitting import UnpackableSet, nogood_branch, split
from optim.solvers.admission.branching.support_search import Support, SupportSearch
from optim.solvers.admission.packing.capacity_rows import CapacityRows
from optim.solvers.admission.packing.dual_points import DualPoint
from optim.solvers.admission.packing.packing_lp import PackingResult
from optim.solvers.admission.pricing.classes import JobTables, PricedSchedules

INTEGRALITY_TOL = 1e-6
"""Weights closer to 0 or 1 than this count as integral."""

MIN_LOSS = 1e-6
"""Lower limit of a child's loss in a score, so that a loss of 0 in one child doesn't hide the loss in the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A split, and the weight of the fractional point's schedules that the low and the high child forbid."""

    branch: Branch
    low_share: float
    high_share: float

    @property
    def balance(self) -> float:
        """The smaller of the two weights."""
        return min(self.low_share, self.high_share)


def value_candidates(schedules: PricedSchedules, weight: FloatArray, is_admitted: IntArray) -> list[Candidate]:
    """Return splits on admission and on the completion slot, which determine a schedule's value; in order of jobs.

    Parameters
    ----------
    schedules, weight
        Known schedules and their weights at the master's point.
    is_admitted
        Shape (jobs,): whether the node requires the job's admission.
    """
    on = np.flatnonzero(weight > INTEGRALITY_TOL)
    by_slot = np.zeros((len(is_admitted), schedules.workers.shape[2]))
    np.add.at(by_slot, (schedules.jobs[on], schedules.completion[on]), weight[on])
    candidates = []
    for i, slot_weight in enumerate(by_slot):
        total = float(slot_weight.sum())
        if not is_admitted[i] and INTEGRALITY_TOL < total < 1.0 - INTEGRALITY_TOL:
            branch = Branch(kind=BranchKind.ADMITTED, job=i)
            candidates.append(Candidate(branch=branch, low_share=total, high_share=1.0 - total))
        slots = np.flatnonzero(slot_weight > INTEGRALITY_TOL)
        if len(slots) > 1:
            until = np.cumsum(slot_weight[slots])[:-1]
            k = int(np.argmax(np.minimum(until, total - until)))
            branch = Branch(kind=BranchKind.COMPLETION, job=i, value=int(slots[k]))
            candidates.append(Candidate(branch=branch, low_share=total - float(until[k]), high_share=float(until[k])))
    return candidates


def count_candidates(schedules: PricedSchedules, weight: FloatArray, num_jobs: int, most: int) -> list[Candidate]:
    """Return the `most` most balanced splits on a job's number of workers or PSs in a class and slot."""
    candidates: list[Candidate] = []
    for i in range(num_jobs):
        on = np.flatnonzero((weight > INTEGRALITY_TOL) & (schedules.jobs == i))
        if len(on) > 1:
            candidates += _count_splits(i, weight[on], schedules.workers[on], schedules.ps[on])
    return sorted(candidates, key=lambda candidate: -candidate.balance)[:most]


def _count_splits(job: int, weight: FloatArray, workers: IntArray, ps: IntArray) -> Iterator[Candidate]:
    for kind, counts in ((BranchKind.WORKERS, workers), (BranchKind.PS, ps)):
        differs = (counts != counts[0]).any(axis=0)
        for c, t in np.argwhere(differs).tolist():
            numbers = counts[:, c, t]
            value = int(np.floor(weight @ numbers / weight.sum() + INTEGRALITY_TOL))
            value = min(max(value, int(numbers.min())), int(numbers.max()) - 1)
            above = float(weight[numbers > value].sum())
            branch = Branch(kind=kind, job=job, value=value, server_class=c, slot=t)
            yield Candidate(branch=branch, low_share=above, high_share=float(weight.sum()) - above)


@dataclass(slots=True)
class _Losses:
    """Sum and number of the losses recorded under one key, each per unit of forbidden weight."""

    total: float = 0.0
    number: int = 0

    @property
    def mean(self) -> float:
        return self.total / self.number if self.number else 0.0


@dataclass(slots=True)
class PseudoCosts:
    """Mean decrease of the bound by earlier splits (the loss), per unit of weight that the child forbids.

    A loss is recorded by kind of split, child (low or high), job, and the class and slot of a count. A prediction uses the
    losses of the same class and slot if there are any, otherwise those of the job, otherwise those of all jobs.
    """

    _losses: dict[tuple[object, ...], _Losses] = field(default_factory=dict)

    def record(self, candidate: Candidate, loss: float, *, is_high: bool) -> None:
        """Record the loss of one child."""
        share = candidate.high_share if is_high else candidate.low_share
        for key in _keys(candidate.branch, is_high=is_high):
            losses = self._losses.setdefault(key, _Losses())
            losses.total += max(loss, 0.0) / max(share, 0.01)
            losses.number += 1

    def number(self, candidate: Candidate) -> int:
        """Return the number of losses recorded for the kind of split and job, the smaller one of both children.

        It is 0 for splits on counts, whose losses hardly predict those at other nodes.
        """
        branch = candidate.branch
        if branch.kind in (BranchKind.WORKERS, BranchKind.PS):
            return 0
        return min(
            losses.number if (losses := self._losses.get(_keys(branch, is_high=is_high)[0])) else 0
            for is_high in (False, True)
        )

    def score(self, candidate: Candidate, default: float) -> float:
        """Return the product of both children's expected losses; `default` per unit of weight if none is recorded."""
        return score(*(self._expected(candidate, default, is_high=is_high) for is_high in (False, True)))

    def _expected(self, candidate: Candidate, default: float, *, is_high: bool) -> float:
        share = candidate.high_share if is_high else candidate.low_share
        known = [self._losses[key] for key in _keys(candidate.branch, is_high=is_high) if key in self._losses]
        return (known[0].mean if known else default) * share


def _keys(branch: Branch, *, is_high: bool) -> tuple[tuple[object, ...], ...]:
    """Return the keys of the losses of a split's child, from the most to the least specific."""
    kind, job = branch.kind, branch.job
    return (kind, is_high, job, branch.server_class, branch.slot), (kind, is_high, job), (kind, is_high)


def score(low_loss: float, high_loss: float) -> float:
    """Return the score of a split, the product of its children's losses; a higher one is better."""
    return max(low_loss, MIN_LOSS) * max(high_loss, MIN_LOSS)


@dataclass(slots=True, kw_only=True)
class _Node:
    """A node. `point` is None if no plan meets the node's restrictions, or once it is split, which sets `branch`."""

    point: DualPoint | None
    branch: Branch | None = None
    low: int = -1
    high: int = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpenNode:
    """A leaf that may still be closed or split."""

    number: int
    limits: BranchRestrictions
    point: DualPoint
    basis: MasterBasis | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Child:
    """A child of a split: its restrictions, a valid dual point (None if no plan meets them), and a basis to start from."""

    limits: BranchRestrictions
    point: DualPoint | None
    basis: MasterBasis | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """A split of a node, and a dual point that closes one child: the high one if `is_high`, else the low one."""

    branch: Branch
    is_high: bool
    point: DualPoint


def exclusions(by_slot: FloatArray, limits: BranchRestrictions, point: DualPoint, cutoff: float) -> Iterator[Exclusion]:
    """Yield what no plan of a node with a value above `cutoff` does: reject a job, admit it, complete it early or late.

    In the bound at a dual point, each job counts with its largest payoff over its schedules and over rejection (0).
    Without some of these choices the payoff may be smaller, and the bound with it: variables are fixed by reduced costs.

    Parameters
    ----------
    by_slot
        Shape (jobs, slots): largest payoff by completion slot at the dual point, -infinity where no schedule completes.
    limits
        Restrictions of the node, which leave every admitted job a schedule.
    point
        The dual point.
    cutoff
        The bounds of the closed children are at most this value.
    """
    most = by_slot.max(axis=1, initial=-np.inf)
    best = np.where(limits.is_admitted == 1, most, np.maximum(most, 0.0))
    bound = point.bound - float(point.payoff.sum()) + float(best.sum())

    def closed(kind: BranchKind, job: int, value: int, payoff: float, *, is_high: bool) -> Exclusion:
        payoffs = best.copy()
        payoffs[job] = payoff
        at_most = replace(point, payoff=payoffs, bound=bound - float(best[job]) + payoff)
        return Exclusion(branch=Branch(kind=kind, job=job, value=value), is_high=is_high, point=at_most)

    for i in np.flatnonzero((limits.is_refused == 0) & (most > -np.inf)).tolist():
        limit = cutoff - bound + best[i]
        good = np.flatnonzero(by_slot[i] > limit)
        is_admitted = bool(limits.is_admitted[i])
        if not len(good):
            if limit < 0.0 and not is_admitted:
                yield closed(BranchKind.ADMITTED, i, 0, float(most[i]), is_high=True)
            continue
        if limit >= 0.0 and not is_admitted:
            is_admitted = True
            yield closed(BranchKind.ADMITTED, i, 0, 0.0, is_high=False)
        if not is_admitted:
            continue  # both children of a split on completion would contain the plans that reject the job
        early = by_slot[i, : good[0]].max(initial=-np.inf)
        late = by_slot[i, good[-1] + 1 :].max(initial=-np.inf)
        if early > -np.inf:
            yield closed(BranchKind.COMPLETION, i, int(good[0]) - 1, float(early), is_high=False)
        if late > -np.inf:
            yield closed(BranchKind.COMPLETION, i, int(good[-1]), float(late), is_high=True)


class SearchTree:
    """All nodes, with the open ones ordered by bound, largest first, then by number.

    Parameters
    ----------
    limits, point
        Restrictions and dual point of the root.
    """

    def __init__(self, limits: BranchRestrictions, point: DualPoint) -> None:
        self._nodes = [_Node(point=point)]
        self._open: list[tuple[float, int, BranchRestrictions, MasterBasis | None]] = [(-point.bound, 0, limits, None)]
        self._closed_bound = -float("inf")
        self._current: tuple[int, float] | None = None
        """Number and proven bound of the leaf that `take` returned last; the tree's bound includes it."""

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def num_open(self) -> int:
        """Number of open leaves."""
        return len(self._open)

    @property
    def bound(self) -> float:
        """The largest bound of all leaves: closed, open, and the one that was taken."""
        first = -self._open[0][0] if self._open else -float("inf")
        return max(self._closed_bound, first, -float("inf") if self._current is None else self._current[1])

    def take(self) -> OpenNode:
        """Remove and return the open node with the largest bound; the caller closes it, splits it or puts it back."""
        _, number, limits, basis = heapq.heappop(self._open)
        point = self._nodes[number].point
        assert point is not None
        self._current = (number, point.bound)
        return OpenNode(number=number, limits=limits, point=point, basis=basis)

    def lower(self, bound: float) -> None:
        """Lower the bound of the node that was taken to `bound`, if that is lower."""
        if self._current is not None:
            self._current = (self._current[0], min(self._current[1], bound))

    def _release(self, node: OpenNode) -> None:
        """Forget which node was taken if it is this one; new children were never taken."""
        if self._current is not None and self._current[0] == node.number:
            self._current = None

    def put_back(self, node: OpenNode, point: DualPoint) -> None:
        """Make a taken node or a new child an open leaf, with the given dual point."""
        self._release(node)
        self._nodes[node.number].point = point
        heapq.heappush(self._open, (-point.bound, node.number, node.limits, node.basis))

    def close(self, node: OpenNode, point: DualPoint) -> None:
        """Make a node a leaf that stays, with the given dual point."""
        self._release(node)
        self._nodes[node.number].point = point
        self._closed_bound = max(self._closed_bound, point.bound)

    def close_as_empty(self, node: OpenNode) -> None:
        """Make a node a leaf that stays, whose restrictions no plan meets."""
        self._release(node)
        self._nodes[node.number].point = None

    def split(self, node: OpenNode, branch: Branch, low: Child, high: Child) -> tuple[OpenNode | None, ...]:
        """Split a node that was taken; return its children, None for a child whose restrictions no plan meets.

        The children are not open yet: the caller puts them back or closes them.
        """
        self._release(node)
        parent = self._nodes[node.number]
        parent.branch, parent.point = branch, None
        parent.low, parent.high = len(self._nodes), len(self._nodes) + 1
        children: list[OpenNode | None] = []
        for child in (low, high):
            number = len(self._nodes)
            self._nodes.append(_Node(point=child.point))
            children.append(
                None
                if child.point is None
                else OpenNode(number=number, limits=child.limits, point=child.point, basis=child.basis)
            )
        return tuple(children)

    def exclude(self, node: OpenNode, excluded: Exclusion, rest: Child) -> OpenNode:
        """Split a node that was taken, close the excluded child, and return the other child, which is now the taken node."""
        standing = self._current
        closed = Child(limits=node.limits, point=excluded.point)
        low, high = self.split(node, excluded.branch, *((rest, closed) if excluded.is_high else (closed, rest)))
        assert low is not None
        assert high is not None
        closed_node, left = (high, low) if excluded.is_high else (low, high)
        self.close(closed_node, excluded.point)
        if standing is not None:
            self._current = (left.number, standing[1])
        return left

    def proof(self, rows: CapacityRows) -> TreeProof:
        """Return the tree with the leaves' proofs, for the checker; nodes with the same point share one proof."""
        known: dict[int, object] = {}
        nodes = []
        for node in self._nodes:
            point = node.point
            if point is not None and id(point) not in known:
                known[id(point)] = point.proof(rows)
            nodes.append(
                TreeNode(
                    branch=node.branch,
                    low=node.low,
                    high=node.high,
                    proof=None if point is None else known[id(point)],  # type: ignore[arg-type]
                )
            )
        return TreeProof(nodes=tuple(nodes))


WHOLE_TOL = 1e-6
"""Weights at most this far from 0 or 1 count as integral in a master's point."""

DIVE_EFFORT = NodeEffortLimits(max_rounds=8, max_cut_rounds=1, max_count_rounds=0, min_gain=0.0)
"""Limits after each fixing in a dive: a dive needs good schedules, not a tight bound."""


def is_whole(weight: FloatArray) -> bool:
    """Return whether every weight is 0 or 1."""
    return bool((np.minimum(weight, np.abs(weight - 1.0)) <= WHOLE_TOL).all())


def chosen(schedules: PricedSchedules, weight: FloatArray) -> PricedSchedules:
    """Return the schedules of weight 1 in an integral point."""
    return schedules.select(np.flatnonzero(weight > 0.5))


def dive(
    tables: JobTables,
    bounder: NodeBounder,
    limits: BranchRestrictions,
    result: NodeResult,
    *,
    cutoff: float,
    should_stop: Callable[[float], bool],
) -> AdmissionPlan | None:
    """Search a node's plans for one with a value above `cutoff`; return None if none is found.

    A dive fixes the schedules of weight 1, and among the others the one with the largest weight. Then it solves the master
    again with newly priced schedules. It repeats both until all weights are 0 or 1.
    """
    while result.master is not None:
        schedules, weight = bounder.master.schedules, result.master.weight
        if is_whole(weight):
            plan = split(tables, chosen(schedules, weight), partial(should_stop, result.point.bound))
            return None if isinstance(plan, UnpackableSet) else plan
        if should_stop(result.point.bound):
            return None
        free = np.where(weight < 1.0 - WHOLE_TOL, weight, 0.0)
        for k in [*np.flatnonzero(weight >= 1.0 - WHOLE_TOL).tolist(), int(np.argmax(free))]:
            limits = fixed(tables, limits, schedules, k)
        result = bounder.bound(
            limits, result.point, cutoff=cutoff, effort=DIVE_EFFORT, should_stop=should_stop, basis=result.basis
        )
    return None


def fixed(tables: JobTables, limits: BranchRestrictions, schedules: PricedSchedules, k: int) -> BranchRestrictions:
    """Return a node's restrictions and those that fix schedule `k` for its job."""
    i, completion = int(schedules.jobs[k]), int(schedules.completion[k])
    segments = slice(int(tables.segment_offset[i]), int(tables.segment_offset[i + 1]))
    copy = BranchRestrictions(*(array.copy() for array in limits))
    copy.is_admitted[i] = 1
    copy.first[i] = copy.last[i] = completion
    copy.worker_low[i] = schedules.workers[k]
    copy.ps_low[i] = schedules.ps[k]
    copy.worker_high[segments] = schedules.workers[k]
    copy.ps_high[segments] = schedules.ps[k]
    return copy


ROOT_EFFORT = NodeEffortLimits(max_rounds=2_000, max_cut_rounds=100, max_count_rounds=100, min_gain=1e-2)

NODE_EFFORT = NodeEffortLimits(max_rounds=400, max_cut_rounds=6, max_count_rounds=0, min_gain=0.02)

COUNT_EFFORT = replace(NODE_EFFORT, max_count_rounds=1)

LEAF_EFFORT = NodeEffortLimits(max_rounds=5_000, max_cut_rounds=6, max_count_rounds=0, min_gain=0.02)

TRIAL_EFFORT = NodeEffortLimits(max_rounds=12, max_cut_rounds=0, max_count_rounds=0, min_gain=1.0)
"""Limits of the work at the root, at other nodes, at every `COUNT_EVERY`-th node, at leaves that can't be split, and on
children of splits on trial.

Count cuts and slot cuts are dense rows: with them, the master of a node takes several times as long. The root's cuts with a
positive multiplier lower the bounds of all nodes. Separating more of them at every node saves nodes but not time: one round
of slot cuts at each node leaves 15 of 28 nodes of small-1, and 17 of 22 of a heavy instance that takes 1.5 times as long. The
root's last rounds make every later master larger: with a `min_gain` of 1e-3 instead of 1e-2, most roots take two to five times
as long. On instances with small gaps they pay off (36 instead of 75 nodes of 16-medium-8), on most others they don't.
"""

COUNT_EVERY = 25
"""Number of nodes from one separation of count cuts to the next."""

MAX_ESTIMATES, MAX_TRIALS = 16, 5
"""Maximal number of a node's splits whose children are estimated over the known schedules, and of those that are then tried
with pricing."""

MAX_WORSE = 1
"""Splits in a row with a lower score than the best one, after which no further split of the node is tried. With 1, the tree
of small-2 takes 2.9 processor seconds; with 2, 3.6; without a limit, 3.8 (the optimum known, 21 to 23 nodes)."""

RELIABLE = 4
"""Number of losses recorded for a kind of split and job from which they replace a trial; splits on counts are always tried.

With splits on counts chosen by recorded losses, the bound of small-1 could stay the same for 200 nodes.
"""

COUNT_CANDIDATES = 100
"""Maximum number of splits on counts that are ranked by the losses recorded for their classes and slots.

Few classes and slots affect the bound. With the twelve most balanced splits, at most two per job, and losses by job alone,
the bound of small-1 could stay the same for 120 nodes.
"""

DIVE_EVERY = 25
"""Number of nodes from one dive for plans to the next."""

MAX_SCHEDULES, MAX_CUTS = 1_200, 3_000
"""Maximal numbers of schedules and cuts in the master when a node begins; see `NodeMaster.purge_columns`."""


def nothing(*_: object) -> None:
    """Return None: there is no other search that could find plans."""


class TreeSearch(AbstractIteration[AdmissionPlan]):
    """One branch-and-price search.

    Parameters
    ----------
    tables, rows
        The instance.
    plan
        A feasible plan to start from.
    improve
        Function that searches from the best known plan and returns a feasible plan.
    tol
        Relative gap at which the plan counts as optimal.
    monitor
        Receives the state after each pricing, and decides whether to stop.
    relaxed
        Solution of the packing LP; the root starts from its dual point and its schedules.
    find_elsewhere
        Called with the best plan before each poll of the monitor; returns a feasible plan of another search, or None.
    support_search
        Search for plans in the support of a node's LP point; None for no such search.
    """

    def __init__(
        self,
        tables: JobTables,
        rows: CapacityRows,
        plan: AdmissionPlan,
        *,
        improve: Callable[[AdmissionPlan], AdmissionPlan],
        tol: float,
        monitor: Monitor,
        relaxed: PackingResult | None = None,
        find_elsewhere: Callable[[AdmissionPlan], AdmissionPlan | None] = nothing,
        support_search: SupportSearch | None = None,
    ) -> None:
        self._tables = tables
        self._instance: AdmissionInstance = tables.instance
        self.bounder = NodeBounder(tables, rows)
        limits = BranchRestrictions.free(tables)
        start = self.bounder.zero_dual_point()
        if relaxed is not None:
            self.bounder.master.add_schedules(relaxed.pool.as_priced(np.arange(len(relaxed.pool))))
            start = min(start, relaxed.point, key=attrgetter("bound"))
        self.tree = SearchTree(limits, start)
        self.plan, self.incumbent_value = plan, plan.objective(tables.instance)
        self._improve, self._tol, self._monitor = improve, tol, monitor
        self._find_elsewhere, self._support_search = find_elsewhere, support_search
        self._pseudo_costs = PseudoCosts()
        self.num_bounded = 0
        self.num_unsplittable = 0

    @property
    def cutoff(self) -> float:
        """Bound up to which a node is closed: its plans improve on the best one by at most half the tolerance."""
        return self.incumbent_value + 0.5 * self._tol * max(1.0, abs(self.incumbent_value))

    @property
    def bound(self) -> float:
        """Proven upper bound on the value of every plan."""
        return max(self.tree.bound, self.incumbent_value)

    def is_done(self) -> bool:
        """Return whether no node is open."""
        return self.tree.num_open == 0

    def step(self) -> None:
        """Close or split the open node with the largest bound; put it back if the monitor ends the search meanwhile."""
        node = self.tree.take()
        if node.point.bound <= self.cutoff:
            self.tree.close(node, node.point)
        else:
            self._process_node(node)

    def standing(self) -> SolverState:
        """Return the number of bounded nodes, the best value, the bound, and the number of open nodes."""
        return SolverState(
            iterations=self.num_bounded,
            objective=self.incumbent_value,
            bound=self.bound,
            figures={"open": float(self.tree.num_open)},
        )

    def finish(self, reason: Termination | None) -> AdmissionPlan:
        """Return the best plan; the proof of the bound is the tree's."""
        return self.plan

    def _is_over_at(self, bound: float) -> bool:
        """Lower the bound of the taken node, and return whether to stop."""
        self.tree.lower(bound)
        return self._is_over()

    def _is_over(self, _: float = 0.0) -> bool:
        self._adopt(self._find_elsewhere(self.plan))
        standing = self.standing()
        self._monitor.show(standing)
        return self._monitor.is_over(standing)

    def _process_node(self, node: OpenNode) -> None:
        """Bound a node, then close or split it."""
        is_root = self.num_bounded == 0
        self.bounder.master.purge_columns(MAX_SCHEDULES, MAX_CUTS)
        effort = ROOT_EFFORT if is_root else NODE_EFFORT if self.num_bounded % COUNT_EVERY else COUNT_EFFORT
        result = self._bounded(node.limits, node.point, effort, node.basis, self._is_over_at)
        self.tree.lower(result.point.bound)
        self.num_bounded += 1
        if is_root:
            self.bounder.master.drop_idle_cuts()
        is_time_for_plans = is_root or self.num_bounded % DIVE_EVERY == 0
        if is_time_for_plans and not self._is_over():
            self._adopt(self._improve(self.plan))
        if result.point.bound <= self.cutoff:
            self.tree.close(node, result.point)
            return
        if not is_root and self._is_lagging_leaf(node, result):
            # A node that can't be split has no children that would lower its bound further: bound it with more rounds.
            result = self._bounded(node.limits, result.point, LEAF_EFFORT, result.basis, self._is_over_at)
            self.tree.lower(result.point.bound)
            if result.point.bound <= self.cutoff:
                self.tree.close(node, result.point)
                return
        if result.master is None or self._is_over():
            self.tree.put_back(node, result.point)
            return
        weight = result.master.weight
        if is_whole(weight):
            self._settle(node, result, chosen(self.bounder.master.schedules, weight))
            return
        self._search_support(result.master)
        if result.point.bound <= self.cutoff:
            self.tree.close(node, result.point)
            return
        node = self._without_excluded(node, result.point)
        candidates = self._candidates(node, result)
        if is_time_for_plans:
            self._dive(node, result)
        if not candidates or result.point.bound <= self.cutoff:
            self.tree.close(node, result.point)
        else:
            self._split(node, result, candidates)

    def _without_excluded(self, node: OpenNode, point: DualPoint) -> OpenNode:
        """Split off the children of a taken node that its dual point closes, and return what is left of the node."""
        by_slot = self.bounder.payoff_by_slot(point, node.limits)
        for excluded in exclusions(by_slot, node.limits, point, self.cutoff):
            limits = node.limits.narrowed(self._tables, excluded.branch, is_high=not excluded.is_high)
            node = self.tree.exclude(node, excluded, Child(limits=limits, point=point, basis=node.basis))
        return node

    def _is_lagging_leaf(self, node: OpenNode, result: NodeResult) -> bool:
        """Return whether a node can't be split although its bound is still above the master's value."""
        if result.master is None or result.is_converged or self._is_over():
            return False
        return is_whole(result.master.weight) or not self._candidates(node, result)

    def _bounded(
        self,
        limits: BranchRestrictions,
        start: DualPoint,
        effort: NodeEffortLimits,
        basis: MasterBasis | None,
        should_stop: Callable[[float], bool],
    ) -> NodeResult:
        """Bound the node with these limits; `should_stop` receives the bound after each pricing."""
        return self.bounder.bound(
            limits, start, cutoff=self.cutoff, effort=effort, should_stop=should_stop, basis=basis
        )

    def _settle(self, node: OpenNode, result: NodeResult, schedules: PricedSchedules) -> None:
        """Close a node whose integral point fits on single servers; otherwise split it, or close it if there is no split."""
        placed = split(self._tables, schedules, self._is_over)
        if isinstance(placed, AdmissionPlan):
            # If the bound is above the master's value, by rounding or for lack of rounds, it stays: there is no split.
            self._adopt(placed)
            self.tree.close(node, result.point)
            return
        branch = nogood_branch(node.limits, self._tables, schedules, placed)
        if branch is not None:
            self._make_children(node, result, branch, None)
        elif placed.is_proven:
            # All plans of the node have at least these counts in the class and slot, and they don't fit.
            self.tree.close_as_empty(node)
        else:
            self.num_unsplittable += 1
            self.tree.close(node, result.point)

    def _adopt(self, plan: AdmissionPlan | None) -> None:
        if plan is not None and plan.objective(self._instance) > self.incumbent_value:
            self.plan, self.incumbent_value = plan, plan.objective(self._instance)

    def _search_support(self, point: MasterPoint) -> None:
        """Look for a better plan in the support of a node's LP point."""
        if self._support_search is not None and not self._is_over():
            master = self.bounder.master
            support = Support.of(master.schedules, point.weight, self._tables.num_jobs)
            plan = self._support_search.better_plan(support, self.cutoff, master.num_iterations, self._is_over)
            self._adopt(plan)

    def _dive(self, node: OpenNode, result: NodeResult) -> None:
        self._adopt(
            dive(self._tables, self.bounder, node.limits, result, cutoff=self.cutoff, should_stop=self._is_over)
        )

    def _candidates(self, node: OpenNode, result: NodeResult) -> list[Candidate]:
        """Return splits on admission and completion, or if there are none, splits on counts."""
        assert result.master is not None
        schedules, weight = self.bounder.master.schedules, result.master.weight
        return value_candidates(schedules, weight, node.limits.is_admitted) or count_candidates(
            schedules, weight, self._tables.num_jobs, COUNT_CANDIDATES
        )

    def _split(self, node: OpenNode, result: NodeResult, candidates: list[Candidate]) -> None:
        """Split a node by the candidate with the best score of predicted or tried losses."""
        default = max(result.point.bound - self.incumbent_value, 0.0)
        ranked = sorted(
            candidates, key=lambda candidate: (-self._pseudo_costs.score(candidate, default), _key(candidate.branch))
        )
        best: tuple[float, Branch, tuple[Child, Child] | None] | None = None
        num_worse = 0
        for candidate in self._short_list(node, result, ranked[:MAX_ESTIMATES]):
            if num_worse == MAX_WORSE or self._is_over():
                break
            if self._pseudo_costs.number(candidate) >= RELIABLE:
                split_score, children = self._pseudo_costs.score(candidate, default), None
            else:
                children = self._strong_branch(node, result, candidate)
                losses = [
                    default if child.point is None else min(result.point.bound - child.point.bound, default)
                    for child in children
                ]
                split_score = score(losses[0], losses[1])
            num_worse += 1
            if best is None or split_score > best[0]:
                best, num_worse = (split_score, candidate.branch, children), 0
        if best is None:
            self.tree.put_back(node, result.point)
        else:
            self._make_children(node, result, best[1], best[2])

    def _short_list(self, node: OpenNode, result: NodeResult, ranked: list[Candidate]) -> list[Candidate]:
        """Return the candidates with the best scores over the known schedules, which cost little without pricing."""
        if len(ranked) <= MAX_TRIALS:
            return ranked
        assert result.master is not None
        most = max(result.point.bound - self.incumbent_value, 0.0)
        scores = []
        for candidate in ranked:
            losses = []
            for is_high in (False, True):
                if self._is_over():
                    return ranked[:MAX_TRIALS]
                limits = node.limits.narrowed(self._tables, candidate.branch, is_high=is_high)
                value = self.bounder.estimate(limits, result.basis)
                losses.append(min(result.master.value - value, most))
            scores.append(score(losses[0], losses[1]))
        order = np.argsort(-np.array(scores), kind="stable")[:MAX_TRIALS]
        return [ranked[k] for k in order.tolist()]

    def _strong_branch(self, node: OpenNode, result: NodeResult, candidate: Candidate) -> tuple[Child, Child]:
        """Bound both children of a split with few rounds, and record their losses."""
        children = []
        for is_high in (False, True):
            limits = node.limits.narrowed(self._tables, candidate.branch, is_high=is_high)
            if self._is_empty(limits, candidate.branch.job):
                children.append(Child(limits=limits, point=None))
                continue
            bounded = self._bounded(limits, result.point, TRIAL_EFFORT, result.basis, self._is_over)
            self._pseudo_costs.record(candidate, result.point.bound - bounded.point.bound, is_high=is_high)
            children.append(Child(limits=limits, point=bounded.point, basis=bounded.basis))
        return children[0], children[1]

    def _is_empty(self, limits: BranchRestrictions, job: int) -> bool:
        return bool(limits.is_admitted[job]) and not self.bounder.pricer.has_schedule(job, limits)

    def _make_children(
        self, node: OpenNode, result: NodeResult, branch: Branch, children: tuple[Child, Child] | None
    ) -> None:
        """Split a node and open its children, at their own dual points if they were tried, otherwise at the parent's."""
        if children is None:
            made = []
            for is_high in (False, True):
                limits = node.limits.narrowed(self._tables, branch, is_high=is_high)
                point = None if self._is_empty(limits, branch.job) else result.point
                made.append(Child(limits=limits, point=point, basis=result.basis))
            children = (made[0], made[1])
        for opened in self.tree.split(node, branch, *children):
            if opened is not None:
                self.tree.put_back(opened, opened.point)


def _key(branch: Branch) -> tuple[str, int, int, int, int]:
    return branch.kind.value, branch.job, branch.value, branch.server_class, branch.slot

"""Branch and price, put together: nodes by bound, plans by diving, splits by strong branching."""

from collections.abc import Callable
from dataclasses import replace

from optim.core.driver import AbstractIteration, Monitor, Standing
from optim.core.status import Termination
from optim.models.admission.instance import AdmissionInstance
from optim.models.admission.plan import AdmissionPlan
from optim.models.admission.proof import Branch
from optim.solvers.admission.pricing.capacity_rows import CapacityRows
from optim.solvers.admission.pricing.class_pricing import PricedSchedules
from optim.solvers.admission.pricing.job_tables import JobTables
from optim.solvers.admission.tree.branching import (
    Candidate,
    PseudoCosts,
    count_candidates,
    score,
    value_candidates,
)
from optim.solvers.admission.tree.branching_tree import Child, OpenNode, SearchTree
from optim.solvers.admission.tree.diving import chosen, dive, is_whole
from optim.solvers.admission.tree.node_bound import Effort, NodeBounder, NodePoint, NodeResult
from optim.solvers.admission.tree.node_master import MasterBasis
from optim.solvers.admission.tree.node_pricing import NodeLimits
from optim.solvers.admission.tree.relieving import relieving
from optim.solvers.admission.tree.splitting import split

ROOT_EFFORT = Effort(most_rounds=2_000, most_cut_rounds=100, most_count_rounds=100, least_gain=1e-3)
NODE_EFFORT = Effort(most_rounds=400, most_cut_rounds=6, most_count_rounds=0, least_gain=0.02)
COUNT_EFFORT = replace(NODE_EFFORT, most_count_rounds=1)
LEAF_EFFORT = Effort(most_rounds=5_000, most_cut_rounds=6, most_count_rounds=0, least_gain=0.02)
TRIAL_EFFORT = Effort(most_rounds=12, most_cut_rounds=0, most_count_rounds=0, least_gain=1.0)
"""Rounds of pricing and of cuts at the root, at other nodes, at some of them, where nothing is left to split, and on trial.

Cuts of counts are dense rows, with which a node takes the master several times as long: those of the root that have a
price there lower all nodes' bounds, and more of them at every node cost more than they cut off.
"""

COUNT_EVERY = 25
"""Nodes between two at which cuts of counts are looked for."""

MOST_TRIALS = 8
"""Splits of a node that are tried before one is chosen."""

RELIABLE = 4
"""Losses known of a kind of split and job from which it is no longer tried."""

COUNT_CANDIDATES = 12
DIVE_EVERY = 25
"""Nodes between two dives for plans."""

MOST_SCHEDULES, MOST_CUTS = 6_000, 3_000
"""What the master may hold before it forgets what was not used lately."""


class TreeSearch(AbstractIteration[AdmissionPlan]):
    """One search of a tree.

    Parameters
    ----------
    tables, rows
        The instance.
    plan
        A feasible plan to start from.
    improve
        Return a feasible plan found from the best known one.
    tol
        Relative gap at which the plan counts as optimal.
    monitor
        Told and asked after every round of pricing.
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
    ) -> None:
        self._tables = tables
        self._instance: AdmissionInstance = tables.instance
        self.bounder = NodeBounder(tables, rows)
        limits = NodeLimits.free(tables)
        self.tree = SearchTree(limits, self.bounder.free_point())
        self.plan, self.record = plan, plan.objective(tables.instance)
        self._improve, self._tol, self._monitor = improve, tol, monitor
        self._pseudo_costs = PseudoCosts()
        self.num_bounded = 0
        self.num_unsplittable = 0

    @property
    def cutoff(self) -> float:
        """Nodes of no higher bound hold no plan worth looking for."""
        return self.record + 0.5 * self._tol * max(1.0, abs(self.record))

    @property
    def bound(self) -> float:
        """What is proven of all plans."""
        return max(self.tree.bound, self.record)

    def is_done(self) -> bool:
        """Tell whether no node is open."""
        return self.tree.num_open == 0

    def step(self) -> None:
        """Take the open node of the largest bound, and close or split it; told to stop in between, put it back."""
        node = self.tree.take()
        if node.point.bound <= self.cutoff:
            self.tree.close(node, node.point)
        else:
            self._work_on(node)

    def standing(self) -> Standing:
        """Tell how many nodes are bounded, and how many wait."""
        return Standing(
            iterations=self.num_bounded,
            objective=self.record,
            bound=self.bound,
            figures={"open": float(self.tree.num_open)},
        )

    def finish(self, reason: Termination | None) -> AdmissionPlan:
        """Return the best plan; the tree is what is proven."""
        return self.plan

    def _is_over_at(self, bound: float) -> bool:
        """Note what is proven by now of the node that was taken, and ask whether to stop."""
        self.tree.lower(bound)
        return self._is_over()

    def _is_over(self, _: float = 0.0) -> bool:
        standing = self.standing()
        self._monitor.show(standing)
        return self._monitor.is_over(standing)

    def _work_on(self, node: OpenNode) -> None:
        """Bound a node, then close or split it."""
        is_root = self.num_bounded == 0
        self.bounder.master.shrink(MOST_SCHEDULES, MOST_CUTS)
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
            # Nothing is left to split, so what the rounds of pricing didn't prove would never be proven.
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
        candidates = self._candidates(node, result)
        if is_time_for_plans:
            self._dive(node, result)
        if not candidates or result.point.bound <= self.cutoff:
            self.tree.close(node, result.point)
        else:
            self._split(node, result, candidates)

    def _is_lagging_leaf(self, node: OpenNode, result: NodeResult) -> bool:
        """Return whether a node can't be split although its bound isn't down to the master's value yet."""
        if result.master is None or result.is_converged or self._is_over():
            return False
        return is_whole(result.master.weight) or not self._candidates(node, result)

    def _bounded(
        self,
        limits: NodeLimits,
        start: NodePoint,
        effort: Effort,
        basis: MasterBasis | None,
        should_stop: Callable[[float], bool],
    ) -> NodeResult:
        """Bound a node; what the bound of the rounds says of the node that was taken, `should_stop` knows."""
        return self.bounder.bound(
            limits, start, cutoff=self.cutoff, effort=effort, should_stop=should_stop, basis=basis
        )

    def _settle(self, node: OpenNode, result: NodeResult, schedules: PricedSchedules) -> None:
        """Deal with a whole point: it is a plan, or single servers don't hold what classes do."""
        placed = split(self._tables, schedules, self._is_over)
        if isinstance(placed, AdmissionPlan):
            # Where the bound lags behind the master, by rounding or for want of rounds, it has to stand: nothing is
            # left to split.
            self._adopt(placed)
            self.tree.close(node, result.point)
            return
        branch = relieving(node.limits, self._tables, schedules, placed)
        if branch is not None:
            self._make_children(node, result, branch, None)
        elif placed.is_proven:
            # Whatever the node leaves puts at least as many units there.
            self.tree.close_as_empty(node)
        else:
            self.num_unsplittable += 1
            self.tree.close(node, result.point)

    def _adopt(self, plan: AdmissionPlan | None) -> None:
        if plan is not None and plan.objective(self._instance) > self.record:
            self.plan, self.record = plan, plan.objective(self._instance)

    def _dive(self, node: OpenNode, result: NodeResult) -> None:
        self._adopt(
            dive(self._tables, self.bounder, node.limits, result, cutoff=self.cutoff, should_stop=self._is_over)
        )

    def _candidates(self, node: OpenNode, result: NodeResult) -> list[Candidate]:
        """Return the splits worth considering: on what earns first, else on counts."""
        assert result.master is not None
        schedules, weight = self.bounder.master.schedules, result.master.weight
        return value_candidates(schedules, weight, node.limits.is_admitted) or count_candidates(
            schedules, weight, self._tables.num_jobs, COUNT_CANDIDATES
        )

    def _split(self, node: OpenNode, result: NodeResult, candidates: list[Candidate]) -> None:
        """Choose a split by expected or tried losses, and make its children."""
        default = max(result.point.bound - self.record, 0.0)
        ranked = sorted(
            candidates, key=lambda candidate: (-self._pseudo_costs.score(candidate, default), _key(candidate.branch))
        )
        best: tuple[float, Branch, tuple[Child, Child] | None] | None = None
        for candidate in ranked[:MOST_TRIALS]:
            if self._is_over():
                break
            if self._pseudo_costs.number(candidate) >= RELIABLE:
                worth, children = self._pseudo_costs.score(candidate, default), None
            else:
                children = self._tried(node, result, candidate)
                losses = [
                    default if child.point is None else result.point.bound - child.point.bound for child in children
                ]
                worth = score(losses[0], losses[1])
            if best is None or worth > best[0]:
                best = (worth, candidate.branch, children)
        if best is None:
            self.tree.put_back(node, result.point)
        else:
            self._make_children(node, result, best[1], best[2])

    def _tried(self, node: OpenNode, result: NodeResult, candidate: Candidate) -> tuple[Child, Child]:
        """Bound both children of a split a little, and learn from it."""
        children = []
        for is_high in (False, True):
            limits = node.limits.narrowed(self._tables, candidate.branch, is_high=is_high)
            if self._is_empty(limits, candidate.branch.job):
                children.append(Child(limits=limits, point=None))
                continue
            found = self._bounded(limits, result.point, TRIAL_EFFORT, result.basis, self._is_over)
            self._pseudo_costs.record(candidate, result.point.bound - found.point.bound, is_high=is_high)
            children.append(Child(limits=limits, point=found.point, basis=found.basis))
        return children[0], children[1]

    def _is_empty(self, limits: NodeLimits, job: int) -> bool:
        return bool(limits.is_admitted[job]) and not self.bounder.pricer.has_schedule(job, limits)

    def _make_children(
        self, node: OpenNode, result: NodeResult, branch: Branch, children: tuple[Child, Child] | None
    ) -> None:
        """Split a node; both children are open, at their own points or at their parent's."""
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

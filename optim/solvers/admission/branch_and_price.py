"""Branch and price: plans on real servers, proven optimal by a tree that the checker verifies.

Each node is a packing LP over server classes with cuts of single servers and of counts, solved by column
generation. A split restricts single jobs (rejected or admitted, completed by a slot or later, counts in a class and slot),
and pricing applies these restrictions exactly. Leaves store their dual points, which together are the proof.

References
----------
Barnhart et al., "Branch-and-price: column generation for solving huge integer programs", 1998,
DOI 10.1287/opre.46.3.316. Achterberg, Koch, Martin, "Branching rules revisited", 2005,
DOI 10.1016/j.orl.2004.04.002.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from optim.core.driver import Monitor, Outcome, run_iteration
from optim.core.errors import check_in
from optim.core.registry import register
from optim.core.solution import Termination, relative_gap
from optim.core.stopping import IterationLimit
from optim.models.admission.decision import AdmissionPlan
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.branching.support_search import CompactProgramme, Support, SupportSearch
from optim.solvers.admission.branching.tree import TreeSearch, nothing
from optim.solvers.admission.local_search.plan_moves import Neighbourhood
from optim.solvers.admission.packing.capacity_rows import CapacityRows
from optim.solvers.admission.packing.dual_points import OPTIMALITY_TOL
from optim.solvers.admission.packing.packing_lp import PackingLP, PackingResult
from optim.solvers.admission.packing.subgradient import SubgradientOptions
from optim.solvers.admission.pricing.classes import JobTables
from optim.solvers.admission.scaling import ScaledSolver
from optim.solvers.admission.warm_up import (
    compile_columns,
    compile_first_order,
    compile_moves,
    compile_nodes,
    has_large_master,
)

FIRST_SCALES = (1.0, 0.5, 0.2)
"""Price scales for the insertions of the first plan."""

GUIDE_TOL = 1e-4
"""Relative gap of the packing LP whose prices guide the search."""

HOTTEST, COLDEST, STEPS, MAX_RUIN = 0.2, 0.002, 20, 8
"""Acceptance temperatures of the search for plans, as shares of an admitted job's mean value, and their number of steps;
and the maximal number of jobs that it removes at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchAndPriceOptions:
    """Options of `branch-and-price`.

    Parameters
    ----------
    tol
        Relative gap at which the search ends: with `optimal` up to 1e-6, with `gap_limit` above.
    search_moves
        Moves of the neighbourhood search at the root, and whenever the tree dives for a plan.
    max_nodes
        Nodes after which the search ends with `node_limit`; no limit by default.
    """

    tol: float = 1e-6
    search_moves: int = 20_000
    max_nodes: int | None = None

    def __post_init__(self) -> None:
        check_in("(0, 1)", self, "tol")
        check_in("[0, inf)", self, "search_moves", "max_nodes")


@register("branch-and-price", problem="admission")
class BranchAndPrice(ScaledSolver[BranchAndPriceOptions]):
    """Search a tree of packing LPs until the plan is proven optimal."""

    summary = "proven optimal plans on real servers, by a tree of packing LPs with server and count cuts"
    options_type = BranchAndPriceOptions

    def warm_up(self, instance: AdmissionInstance, options: BranchAndPriceOptions) -> None:
        """Compile pricing, masters, moves and cuts."""
        compile_columns(is_shared=instance.has_shared_servers)
        if has_large_master(instance):
            compile_first_order()
        compile_moves(is_shared=instance.has_shared_servers)
        compile_nodes(is_shared=instance.has_shared_servers)

    def run(self, instance: AdmissionInstance, options: BranchAndPriceOptions, monitor: Monitor, seed: int) -> Outcome:
        """Return the best plan and the bound of the tree's leaves; any stop leaves both."""
        return grow_tree(instance, options, monitor, seed, task=self.name)


def keep(plan: AdmissionPlan) -> AdmissionPlan:
    """Return the plan unchanged."""
    return plan


class Partner(Protocol):
    """A search for plans that runs in parallel with a tree."""

    def exchange(self, plan: AdmissionPlan) -> AdmissionPlan | None:
        """Pass the tree's best plan; return a better one found since the last call, or None."""
        ...

    def search_fully(self, support: Support, cutoff: float) -> None:
        """Receive a support in which a short search of the tree ended at its limit."""
        ...

    def stop(self) -> None:
        """End all threads, and wait for them."""
        ...

    def counts(self) -> dict[str, float]:
        """Return counts for the solution's statistics."""
        ...


class PlanGuide:
    """A neighbourhood search: it gives the tree its first plan, and continues whenever the tree dives.

    Its insertions use central prices of the packing LP. Prices of the tree's masters are vertices of the dual polyhedron, and
    lead to worse plans.
    """

    def __init__(self, tables: JobTables, rows: CapacityRows, num_moves: int, monitor: Monitor, seed: int) -> None:
        self._tables, self._rows, self._seed = tables, rows, seed
        self.num_moves, self._monitor = num_moves, monitor
        self.should_stop: Callable[[], bool] = monitor.is_over
        """Called between moves."""
        self._search: Neighbourhood | None = None
        self.relaxed: PackingResult | None = None
        """The packing LP's result, once there is a first plan."""

    def first_plan(self) -> AdmissionPlan:
        """Return a plan built by insertions at the LP's prices."""
        tables, rows = self._tables, self._rows
        if tables.num_jobs == 0 or self._monitor.is_over():
            return AdmissionPlan.from_rows([], [])
        first, between = SubgradientOptions(num_steps=60, add_every=4), SubgradientOptions(num_steps=10)
        relaxed = PackingLP(tables, rows).run(self._monitor.part(), tol=GUIDE_TOL, first=first, between=between)
        self.relaxed = relaxed
        self._search = Neighbourhood(tables, rows, relaxed.point, self._seed, relaxed.weight())
        self._search.fill_up(relaxed.point.payoff, FIRST_SCALES)
        return self._search.best_plan()

    def improve(self, plan: AdmissionPlan) -> AdmissionPlan:
        """Return a plan found by continuing from the best known one."""
        search = self._search
        if search is None:
            return plan
        search.return_to_best()
        if plan.objective(self._tables.instance) > search.incumbent_value:
            search.adopt(plan)
        unit = search.incumbent_value / max(1, int((search.best.completion >= 0).sum()))
        for share in np.geomspace(HOTTEST, COLDEST, STEPS).tolist():
            search.run(self.num_moves // STEPS, max(share * unit, 1e-12), MAX_RUIN, self.should_stop)
        return search.best_plan()


def grow_tree(
    instance: AdmissionInstance,
    options: BranchAndPriceOptions,
    monitor: Monitor,
    seed: int,
    *,
    task: str,
    start_partner: Callable[[PlanGuide, AdmissionPlan, CompactProgramme], Partner] | None = None,
) -> Outcome:
    """Grow a tree until the best plan is proven optimal, or the monitor ends it.

    Parameters
    ----------
    instance, options, monitor, seed
        The arguments of a solver's `run`.
    task
        Name for the progress.
    start_partner
        Starts a parallel search for plans from the first one; the tree itself then only bounds and branches.
    """
    with monitor.clock.phase("build"):
        tables = JobTables.build(instance)
        rows = CapacityRows.of(tables)
    limits = () if options.max_nodes is None else (IterationLimit(options.max_nodes, Termination.NODE_LIMIT),)
    tree_monitor = monitor.part(*limits)
    with monitor.clock.phase("solve"):
        guide = PlanGuide(tables, rows, options.search_moves, monitor, seed)
        first = guide.first_plan()
        programme = CompactProgramme(instance)
        partner = None if start_partner is None else start_partner(guide, first, programme)
        try:
            search = TreeSearch(
                tables,
                rows,
                first,
                improve=guide.improve if partner is None else keep,
                find_elsewhere=nothing if partner is None else partner.exchange,
                relaxed=guide.relaxed,
                support_search=SupportSearch(programme, None if partner is None else partner.search_fully),
                tol=options.tol,
                monitor=tree_monitor,
            )
            plan = run_iteration(search, tree_monitor, task=task)
        finally:
            if partner is not None:
                partner.stop()
    tree, master, tol = search.tree, search.bounder.master, min(options.tol, OPTIMALITY_TOL)
    gap = relative_gap(search.incumbent_value, search.bound, monitor.sense)
    is_close = gap is not None and tol < gap <= options.tol
    return Outcome(
        decision=plan,
        objective=search.incumbent_value,
        bound=search.bound,
        proof=tree.proof(rows),
        statement=f"no plan is worth more than {{bound}}: the leaves of a tree of {len(tree)} nodes",
        optimal_statement=f"the plan attains the bound {{bound}} of a tree of {len(tree)} nodes to {tol:g}",
        tol=tol,
        termination=tree_monitor.reason or (Termination.GAP_LIMIT if is_close else None),
        iterations=search.num_bounded,
        counts={
            "nodes": float(len(tree)),
            "open": float(tree.num_open),
            "rounds": float(search.bounder.num_rounds),
            "schedules": float(len(master.schedules)),
            "cuts": float(len(master.cuts)),
            "unsplittable": float(search.num_unsplittable),
            "admitted": float(len(plan.admitted)),
            **({} if partner is None else partner.counts()),
        },
    )

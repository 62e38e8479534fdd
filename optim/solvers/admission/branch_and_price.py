"""Branch and price: plans on real servers, proven optimal by a tree that the checker walks.

Each node is a packing LP over server classes with cuts of single servers, solved by column generation; a
split restricts single jobs (refused or admitted, completed by a slot or later, counts in a class and slot),
which pricing carries exactly. Leaves keep their dual points: together they are the proof.

References
----------
Barnhart et al., "Branch-and-price: column generation for solving huge integer programs", 1998,
DOI 10.1287/opre.46.3.316. Achterberg, Koch, Martin, "Branching rules revisited", 2005,
DOI 10.1016/j.orl.2004.04.002.
"""

from dataclasses import dataclass

import numpy as np

from optim.core.certificate import Certificate
from optim.core.clock import PhaseClock, peak_memory_mb
from optim.core.errors import InvalidOptionError
from optim.core.options import options_as_dict
from optim.core.progress import Progress
from optim.core.registry import SUPPORTED, Support, register
from optim.core.solution import Solution, Stats, relative_gap
from optim.core.status import CertificateKind, PointStatus, Sense, Termination
from optim.core.stopping import SolveState, StoppingCriterion
from optim.models.admission.instance import AdmissionInstance, FloatArray
from optim.models.admission.plan import AdmissionPlan
from optim.solvers.admission.neighbourhood.plan_moves import Neighbourhood
from optim.solvers.admission.packing.packing_lp import PackingLP
from optim.solvers.admission.packing.price_search import Walk
from optim.solvers.admission.pricing.capacity_rows import CapacityRows
from optim.solvers.admission.pricing.job_tables import JobTables
from optim.solvers.admission.tree.tree_search import TreeSearch, TreeState
from optim.solvers.admission.warm_up import compile_loops, compile_moves, compile_nodes

FIRST_SCALES = (1.0, 0.5, 0.2)
"""Price scales at which the first plan is filled up."""

GUIDE_TOL = 1e-4
"""Relative gap to which the packing LP is solved for the search's prices."""

HOTTEST, COLDEST, STEPS, LARGEST_RUIN = 0.2, 0.002, 20, 8
"""Acceptance temperatures of the search beside the tree, as shares of an admitted job's mean value, in so many steps;
and the most jobs that it takes out at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchAndPriceOptions:
    """Options of `branch-and-price`.

    Parameters
    ----------
    tol
        Relative gap at which the plan counts as proven optimal.
    search_moves
        Moves of the neighbourhood search at the root, and whenever the tree dives for a plan.
    max_nodes
        Nodes after which the search ends with `node_limit`; no limit by default.
    """

    tol: float = 1e-6
    search_moves: int = 20_000
    max_nodes: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.tol < 1:
            raise InvalidOptionError(f"tol must be in (0, 1), got {self.tol}")
        if self.search_moves < 0:
            raise InvalidOptionError(f"search_moves must be at least 0, got {self.search_moves}")
        if self.max_nodes is not None and self.max_nodes < 0:
            raise InvalidOptionError(f"max_nodes must be at least 0, got {self.max_nodes}")


@register("branch-and-price", problem="admission")
class BranchAndPrice:
    """Search a tree of packing LPs until the plan is proven optimal."""

    name: str
    problem: str
    summary = "proven optimal plans on real servers, by a tree of packing LPs with server cuts"
    options_type = BranchAndPriceOptions

    def supports(self, instance: AdmissionInstance) -> Support:
        """Instances whose workers and PSs live on different servers are supported."""
        if instance.has_shared_servers:
            return Support(
                False, "its pricing needs workers and PSs on different servers; use compact-milp or column-generation"
            )
        return SUPPORTED

    def solve(
        self,
        instance: AdmissionInstance,
        *,
        options: BranchAndPriceOptions,
        stop: StoppingCriterion,
        seed: int,
        progress: Progress,
    ) -> Solution:
        """Return the best plan and the bound of the tree's leaves; any stop leaves both."""
        clock = PhaseClock()
        with clock.phase("compile"):
            compile_loops()
            compile_moves()
            compile_nodes()
        with clock.phase("build"):
            tables = JobTables.build(instance)
            rows = CapacityRows.of(tables)
        watch = _Watch(clock, options, stop, progress)
        progress.start(self.name, None)
        with clock.phase("solve"):
            guide = _Guide(tables, rows, options, stop, clock, seed)
            search = TreeSearch(
                tables, rows, guide.first_plan(), improve=guide.improve, tol=options.tol, should_stop=watch
            )
            search.run()
        progress.finish()
        return _solution(self, instance, search, rows, watch.reason, options, seed, clock)


class _Watch:
    """The stopping rule and the progress of one search."""

    def __init__(
        self, clock: PhaseClock, options: BranchAndPriceOptions, stop: StoppingCriterion, progress: Progress
    ) -> None:
        self._clock, self._options, self._stop, self._progress = clock, options, stop, progress
        self.reason: Termination | None = None

    def __call__(self, state: TreeState) -> bool:
        figures = {"objective": state.record, "bound": state.bound, "open": float(state.num_open)}
        gap = relative_gap(state.record, state.bound, Sense.MAXIMISE)
        self._progress.update(state.num_nodes, {**figures, "gap": gap})
        if self.reason is None and state.num_nodes == self._options.max_nodes:
            self.reason = Termination.NODE_LIMIT
        if self.reason is None:
            self.reason = self._stop(
                SolveState(
                    elapsed_s=self._clock.elapsed_s,
                    iterations=state.num_nodes,
                    objective=state.record,
                    bound=state.bound,
                )
            )
        return self.reason is not None


class _Guide:
    """A neighbourhood search beside the tree: it gives the first plan, and goes on whenever the tree dives.

    It is guided by central prices of the packing LP; those of the tree's masters are vertices, and worse guides.
    """

    def __init__(
        self,
        tables: JobTables,
        rows: CapacityRows,
        options: "BranchAndPriceOptions",
        stop: StoppingCriterion,
        clock: PhaseClock,
        seed: int,
    ) -> None:
        self._tables, self._rows, self._seed = tables, rows, seed
        self._moves, self._stop, self._clock = options.search_moves, stop, clock
        self._search: Neighbourhood | None = None

    def first_plan(self) -> AdmissionPlan:
        """Return a plan filled up at the LP's prices."""
        is_over = self._stop(SolveState(elapsed_s=self._clock.elapsed_s)) is not None
        if self._tables.num_jobs == 0 or is_over:
            return AdmissionPlan.from_rows([], [])
        walk = Walk(num_steps=10)
        relaxed = PackingLP(self._tables, self._rows, self._clock).run(
            tol=GUIDE_TOL, first=Walk(num_steps=60, add_every=4), between=walk, stop=self._stop
        )
        weight: FloatArray = np.bincount(relaxed.pool.job, relaxed.x, self._tables.num_jobs).astype(
            np.float64, copy=False
        )
        self._search = Neighbourhood(self._tables, self._rows, relaxed.point, self._seed, weight)
        order = np.argsort(-relaxed.point.payoff, kind="stable")
        for scale in FIRST_SCALES:
            self._search.construct(order, scale)
        return self._search.best_plan()

    def improve(self, plan: AdmissionPlan) -> AdmissionPlan:
        """Return a plan found by going on from the best known one."""
        search = self._search
        if search is None:
            return plan
        search.return_to_best()
        if plan.objective(self._tables.instance) > search.record:
            search.adopt(plan)
        unit = search.record / max(1, int((search.best.completion >= 0).sum()))
        for share in np.geomspace(HOTTEST, COLDEST, STEPS).tolist():
            search.run(self._moves // STEPS, max(share * unit, 1e-12), max(share * unit, 1e-12), LARGEST_RUIN)
        return search.best_plan()


def _solution(
    solver: BranchAndPrice,
    instance: AdmissionInstance,
    search: TreeSearch,
    rows: CapacityRows,
    reason: Termination | None,
    options: BranchAndPriceOptions,
    seed: int,
    clock: PhaseClock,
) -> Solution:
    gap = relative_gap(search.record, search.bound, Sense.MAXIMISE)
    is_optimal = gap is not None and gap <= options.tol
    statement = (
        f"the plan attains the bound {search.bound:.9g} of a tree of {len(search.tree)} nodes to {options.tol:g}"
        if is_optimal
        else f"no plan is worth more than {search.bound:.9g}: the leaves of a tree of {len(search.tree)} nodes"
    )
    return Solution(
        problem=solver.problem,
        instance=instance.name,
        solver=solver.name,
        sense=Sense.MAXIMISE,
        termination=Termination.OPTIMAL if is_optimal else Termination.COMPLETED if reason is None else reason,
        primal=PointStatus.FEASIBLE,
        dual=PointStatus.FEASIBLE,
        decision=search.plan,
        objective=search.record,
        bound=search.bound,
        certificate=Certificate(
            kind=CertificateKind.OPTIMALITY if is_optimal else CertificateKind.BOUND,
            statement=statement,
            proof=search.tree.proof(rows),
        ),
        seed=seed,
        options=options_as_dict(options),
        stats=Stats(
            seconds=clock.seconds,
            iterations=search.num_bounded,
            memory_mb=peak_memory_mb(),
            counts={
                "nodes": float(len(search.tree)),
                "open": float(search.tree.num_open),
                "rounds": float(search.bounder.num_rounds),
                "schedules": float(len(search.bounder.master.schedules)),
                "cuts": float(len(search.bounder.master.cuts)),
                "unsplittable": float(search.num_unsplittable),
                "admitted": float(len(search.plan.admitted)),
            },
        ),
    )

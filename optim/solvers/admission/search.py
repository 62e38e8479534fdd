"""Plans on real servers with a certified gap: LP prices, then neighbourhood search.

1. The packing LP is solved by column generation and tightened by cuts of single servers: its dual point is
   the bound's proof, its prices guide every insertion.
2. Jobs are inserted by falling LP payoff at full, then at lower prices (posted prices with the residual
   dynamic programme).
3. Ruin and re-create: a few jobs are taken out, they and some refused ones re-inserted at scaled and
   noised prices, accepted by annealing; cycles of cooling restart from the best plan.

Source of the neighbourhood: Shaw, "Using constraint programming and local search methods to solve vehicle
routing problems", 1998, DOI 10.1007/3-540-49481-2_30; Schrimpf et al., "Record breaking optimization
results using the ruin and recreate principle", 2000, DOI 10.1006/jcph.1999.6413.
"""

from dataclasses import dataclass

import numpy as np

from optim.core.clock import PhaseClock
from optim.core.errors import InvalidOptionError
from optim.core.progress import Progress
from optim.core.registry import SUPPORTED, Support, register
from optim.core.solution import Solution, relative_gap
from optim.core.status import Sense, Termination
from optim.core.stopping import AnyOf, SolveState, StoppingCriterion, TimeLimit
from optim.models.admission.instance import AdmissionInstance
from optim.models.admission.plan import AdmissionPlan
from optim.solvers.admission.cut_rounds import solve_with_cuts
from optim.solvers.admission.job_tables import JobTables
from optim.solvers.admission.packing_lp import PackingResult
from optim.solvers.admission.relaxed_solution import OPTIMALITY_TOL, relaxed_solution
from optim.solvers.admission.rows import CapacityRows
from optim.solvers.admission.warm_up import compile_loops, compile_moves

MOVES_A_CHECK = 200
"""Moves between two looks at the stopping rule."""

CONSTRUCTION_SCALES = (1.0, 0.7, 0.4, 0.1)
"""Price scales at which the first plan is filled up, from choosy to greedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """Options of `search`.

    Parameters
    ----------
    lp_tol
        Relative gap at which the packing LP counts as solved.
    lp_share
        Largest share of the time left that the LP may take.
    cut_rounds
        Most rounds of server cuts on the LP, within its share of the time; 0 for none.
    num_moves
        Moves after which the search ends by itself.
    cycle_moves
        Moves of one cooling cycle; each cycle starts from the best plan.
    start_heat, end_heat
        Acceptance temperatures at both ends of a cycle, as shares of the mean value of an admitted job.
    largest_ruin
        Most jobs taken out at once.
    """

    lp_tol: float = 1e-4
    lp_share: float = 0.4
    cut_rounds: int = 4
    num_moves: int = 200_000
    cycle_moves: int = 100_000
    start_heat: float = 0.1
    end_heat: float = 0.002
    largest_ruin: int = 6

    def __post_init__(self) -> None:
        for name in ("lp_tol", "lp_share"):
            if not 0 < getattr(self, name) < 1:
                raise InvalidOptionError(f"{name} must be in (0, 1), got {getattr(self, name)}")
        for name in ("num_moves", "cut_rounds"):
            if getattr(self, name) < 0:
                raise InvalidOptionError(f"{name} must be at least 0, got {getattr(self, name)}")
        for name in ("cycle_moves", "largest_ruin"):
            if getattr(self, name) < 1:
                raise InvalidOptionError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 < self.end_heat <= self.start_heat:
            raise InvalidOptionError(
                f"heats must satisfy 0 < end_heat <= start_heat, got {self.end_heat} and {self.start_heat}"
            )


@register("search", problem="admission")
class Search:
    """Neighbourhood search guided by the packing LP's prices, with the LP's bound as certificate."""

    name: str
    problem: str
    summary = "plans on real servers by LP prices and neighbourhood search, with a certified gap"
    options_type = SearchOptions

    def supports(self, instance: AdmissionInstance) -> Support:
        """Instances whose workers and PSs live on different servers are supported."""
        if instance.has_shared_servers:
            return Support(
                False,
                "its insertions need workers and PSs on different servers; use online or price-and-branch",
            )
        return SUPPORTED

    def solve(
        self,
        instance: AdmissionInstance,
        *,
        options: SearchOptions,
        stop: StoppingCriterion,
        seed: int,
        progress: Progress,
    ) -> Solution:
        """Return the best plan found and the LP's bound."""
        clock = PhaseClock()
        with clock.phase("compile"):
            compile_loops()
            compile_moves()
        with clock.phase("build"):
            tables = JobTables.build(instance)
            rows = CapacityRows.of(tables)
        with clock.phase("solve"):
            left = stop.remaining_s(clock.elapsed_s)
            share = TimeLimit(options.lp_share * left + clock.elapsed_s) if np.isfinite(left) else None
            relaxed = solve_with_cuts(
                tables,
                rows,
                clock,
                tol=options.lp_tol,
                cut_rounds=options.cut_rounds,
                stop=stop if share is None else AnyOf(stop, share),
                progress=progress,
            )
            plan, termination, moves = _improve(tables, rows, relaxed, options, stop, seed, clock, progress)
        return relaxed_solution(
            self,
            instance,
            plan,
            relaxed,
            rows,
            termination=termination,
            iterations=moves,
            counts={"moves": float(moves)},
            options=options,
            seed=seed,
            clock=clock,
        )


def _improve(
    tables: JobTables,
    rows: CapacityRows,
    relaxed: PackingResult,
    options: SearchOptions,
    stop: StoppingCriterion,
    seed: int,
    clock: PhaseClock,
    progress: Progress,
) -> tuple[AdmissionPlan, Termination, int]:
    """Construct a plan at the LP's prices and improve it move by move."""
    from optim.solvers.admission.neighbourhood import Neighbourhood

    search = Neighbourhood(tables, rows, relaxed.point, seed)
    order = np.argsort(-relaxed.point.payoff, kind="stable")
    for scale in CONSTRUCTION_SCALES:
        search.construct(order, scale)
    bound = relaxed.point.bound
    termination, moves = Termination.COMPLETED, 0
    progress.start("search", options.num_moves)
    while moves < options.num_moves:
        reason = stop(SolveState(elapsed_s=clock.elapsed_s, iterations=moves, objective=search.record, bound=bound))
        if reason is not None:
            termination = reason
            break
        if (relative_gap(search.record, bound, Sense.MAXIMISE) or 0.0) <= OPTIMALITY_TOL:
            break
        place = moves % options.cycle_moves
        if place == 0:
            search.return_to_best()
        unit = search.record / max(1, int((search.best.completion >= 0).sum()))
        cooling = (options.end_heat / options.start_heat) ** (place / options.cycle_moves)
        heat = max(options.start_heat * cooling * unit, 1e-12)
        search.run(MOVES_A_CHECK, heat, heat, options.largest_ruin)
        moves += MOVES_A_CHECK
        progress.update(
            moves,
            {
                "objective": search.record,
                "bound": bound,
                "gap": relative_gap(search.record, bound, Sense.MAXIMISE),
            },
        )
    progress.finish()
    return search.best_plan(), termination, moves

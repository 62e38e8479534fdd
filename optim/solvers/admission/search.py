"""Plans on real servers with a certified gap: LP prices, then neighbourhood search.

1. The packing LP is solved by column generation and tightened by cuts of single servers: its dual point is
   the bound's proof, its prices guide every insertion.
2. Jobs are inserted by falling LP payoff at full, then at lower prices (posted prices with the residual
   dynamic programme); and, for a second plan, in stages with re-pricing in between (`price_dive`).
3. Ruin and re-create: a few jobs are taken out, they and some refused ones re-inserted at scaled and
   noised prices, accepted by annealing. Cycles of cooling, each twice as long as the one before up to a
   limit, restart from the best plan. Two chains run side by side, one a thread: the first restarts from
   the best plan of both, the other from its own.

Source of the neighbourhood: Shaw, "Using constraint programming and local search methods to solve vehicle
routing problems", 1998, DOI 10.1007/3-540-49481-2_30; Schrimpf et al., "Record breaking optimization
results using the ruin and recreate principle", 2000, DOI 10.1006/jcph.1999.6413.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from optim.core.clock import PhaseClock
from optim.core.errors import InvalidOptionError
from optim.core.progress import Progress
from optim.core.registry import SUPPORTED, Support, register
from optim.core.solution import Solution, relative_gap
from optim.core.status import Sense, Termination
from optim.core.stopping import AnyOf, SolveState, StoppingCriterion, TimeLimit
from optim.models.admission.instance import AdmissionInstance, FloatArray
from optim.models.admission.plan import AdmissionPlan
from optim.solvers.admission.neighbourhood.price_dive import dive
from optim.solvers.admission.packing.cut_rounds import solve_with_cuts
from optim.solvers.admission.packing.packing_lp import PackingResult
from optim.solvers.admission.packing.relaxed_solution import OPTIMALITY_TOL, relaxed_solution
from optim.solvers.admission.pricing.capacity_rows import CapacityRows
from optim.solvers.admission.pricing.job_tables import JobTables
from optim.solvers.admission.warm_up import compile_cuts, compile_loops, compile_moves

if TYPE_CHECKING:
    from optim.solvers.admission.neighbourhood.plan_moves import Neighbourhood

MOVES_A_CHECK = 200
"""Moves of each chain between two looks at the stopping rule."""

DEFAULT_MOVES = 200_000
"""Moves of each chain where nothing else ends the search."""

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
        Moves of each chain after which the search ends by itself; by default 200,000, and no limit where the
        stopping rule has a time limit.
    dives
        Whether the last chain starts from a dive with re-pricing.
    chains
        Chains side by side. Their number changes the plan; how many processors there are doesn't.
    first_cycle, cycle_moves
        Moves of the first cooling cycle, and of the longest.
    start_heat, end_heat
        Acceptance temperatures at both ends of a cycle, as shares of the mean value of an admitted job.
    largest_ruin
        Most jobs taken out at once.
    """

    lp_tol: float = 1e-4
    lp_share: float = 0.4
    cut_rounds: int = 4
    num_moves: int | None = None
    dives: bool = True
    chains: int = 2
    first_cycle: int = 20_000
    cycle_moves: int = 320_000
    start_heat: float = 0.05
    end_heat: float = 0.002
    largest_ruin: int = 10

    def __post_init__(self) -> None:
        for name in ("lp_tol", "lp_share"):
            if not 0 < getattr(self, name) < 1:
                raise InvalidOptionError(f"{name} must be in (0, 1), got {getattr(self, name)}")
        for name in ("num_moves", "cut_rounds"):
            if (getattr(self, name) or 0) < 0:
                raise InvalidOptionError(f"{name} must be at least 0, got {getattr(self, name)}")
        for name in ("chains", "first_cycle", "cycle_moves", "largest_ruin"):
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
            if options.cut_rounds:
                compile_cuts()
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
            counts={"moves": float(moves * options.chains)},
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
    num_moves = options.num_moves
    if num_moves is None and not np.isfinite(stop.remaining_s(clock.elapsed_s)):
        num_moves = DEFAULT_MOVES
    chains = _chains(tables, rows, relaxed, options, stop, seed, clock)
    bound = relaxed.point.bound
    termination, moves, place, cycle = Termination.COMPLETED, 0, 0, options.first_cycle
    progress.start("search", num_moves)
    with ThreadPoolExecutor(len(chains)) as threads:
        while num_moves is None or moves < num_moves:
            record = max(chain.record for chain in chains)
            reason = stop(SolveState(elapsed_s=clock.elapsed_s, iterations=moves, objective=record, bound=bound))
            if reason is not None:
                termination = reason
                break
            gap = relative_gap(record, bound, Sense.MAXIMISE)
            if (gap or 0.0) <= OPTIMALITY_TOL:
                break
            if place == 0:
                _restart(chains)
            heat = _heat(place / cycle, options)
            list(threads.map(lambda chain, heat=heat: _run(chain, heat, options.largest_ruin), chains))
            moves, place = moves + MOVES_A_CHECK, place + MOVES_A_CHECK
            if place >= cycle:
                place, cycle = 0, min(2 * cycle, options.cycle_moves)
            progress.update(moves, {"objective": record, "bound": bound, "gap": gap})
    progress.finish()
    return max(chains, key=lambda chain: chain.record).best_plan(), termination, moves


def _chains(
    tables: JobTables,
    rows: CapacityRows,
    relaxed: PackingResult,
    options: SearchOptions,
    stop: StoppingCriterion,
    seed: int,
    clock: PhaseClock,
) -> list["Neighbourhood"]:
    """Return the chains, each with a first plan."""
    from optim.solvers.admission.neighbourhood.plan_moves import Neighbourhood

    order = np.argsort(-relaxed.point.payoff, kind="stable")
    weight: FloatArray = np.bincount(relaxed.pool.job, relaxed.x, tables.num_jobs).astype(np.float64, copy=False)
    chains = []
    for child in np.random.SeedSequence(seed).spawn(options.chains):
        chain = Neighbourhood(tables, rows, relaxed.point, child, weight)
        for scale in CONSTRUCTION_SCALES:
            chain.construct(order, scale)
        chains.append(chain)
    if options.dives:
        plan = dive(tables, rows, relaxed.point, weight, stop=stop, clock=clock)
        if plan.objective(tables.instance) > chains[-1].record:
            chains[-1].adopt(plan)
    return chains


def _restart(chains: list["Neighbourhood"]) -> None:
    """Return each chain to its own best plan, and the first one to the best of all."""
    leader = max(chains, key=lambda chain: chain.record)
    for chain in chains:
        chain.return_to_best()
    if leader is not chains[0]:
        chains[0].adopt(leader.best_plan())


def _heat(share: float, options: SearchOptions) -> float:
    """Return the acceptance temperature after a share of a cycle, as a share of an admitted job's mean value."""
    cooling: float = (options.end_heat / options.start_heat) ** share
    return options.start_heat * cooling


def _run(chain: "Neighbourhood", heat: float, largest_ruin: int) -> None:
    """Run one chain's moves at a heat."""
    unit = chain.record / max(1, int((chain.best.completion >= 0).sum()))
    temperature = max(heat * unit, 1e-12)
    chain.run(MOVES_A_CHECK, temperature, temperature, largest_ruin)

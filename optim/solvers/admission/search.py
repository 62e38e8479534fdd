"""Plans on real servers with a certified gap: LP prices, then neighbourhood search.

1. The packing LP is solved by column generation and tightened, first by cuts of single servers, whose prices guide every
   insertion, then by cuts of the counts in a class. The LP's dual point proves the bound.
2. Jobs are inserted by decreasing LP payoff at full prices, then at lower ones (posted prices with the residual
   dynamic programme). A second plan is built in stages with re-pricing in between (`local_search.plan_moves`).
3. Ruin and re-create: a few jobs are removed, then they and some rejected ones are inserted at scaled and
   noised prices, accepted by annealing. Cooling cycles restart from the best plan; each is twice as long as
   the one before, up to a limit. Two chains run in parallel, one per thread: the first restarts from
   the best plan of both, the second from its own best plan.
4. Single units of the best plan are moved until no job gains (`local_search.unit_moves`).

Source of the neighbourhood: Shaw, "Using constraint programming and local search methods to solve vehicle
routing problems", 1998, DOI 10.1007/3-540-49481-2_30; Schrimpf et al., "Record breaking optimization
results using the ruin and recreate principle", 2000, DOI 10.1006/jcph.1999.6413.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from optim.core.driver import AbstractIteration, Monitor, Outcome, SolverState, run_iteration
from optim.core.errors import InvalidOptionError, check_in
from optim.core.registry import register
from optim.core.solution import Sense, Termination, relative_gap
from optim.core.stopping import TimeReserve
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.local_search.plan_moves import MOVES_A_CHECK, Neighbourhood, dive
from optim.solvers.admission.packing.capacity_rows import CapacityRows
from optim.solvers.admission.packing.dual_points import OPTIMALITY_TOL
from optim.solvers.admission.packing.packing_lp import CutLoopResult, PackingResult, solve_with_cuts
from optim.solvers.admission.pricing.classes import JobTables
from optim.solvers.admission.scaling import ScaledSolver
from optim.solvers.admission.warm_up import (
    compile_columns,
    compile_count_cuts,
    compile_cuts,
    compile_first_order,
    compile_moves,
    has_large_master,
)

COUNT_ROUNDS, COUNT_ROWS = 20, 1_000
"""Default rounds of count cuts, and the maximal number of capacity rows of instances that get them. On small
instances they close 28 to 62 % of the gap after server cuts. On instances with more rows, a round takes too long for what it
gains: 50 s on `heavy-0`."""

DEFAULT_MOVES = 200_000
"""Moves of each chain if no other limit ends the search."""

POLISH_SHARE, MAX_POLISH_S = 0.03, 2.0
"""Share of the time after the packing LP that is reserved for moves of single units, and the maximal number of seconds. On
medium and heavy instances these moves end after 1 to 2 processor seconds."""

CONSTRUCTION_SCALES = (1.0, 0.7, 0.4, 0.1)
"""Price scales for the insertions of the first plan, from selective to greedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """Options of `search`.

    Parameters
    ----------
    lp_tol
        Relative gap at which the packing LP counts as solved.
    lp_share
        Largest share of the remaining time that the LP may take.
    cut_rounds
        Maximum number of rounds of server cuts on the LP, within its share of the time; 0 for none.
    count_rounds
        Maximum number of rounds of count cuts after the server cuts, within the LP's share of the time. Default: 20 for up
        to 1,000 capacity rows, otherwise 0.
    num_moves
        Moves of each chain after which the search ends. Default: 200,000, or no limit if the stopping rule has a
        time limit.
    dives
        Whether the last chain starts from a dive with re-pricing.
    chains
        Parallel chains, at most 1,000. Their number changes the plan; the number of processors doesn't.
    first_cycle
        Moves of the first cooling cycle; each later cycle has twice as many.
    cycle_moves
        Moves of the longest cycle.
    start_temperature
        Acceptance temperature at the start of a cycle, as a share of the mean value of an admitted job.
    end_temperature
        Acceptance temperature at the end of a cycle, as a share of the mean value of an admitted job.
    max_destroyed
        Maximal number of jobs removed at once.
    polish
        Whether to move single units at the end until no job gains.
    """

    lp_tol: float = 1e-4
    lp_share: float = 0.4
    cut_rounds: int = 4
    count_rounds: int | None = None
    num_moves: int | None = None
    dives: bool = True
    chains: int = 2
    first_cycle: int = 20_000
    cycle_moves: int = 320_000
    start_temperature: float = 0.05
    end_temperature: float = 0.002
    max_destroyed: int = 10
    polish: bool = True

    def __post_init__(self) -> None:
        check_in("(0, 1)", self, "lp_tol", "lp_share")
        check_in("[0, inf)", self, "num_moves", "cut_rounds", "count_rounds")
        check_in("[1, inf)", self, "first_cycle", "cycle_moves", "max_destroyed")
        check_in("[1, 1000]", self, "chains")
        if not 0 < self.end_temperature <= self.start_temperature:
            raise InvalidOptionError(
                f"temperatures must satisfy 0 < end_temperature <= start_temperature, got {self.end_temperature} and {self.start_temperature}"
            )


@register("search", problem="admission")
class Search(ScaledSolver[SearchOptions]):
    """Neighbourhood search guided by the packing LP's prices, with the LP's bound as certificate."""

    summary = "plans on real servers by LP prices and neighbourhood search, with a certified gap"
    options_type = SearchOptions

    def is_default_for(self, instance: AdmissionInstance) -> bool:
        """Return True: `search` accepts every instance that `exact`, which has priority, doesn't."""
        return True

    def warm_up(self, instance: AdmissionInstance, options: SearchOptions) -> None:
        """Compile pricing, the master, moves and cuts."""
        compile_columns(is_shared=instance.has_shared_servers)
        if has_large_master(instance):
            compile_first_order()
        compile_moves(is_shared=instance.has_shared_servers)
        if options.cut_rounds:
            compile_cuts()
        if options.count_rounds != 0:
            compile_count_cuts(is_shared=instance.has_shared_servers)

    def run(self, instance: AdmissionInstance, options: SearchOptions, monitor: Monitor, seed: int) -> Outcome:
        """Return the best plan found and the LP's bound."""
        with monitor.clock.phase("build"):
            tables = JobTables.build(instance)
            rows = CapacityRows.of(tables)
        with monitor.clock.phase("solve"):
            tightened = solve_with_cuts(
                tables,
                rows,
                monitor.part(share=options.lp_share),
                tol=options.lp_tol,
                cut_rounds=options.cut_rounds,
                count_rounds=_count_rounds(options, rows),
            )
            num_moves = options.num_moves
            if num_moves is None and not np.isfinite(monitor.remaining_s):
                num_moves = DEFAULT_MOVES
            relaxed = tightened.result
            first_plans = _first_plans(tables, rows, tightened, options, monitor, seed)
            reserve_s = min(POLISH_SHARE * monitor.remaining_s, MAX_POLISH_S) if options.polish else 0.0
            chains = _Chains(first_plans, relaxed, options, num_moves)
            chain_monitor = monitor.part(TimeReserve(monitor.stop, reserve_s))
            leader = run_iteration(chains, chain_monitor, task="search", total=num_moves)
            if options.polish and chain_monitor.reason in (None, Termination.TIME_LIMIT):
                leader.polish(monitor.is_over)
            outcome = relaxed.outcome(leader.best_plan())
        return replace(
            outcome,
            termination=monitor.reason or chain_monitor.reason,
            iterations=chains.moves,
            counts={**outcome.counts, "moves": float(chains.moves * options.chains)},
        )


def _count_rounds(options: SearchOptions, rows: CapacityRows) -> int:
    """Return the maximal number of rounds of count cuts."""
    if options.count_rounds is not None:
        return options.count_rounds
    return COUNT_ROUNDS if rows.num_rows <= COUNT_ROWS else 0


class _Chains(AbstractIteration[Neighbourhood]):
    """Parallel chains of moves, in cooling cycles that start from the best plans."""

    def __init__(
        self, chains: list[Neighbourhood], relaxed: PackingResult, options: SearchOptions, num_moves: int | None
    ) -> None:
        self._chains, self._bound, self._options, self._num_moves = chains, relaxed.point.bound, options, num_moves
        self.moves, self._place, self._cycle = 0, 0, options.first_cycle
        self._threads = ThreadPoolExecutor(len(chains))

    @property
    def _leader(self) -> Neighbourhood:
        return max(self._chains, key=lambda chain: chain.incumbent_value)

    def is_done(self) -> bool:
        """Return whether all moves are made, or the best plan is optimal."""
        if self._num_moves is not None and self.moves >= self._num_moves:
            return True
        return (relative_gap(self._leader.incumbent_value, self._bound, Sense.MAXIMISE) or 0.0) <= OPTIMALITY_TOL

    def step(self) -> None:
        """Run some moves of each chain at one temperature."""
        options = self._options
        if self._place == 0:
            self._restart()
        temperature = options.start_temperature * (options.end_temperature / options.start_temperature) ** (
            self._place / self._cycle
        )
        moves = MOVES_A_CHECK if self._num_moves is None else min(MOVES_A_CHECK, self._num_moves - self.moves)
        list(self._threads.map(lambda chain: chain.run_at(temperature, moves, options.max_destroyed), self._chains))
        self.moves, self._place = self.moves + moves, self._place + moves
        if self._place >= self._cycle:
            self._place, self._cycle = 0, min(2 * self._cycle, options.cycle_moves)

    def _restart(self) -> None:
        """Reset each chain to its own best plan, and the first chain to the best plan of all."""
        leader = self._leader
        for chain in self._chains:
            chain.return_to_best()
        if leader is not self._chains[0]:
            self._chains[0].adopt(leader.best_plan())

    def standing(self) -> SolverState:
        """Return the best plan's value."""
        return SolverState(iterations=self.moves, objective=self._leader.incumbent_value, bound=self._bound)

    def finish(self, reason: Termination | None) -> Neighbourhood:
        """Return the chain with the best plan."""
        self._threads.shutdown()
        return self._leader


def _first_plans(
    tables: JobTables, rows: CapacityRows, tightened: CutLoopResult, options: SearchOptions, monitor: Monitor, seed: int
) -> list[Neighbourhood]:
    """Return the chains, each with a first plan.

    A dive prices without cuts between its stages, so it starts at the LP's prices without cuts.
    """
    guide, weight = tightened.guide, tightened.guide_weight
    chains = []
    for child in np.random.SeedSequence(seed).spawn(options.chains):
        chain = Neighbourhood(tables, rows, guide, child, weight)
        chain.fill_up(guide.payoff, CONSTRUCTION_SCALES)
        chains.append(chain)
    if options.dives:
        plan = dive(tables, rows, tightened.plain, tightened.plain_weight, monitor.part())
        if plan.objective(tables.instance) > chains[-1].incumbent_value:
            chains[-1].adopt(plan)
    return chains

"""Price and branch: the packing LP's columns as a MILP, then its schedules on real servers.

The MILP is over server classes. A set of schedules that fits the classes need not split onto single
servers: those that don't are re-inserted by their best schedule on what is left, or refused.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array, vstack

from optim.core.arrays import IntArray
from optim.core.driver import Monitor, Outcome, SolverState
from optim.core.errors import InvalidOptionError, check_in
from optim.core.registry import register
from optim.core.solution import Termination
from optim.models.admission.decision import AdmissionPlan
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.local_search.plan_moves import Neighbourhood
from optim.solvers.admission.packing.capacity_rows import CapacityRows
from optim.solvers.admission.packing.packing_lp import PackingLP, PackingResult
from optim.solvers.admission.packing.subgradient import SubgradientOptions
from optim.solvers.admission.pricing.classes import JobTables
from optim.solvers.admission.scaling import ScaledSolver
from optim.solvers.admission.warm_up import compile_columns, compile_moves
from optim.solvers.lp.highs import no_answer, run_highs, whole_programme


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceAndBranchOptions:
    """Options of `price-and-branch`.

    Parameters
    ----------
    lp_tol
        Relative gap at which the packing LP counts as solved.
    lp_share
        Largest share of the time left that the LP may take.
    mip_seconds
        Time limit of the MILP over the columns.
    max_columns
        Columns of least reduced loss that enter the MILP.
    """

    lp_tol: float = 1e-4
    lp_share: float = 0.5
    mip_seconds: float = 60.0
    max_columns: int = 5_000

    def __post_init__(self) -> None:
        check_in("(0, 1)", self, "lp_tol", "lp_share")
        if not self.mip_seconds >= 0:
            raise InvalidOptionError(f"mip_seconds must be at least 0, got {self.mip_seconds}")
        check_in("[1, inf)", self, "max_columns")


@register("price-and-branch", problem="admission")
class PriceAndBranch(ScaledSolver[PriceAndBranchOptions]):
    """A MILP over the columns of the packing LP, repaired onto real servers."""

    summary = "a MILP over the packing LP's columns, placed on real servers, with the LP's bound"
    options_type = PriceAndBranchOptions

    def warm_up(self, instance: AdmissionInstance, options: PriceAndBranchOptions) -> None:
        """Compile pricing, the master and insertions."""
        compile_columns(is_shared=instance.has_shared_servers)
        compile_moves(is_shared=instance.has_shared_servers)

    def run(self, instance: AdmissionInstance, options: PriceAndBranchOptions, monitor: Monitor, seed: int) -> Outcome:
        """Return the repaired plan and the LP's bound."""
        clock = monitor.clock
        with clock.phase("build"):
            tables = JobTables.build(instance)
            rows = CapacityRows.of(tables)
        with clock.phase("solve"):
            relaxed = PackingLP(tables, rows).run(
                monitor.part(share=options.lp_share),
                tol=options.lp_tol,
                first=SubgradientOptions(num_steps=150, add_every=4),
                between=SubgradientOptions(num_steps=10),
            )
            with clock.phase("mip"):
                chosen = _choose_columns(relaxed, rows, options, monitor, seed)
            plan = _place(tables, rows, relaxed, chosen, seed)
        outcome = relaxed.outcome(plan)
        monitor.is_over(SolverState(objective=outcome.objective, bound=outcome.bound))
        return replace(outcome, counts={**outcome.counts, "chosen": float(len(chosen))})


def _choose_columns(
    relaxed: PackingResult, rows: CapacityRows, options: PriceAndBranchOptions, monitor: Monitor, seed: int
) -> IntArray:
    """Return the pool columns that a MILP over server classes selects, the best found where it is told to stop.

    They are placed one by one, and the bound is the LP's: a wrong optimum costs worth, and proves nothing.
    """
    pool = relaxed.pool
    if len(pool) == 0:
        return np.zeros(0, dtype=np.int64)
    row_worth = relaxed.point.row_prices * rows.capacity
    loss = relaxed.point.payoff[pool.job] + pool.share.T @ row_worth - pool.value
    columns = np.sort(np.argsort(loss, kind="stable")[: options.max_columns])
    share, job = pool.share[:, columns].tocsr(), pool.job[columns]
    used = np.flatnonzero((rows.capacity > 0) & (share.sum(axis=1) > 1.0))
    share = share[used]
    count = len(columns)
    jobs, starts = np.unique(job, return_index=True)
    once = csr_array((np.ones(count), np.arange(count), np.append(starts, count)), shape=(len(jobs), count))
    solver = whole_programme(pool.value[columns], np.ones(count), csr_array(vstack([share, once])))
    outcome = run_highs(
        solver,
        time_limit_s=min(options.mip_seconds, monitor.remaining_s),
        seed=seed,
        watch=lambda _: monitor.reason if monitor.is_over() else None,
    )
    if outcome.is_aborted:
        raise KeyboardInterrupt
    if outcome.termination is Termination.NUMERICAL_ERROR:
        raise no_answer(solver)
    return columns[:0] if outcome.values is None else columns[outcome.values > 0.5]


def _place(tables: JobTables, rows: CapacityRows, relaxed: PackingResult, chosen: IntArray, seed: int) -> AdmissionPlan:
    """Put the chosen schedules on single servers, most valuable first, then fill what is left."""
    pool = relaxed.pool
    search = Neighbourhood(tables, rows, relaxed.point, seed)
    for column in sorted(chosen.tolist(), key=lambda k: (-pool.value[k], k)):
        search.try_schedule(pool.schedule(column))
    search.fill_up(relaxed.point.payoff, (1.0, 0.5, 0.1))
    return search.best_plan()

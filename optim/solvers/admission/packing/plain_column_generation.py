"""Textbook column generation: simplex master, cold start, one pricing a round at the master's vertex duals.

It is here to be compared with: same pricing code as `packing_lp`, no stabilisation, no walks, all rows
in the master from the start. Source: Desaulniers, Desrosiers, Solomon (eds.), "Column Generation", 2005,
chapter 1, DOI 10.1007/b135457.
"""

import highspy
import numpy as np
from scipy.sparse import csr_array, vstack

from optim.core.arrays import FloatArray
from optim.core.driver import AbstractIteration, Monitor, SolverState, run_iteration
from optim.core.solution import Termination
from optim.solvers.admission.packing.capacity_rows import CapacityRows
from optim.solvers.admission.packing.column_pool import ColumnPool
from optim.solvers.admission.packing.dual_points import DualPoint
from optim.solvers.admission.packing.packing_lp import PackingResult
from optim.solvers.admission.pricing.classes import JobTables, price
from optim.solvers.lp.highs import add_columns, empty_programme, no_answer, run_in_place


def solve_plain(tables: JobTables, rows: CapacityRows, monitor: Monitor, *, tol: float) -> PackingResult:
    """Solve the packing LP to a relative gap `tol`, or until told to stop; the best bound is kept."""
    return run_iteration(_PlainRounds(tables, rows, monitor, tol), monitor, task="column generation")


class _PlainRounds(AbstractIteration[PackingResult]):
    """Rounds of a master and one pricing at its duals; the first pricing is at no prices."""

    def __init__(self, tables: JobTables, rows: CapacityRows, monitor: Monitor, tol: float) -> None:
        self._tables, self._rows, self._monitor, self._tol = tables, rows, monitor, tol
        self._pool = ColumnPool(tables, rows)
        self._simplex = _SimplexMaster(tables, rows)
        self._best: DualPoint | None = None
        self._master, self._rounds, self._num_new = 0.0, 0, 0
        self._end: Termination | None = None
        self._history: list[tuple[float, float, float]] = []

    @property
    def _bound(self) -> float:
        assert self._best is not None, "the first pricing gives a point"
        return self._best.bound

    def init(self) -> None:
        """Price at no prices."""
        self._price(np.zeros(self._rows.num_rows))

    def is_done(self) -> bool:
        """Tell whether pricing finds nothing new, or bound and master agree."""
        gap = (self._bound - self._master) / max(abs(self._master), 1e-9)
        return self._end is not None or self._num_new == 0 or (self._rounds > 0 and gap <= self._tol)

    def step(self) -> None:
        """Solve the master and price at its duals."""
        with self._monitor.clock.phase("master"):
            solved = self._simplex.solve(self._pool, self._monitor.remaining_s)
        if solved is None:
            self._end = Termination.TIME_LIMIT
            return
        self._master, x, prices = solved
        self._pool.set_weight(x)
        self._rounds += 1
        self._price(prices)
        self._history.append((self._monitor.clock.elapsed_s, self._master, self._bound))

    def _price(self, prices: FloatArray) -> None:
        with self._monitor.clock.phase("pricing"):
            priced = price(self._tables, self._rows.prices(prices))
            bound = float(priced.payoff.sum() + prices @ self._rows.capacity)
            if self._best is None or bound < self._best.bound:
                self._best = DualPoint(row_prices=prices, payoff=priced.payoff, bound=bound)
            self._num_new = self._pool.add(priced)

    def standing(self) -> SolverState:
        """Tell the master's value as the objective; a plan's it is not."""
        return SolverState(iterations=self._rounds, objective=self._master, bound=self._bound)

    def finish(self, reason: Termination | None) -> PackingResult:
        """Return what is known."""
        assert self._best is not None
        return PackingResult(
            point=self._best,
            master=self._master,
            x=np.nan_to_num(self._pool.weight),
            pool=self._pool,
            termination=self._end or reason or Termination.COMPLETED,
            rounds=self._rounds,
            newton_steps=0,
            history=self._history,
        )


class _SimplexMaster:
    """The restricted master in HiGHS: one row per job, then the rows with capacity."""

    def __init__(self, tables: JobTables, rows: CapacityRows) -> None:
        self._rows = np.flatnonzero(rows.capacity > 0)
        self._num_jobs, self._num_rows = tables.num_jobs, rows.num_rows
        self._capacity = rows.capacity[self._rows]
        self._columns: list[bytes] = []
        self.solver = empty_programme(tables.num_jobs + len(self._rows))

    def solve(self, pool: ColumnPool, time_left_s: float) -> tuple[float, FloatArray, FloatArray] | None:
        """Add the pool's new columns and solve.

        Returns (value, x by pool column, row prices), or None if the time was too short.
        """
        known = set(self._columns)
        fresh = [k for k in range(len(pool)) if pool.key(k) not in known]
        self._columns += [pool.key(k) for k in fresh]
        count = len(fresh)
        jobs = csr_array((np.ones(count), (pool.job[fresh], np.arange(count))), shape=(self._num_jobs, count))
        matrix = vstack([jobs, pool.share[:, fresh].tocsr()[self._rows]], format="csc")
        add_columns(self.solver, pool.value[fresh], matrix, np.full(count, np.inf))
        if np.isfinite(time_left_s):
            self.solver.setOptionValue("time_limit", self.solver.getRunTime() + max(0.0, time_left_s))
        run_in_place(self.solver)
        if self.solver.getModelStatus() == highspy.HighsModelStatus.kTimeLimit:
            return None
        if self.solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            raise no_answer(self.solver)
        solution = self.solver.getSolution()
        duals = np.maximum(0.0, np.array(solution.row_dual))
        prices = np.zeros(self._num_rows)
        prices[self._rows] = duals[self._num_jobs :] / self._capacity
        by_key = dict(zip(self._columns, solution.col_value, strict=True))
        x = np.array([by_key[pool.key(k)] for k in range(len(pool))])
        return float(self.solver.getInfo().objective_function_value), x, prices

"""Textbook column generation: simplex master, cold start, one pricing a round at the master's vertex duals.

It is here to be compared with: same pricing code as `packing_lp`, no stabilisation, no walks, all rows
in the master from the start. Source: Desaulniers, Desrosiers, Solomon (eds.), "Column Generation", 2005,
chapter 1, DOI 10.1007/b135457.
"""

import highspy
import numpy as np

from optim.core.clock import PhaseClock
from optim.core.progress import Progress
from optim.core.status import Termination
from optim.core.stopping import SolveState, StoppingCriterion
from optim.models.admission.instance import FloatArray
from optim.solvers.admission.packing.packing_lp import PackingResult
from optim.solvers.admission.pricing.capacity_rows import CapacityRows
from optim.solvers.admission.pricing.class_pricing import price
from optim.solvers.admission.pricing.column_pool import ColumnPool
from optim.solvers.admission.pricing.dual_points import PricePoint
from optim.solvers.admission.pricing.job_tables import JobTables


def solve_plain(
    tables: JobTables,
    rows: CapacityRows,
    clock: PhaseClock,
    *,
    tol: float,
    stop: StoppingCriterion,
    progress: Progress,
) -> PackingResult:
    """Solve the packing LP to a relative gap `tol`, or until told to stop; the best bound is kept."""
    pool = ColumnPool(tables, rows)
    prices = np.zeros(rows.num_rows)
    best: PricePoint | None = None
    master, rounds, reason = 0.0, 0, None
    history: list[tuple[float, float, float]] = []
    simplex = _SimplexMaster(tables, rows)
    progress.start("column generation", None)
    while True:
        with clock.phase("pricing"):
            priced = price(tables, rows.prices(prices))
            bound = float(priced.payoff.sum() + prices @ rows.capacity)
            if best is None or bound < best.bound:
                best = PricePoint(row_prices=prices, payoff=priced.payoff, bound=bound)
            before = len(pool)
            pool.add(priced)
        gap = (best.bound - master) / max(abs(master), 1e-9)
        progress.update(rounds, {"master": master, "bound": best.bound, "gap": gap})
        reason = stop(SolveState(elapsed_s=clock.elapsed_s, iterations=rounds, objective=master, bound=best.bound))
        if reason is not None or len(pool) == before or (rounds and gap <= tol):
            break
        with clock.phase("master"):
            solved = simplex.solve(pool, stop.remaining_s(clock.elapsed_s))
        if solved is None:
            reason = Termination.TIME_LIMIT
            break
        master, x, prices = solved
        pool.set_weight(x)
        rounds += 1
        history.append((clock.elapsed_s, master, best.bound))
    progress.finish()
    return PackingResult(
        point=best,
        master=master,
        x=np.nan_to_num(pool.weight),
        pool=pool,
        termination=Termination.COMPLETED if reason is None else reason,
        rounds=rounds,
        newton_steps=0,
        history=history,
    )


class _SimplexMaster:
    """The restricted master in HiGHS; columns are added, bases stay warm."""

    def __init__(self, tables: JobTables, rows: CapacityRows) -> None:
        self._rows = np.flatnonzero(rows.capacity > 0)
        self._num_jobs, self._num_rows = tables.num_jobs, rows.num_rows
        self._capacity = rows.capacity[self._rows]
        self._place = np.full(rows.num_rows, -1, dtype=np.int64)
        self._place[self._rows] = tables.num_jobs + np.arange(len(self._rows))
        self._columns: list[bytes] = []
        self.solver = highspy.Highs()
        for option, value in (("output_flag", False), ("threads", 1), ("presolve", "off")):
            self.solver.setOptionValue(option, value)
        self.solver.changeObjectiveSense(highspy.ObjSense.kMaximize)
        size = tables.num_jobs + len(self._rows)
        empty = np.zeros(size, dtype=np.int32)
        self.solver.addRows(
            size, np.full(size, -highspy.kHighsInf), np.ones(size), 0, empty, np.zeros(0, np.int32), np.zeros(0)
        )

    def solve(self, pool: ColumnPool, time_left_s: float) -> tuple[float, FloatArray, FloatArray] | None:
        """Add the pool's new columns and solve.

        Returns (value, x by pool column, row prices), or None if the time was too short.
        """
        known = set(self._columns)
        fresh = [k for k in range(len(pool)) if pool.key(k) not in known]
        share = pool.share
        starts, indices, values, entries = [], [], [], 0
        for k in fresh:
            starts.append(entries)
            row = share.indices[share.indptr[k] : share.indptr[k + 1]]
            entry = share.data[share.indptr[k] : share.indptr[k + 1]]
            inside = self._place[row] >= 0
            indices.append(np.concatenate([[pool.job[k]], self._place[row[inside]]]).astype(np.int32))
            values.append(np.concatenate([[1.0], entry[inside]]))
            entries += len(indices[-1])
            self._columns.append(pool.key(k))
        count = len(fresh)
        self.solver.addCols(
            count, pool.value[fresh], np.zeros(count), np.full(count, highspy.kHighsInf), entries,
            np.array(starts, np.int32), np.concatenate(indices), np.concatenate(values),
        )  # fmt: skip
        if np.isfinite(time_left_s):
            self.solver.setOptionValue("time_limit", self.solver.getRunTime() + max(0.0, time_left_s))
        self.solver.run()
        if self.solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        solution = self.solver.getSolution()
        duals = np.maximum(0.0, np.array(solution.row_dual))
        prices = np.zeros(self._num_rows)
        prices[self._rows] = duals[self._num_jobs :] / self._capacity
        by_key = dict(zip(self._columns, solution.col_value, strict=True))
        x = np.array([by_key[pool.key(k)] for k in range(len(pool))])
        return float(self.solver.getInfo().objective_function_value), x, prices

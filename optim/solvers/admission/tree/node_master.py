"""The restricted master of branch and price: one linear programme over known schedules for all nodes.

    max sum v x  s.t.  use of each row <= capacity, cuts, sum of x over each job's schedules <= 1 (= 1 if the
    node admits the job), x >= 0; schedules that a node forbids are fixed at 0.

HiGHS keeps its basis from node to node: only bounds change, and rows and columns are added.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, hstack, vstack

from optim.models.admission.instance import FloatArray, IntArray
from optim.models.admission.proof import Cut
from optim.solvers.admission.packing.cut_table import CutTable
from optim.solvers.admission.packing.highs_programme import add_columns, add_rows, empty_programme
from optim.solvers.admission.pricing.capacity_rows import CapacityRows, usage_matrix
from optim.solvers.admission.pricing.class_pricing import PricedSchedules
from optim.solvers.admission.pricing.job_tables import JobTables
from optim.solvers.admission.pricing.schedule_keys import ScheduleKeys
from optim.solvers.admission.tree.node_pricing import NodeLimits
from optim.solvers.lp.highs_run import run_to_optimum

PENALTY_STEP = 100.0
MOST_PENALTY_FACTOR = 1e6
"""How penalties of admitted jobs without room are raised where they don't drive them out, and how far."""

LEAST_WEIGHT = 1e-9
"""Schedules of no larger weight aren't there."""

DUAL, PRIMAL = 1, 4
"""HiGHS' simplex strategies: the dual after changes of bounds and new rows, the primal after new columns."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MasterPoint:
    """An optimal pair of points of the restricted master.

    Parameters
    ----------
    value
        Objective, less the penalties of admitted jobs that find no room.
    weight
        Shape (schedules,): weights of the known schedules.
    missing
        Summed weight of admitted jobs that find no room.
    row_prices, multiplier, job_price
        Duals of the capacity rows (utils a whole unit), of the cuts (utils a unit of the left-hand side), and
        of the jobs' rows. The first two are clipped to be at least 0.
    """

    value: float
    weight: FloatArray
    missing: float
    row_prices: FloatArray
    multiplier: FloatArray
    job_price: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MasterBasis:
    """A basis of the programme as it was: later columns and rows are nonbasic and basic, as added ones are.

    HiGHS' statuses by number, a byte each: every open node keeps its parent's basis.
    """

    epoch: int
    columns: NDArray[np.int8]
    rows: NDArray[np.int8]


class NodeMaster:
    """Known schedules and cuts, and the linear programme over them.

    Parameters
    ----------
    tables, rows
        The instance.
    penalty
        Loss a unit of weight of an admitted job that finds no room.
    """

    def __init__(self, tables: JobTables, rows: CapacityRows, penalty: float) -> None:
        self._tables, self._rows, self._penalty = tables, rows, penalty
        self._live = np.flatnonzero(rows.capacity > 0)
        self._scale = np.zeros(rows.num_rows)
        self._scale[self._live] = 1.0 / rows.capacity[self._live]
        self.schedules = PricedSchedules.blank(tables, np.zeros(0, dtype=np.int64))
        self._keys = ScheduleKeys()
        self.cuts = CutTable(tables.instance)
        self._is_allowed: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self._is_admitted: IntArray = np.zeros(tables.num_jobs, dtype=np.int64)
        self._last_use: IntArray = np.zeros(0, dtype=np.int64)
        self._last_cut_use: IntArray = np.zeros(0, dtype=np.int64)
        self._num_solves = 0
        self._epoch = 0
        self._penalty_factor = 1.0
        self._strategy = DUAL
        self._limits = NodeLimits.free(tables)
        self._highs = self._empty_programme()

    @property
    def num_base_rows(self) -> int:
        """Rows before the cuts: capacities, then jobs."""
        return len(self._live) + self._tables.num_jobs

    def basis(self) -> MasterBasis:
        """Return the present basis."""
        basis = self._highs.getBasis()
        columns, rows = (
            np.array([int(status) for status in statuses], dtype=np.int8)
            for statuses in (basis.col_status, basis.row_status)
        )
        return MasterBasis(epoch=self._epoch, columns=columns, rows=rows)

    def enter(self, limits: NodeLimits, basis: MasterBasis | None = None) -> None:
        """Turn to a node: fix what it forbids, and free the rest; start from a basis if it is still of use."""
        self._limits = limits
        allowed = limits.allows(self._tables, self.schedules)
        changed = np.flatnonzero(allowed != self._is_allowed)
        num_jobs = self._tables.num_jobs
        self._set_bounds(num_jobs + changed, np.where(allowed[changed], np.inf, 0.0))
        self._is_allowed = allowed
        jobs = np.flatnonzero(limits.is_admitted != self._is_admitted)
        admitted = limits.is_admitted[jobs].astype(np.float64)
        self._set_bounds(jobs, admitted)
        for i, is_admitted in zip(jobs.tolist(), admitted.tolist(), strict=True):
            self._highs.changeRowBounds(len(self._live) + i, 1.0 if is_admitted else -np.inf, 1.0)
        self._is_admitted = limits.is_admitted
        if basis is not None and basis.epoch == self._epoch:
            self._restore(basis)
        if self._penalty_factor > 1.0:
            self._set_penalty(1.0)
        self._strategy = DUAL

    def raise_penalty(self) -> bool:
        """Make it dearer to leave admitted jobs without room, until another node is entered; False if it can't be."""
        if self._penalty_factor >= MOST_PENALTY_FACTOR:
            return False
        self._set_penalty(self._penalty_factor * PENALTY_STEP)
        return True

    def add_schedules(self, priced: PricedSchedules) -> int:
        """Add schedules of the present node that are new; return how many."""
        added = priced.select(self._keys.append_new(priced))
        self.schedules = self.schedules.followed_by(added)
        self._append_columns(added, is_allowed=np.ones(len(added), dtype=np.bool_))
        self._strategy = PRIMAL
        return len(added)

    def add_cuts(self, cuts: Sequence[Cut]) -> None:
        """Add cuts as rows."""
        self._strategy = DUAL
        first = len(self.cuts)
        self.cuts.add(cuts)
        # The jobs' penalties have no use of cuts.
        penalties = csr_array((len(cuts), self._tables.num_jobs))
        use = hstack([penalties, csr_array(self._cut_shares(self.schedules, first))], format="csr")
        add_rows(self._highs, use)
        self._last_cut_use = np.concatenate([self._last_cut_use, np.full(len(cuts), self._num_solves)])

    def solve(self) -> MasterPoint:
        """Solve the present node's programme."""
        highs = self._highs
        highs.setOptionValue("simplex_strategy", self._strategy)
        run_to_optimum(highs)
        solution, num_jobs = highs.getSolution(), self._tables.num_jobs
        primal, dual = np.array(solution.col_value), np.array(solution.row_dual)
        num_live = len(self._live)
        row_prices = np.zeros(self._rows.num_rows)
        row_prices[self._live] = np.maximum(dual[:num_live], 0.0) * self._scale[self._live]
        cut_dual = np.maximum(dual[self.num_base_rows :], 0.0)
        self._num_solves += 1
        self._last_use[primal[num_jobs:] > 0] = self._num_solves
        self._last_cut_use[cut_dual > 0] = self._num_solves
        return MasterPoint(
            value=float(highs.getInfo().objective_function_value),
            weight=np.maximum(primal[num_jobs:], 0.0),
            missing=float(primal[:num_jobs].sum()),
            row_prices=row_prices,
            multiplier=cut_dual / self.cuts.right_hand_side,
            job_price=dual[num_live : self.num_base_rows],
        )

    def loads(self, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return how many workers and PSs of each job each class holds, shape (jobs, classes, slots)."""
        result = []
        on = np.flatnonzero(weight > 0)
        for counts in (self.schedules.workers, self.schedules.ps):
            load = np.zeros((self._tables.num_jobs, *counts.shape[1:]))
            np.add.at(load, self.schedules.jobs[on], weight[on, None, None] * counts[on])
            result.append(load)
        return result[0], result[1]

    def counts(self, weight: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return what a point has of each job in each class and slot, as `ColumnPool.counts` does."""
        on = np.flatnonzero(weight > LEAST_WEIGHT)
        blocks, weights = [], []
        for side, counts in enumerate((self.schedules.workers, self.schedules.ps)):
            k, c, t = np.nonzero(counts[on])
            column = on[k]
            blocks.append(
                np.column_stack([np.full_like(c, side), c, t, self.schedules.jobs[column], counts[column, c, t]])
            )
            weights.append(weight[column])
        rows = np.concatenate(blocks)
        order = np.lexsort(rows.T[::-1])
        return rows[order], np.concatenate(weights)[order]

    def shrink(self, most_schedules: int, most_cuts: int) -> None:
        """Forget what was not used lately, if there is too much of it, and start the programme anew."""
        if len(self.schedules) <= most_schedules and len(self.cuts) <= most_cuts:
            return
        self._rebuild(
            np.sort(np.argsort(-self._last_use, kind="stable")[: most_schedules // 2]),
            np.sort(np.argsort(-self._last_cut_use, kind="stable")[: most_cuts // 2]),
        )

    def drop_idle_cuts(self) -> None:
        """Forget the cuts that the last point doesn't price, and start the programme anew."""
        kept = np.flatnonzero(self._last_cut_use == self._num_solves)
        if len(kept) < len(self.cuts):
            self._rebuild(np.arange(len(self.schedules)), kept)

    def _rebuild(self, kept: IntArray, kept_cuts: IntArray) -> None:
        """Start the programme anew with some of the schedules and cuts."""
        self.schedules = self.schedules.select(kept)
        self._keys.take(kept)
        self.cuts.keep(kept_cuts)
        self._last_cut_use = self._last_cut_use[kept_cuts]
        last_use = self._last_use[kept]
        self._is_admitted = np.zeros_like(self._is_admitted)
        self._is_allowed = np.zeros(0, dtype=np.bool_)
        self._last_use = np.zeros(0, dtype=np.int64)
        self._penalty_factor = 1.0
        self._highs = self._empty_programme()
        self._epoch += 1
        add_rows(self._highs, csr_array((len(self.cuts), self._tables.num_jobs)))
        self._append_columns(self.schedules, is_allowed=self._limits.allows(self._tables, self.schedules))
        self._last_use = last_use

    def _restore(self, basis: MasterBasis) -> None:
        import highspy

        status, restored = highspy.HighsBasisStatus, highspy.HighsBasis()
        num_columns = self._tables.num_jobs + len(self.schedules)
        num_rows = self.num_base_rows + len(self.cuts)
        by_number = {int(known): known for known in status.__members__.values()}
        columns, rows = ([by_number[k] for k in statuses.tolist()] for statuses in (basis.columns, basis.rows))
        restored.col_status = columns + [status.kLower] * (num_columns - len(columns))
        restored.row_status = rows + [status.kBasic] * (num_rows - len(rows))
        restored.valid = True
        self._highs.setBasis(restored)

    def _empty_programme(self) -> Any:
        """Return a programme with the capacity rows, the jobs' rows and the jobs' penalties."""
        num_jobs = self._tables.num_jobs
        highs = empty_programme(self.num_base_rows)
        penalties = vstack([csr_array((len(self._live), num_jobs)), self._job_rows(np.arange(num_jobs))], format="csc")
        add_columns(highs, np.full(num_jobs, -self._penalty), penalties, np.zeros(num_jobs))
        return highs

    def _append_columns(self, schedules: PricedSchedules, *, is_allowed: NDArray[np.bool_]) -> None:
        number = len(schedules)
        if not number:
            return
        usage = usage_matrix(self._tables, self._rows, schedules)
        share = csr_array(usage.multiply(self._scale[:, None]))[self._live]
        matrix = csc_array(vstack([share, self._job_rows(schedules.jobs), csr_array(self._cut_shares(schedules, 0))]))
        matrix.sort_indices()
        value = self._tables.value[schedules.jobs, schedules.completion]
        add_columns(self._highs, value, matrix, np.where(is_allowed, np.inf, 0.0))
        self._is_allowed = np.concatenate([self._is_allowed, is_allowed])
        self._last_use = np.concatenate([self._last_use, np.full(number, self._num_solves)])

    def _job_rows(self, jobs: IntArray) -> csr_array:
        """Return the jobs' rows of columns that belong to `jobs`."""
        number = len(jobs)
        return csr_array((np.ones(number), (jobs, np.arange(number))), shape=(self._tables.num_jobs, number))

    def _cut_shares(self, schedules: PricedSchedules, first: int) -> FloatArray:
        """Return the left-hand sides of cuts as shares of their right-hand sides, shape (cuts, schedules)."""
        return self.cuts.use(schedules, first) / self.cuts.right_hand_side[first:, None]

    def _set_penalty(self, factor: float) -> None:
        num_jobs = self._tables.num_jobs
        self._penalty_factor = factor
        cost = np.full(num_jobs, -self._penalty * factor)
        self._highs.changeColsCost(num_jobs, np.arange(num_jobs, dtype=np.int32), cost)
        self._strategy = PRIMAL

    def _set_bounds(self, columns: IntArray, upper: FloatArray) -> None:
        if len(columns):
            self._highs.changeColsBounds(
                len(columns), columns.astype(np.int32), np.zeros(len(columns)), np.ascontiguousarray(upper)
            )

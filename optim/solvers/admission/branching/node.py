"""The bound of one node: its restricted master, column generation and cuts, and a proven dual point.

max sum v x  s.t.  use of each row <= capacity, cuts, sum of x over each job's schedules <= 1 (= 1 if the
    node admits the job), x >= 0; schedules that a node forbids are fixed at 0.

HiGHS keeps its basis from node to node: only bounds change, and rows and columns are added.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, hstack, vstack

from optim.core.arrays import FloatArray, IntArray
from optim.models.admission.decision import Cut
from optim.solvers.admission.branching.node_pricing import BranchRestrictions, NodePricer
from optim.solvers.admission.cuts.cut_table import CutTable
from optim.solvers.admission.cuts.separation import CountSeparator, CutSeparator, SlotSeparator
from optim.solvers.admission.packing.capacity_rows import CapacityRows, dominated_rows, usage_matrix
from optim.solvers.admission.packing.column_pool import ScheduleKeys, class_loads, sorted_counts
from optim.solvers.admission.packing.dual_points import DualPoint
from optim.solvers.admission.pricing.classes import JobTables, PricedSchedules, Prices
from optim.solvers.lp.highs import (
    DUAL_SIMPLEX,
    PRIMAL_SIMPLEX,
    add_columns,
    add_rows,
    empty_programme,
    run_in_place,
    run_to_optimum,
)

PENALTY_STEP = 100.0
"""Factor by which the penalty is raised each time that the master's optimum lacks schedules of admitted jobs."""

MAX_PENALTY_FACTOR = 1e6
"""Largest product of these factors at one node."""

MIN_WEIGHT = 1e-9
"""Schedules of at most this weight are omitted from the counts of a fractional point."""

ESTIMATE_ITERATIONS = 20
"""Dual simplex steps for the estimate of a child's value; the optimum would take some hundred steps."""

NO_LIMIT = 2**31 - 1
"""The largest iteration limit that HiGHS accepts."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MasterPoint:
    """An optimal primal point of the restricted master, and an optimal dual point.

    Parameters
    ----------
    value
        Value of the weighted schedules, less the penalties for `infeasibility`.
    weight
        Shape (schedules,): weights of the known schedules.
    infeasibility
        Sum over the admitted jobs of 1 less the total weight of the job's schedules.
    row_prices, multiplier, job_price
        Duals of the capacity rows (utility units per unit of the resource), of the cuts (utility units per unit of the
        left-hand side), and of the jobs' rows (utility units). The first two are clipped to be at least 0.
    """

    value: float
    weight: FloatArray
    infeasibility: float
    row_prices: FloatArray
    multiplier: FloatArray
    job_price: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MasterBasis:
    """The basic columns and the nonbasic rows of the programme, by serial numbers.

    Serial numbers don't change when other columns or rows are deleted. If basic columns or nonbasic rows have been deleted
    since, HiGHS completes the basis. Columns added since are nonbasic, rows added since are basic.
    """

    columns: IntArray
    rows: IntArray


class NodeMaster:
    """Known schedules and cuts, and the linear programme over them.

    Parameters
    ----------
    tables, rows
        The instance.
    penalty
        Cost, in utility units, of each unit by which the total weight of an admitted job's schedules is below 1.
    """

    def __init__(self, tables: JobTables, rows: CapacityRows, penalty: float) -> None:
        self._tables, self._rows, self._penalty = tables, rows, penalty
        self._live = np.flatnonzero((rows.capacity > 0) & ~dominated_rows(tables, rows))
        self._scale = np.zeros(rows.num_rows)
        self._scale[self._live] = 1.0 / rows.capacity[self._live]
        self._place = np.full(rows.num_rows, -1)
        self._place[self._live] = np.arange(len(self._live))
        self.schedules = PricedSchedules.blank(tables, np.zeros(0, dtype=np.int64))
        self._keys = ScheduleKeys()
        self.cuts = CutTable(tables.instance)
        self._is_allowed: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self._is_admitted: IntArray = np.zeros(tables.num_jobs, dtype=np.int64)
        self._last_use: IntArray = np.zeros(0, dtype=np.int64)
        self._last_cut_use: IntArray = np.zeros(0, dtype=np.int64)
        self._num_solves = 0
        self.num_iterations = 0
        """Simplex iterations of all runs."""
        self._serial, self._cut_serial = (np.zeros(0, dtype=np.int64) for _ in range(2))
        self._num_serials = self._num_cut_serials = 0
        self._penalty_factor = 1.0
        self._strategy = DUAL_SIMPLEX
        self._limits = BranchRestrictions.free(tables)
        self._highs = self._empty_programme()

    @property
    def num_base_rows(self) -> int:
        """Number of rows before the cuts: capacity rows, then jobs' rows."""
        return len(self._live) + self._tables.num_jobs

    def basis(self) -> MasterBasis:
        """Return the programme's present basis."""
        import highspy

        basis, basic = self._highs.getBasis(), highspy.HighsBasisStatus.kBasic
        columns, rows = (
            np.array([status == basic for status in statuses], dtype=np.bool_)
            for statuses in (basis.col_status, basis.row_status)
        )
        return MasterBasis(columns=self._column_serials()[columns], rows=self._row_serials()[~rows])

    def load_node(self, limits: BranchRestrictions, basis: MasterBasis | None = None) -> None:
        """Set the programme's bounds to a node's restrictions, and its basis if one is given."""
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
        if basis is not None:
            self._restore(basis)
        if self._penalty_factor > 1.0:
            self._set_penalty(1.0)
        self._strategy = DUAL_SIMPLEX

    def raise_penalty(self) -> bool:
        """Raise the penalty of admitted jobs for the present node; return False if it has reached its maximum."""
        if self._penalty_factor >= MAX_PENALTY_FACTOR:
            return False
        self._set_penalty(self._penalty_factor * PENALTY_STEP)
        return True

    def add_schedules(self, priced: PricedSchedules) -> int:
        """Add the schedules that aren't in the programme, all allowed in the present node; return their number."""
        added = priced.select(self._keys.append_new(priced))
        self.schedules = self.schedules.followed_by(added)
        self._append_columns(added, is_allowed=np.ones(len(added), dtype=np.bool_))
        self._strategy = PRIMAL_SIMPLEX
        return len(added)

    def add_cuts(self, cuts: Sequence[Cut]) -> None:
        """Add cuts as rows."""
        self._strategy = DUAL_SIMPLEX
        first = len(self.cuts)
        self.cuts.add(cuts)
        # The columns of the jobs' penalties are 0 in the rows of cuts.
        penalties = csr_array((len(cuts), self._tables.num_jobs))
        use = hstack([penalties, csr_array(self._cut_shares(self.schedules, first))], format="csr")
        add_rows(self._highs, use)
        self._last_cut_use = np.concatenate([self._last_cut_use, np.full(len(cuts), self._num_solves)])
        self._cut_serial = np.concatenate([self._cut_serial, self._num_cut_serials + np.arange(len(cuts))])
        self._num_cut_serials += len(cuts)

    def estimate(self, max_iterations: int) -> float:
        """Return the objective after at most `max_iterations` steps of the dual simplex method."""
        highs = self._highs
        highs.setOptionValue("simplex_strategy", DUAL_SIMPLEX)
        highs.setOptionValue("simplex_iteration_limit", max_iterations)
        run_in_place(highs)
        highs.setOptionValue("simplex_iteration_limit", NO_LIMIT)
        return self._objective()

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
            value=self._objective(),
            weight=np.maximum(primal[num_jobs:], 0.0),
            infeasibility=float(primal[:num_jobs].sum()),
            row_prices=row_prices,
            multiplier=cut_dual / self.cuts.right_hand_side,
            job_price=dual[num_live : self.num_base_rows],
        )

    def _objective(self) -> float:
        """Return the objective after a run, and count the run's iterations."""
        info = self._highs.getInfo()
        self.num_iterations += max(0, int(info.simplex_iteration_count))
        return float(info.objective_function_value)

    def loads(self, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return each job's workers and PSs in each class and slot, weighted, shape (jobs, classes, slots) each."""
        return class_loads(self._tables.instance, *self._entries(weight, np.flatnonzero(weight > 0)))

    def counts(self, weight: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return the sorted entries of a point's schedules with their weights, as `ColumnPool.counts` does."""
        return sorted_counts(*self._entries(weight, np.flatnonzero(weight > MIN_WEIGHT)))

    def totals(self, weight: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return sorted entries (slot, job, workers in all classes) of a point's schedules, and the weight of each."""
        on = np.flatnonzero(weight > MIN_WEIGHT)
        number = self.schedules.workers[on].sum(axis=1)
        k, t = np.nonzero(number)
        return sorted_counts(np.column_stack([t, self.schedules.jobs[on[k]], number[k, t]]), weight[on[k]])

    def _entries(self, weight: FloatArray, on: IntArray) -> tuple[IntArray, FloatArray]:
        """Return rows (side, class, slot, job, count) of the given schedules, and the weight of each row's schedule."""
        blocks, weights = [], []
        for side, counts in enumerate((self.schedules.workers, self.schedules.ps)):
            k, c, t = np.nonzero(counts[on])
            column = on[k]
            blocks.append(
                np.column_stack([np.full_like(c, side), c, t, self.schedules.jobs[column], counts[column, c, t]])
            )
            weights.append(weight[column])
        return np.concatenate(blocks), np.concatenate(weights)

    def purge_columns(self, max_schedules: int, max_cuts: int) -> None:
        """If there are more schedules (or cuts) than the maximum, keep half that number, those used last, and rebuild."""
        if len(self.schedules) <= max_schedules and len(self.cuts) <= max_cuts:
            return
        columns, cuts = np.arange(len(self.schedules)), np.arange(len(self.cuts))
        if len(columns) > max_schedules:
            columns = np.sort(np.argsort(-self._last_use, kind="stable")[: max_schedules // 2])
        if len(cuts) > max_cuts:
            cuts = np.sort(np.argsort(-self._last_cut_use, kind="stable")[: max_cuts // 2])
        self._rebuild(columns, cuts)

    def drop_idle_cuts(self) -> None:
        """Delete the cuts whose multiplier is 0 at the last point, and rebuild the programme."""
        cut_index = np.flatnonzero(self._last_cut_use == self._num_solves)
        if len(cut_index) < len(self.cuts):
            self._rebuild(np.arange(len(self.schedules)), cut_index)

    def _rebuild(self, columns: IntArray, kept_cuts: IntArray) -> None:
        """Build the programme again with the given schedules and cuts."""
        self.schedules = self.schedules.select(columns)
        self._keys.take(columns)
        self.cuts.keep(kept_cuts)
        self._last_cut_use = self._last_cut_use[kept_cuts]
        self._cut_serial = self._cut_serial[kept_cuts]
        last_use, serial = self._last_use[columns], self._serial[columns]
        self._is_admitted = np.zeros_like(self._is_admitted)
        self._is_allowed = np.zeros(0, dtype=np.bool_)
        self._last_use = np.zeros(0, dtype=np.int64)
        self._penalty_factor = 1.0
        self._highs = self._empty_programme()
        add_rows(self._highs, csr_array((len(self.cuts), self._tables.num_jobs)))
        self._append_columns(self.schedules, is_allowed=self._limits.allows(self._tables, self.schedules))
        self._last_use, self._serial = last_use, serial

    def _column_serials(self) -> IntArray:
        """Return the serial number of each column: the jobs' penalties, then the schedules."""
        num_jobs = self._tables.num_jobs
        return np.concatenate([np.arange(num_jobs), num_jobs + self._serial])

    def _row_serials(self) -> IntArray:
        """Return the serial number of each row: capacity rows, jobs' rows, then cuts."""
        return np.concatenate([np.arange(self.num_base_rows), self.num_base_rows + self._cut_serial])

    def _restore(self, basis: MasterBasis) -> None:
        import highspy

        status, restored = highspy.HighsBasisStatus, highspy.HighsBasis()
        is_basic = np.isin(self._column_serials(), basis.columns)
        is_nonbasic = np.isin(self._row_serials(), basis.rows)
        restored.col_status = [status.kBasic if basic else status.kNonbasic for basic in is_basic.tolist()]
        restored.row_status = [status.kNonbasic if nonbasic else status.kBasic for nonbasic in is_nonbasic.tolist()]
        restored.valid = True
        # If a column or row has been deleted, the rest may be too few, too many or dependent. HiGHS repairs an alien basis.
        restored.alien = int(is_basic.sum()) != len(basis.columns) or int(is_nonbasic.sum()) != len(basis.rows)
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
        shares = self._cut_shares(schedules, 0)
        cut, of_cut = np.nonzero(shares)
        each = np.arange(number)
        row = np.concatenate([self._place[usage.indices], len(self._live) + schedules.jobs, self.num_base_rows + cut])
        column = np.concatenate([np.repeat(each, np.diff(usage.indptr)), each, of_cut])
        entry = np.concatenate([usage.data * self._scale[usage.indices], np.ones(number), shares[cut, of_cut]])
        # For a few columns, stacking SciPy matrices takes several times as long as one matrix from sorted triplets.
        order = np.lexsort((row, column))
        order = order[row[order] >= 0]
        first = np.concatenate([[0], np.cumsum(np.bincount(column[order], minlength=number))])
        matrix = csc_array((entry[order], row[order], first), shape=(self.num_base_rows + len(shares), number))
        value = self._tables.value[schedules.jobs, schedules.completion]
        add_columns(self._highs, value, matrix, np.where(is_allowed, np.inf, 0.0))
        self._is_allowed = np.concatenate([self._is_allowed, is_allowed])
        self._last_use = np.concatenate([self._last_use, np.full(number, self._num_solves)])
        self._serial = np.concatenate([self._serial, self._num_serials + np.arange(number)])
        self._num_serials += number

    def _job_rows(self, jobs: IntArray) -> csr_array:
        """Return the part of the jobs' rows with columns of the given jobs, shape (all jobs, columns)."""
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
        self._strategy = PRIMAL_SIMPLEX

    def _set_bounds(self, columns: IntArray, upper: FloatArray) -> None:
        if len(columns):
            self._highs.changeColsBounds(
                len(columns), columns.astype(np.int32), np.zeros(len(columns)), np.ascontiguousarray(upper)
            )


PAYOFF_TOL = 1e-9
"""A schedule enters the master only if its payoff exceeds its job's price by this share of max(1, price)."""

INFEASIBILITY_TOL = 1e-7
"""A `MasterPoint.infeasibility` of at most this much is a rounding error."""

CENTER_SHARE = 0.5
"""Weight of the best point's prices in the average at which schedules are priced first; the master's prices have the rest."""

CONVERGED_TOL = 1e-8
"""Relative gap between bound and master at which column generation ends."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeResult:
    """Result of bounding a node.

    Parameters
    ----------
    point
        The best dual point found.
    master
        The last point of the master; None if the bound fell to the cutoff.
    is_converged
        Whether column generation ended because no priced schedule improves the master, so that its value is the bound.
    basis
        The master's last basis, from which the node's children start.
    """

    point: DualPoint
    master: MasterPoint | None
    is_converged: bool
    basis: MasterBasis | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEffortLimits:
    """Limits of the work on a node.

    Parameters
    ----------
    max_rounds
        Maximum number of solved masters.
    max_cut_rounds
        Maximum number of rounds of cuts.
    max_count_rounds
        Number of the first rounds of cuts that also separate count cuts and slot cuts.
    min_gain
        No further cuts are added once a round lowers the master's value by less than this share of the value's distance
        to the cutoff.
    """

    max_rounds: int
    max_cut_rounds: int
    max_count_rounds: int
    min_gain: float


class NodeBounder:
    """Bounds nodes one after the other; schedules and cuts of earlier nodes stay in the master.

    Parameters
    ----------
    tables, rows
        The instance.
    """

    def __init__(self, tables: JobTables, rows: CapacityRows) -> None:
        self._tables, self._rows = tables, rows
        self._separator = CutSeparator(tables.instance)
        self._count_separator = CountSeparator(tables.instance)
        self._slot_separator = SlotSeparator(tables.instance)
        self.pricer = NodePricer.of(tables)
        best = self.pricer.price(self._no_prices(), BranchRestrictions.free(tables))
        self.max_value = float(best.payoff.sum())
        self.master = NodeMaster(tables, rows, penalty=2.0 * self.max_value + 1.0)
        self.master.load_node(BranchRestrictions.free(tables))
        self.master.add_schedules(best)
        self.num_rounds = 0

    def zero_dual_point(self) -> DualPoint:
        """Return the dual point at which all prices are 0."""
        prices = self._no_prices()
        priced = self.pricer.price(prices, BranchRestrictions.free(self._tables))
        return DualPoint(
            row_prices=self._rows.flat(prices),
            payoff=priced.payoff,
            bound=float(priced.payoff.sum()),
        )

    def bound(
        self,
        limits: BranchRestrictions,
        start: DualPoint,
        *,
        cutoff: float,
        effort: NodeEffortLimits,
        should_stop: Callable[[float], bool],
        basis: MasterBasis | None = None,
    ) -> NodeResult:
        """Lower a node's bound until it is the master's value with all violated cuts, or at most `cutoff`.

        Parameters
        ----------
        limits
            The node's restrictions, which leave every admitted job a schedule.
        start
            A dual point that is valid for the node, such as its parent's.
        cutoff
            The work ends as soon as the bound is at most this value.
        effort
            Limits of the work; at these, the bound may be above the master's value.
        should_stop
            Called with the present bound after each pricing; True ends the work.
        basis
            Basis from which the master starts; None: its present one.
        """
        best, master = start, self.master
        master.load_node(limits, basis)
        center = self._center(start)
        num_cut_rounds, last_value = 0, math.inf
        for _ in range(effort.max_rounds):
            point = master.solve()
            out = point.row_prices, point.multiplier
            self.num_rounds += 1
            # Prices between the best point and the master's give smaller upper bounds and better schedules. Only the master's
            # own prices show whether it lacks schedules.
            for share in (CENTER_SHARE, 0.0):
                of_rows, of_cuts = (share * c + (1.0 - share) * o for c, o in zip(center, out, strict=True))
                prices = of_rows, of_cuts
                priced, candidate = self._price(prices, limits)
                if candidate.bound < best.bound:
                    best, center = candidate, prices
                if best.bound <= cutoff:
                    return NodeResult(point=best, master=None, is_converged=False)
                if should_stop(best.bound):
                    return NodeResult(point=best, master=point, is_converged=False)
                is_improved = self._improve(point, priced, best.bound)
                if is_improved:
                    break
            if is_improved:
                continue
            if point.infeasibility > INFEASIBILITY_TOL and master.raise_penalty():
                continue
            gain = last_value - point.value
            is_worth = gain >= effort.min_gain * max(point.value - cutoff, 0.0)
            last_value = point.value
            if num_cut_rounds == effort.max_cut_rounds or not is_worth:
                return NodeResult(point=best, master=point, is_converged=True, basis=master.basis())
            cuts: list[Cut] = [*self._separator.separate(*master.loads(point.weight))]
            if num_cut_rounds < effort.max_count_rounds:
                cuts += self._count_separator.separate(*master.counts(point.weight))
                cuts += self._slot_separator.separate(*master.totals(point.weight))
            if not cuts:
                return NodeResult(point=best, master=point, is_converged=True, basis=master.basis())
            num_cut_rounds += 1
            master.add_cuts(cuts)
            center = center[0], np.concatenate([center[1], np.zeros(len(cuts))])
        return NodeResult(point=best, master=point, is_converged=False, basis=master.basis())

    def estimate(self, limits: BranchRestrictions, basis: MasterBasis | None) -> float:
        """Return an estimate of the value of a node's master.

        The estimate proves nothing: the master has only the known schedules, and the simplex method takes few steps.
        """
        self.master.load_node(limits, basis)
        return self.master.estimate(ESTIMATE_ITERATIONS)

    def _improve(self, point: MasterPoint, priced: PricedSchedules, bound: float) -> bool:
        """Add the schedules whose payoff exceeds their job's price; return whether any of them is new."""
        if bound - point.value <= CONVERGED_TOL * max(1.0, abs(point.value)):
            return False
        needed = point.job_price + PAYOFF_TOL * np.maximum(1.0, np.abs(point.job_price))
        on = np.flatnonzero(priced.completion >= 0)
        payoff = np.full(len(priced), -math.inf)
        payoff[on] = self.payoff(priced.select(on), point)
        priced.completion[payoff <= needed] = -1
        return self.master.add_schedules(priced) > 0

    def payoff_by_slot(self, point: DualPoint, limits: BranchRestrictions) -> FloatArray:
        """Return each job's largest payoff by completion slot at a dual point, as `NodePricer.by_slot` does."""
        cuts = self.master.cuts if point.cuts is self.master.cuts.cuts else CutTable(self._tables.instance, point.cuts)
        return self.pricer.by_slot(cuts.charged(self._rows.prices(point.row_prices), point.multiplier), limits)

    def payoff(self, schedules: PricedSchedules, point: MasterPoint) -> FloatArray:
        """Return the value less the cost of each schedule at the master's duals, shape (schedules,)."""
        cost = usage_matrix(self._tables, self._rows, schedules).T @ point.row_prices
        if len(self.master.cuts):
            cost = cost + point.multiplier @ self.master.cuts.use(schedules)
        payoff: FloatArray = self._tables.value[schedules.jobs, schedules.completion] - cost
        return payoff

    def _center(self, start: DualPoint) -> tuple[FloatArray, FloatArray]:
        """Return a point's row prices, and its multipliers of the master's present cuts, 0 for cuts that it lacks."""
        known = {id(cut): multiplier for cut, multiplier in zip(start.cuts, start.multiplier.tolist(), strict=True)}
        multiplier = np.array([known.get(id(cut), 0.0) for cut in self.master.cuts.cuts])
        return start.row_prices, multiplier

    def _price(
        self, point: tuple[FloatArray, FloatArray], limits: BranchRestrictions
    ) -> tuple[PricedSchedules, DualPoint]:
        """Price all jobs at row prices and cut multipliers; return the schedules and the dual point with its bound."""
        row_prices, multiplier = point
        cuts = self.master.cuts
        prices = cuts.charged(self._rows.prices(row_prices), multiplier)
        priced = self.pricer.price(prices, limits)
        rents = float(row_prices @ self._rows.capacity + multiplier @ cuts.right_hand_side)
        return priced, DualPoint(
            row_prices=row_prices,
            cuts=cuts.cuts,
            multiplier=multiplier,
            payoff=priced.payoff,
            bound=float(priced.payoff.sum()) + rents,
        )

    def _no_prices(self) -> Prices:
        zero: FloatArray = np.zeros(self._rows.num_rows)
        return self._rows.prices(zero)

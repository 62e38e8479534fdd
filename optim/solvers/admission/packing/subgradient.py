"""Price search for the packing LP, and the columns that it generates.

Every evaluated price point gives a Lagrangian bound, a subgradient and each job's best schedule. There are two
searches. In-out separation moves along the line between the best point and the master's point. On this line, the bound is a
convex, piecewise linear function whose pieces are given by columns. The other search takes Polyak's steps.

References
----------
Ben-Ameur, Neto, "Acceleration of cutting-plane and column generation algorithms: applications to network
design", 2007, DOI 10.1002/net.20137 (in-out separation).
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csc_array, vstack

from optim.core.arrays import FloatArray, IntArray
from optim.core.driver import Monitor
from optim.solvers.admission.cuts.cut_table import CutTable
from optim.solvers.admission.packing.capacity_rows import CapacityRows, usage_matrix
from optim.solvers.admission.packing.column_pool import ColumnPool
from optim.solvers.admission.packing.dual_points import DualPoint, PolyakSteps
from optim.solvers.admission.pricing.classes import JobTables, price

if TYPE_CHECKING:
    from optim.solvers.admission.pricing.sharded_pricing import CrewPricer

FIRST_TARGET = 0.96
"""Polyak target of the first steps, as a share of the best bound, before any primal value is known."""

STALL_LIMIT = 4
"""Steps without progress after which the step length is halved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubgradientOptions:
    """Number of Polyak steps; every `add_every`-th step adds its columns."""

    num_steps: int
    add_every: int = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Evaluation:
    """Result at a price point: its bound, the best schedules' total use of each row, and the number of new columns."""

    bound: float
    use: FloatArray
    num_new: int


class PriceSearch:
    """Evaluates price points of one LP, and stores the best one and the columns.

    Parameters
    ----------
    tables, rows
        The instance's pricing tables and capacity rows.
    pool
        The columns; the search adds new columns.
    cuts
        The active cuts.
    monitor
        Polled after each point.
    """

    def __init__(
        self, tables: JobTables, rows: CapacityRows, pool: ColumnPool, cuts: CutTable, monitor: Monitor | None = None
    ) -> None:
        self._tables, self._rows = tables, rows
        self._pool, self._cuts = pool, cuts
        self._best: DualPoint | None = None
        self._proven: DualPoint | None = None
        self.monitor = Monitor() if monitor is None else monitor
        self.pricer: CrewPricer | None = None
        """Pool of worker processes that prices the jobs, without cuts; None: this process prices them."""
        self.limit: FloatArray = rows.capacity
        """Right-hand sides: capacities in units, then those of the cuts, shape (rows,)."""
        self.scale: FloatArray = np.divide(1.0, rows.capacity, out=np.zeros_like(rows.capacity), where=self.limit > 0)
        """Inverses of the right-hand sides, 0 for rows without capacity, shape (rows,)."""
        self.average_use: FloatArray = np.zeros(rows.num_rows)
        """Use of rows by the best schedules at recent points, exponentially averaged."""

    @property
    def is_started(self) -> bool:
        """Whether any point was evaluated."""
        return self._best is not None

    @property
    def best(self) -> DualPoint:
        """The best point of the LP with its present cuts."""
        assert self._best is not None, "the first step prices the start"
        return self._best

    @property
    def proven(self) -> DualPoint:
        """The point with the lowest bound so far, whichever cuts were active."""
        assert self._proven is not None, "the first step prices the start"
        return self._proven

    def add_rows(self, right_hand_side: FloatArray) -> None:
        """Append rows for new cuts; the best point remains valid, with multiplier 0 for each new row."""
        self.limit = np.concatenate([self.limit, right_hand_side])
        self.scale = np.concatenate([self.scale, 1.0 / right_hand_side])
        self.average_use = np.concatenate([self.average_use, right_hand_side])
        if self._best is not None:
            multiplier = np.concatenate([self._best.multiplier, np.zeros(len(right_hand_side))])
            self._best = replace(self._best, cuts=self._cuts.cuts, multiplier=multiplier)

    def keep_rows(self, row_index: IntArray) -> None:
        """Remove all rows except the given ones; price the best point again without the removed rows."""
        prices = self.best.prices[row_index]
        self.limit, self.scale, self.average_use = (
            self.limit[row_index],
            self.scale[row_index],
            self.average_use[row_index],
        )
        self._best = None
        self.subgradient_steps(prices, SubgradientOptions(num_steps=1), None)

    def in_out_line_search(self, end: FloatArray, num_points: int) -> int:
        """Minimise the bound on the line from the best point to `end` by bisection on its slope.

        The point `end` is evaluated first. Returns the number of new columns.
        """
        start = self.best.prices
        step = end - start
        low, high, place, num_new = 0.0, 1.0, 1.0, 0
        for _ in range(num_points):
            evaluation = self._evaluate(start + place * step)
            num_new += evaluation.num_new
            if float((self.limit - evaluation.use) @ step) <= 0:
                if place == 1.0:
                    break
                low = place
            else:
                high = place
            place = 0.5 * (low + high)
            if self.monitor.is_over():
                break
        return num_new

    def subgradient_steps(self, start: FloatArray, subgradient: SubgradientOptions, target: float | None) -> int:
        """Take Polyak's steps towards a target bound; return the number of new columns."""
        point, num_new = start, 0
        steps = PolyakSteps(self.limit, STALL_LIMIT)
        for step in range(subgradient.num_steps):
            previous = np.inf if self._best is None else self._best.bound
            evaluation = self._evaluate(point, keeps_columns=step % subgradient.add_every == 0)
            num_new += evaluation.num_new
            steps.watch(evaluation.bound, previous)
            if step == subgradient.num_steps - 1 or self.monitor.is_over():
                break
            goal = FIRST_TARGET * self.best.bound if target is None else target
            moved = steps.next(point, evaluation.bound, evaluation.use, goal)
            if moved is None:
                break
            point = moved
        return num_new

    def _evaluate(self, point: FloatArray, *, keeps_columns: bool = True) -> _Evaluation:
        if self.pricer is not None:
            return self._ask(self.pricer, point, keeps_columns=keeps_columns)
        num_rows = self._rows.num_rows
        prices = self._cuts.charged(self._rows.prices(point[:num_rows]), point[num_rows:])
        priced = price(self._tables, prices)
        usage = usage_matrix(self._tables, self._rows, priced)
        if len(self._cuts):
            usage = csc_array(vstack([usage, csc_array(self._cuts.use(priced))], format="csc"))
        use = usage @ np.ones(usage.shape[1])
        bound = self._note(point, priced.payoff, use)
        return _Evaluation(bound=bound, use=use, num_new=self._pool.add(priced, usage) if keeps_columns else 0)

    def _ask(self, pricer: "CrewPricer", point: FloatArray, *, keeps_columns: bool) -> _Evaluation:
        """Evaluate a point with a worker pool."""
        payoff, use, keys = pricer.price(point)
        bound = self._note(point, payoff, use)
        new = self._pool.unknown(keys) if keeps_columns else np.zeros(0, dtype=np.int64)
        num_new = self._pool.add(pricer.columns(point, new)) if len(new) else 0
        return _Evaluation(bound=bound, use=use, num_new=num_new)

    def _note(self, point: FloatArray, payoff: FloatArray, use: FloatArray) -> float:
        """Return a point's bound, and store the point if the bound is the best one."""
        bound = float(payoff.sum() + point @ self.limit)
        self.average_use = 0.9 * self.average_use + 0.1 * use
        if self._best is None or bound < self._best.bound:
            row_prices, multiplier = np.split(point, [self._rows.num_rows])
            self._best = DualPoint(
                row_prices=row_prices, payoff=payoff, bound=bound, cuts=self._cuts.cuts, multiplier=multiplier
            )
            if self._proven is None or bound <= self._proven.bound:
                self._proven = self._best
        return bound

"""Prices found anew for what is left of the cluster and what is still expected of the day.

References
----------
Jasin, Kumar, "A re-solving heuristic with bounded revenue loss for network revenue management with customer choice",
2012, DOI 10.1287/moor.1120.0537. Vera, Banerjee, "The Bayesian prophet: a low-regret framework for online decision
making", 2021, DOI 10.1287/mnsc.2020.3624.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from optim.core.driver import Monitor
from optim.core.stopping import IterationLimit
from optim.models.admission.instance import AdmissionInstance, FloatArray, Jobs
from optim.models.admission.union import together
from optim.solvers.admission.learned.reservations import left_by_class
from optim.solvers.admission.packing.packing_lp import PackingLP, PackingResult
from optim.solvers.admission.packing.price_search import Walk
from optim.solvers.admission.posted_prices.server_state import ClusterState
from optim.solvers.admission.pricing.capacity_rows import CapacityRows, total_use
from optim.solvers.admission.pricing.class_pricing import Prices, price
from optim.solvers.admission.pricing.column_pool import ColumnPool
from optim.solvers.admission.pricing.job_tables import JobTables

TOL, FIRST_TOL = 2e-2, 1e-2
"""Relative gap at which a re-solve ends before its rounds do, and that to which columns are sought before the day."""

FIRST_ROUNDS = 6
"""Most masters before the day."""

STEPS, STEPS_BETWEEN = 20, 6
"""Polyak steps from the forecast's prices before the first master, and after each, before the day."""

MASTER_STEPS = 80
"""First-order steps of a re-solve's first master: from the last one's columns, weights and prices it has not far to go."""

LEAST_LEFT = 1e-2
"""Share of its capacity that a row counts on at least: what has no capacity has no price, and a slot that is full is dear."""


class Resolver:
    """Solves the sample-average LP for the rest of a day.

    Parameters
    ----------
    cluster
        Today's cluster.
    days
        The jobs that each of the expected days brings.
    rounds
        Most masters of one solve.
    fill
        Share of the capacities that the LP counts on.

    Notes
    -----
    What a re-solve costs is pricing (every job's best schedule at a price point, some 20 ms for four days of 200 jobs) and
    masters. The columns of one solve are those of the next but for jobs that have arrived since: they are kept, a master takes
    some first-order steps on from the last one's point, and one point a master is priced.
    """

    def __init__(self, cluster: AdmissionInstance, days: Sequence[Jobs], rounds: int, fill: float) -> None:
        self._tables = JobTables.build(together(days, cluster))
        self._rows, self._num_days, self._rounds = CapacityRows.of(self._tables), len(days), rounds
        self._fill = fill
        self._solved_at, self._left = 0, self._rows.capacity
        self._pool: ColumnPool | None = None

    def prepare(self, start: Prices, monitor: Monitor | None = None) -> None:
        """Find the columns of an empty cluster before the day begins, so that no solve within it starts without any."""
        self._seek_columns(self._tables, self._on(self._rows.capacity, 0), self._rows.flat(start), monitor)

    def solve(self, state: ClusterState, slot: int, start: Prices) -> Prices:
        """Return prices for the slots from `slot` on; past slots keep those of `start`, and all do where no job is expected.

        They prove at least as small a bound on the rest of the day as those of `start` do.
        """
        rows, tables = self._rows, self._tables
        self._solved_at, self._left = slot, self._flat(left_by_class(state))
        is_expected = tables.arrival >= slot
        if not is_expected.any():
            return start
        now, last = self._on(self._left, slot), rows.flat(start)
        rest = replace(tables, value=np.where(is_expected[:, None], tables.value, 0.0))
        if self._pool is None:
            found = self._seek_columns(rest, now, last)
        else:
            programme = PackingLP(rest, now, self._pool.on(rest, now), MASTER_STEPS)
            found = programme.run(
                Monitor(IterationLimit(self._rounds)),
                tol=TOL,
                first=Walk(num_steps=1),
                between=Walk(num_steps=0),
                start=np.where(now.capacity > 0, last, 0.0),
                line_points=1,
            )
            self._pool = found.pool
        return rows.prices(np.where(now.capacity > 0, found.point.row_prices, last))

    def _seek_columns(
        self, tables: JobTables, rows: CapacityRows, start: FloatArray, monitor: Monitor | None = None
    ) -> PackingResult:
        """Solve the LP without columns from before."""
        found = PackingLP(tables, rows).run(
            (Monitor() if monitor is None else monitor).part(IterationLimit(FIRST_ROUNDS)),
            tol=FIRST_TOL,
            first=Walk(num_steps=STEPS, add_every=2),
            between=Walk(num_steps=STEPS_BETWEEN),
            start=np.where(rows.capacity > 0, start, 0.0),
        )
        self._pool = found.pool
        return found

    def _on(self, left: FloatArray, slot: int) -> CapacityRows:
        """Return the rows with what the expected days have of them from a slot on: all of them share what is left."""
        capacity = np.maximum(left, LEAST_LEFT * self._rows.capacity)
        return replace(self._rows, capacity=self._num_days * self._fill * capacity * self._is_ahead(slot))

    def drift(self, state: ClusterState, slot: int, prices: Prices) -> float:
        """Return how far the cluster is from the path that was expected at the last solve.

        The worth of the difference between what is left and what would be, had the expected jobs since then taken
        their best schedules, over the worth of the capacity, in the slots to come.
        """
        rows, tables = self._rows, self._tables
        between = np.flatnonzero((tables.arrival >= self._solved_at) & (tables.arrival < slot))
        expected = self._left - total_use(tables, rows, price(tables, prices, jobs=between)) / self._num_days
        worth = rows.flat(prices) * self._is_ahead(slot)
        total = float(worth @ rows.capacity)
        return float(worth @ np.abs(self._flat(left_by_class(state)) - expected)) / total if total > 0 else 0.0

    def _flat(self, sides: tuple[FloatArray, ...]) -> FloatArray:
        return np.concatenate([side.ravel() for side in sides])

    def _is_ahead(self, slot: int) -> FloatArray:
        """Return 1 for rows of slots from `slot` on, 0 for those that are past."""
        shapes = (self._rows.worker_shape, self._rows.ps_shape)
        return self._flat(
            tuple(np.broadcast_to((np.arange(shape[1]) >= slot)[None, :, None] * 1.0, shape) for shape in shapes)
        )

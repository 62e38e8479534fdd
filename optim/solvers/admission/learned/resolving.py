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
from optim.solvers.admission.packing.packing_lp import PackingLP
from optim.solvers.admission.packing.price_search import Walk
from optim.solvers.admission.posted_prices.server_state import ClusterState
from optim.solvers.admission.pricing.capacity_rows import CapacityRows, total_use
from optim.solvers.admission.pricing.class_pricing import Prices, price
from optim.solvers.admission.pricing.job_tables import JobTables

TOL = 1e-2
"""Relative gap at which a re-solve ends before its rounds do."""

STEPS, STEPS_BETWEEN = 20, 6
"""Polyak steps from the last prices before the first master, and after each."""


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
    """

    def __init__(self, cluster: AdmissionInstance, days: Sequence[Jobs], rounds: int, fill: float) -> None:
        self._tables = JobTables.build(together(days, cluster))
        self._rows, self._num_days, self._rounds = CapacityRows.of(self._tables), len(days), rounds
        self._fill = fill
        self._solved_at, self._left = 0, self._rows.capacity

    def solve(self, state: ClusterState, slot: int, start: Prices) -> Prices:
        """Return prices for the slots from `slot` on; rows without anything left keep theirs."""
        rows, tables = self._rows, self._tables
        self._solved_at, self._left = slot, self._flat(left_by_class(state))
        last = rows.flat(start)
        # What is taken is taken: only of what is left less than all can be counted on.
        capacity = self._num_days * self._fill * np.maximum(self._left, 0.0) * self._is_ahead(slot)
        is_expected = tables.arrival >= slot
        if not is_expected.any():
            return start
        rest = replace(tables, value=np.where(is_expected[:, None], tables.value, 0.0))
        result = PackingLP(rest, replace(rows, capacity=capacity)).run(
            Monitor(IterationLimit(self._rounds)),
            tol=TOL,
            first=Walk(num_steps=STEPS, add_every=2),
            between=Walk(num_steps=STEPS_BETWEEN),
            start=np.where(capacity > 0, last, 0.0),
        )
        return rows.prices(np.where(capacity > 0, result.point.row_prices, last))

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

"""Pricing under a node's restrictions: what branching leaves of each job's schedules, and the best of them."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optim.core.by_reference import by_reference
from optim.models.admission.instance import FloatArray, IntArray
from optim.models.admission.proof import Branch, BranchKind
from optim.solvers.admission.pricing.best_schedule import JobArrays
from optim.solvers.admission.pricing.capacity_rows import CapacityRows
from optim.solvers.admission.pricing.class_pricing import PricedSchedules, Prices, curves_or_none, unit_costs
from optim.solvers.admission.pricing.job_tables import JobTables
from optim.solvers.admission.tree.node_pricing_loop import (
    SeparateSource,
    SharedSource,
    price_restricted,
    price_restricted_shared,
)


@by_reference
class NodeLimits(NamedTuple):
    """What a node leaves of each job's schedules.

    Parameters
    ----------
    is_refused, is_admitted
        Shape (jobs,), bytes: the job has no schedule, or certainly has one.
    first, last
        Shape (jobs,): slots in which it may complete.
    worker_low, ps_low
        Shape (jobs, classes, slots): fewest units.
    worker_high, ps_high
        Shape (segments, classes, slots): most units.
    """

    is_refused: IntArray
    is_admitted: IntArray
    first: IntArray
    last: IntArray
    worker_low: IntArray
    ps_low: IntArray
    worker_high: IntArray
    ps_high: IntArray

    @classmethod
    def free(cls, tables: JobTables) -> "NodeLimits":
        """Return the limits of the root: none but the instance's."""
        horizon = tables.value.shape[1]
        none = np.zeros(tables.num_jobs, dtype=np.int64)
        return cls(
            is_refused=none,
            is_admitted=none.copy(),
            first=none.copy(),
            last=np.full(tables.num_jobs, horizon - 1, dtype=np.int64),
            worker_low=np.zeros((tables.num_jobs, *tables.worker_limit.shape[1:]), dtype=np.int64),
            ps_low=np.zeros((tables.num_jobs, *tables.ps_limit.shape[1:]), dtype=np.int64),
            worker_high=tables.worker_limit.copy(),
            ps_high=tables.ps_limit.copy(),
        )

    def narrowed(self, tables: JobTables, branch: Branch, *, is_high: bool) -> "NodeLimits":
        """Return the limits of a branch's low or high child."""
        i, v = branch.job, branch.value
        match branch.kind:
            case BranchKind.ADMITTED if is_high:
                return self._replace(is_admitted=_with(self.is_admitted, i, 1))
            case BranchKind.ADMITTED:
                return self._replace(is_refused=_with(self.is_refused, i, 1))
            case BranchKind.COMPLETION if is_high:
                return self._replace(first=_with(self.first, i, max(int(self.first[i]), v + 1)))
            case BranchKind.COMPLETION:
                return self._replace(last=_with(self.last, i, min(int(self.last[i]), v)))
        is_worker = branch.kind is BranchKind.WORKERS
        place = (branch.server_class, branch.slot)
        if is_high:
            low = self.worker_low if is_worker else self.ps_low
            low = _with(low, (i, *place), max(int(low[i, *place]), v + 1))
            admitted = _with(self.is_admitted, i, 1)
            return self._replace(is_admitted=admitted, **{"worker_low" if is_worker else "ps_low": low})
        high = (self.worker_high if is_worker else self.ps_high).copy()
        own = slice(int(tables.segment_offset[i]), int(tables.segment_offset[i + 1]))
        high[own, *place] = np.minimum(high[own, *place], v)
        return self._replace(**{"worker_high" if is_worker else "ps_high": high})

    def allows(self, tables: JobTables, schedules: PricedSchedules) -> NDArray[np.bool_]:
        """Tell which schedules the node leaves, shape (schedules,)."""
        job, completion = schedules.jobs, schedules.completion
        result: NDArray[np.bool_] = (self.is_refused[job] == 0) & (completion >= self.first[job])
        result &= completion <= self.last[job]
        sides = (
            (schedules.workers, self.worker_low, self.worker_high, tables.worker_limit),
            (schedules.ps, self.ps_low, self.ps_high, tables.ps_limit),
        )
        for counts, low, high, most in sides:
            for i, c, t in np.argwhere(low > 0).tolist():
                result &= (job != i) | (counts[:, c, t] >= low[i, c, t])
            for s, c, t in np.argwhere(high < most).tolist():
                result &= (job != tables.segment_job[s]) | (counts[:, c, t] <= high[s, c, t])
        return result


def _with(array: IntArray, place: int | tuple[int, ...], value: int) -> IntArray:
    changed = array.copy()
    changed[place] = value
    return changed


@by_reference
class PricingScratch(NamedTuple):
    """Work space of the compiled loop."""

    states: FloatArray
    tables: FloatArray
    finish_cost: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodePricer:
    """Prices jobs under restrictions, over server classes with full capacity."""

    tables: JobTables
    jobs: JobArrays
    scratch: PricingScratch
    most: tuple[int, int]

    @classmethod
    def of(cls, tables: JobTables) -> "NodePricer":
        """Lay out arrays and work space for an instance."""
        window = np.maximum(tables.deadline - tables.arrival + 1, 0)
        fastest = tables.progress[tables.table_offset[1:] - 1]
        # Others have no schedule at all; their targets may be beyond any memory.
        live = (window > 0) & (tables.target <= fastest * window)
        longest = int(window[live].max(initial=1))
        widest = int(tables.target[live].max(initial=1))
        most = int(tables.most.max(initial=0))
        segments = int(np.diff(tables.segment_offset).max(initial=1))
        return cls(
            tables=tables,
            jobs=tables.arrays,
            scratch=PricingScratch(
                states=np.empty((longest + 1, widest + 1)),
                tables=np.empty((longest, segments, most + 1)),
                finish_cost=np.empty(1),
            ),
            most=(most, int(tables.ps_needed.max(initial=0))),
        )

    def price(self, prices: Prices, limits: NodeLimits, *, jobs: IntArray | None = None) -> PricedSchedules:
        """Find each job's best schedule that a node leaves, exactly.

        Returns
        -------
        PricedSchedules
            The payoff of a job that may be refused is at least 0; that of a job that must be admitted may
            have either sign, -infinity where it has no schedule.
        """
        tables = self.tables
        which = np.arange(tables.num_jobs) if jobs is None else jobs
        costs = unit_costs(tables, prices)
        priced = PricedSchedules.blank(tables, which)
        out = (self.scratch, priced.payoff, priced.completion, priced.workers, priced.ps)
        sizes, (classes, ps_classes) = [most + 1 for most in self.most], (cost.shape[1] for cost in costs)
        curves = (
            curves_or_none(tables, prices.worker_curves, classes),
            curves_or_none(tables, prices.ps_curves, ps_classes),
        )
        if tables.instance.has_shared_servers:
            pairs = np.empty((classes + 1, sizes[1], sizes[0]))
            price_restricted_shared(
                which, self.jobs, limits, SharedSource(*costs, *curves, tables.class_room, pairs), *out
            )
        else:
            orders = np.empty(classes, dtype=np.int64), np.empty(ps_classes, dtype=np.int64)
            rows = np.empty(sizes[0]), np.empty(sizes[1])
            layers = np.empty((classes + 1, sizes[0])), np.empty((ps_classes + 1, sizes[1]))
            price_restricted(which, self.jobs, limits, SeparateSource(*costs, *curves, *rows, *orders, *layers), *out)
        return priced

    def has_schedule(self, job: int, limits: NodeLimits) -> bool:
        """Tell whether a node leaves any schedule of a job."""
        rows = CapacityRows.of(self.tables)
        free = rows.prices(np.zeros(rows.num_rows))
        return bool(self.price(free, limits, jobs=np.array([job])).completion[0] >= 0)

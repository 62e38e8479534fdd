"""Best schedules of many jobs at given prices, over server classes with full capacity.

This is the pricing problem of column generation and the subroutine of every any-price bound.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optim.models.admission.instance import FloatArray, IntArray
from optim.solvers.admission.pricing.class_tables import (
    ClassSource,
    CurvedSource,
    SharedClassSource,
    SharedCurvedSource,
    price_classes,
    price_curved_classes,
    price_curved_shared_classes,
    price_shared_classes,
)
from optim.solvers.admission.pricing.job_tables import JobTables
from optim.solvers.admission.pricing.shared_room import shared_classes


class Curves(NamedTuple):
    """Costs of units in a class that aren't proportional to their number.

    Parameters
    ----------
    place
        Shape (jobs, slots): row of the next array; row 0 is zero.
    extra
        Shape (rows, classes, counts): what 0, 1, ... units cost more; the last holds for more units, too.
    """

    place: IntArray
    extra: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prices:
    """Prices of rows and of job-specific cuts, over server classes.

    Parameters
    ----------
    worker, ps
        Shape (classes, slots, resources), utils a unit of resource, >= 0. On shared servers all prices
        are worker prices and `ps` has no classes.
    worker_extra, ps_extra
        Shape (segments, classes, slots): what cuts add to the cost of one worker (PS) of a job, or None.
        On shared servers the classes of both are those of the workers' servers.
    worker_curves, ps_curves
        What cuts add to the cost of so many workers (PSs) of a job, or None.
    """

    worker: FloatArray
    ps: FloatArray
    worker_extra: FloatArray | None = None
    ps_extra: FloatArray | None = None
    worker_curves: Curves | None = None
    ps_curves: Curves | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PricedSchedules:
    """The best schedule of each priced job.

    Parameters
    ----------
    jobs
        Shape (priced,): which jobs.
    payoff
        Shape (priced,): value less cost of the best schedule, or the floor where none is better.
    completion
        Shape (priced,): its completion slot, -1 where none is better than the floor.
    workers, ps
        Shape (priced, classes, slots): counts in each class (on shared servers of the same classes).
    """

    jobs: IntArray
    payoff: FloatArray
    completion: IntArray
    workers: NDArray[np.signedinteger[Any]]
    ps: NDArray[np.signedinteger[Any]]

    def __len__(self) -> int:
        return len(self.jobs)

    @classmethod
    def blank(cls, tables: JobTables, jobs: IntArray) -> "PricedSchedules":
        """Return arrays to be filled: no job has a schedule, payoffs are 0."""
        horizon = tables.value.shape[1]
        return cls(
            jobs=jobs,
            payoff=np.zeros(len(jobs)),
            completion=np.full(len(jobs), -1, dtype=np.int64),
            workers=np.zeros((len(jobs), tables.worker_limit.shape[1], horizon), dtype=np.int64),
            ps=np.zeros((len(jobs), tables.ps_limit.shape[1], horizon), dtype=np.int64),
        )

    def select(self, which: IntArray) -> "PricedSchedules":
        """Return the given ones."""
        return PricedSchedules(**{field.name: getattr(self, field.name)[which] for field in fields(self)})

    def followed_by(self, others: "PricedSchedules") -> "PricedSchedules":
        """Return these and others, which have the same classes and slots."""
        names = [field.name for field in fields(self)]
        return PricedSchedules(**{name: np.concatenate([getattr(self, name), getattr(others, name)]) for name in names})


def unit_costs(tables: JobTables, prices: Prices, segments: IntArray | None = None) -> tuple[FloatArray, FloatArray]:
    """Return what one worker and one PS of each job cost, shape (segments, classes, slots) each.

    Where some segments are named the others are left as they come, so that shards of the jobs cost their share.
    """
    ps_prices = prices.worker if tables.instance.has_shared_servers else prices.ps
    worker = _unit_cost(tables.worker_demand, prices.worker, segments)
    ps = _unit_cost(tables.ps_demand, ps_prices, segments)
    if prices.worker_extra is not None:
        worker += prices.worker_extra
    if prices.ps_extra is not None:
        ps += prices.ps_extra
    return worker, ps


def _unit_cost(demand: FloatArray, price: FloatArray, segments: IntArray | None) -> FloatArray:
    """Return demand times price summed over resources: (segments, resources) and (classes, slots, resources)."""
    if segments is not None:
        cost = np.empty((len(demand), *price.shape[:2]))
        cost[segments] = _unit_cost(demand[segments], price, None)
        return cost
    flat: FloatArray = demand @ price.reshape(-1, price.shape[2]).T
    return flat.reshape(len(demand), *price.shape[:2])


def price(
    tables: JobTables,
    prices: Prices,
    *,
    jobs: IntArray | None = None,
    floor: FloatArray | None = None,
    with_schedules: bool = True,
    segments: IntArray | None = None,
) -> PricedSchedules:
    """Find each job's best schedule at the given prices, exactly.

    Parameters
    ----------
    jobs
        Which jobs to price, all by default.
    floor
        Shape (priced,): payoffs not above it are of no interest (0 by default); the search stops earlier.
    with_schedules
        Whether the counts are wanted; without them counts are left empty.
    segments
        Demand segments of the priced jobs, where costs of the others' shall not be worked out.

    Notes
    -----
    Per job O(slots x (work x workers + classes log classes)); stops at the first slot whose value
    doesn't exceed the best payoff. On shared servers a slot costs O(classes x workers x PSs^2) instead of
    O(workers + classes log classes).
    """
    which = np.arange(tables.num_jobs) if jobs is None else jobs
    floors = np.zeros(len(which)) if floor is None else floor
    worker_cost, ps_cost = unit_costs(tables, prices, segments)
    horizon = tables.value.shape[1]
    room = len(which) if with_schedules else 0
    workers = np.zeros((room, worker_cost.shape[1], horizon), dtype=np.int32)
    ps = np.zeros((room, ps_cost.shape[1], horizon), dtype=np.int32)
    payoff, completion = np.zeros(len(which)), np.full(len(which), -1, dtype=np.int64)
    source = class_source(tables, worker_cost, ps_cost)
    out = (with_schedules, payoff, completion, workers, ps)
    is_curved = prices.worker_curves is not None or prices.ps_curves is not None
    if isinstance(source, SharedClassSource):
        if is_curved:
            price_curved_shared_classes(which, floors, tables.arrays, _curved_shared(tables, source, prices), *out)
        else:
            price_shared_classes(which, floors, tables.arrays, source, *out)
    elif is_curved:
        price_curved_classes(which, floors, tables.arrays, _curved(tables, source, prices), *out)
    else:
        price_classes(which, floors, tables.arrays, source, *out)
    return PricedSchedules(jobs=which, payoff=payoff, completion=completion, workers=workers, ps=ps)


def payoffs_along(tables: JobTables, prices: Prices) -> Callable[[float], FloatArray]:
    """Return what gives each job's best payoff, shape (jobs,), at so many times these prices, which no cut bends.

    It is what `price` finds there without schedules, in arrays that are made once: every call writes over what the call
    before returned.
    """
    source = class_source(tables, *unit_costs(tables, prices))
    sides = [
        (demand, price.reshape(-1, price.shape[2]).T, cost.reshape(len(demand), -1))
        for demand, price, cost in (
            (tables.worker_demand, prices.worker, source.worker_cost),
            (tables.ps_demand, prices.worker if tables.instance.has_shared_servers else prices.ps, source.ps_cost),
        )
    ]
    loop = price_shared_classes if tables.instance.has_shared_servers else price_classes
    payoff, completion = np.empty(tables.num_jobs), np.empty(tables.num_jobs, dtype=np.int64)
    none = np.empty((0, 0, 0), dtype=np.int32)
    which, floor = np.arange(tables.num_jobs), np.zeros(tables.num_jobs)

    def at(scale: float) -> FloatArray:
        for demand, price, cost in sides:
            np.matmul(demand, price * scale, out=cost)
        loop(which, floor, tables.arrays, source, False, payoff, completion, none, none)
        return payoff

    return at


def class_source(tables: JobTables, worker_cost: FloatArray, ps_cost: FloatArray) -> ClassSource | SharedClassSource:
    """Return what compiled loops read of the classes, at costs that no cut bends."""
    if tables.instance.has_shared_servers:
        return SharedClassSource(worker_cost, ps_cost, shared_classes(tables.class_room, *tables.most_at_once))
    orders = np.zeros(worker_cost.shape[1], dtype=np.int64), np.zeros(ps_cost.shape[1], dtype=np.int64)
    return ClassSource(worker_cost, tables.worker_limit, ps_cost, tables.ps_limit, *orders)


def _curved(tables: JobTables, source: ClassSource, prices: Prices) -> CurvedSource:
    """Return classes with the curves of cuts, and work space."""
    most = int(tables.most.max(initial=0)), int(tables.ps_needed.max(initial=0))
    sides = []
    for curves, cost, width in zip(
        (prices.worker_curves, prices.ps_curves), (source.worker_cost, source.ps_cost), most, strict=True
    ):
        classes = cost.shape[1]
        sides.append((*curves_or_none(tables, curves, classes), np.empty((classes + 1, width + 1))))
    return CurvedSource(*source, *sides[0], *sides[1])


def _curved_shared(tables: JobTables, source: SharedClassSource, prices: Prices) -> SharedCurvedSource:
    """Return classes of shared servers with the curves of cuts, and work space."""
    classes, (most, most_ps) = source.worker_cost.shape[1], tables.most_at_once
    return SharedCurvedSource(
        *source,
        tables.worker_limit,
        tables.ps_limit,
        *curves_or_none(tables, prices.worker_curves, classes),
        *curves_or_none(tables, prices.ps_curves, classes),
        np.empty((classes + 1, most_ps + 1, most + 1)),
    )


def curves_or_none(tables: JobTables, curves: Curves | None, classes: int) -> Curves:
    """Return curves; without any, those that charge nothing."""
    if curves is not None:
        return curves
    return Curves(np.zeros(tables.value.shape, dtype=np.int64), np.zeros((1, classes, 1)))

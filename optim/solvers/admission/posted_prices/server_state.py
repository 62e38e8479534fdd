"""The cluster as an online rule sees it: what is left of each server in each slot, and its price."""

from dataclasses import dataclass

import numpy as np

from optim.models.admission.instance import MICRO, AdmissionInstance, FloatArray, IntArray, ServerClasses
from optim.solvers.admission.posted_prices.price_functions import PriceFunction
from optim.solvers.admission.posted_prices.price_ranges import PriceRanges, SideRanges
from optim.solvers.admission.pricing.class_pricing import Prices


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Use:
    """What a schedule takes: distinct (slot, server) cells and amounts of each resource, 1e-6 units.

    Parameters
    ----------
    slot, server
        Shape (cells,).
    amount
        Shape (cells, resources).
    """

    slot: IntArray
    server: IntArray
    amount: FloatArray


class ServerSide:
    """One side's servers; residuals and prices change as jobs are admitted.

    Parameters
    ----------
    servers
        The side's classes.
    bounds
        Between which its prices move.
    function
        How they move.
    """

    def __init__(self, servers: ServerClasses, bounds: SideRanges, function: PriceFunction) -> None:
        self.servers = servers
        self._bounds = bounds
        self._function = function
        self._class = servers.class_of_server
        by_slot = np.ascontiguousarray(servers.capacity.transpose(1, 2, 0).astype(np.float64))
        self.rank = np.ascontiguousarray(capacity_ranks(servers)[:, self._class])
        self.capacity: FloatArray = np.ascontiguousarray(by_slot[:, :, self._class])
        """Shape (slots, resources, servers), 1e-6 units; whole numbers, exact in floats."""
        self.residual: FloatArray = self.capacity.copy()
        """Likewise: what is left."""
        empty = function.price(np.zeros(servers.capacity.shape), bounds.log_lower, bounds.log_upper)
        self.price: FloatArray = np.ascontiguousarray(empty.transpose(1, 2, 0)[:, :, self._class])
        """Shape (slots, resources, servers), utils a whole unit."""

    def take(self, use: Use) -> tuple[FloatArray, FloatArray]:
        """Take from the servers and price the touched rows anew; return their prices before and after."""
        cell = (use.slot, slice(None), use.server)
        before = self.price[cell]
        capacity = self.capacity[cell]
        residual = self.residual[cell] - use.amount
        self.residual[cell] = residual
        share = np.divide(capacity - residual, capacity, out=np.zeros_like(capacity), where=capacity > 0)
        row = (self._class[use.server], use.slot)
        after = self._function.price(share, self._bounds.log_lower[row], self._bounds.log_upper[row])
        self.price[cell] = after
        return before, after

    def reprice(self, bounds: SideRanges) -> None:
        """Price every row anew, between other bounds."""
        self._bounds = bounds
        used = self.capacity - self.residual
        share = np.divide(used, self.capacity, out=np.zeros_like(used), where=self.capacity > 0).transpose(2, 0, 1)
        lower, upper = bounds.log_lower[self._class], bounds.log_upper[self._class]
        self.price[...] = self._function.price(share, lower, upper).transpose(1, 2, 0)

    def worth(self) -> float:
        """Return the summed price of the whole capacity, the rows' part of the dual."""
        return float(np.vdot(self.price, self.capacity)) / MICRO

    def prices_by_server(self) -> FloatArray:
        """Return a copy of the prices, shape (servers, slots, resources)."""
        return np.array(self.price.transpose(2, 0, 1), order="C")

    def mean_prices(self) -> FloatArray:
        """Return the prices averaged over each class' servers, shape (classes, slots, resources)."""
        total = np.zeros((self.servers.num_classes, *self.price.shape[:2]))
        np.add.at(total, self._class, self.price.transpose(2, 0, 1))
        return total / np.maximum(self.servers.count, 1)[:, None, None]


class ClusterState:
    """Both sides; on shared servers they are one."""

    def __init__(self, instance: AdmissionInstance, bounds: PriceRanges, function: PriceFunction) -> None:
        self.is_shared = instance.has_shared_servers
        self.worker = ServerSide(instance.worker_servers, bounds.worker, function)
        self.ps = self.worker if self.is_shared else ServerSide(instance.ps_servers, bounds.ps, function)

    @property
    def sides(self) -> tuple[ServerSide, ...]:
        """The distinct sides."""
        return (self.worker,) if self.is_shared else (self.worker, self.ps)

    def reprice(self, bounds: PriceRanges) -> None:
        """Price everything anew, between other bounds."""
        for side, own in zip(self.sides, (bounds.worker, bounds.ps), strict=False):
            side.reprice(own)

    def worth(self) -> float:
        """Return the summed price of all capacity."""
        return sum(side.worth() for side in self.sides)

    def mean_prices(self) -> Prices:
        """Return mean prices by server class, as the class-level bounds take them."""
        worker = self.worker.mean_prices()
        return Prices(worker=worker, ps=worker[:0] if self.is_shared else self.ps.mean_prices())


def capacity_ranks(servers: ServerClasses) -> IntArray:
    """Return each class' rank by capacity vector, equal for equal ones, shape (slots, classes)."""
    changes = 1 + np.flatnonzero((servers.capacity[:, 1:] != servers.capacity[:, :-1]).any(axis=(0, 2)))
    first = np.concatenate([[0], changes, [servers.capacity.shape[1]]])  # of each run of slots with the same capacities
    ranks = np.zeros((len(first) - 1, servers.num_classes), dtype=np.int64)
    for rank, t in zip(ranks, first, strict=False):
        capacity = servers.capacity[:, t]
        order = np.lexsort(capacity.T[::-1])
        rank[order[1:]] = np.cumsum((capacity[order[1:]] != capacity[order[:-1]]).any(axis=1))
    return np.repeat(ranks, np.diff(first), axis=0)

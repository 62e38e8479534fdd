"""What a policy sees of a slot: the jobs that have arrived, and the empty servers."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from optim.models.admission.instance import AdmissionInstance, FloatArray, IntArray


@dataclass(frozen=True, kw_only=True, eq=False)
class JobView:
    """What the cluster knows of a job that has arrived: all of the job's own data, and its progress.

    Parameters
    ----------
    job, arrival
        Number and slot of arrival.
    target, done
        Units of progress due and made before the slot.
    progress, ps_needed
        Progress and PSs needed for Y = 0, ..., most workers.
    ps_per_worker
        b / B, the PSs a worker needs before rounding up.
    value
        Shape (slots,): what completing the job in a slot earns.
    deadline
        Last slot that earns anything, -1 if none.
    segment
        Demand segment in which the slot starts.
    worker_demand, ps_demand
        Shape (resources,): demands of that segment in 1e-6 units.
    """

    job: int
    arrival: int
    target: int
    done: int
    progress: IntArray
    ps_needed: IntArray
    ps_per_worker: float
    value: FloatArray
    deadline: int
    segment: int
    worker_demand: IntArray
    ps_demand: IntArray

    @property
    def demands(self) -> tuple[IntArray, IntArray]:
        """Demands of a worker and of a PS."""
        return self.worker_demand, self.ps_demand

    @property
    def remaining(self) -> int:
        """Units of progress still due."""
        return self.target - self.done

    @property
    def can_progress(self) -> bool:
        """Whether any number of workers makes progress."""
        return bool(self.progress[-1] > 0)

    @cached_property
    def least_workers(self) -> int:
        """Smallest number of workers that makes any progress; the tables' end if none does."""
        return self._first_reaching(1)

    @cached_property
    def useful_workers(self) -> int:
        """Smallest number of workers that completes the job in the slot, or the most it may have."""
        return self._first_reaching(self.remaining)

    def next_count(self, workers: int) -> int:
        """Return the smallest number of workers that makes more progress, or the same number if none does."""
        if workers + 1 < len(self.progress) and self.progress[workers + 1] > self.progress[workers]:
            return workers + 1
        higher = int(np.searchsorted(self.progress, self.progress[workers], side="right"))
        return higher if higher < len(self.progress) else workers

    def _first_reaching(self, amount: int) -> int:
        return min(int(np.searchsorted(self.progress, amount)), len(self.progress) - 1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Allocation:
    """A job's workers and PSs in a slot, one count a server."""

    workers: IntArray
    ps: IntArray

    @property
    def sides(self) -> tuple[IntArray, IntArray]:
        """Workers, then PSs."""
        return self.workers, self.ps


class SlotServers:
    """The empty servers of one slot; where servers are shared, workers and PSs have the same."""

    def __init__(self, instance: AdmissionInstance, slot: int) -> None:
        self._instance = instance
        self._limits: dict[int, tuple[IntArray, IntArray]] = {}
        self.slot = slot
        self.is_shared = instance.has_shared_servers
        self.worker_class = instance.worker_servers.class_of_server
        self.ps_class = instance.ps_servers.class_of_server
        self.worker_capacity = instance.worker_servers.capacity[self.worker_class, slot]
        self.ps_capacity = self.worker_capacity if self.is_shared else instance.ps_servers.capacity[self.ps_class, slot]

    @cached_property
    def share_capacity(self) -> IntArray:
        """What a job's workers and PSs may use together, shape (servers, resources); no rows if unlimited."""
        share = self._instance.max_share_per_server
        if share is None or not self.is_shared:
            return np.zeros((0, self.worker_capacity.shape[1]), dtype=np.int64)
        flat = [quantity * share.numerator // share.denominator for quantity in self.worker_capacity.ravel().tolist()]
        return np.array(flat, dtype=np.int64).reshape(self.worker_capacity.shape)

    @cached_property
    def worker_total(self) -> tuple[int, ...]:
        """Capacity of all hosts of workers together, by resource."""
        return _column_sums(self.worker_capacity)

    @cached_property
    def ps_total(self) -> tuple[int, ...]:
        """Capacity of all hosts of PSs together, by resource."""
        return _column_sums(self.ps_capacity)

    def limits(self, view: JobView) -> tuple[IntArray, IntArray]:
        """Return the most workers and the most PSs of a job on each server."""
        if view.segment not in self._limits:
            by_class, ps_by_class = self._instance.workers_per_server, self._instance.ps_per_server
            self._limits[view.segment] = (
                by_class[view.segment, :, self.slot][self.worker_class],
                ps_by_class[view.segment, :, self.slot][self.ps_class],
            )
        return self._limits[view.segment]

    def class_capacity(self) -> tuple[FloatArray, FloatArray]:
        """Return the capacity of workers' and PSs' whole classes, (classes, resources), 1e-6 units."""
        sides = (self._instance.worker_servers, self._instance.ps_servers)
        workers, ps = (side.capacity[:, self.slot].astype(np.float64) * side.count[:, None] for side in sides)
        return workers, ps

    def class_limits(self, view: JobView) -> tuple[IntArray, IntArray]:
        """Return the most workers and PSs of a job in each whole class."""
        instance = self._instance
        return (
            instance.workers_per_server[view.segment, :, self.slot] * instance.worker_servers.count,
            instance.ps_per_server[view.segment, :, self.slot] * instance.ps_servers.count,
        )

    def class_counts(self, allocation: Allocation) -> tuple[IntArray, IntArray]:
        """Return an allocation's workers and PSs by server class."""
        workers = np.zeros(self._instance.worker_servers.num_classes, dtype=np.int64)
        ps = np.zeros(self._instance.ps_servers.num_classes, dtype=np.int64)
        np.add.at(workers, self.worker_class, allocation.workers)
        np.add.at(ps, self.ps_class, allocation.ps)
        return workers, ps


def _column_sums(capacity: IntArray) -> tuple[int, ...]:
    """Return sums over servers as Python integers, which can't overflow."""
    return tuple(sum(column) for column in capacity.T.tolist())

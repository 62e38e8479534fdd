"""An instance's jobs as flat arrays, laid out for compiled loops over server classes."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from optim.models.admission.instance import MICRO, AdmissionInstance, FloatArray, IntArray
from optim.solvers.admission.pricing.best_schedule import JobArrays
from optim.solvers.admission.pricing.shared_room import ClassRoom, class_room


@dataclass(frozen=True, kw_only=True, eq=False)
class JobTables:
    """What pricing needs of each job; identical servers are one class (their number times one server's count).

    Parameters
    ----------
    arrival, deadline, target, most
        Shape (jobs,): first slot, last slot that earns (-1: none), progress due, most workers at once.
    value
        Shape (jobs, slots): utility of completing in a slot.
    segment_offset, segment_start
        Demand segments of each job, as in the instance.
    table_offset
        Shape (jobs + 1,): where job i's entries of the next two arrays begin.
    progress, ps_needed
        Progress and PSs needed for Y = 0, ..., most workers, flat over jobs.
    worker_limit, ps_limit
        Shape (segments, classes, slots): most workers (PSs) of the job in the whole class.
    worker_demand, ps_demand
        Shape (segments, resources): demands in whole units (floats: for costs, not for feasibility).
    """

    instance: AdmissionInstance
    arrival: IntArray
    deadline: IntArray
    target: IntArray
    most: IntArray
    value: FloatArray
    segment_offset: IntArray
    segment_start: IntArray
    table_offset: IntArray
    progress: IntArray
    ps_needed: IntArray
    worker_limit: IntArray
    ps_limit: IntArray
    worker_demand: FloatArray
    ps_demand: FloatArray

    @classmethod
    def build(cls, instance: AdmissionInstance) -> "JobTables":
        """Lay out an instance's jobs. Every array is a writable copy: compiled loops see one type of array."""
        jobs = instance.jobs
        sizes = np.array([len(table) for table in instance.progress], dtype=np.int64)
        worker_count = instance.worker_servers.count[None, :, None]
        ps_count = instance.ps_servers.count[None, :, None]
        return cls(
            instance=instance,
            arrival=jobs.arrival.copy(),
            deadline=instance.deadline.copy(),
            target=instance.target.copy(),
            most=instance.max_workers.copy(),
            value=instance.value.copy(),
            segment_offset=jobs.segment_offset.copy(),
            segment_start=jobs.segment_start.copy(),
            table_offset=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            progress=_flat(instance.progress),
            ps_needed=_flat(instance.ps_needed),
            worker_limit=instance.workers_per_server * worker_count,
            ps_limit=instance.ps_per_server * ps_count,
            worker_demand=jobs.worker_demand / MICRO,
            ps_demand=jobs.ps_demand / MICRO,
        )

    @property
    def num_jobs(self) -> int:
        """Number of jobs."""
        return len(self.arrival)

    @cached_property
    def arrays(self) -> JobArrays:
        """The jobs as compiled loops read them."""
        return JobArrays(**{name: getattr(self, name) for name in JobArrays._fields})

    @cached_property
    def class_room(self) -> ClassRoom:
        """What empty classes of shared servers hold of each job."""
        return class_room(self.instance)

    @cached_property
    def most_at_once(self) -> tuple[int, int]:
        """Most workers and most PSs that any job has in any slot: what it asks for, and what all servers hold."""
        most_ps = self.ps_needed[self.table_offset[1:] - 1]
        held = (
            np.minimum(self.worker_limit.sum(axis=1), self.most[self.segment_job][:, None]),
            np.minimum(self.ps_limit.sum(axis=1), most_ps[self.segment_job][:, None]),
        )
        return int(held[0].max(initial=0)), int(held[1].max(initial=0))

    @cached_property
    def segment_job(self) -> IntArray:
        """Job of each demand segment."""
        return self.instance.segment_job


def _flat(tables: tuple[IntArray, ...]) -> IntArray:
    return np.concatenate(tables) if tables else np.zeros(0, dtype=np.int64)

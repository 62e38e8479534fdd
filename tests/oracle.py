"""Ground truth by enumeration: every minimal schedule of a job on single servers, and programmes over them.

Slow and plain on purpose, and independent of every solver and model of the package: it reads an
instance's fields only.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.optimize import LinearConstraint, linprog, milp
from scipy.sparse import csr_array

from optim.models.admission.instance import MICRO, AdmissionInstance, FloatArray, IntArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Layout:
    """Rows (server, slot, resource) of single servers, workers' first, and their capacity in whole units."""

    instance: AdmissionInstance
    capacity: FloatArray

    @classmethod
    def of(cls, instance: AdmissionInstance) -> "Layout":
        """Lay out the rows; shared servers have their rows once."""
        sides = (
            [instance.worker_servers]
            if instance.has_shared_servers
            else [instance.worker_servers, instance.ps_servers]
        )
        parts = [side.capacity[side.class_of_server].ravel() / MICRO for side in sides]
        return cls(instance=instance, capacity=np.concatenate(parts))

    def worker_row(self, server: int, slot: int) -> slice:
        """Return the rows of a worker's server in a slot."""
        num = self.instance.num_resources
        first = (server * self.instance.horizon + slot) * num
        return slice(first, first + num)

    def ps_row(self, server: int, slot: int) -> slice:
        """Return the rows of a PS host in a slot."""
        if self.instance.has_shared_servers:
            return self.worker_row(server, slot)
        return self.worker_row(self.instance.worker_servers.num_servers + server, slot)


@dataclass(frozen=True, kw_only=True, eq=False)
class Schedules:
    """Schedules as columns: whose they are, what they earn, what they use; shape (rows, schedules)."""

    job: IntArray
    value: FloatArray
    usage: csr_array
    capacity: FloatArray


def fits_on_one_server(
    instance: AdmissionInstance, segment: int, server_class: int, slot: int, y: int, z: int
) -> bool:
    """Tell whether y workers and z PSs of a job may share one empty server, exactly."""
    worker, ps = instance.jobs.worker_demand[segment].tolist(), instance.jobs.ps_demand[segment].tolist()
    capacity = instance.worker_servers.capacity[server_class, slot].tolist()
    use = [y * w + z * s for w, s in zip(worker, ps, strict=True)]
    if any(u > c for u, c in zip(use, capacity, strict=True)):
        return False
    share = instance.max_share_per_server
    return share is None or y + z <= 1 or all(u <= share * c for u, c in zip(use, capacity, strict=True))


def slot_choices(
    instance: AdmissionInstance, job: int, segment: int, slot: int, workers: int
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield every placement of so many workers and of the PSs that they need, on empty servers."""
    num_ps = int(instance.ps_needed[job][workers])
    if num_ps > workers:
        return
    w_class, p_class = instance.worker_servers.class_of_server, instance.ps_servers.class_of_server
    n = instance.workers_per_server[segment][w_class, slot]
    m = instance.ps_per_server[segment][p_class, slot]
    for y in product(*[range(min(int(most), workers) + 1) for most in n]):
        if sum(y) != workers:
            continue
        for z in product(*[range(min(int(most), num_ps) + 1) for most in m]):
            if sum(z) != num_ps:
                continue
            if not instance.has_shared_servers or all(
                fits_on_one_server(instance, segment, int(c), slot, a, b)
                for c, a, b in zip(w_class, y, z, strict=True)
            ):
                yield y, z


def enumerate_job(layout: Layout, job: int, limit: int = 20_000) -> list[tuple[float, int, FloatArray]]:
    """Return (value, completion slot, usage) of every minimal schedule of a job that earns something.

    Raises
    ------
    OverflowError
        If there are more than `limit`.
    """
    instance, jobs = layout.instance, layout.instance.jobs
    first, last = int(jobs.segment_offset[job]), int(jobs.segment_offset[job + 1])
    steps, target, deadline = instance.progress[job], int(instance.target[job]), int(instance.deadline[job])
    found: list[tuple[float, int, FloatArray]] = []

    def extend(slot: int, done: int, usage: FloatArray) -> None:
        if slot > deadline or done + int(steps[-1]) * (deadline - slot + 1) < target:
            return
        extend(slot + 1, done, usage)
        segment = first + int(np.searchsorted(jobs.segment_start[first:last], done, side="right")) - 1
        for workers in range(1, len(steps)):
            if steps[workers] == steps[workers - 1]:
                continue  # the worker adds nothing
            for y, z in slot_choices(instance, job, segment, slot, workers):
                more = usage.copy()
                for h, count in enumerate(y):
                    more[layout.worker_row(h, slot)] += count * jobs.worker_demand[segment] / MICRO
                for k, count in enumerate(z):
                    more[layout.ps_row(k, slot)] += count * jobs.ps_demand[segment] / MICRO
                if done + steps[workers] >= target:
                    found.append((float(instance.value[job, slot]), slot, more))
                    if len(found) > limit:
                        raise OverflowError(f"job {job} has more than {limit} schedules")
                else:
                    extend(slot + 1, done + int(steps[workers]), more)
            if done + steps[workers] >= target:
                return  # more workers than needed never pay

    extend(int(jobs.arrival[job]), 0, np.zeros(len(layout.capacity)))
    return found


def enumerate_all(instance: AdmissionInstance, limit: int = 20_000) -> Schedules:
    """Enumerate the schedules of every job; equal jobs one by one."""
    layout = Layout.of(instance)
    columns = [
        (job, value, usage)
        for job in range(instance.num_jobs)
        for value, _, usage in enumerate_job(layout, job, limit)
    ]
    usage = np.array([column[2] for column in columns]).reshape(len(columns), len(layout.capacity)).T
    return Schedules(
        job=np.array([column[0] for column in columns], dtype=np.int64),
        value=np.array([column[1] for column in columns], dtype=np.float64),
        usage=csr_array(usage),
        capacity=layout.capacity,
    )


def lp_optimum(schedules: Schedules) -> float:
    """Return the optimum of the packing LP (14) over the schedules."""
    if not len(schedules.value):
        return 0.0
    matrix, right = _rows(schedules)
    result = linprog(-schedules.value, A_ub=matrix, b_ub=right, bounds=(0, None), method="highs")
    assert result.status == 0, result.message
    return float(-result.fun)


def ilp_optimum(schedules: Schedules) -> float:
    """Return the optimum of the packing ILP (14) over the schedules."""
    if not len(schedules.value):
        return 0.0
    matrix, right = _rows(schedules)
    result = milp(
        -schedules.value,
        constraints=LinearConstraint(matrix, -np.inf, right),
        integrality=np.ones(len(schedules.value)),
        bounds=(0, 1),
        options={"mip_rel_gap": 0.0},
    )
    assert result.status == 0, result.message
    return float(-result.fun)


def _rows(schedules: Schedules) -> tuple[csr_array, FloatArray]:
    """Return capacity rows scaled to 1, and one row a job."""
    scale = np.where(schedules.capacity > 0, 1.0 / np.maximum(schedules.capacity, 1e-300), 1.0)
    num_jobs = int(schedules.job.max()) + 1
    one = csr_array(
        (np.ones(len(schedules.job)), (schedules.job, np.arange(len(schedules.job)))),
        shape=(num_jobs, len(schedules.job)),
    )
    from scipy.sparse import diags_array, vstack

    return csr_array(vstack([diags_array(scale) @ schedules.usage, one])), np.concatenate(
        [schedules.capacity * scale, np.ones(num_jobs)]
    )


def best_payoff(schedules: Sequence[tuple[float, int, FloatArray]], prices: FloatArray) -> float:
    """Return max(0, value - cost) over a job's schedules at prices a row."""
    return max((value - float(prices @ usage) for value, _, usage in schedules), default=0.0)

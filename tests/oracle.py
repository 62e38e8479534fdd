"""Ground truth by enumeration: every minimal schedule of a job, and the packing programmes over them.

Slow and plain on purpose, and independent of every solver and model of the package: it reads an
instance's fields only.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from scipy.optimize import LinearConstraint, linprog, milp
from scipy.sparse import csr_array, vstack

from optim.models.admission.instance import MICRO, AdmissionInstance, FloatArray, IntArray, ServerClasses

MOST_SCHEDULES = 3_000
"""Instances with more schedules than this are no business of an enumeration."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Layout:
    """Rows (place, slot, resource), workers' places first; a place is a single server or a whole class.

    Shared servers have their rows once.
    """

    instance: AdmissionInstance
    is_by_class: bool = False

    def places(self, servers: ServerClasses) -> list[tuple[int, int]]:
        """Return class and number of servers of each place."""
        if self.is_by_class:
            return list(enumerate(servers.count.tolist()))
        return [(c, 1) for c in servers.class_of_server.tolist()]

    @cached_property
    def worker_places(self) -> list[tuple[int, int]]:
        """Places of workers."""
        return self.places(self.instance.worker_servers)

    @cached_property
    def ps_places(self) -> list[tuple[int, int]]:
        """Places of PSs."""
        return self.places(self.instance.ps_servers)

    @cached_property
    def capacity(self) -> FloatArray:
        """Capacity of each row in whole units."""
        worker = self.instance.worker_servers.capacity / MICRO
        parts = [worker[c].ravel() * number for c, number in self.worker_places]
        if not self.instance.has_shared_servers:
            ps = self.instance.ps_servers.capacity / MICRO
            parts += [ps[c].ravel() * number for c, number in self.ps_places]
        return np.concatenate(parts)

    def rows(self, place: int, slot: int, *, is_worker: bool) -> slice:
        """Return the rows of a place in a slot."""
        skipped = 0 if is_worker or self.instance.has_shared_servers else len(self.worker_places)
        first = ((skipped + place) * self.instance.horizon + slot) * self.instance.num_resources
        return slice(first, first + self.instance.num_resources)

    def segment(self, job: int, done: int) -> int:
        """Return the demand segment that holds once so much progress is made."""
        jobs = self.instance.jobs
        first, last = int(jobs.segment_offset[job]), int(jobs.segment_offset[job + 1])
        return first + sum(start <= done for start in jobs.segment_start[first + 1 : last].tolist())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schedule:
    """A minimal schedule: what it earns, when it ends, and what it uses of each row in whole units."""

    value: float
    completion: int
    usage: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Packing:
    """Columns of the packing programme; `group` collects equal jobs, of which there are `copies`."""

    group: IntArray
    copies: FloatArray
    value: FloatArray
    usage: FloatArray
    capacity: FloatArray


def fits_on_one_server(instance: AdmissionInstance, segment: int, server_class: int, slot: int, y: int, z: int) -> bool:
    """Tell whether y workers and z PSs of a job may share one empty server, exactly."""
    worker, ps = instance.jobs.worker_demand[segment].tolist(), instance.jobs.ps_demand[segment].tolist()
    capacity = instance.worker_servers.capacity[server_class, slot].tolist()
    use = [y * w + z * s for w, s in zip(worker, ps, strict=True)]
    if any(u > c for u, c in zip(use, capacity, strict=True)):
        return False
    share = instance.max_share_per_server
    return share is None or y + z <= 1 or all(u <= share * c for u, c in zip(use, capacity, strict=True))


def placements(
    layout: Layout, job: int, segment: int, slot: int, workers: int
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield every way to place so many workers, and the PSs that they need, on empty places."""
    instance = layout.instance
    num_ps = int(instance.ps_needed[job][workers])
    if num_ps > workers:
        return
    worker_limit = [number * int(instance.workers_per_server[segment, c, slot]) for c, number in layout.worker_places]
    ps_limit = [number * int(instance.ps_per_server[segment, c, slot]) for c, number in layout.ps_places]
    for y in product(*[range(min(limit, workers) + 1) for limit in worker_limit]):
        if sum(y) != workers:
            continue
        for z in product(*[range(min(limit, num_ps) + 1) for limit in ps_limit]):
            if sum(z) == num_ps and (
                not instance.has_shared_servers
                or all(
                    fits_on_one_server(instance, segment, c, slot, a, b)
                    for (c, _), a, b in zip(layout.worker_places, y, z, strict=True)
                )
            ):
                yield y, z


def enumerate_job(layout: Layout, job: int) -> list[Schedule]:
    """Return every minimal schedule of a job that earns something.

    Raises
    ------
    OverflowError
        If there are more than `MOST_SCHEDULES`.
    """
    instance = layout.instance
    steps, target, deadline = instance.progress[job], int(instance.target[job]), int(instance.deadline[job])
    demands = instance.jobs.worker_demand / MICRO, instance.jobs.ps_demand / MICRO
    found: list[Schedule] = []

    def extend(slot: int, done: int, usage: FloatArray) -> None:
        if slot > deadline or done + int(steps[-1]) * (deadline - slot + 1) < target:
            return
        extend(slot + 1, done, usage)
        segment = layout.segment(job, done)
        for workers in range(1, len(steps)):
            if steps[workers] == steps[workers - 1]:
                continue  # the last worker adds nothing
            after = done + int(steps[workers])
            for y, z in placements(layout, job, segment, slot, workers):
                more = usage.copy()
                for place, count in enumerate(y):
                    more[layout.rows(place, slot, is_worker=True)] += count * demands[0][segment]
                for place, count in enumerate(z):
                    more[layout.rows(place, slot, is_worker=False)] += count * demands[1][segment]
                if after < target:
                    extend(slot + 1, after, more)
                    continue
                found.append(Schedule(value=float(instance.value[job, slot]), completion=slot, usage=more))
                if len(found) > MOST_SCHEDULES:
                    raise OverflowError(f"job {job} has more than {MOST_SCHEDULES} schedules")
            if after >= target:
                return  # more workers than needed never pay

    extend(int(instance.jobs.arrival[job]), 0, np.zeros(len(layout.capacity)))
    return found


def job_key(instance: AdmissionInstance, job: int) -> tuple[object, ...]:
    """Return what makes two jobs equal: equal keys, equal schedules."""
    jobs = instance.jobs
    part = slice(int(jobs.segment_offset[job]), int(jobs.segment_offset[job + 1]))
    arrays = (instance.value[job], instance.progress[job], instance.ps_needed[job], jobs.segment_start[part])
    demands = (jobs.worker_demand[part], jobs.ps_demand[part])
    return (
        int(jobs.arrival[job]),
        int(instance.target[job]),
        *(array.tobytes() for array in (*arrays, *demands)),
    )


def packing(instance: AdmissionInstance, *, is_by_class: bool = False) -> Packing:
    """Return the packing programme with all schedules; equal jobs are one group."""
    layout = Layout(instance=instance, is_by_class=is_by_class)
    members: dict[tuple[object, ...], list[int]] = {}
    for job in range(instance.num_jobs):
        members.setdefault(job_key(instance, job), []).append(job)
    columns = [
        (group, schedule) for group, jobs in enumerate(members.values()) for schedule in enumerate_job(layout, jobs[0])
    ]
    return Packing(
        group=np.array([group for group, _ in columns], dtype=np.int64),
        copies=np.array([len(jobs) for jobs in members.values()], dtype=np.float64),
        value=np.array([schedule.value for _, schedule in columns]),
        usage=np.array([schedule.usage for _, schedule in columns]).reshape(-1, len(layout.capacity)).T,
        capacity=layout.capacity,
    )


def lp_optimum(problem: Packing) -> float:
    """Return the optimum of the packing LP (14)."""
    if not len(problem.value):
        return 0.0
    matrix, right = _rows(problem)
    result = linprog(-problem.value, A_ub=matrix, b_ub=right, bounds=(0, None), method="highs")
    assert result.status == 0, result.message
    return float(-result.fun)


def ilp_optimum(problem: Packing) -> float:
    """Return the optimum of the packing ILP (14)."""
    if not len(problem.value):
        return 0.0
    matrix, right = _rows(problem)
    result = milp(
        -problem.value,
        constraints=LinearConstraint(matrix, -np.inf, right),
        integrality=np.ones(len(problem.value)),
        options={"mip_rel_gap": 0.0},
    )
    assert result.status == 0, result.message
    return float(-result.fun)


def _rows(problem: Packing) -> tuple[csr_array, FloatArray]:
    """Return the capacity rows, scaled to 1, and one row a group."""
    used = problem.capacity > 0
    share = problem.usage[used] / problem.capacity[used, None]
    position = np.arange(len(problem.group))
    ones = csr_array((np.ones(len(position)), (problem.group, position)), shape=(len(problem.copies), len(position)))
    return csr_array(vstack([csr_array(share), ones])), np.concatenate([np.ones(len(share)), problem.copies])


def best_payoff(layout: Layout, job: int, prices: FloatArray) -> float:
    """Return max(0, value - cost) over all schedules of a job at row prices, on empty single servers.

    A dynamic programme over the progress, written for reading: disjoint servers only, where the
    cheapest servers first are best in each slot.
    """
    instance = layout.instance
    assert not instance.has_shared_servers, "on shared servers enumerate instead"
    target, steps = int(instance.target[job]), instance.progress[job].tolist()
    worker_demand, ps_demand = instance.jobs.worker_demand / MICRO, instance.jobs.ps_demand / MICRO
    cost = {0: 0.0}
    best = 0.0

    def cheapest(slot: int, segment: int, *, is_worker: bool) -> list[float]:
        places = layout.worker_places if is_worker else layout.ps_places
        limit = (instance.workers_per_server if is_worker else instance.ps_per_server)[segment, :, slot]
        demand = (worker_demand if is_worker else ps_demand)[segment]
        each = [
            (float(prices[layout.rows(place, slot, is_worker=is_worker)] @ demand), int(limit[c]))
            for place, (c, _) in enumerate(places)
        ]
        total = [0.0]
        for unit, room in sorted(each):
            total += [total[-1] + unit * (k + 1) for k in range(room)]
        return total

    for slot in range(int(instance.jobs.arrival[job]), int(instance.deadline[job]) + 1):
        after = dict(cost)
        for segment in {layout.segment(job, done) for done in cost if done < target}:
            workers = cheapest(slot, segment, is_worker=True)
            ps = cheapest(slot, segment, is_worker=False)
            for done, paid in cost.items():
                if done >= target or layout.segment(job, done) != segment:
                    continue
                for y in range(1, min(len(workers), len(steps))):
                    z = int(instance.ps_needed[job][y])
                    if z <= y and z < len(ps):
                        reached = min(target, done + steps[y])
                        after[reached] = min(after.get(reached, np.inf), paid + workers[y] + ps[z])
        cost = after
        if target in cost:
            best = max(best, float(instance.value[job, slot]) - cost[target])
    return best

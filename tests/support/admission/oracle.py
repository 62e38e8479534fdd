"""Ground truth by enumeration: every minimal schedule of a job, and the packing programmes over them.

Slow and plain on purpose, and independent of every solver and model of the package: it reads an
instance's fields only.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import islice, product

import numpy as np
from scipy.optimize import LinearConstraint, linprog, milp
from scipy.sparse import csr_array, vstack

from optim.core.arrays import FloatArray, IntArray
from optim.models.admission.data import MICRO, ServerClasses
from optim.models.admission.instance import AdmissionInstance
from tests.support.admission.enumeration import Enumerator

MAX_SCHEDULES = 600
"""Number of schedules above which an instance isn't enumerated."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Layout:
    """Rows (place, slot, resource), workers' places first; a place is a single server or a class.

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
        """Capacity of each row in units of the resource."""
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
        """Return the demand segment of a job after the progress `done`."""
        jobs = self.instance.jobs
        first, last = int(jobs.segment_offset[job]), int(jobs.segment_offset[job + 1])
        return first + sum(start <= done for start in jobs.segment_start[first + 1 : last].tolist())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schedule:
    """A minimal schedule: its value, its end, and its usage of each row in units of the resource."""

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
    """Return whether y workers and z PSs of a job fit on one empty server together, exactly."""
    worker, ps = instance.jobs.worker_demand[segment].tolist(), instance.jobs.ps_demand[segment].tolist()
    capacity = instance.worker_servers.capacity[server_class, slot].tolist()
    use = [y * w + z * s for w, s in zip(worker, ps, strict=True)]
    if any(u > c for u, c in zip(use, capacity, strict=True)):
        return False
    share = instance.max_share_per_server
    return share is None or y + z <= 1 or all(u <= share * c for u, c in zip(use, capacity, strict=True))


def held_pairs(layout: Layout, segment: int, place: int, slot: int, most: tuple[int, int]) -> set[tuple[int, int]]:
    """Return the pairs (workers, PSs) of a job, up to `most`, that a place of shared servers holds."""
    instance = layout.instance
    c, number = layout.worker_places[place]
    limits = (instance.workers_per_server[segment, c, slot], instance.ps_per_server[segment, c, slot])
    single = [
        (y, z)
        for y, z in product(*[range(min(int(limit), top) + 1) for limit, top in zip(limits, most, strict=True)])
        if fits_on_one_server(instance, segment, c, slot, y, z)
    ]
    sums = {(0, 0)}
    for _ in range(number):
        sums = {(y + a, z + b) for y, z in sums for a, b in single if y + a <= most[0] and z + b <= most[1]}
    return sums


def enumerate_job(layout: Layout, job: int) -> list[Schedule]:
    """Return every minimal schedule of a job that earns something.

    Raises
    ------
    OverflowError
        If there are more than `MAX_SCHEDULES`.
    """
    listed = Enumerator(layout.instance, is_by_class=layout.is_by_class).schedules(job)
    found = [
        Schedule(
            value=float(layout.instance.value[job, one.completion]), completion=one.completion, usage=one.load / MICRO
        )
        for one in islice(listed, MAX_SCHEDULES + 1)
    ]
    if len(found) > MAX_SCHEDULES:
        raise OverflowError(f"job {job} has more than {MAX_SCHEDULES} schedules")
    return found


def job_key(instance: AdmissionInstance, job: int) -> tuple[object, ...]:
    """Return a key of a job: jobs with equal keys have equal schedules."""
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
        options={"mip_rel_gap": 0.0, "presolve": False},  # SciPy's HiGHS (1.12) loses optima in it
    )
    assert result.status == 0, result.message
    return float(-result.fun)


def _rows(problem: Packing) -> tuple[csr_array, FloatArray]:
    """Return the capacity rows, scaled to 1, and one row per group."""
    used = problem.capacity > 0
    share = problem.usage[used] / problem.capacity[used, None]
    position = np.arange(len(problem.group))
    ones = csr_array((np.ones(len(position)), (problem.group, position)), shape=(len(problem.copies), len(position)))
    return csr_array(vstack([csr_array(share), ones])), np.concatenate([np.ones(len(share)), problem.copies])


def slot_costs(layout: Layout, job: int, segment: int, slot: int, prices: FloatArray) -> dict[int, float]:
    """Return the least cost of Y workers and their PSs in a slot, for every Y that empty servers hold."""
    instance = layout.instance
    needed = instance.ps_needed[job].tolist()
    pairs: dict[tuple[int, int], float] = {(0, 0): 0.0}
    sides: list[tuple[list[tuple[int, int]], bool, bool]] = (
        [(layout.worker_places, True, True)]
        if instance.has_shared_servers
        else [(layout.worker_places, True, False), (layout.ps_places, False, True)]
    )
    for places, has_workers, has_ps in sides:
        for place, (c, _) in enumerate(places):
            rows = prices[layout.rows(place, slot, is_worker=has_workers)] / MICRO
            worker = float(rows @ instance.jobs.worker_demand[segment]) if has_workers else 0.0
            ps = float(rows @ instance.jobs.ps_demand[segment]) if has_ps else 0.0
            if has_workers and has_ps:
                held = held_pairs(layout, segment, place, slot, (len(needed) - 1, needed[-1]))
            elif has_workers:
                held = {(y, 0) for y in range(int(instance.workers_per_server[segment, c, slot]) + 1)}
            else:
                held = {(0, z) for z in range(int(instance.ps_per_server[segment, c, slot]) + 1)}
            extended: dict[tuple[int, int], float] = {}
            for (y, z), paid in pairs.items():
                for a, b in held:
                    if y + a < len(needed) and z + b <= needed[-1]:
                        cost = paid + a * worker + b * ps
                        both = (y + a, z + b)
                        extended[both] = min(extended.get(both, np.inf), cost)
            pairs = extended
    return {y: pairs[y, z] for y, z in enumerate(needed) if z <= y and (y, z) in pairs}


def best_payoff(layout: Layout, job: int, prices: FloatArray) -> float:
    """Return max(0, value - cost) over all schedules of a job at row prices, on empty single servers.

    A dynamic programme over the progress, written for reading.
    """
    instance = layout.instance
    target, steps = int(instance.target[job]), instance.progress[job].tolist()
    cost = {0: 0.0}
    best = 0.0
    for slot in range(int(instance.jobs.arrival[job]), int(instance.deadline[job]) + 1):
        after = dict(cost)
        for segment in {layout.segment(job, done) for done in cost if done < target}:
            table = slot_costs(layout, job, segment, slot, prices)
            for done, paid in cost.items():
                if done < target and layout.segment(job, done) == segment:
                    for y, more in table.items():
                        reached = min(target, done + steps[y])
                        after[reached] = min(after.get(reached, np.inf), paid + more)
        cost = after
        if target in cost:
            best = max(best, float(instance.value[job, slot]) - cost[target])
    return best

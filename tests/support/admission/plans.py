"""Plans made by a simple rule, solutions around them, and a second opinion on which rows a plan violates."""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from optim.core.solution import Certificate, CertificateKind, PointStatus, Sense, Solution, Termination
from optim.models.admission.decision import AdmissionPlan, PriceProof, TreeProof
from optim.models.admission.instance import AdmissionInstance

Rows = list[tuple[int, int, int, int]]


def solution_of(instance: AdmissionInstance, plan: AdmissionPlan | None, /, **fields: Any) -> Solution:
    """Return the honest solution around a plan, with further fields replaced."""
    known: dict[str, Any] = {
        "problem": "admission",
        "instance": instance.name,
        "solver": "by-hand",
        "sense": Sense.MAXIMISE,
        "termination": Termination.COMPLETED,
        "primal": PointStatus.NONE if plan is None else PointStatus.FEASIBLE,
        "decision": plan,
    }
    if "objective" not in fields:
        known["objective"] = None if plan is None else plan.objective(instance)
    return Solution(**(known | fields))


def proven_by(
    proof: PriceProof | TreeProof, bound: float, kind: CertificateKind = CertificateKind.BOUND
) -> dict[str, Any]:
    """Return the fields of a solution that state a bound with its proof."""
    certificate = Certificate(kind=kind, statement="", proof=proof)
    return {"bound": bound, "dual": PointStatus.FEASIBLE, "certificate": certificate}


class GreedyPlacer:
    """Admit jobs in order: in each slot as many workers as fit on the first servers with capacity."""

    def __init__(self, instance: AdmissionInstance) -> None:
        self.instance = instance
        workers, ps = instance.worker_servers, instance.ps_servers
        self.worker_room = workers.capacity[workers.class_of_server].copy()
        self.ps_room = self.worker_room if instance.has_shared_servers else ps.capacity[ps.class_of_server].copy()

    def plan(self) -> AdmissionPlan:
        """Return the plan; it meets every row."""
        workers: Rows = []
        ps: Rows = []
        for job in np.argsort(self.instance.jobs.arrival, kind="stable").tolist():
            saved = self.worker_room.copy(), self.ps_room.copy()
            rows = self._schedule(job)
            if rows is None:
                self.worker_room[:], self.ps_room[:] = saved
                continue
            workers += rows[0]
            ps += rows[1]
        return AdmissionPlan.from_rows(workers, ps)

    def _schedule(self, job: int) -> tuple[Rows, Rows] | None:
        instance, done = self.instance, 0
        workers: Rows = []
        ps: Rows = []
        for slot in range(int(instance.jobs.arrival[job]), int(instance.deadline[job]) + 1):
            for y in range(len(instance.progress[job]) - 1, 0, -1):
                placed = self._place(job, slot, done, y)
                if placed is not None:
                    workers += placed[0]
                    ps += placed[1]
                    done += int(instance.progress[job][y])
                    break
            if done >= instance.target[job]:
                return workers, ps
        return None

    def _place(self, job: int, slot: int, done: int, y: int) -> tuple[Rows, Rows] | None:
        """Place y workers and their PSs in one slot, or none."""
        instance = self.instance
        segment = segment_of(instance, job, done)
        saved = self.worker_room.copy(), self.ps_room.copy()
        used: list[Rows] = []
        on_server: dict[int, list[int]] = {}
        for kind, (demand, room, number) in enumerate((
            (instance.jobs.worker_demand[segment], self.worker_room, y),
            (instance.jobs.ps_demand[segment], self.ps_room, int(instance.ps_needed[job][y])),
        )):  # fmt: skip
            rows: dict[int, int] = {}
            for server in range(len(room)):
                while sum(rows.values()) < number and (demand <= room[server, slot]).all():
                    key = server if instance.has_shared_servers else server + kind * 10**6
                    counts = on_server.setdefault(key, [0, 0])
                    counts[kind] += 1
                    side = instance.worker_servers if kind == 0 else instance.ps_servers
                    capacity = side.capacity[side.class_of_server[server], slot]
                    if exceeds_share(instance, segment, counts, capacity):
                        counts[kind] -= 1
                        break
                    rows[server] = rows.get(server, 0) + 1
                    room[server, slot] -= demand
            used.append([(job, slot, server, count) for server, count in rows.items()])
            if sum(rows.values()) < number:
                self.worker_room[:], self.ps_room[:] = saved
                return None
        return used[0], used[1]


def greedy_plan(instance: AdmissionInstance) -> AdmissionPlan:
    """Return a feasible plan."""
    return GreedyPlacer(instance).plan()


def segment_of(instance: AdmissionInstance, job: int, done: int) -> int:
    """Return the demand segment after the given progress, by a loop over all segments."""
    jobs = instance.jobs
    own = range(int(jobs.segment_offset[job]), int(jobs.segment_offset[job + 1]))
    return max(s for s in own if jobs.segment_start[s] <= done)


def exceeds_share(instance: AdmissionInstance, segment: int, counts: list[int], capacity: Any) -> bool:
    """Return whether y workers and z PSs of one job exceed its share of one server."""
    share = instance.max_share_per_server
    if share is None or sum(counts) <= 1:
        return False
    demands = (instance.jobs.worker_demand[segment].tolist(), instance.jobs.ps_demand[segment].tolist())
    use = [counts[0] * worker + counts[1] * ps for worker, ps in zip(*demands, strict=True)]
    return any(u > share * int(c) for u, c in zip(use, capacity, strict=True))


def violated_rows(instance: AdmissionInstance, workers: Rows, ps: Rows) -> set[str]:
    """Return the numbers of the rows that a plan violates, by dense arrays over all rows."""
    found: set[str] = set()
    shape = (instance.num_jobs, instance.horizon)
    dense = [
        np.zeros((*shape, side.num_servers), dtype=object) for side in (instance.worker_servers, instance.ps_servers)
    ]
    for array, rows in zip(dense, (workers, ps), strict=True):
        seen = set()
        for job, slot, server, count in rows:
            if not all(0 <= index < size for index, size in zip((job, slot, server), array.shape, strict=True)):
                found.add("(9)-(13) index")
                continue
            if count < 1:
                found.add("(9)-(13) count")
                continue
            if (job, slot, server) in seen:
                found.add("(9)-(13) rows")
            seen.add((job, slot, server))
            array[job, slot, server] += count
            if slot < instance.jobs.arrival[job]:
                found.add("(9)-(13) arrival")
    y, z = dense
    return found | _violated_by_job(instance, y, z) | _violated_on_servers(instance, y, z)


def _violated_by_job(instance: AdmissionInstance, y: Any, z: Any) -> set[str]:
    found: set[str] = set()
    for job in range(instance.num_jobs):
        at_once, served = y[job].sum(axis=1), z[job].sum(axis=1)
        done = sum(progress_of(instance, job, count) for count in at_once)
        jobs = instance.jobs
        if (at_once > jobs.chunks[job]).any():
            found.add("(3)")
        if (at_once * int(jobs.worker_micro_mbps[job]) > served * int(jobs.ps_micro_mbps[job])).any():
            found.add("(6)")
        if (served > at_once).any():
            found.add("(7)")
        if at_once.any():
            if done < instance.target[job]:
                found.add("(2)")
            if instance.value[job, np.flatnonzero(at_once)[-1]] <= 0:
                found.add("(8)")
    return found


def _violated_on_servers(instance: AdmissionInstance, y: Any, z: Any) -> set[str]:
    found: set[str] = set()
    shared = instance.has_shared_servers
    sides = (instance.worker_servers, instance.ps_servers)
    for slot in range(instance.horizon):
        loads = [np.zeros((count.shape[2], instance.num_resources), dtype=object) for count in (y, z)]
        for job in np.flatnonzero(y[:, slot].any(axis=1) | z[:, slot].any(axis=1)).tolist():
            done = sum(progress_of(instance, job, count) for count in y[job, :slot].sum(axis=1))
            segment = segment_of(instance, job, done)
            demands = instance.jobs.worker_demand[segment], instance.jobs.ps_demand[segment]
            for kind, (count, side) in enumerate(zip((y, z), sides, strict=True)):
                loads[kind] += count[job, slot][:, None] * demands[kind].astype(object)
                for server in np.flatnonzero(count[job, slot]).tolist():
                    pair = [int(y[job, slot, server]), int(z[job, slot, server])] if shared else [0, 0]
                    pair[kind] = int(count[job, slot, server])
                    capacity = side.capacity[side.class_of_server[server], slot]
                    if exceeds_share(instance, segment, pair, capacity):
                        found.add("max_share_per_server")
        rooms = [side.capacity[side.class_of_server, slot] for side in (instance.worker_servers, instance.ps_servers)]
        if shared and (loads[0] + loads[1] > rooms[0]).any():
            found.add("(4)+(5)")
        if not shared:
            found |= {row for row, load, room in zip(("(4)", "(5)"), loads, rooms, strict=True) if (load > room).any()}
    return found


def progress_of(instance: AdmissionInstance, job: int, workers: int) -> int:
    """Return the progress of a number of workers in a slot, also beyond the instance's table; the total if chunks take no time."""
    table = instance.jobs.speedup[job] if instance.jobs.speedup else ()
    speed = Fraction((0, *table)[min(workers, len(table))], 20) if table else Fraction(workers)
    if not instance.chunk_integral:
        return int(speed * 20) if table else workers
    chunk = instance.chunk_slots[job]
    return int(speed // chunk) if chunk > 0 else int(instance.target[job]) * min(workers, 1)


def tampered_rows(
    rng: np.random.Generator, instance: AdmissionInstance, workers: Rows, ps: Rows
) -> Iterator[tuple[str, Rows, Rows]]:
    """Yield plans that differ from a given plan in a single row, with a description of the change."""
    for number, rows in enumerate((workers, ps)):
        if not rows:
            continue
        side = (instance.worker_servers, instance.ps_servers)[number]
        at = int(rng.integers(len(rows)))
        job, slot, server, count = rows[at]
        other_slot = int(rng.integers(instance.horizon))
        other_server = int(rng.integers(side.num_servers))
        changes: dict[str, list[tuple[int, int, int, int]]] = {
            "one more": [(job, slot, server, count + 1)],
            "one fewer": [(job, slot, server, count - 1)] if count > 1 else [],
            "no count": [(job, slot, server, 0)],
            "negative": [(job, slot, server, -count)],
            "very many": [(job, slot, server, 2**62)],
            "dropped": [],
            "twice": [rows[at], rows[at]],
            "other slot": [(job, other_slot, server, count)],
            "before arrival": [(job, max(0, int(instance.jobs.arrival[job]) - 1), server, count)],
            "other server": [(job, slot, other_server, count)],
            "server outside": [(job, slot, side.num_servers, count)],
            "slot outside": [(job, instance.horizon, server, count)],
            "other job": [((job + 1) % instance.num_jobs, slot, server, count)],
            "split": [(job, slot, server, 1), (job, slot, other_server, count)],
        }
        for what, new in changes.items():
            mutated = [*rows[:at], *new, *rows[at + 1 :]]
            yield what, *((mutated, ps) if number == 0 else (workers, mutated))


def raw_plan(workers: Rows, ps: Rows) -> AdmissionPlan:
    """Return a plan with exactly these rows, without sorting, merging or dropping."""
    arrays = [np.array(rows, dtype=np.int64).reshape(-1, 4) for rows in (workers, ps)]
    return AdmissionPlan(workers=arrays[0], ps=arrays[1])


def families(violations: Any) -> set[str]:
    """Return the names of violated rows without their indices, and numbered rows by their number alone."""
    names = set()
    for violation in violations:
        name = violation.row.split(" [")[0]
        names.add(name if name.startswith("(9)") or not name.startswith("(") else name.split(" ")[0])
    return names

"""Check a plan against the formal model, row by row, in exact integer arithmetic.

Row (2) is (A.2) of docs/mathematics/admission.md, and so on.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from optim.core.solution import Violation, violation
from optim.models.admission.check.exact_instance import ExactInstance, ExactJob
from optim.models.admission.data import MICRO
from optim.models.admission.decision import AdmissionPlan, Side

WORK = "(2) work"

WORKERS_AT_ONCE = "(3) workers at once"

WORKER_CAPACITY = "(4) worker capacity"

PS_CAPACITY = "(5) PS capacity"

SHARED_CAPACITY = "(4)+(5) shared capacity"

BANDWIDTH = "(6) bandwidth"

PS_PER_WORKER = "(7) PS at most workers"

COMPLETION = "(8) completion"

ARRIVAL = "(9)-(13) arrival"

INDEX = "(9)-(13) index"

COUNT = "(9)-(13) count"

ROWS = "(9)-(13) rows"

SHARE = "max_share_per_server"

PAYOFF = "(21) payoff"

PRICE = "price"

CUT = "cut"

TREE = "tree"

BOUND = "bound"

CERTIFICATE = "certificate"


def in_job(exact: ExactInstance, job: int, slot: int | None = None) -> str:
    """Return a text such as "job j3, slot 7"."""
    return f"job {exact.jobs[job].name}" + ("" if slot is None else f", slot {slot}")


def on_server(exact: ExactInstance, side: Side, server: int, slot: int) -> str:
    """Return a text such as "server 3 (p2.xlarge), slot 7"."""
    servers = exact.servers(side)
    return f"server {server} ({servers.types[servers.class_of(server)]}), slot {slot}"


def in_class(exact: ExactInstance, side: Side, server_class: int, slot: int) -> str:
    """Return a text such as "worker servers p2.xlarge, slot 7"."""
    kind = "shared" if exact.is_shared else "PS" if side is Side.PS else "worker"
    return f"{kind} servers {exact.servers(side).types[server_class]}, slot {slot}"


def decimal_text(micro: int) -> str:
    """Return an amount of 1e-6 units as an exact decimal."""
    sign, (integer, part) = "-" if micro < 0 else "", divmod(abs(micro), MICRO)
    return f"{sign}{integer}.{part:06d}".rstrip("0").rstrip(".")


COLUMNS = 4
"""Number of columns of a plan's rows: job, slot, server, count."""

Placed = dict[tuple[int, int, int], int]
"""Units by (job, slot, server)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFindings:
    """Result of the check of a plan.

    Parameters
    ----------
    violations
        Every violated row.
    completion
        Completion slot by admitted job, row (8); None if the rows cannot be read.
    """

    violations: tuple[Violation, ...]
    completion: dict[int, int] | None


def check_plan(exact: ExactInstance, plan: AdmissionPlan) -> PlanFindings:
    """Check a plan against rows (2)-(13) and the caps of the instance."""
    violations: list[Violation] = []
    placed: dict[Side, Placed] = {}
    for side, rows in ((Side.WORKER, plan.workers), (Side.PS, plan.ps)):
        problem = _malformed(side, rows)
        if problem is not None:
            return PlanFindings(violations=(problem,), completion=None)
        placed[side] = _read_rows(exact, side, np.asarray(rows).tolist(), violations)
    workers, ps = placed[Side.WORKER], placed[Side.PS]
    workers_by_slot, ps_by_slot = _by_slot(workers), _by_slot(ps)
    segment: dict[tuple[int, int], int] = {}
    completion: dict[int, int] = {}
    for job in sorted(workers_by_slot.keys() | ps_by_slot.keys()):
        by_slot = workers_by_slot.get(job, {})
        violations += _check_counts(exact, job, by_slot, ps_by_slot.get(job, {}))
        violations += _check_work(exact, job, by_slot, ps_by_slot.get(job, {}), segment)
        if by_slot:
            completion[job] = max(by_slot)
    violations += _check_capacity(exact, workers, ps, segment)
    if exact.share is not None:
        violations += _check_share(exact, workers, ps, segment)
    return PlanFindings(violations=tuple(violations), completion=completion)


Use = dict[tuple[Side, int, int], list[int]]
"""Use of each resource in 1e-6 units, by side, server and slot; shared servers are on the worker side."""


def uses_of(exact: ExactInstance, plan: AdmissionPlan) -> dict[int, Use]:
    """Return the resources that each job of a feasible plan uses."""
    sides = ((Side.WORKER, plan.workers), (Side.PS, plan.ps))
    placed = {side: _read_rows(exact, side, np.asarray(rows).tolist(), []) for side, rows in sides}
    workers = _by_slot(placed[Side.WORKER])
    done = {(job, slot): 0 for each in placed.values() for job, slot, _ in each}
    total: dict[int, int] = defaultdict(int)
    for job, slot in sorted(done):
        done[job, slot] = total[job]
        total[job] += exact.jobs[job].progress(workers[job].get(slot, 0))
    uses: dict[int, Use] = defaultdict(dict)
    for side, rows in placed.items():
        host = Side.WORKER if exact.is_shared else side
        for (job, slot, server), count in rows.items():
            use = uses[job].setdefault((host, server, slot), [0] * len(exact.resources))
            demand = _demand(exact.jobs[job], side, exact.jobs[job].segment_at(done[job, slot]))
            use[:] = [used + unit * count for used, unit in zip(use, demand, strict=True)]
    return uses


def _malformed(side: Side, rows: Any) -> Violation | None:
    array = np.asarray(rows)
    if array.ndim == 2 and array.shape[1] == COLUMNS and (array.dtype.kind in "iu" or array.size == 0):
        return None
    text = f"rows must be whole numbers (job, slot, server, count), got shape {array.shape} of {array.dtype}"
    return violation(ROWS, text, where=f"{side.value}s")


def _read_rows(exact: ExactInstance, side: Side, rows: list[list[int]], violations: list[Violation]) -> Placed:
    """Return the valid rows; append violations for invalid rows and for rows before a job's arrival."""
    num_servers = exact.servers(side).num_servers
    what = "workers" if side is Side.WORKER else "PSs"
    placed: Placed = {}
    for job, slot, server, count in rows:
        where = f"{what}: job {job}, slot {slot}, server {server}"
        if not (0 <= job < len(exact.jobs) and 0 <= slot < exact.horizon and 0 <= server < num_servers):
            limits = f"{len(exact.jobs)} jobs, {exact.horizon} slots, {num_servers} servers"
            violations.append(violation(INDEX, f"an index is outside the instance's {limits}", where=where))
            continue
        where = f"{what}: {in_job(exact, job)}, {on_server(exact, side, server, slot)}"
        if count < 1:
            text = f"counts must be positive, got {count}"
            violations.append(violation(COUNT, text, amount=str(1 - count), where=where))
            continue
        if (job, slot, server) in placed:
            violations.append(violation(ROWS, "the same job, slot and server are listed twice", where=where))
        early = exact.jobs[job].arrival - slot
        if early > 0:
            text = f"the job arrives in slot {exact.jobs[job].arrival} and cannot have {what} before"
            violations.append(violation(ARRIVAL, text, amount=str(early), where=where))
        placed[job, slot, server] = placed.get((job, slot, server), 0) + count
    return placed


def _by_slot(placed: Placed) -> dict[int, dict[int, int]]:
    """Sum over the servers: units by job and slot."""
    result: dict[int, dict[int, int]] = defaultdict(dict)
    for (job, slot, _), count in placed.items():
        result[job][slot] = result[job].get(slot, 0) + count
    return result


def _check_counts(exact: ExactInstance, job: int, workers: dict[int, int], ps: dict[int, int]) -> Iterator[Violation]:
    """Check rows (3), (6) and (7) of one job in every slot that it uses."""
    data = exact.jobs[job]
    for slot in sorted(workers.keys() | ps.keys()):
        y, z = workers.get(slot, 0), ps.get(slot, 0)
        where = in_job(exact, job, slot)
        if y > data.chunks:
            text = f"{y} workers run at once, but the job has {data.chunks} chunks"
            yield violation(WORKERS_AT_ONCE, text, amount=str(y - data.chunks), where=where)
        lack = y * data.worker_rate - z * data.ps_rate
        if lack > 0:
            text = (
                f"{y} workers send {decimal_text(y * data.worker_rate)} Mbps, "
                f"{z} PSs take {decimal_text(z * data.ps_rate)} Mbps"
            )
            yield violation(BANDWIDTH, text, amount=decimal_text(lack), where=where)
        if z > y:
            yield violation(PS_PER_WORKER, f"{z} PSs serve {y} workers", amount=str(z - y), where=where)


def _check_work(
    exact: ExactInstance, job: int, workers: dict[int, int], ps: dict[int, int], segment: dict[tuple[int, int], int]
) -> Iterator[Violation]:
    """Check rows (2) and (8) of one job, and store the demand segment of each slot that it uses."""
    data = exact.jobs[job]
    done = 0
    for slot in sorted(workers.keys() | ps.keys()):
        segment[job, slot] = data.segment_at(done)
        done += data.progress(workers.get(slot, 0))
    if not workers:
        return
    if done < data.target:
        unit = "twentieths of a worker-slot" if data.speedup else "worker-slots"
        unit = "chunks" if data.is_chunk_integral else unit
        text = f"the plan does {done} of the {data.target} {unit} that the job needs"
        yield violation(WORK, text, amount=str(data.target - done), where=in_job(exact, job))
    last = max(workers)
    if not data.value[last] > 0:
        text = f"completion in slot {last} earns nothing; the last slot that earns is {data.deadline}"
        yield violation(COMPLETION, text, amount=str(last - data.deadline), where=in_job(exact, job, last))


def _check_capacity(
    exact: ExactInstance, workers: Placed, ps: Placed, segment: dict[tuple[int, int], int]
) -> Iterator[Violation]:
    """Check rows (4) and (5) on every server; on shared servers their sum."""
    both = ((Side.WORKER, workers), (Side.PS, ps))
    parts: tuple[tuple[str, Side, tuple[tuple[Side, Placed], ...]], ...] = (
        (WORKER_CAPACITY, Side.WORKER, both[:1]),
        (PS_CAPACITY, Side.PS, both[1:]),
    )
    if exact.is_shared:
        parts = ((SHARED_CAPACITY, Side.WORKER, both),)
    for row, host, hosted in parts:
        used = _loads(exact, hosted, segment)
        servers = exact.servers(host)
        for server, slot in sorted(used):
            capacity = servers.capacity_at(servers.class_of(server), slot)
            for r, (amount, limit) in enumerate(zip(used[server, slot], capacity, strict=True)):
                if amount > limit:
                    text = f"{decimal_text(amount)} {exact.resources[r]} used, the capacity is {decimal_text(limit)}"
                    where = f"{exact.resources[r]}, {on_server(exact, host, server, slot)}"
                    yield violation(row, text, amount=decimal_text(amount - limit), where=where)


def _loads(
    exact: ExactInstance, hosted: Iterable[tuple[Side, Placed]], segment: dict[tuple[int, int], int]
) -> dict[tuple[int, int], list[int]]:
    """Return the use of each resource by (server, slot)."""
    used: dict[tuple[int, int], list[int]] = {}
    for side, placed in hosted:
        for (job, slot, server), count in placed.items():
            load = used.setdefault((server, slot), [0] * len(exact.resources))
            for r, unit in enumerate(_demand(exact.jobs[job], side, segment[job, slot])):
                load[r] += unit * count
    return used


def _check_share(
    exact: ExactInstance, workers: Placed, ps: Placed, segment: dict[tuple[int, int], int]
) -> Iterator[Violation]:
    """Check the cap on one job's share of one server in one slot."""
    together = [workers.keys() | ps.keys()] if exact.is_shared else [workers.keys(), ps.keys()]
    for side, keys in zip((Side.WORKER, Side.PS), together, strict=False):
        for job, slot, server in sorted(keys):
            y = workers.get((job, slot, server), 0) if exact.is_shared or side is Side.WORKER else 0
            z = ps.get((job, slot, server), 0) if exact.is_shared or side is Side.PS else 0
            yield from _excess_share(exact, side, (job, slot, server), (y, z), segment[job, slot])


def _excess_share(
    exact: ExactInstance, side: Side, place: tuple[int, int, int], counts: tuple[int, int], segment: int
) -> Iterator[Violation]:
    """Compare one job's use of one server with the cap; a single worker or PS may exceed it."""
    job, slot, server = place
    y, z = counts
    if exact.share is None or y + z <= 1:
        return
    data, servers = exact.jobs[job].demands[segment], exact.servers(side)
    capacity = servers.capacity_at(servers.class_of(server), slot)
    for r, (worker, ps, limit) in enumerate(zip(data.worker, data.ps, capacity, strict=True)):
        excess = y * worker + z * ps - exact.share * limit
        if excess > 0:
            where = f"{in_job(exact, job)}, {on_server(exact, side, server, slot)}"
            text = (
                f"{y} workers and {z} PSs use {decimal_text(y * worker + z * ps)} {exact.resources[r]}, "
                f"more than the share {exact.share} of {decimal_text(limit)}"
            )
            yield violation(SHARE, text, amount=str(excess / 1_000_000), where=where)
            return


def _demand(job: ExactJob, side: Side, segment: int) -> tuple[int, ...]:
    return job.demands[segment].of(side)

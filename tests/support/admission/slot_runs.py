"""Running policies on small clusters, and a plain oracle for the plans that result."""

from collections.abc import Mapping
from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

from optim.core.driver import Monitor
from optim.core.stopping import StoppingCriterion
from optim.models.admission.codec import ConstantDocument, SigmoidDocument, StepDocument
from optim.models.admission.decision import AdmissionPlan
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.slots import Allocation, SlotPolicy, SlotRun, SlotState, run_slots
from tests.support.admission.plans import progress_of
from tests.support.admission.strategies import JobSketch, ServerSketch, Utility, make_instance, tiny_instances

PLENTY = (ServerSketch(capacity=("1000",)),)
"""Hosts of PSs that are never short."""


def families(max_jobs: int = 5, max_horizon: int = 4) -> st.SearchStrategy[AdmissionInstance]:
    """Instances of every form: disjoint and shared servers, demand segments, integral chunks, capacities by slot."""
    return st.one_of(
        [
            tiny_instances(
                is_shared=is_shared,
                has_segments=has_segments,
                is_chunk_integral=is_chunk_integral,
                max_jobs=max_jobs,
                max_horizon=max_horizon,
            )
            for is_shared in (False, True)
            for has_segments in (False, True)
            for is_chunk_integral in (False, True)
        ]
    )


def seeded_instance(seed: int, *, max_jobs: int = 6) -> AdmissionInstance:
    """Return an instance of any form drawn from a seed: quicker to draw than `families`, and no smaller on failure."""
    rng = np.random.default_rng(seed)
    horizon, num_resources = int(rng.integers(1, 6)), int(rng.integers(1, 3))
    is_shared = bool(rng.integers(2))

    def vector(*values: str) -> tuple[str, ...]:
        return tuple(str(value) for value in rng.choice(values, num_resources))

    def servers() -> list[ServerSketch]:
        kinds = []
        for _ in range(int(rng.integers(1, 3))):
            varies = rng.random() < 0.3
            rows = [vector("0", "1", "2.5", "4", "6") for _ in range(horizon if varies else 1)]
            kinds.append(ServerSketch(capacity=tuple(rows) if varies else rows[0], count=int(rng.integers(1, 4))))
        return kinds

    def sketch() -> JobSketch:
        segment = (int(rng.integers(1, 4)), vector("0", "1", "2"), vector("0", "0.5", "1"))
        return JobSketch(
            arrival=int(rng.integers(horizon)),
            epochs=int(rng.integers(1, 4)),
            chunks=int(rng.integers(1, 6)),
            chunk_slots=str(rng.choice(["1", "0.5", "0.3", "1.2", "2.5"])),
            worker=vector("0", "0.3", "1", "2"),
            ps=vector("0", "0.5", "1"),
            workers_per_ps=str(rng.choice(["1", "2", "3", "10"])),
            utility=[
                ConstantDocument(float(rng.integers(1, 9))),
                StepDocument(value=float(rng.integers(1, 9)), max_delay=int(rng.integers(4))),
                SigmoidDocument(theta1=float(rng.integers(1, 9)), theta2=1.0, theta3=2.0),
            ][int(rng.integers(3))],
            segments=(segment,) if rng.random() < 0.3 else (),
        )

    return make_instance(
        jobs=[sketch() for _ in range(int(rng.integers(1, max_jobs + 1)))],
        worker_servers=servers(),
        ps_servers=None if is_shared else servers(),
        horizon=horizon,
        share=[None, None, "0.5", "0.34"][int(rng.integers(4))],
        chunk_integral=bool(rng.random() < 0.25),
    )


seeds = st.integers(0, 2**32 - 1)


def job(
    width: int,
    slots: int = 1,
    *,
    arrival: int = 0,
    utility: Utility | None = None,
    worker: tuple[str, ...] = ("1",),
    **more: object,
) -> JobSketch:
    """Return a job of at most `width` workers that needs `slots` slots of all of them; PSs are free of charge."""
    fields = {"ps": ("0",) * len(worker), "workers_per_ps": "1000", **more}
    return JobSketch(
        arrival=arrival,
        epochs=slots,
        chunks=width,
        worker=worker,
        utility=utility or ConstantDocument(1.0),
        **fields,  # type: ignore[arg-type]
    )


def cluster(
    jobs: list[JobSketch],
    *servers: ServerSketch,
    horizon: int = 4,
    ps_servers: tuple[ServerSketch, ...] | None = PLENTY,
    **more: object,
) -> AdmissionInstance:
    """Return an instance with the given hosts of workers."""
    if ps_servers is PLENTY:
        ps_servers = (ServerSketch(capacity=("1000",) * len(jobs[0].worker)),)
    return make_instance(
        jobs=jobs,
        worker_servers=servers,
        ps_servers=ps_servers,
        horizon=horizon,
        **more,  # type: ignore[arg-type]
    )


def run(instance: AdmissionInstance, policy: SlotPolicy, stop: StoppingCriterion | None = None) -> SlotRun:
    """Run a policy to the horizon."""
    return run_slots(instance, policy, Monitor(stop))


class Recorder:
    """A policy that delegates to another policy and records views and answers."""

    def __init__(self, policy: SlotPolicy) -> None:
        self._policy = policy
        self.states: list[SlotState] = []
        self.answers: list[Mapping[int, Allocation]] = []

    def allocate(self, state: SlotState) -> Mapping[int, Allocation]:
        answer = self._policy.allocate(state)
        self.states.append(state)
        self.answers.append(answer)
        return answer

    def workers(self) -> list[dict[int, int]]:
        """Return the workers of each job, slot by slot."""
        return [
            {job: int(own.workers.sum()) for job, own in sorted(answer.items()) if own.workers.any()}
            for answer in self.answers
        ]


def recorded(instance: AdmissionInstance, policy: SlotPolicy) -> tuple[Recorder, SlotRun]:
    """Run a policy and return its decisions and the result."""
    recorder = Recorder(policy)
    return recorder, run(instance, recorder)


def plan_faults(instance: AdmissionInstance, plan: AdmissionPlan) -> list[str]:
    """Return every violation of a plan, from the instance's raw numbers, in integers."""
    worker_rows, ps_rows = _by_job(plan.workers.tolist()), _by_job(plan.ps.tolist())
    faults = [] if set(ps_rows) <= set(worker_rows) else ["PSs of a job without workers"]
    used: dict[tuple[str, int, int], list[int]] = {}
    for i, rows in worker_rows.items():
        faults += _job_faults(instance, i, rows, ps_rows.get(i, []), used)
    for (side, slot, server), amounts in used.items():
        servers = instance.worker_servers if side == "worker" else instance.ps_servers
        capacity = servers.capacity[servers.class_of_server[server], slot].tolist()
        if any(a > c for a, c in zip(amounts, capacity, strict=True)):
            faults.append(f"{side} server {server} holds {amounts} of {capacity} in slot {slot}")
    return faults


def _by_job(rows: list[list[int]]) -> dict[int, list[tuple[int, int, int]]]:
    result: dict[int, list[tuple[int, int, int]]] = {}
    for i, slot, server, count in rows:
        result.setdefault(i, []).append((slot, server, count))
    return result


def _job_faults(
    instance: AdmissionInstance,
    i: int,
    workers: list[tuple[int, int, int]],
    ps: list[tuple[int, int, int]],
    used: dict[tuple[str, int, int], list[int]],
) -> list[str]:
    jobs, faults, done = instance.jobs, [], 0
    first, end = int(jobs.segment_offset[i]), int(jobs.segment_offset[i + 1])
    for slot in sorted({slot for slot, _, _ in [*workers, *ps]}):
        segment = max(s for s in range(first, end) if jobs.segment_start[s] <= done)
        y = {server: count for at, server, count in workers if at == slot}
        z = {server: count for at, server, count in ps if at == slot}
        total, num_ps = sum(y.values()), sum(z.values())
        if slot < jobs.arrival[i]:
            faults.append(f"job {i} starts before its arrival")
        if not 0 < total <= jobs.chunks[i]:
            faults.append(f"job {i} has {total} workers in slot {slot}")
        if total * int(jobs.worker_micro_mbps[i]) > num_ps * int(jobs.ps_micro_mbps[i]) or num_ps > total:
            faults.append(f"job {i} has {num_ps} PSs for {total} workers in slot {slot}")
        faults += _server_faults(instance, i, segment, slot, y, z, used)
        done += progress_of(instance, i, total)
    if done < instance.target[i]:
        faults.append(f"job {i} makes {done} of {instance.target[i]} units of progress")
    completion = max(slot for slot, _, _ in workers)
    if not instance.value[i, completion] > 0:
        faults.append(f"job {i} earns nothing")
    return faults


def _server_faults(
    instance: AdmissionInstance,
    i: int,
    segment: int,
    slot: int,
    y: dict[int, int],
    z: dict[int, int],
    used: dict[tuple[str, int, int], list[int]],
) -> list[str]:
    """Add a job's use of servers in a slot, and return where it exceeds its share of one."""
    faults = []
    is_shared, share = instance.has_shared_servers, instance.max_share_per_server or Fraction(1)
    kinds = [("worker", {h: (y.get(h, 0), z.get(h, 0)) for h in {*y, *z}})]
    if not is_shared:
        kinds = [("worker", {h: (n, 0) for h, n in y.items()}), ("ps", {h: (0, n) for h, n in z.items()})]
    worker, ps = instance.jobs.worker_demand[segment].tolist(), instance.jobs.ps_demand[segment].tolist()
    for side, held in kinds:
        servers = instance.worker_servers if side == "worker" else instance.ps_servers
        for server, (a, b) in held.items():
            use = [a * w + b * s for w, s in zip(worker, ps, strict=True)]
            capacity = servers.capacity[servers.class_of_server[server], slot].tolist()
            if a + b > 1 and any(u > share * c for u, c in zip(use, capacity, strict=True)):
                faults.append(f"job {i} uses {use} of {capacity} on {side} server {server} in slot {slot}")
            total = used.setdefault((side, slot, server), [0] * len(use))
            total[:] = [t + u for t, u in zip(total, use, strict=True)]
    return faults

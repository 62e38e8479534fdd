"""Instances for the formal programmes: few schedules, much contention, every trait; and plain enumeration.

The enumeration shares nothing with the package but the instance's raw fields: it lists all integer
matrices of workers and PSs, minimal or not.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
from hypothesis import strategies as st

from optim.models.admission.instance import AdmissionInstance
from optim.models.admission.plan import AdmissionPlan
from tests.support.admission.plans import violated_rows
from tests.support.admission.tiny import job_document, tiny_instance

Matrix = tuple[tuple[int, ...], ...]
"""Counts by slot and server."""


def job(name: str = "a", **fields: Any) -> dict[str, Any]:
    """Return a job of two worker-slots, at most two workers at once, one PS for two workers."""
    own = {"epochs": 1, "utility": {"kind": "table", "table": [8, 4, 2, 1]}, "worker": [1], "ps": [1]}
    if "segments" in fields:
        del own["worker"], own["ps"]
    return job_document(name, **own | fields)


def servers(*capacities: Any, count: int = 1) -> list[dict[str, Any]]:
    """Return one class of servers a capacity."""
    return [{"type": f"s{c}", "capacity": capacity, "count": count} for c, capacity in enumerate(capacities)]


def instance(*jobs: dict[str, Any], **fields: Any) -> AdmissionInstance:
    """Build an instance: one worker server that holds two workers, one PS host, two slots."""
    own: dict[str, Any] = {"name": "cluster", "horizon": 2, "resources": ["gpu"], "jobs": list(jobs)}
    if "shared_servers" not in fields:
        own |= {"worker_servers": servers([2]), "ps_servers": servers([1])}
    return tiny_instance(**own | fields)


def crowd() -> AdmissionInstance:
    """Ten jobs of awkward sizes on four servers: HiGHS has a plan at once and needs seconds for the best."""
    jobs = [
        job(
            f"j{i}",
            arrival=i % 3,
            epochs=2,
            chunks=2 + i % 3,
            worker=[(10 + 7 * i % 5) / 10, (3 + 3 * i % 7) / 10],
            ps=[0.5, 0.1],
            utility={"kind": "sigmoid", "theta1": 10 + 7 * i % 11, "theta2": 1, "theta3": 2},
        )
        for i in range(10)
    ]
    return instance(
        *jobs,
        name="crowd",
        horizon=4,
        resources=["gpu", "cpu"],
        worker_servers=servers([3, 2], [4, 1.5]),
        ps_servers=servers([2, 2], [1, 1]),
    )


UTILITIES = [
    {"kind": "table", "table": [9, 6, 1]},
    {"kind": "constant", "value": 5},
    {"kind": "step", "value": 7, "deadline": 0, "late_value": 2},
    {"kind": "step", "value": 6, "deadline": 1},
    {"kind": "sigmoid", "theta1": 12, "theta2": 1.5, "theta3": 1},
    {"kind": "table", "table": [4, 3, 0.01]},
]
"""Every kind of utility; the last falls below its minimum."""

SEGMENTS = [
    None,
    None,
    [{"start": 0, "worker": [1], "ps": [1]}, {"start": 1, "worker": [2], "ps": [0.5]}],
    [
        {"start": 0, "worker": [2], "ps": [1]},
        {"start": 1, "worker": [1], "ps": [1]},
        {"start": 2, "worker": [0.5], "ps": [2]},
    ],
]
"""Demands that rise, or fall, as work is done."""


@st.composite
def _jobs(draw: st.DrawFn, name: str, horizon: int) -> dict[str, Any]:
    segments = draw(st.sampled_from(SEGMENTS))
    if segments is not None:
        demands: dict[str, Any] = {"segments": segments}
    else:
        worker, ps = draw(st.sampled_from([(1, 1), (2, 1), (1, 0), (0.7, 0.3), (1, 2), (0.1, 0.1)]))
        demands = {"worker": [worker], "ps": [ps]}
    epochs, chunks = draw(st.sampled_from([(1, 2), (2, 1), (1, 1), (2, 2), (1, 3)]))
    return job(
        name,
        arrival=draw(st.sampled_from([0, 0, 0, horizon - 1])),
        epochs=epochs,
        chunks=chunks,
        minibatch_s=draw(st.sampled_from([10, 7, 4, 10, 12])),
        ps_mbps=draw(st.sampled_from([1, 2, 1.5, 4])),
        utility=draw(st.sampled_from(UTILITIES)),
        **demands,
    )


@st.composite
def clusters(draw: st.DrawFn, *, max_jobs: int = 3, max_horizon: int = 3, max_servers: int = 2) -> AdmissionInstance:
    """Draw up to three jobs, three slots, two servers a side: disjoint or shared, with any mixture of traits."""
    horizon = draw(st.sampled_from([max_horizon, 2, max_horizon, max_horizon, 1]))

    def side() -> list[dict[str, Any]]:
        capacity = st.sampled_from([3, 2, 4, 1.4])
        kinds = draw(st.sampled_from([1, 1, max_servers]))
        count = draw(st.integers(1, max_servers)) if kinds == 1 else 1
        by_slot = draw(st.sampled_from([False, False, True]))
        return servers(
            *([[draw(capacity)] for _ in range(horizon)] if by_slot else [draw(capacity)] for _ in range(kinds)),
            count=count,
        )

    fields: dict[str, Any] = {
        "horizon": horizon,
        "chunk_integral": draw(st.sampled_from([False, False, True])),
    }
    if draw(st.booleans()):
        fields["shared_servers"] = side()
    else:
        fields |= {"worker_servers": side(), "ps_servers": side()}
    share = draw(st.sampled_from([None, None, 0.5, 0.35]))
    if share is not None:
        fields["max_share_per_server"] = share
    num_jobs = draw(st.sampled_from([max_jobs, 2, max_jobs, 1]))
    return instance(*[draw(_jobs(f"j{i}", horizon)) for i in range(num_jobs)], **fields)


@dataclass(frozen=True, kw_only=True, eq=False)
class PlainJob:
    """What rows (2), (3), (6) and (7) say of one job, from the instance's raw fields."""

    given: AdmissionInstance
    job: int

    @property
    def chunk(self) -> Fraction:
        """Worker-slots a chunk; gradients are empty here."""
        jobs, i = self.given.jobs, self.job
        return Fraction(int(jobs.minibatches[i] * jobs.minibatch_micro_s[i]), self.given.slot_micro_s)

    @property
    def target(self) -> int:
        """Progress due, in chunks or worker-slots."""
        chunks = int(self.given.jobs.epochs[self.job] * self.given.jobs.chunks[self.job])
        return chunks if self.given.chunk_integral else max(1, int(-(-chunks * self.chunk // 1)))

    def progress(self, workers: int) -> int:
        """Progress of a slot."""
        return int(workers // self.chunk) if self.given.chunk_integral else workers

    def segment(self, done: int) -> int:
        """Demand segment after so much progress."""
        jobs, i = self.given.jobs, self.job
        own = range(int(jobs.segment_offset[i]), int(jobs.segment_offset[i + 1]))
        return max(s for s in own if jobs.segment_start[s] <= done)

    def allows(self, slot: int, done: int, y: tuple[int, ...], z: tuple[int, ...]) -> bool:
        """Whether the job may run these workers and PSs on the empty cluster in a slot."""
        jobs, i = self.given.jobs, self.job
        num, num_ps = sum(y), sum(z)
        return (
            (slot >= jobs.arrival[i] or num == num_ps == 0)
            and num <= jobs.chunks[i]
            and bool(jobs.worker_micro_mbps[i] * num <= jobs.ps_micro_mbps[i] * num_ps)
            and num_ps <= num
            and self._fits(slot, self.segment(done), y, z)
        )

    def _fits(self, slot: int, segment: int, y: tuple[int, ...], z: tuple[int, ...]) -> bool:
        given = self.given
        if given.has_shared_servers:
            hosts = [(given.worker_servers, list(zip(y, z, strict=True)))]
        else:
            hosts = [(given.worker_servers, [(a, 0) for a in y]), (given.ps_servers, [(0, b) for b in z])]
        share = given.max_share_per_server
        for side, held in hosts:
            for server, (a, b) in enumerate(held):
                use = a * given.jobs.worker_demand[segment] + b * given.jobs.ps_demand[segment]
                capacity = side.capacity[side.class_of_server[server], slot]
                is_over = any(int(u) > (share or 1) * int(c) for u, c in zip(use, capacity, strict=True))
                if (use > capacity).any() or (a + b > 1 and is_over):
                    return False
        return True

    def use(self, workers: Matrix, ps: Matrix) -> Any:
        """Return the use of every server, shape (worker hosts, then PS hosts unless shared; slots; resources)."""
        jobs, done, slots = self.given.jobs, 0, []
        for y, z in zip(workers, ps, strict=True):
            segment = self.segment(done)
            sides = np.outer(y, jobs.worker_demand[segment]), np.outer(z, jobs.ps_demand[segment])
            slots.append(sides[0] + sides[1] if self.given.has_shared_servers else np.concatenate(sides))
            done += self.progress(sum(y))
        return np.stack(slots, axis=1)

    def schedules(self) -> Iterator[tuple[int, Matrix, Matrix]]:
        """Yield (completion slot, workers, PSs) of every feasible schedule, minimal or not."""
        most = range(int(self.given.jobs.chunks[self.job]) + 1)
        sides = self.given.worker_servers, self.given.ps_servers
        counts = list(product(*[list(product(most, repeat=side.num_servers)) for side in sides]))

        def extend(slot: int, done: int) -> Iterator[list[tuple[tuple[int, ...], tuple[int, ...]]]]:
            if slot == self.given.horizon:
                if done >= self.target:
                    yield []
                return
            for y, z in counts:
                if self.allows(slot, done, y, z):
                    for rest in extend(slot + 1, done + self.progress(sum(y))):
                        yield [(y, z), *rest]

        for found in extend(0, 0):
            completion = max(slot for slot, (y, _) in enumerate(found) if sum(y))
            if self.given.value[self.job, completion] > 0:
                yield completion, tuple(y for y, _ in found), tuple(z for _, z in found)


def capacity_of(given: AdmissionInstance) -> Any:
    """Return the capacity of every single server, as `PlainJob.use` lays it out."""
    sides = [given.worker_servers] if given.has_shared_servers else [given.worker_servers, given.ps_servers]
    return np.concatenate([side.capacity[side.class_of_server] for side in sides])


def best_value(given: AdmissionInstance) -> float:
    """Return the best plan's value by trying every combination of the jobs' schedules."""
    choices: list[list[tuple[float, Any]]] = []
    for i in range(given.num_jobs):
        job, found = PlainJob(given=given, job=i), {}
        for completion, workers, ps in job.schedules():
            use, value = job.use(workers, ps), float(given.value[i, completion])
            if found.get(use.tobytes(), (0.0,))[0] < value:
                found[use.tobytes()] = (value, use)
        choices.append(list(found.values()))

    def best(i: int, left: Any) -> float:
        if i == given.num_jobs:
            return 0.0
        taken = [value + best(i + 1, left - use) for value, use in choices[i] if (use <= left).all()]
        return max(best(i + 1, left), *taken) if taken else best(i + 1, left)

    return best(0, capacity_of(given))


def violations(given: AdmissionInstance, plan: AdmissionPlan) -> list[str]:
    """Return the rows that a plan violates, by looking at every job, slot and server."""
    workers, ps = ([tuple(row) for row in rows.tolist()] for rows in (plan.workers, plan.ps))
    return sorted(violated_rows(given, workers, ps))

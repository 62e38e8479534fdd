"""Instances with few schedules, much contention and every optional feature, for the programmes; and their best plans."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from optim.models.admission.decision import AdmissionPlan
from optim.models.admission.instance import AdmissionInstance
from tests.support.admission.enumeration import Enumerator
from tests.support.admission.plans import violated_rows
from tests.support.admission.tiny import job_document, tiny_instance


def job(name: str = "a", **fields: Any) -> dict[str, Any]:
    """Return a job of two worker-slots, at most two workers at once, one PS for two workers."""
    own = {"epochs": 1, "utility": {"kind": "table", "table": [8, 4, 2, 1]}, "worker": [1], "ps": [1]}
    if "segments" in fields:
        del own["worker"], own["ps"]
    return job_document(name, **own | fields)


def servers(*capacities: Any, count: int = 1) -> list[dict[str, Any]]:
    """Return one class of servers per capacity."""
    return [{"type": f"s{c}", "capacity": capacity, "count": count} for c, capacity in enumerate(capacities)]


def instance(*jobs: dict[str, Any], **fields: Any) -> AdmissionInstance:
    """Build an instance: one worker server that holds two workers, one PS host, two slots."""
    own: dict[str, Any] = {"name": "cluster", "horizon": 2, "resources": ["gpu"], "jobs": list(jobs)}
    if "shared_servers" not in fields:
        own |= {"worker_servers": servers([2]), "ps_servers": servers([1])}
    return tiny_instance(**own | fields)


def crowd(num_jobs: int = 10) -> AdmissionInstance:
    """Jobs of awkward sizes on four servers: HiGHS has a plan at once and needs seconds for the best of ten."""
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
        for i in range(num_jobs)
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
"""Every type of utility; the last falls below its minimum."""

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
    """Draw up to three jobs, three slots, and two servers each for workers and PSs, or shared, with any features."""
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


def capacity_of(given: AdmissionInstance) -> Any:
    """Return the capacity of every single server, in the order of `Schedule.load`."""
    sides = [given.worker_servers] if given.has_shared_servers else [given.worker_servers, given.ps_servers]
    return np.concatenate([side.capacity[side.class_of_server].ravel() for side in sides])


def best_value(given: AdmissionInstance) -> float:
    """Return the best plan's value by trying every combination of the jobs' schedules."""
    choices: list[list[tuple[float, Any]]] = []
    every = Enumerator(given, is_stripped=False, is_by_class=False)
    for i in range(given.num_jobs):
        found: dict[bytes, tuple[float, Any]] = {}
        for schedule in every.schedules(i):
            use, value = schedule.load, float(given.value[i, schedule.completion])
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

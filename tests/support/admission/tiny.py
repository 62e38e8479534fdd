"""Admission instances small enough to enumerate, by hand and at random."""

import json
from typing import Any

import numpy as np
from hypothesis import strategies as st

from optim.models.admission.instance import AdmissionInstance
from optim.models.admission.problem import PROBLEM

SLOT_S = 10
"""Seconds per slot; a mini-batch of that length is one worker-slot of work."""


def job_document(name: str = "a", **fields: Any) -> dict[str, Any]:
    """Return a job of four worker-slots, at most two concurrent workers, one GPU per worker and one CPU per PS."""
    document: dict[str, Any] = {
        "id": name,
        "arrival": 0,
        "epochs": 2,
        "chunks": 2,
        "minibatches": 1,
        "minibatch_s": SLOT_S,
        "gradient_mb": 0,
        "worker_mbps": 1,
        "ps_mbps": 2,
        "utility": {"kind": "table", "table": [16, 8, 4, 2, 1]},
        "worker": [1, 0],
        "ps": [0, 1],
    }
    if "segments" in fields:
        del document["worker"], document["ps"]
    return document | fields


def tiny_instance(*jobs: dict[str, Any], **fields: Any) -> AdmissionInstance:
    """Build an instance with two worker servers of two GPUs and one PS server of two CPUs, four slots."""
    document: dict[str, Any] = {
        "schema": "optim/admission/1",
        "name": "by-hand",
        "horizon": 4,
        "slot_s": SLOT_S,
        "resources": ["gpu", "cpu"],
        "jobs": list(jobs) or [job_document()],
        "worker_servers": [{"type": "gpus", "capacity": [2, 0], "count": 2}],
        "ps_servers": [{"type": "cpus", "capacity": [0, 2], "count": 1}],
    }
    if "shared_servers" in fields:
        del document["worker_servers"], document["ps_servers"]
    return read(document | fields)


def read(document: dict[str, Any]) -> AdmissionInstance:
    """Build an instance from a document."""
    return PROBLEM.read_instance(json.dumps(document).encode())


def day_and_night(high: int, low: int, horizon: int = 4) -> list[list[int]]:
    """Return capacities of two resources that alternate from slot to slot."""
    return [[high, high] if slot % 2 == 0 else [low, low] for slot in range(horizon)]


SEGMENTS = [
    {"start": 0, "worker": [1, 0], "ps": [0, 1]},
    {"start": 2, "worker": [2, 0], "ps": [0, 2]},
]
"""A job whose demands double when two units of progress are done."""

BY_HAND = {
    "plain": tiny_instance(job_document("a"), job_document("b", arrival=1), job_document("c", epochs=1)),
    "by-slot": tiny_instance(
        job_document("a"),
        job_document("b", arrival=1),
        worker_servers=[{"type": "gpus", "capacity": day_and_night(3, 1), "count": 2}],
        ps_servers=[{"type": "cpus", "capacity": day_and_night(1, 2), "count": 2}],
    ),
    "segments": tiny_instance(
        job_document("a", segments=SEGMENTS), job_document("b", chunks=3, epochs=1, segments=SEGMENTS)
    ),
    "chunks": tiny_instance(
        job_document("a", minibatch_s=4, epochs=3),
        job_document("b", minibatch_s=15, chunks=3, epochs=1),
        chunk_integral=True,
    ),
    "chunks-and-segments": tiny_instance(
        job_document("a", minibatch_s=4, epochs=3, segments=SEGMENTS), job_document("b"), chunk_integral=True
    ),
    "shared": tiny_instance(
        job_document("a", worker=[1, 1], ps=[0, 2]),
        job_document("b", arrival=1),
        shared_servers=[
            {"type": "box", "capacity": [2, 3], "count": 2},
            {"type": "cpu", "capacity": [0, 2], "count": 1},
        ],
    ),
    "capped": tiny_instance(job_document("a", chunks=3), job_document("b", worker=[2, 0]), max_share_per_server=0.5),
    "shared-capped": tiny_instance(
        job_document("a", chunks=3, worker=[1, 1], ps=[0, 1]),
        job_document("b"),
        shared_servers=[{"type": "box", "capacity": [4, 4], "count": 2}],
        max_share_per_server=0.5,
    ),
}
"""One instance for every feature that a checker must handle."""


@st.composite
def tiny_instances(draw: st.DrawFn, *, max_jobs: int = 2, horizon: int = 3, max_count: int = 2) -> AdmissionInstance:
    """Draw an instance with any mixture of traits: shared, capped, by slot, segments, integral chunks.

    The traits shrink; the numbers come from a seeded generator, which is ten times faster than to
    draw them one by one.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    num_resources, num_jobs = draw(st.integers(1, 2)), draw(st.integers(1, max_jobs))
    has_segments, varies = draw(st.booleans()), draw(st.booleans())

    def servers(kind: str) -> list[dict[str, Any]]:
        shape = (horizon, num_resources) if varies else (num_resources,)
        return [
            {
                "type": f"{kind}{c}",
                "capacity": rng.choice([0, 1, 2, 3, 4, 5, 6, 8], shape).tolist(),
                "count": int(rng.integers(1, max_count + 1)),
            }
            for c in range(rng.integers(1, 3))
        ]

    fields: dict[str, Any] = {
        "horizon": horizon,
        "resources": ["gpu", "cpu"][:num_resources],
        "jobs": [_random_job(rng, f"j{i}", horizon, num_resources, has_segments) for i in range(num_jobs)],
        "chunk_integral": draw(st.booleans()),
    }
    if draw(st.booleans()):
        fields["shared_servers"] = servers("box")
    else:
        fields |= {"worker_servers": servers("gpus"), "ps_servers": servers("cpus")}
    if draw(st.booleans()):
        fields["max_share_per_server"] = draw(st.sampled_from([0.25, 0.5, 0.75]))
    return tiny_instance(**fields)


def _random_job(
    rng: np.random.Generator, name: str, horizon: int, num_resources: int, has_segments: bool
) -> dict[str, Any]:
    def demands() -> dict[str, list[int]]:
        return {side: rng.choice([0, 1, 1, 1, 2, 3], num_resources).tolist() for side in ("worker", "ps")}

    starts = [0, int(rng.integers(1, 4))]
    rate = int(rng.integers(1, 4))
    return job_document(
        name,
        arrival=int(rng.choice([0, 0, 0, 1, horizon - 1])),
        epochs=int(rng.integers(1, 3)),
        chunks=int(rng.integers(1, 4)),
        minibatch_s=int(rng.choice([0, 4, 7, 10, 12, 20])),
        worker_mbps=rate,
        ps_mbps=rate + int(rng.integers(0, 3)),
        utility={"kind": "table", "table": (1 + np.cumsum(rng.integers(0, 7, horizon))[::-1]).tolist()},
        **({"segments": [{"start": start, **demands()} for start in starts]} if has_segments else demands()),
    )

"""Small admission instances with every optional feature by a seed, and valid and invalid proofs for the checker."""

from typing import Any

import numpy as np

from optim.models.admission.decision import CountCut, PriceProof, ServerCut, Side, TreeNode, TreeProof
from optim.models.admission.instance import AdmissionInstance
from tests.support.admission.enumeration import random_branch
from tests.support.admission.tiny import SLOT_S, job_document, read

HORIZON = 4
RESOURCES = ("gpu", "cpu")
UTILITIES = (
    {"kind": "sigmoid", "theta1": 20.0, "theta2": 0.7, "theta3": 2.0},
    {"kind": "constant", "value": 7.5},
    {"kind": "step", "value": 12.0, "deadline": 2, "late_value": 3.0},
    {"kind": "table", "table": [16, 8, 4, 2]},
)


def seeded_document(seed: int) -> dict[str, Any]:
    """Return the document of an instance of three jobs and up to six servers; the seed's bits choose its features."""
    rng = np.random.default_rng(seed)
    traits = {
        name: bool(seed >> bit & 1) for bit, name in enumerate(("shared", "slots", "segments", "chunks", "capped"))
    }
    document: dict[str, Any] = {
        "schema": "optim/admission/1", "name": f"seeded-{seed}", "horizon": HORIZON, "slot_s": SLOT_S,
        "resources": list(RESOURCES), "jobs": [_job(rng, i, has_segments=traits["segments"]) for i in range(3)],
        "min_utility": float(rng.choice([0.01, 0.2])), "chunk_integral": traits["chunks"],
    }  # fmt: skip
    for side in ("shared",) if traits["shared"] else ("worker", "ps"):
        shape = (HORIZON, 2) if traits["slots"] else (2,)
        document[f"{side}_servers"] = [
            {"type": f"{side}{c}", "capacity": rng.choice([1, 2, 3, 4, 5, 6], shape).tolist(), "count": 1 + c}
            for c in range(2)
        ]
    if traits["capped"]:
        document["max_share_per_server"] = float(rng.choice([0.4, 0.5, 0.75]))
    return document


def seeded_instance(seed: int) -> AdmissionInstance:
    """Return the instance of `seeded_document`."""
    return read(seeded_document(seed))


def _job(rng: np.random.Generator, i: int, *, has_segments: bool) -> dict[str, Any]:
    def demands() -> dict[str, list[float]]:
        worker, ps = rng.choice([0.5, 1, 1, 1.5, 2], 2).tolist(), rng.choice([0, 0.5, 1, 1, 2], 2).tolist()
        return {"worker": worker, "ps": ps}

    fields: dict[str, Any] = demands()
    if has_segments:
        fields = {"segments": [{"start": 0, **demands()}, {"start": int(rng.integers(1, 4)), **demands()}]}
    if i == 1 and rng.integers(2):
        fields["speedup"] = [1.0, 1.6, 2.0]
    return job_document(
        f"j{i}",
        arrival=int(rng.choice([0, 0, 1])),
        epochs=int(rng.integers(1, 3)),
        chunks=int(rng.integers(1, 4)),
        minibatches=int(rng.integers(1, 3)),
        minibatch_s=float(rng.choice([2, 3.5, 5, 10])),
        gradient_mb=float(rng.choice([0, 0.25])),
        worker_mbps=float(rng.choice([1, 2.5])),
        ps_mbps=float(rng.choice([2.5, 4])),
        utility=UTILITIES[int(rng.integers(len(UTILITIES)))],
        **fields,
    )


def loose_cut(instance: AdmissionInstance, rng: np.random.Generator) -> ServerCut:
    """Draw a server cut with a right-hand side near the valid values."""
    side = Side.WORKER if instance.has_shared_servers or rng.integers(2) else Side.PS
    servers = instance.worker_servers if side is Side.WORKER else instance.ps_servers
    coefficients = rng.integers(0, 3, (2, instance.num_jobs))
    if not instance.has_shared_servers:
        coefficients[1 if side is Side.WORKER else 0] = 0
    return ServerCut(
        side=side,
        server_class=int(rng.integers(servers.num_classes)),
        slot=int(rng.integers(instance.horizon)),
        jobs=np.arange(instance.num_jobs),
        worker_coefficient=coefficients[0],
        ps_coefficient=coefficients[1],
        right_hand_side=int(rng.integers(2, 12)),
        multiplier=float(rng.integers(0, 5)) / 4,
    )


def loose_count_cut(instance: AdmissionInstance, rng: np.random.Generator) -> CountCut:
    """Draw a count cut with a right-hand side near the valid values."""
    side = Side.WORKER if instance.has_shared_servers or rng.integers(2) else Side.PS
    servers = instance.worker_servers if side is Side.WORKER else instance.ps_servers
    gain, ps_gain = (np.cumsum(rng.integers(0, 2, (instance.num_jobs, 3)), axis=1) for _ in range(2))
    return CountCut(
        side=side,
        server_class=int(rng.integers(servers.num_classes)),
        slot=int(rng.integers(instance.horizon)),
        jobs=np.arange(instance.num_jobs),
        gain=gain,
        ps_gain=ps_gain if instance.has_shared_servers else None,
        right_hand_side=int(rng.integers(1, 8)),
        multiplier=float(rng.integers(0, 5)) / 4,
    )


def loose_prices(instance: AdmissionInstance, rng: np.random.Generator, num_cuts: int = 2) -> PriceProof:
    """Draw prices, cuts of both types, and payoffs that are mostly too low, so that the checker reports the required values."""
    size = (instance.horizon, instance.num_resources)
    num_ps = 0 if instance.has_shared_servers else instance.ps_servers.num_classes
    return PriceProof(
        worker_price=rng.integers(0, 5, (instance.worker_servers.num_classes, *size)) / 8.0,
        ps_price=rng.integers(0, 5, (num_ps, *size)) / 8.0,
        payoff=rng.choice([-1.0, -1.0, 3.0, 30.0], instance.num_jobs),
        cuts=tuple(loose_cut(instance, rng) for _ in range(num_cuts)),
        count_cuts=tuple(loose_count_cut(instance, rng) for _ in range(num_cuts)),
    )


def loose_tree(instance: AdmissionInstance, rng: np.random.Generator, depth: int = 3) -> TreeProof:
    """Draw a tree of branches of all types; one leaf in four claims to be empty."""
    nodes: list[TreeNode] = []

    def grow(left: int) -> int:
        number = len(nodes)
        nodes.append(TreeNode())
        if left:
            branch = random_branch(instance, int(rng.integers(instance.num_jobs)), rng)
            nodes[number] = TreeNode(branch=branch, low=grow(left - 1), high=grow(left - 1))
        else:
            nodes[number] = TreeNode(proof=loose_prices(instance, rng, 0) if rng.integers(4) else None)
        return number

    grow(depth)
    return TreeProof(nodes=tuple(nodes))

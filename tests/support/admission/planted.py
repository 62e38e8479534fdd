"""Instances with a known optimum that is also the LP's bound: jobs cut from a full cluster, and decoys.

The planted jobs use every GPU of every slot. A job's value is its GPU-slots at one price for all, plus a premium, if it
completes by its planted slot. So that price is a dual point whose bound is the planted jobs' value. Decoys have less
value than their GPU-slots.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from optim.models.admission.instance import AdmissionInstance
from tests.support.admission.tiny import SLOT_S, job_document, tiny_instance

PRICE = 1.0
"""Utility per GPU-slot."""


@dataclass(frozen=True, kw_only=True)
class Planted:
    """An instance, and the value of its best plan."""

    instance: AdmissionInstance
    optimum: float


def planted(seed: int, *, horizon: int, servers: int, gpus: int, decoys: int, longest: int = 8) -> Planted:
    """Return an instance of a number of equal servers; a decoy's value is 70 to 98 % of its GPU-slots."""
    rng = np.random.default_rng(seed)
    free = np.full((horizon, servers), gpus)
    jobs: list[dict[str, Any]] = []
    optimum = 0.0
    while free.any():
        unit = int(rng.choice([1, 1, 2, 4][: 4 if gpus >= 4 else 3]))
        start, length, most = int(rng.integers(horizon)), int(rng.integers(1, longest + 1)), int(rng.integers(1, 9))
        slots = range(start, min(start + length, horizon))
        taken = [_take(free[t], unit, most, rng) for t in slots]
        work = sum(taken)
        if not work:
            unit, most = 1, gpus
            t = int(rng.choice(np.flatnonzero(free.any(axis=1))))
            start, slots, work = t, range(t, t + 1), _take(free[t], 1, gpus, rng)
            taken = [work]
        last = max(k for k, units in enumerate(taken) if units)
        value = round(work * unit * PRICE * float(rng.uniform(1.02, 1.5)), 3)
        jobs.append(_job(f"planted-{len(jobs)}", start, work, max(taken), unit, value, last))
        optimum += value
    for k in range(decoys):
        unit, work, most = int(rng.choice([1, 2])), int(rng.integers(2, 24)), int(rng.integers(1, 9))
        delay = -(-work // most) + int(rng.integers(4))
        value = round(work * unit * PRICE * float(rng.uniform(0.7, 0.98)), 3)
        jobs.append(_job(f"decoy-{k}", int(rng.integers(horizon)), work, most, unit, value, delay))
    jobs.sort(key=lambda job: int(job["arrival"]))
    instance = tiny_instance(
        *jobs,
        horizon=horizon,
        worker_servers=[{"type": "gpus", "capacity": [gpus, 0], "count": servers}],
        ps_servers=[{"type": "cpus", "capacity": [0, 10 * len(jobs)], "count": 1}],
    )
    return Planted(instance=instance, optimum=optimum)


def _take(free: Any, unit: int, most: int, rng: np.random.Generator) -> int:
    """Take up to `most` workers of a given number of GPUs from a slot's servers; return the number taken."""
    taken = 0
    for h in rng.permutation(len(free)).tolist():
        units = min(most - taken, int(free[h]) // unit)
        free[h] -= units * unit
        taken += units
    return taken


def _job(name: str, arrival: int, work: int, most: int, unit: int, value: float, delay: int) -> dict[str, Any]:
    return job_document(
        name,
        arrival=arrival,
        epochs=1,
        chunks=most,
        minibatch_s=int(1e6 * SLOT_S * work // most) / 1e6,
        ps_mbps=1000,
        utility={"kind": "step", "value": value, "deadline": delay},
        worker=[unit, 0],
        ps=[0, 1],
    )

"""What prices, loads and intervals prove about any schedule of rigid jobs on equal GPUs."""

import math

import numpy as np

from optim.core.limits import check_limit, current_limits
from optim.models.cluster.proof import IntervalProof, LoadProof, PriceProof
from optim.models.cluster.workload import US, Workload
from optim.models.cluster.world import Cluster

COMPILED = 100
"""Steps of a compiled loop that take the time of one other."""

ROUNDING = 1e-9
"""Relative to the sum of absolute terms: far above the rounding of any sum here."""


def least_mean_completion(jobs: Workload, cluster: Cluster, proof: PriceProof) -> float:
    """Return the mean completion time in seconds that no schedule beats, rounded down ((D.1) of docs/mathematics/cluster.md).

    Raises
    ------
    InvalidProblemError
        If the prices take more steps than the limits allow.
    """
    from optim.models.cluster.check.dearest_time import least_bills

    width, most = jobs.gpus.astype(float), COMPILED * current_limits().steps
    bills, steps = least_bills(jobs.submit_us, jobs.duration_us, width, proof.end_us, proof.price, most)
    check_limit("steps", steps // COMPILED, f"steps to check {len(proof.price)} prices for {len(jobs)} jobs")
    lengths = np.diff(proof.end_us, prepend=0).tolist()
    income = (
        cluster.num_gpus * math.fsum(p * length for p, length in zip(proof.price.tolist(), lengths, strict=True)) / US
    )
    total = math.fsum(bills.tolist()) - income - ROUNDING * (math.fsum(np.abs(bills).tolist()) + income)
    return float(total) / len(jobs)


def least_makespan(jobs: Workload, cluster: Cluster, proof: LoadProof) -> float:
    """Return the seconds from the first submission that no schedule of all jobs beats, rounded down ((D.2))."""
    later = jobs.submit_us >= proof.from_us
    work = sum(w * d for w, d in zip(jobs.gpus[later].tolist(), jobs.duration_us[later].tolist(), strict=True))
    by_load = proof.from_us + work // cluster.num_gpus if work else 0
    last = max(r + d for r, d in zip(jobs.submit_us.tolist(), jobs.duration_us.tolist(), strict=True))
    makespan_us = int(max(by_load, last))
    return makespan_us / US * (1 - ROUNDING)


def least_slowdown(jobs: Workload, cluster: Cluster, proof: IntervalProof) -> float:
    """Return the largest slowdown that every schedule has at least, rounded down: 1 if the interval isn't overloaded ((D.3))."""
    inside = jobs.submit_us >= proof.from_us
    times, parts = float(proof.slowdown).as_integer_ratio()
    room = (proof.to_us - jobs.submit_us).tolist()
    inside &= [times * d <= parts * left for d, left in zip(jobs.duration_us.tolist(), room, strict=True)]
    work = sum(w * d for w, d in zip(jobs.gpus[inside].tolist(), jobs.duration_us[inside].tolist(), strict=True))
    is_overloaded = proof.to_us > proof.from_us and work > cluster.num_gpus * (proof.to_us - proof.from_us)
    return proof.slowdown * (1 - ROUNDING) if is_overloaded else 1.0

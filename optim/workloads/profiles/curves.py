"""How a profiled job's speed grows with its workers: for admission in twentieths, for bidding as a concave function."""

import numpy as np
from msgspec import UNSET

from optim.models.admission.speedup import TWENTIETHS
from optim.models.bidding.scalability import CurveKind, Scalability
from optim.workloads.profiles.document import JobProfile
from optim.workloads.profiles.envelope import concave_envelope
from optim.workloads.profiles.fitting import FloatArray
from optim.workloads.profiles.speed import steps_per_second

TRUSTED_REACH = 2.0
"""Speed-ups are continued up to so many times the most workers measured, and held constant beyond."""


def scalability_of(job: JobProfile) -> Scalability:
    """Return a kind's speed-up by workers, each of work rate 1, as the concave envelope of what was measured.

    Beyond the most workers measured it goes on at its last slope up to twice as many, and is constant from there.
    """
    workers, speedup = concave_envelope(
        np.array([float(point.workers) for point in job.scaling]), np.array([point.speedup for point in job.scaling])
    )
    corners = list(zip(workers.tolist(), speedup.tolist(), strict=True))
    before = corners[-2] if len(corners) > 1 else (0.0, 0.0)
    last = corners[-1]
    slope = (last[1] - before[1]) / (last[0] - before[0])
    reach = TRUSTED_REACH * max(point.workers for point in job.scaling)
    if slope > 0:
        corners.append((reach, last[1] + slope * (reach - last[0])))
    return Scalability(kind=CurveKind.POINTS, points=tuple(corners))


def speedups(job: JobProfile, most: int) -> FloatArray:
    """Return how many times as fast as one worker 1, ..., most workers are.

    By the fitted speed function where there is one, with as many parameter servers as bandwidths ask for (row (6)); else by
    the measured speed-ups' envelope.
    """
    workers = np.arange(1, most + 1, dtype=np.float64)
    if job.speed is UNSET:
        curve = scalability_of(job)
        return np.asarray(curve.value(workers) / curve.value(np.ones(1)))
    reached = np.minimum(workers, TRUSTED_REACH * job.speed.largest_workers)
    servers = np.ceil(reached * job.worker_mbps.value / job.ps_mbps.value)
    speed = steps_per_second(job.speed, reached, np.maximum(servers, 1.0))
    return np.asarray(speed / speed[0])


def speedup_table(job: JobProfile, most: int) -> tuple[int, ...]:
    """Return an admission job's table in twentieths up to so many workers; an empty one where speed is linear to a fortieth."""
    exact = speedups(job, most)
    if np.abs(exact - np.arange(1, most + 1)).max() <= 0.5 / TWENTIETHS:
        return ()
    units = np.maximum.accumulate(np.round(exact * TWENTIETHS).astype(np.int64))
    units = np.maximum(units, TWENTIETHS)
    units[0] = TWENTIETHS
    last = int(np.searchsorted(units, units[-1]))
    return tuple(units[: last + 1].tolist())

"""What makes an admission instance valid; each failure names the field, the value and the remedy."""

import numpy as np

from optim.core.errors import InvalidProblemError
from optim.models.admission.instance import MAX_QUANTITY, MICRO, AdmissionInstance, Jobs, ServerClasses
from optim.models.admission.speedup import validate_speedups
from optim.models.admission.utility import Utility

MONOTONE_TOL = 1e-12
"""A utility may rise by this share of its first value through rounding alone."""


def validate(instance: AdmissionInstance) -> None:
    """Raise if the instance contradicts its own definition.

    Raises
    ------
    InvalidProblemError
        With the path of the first bad field, its value, and what to do.
    """
    if instance.horizon < 1:
        raise InvalidProblemError(f"horizon must be at least 1 slot, got {instance.horizon}")
    if instance.slot_micro_s < 1:
        raise InvalidProblemError(f"slot_s must be positive, got {instance.slot_micro_s / MICRO}")
    if not instance.resources or len(set(instance.resources)) != len(instance.resources):
        raise InvalidProblemError(f"resources must be distinct names, at least one, got {list(instance.resources)}")
    if not 0 <= instance.min_utility_share <= 1:
        raise InvalidProblemError(
            f"min_utility must be in [0, 1] (a share of f(0)), got {float(instance.min_utility_share)}"
        )
    share = instance.max_share_per_server
    if share is not None and not 0 < share <= 1:
        raise InvalidProblemError(f"max_share_per_server must be in (0, 1], got {float(share)}")
    sides = (
        {"shared_servers": instance.worker_servers}
        if instance.has_shared_servers
        else {"worker_servers": instance.worker_servers, "ps_servers": instance.ps_servers}
    )
    for side, servers in sides.items():
        _validate_servers(side, servers, instance)
    _validate_jobs(instance.jobs, instance)


def _validate_servers(side: str, servers: ServerClasses, instance: AdmissionInstance) -> None:
    shape = (servers.num_classes, instance.horizon, instance.num_resources)
    if servers.capacity.shape != shape:
        raise InvalidProblemError(
            f"{side}: capacity must have shape (classes, slots, resources) = {shape}, got {servers.capacity.shape}"
        )
    if servers.count.shape != (servers.num_classes,):
        raise InvalidProblemError(f"{side}: count must hold one number a class, got shape {servers.count.shape}")
    for c in range(servers.num_classes):
        if servers.count[c] < 1:
            raise InvalidProblemError(
                f"{side}[{c}].count must be at least 1, got {servers.count[c]}; leave empty classes out"
            )
        low, high = int(servers.capacity[c].min()), int(servers.capacity[c].max())
        if low < 0:
            raise InvalidProblemError(
                f"{side}[{c}].capacity must not be negative, got {low / MICRO}; use 0 for a resource it lacks"
            )
        if high > MAX_QUANTITY * MICRO:
            raise InvalidProblemError(
                f"{side}[{c}].capacity must be at most {MAX_QUANTITY}, got {high / MICRO}; choose a larger unit"
            )


def _validate_jobs(jobs: Jobs, instance: AdmissionInstance) -> None:
    if len(set(jobs.ids)) != len(jobs.ids):
        twice = next(name for name in jobs.ids if jobs.ids.count(name) > 1)
        raise InvalidProblemError(f"jobs: id {twice!r} is used twice; give every job its own id")
    minima = {
        "arrival": (jobs.arrival, 0),
        "epochs": (jobs.epochs, 1),
        "chunks": (jobs.chunks, 1),
        "minibatches": (jobs.minibatches, 1),
        "minibatch_s": (jobs.minibatch_micro_s, 0),
        "gradient_mb": (jobs.gradient_micro_mb, 0),
        "worker_mbps": (jobs.worker_micro_mbps, 1),
        "ps_mbps": (jobs.ps_micro_mbps, 1),
    }
    for name, (array, least) in minima.items():
        if array.shape != (len(jobs),):
            raise InvalidProblemError(f"jobs.{name} must hold one number a job, got shape {array.shape}")
        for i in np.flatnonzero(array < least).tolist():
            raise InvalidProblemError(
                f"jobs[{i}].{name} must be {'positive' if least else 'at least 0'}, got {array[i]}"
            )
        for i in np.flatnonzero(array > MAX_QUANTITY * MICRO).tolist():
            raise InvalidProblemError(f"jobs[{i}].{name} must be at most {MAX_QUANTITY}; choose another unit")
    for i in np.flatnonzero(jobs.arrival >= instance.horizon).tolist():
        raise InvalidProblemError(
            f"jobs[{i}].arrival must be before the horizon of {instance.horizon} slots, got {jobs.arrival[i]}; leave the job out or lengthen the horizon"
        )
    for i in np.flatnonzero(jobs.worker_micro_mbps > jobs.ps_micro_mbps).tolist():
        raise InvalidProblemError(
            f"jobs[{i}].worker_mbps (b = {jobs.worker_micro_mbps[i] / MICRO:g}) must not exceed ps_mbps (B = {jobs.ps_micro_mbps[i] / MICRO:g}): "
            "rows (6) and (7) then forbid any worker; lower worker_mbps or raise ps_mbps"
        )
    validate_speedups(jobs)
    _validate_segments(jobs, instance)
    for i in range(len(jobs)):
        _validate_utility(i, jobs.utilities[i], instance.horizon)
        if jobs.min_utility[i] < 0:
            raise InvalidProblemError(f"jobs[{i}].min_utility must be at least 0, got {jobs.min_utility[i]}")


def _validate_segments(jobs: Jobs, instance: AdmissionInstance) -> None:
    for name, demand in (("worker", jobs.worker_demand), ("ps", jobs.ps_demand)):
        if demand.shape != (len(jobs.segment_start), instance.num_resources):
            raise InvalidProblemError(
                f"jobs: {name} demands must list {instance.num_resources} resources each, got shape {demand.shape}"
            )
        for s in np.flatnonzero((demand < 0).any(axis=1)).tolist():
            raise InvalidProblemError(
                f"jobs[{instance.segment_job[s]}].{name} must not be negative, got {(demand[s] / MICRO).tolist()}"
            )
        if demand.size and demand.max() > MAX_QUANTITY * MICRO:
            raise InvalidProblemError(f"jobs: {name} demands must be at most {MAX_QUANTITY}; choose a larger unit")
    for i in range(len(jobs)):
        starts = jobs.segment_start[jobs.segment_offset[i] : jobs.segment_offset[i + 1]]
        if len(starts) == 0 or starts[0] != 0 or (np.diff(starts) <= 0).any():
            raise InvalidProblemError(f"jobs[{i}].segments must start at 0 and rise strictly, got {starts.tolist()}")


def _validate_utility(i: int, utility: Utility, horizon: int) -> None:
    with np.errstate(all="ignore"):
        worth = utility.values(horizon + 1)
    if not np.isfinite(worth).all():
        raise InvalidProblemError(f"jobs[{i}].utility must be finite at every delay up to the horizon, got {utility}")
    if (worth < 0).any():
        raise InvalidProblemError(
            f"jobs[{i}].utility must not be negative, got {worth.min():g} at delay {int(worth.argmin())}"
        )
    rises = np.flatnonzero(np.diff(worth) > MONOTONE_TOL * max(worth[0], 1e-300))
    if rises.size:
        raise InvalidProblemError(
            f"jobs[{i}].utility must not increase with the delay, but rises after delay {int(rises[0])}; "
            "give values that fall or stay (for a sigmoid: theta2 >= 0)"
        )

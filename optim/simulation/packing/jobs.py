"""Admission instances from demands that change with the work done."""

from collections.abc import Sequence

import numpy as np

from optim.core.errors import InvalidProblemError
from optim.models.admission.instance import MICRO, AdmissionInstance, Jobs, ServerClasses
from optim.models.admission.utility import ConstantUtility
from optim.models.containers.series import FloatArray, IntArray


def admission_instance(
    name: str,
    demands: Sequence[FloatArray],
    arrival: IntArray,
    capacity: FloatArray,
    num_servers: int,
    horizon: int,
    slot_s: float,
    resources: tuple[str, ...],
) -> AdmissionInstance:
    """Return an instance in which each job is one container that needs one slot of one server for each slot of work.

    A completed job earns its slots of work, so that the objective is the work that is packed. Parameter servers take
    nothing and have a host of their own.

    Parameters
    ----------
    name
        Of the instance.
    demands
        Of each job the demand in each slot of its work, shape (slots, R).
    arrival
        Shape (jobs,): slot of arrival.
    capacity
        Shape (R,): of each server.
    num_servers
        Number of equal servers.
    horizon, slot_s
        Number of slots, and their seconds.
    resources
        R names.

    Raises
    ------
    InvalidProblemError
        If there is no job.
    """
    if not demands:
        raise InvalidProblemError("an instance needs at least one job")
    segments = [_segments(demand) for demand in demands]
    number = len(demands)
    ones = np.ones(number, dtype=np.int64)
    worker = np.concatenate([demand for _, demand in segments])
    return AdmissionInstance(
        name=name,
        horizon=horizon,
        slot_micro_s=round(slot_s * MICRO),
        resources=resources,
        jobs=Jobs(
            ids=tuple(f"job-{k}" for k in range(number)),
            arrival=arrival,
            epochs=np.array([len(demand) for demand in demands], dtype=np.int64),
            chunks=ones,
            minibatches=ones,
            minibatch_micro_s=ones * round(slot_s * MICRO),
            gradient_micro_mb=0 * ones,
            worker_micro_mbps=ones * MICRO,
            ps_micro_mbps=ones * MICRO,
            segment_offset=np.concatenate([[0], np.cumsum([len(start) for start, _ in segments])]).astype(np.int64),
            segment_start=np.concatenate([start for start, _ in segments]),
            worker_demand=worker,
            ps_demand=np.zeros_like(worker),
            utilities=tuple(ConstantUtility(value=float(len(demand))) for demand in demands),
            min_utility=np.full(number, np.nan),
        ),
        worker_servers=_servers("server", capacity, num_servers, horizon),
        ps_servers=_servers("host", np.ones(len(resources)), 1, horizon),
    )


def _segments(demand: FloatArray) -> tuple[IntArray, IntArray]:
    """Return where demands change, and the demands in millionths, rounded up."""
    micro = np.ceil(demand * MICRO - 1e-6).astype(np.int64)
    start = np.flatnonzero(np.concatenate([[True], (np.diff(micro, axis=0) != 0).any(axis=1)]))
    return start, micro[start]


def _servers(name: str, capacity: FloatArray, number: int, horizon: int) -> ServerClasses:
    micro = np.round(capacity * MICRO).astype(np.int64)
    return ServerClasses(
        types=(name,),
        capacity=np.broadcast_to(micro, (1, horizon, len(capacity))).copy(),
        count=np.array([number], dtype=np.int64),
    )

"""When the online algorithm's competitive ratio is proven, and how large it is."""

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from optim.core.errors import InvalidOptionError
from optim.models.admission.instance import AdmissionInstance, IntArray
from optim.models.admission.placements import server_pairs
from optim.models.admission.reach import earliest_completion


def largest_share(instance: AdmissionInstance) -> Fraction:
    """Return eps: the largest share of a row that one job can take in one slot, exactly.

    Only jobs that can complete count, and the slots from their arrival to their deadline.
    """
    jobs = instance.jobs
    is_live = earliest_completion(instance)[instance.segment_job] >= 0
    slots = np.arange(instance.horizon)
    job = instance.segment_job
    in_window = (
        is_live[:, None] & (slots >= jobs.arrival[job][:, None]) & (slots <= instance.deadline[job][:, None])
    )
    if instance.has_shared_servers:
        return _largest_shared(instance, in_window)
    best = Fraction(0)
    for units, demand, servers in (
        (instance.workers_per_server, jobs.worker_demand, instance.worker_servers),
        (instance.ps_per_server, jobs.ps_demand, instance.ps_servers),
    ):
        allowed = units * in_window[:, None, :]
        for r in range(instance.num_resources):
            used = allowed * demand[:, r][:, None, None]
            capacity = np.broadcast_to(servers.capacity[None, :, :, r], used.shape)
            best = max(best, _largest_ratio(used[used > 0], capacity[used > 0]))
    return best


def full_share(instance: AdmissionInstance, eps: float | None) -> float:
    """Return 1 - eps, the share of the capacity at which strict prices reach U.

    Raises
    ------
    InvalidOptionError
        If a job can take a whole server.
    """
    share = float(largest_share(instance)) if eps is None else eps
    if share >= 1:
        raise InvalidOptionError(
            f"strict prices need eps < 1, but in instance {instance.name!r} one job can take a whole server; "
            "cap it by max_share_per_server in the instance, or choose strict=false"
        )
    return 1.0 - share


def _largest_shared(instance: AdmissionInstance, in_window: NDArray[np.bool_]) -> Fraction:
    """Return the largest share over the pairs that one shared server holds."""
    jobs, servers = instance.jobs, instance.worker_servers
    best = Fraction(0)
    for s in np.flatnonzero(in_window.any(axis=1)).tolist():
        slots = np.flatnonzero(in_window[s])
        for c in range(servers.num_classes):
            _, first = np.unique(servers.capacity[c, slots], axis=0, return_index=True)
            for t in slots[first].tolist():
                pairs = np.array(server_pairs(instance, s, c, t), dtype=np.int64)
                used = pairs[:, :1] * jobs.worker_demand[s] + pairs[:, 1:] * jobs.ps_demand[s]
                capacity = np.broadcast_to(servers.capacity[c, t], used.shape)
                best = max(best, _largest_ratio(used[used > 0], capacity[used > 0]))
    return best


def _largest_ratio(used: IntArray, capacity: IntArray) -> Fraction:
    """Return the largest quotient of two arrays of whole numbers, exactly."""
    if not len(used):
        return Fraction(0)
    quotient = used / capacity
    close = quotient >= quotient.max() * (1 - 1e-12)
    pairs = set(zip(used[close].tolist(), capacity[close].tolist(), strict=True))
    return max(Fraction(a, b) for a, b in pairs)

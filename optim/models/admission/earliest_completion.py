"""Earliest completion of each job alone, and the jobs that no plan can admit, with the reason."""

from collections.abc import Iterator, Mapping
from fractions import Fraction

import numpy as np

from optim.core.arrays import IntArray
from optim.models.admission.data import MICRO, AdmissionData, ServerClasses

NOTHING_FITS = -(2**40)
"""Table entry for numbers of workers that do not fit even without PSs; sums of such entries fit 64 bits."""


def earliest_completion(instance: AdmissionData) -> IntArray:
    """Return the completion slot of each job if it runs alone on the cluster from its arrival.

    Without demand segments, the largest possible number of workers in every slot is optimal. With segments a
    smaller number may be better, because demands may rise with progress. The function therefore computes the
    set of all reachable progress before each slot.

    Parameters
    ----------
    instance
        Any instance, also with segments, shared servers, caps and integral chunks.

    Returns
    -------
    IntArray
        Shape (jobs,): the earliest completion slot, -1 if the job cannot complete or would earn nothing.
    """
    most = max_workers(instance)
    result = np.full(instance.num_jobs, -1, dtype=np.int64)
    for i in range(instance.num_jobs):
        first, last = int(instance.jobs.arrival[i]), int(instance.deadline[i])
        segments = slice(int(instance.jobs.segment_offset[i]), int(instance.jobs.segment_offset[i + 1]))
        if last < first:
            continue
        table, limits = instance.progress[i], most[segments, first : last + 1]
        starts, target = instance.jobs.segment_start[segments].tolist(), int(instance.target[i])
        if len(starts) == 1:
            slots = _slots_at_full_speed(table[limits[0]], target)
        elif instance.has_steps:
            slots = _slots_by_jumps(table, limits, starts, target)
        else:
            slots = _slots_by_steps(limits, starts, target)
        if slots is not None and instance.value[i, first + slots - 1] > 0:
            result[i] = first + slots - 1
    return result


def max_workers(instance: AdmissionData) -> IntArray:
    """Return, for each demand segment, the maximum number of workers that fit the empty cluster with their PSs.

    Returns
    -------
    IntArray
        Shape (segments, slots).
    """
    if instance.has_shared_servers:
        return _max_workers_shared(instance)
    workers = np.einsum("sct,c->st", instance.workers_per_server, instance.worker_servers.count)
    ps = np.einsum("sct,c->st", instance.ps_per_server, instance.ps_servers.count)
    result: IntArray = np.minimum(workers, instance.max_workers[instance.segment_job][:, None])
    for segment, i in enumerate(instance.segment_job.tolist()):
        served = np.searchsorted(instance.ps_needed[i], ps[segment], side="right") - 1
        np.minimum(result[segment], served, out=result[segment])
    return result


def max_ps_beside(
    demand: tuple[tuple[int, ...], tuple[int, ...]],
    capacity: tuple[int, ...],
    share: Fraction | None,
    most: tuple[int, int],
) -> IntArray:
    """Return the maximum numbers of a job's PSs that fit ONE shared server with Y = 0, 1, ... of its workers.

    Parameters
    ----------
    demand
        Demand of a worker and demand of a PS, each over the resources, in 1e-6 units.
    capacity
        The server's capacity over the resources, in 1e-6 units.
    share
        Cap on the job's share of the server (None: no cap); a single worker or a single PS may exceed it.
    most
        Largest relevant numbers of workers and of PSs.

    Returns
    -------
    IntArray
        Shape (``most[0]`` + 1,), at most ``most[1]`` each; `NOTHING_FITS` where the workers do not fit.
    """
    result = _max_ps(demand, capacity, most)
    if share is None:
        return result
    part = tuple(share.numerator * limit // share.denominator for limit in capacity)
    capped = _max_ps(demand, part, most)
    capped[0] = max(capped[0], min(result[0], 1))
    if most[0] > 0 and result[1] >= 0:
        capped[1] = max(capped[1], 0)
    return capped


def _max_ps(
    demand: tuple[tuple[int, ...], tuple[int, ...]], capacity: tuple[int, ...], most: tuple[int, int]
) -> IntArray:
    """Return for each number of workers the maximum number of PSs that fit `capacity` together with these workers."""
    result = np.full(most[0] + 1, most[1], dtype=np.int64)
    for worker, ps, limit in zip(*demand, capacity, strict=True):
        rest = limit - worker * np.arange(most[0] + 1, dtype=np.int64)
        if ps > 0:
            np.minimum(result, rest // ps, out=result)
        result[rest < 0] = NOTHING_FITS
    return result


def _max_workers_shared(instance: AdmissionData) -> IntArray:
    servers, jobs = instance.worker_servers, instance.jobs
    result = np.zeros((len(instance.segment_job), instance.horizon), dtype=np.int64)
    if not servers.num_classes:
        return result
    rows, row_of_slot = np.unique(
        servers.capacity.transpose(1, 0, 2).reshape(instance.horizon, -1), axis=0, return_inverse=True
    )
    capacity = rows.reshape(-1, servers.num_classes, instance.num_resources).tolist()
    for segment, i in enumerate(instance.segment_job.tolist()):
        needed = instance.ps_needed[i]
        most = (len(needed) - 1, int(needed[-1]))
        demand = (tuple(jobs.worker_demand[segment].tolist()), tuple(jobs.ps_demand[segment].tolist()))
        best = np.zeros(len(capacity), dtype=np.int64)
        for kind, classes in enumerate(capacity):
            total = np.full(most[0] + 1, NOTHING_FITS, dtype=np.int64)
            total[0] = 0
            for class_capacity, count in zip(classes, servers.count.tolist(), strict=True):
                one = max_ps_beside(demand, tuple(class_capacity), instance.max_share_per_server, most)
                for power in _powers(one, count, most[1]):
                    total = _together(total, power, most[1])
            best[kind] = np.flatnonzero(total >= needed)[-1]
        result[segment] = best[row_of_slot.ravel()]
    return result


def _powers(one: IntArray, count: int, most: int) -> Iterator[IntArray]:
    """Yield the tables of groups of 1, 2, 4, ... equal servers that together have `count` servers."""
    power = one
    while count:
        if count & 1:
            yield power
        count >>= 1
        if count:
            power = _together(power, power, most)


def _together(a: IntArray, b: IntArray, most: int) -> IntArray:
    """Combine the tables of two groups of servers: ``max over y of a[Y - y] + b[y]`` for every Y."""
    size = len(a)
    padded = np.concatenate([np.full(size - 1, NOTHING_FITS, dtype=np.int64), a])
    windows = np.lib.stride_tricks.sliding_window_view(padded, size)
    total = (windows + b[::-1]).max(axis=1)
    total[total < 0] = NOTHING_FITS
    result: IntArray = np.minimum(total, most)
    return result


def _slots_at_full_speed(progress: IntArray, target: int) -> int | None:
    """Return the number of slots in which the progress adds up to the target, None if it never does."""
    done = 0
    for k, amount in enumerate(progress.tolist()):
        done += amount
        if done >= target:
            return k + 1
    return None


def _slots_by_steps(limits: IntArray, starts: list[int], target: int) -> int | None:
    """Return the number of slots needed if any number of worker-slots up to the limit is possible.

    The reachable progress is then 0, ..., `max_progress`.
    """
    max_progress = 0
    ends = [*starts[1:], target]
    for k in range(limits.shape[1]):
        max_progress = max(
            min(max_progress, end - 1) + most
            for start, end, most in zip(starts, ends, limits[:, k].tolist(), strict=True)
            if start <= min(max_progress, target - 1)
        )
        if max_progress >= target:
            return k + 1
    return None


def _slots_by_jumps(table: IntArray, limits: IntArray, starts: list[int], target: int) -> int | None:
    """Return the number of slots needed if progress comes in jumps; bit d of `reached` is 1 if progress d is reachable."""
    reached = 1
    jumps = np.unique(table).tolist()
    all_states = (1 << target) - 1
    ranges = [
        (1 << end) - (1 << start) for start, end in zip(starts, [*starts[1:], max(target, starts[-1])], strict=True)
    ]
    for k in range(limits.shape[1]):
        following = 0
        for mask, most in zip(ranges, limits[:, k].tolist(), strict=True):
            source = reached & mask & all_states
            for jump in jumps:
                if not source or jump > table[most]:
                    break
                if jump >= target or (source << jump) >> target:
                    return k + 1
                following |= source << jump
        reached = following
    return None


def never_run(instance: AdmissionData, earliest: IntArray) -> Mapping[str, str]:
    """Return why no plan can admit the jobs with earliest completion -1, by id, in the order of the jobs."""
    jobs = np.flatnonzero(earliest < 0).tolist()
    most = max_workers(instance) if jobs else np.zeros((0, 0), dtype=np.int64)
    return {instance.jobs.ids[job]: _reason(instance, job, most) for job in jobs}


def _reason(instance: AdmissionData, job: int, most: IntArray) -> str:
    first, last = int(instance.jobs.arrival[job]), int(instance.deadline[job])
    if last < first:
        return "earns nothing in any slot from its arrival on"
    slots = slice(first, last + 1)
    begin, end = instance.jobs.segment_offset[job : job + 2].tolist()
    hosts = "shared server" if instance.has_shared_servers else "worker server"
    for segment in range(begin, end):
        demand = instance.jobs.worker_demand[segment]
        if not instance.workers_per_server[segment, :, slots].any():
            return f"has workers that fit no {hosts}{_lacking(instance, demand, instance.worker_servers, slots)}"
        demand = instance.jobs.ps_demand[segment]
        if not instance.ps_per_server[segment, :, slots].any():
            hosts = hosts if instance.has_shared_servers else "host of parameter servers"
            return (
                f"needs parameter servers that fit no {hosts}{_lacking(instance, demand, instance.ps_servers, slots)}"
            )
        if not most[segment, slots].any():
            return "has no slot in which workers and the parameter servers that they need fit together"
    if end - begin > 1:
        return f"cannot complete alone by slot {last}, after which it earns nothing"
    possible = int(instance.progress[job][most[begin, slots]].sum())
    return (
        f"cannot complete alone by slot {last}, after which it earns nothing: "
        f"at most {possible / int(instance.target[job]):.0%} of its work fits from slot {first} on"
    )


def _lacking(instance: AdmissionData, demand: IntArray, servers: ServerClasses, slots: slice) -> str:
    """Describe the resources whose demand exceeds the capacity of every server."""
    max_capacity = servers.capacity[:, slots].max(axis=(0, 1), initial=0)
    short = [
        f"{name}: {need / MICRO:g} needed, at most {have / MICRO:g} per server"
        for name, need, have in zip(instance.resources, demand.tolist(), max_capacity.tolist(), strict=True)
        if need > have
    ]
    return f" ({', '.join(short)})" if short else " in all resources at once"

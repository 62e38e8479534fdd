"""What shared servers hold of a job, as frontiers of (workers, PSs), and the arrays of the loops on them."""

from typing import NamedTuple

import numpy as np

from optim.core.by_reference import by_reference
from optim.models.admission.instance import AdmissionInstance, FloatArray, IntArray


@by_reference
class ClassRoom(NamedTuple):
    """Frontiers by job segment and capacity pattern, over whole classes.

    Parameters
    ----------
    pattern
        Shape (classes, slots): number of the (class, capacity) that holds there.
    start
        Shape (segments, patterns): where a frontier begins in `front`, -1 where it is never needed.
    front
        Frontiers one after the other: most PSs beside 0, ..., most workers of the job in the class,
        negative where the workers don't fit.
    """

    pattern: IntArray
    start: IntArray
    front: IntArray


@by_reference
class Places(NamedTuple):
    """Places as the recursion meets them.

    Parameters
    ----------
    worker_cost, ps_cost
        Cost of one worker and of one PS on each place.
    start
        Where a place's frontier begins in `front`.
    front
        Frontiers one after the other: most PSs beside 0, 1, ... workers, negative where the workers
        don't fit themselves.
    """

    worker_cost: FloatArray
    ps_cost: FloatArray
    start: IntArray
    front: IntArray


@by_reference
class PairScratch(NamedTuple):
    """Work space: two tables by (PSs, workers), and windows by (level, workers)."""

    tables: FloatArray
    windows: FloatArray


@by_reference
class GreedyScratch(NamedTuple):
    """Work space, one entry a place: orders by cost of a worker and of a PS, most workers alone, units put so far."""

    order: IntArray
    ps_order: IntArray
    limit: IntArray
    workers: IntArray
    ps: IntArray


@by_reference
class SharedClasses(NamedTuple):
    """Classes of shared servers while they are empty, as `ClassRoom` holds them, and work space."""

    room: ClassRoom
    places: Places
    scratch: PairScratch
    greedy: GreedyScratch


def shared_classes(room: ClassRoom, most_workers: int, most_ps: int) -> SharedClasses:
    """Return the classes with work space for so many workers and PSs."""
    num = len(room.pattern)
    places = Places(np.empty(num), np.empty(num), np.empty(num, dtype=np.int64), room.front)
    greedy = GreedyScratch(*(np.empty(num, dtype=np.int64) for _ in range(5)))
    return SharedClasses(room, places, pair_scratch(most_workers, most_ps), greedy)


def pair_scratch(most_workers: int, most_ps: int) -> PairScratch:
    """Return work space for so many workers and PSs."""
    levels = max(1, (most_workers + 1).bit_length())
    return PairScratch(np.empty((2, most_ps + 1, most_workers + 1)), np.empty((levels, most_workers + 1)))


def class_room(instance: AdmissionInstance) -> ClassRoom:
    """Work out the frontiers of all classes in all slots between each job's arrival and deadline.

    Notes
    -----
    Per frontier O(N^2 log count) for N workers at most; memory N numbers each.
    """
    pattern, capacity, count = _patterns(instance)
    wanted = [(s, p) for s, i in enumerate(instance.segment_job.tolist()) for p in _patterns_met(instance, i, pattern)]
    most = instance.max_workers[instance.segment_job]
    start = np.full((len(most), len(count)), -1, dtype=np.int64)
    sizes = np.array([most[s] + 1 for s, _ in wanted], dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    for (s, p), offset in zip(wanted, offsets.tolist(), strict=False):
        start[s, p] = offset
    front = np.full(int(offsets[-1]), -1, dtype=np.int64)
    _fill(instance, start, capacity, count, front)
    return ClassRoom(pattern=pattern, start=start, front=front)


def share_limit(instance: AdmissionInstance, capacity: IntArray) -> IntArray:
    """Return what one job may use of servers of such capacities, exactly: floor(share * capacity)."""
    share = instance.max_share_per_server
    if share is None:
        return capacity
    flat = [quantity * share.numerator // share.denominator for quantity in capacity.ravel().tolist()]
    return np.array(flat, dtype=np.int64).reshape(capacity.shape)


def _patterns(instance: AdmissionInstance) -> tuple[IntArray, IntArray, IntArray]:
    """Return the number of the capacity that each class has in each slot, the capacities, and servers of each."""
    servers = instance.worker_servers
    pattern = np.zeros(servers.capacity.shape[:2], dtype=np.int64)
    capacity: list[list[int]] = []
    count: list[int] = []
    for c in range(servers.num_classes):
        rows, number = np.unique(servers.capacity[c], axis=0, return_inverse=True)
        pattern[c] = len(count) + number.ravel()
        capacity += rows.tolist()
        count += [int(servers.count[c])] * len(rows)
    shape = (len(count), instance.num_resources)
    return pattern, np.array(capacity, dtype=np.int64).reshape(shape), np.array(count, dtype=np.int64)


def _patterns_met(instance: AdmissionInstance, job: int, pattern: IntArray) -> list[int]:
    window = slice(int(instance.jobs.arrival[job]), int(instance.deadline[job]) + 1)
    met: list[int] = np.unique(pattern[:, window]).tolist()
    return met


def _fill(instance: AdmissionInstance, start: IntArray, capacity: IntArray, count: IntArray, front: IntArray) -> None:
    """Fill in every wanted frontier."""
    from optim.solvers.admission.pricing.shared_slot import fill_frontiers

    jobs, job = instance.jobs, instance.segment_job
    most_ps = np.array([table[-1] for table in instance.ps_needed], dtype=np.int64)[job]
    fill_frontiers(
        jobs.worker_demand.astype(np.float64),
        jobs.ps_demand.astype(np.float64),
        share_limit(instance, capacity).astype(np.float64),
        capacity.astype(np.float64),
        count,
        instance.max_workers[job],
        most_ps,
        start,
        front,
    )

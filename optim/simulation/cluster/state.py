"""What the compiled loop of a cluster works on: fixed arrays, one entry a job, machine or place."""

from typing import NamedTuple

import numpy as np

from optim.core.by_reference import by_reference
from optim.models.cluster.retries import tries_of
from optim.models.cluster.rules import Rules
from optim.models.cluster.workload import Workload
from optim.models.cluster.world import Cluster, IntArray
from optim.simulation.cluster.index_policy import IndexPolicy, lots
from optim.simulation.cluster.options import EngineOptions, Placement
from optim.simulation.cluster.planning.fragmentation import gang_growth

NEVER = 2**62
NOWHERE = -1

NOT_COME, WAITING, RUNNING, OVER, HELD_BACK = 0, 1, 2, 3, 4
"""States of a job."""

NUM_SCALARS = 15
NOW, ARRIVED, ENDS, CROSSINGS, RUNNING_JOBS, FREE_PLACES, FREE_GPUS, *_REST = range(NUM_SCALARS)
EVENTS, PLACES, IS_OVER, VICTIMS, RANKED, OUTAGES, FAILURES, TURNS = _REST
"""Entries of `State.scalar`; `OUTAGES` and `FAILURES` count outages played of those that are known, and failures (with stops, where these undo work) that brought nobody an end."""


@by_reference
class Setup(NamedTuple):
    """What doesn't change in a run. Times are microseconds; shapes (jobs,), (machines,) or those of the policy."""

    submit: IntArray
    width: IntArray
    duration: IntArray
    slowdown: IntArray
    size: IntArray
    rack: IntArray
    by_size: IntArray
    width_class: IntArray
    key: int
    tie: int
    preempts: int
    quantum: int
    has_backfill: bool
    takes_first: bool
    level_order: IntArray
    may_spread: bool
    overhead: int
    rank: IntArray
    threshold: IntArray
    threshold_rank: IntArray
    crossing: IntArray
    checkpoint: int
    preempt_checkpoint: int
    outage_time: IntArray
    outage_machine: IntArray
    outage_fails: IntArray
    tries: IntArray
    fails: IntArray
    good: IntArray
    last_try: IntArray
    retry_wait: int


@by_reference
class State(NamedTuple):
    """What a run changes.

    Parameters
    ----------
    scalar
        Single numbers by the names above.
    status, version, first_start, run_since, factor
        A job's state, how often it was started or stopped, when it first started, since when it makes progress, and its
        slowdown where it runs.
    executed, served, overhead, lost
        Time with GPUs in progress, work done, time with GPUs lost to restarts, and work lost to failures, up to the last stop.
    key_1, key_2
        Key of a job while it waits, smaller first.
    heap, heap_first, heap_size
        A heap of waiting jobs for each width.
    end_time, end_job, end_version
        A heap of ends; entries of other versions than their job's are void. `crossing_*` likewise, and `turn_*`: when tries
        fail, and when jobs that are held back after one may start again.
    tried, try_base
        Tries that failed, and the time with GPUs in progress before the present one.
    running, slot
        Running jobs, and where each stands in that list.
    head, next_place, place_machine, place_gpus, spare
        Places of running jobs as linked lists, and places that aren't used.
    free, num_with_free
        Free GPUs of each machine, and how many machines have 0, 1, ... of them.
    victim_1, victim_2, victim, available
        Scratch of preemption.
    """

    scalar: IntArray
    status: IntArray
    version: IntArray
    first_start: IntArray
    run_since: IntArray
    factor: IntArray
    executed: IntArray
    served: IntArray
    overhead: IntArray
    lost: IntArray
    key_1: IntArray
    key_2: IntArray
    heap: IntArray
    heap_first: IntArray
    heap_size: IntArray
    end_time: IntArray
    end_job: IntArray
    end_version: IntArray
    crossing_time: IntArray
    crossing_job: IntArray
    crossing_version: IntArray
    turn_time: IntArray
    turn_job: IntArray
    turn_version: IntArray
    tried: IntArray
    try_base: IntArray
    running: IntArray
    slot: IntArray
    head: IntArray
    next_place: IntArray
    place_machine: IntArray
    place_gpus: IntArray
    spare: IntArray
    free: IntArray
    num_with_free: IntArray
    victim_1: IntArray
    victim_2: IntArray
    victim: IntArray
    available: IntArray
    marked: IntArray


@by_reference
class Buffer(NamedTuple):
    """Events that wait to be fetched; the log is their concatenation."""

    time: IntArray
    kind: IntArray
    job: IntArray
    first: IntArray
    machine: IntArray
    gpus: IntArray


def make_setup(jobs: Workload, cluster: Cluster, policy: IndexPolicy, options: EngineOptions, seed: int) -> Setup:
    """Return what the loop reads."""
    _, width_class = np.unique(jobs.gpus, return_inverse=True)
    tries = tries_of(jobs, options.on_failures(Rules()))
    rank = lots(seed, len(jobs)) if policy.draws_rank else np.zeros(len(jobs))
    return Setup(
        submit=jobs.submit_us,
        width=jobs.gpus,
        duration=jobs.duration_us,
        slowdown=jobs.slowdown_ppm,
        size=cluster.gpus,
        rack=cluster.rack,
        by_size=np.lexsort((np.arange(cluster.num_machines), -cluster.gpus)).astype(np.int64),
        width_class=width_class.astype(np.int64),
        key=int(policy.key),
        tie=int(policy.tie),
        preempts=int(policy.preempts),
        quantum=policy.quantum_us,
        has_backfill=policy.backfill,
        takes_first=options.placement is Placement.FIRST_FIT,
        level_order=level_order(options.placement, jobs.gpus, int(cluster.gpus.max())),
        may_spread=options.spread,
        overhead=options.overhead_us,
        rank=rank.astype(np.int64),
        threshold=np.asarray(policy.thresholds, np.int64),
        threshold_rank=np.asarray(policy.ranks or (0,), np.int64),
        crossing=np.asarray(policy.crossings, np.int64),
        checkpoint=options.checkpoint_us,
        preempt_checkpoint=options.preempt_checkpoint_us,
        tries=tries.failing.astype(np.int64),
        fails=tries.fails.astype(np.int64),
        good=tries.good.astype(np.int64),
        last_try=tries.last.astype(np.int64),
        retry_wait=options.on_failures(Rules()).retry_wait_us,
        **dict.fromkeys(("outage_time", "outage_machine", "outage_fails"), np.zeros(0, np.int64)),
    )


def level_order(placement: Placement, gangs: IntArray, largest: int) -> IntArray:
    """Return which numbers of free GPUs a gang prefers of a machine, for each gang; `NOWHERE` behind the last.

    Shape (largest + 1, largest + 1).
    """
    order = np.full((largest + 1, largest + 1), NOWHERE, np.int64)
    growth = gang_growth(gangs, largest)
    for width in range(1, largest + 1):
        levels = np.arange(width, largest + 1)
        if placement is Placement.WORST_FIT:
            levels = levels[::-1]
        elif placement is Placement.FGD:
            levels = levels[np.argsort(growth[levels, width], kind="stable")]
        order[width, : len(levels)] = levels
    return order


def make_state(setup: Setup, cluster: Cluster) -> State:
    """Return the state before the first submission."""
    jobs, machines, gpus = len(setup.submit), cluster.num_machines, cluster.num_gpus
    sizes = np.bincount(setup.width_class)
    per_job = {
        name: np.zeros(jobs, np.int64)
        for name in (
            "status",
            "version",
            "run_since",
            "executed",
            "served",
            "overhead",
            "lost",
            "key_1",
            "key_2",
            "heap",
            "slot",
            "tried",
            "try_base",
        )
    }
    entries = 2 * gpus + 16
    heaps = {
        f"{name}_{part}": np.zeros(entries, np.int64)
        for name in ("end", "crossing")
        for part in ("time", "job", "version")
    }
    turns = entries + int((setup.tries > 0).sum())  # whoever runs, and whoever is held back
    heaps |= {f"turn_{part}": np.zeros(turns, np.int64) for part in ("time", "job", "version")}
    scratch = {name: np.zeros(gpus, np.int64) for name in ("victim_1", "victim_2", "victim", "running")}
    places = {name: np.zeros(gpus, np.int64) for name in ("next_place", "place_machine", "place_gpus")}
    scalar = np.zeros(NUM_SCALARS, np.int64)
    scalar[FREE_PLACES] = scalar[FREE_GPUS] = gpus
    return State(
        scalar=scalar,
        first_start=np.full(jobs, NEVER),
        factor=np.full(jobs, 1_000_000),
        head=np.full(jobs, NOWHERE),
        heap_first=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        heap_size=np.zeros(len(sizes), np.int64),
        spare=np.arange(gpus),
        free=cluster.gpus.copy(),
        num_with_free=np.bincount(cluster.gpus, minlength=int(cluster.gpus.max()) + 1).astype(np.int64),
        available=np.zeros(machines, np.int64),
        marked=np.zeros(jobs, np.int64),
        **per_job,
        **heaps,
        **scratch,
        **places,
    )


def make_buffer(events: int, places: int) -> Buffer:
    """Return an empty buffer."""
    return Buffer(
        time=np.zeros(events, np.int64),
        kind=np.zeros(events, np.int64),
        job=np.zeros(events, np.int64),
        first=np.zeros(events + 1, np.int64),
        machine=np.zeros(places, np.int64),
        gpus=np.zeros(places, np.int64),
    )

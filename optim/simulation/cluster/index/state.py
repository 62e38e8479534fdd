"""What the compiled loop of index policies works on: state arrays, and placement of gangs."""

from typing import NamedTuple

import numpy as np

from optim.compiled import by_reference, inner
from optim.core.arrays import IntArray
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.rules import Rules, tries_of
from optim.models.cluster.workload import Workload
from optim.simulation.cluster.index.policy import IndexPolicy, random_priorities
from optim.simulation.cluster.options import EngineOptions, Placement
from optim.simulation.cluster.planning.free_gpus import gang_growth

NEVER = 2**62

NONE = -1

NOT_COME, WAITING, RUNNING, OVER, BACKOFF = 0, 1, 2, 3, 4
"""States of a job."""

NUM_SCALARS = 15

NOW, ARRIVED, ENDS, DEMOTIONS, RUNNING_JOBS, FREE_PLACES, FREE_GPUS, *_REST = range(NUM_SCALARS)

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
    demotion_threshold: IntArray
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
        A heap of ends; entries of other versions than their job's are void. `demotion_*` likewise, and `turn_*`: when tries
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
    demotion_time: IntArray
    demotion_job: IntArray
    demotion_version: IntArray
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
    rank = random_priorities(seed, len(jobs)) if policy.draws_rank else np.zeros(len(jobs))
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
        demotion_threshold=np.asarray(policy.demotion_thresholds, np.int64),
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
    order = np.full((largest + 1, largest + 1), NONE, np.int64)
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
        for name in ("end", "demotion")
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
        head=np.full(jobs, NONE),
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


@inner
def _level_with_room(num_with_free, width):
    """Return the least number of free GPUs of a machine that holds a gang, `NOWHERE` if there is no such machine."""
    for free in range(width, len(num_with_free)):
        if num_with_free[free] > 0:
            return free
    return NONE


@inner
def has_room(u, s, width):
    """Tell whether a gang finds a place now."""
    if width > s.scalar[FREE_GPUS]:
        return False
    if u.may_spread:
        return True
    largest = len(s.num_with_free) - 1
    if width <= largest:
        return _level_with_room(s.num_with_free, width) != NONE
    whole = 0
    for machine in range(len(u.size)):
        if s.free[machine] == u.size[machine]:
            whole += u.size[machine]
            if whole >= width:
                return True
    return False


@inner
def set_free(s, machine, free):
    """Let a machine have so many free GPUs."""
    s.num_with_free[s.free[machine]] -= 1
    s.num_with_free[free] += 1
    s.scalar[FREE_GPUS] += free - s.free[machine]
    s.free[machine] = free


@inner
def take(s, job, machine, gpus):
    """Give a job GPUs of a machine."""
    s.scalar[FREE_PLACES] -= 1
    place = s.spare[s.scalar[FREE_PLACES]]
    s.place_machine[place] = machine
    s.place_gpus[place] = gpus
    s.next_place[place] = s.head[job]
    s.head[job] = place
    set_free(s, machine, s.free[machine] - gpus)


@inner
def give_back(s, job):
    """Take all GPUs of a job back."""
    place = s.head[job]
    while place != NONE:
        machine = s.place_machine[place]
        set_free(s, machine, s.free[machine] + s.place_gpus[place])
        s.spare[s.scalar[FREE_PLACES]] = place
        s.scalar[FREE_PLACES] += 1
        place = s.next_place[place]
    s.head[job] = NONE


@inner
def gpus_on(s, job, machine):
    """Return how many GPUs of a machine a running job has."""
    place = s.head[job]
    while place != NONE:
        if s.place_machine[place] == machine:
            return s.place_gpus[place]
        place = s.next_place[place]
    return 0


@inner
def _one_machine(u, s, width):
    """Return the machine that the rule gives a gang which one machine can hold."""
    if u.takes_first:
        for machine in range(len(u.size)):
            if s.free[machine] >= width:
                return machine
        return NONE
    for nth in range(u.level_order.shape[1]):
        level = u.level_order[width, nth]
        if level == NONE:
            return NONE
        if s.num_with_free[level] > 0:
            for machine in range(len(u.size)):
                if s.free[machine] == level:
                    return machine
    return NONE


@inner
def place(u, s, job):
    """Give a gang its GPUs; there must be room. Gangs wider than a machine take wholly free ones, largest first."""
    left = u.width[job]
    if left <= len(s.num_with_free) - 1:
        machine = _one_machine(u, s, left)
        if machine != NONE:
            take(s, job, machine, left)
            return
    else:
        whole = 0
        for machine in range(len(u.size)):
            if s.free[machine] == u.size[machine]:
                whole += u.size[machine]
        if whole >= left:
            for at in range(len(u.by_size)):
                machine = u.by_size[at]
                if s.free[machine] == u.size[machine]:
                    gpus = min(left, u.size[machine])
                    take(s, job, machine, gpus)
                    left -= gpus
                    if left == 0:
                        return
    while left > 0:  # spread: the machine with the most free GPUs next
        most = 0
        for machine in range(1, len(u.size)):
            if s.free[machine] > s.free[most]:
                most = machine
        gpus = min(left, s.free[most])
        take(s, job, most, gpus)
        left -= gpus


@inner
def slowdown(u, s, job):
    """Return the slowdown of a job where it is placed, by the smallest part that holds all of its GPUs."""
    first = s.head[job]
    level = 0
    other = s.next_place[first]
    while other != NONE:
        level = max(level, 1)
        if u.rack[s.place_machine[other]] != u.rack[s.place_machine[first]]:
            level = 2
        other = s.next_place[other]
    return u.slowdown[job, level]

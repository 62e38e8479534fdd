"""The compiled loop of index policies: state, placement, keys, victims, queues, and order of events.

`optim.simulation.cluster.index.policy.IndexPolicy` and docs/explanation/cluster-rules.md describe the rules.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from optim.compiled import by_reference, compiled
from optim.core.arrays import IntArray
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import NO_JOB, Event, EventLog, Run
from optim.models.cluster.present import Present
from optim.models.cluster.rules import Rules, tries_of
from optim.models.cluster.waiting import last_times
from optim.models.cluster.workload import PPM, Workload
from optim.simulation.cluster.index.policy import IndexPolicy, Key, Preempts, Tie, promises, random_priorities
from optim.simulation.cluster.options import (
    BY_FAILURES,
    BY_MACHINES,
    BY_STOPS,
    HALTS,
    KNOWN_OUTAGES,
    LOGGED,
    MAX_FAILURES,
    MAX_IDLE_CALLS,
    MAX_STALLED,
    STEPS,
    EngineOptions,
    OutageFeed,
    Placement,
)
from optim.simulation.cluster.planning.free_gpus import gang_growth

if TYPE_CHECKING:
    from optim.simulation.cluster.index.priorities import Priorities
    from optim.simulation.cluster.index.reservations import Book

NEVER = 2**62

NONE = -1

STEPS_BETWEEN_LOOKS = 256
"""Number of instants simulated between two checks of whether the awaited jobs have started."""

NOT_COME, WAITING, RUNNING, OVER, BACKOFF = 0, 1, 2, 3, 4
"""States of a job."""

NUM_SCALARS = 17

NOW, ARRIVED, ENDS, DEMOTIONS, RUNNING_JOBS, FREE_PLACES, FREE_GPUS, *_REST = range(NUM_SCALARS)

EVENTS, PLACES, IS_OVER, VICTIMS, RANKED, OUTAGES, FAILURES, TURNS, STALLED, IDLE = _REST
"""Positions in `State.scalar`.

`OUTAGES` counts the known outages that have been processed, and `FAILURES` the failures since a job last ended. `STALLED`
counts stops that undid all work since the previous stop, while no job ended, was submitted or saved work. `IDLE` counts
consecutive instants without a running job although all machines that will return are up. `IS_OVER` is 0 during the run and 1
after a complete run; otherwise it is the index in `HALTS` of the reason for unfinished jobs.
"""


@by_reference
class Setup(NamedTuple):
    """Constants of a run, with times in microseconds: arrays per job, arrays per machine, options, and tables of the policy."""

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
    startup: int
    rank: IntArray
    threshold: IntArray
    threshold_rank: IntArray
    demotion_threshold: IntArray
    checkpoint: int
    preempt_checkpoint: int
    outage: IntArray
    gone_from: IntArray
    tries: IntArray
    fails: IntArray
    good: IntArray
    last_try: IntArray
    retry_wait: int


@by_reference
class State(NamedTuple):
    """Variables of a run.

    Parameters
    ----------
    scalar
        Single numbers; the positions are named above, from `NOW` to `IDLE`.
    status, version, first_start, stopped, run_since, factor
        For each job: its state, its number of starts and stops, its first start (`NEVER` if none), its last stop (-1 if
        none), the time since which it makes progress, and its slowdown on its present GPUs; shape (jobs,) each.
    executed, served, overhead, lost
        For each job, up to its last stop: time of progress with GPUs, work done, time with GPUs but without progress at
        starts, and work lost to preemptions, machine failures and failed attempts; shape (jobs,) each.
    key_1, key_2
        Key and tie-breaker of each waiting job, smaller first; shape (jobs,) each.
    heap, heap_first, heap_size
        Heaps of waiting jobs, one per width: their entries, and the first position and the size of each heap.
    ends, demotions, turns
        Heap of the ends of jobs, heap of the times at which jobs reach their next threshold, and heap of failing attempts and
        ends of back-off. The columns are `WHEN`, `WHO` and `VERSION`.
    tried, try_base
        For each job: number of failed attempts, and time of progress with GPUs before the present attempt.
    running, slot
        Running jobs, and the position of each job in that list.
    head, next_place, place_machine, place_gpus, spare
        Allocations of running jobs as linked lists, and a list of unused nodes. `head` has the first node of each job;
        a node has its successor, a machine and a number of GPUs.
    free, num_with_free
        Free GPUs of each machine, and number of machines with 0, 1, ... free GPUs.
    victim_1, victim_2, victim, available, marked
        Scratch memory of preemption.
    """

    scalar: IntArray
    status: IntArray
    version: IntArray
    first_start: IntArray
    stopped: IntArray
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
    ends: IntArray
    demotions: IntArray
    turns: IntArray
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
    """Events since the last fetch; the log is the concatenation of all fetched events."""

    time: IntArray
    kind: IntArray
    job: IntArray
    first: IntArray
    machine: IntArray
    gpus: IntArray


def make_setup(jobs: Workload, cluster: Cluster, policy: IndexPolicy, options: EngineOptions, seed: int) -> Setup:
    """Return the constants of the loop."""
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
        startup=options.startup_us,
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
        outage=np.zeros((0, 3), np.int64),
        gone_from=options.gone_from(cluster),
    )


def level_order(placement: Placement, gangs: IntArray, largest: int) -> IntArray:
    """Return, for each size of gang, the numbers of free GPUs of suitable machines in order of preference, then `NONE`.

    The result has shape (largest + 1, largest + 1).
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
    turns = entries + int((setup.tries > 0).sum())  # one entry for each running job, and for each job in back-off
    scratch = {name: np.zeros(gpus, np.int64) for name in ("victim_1", "victim_2", "victim", "running")}
    places = {name: np.zeros(gpus, np.int64) for name in ("next_place", "place_machine", "place_gpus")}
    scalar = np.zeros(NUM_SCALARS, np.int64)
    scalar[FREE_PLACES] = scalar[FREE_GPUS] = gpus
    return State(
        scalar=scalar,
        first_start=np.full(jobs, NEVER),
        stopped=np.full(jobs, NONE),
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
        ends=np.zeros((entries, 3), np.int64),
        demotions=np.zeros((entries, 3), np.int64),
        turns=np.zeros((turns, 3), np.int64),
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


@compiled
def _level_with_room(num_with_free, width):
    """Return the lowest number of free GPUs of a machine that can hold a gang, or `NONE`."""
    for free in range(width, len(num_with_free)):
        if num_with_free[free] > 0:
            return free
    return NONE


@compiled
def has_room(u, s, width):
    """Return whether a gang fits now, by the placement rule."""
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


@compiled
def set_free(s, machine, free):
    """Set the number of free GPUs of a machine."""
    s.num_with_free[s.free[machine]] -= 1
    s.num_with_free[free] += 1
    s.scalar[FREE_GPUS] += free - s.free[machine]
    s.free[machine] = free


@compiled
def take(s, job, machine, gpus):
    """Give a job GPUs of a machine."""
    s.scalar[FREE_PLACES] -= 1
    place = s.spare[s.scalar[FREE_PLACES]]
    s.place_machine[place] = machine
    s.place_gpus[place] = gpus
    s.next_place[place] = s.head[job]
    s.head[job] = place
    set_free(s, machine, s.free[machine] - gpus)


@compiled
def give_back(s, job):
    """Release all GPUs of a job."""
    place = s.head[job]
    while place != NONE:
        machine = s.place_machine[place]
        set_free(s, machine, s.free[machine] + s.place_gpus[place])
        s.spare[s.scalar[FREE_PLACES]] = place
        s.scalar[FREE_PLACES] += 1
        place = s.next_place[place]
    s.head[job] = NONE


@compiled
def gpus_on(s, job, machine):
    """Return the number of GPUs that a running job has on a machine."""
    place = s.head[job]
    while place != NONE:
        if s.place_machine[place] == machine:
            return s.place_gpus[place]
        place = s.next_place[place]
    return 0


@compiled
def _one_machine(u, s, width):
    """Return the machine that the placement rule chooses for a gang that fits on one machine."""
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


@compiled
def place(u, s, job):
    """Place a gang, which must fit. Gangs wider than a machine take completely free machines, largest first."""
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
    while left > 0:  # spread over machines, next the one with the most free GPUs
        most = 0
        for machine in range(1, len(u.size)):
            if s.free[machine] > s.free[most]:
                most = machine
        gpus = min(left, s.free[most])
        take(s, job, most, gpus)
        left -= gpus


@compiled
def slowdown(u, s, job):
    """Return the slowdown of a job on its GPUs, by whether one machine, one rack or only the cluster contains them."""
    first = s.head[job]
    level = 0
    other = s.next_place[first]
    while other != NONE:
        level = max(level, 1)
        if u.rack[s.place_machine[other]] != u.rack[s.place_machine[first]]:
            level = 2
        other = s.next_place[other]
    return u.slowdown[job, level]


_, DRAWN, REMAINING_TIME, REMAINING_SERVICE, ATTAINED_TIME, ATTAINED_SERVICE, TABLE = map(int, Key)

BY_FIRST_START = int(Tie.FIRST_START)


@compiled
def work_in(elapsed, factor):
    """Return the work done in a time at a slowdown in parts per million, rounded down, within 64 bits."""
    if factor == PPM:  # a division costs more than the rest of a pass
        return elapsed
    return elapsed // factor * PPM + elapsed % factor * PPM // factor


@compiled
def time_for(work, factor):
    """Return the time that work takes at a slowdown, rounded up."""
    return work // PPM * factor + (work % PPM * factor + PPM - 1) // PPM


@compiled
def table_rank(threshold, threshold_rank, service):
    """Return the rank for an attained service: the rank after the last threshold reached."""
    low, high = 0, len(threshold)
    while low < high:
        middle = (low + high) // 2
        if threshold[middle] <= service:
            low = middle + 1
        else:
            high = middle
    return threshold_rank[low]


@compiled
def first_key(key, drawn, duration, width, executed, served, threshold, threshold_rank):
    """Return the first key of a job that has run for `executed` and done the work `served`.

    The arguments are numbers: to pass the complete state would take longer than the rest of a pass.
    """
    if key == DRAWN:
        return drawn
    if key == REMAINING_TIME:
        return duration - served
    if key == REMAINING_SERVICE:
        return (duration - served) * width
    if key == ATTAINED_TIME:
        return executed
    if key == ATTAINED_SERVICE:
        return executed * width
    if key == TABLE:
        return table_rank(threshold, threshold_rank, executed * width)
    return 0


@compiled
def key_of_waiting(u, s, job):
    """Return key and tie-breaker of a job that does not run."""
    tie = s.first_start[job] if u.tie == BY_FIRST_START else 0
    first = first_key(
        u.key,
        u.rank[job],
        u.duration[job],
        u.width[job],
        s.executed[job],
        s.served[job],
        u.threshold,
        u.threshold_rank,
    )
    return first, tie


@compiled
def next_demotion(u, s, job):
    """Return when a job that just started reaches its next threshold, or `NEVER`."""
    service = s.executed[job] * u.width[job]
    for at in range(len(u.demotion_threshold)):
        if u.demotion_threshold[at] > service:
            return s.run_since[job] + (u.demotion_threshold[at] - service + u.width[job] - 1) // u.width[job]
    return NEVER


UNORDERED = -1


@compiled
def _is_less_urgent(key_1, key_2, job, a, b):
    """Return whether victim entry a is less urgent than b."""
    if key_1[a] != key_1[b]:
        return key_1[a] > key_1[b]
    if key_2[a] != key_2[b]:
        return key_2[a] > key_2[b]
    return job[a] > job[b]


@compiled
def _swap(key_1, key_2, job, a, b):
    key_1[a], key_1[b] = key_1[b], key_1[a]
    key_2[a], key_2[b] = key_2[b], key_2[a]
    job[a], job[b] = job[b], job[a]


@compiled
def _sift(key_1, key_2, job, at, size):
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and _is_less_urgent(key_1, key_2, job, below + 1, below):
            below += 1
        if not _is_less_urgent(key_1, key_2, job, below, at):
            break
        _swap(key_1, key_2, job, at, below)
        at = below


@compiled
def list_victims(u, s, now):
    """List the running jobs with their keys, the least urgent first."""
    count = s.scalar[RUNNING_JOBS]
    s.scalar[VICTIMS] = count
    s.scalar[RANKED] = UNORDERED
    key, is_by_first_start = u.key, u.tie == BY_FIRST_START
    threshold, threshold_rank = u.threshold, u.threshold_rank
    running, victim, victim_1, victim_2 = s.running, s.victim, s.victim_1, s.victim_2
    run_since, executed, served, factor, first_start = s.run_since, s.executed, s.served, s.factor, s.first_start
    duration, width, rank = u.duration, u.width, u.rank
    worst = 0
    for at in range(count):
        job = running[at]
        elapsed = max(0, now - run_since[job])
        done = served[job] + work_in(elapsed, factor[job])
        first = first_key(
            key, rank[job], duration[job], width[job], executed[job] + elapsed, done, threshold, threshold_rank
        )
        victim[at], victim_1[at], victim_2[at] = job, first, first_start[job] if is_by_first_start else 0
        if _is_less_urgent(victim_1, victim_2, victim, at, worst):
            worst = at
    if count:
        _swap(victim_1, victim_2, victim, 0, worst)


@compiled
def _rank_to(scalar, key_1, key_2, job, nth):
    """Sort the list of victims up to its nth least urgent entry.

    Sorted entries are at the end of the list; the other entries form a heap.
    """
    count = scalar[VICTIMS]
    if scalar[RANKED] == UNORDERED:
        for at in range(count // 2 - 1, -1, -1):
            _sift(key_1, key_2, job, at, count)
        scalar[RANKED] = 0
    while scalar[RANKED] <= nth:
        size = count - scalar[RANKED] - 1
        _swap(key_1, key_2, job, 0, size)
        _sift(key_1, key_2, job, 0, size)
        scalar[RANKED] += 1


@compiled
def _yields(s, at, job):
    """Return whether the job of a victim entry still runs and is less urgent than a waiting job."""
    other = s.victim[at]
    if s.status[other] != RUNNING:
        return False
    if s.victim_1[at] != s.key_1[job]:
        return s.victim_1[at] > s.key_1[job]
    if s.victim_2[at] != s.key_2[job]:
        return s.victim_2[at] > s.key_2[job]
    return other > job


@compiled
def _is_barred(s, at, job):
    """Return whether a victim entry, and therefore every more urgent entry, is at least as urgent as the waiting job."""
    if s.victim_1[at] != s.key_1[job]:
        return s.victim_1[at] < s.key_1[job]
    if s.victim_2[at] != s.key_2[job]:
        return s.victim_2[at] < s.key_2[job]
    return s.victim[at] < job


@compiled
def choose_victims(u, s, job):
    """Mark the running jobs to stop for a waiting job; return whether stopping jobs makes it fit.

    Jobs are considered from the least urgent on, until the gang would fit if all of them were stopped. A gang fits on one
    machine, a wider gang on enough completely free machines; with spreading, enough free GPUs anywhere suffice. Only jobs on
    the chosen machines are stopped; the most urgent of them continue if the gang doesn't need their GPUs.
    """
    count = s.scalar[VICTIMS]
    if count == 0 or (s.scalar[RANKED] == UNORDERED and _is_barred(s, 0, job)):
        return False
    width = u.width[job]
    largest = len(s.num_with_free) - 1
    for machine in range(len(u.size)):
        s.available[machine] = s.free[machine]
    total = s.scalar[FREE_GPUS]
    whole = 0
    for machine in range(len(u.size)):
        if s.free[machine] == u.size[machine]:
            whole += u.size[machine]
    target = NONE
    found = False
    last = 0
    for nth in range(count):
        if s.scalar[RANKED] <= nth:
            _rank_to(s.scalar, s.victim_1, s.victim_2, s.victim, nth)
        at = count - 1 - nth
        if _is_barred(s, at, job):
            return False
        if not _yields(s, at, job):
            continue
        place = s.head[s.victim[at]]
        while place != NONE:
            machine = s.place_machine[place]
            s.available[machine] += s.place_gpus[place]
            total += s.place_gpus[place]
            if s.available[machine] == u.size[machine]:
                whole += u.size[machine]
            if s.available[machine] >= width and (target == NONE or machine < target):
                target = machine
            place = s.next_place[place]
        last = nth
        found = target != NONE if width <= largest else whole >= width
        if u.may_spread:
            found = total >= width
        if found:
            break
    if not found:
        return False
    if u.may_spread:
        _mark_on(s, job, last, NONE, total - width)
    elif width <= largest:
        _mark_on(s, job, last, target, s.available[target] - width)
    else:
        _mark_on_whole(u, s, job, last, whole - width)
    return True


@compiled
def _mark_on(s, job, last, target, spare):
    """Mark the victims on a machine (`NONE`: on all machines), except the most urgent ones whose GPUs aren't needed."""
    for nth in range(last, -1, -1):
        at = s.scalar[VICTIMS] - 1 - nth
        if _yields(s, at, job):
            gpus = 0
            place = s.head[s.victim[at]]
            while place != NONE:
                if target == NONE or s.place_machine[place] == target:
                    gpus += s.place_gpus[place]
                place = s.next_place[place]
            if gpus <= spare:
                spare -= gpus
            else:
                s.marked[s.victim[at]] = 1


@compiled
def _mark_on_whole(u, s, job, last, spare):
    """Mark victims, except the most urgent ones that can continue while enough machines become completely free."""
    for nth in range(last, -1, -1):
        at = s.scalar[VICTIMS] - 1 - nth
        if _yields(s, at, job):
            lost = 0
            place = s.head[s.victim[at]]
            while place != NONE:
                machine = s.place_machine[place]
                if s.available[machine] == u.size[machine]:
                    lost += u.size[machine]
                s.available[machine] -= s.place_gpus[place]
                place = s.next_place[place]
            if lost <= spare:
                spare -= lost
                continue
            s.marked[s.victim[at]] = 1
            place = s.head[s.victim[at]]
            while place != NONE:
                s.available[s.place_machine[place]] += s.place_gpus[place]
                place = s.next_place[place]


@compiled
def is_before(key_1, key_2, a, b):
    """Return whether waiting job a precedes b: by its key, then by submission (rows are sorted by it)."""
    if key_1[a] != key_1[b]:
        return key_1[a] < key_1[b]
    if key_2[a] != key_2[b]:
        return key_2[a] < key_2[b]
    return a < b


@compiled
def _raise(heap, key_1, key_2, at, job):
    """Insert a job into the heap, at position `at` or above it."""
    while at > 0:
        above = (at - 1) // 2
        if not is_before(key_1, key_2, job, heap[above]):
            break
        heap[at] = heap[above]
        at = above
    heap[at] = job


@compiled
def lower(heap, key_1, key_2, at, size, job):
    """Insert a job into the heap, at position `at` or below it."""
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and is_before(key_1, key_2, heap[child + 1], heap[child]):
            child += 1
        if not is_before(key_1, key_2, heap[child], job):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = job


@compiled
def push_waiting(s, width_class, job):
    """Add a job to the waiting jobs of its width."""
    size = s.heap_size[width_class]
    s.heap_size[width_class] += 1
    _raise(s.heap[s.heap_first[width_class] :], s.key_1, s.key_2, size, job)


@compiled
def pop_waiting(s, width_class):
    """Remove the first waiting job of a width."""
    base = s.heap_first[width_class]
    s.heap_size[width_class] -= 1
    size = s.heap_size[width_class]
    if size:
        lower(s.heap[base:], s.key_1, s.key_2, 0, size, s.heap[base + size])


WHEN, WHO, VERSION = range(3)
"""Columns of an event heap: time, job, and the job's version when the event was added. An entry is void once the job's
version has changed."""


@compiled
def _is_earlier(heap, a, b):
    if heap[a, WHEN] != heap[b, WHEN]:
        return heap[a, WHEN] < heap[b, WHEN]
    return heap[a, WHO] < heap[b, WHO]


@compiled
def _exchange(heap, a, b):
    for column in range(3):
        heap[a, column], heap[b, column] = heap[b, column], heap[a, column]


@compiled
def _sift_down(heap, at, size):
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and _is_earlier(heap, below + 1, below):
            below += 1
        if not _is_earlier(heap, below, at):
            break
        _exchange(heap, below, at)
        at = below


@compiled
def push_event(scalar, version, heap, counter, when, job):
    """Add an event of a job's present run; void entries are removed when the heap is full."""
    size = scalar[counter]
    if size == len(heap):
        kept = 0
        for at in range(size):
            if heap[at, VERSION] == version[heap[at, WHO]]:
                _exchange(heap, at, kept)
                kept += 1
        for at in range(kept // 2, -1, -1):
            _sift_down(heap, at, kept)
        size = kept
    heap[size, WHEN], heap[size, WHO], heap[size, VERSION] = when, job, version[job]
    scalar[counter] = size + 1
    while size > 0 and _is_earlier(heap, size, (size - 1) // 2):
        _exchange(heap, size, (size - 1) // 2)
        size = (size - 1) // 2


@compiled
def pop_event(scalar, heap, counter):
    """Remove the first event."""
    size = scalar[counter] - 1
    scalar[counter] = size
    _exchange(heap, size, 0)
    _sift_down(heap, 0, size)


@compiled
def next_event(scalar, version, heap, counter):
    """Return the time of the first event of a run in progress, or `NEVER`."""
    while scalar[counter] > 0:
        if heap[0, VERSION] == version[heap[0, WHO]]:
            return heap[0, WHEN]
        pop_event(scalar, heap, counter)
    return NEVER


START, PREEMPT, END, LEAVE, KILLED_BY_OUTAGE = map(
    int, (Event.START, Event.PREEMPT, Event.END, Event.LEAVE, Event.CRASH)
)

MACHINE_DOWN, REPAIR = int(Event.FAIL), int(Event.REPAIR)

ATTEMPT_FAILED, JOB_FAILED = int(Event.FAULT), int(Event.GIVE_UP)

_, AT_EVENTS, AT_TICKS = map(int, Preempts)


@compiled
def _log(s, b, kind, job):
    event, entry = s.scalar[EVENTS], s.scalar[PLACES]
    b.time[event], b.kind[event], b.job[event] = s.scalar[NOW], kind, job
    if kind == START:
        at = s.head[job]
        while at != NONE:  # the list begins with the last machine, the log with the first
            entry += 1
            at = s.next_place[at]
        last = entry
        at = s.head[job]
        while at != NONE:
            last -= 1
            b.machine[last], b.gpus[last] = s.place_machine[at], s.place_gpus[at]
            at = s.next_place[at]
    s.scalar[EVENTS], s.scalar[PLACES] = event + 1, entry
    b.first[event + 1] = entry


@compiled
def _log_machine(s, b, kind, machine):
    entry = s.scalar[PLACES]
    b.machine[entry], b.gpus[entry] = machine, 0
    s.scalar[PLACES] = entry + 1
    _log(s, b, kind, NO_JOB)


@compiled
def enqueue(u, s, job):
    """Add a job to the queue of its width."""
    s.status[job] = WAITING
    s.key_1[job], s.key_2[job] = key_of_waiting(u, s, job)
    push_waiting(s, u.width_class[job], job)


@compiled
def _schedule_timer(s, when, job):
    push_event(s.scalar, s.version, s.turns, TURNS, when, job)


@compiled
def next_turn(s):
    """Return the time of the next failing attempt or end of back-off."""
    return next_event(s.scalar, s.version, s.turns, TURNS)


@compiled
def _begin_of_try(u, job, number):
    """Return the run time at which an attempt begins."""
    return min(number * u.fails[job], u.good[job]) if number < u.tries[job] else u.good[job]


@compiled
def start_job(u, s, b, job):
    """Place a job by the placement rule, and start it."""
    place(u, s, job)
    begin_run(u, s, b, job)


@compiled
def begin_run(u, s, b, job):
    """Start a job on the GPUs that it has taken."""
    now = s.scalar[NOW]
    is_first = s.first_start[job] == NEVER
    if is_first:
        s.first_start[job] = now
    s.status[job] = RUNNING
    s.version[job] += 1
    s.factor[job] = slowdown(u, s, job)
    s.run_since[job] = now + (u.startup if is_first else u.overhead)
    s.slot[job] = s.scalar[RUNNING_JOBS]
    s.running[s.slot[job]] = job
    s.scalar[RUNNING_JOBS] += 1
    if s.tried[job] < u.tries[job]:
        ends = s.run_since[job] + u.fails[job] - (s.executed[job] - s.try_base[job])
        _schedule_timer(s, ends, job)
    else:
        ends = s.run_since[job] + time_for(u.duration[job] - s.served[job], s.factor[job])
        push_event(s.scalar, s.version, s.ends, ENDS, ends, job)
    if len(u.demotion_threshold):
        demoted = next_demotion(u, s, job)
        if demoted < ends:
            push_event(s.scalar, s.version, s.demotions, DEMOTIONS, demoted, job)
    _log(s, b, START, job)


@compiled
def stop_job(u, s, b, job, kind):
    """Take a job's GPUs because of an event; it waits again unless it is complete or in back-off."""
    now = s.scalar[NOW]
    elapsed = max(0, now - s.run_since[job])
    started = s.run_since[job] - (u.overhead if s.version[job] > 1 else u.startup)
    s.executed[job] += elapsed
    s.overhead[job] += now - started - elapsed
    done = u.duration[job] if kind == END else s.served[job] + work_in(elapsed, s.factor[job])
    step = u.checkpoint if kind == KILLED_BY_OUTAGE else u.preempt_checkpoint if kind == PREEMPT else 0
    s.scalar[STALLED] *= kind in (PREEMPT, KILLED_BY_OUTAGE)
    if step > 0:
        kept = max(s.served[job], done // step * step)
        s.scalar[STALLED] = 0 if kept > s.served[job] else s.scalar[STALLED] + (kind == PREEMPT)
        s.lost[job] += done - kept
        done = kept
    if kind in (ATTEMPT_FAILED, JOB_FAILED):
        s.lost[job] += done - _begin_of_try(u, job, s.tried[job])
        s.tried[job] += 1
        s.try_base[job] = s.executed[job]
        done = _begin_of_try(u, job, s.tried[job])
    s.served[job] = done
    s.version[job] += 1
    s.stopped[job] = now
    give_back(s, job)
    last = s.running[s.scalar[RUNNING_JOBS] - 1]
    s.running[s.slot[job]] = last
    s.slot[last] = s.slot[job]
    s.scalar[RUNNING_JOBS] -= 1
    s.status[job] = OVER
    _log(s, b, kind, job)
    if kind == ATTEMPT_FAILED and u.retry_wait > 0:
        s.status[job] = BACKOFF
        _schedule_timer(s, now + u.retry_wait, job)
    elif kind not in (END, LEAVE, JOB_FAILED):
        enqueue(u, s, job)


@compiled
def take_turns(u, s, b):
    """Apply failing attempts that are due, and return jobs from back-off to the queue."""
    while next_turn(s) <= s.scalar[NOW]:
        job = s.turns[0, WHO]
        pop_event(s.scalar, s.turns, TURNS)
        if s.status[job] == BACKOFF:
            enqueue(u, s, job)
        else:
            stop_job(u, s, b, job, JOB_FAILED if s.tried[job] + 1 >= u.last_try[job] else ATTEMPT_FAILED)
        s.scalar[FAILURES] = s.scalar[STALLED] = 0


@compiled
def first_waiting(s, is_held):
    """Return the first waiting job whose width is not blocked, or `NONE`."""
    best = NONE
    for width_class in range(len(s.heap_size)):
        if s.heap_size[width_class] and not is_held[width_class]:
            job = s.heap[s.heap_first[width_class]]
            if best == NONE or is_before(s.key_1, s.key_2, job, best):
                best = job
    return best


@compiled
def _pass(u, s, b, can_preempt, is_held):
    """Go once through the jobs in the policy's order: start, preempt or skip them."""
    is_held[:] = False
    is_listed = False
    while True:
        job = first_waiting(s, is_held)
        if job == NONE:
            return
        width_class = u.width_class[job]
        is_placed = has_room(u, s, u.width[job])
        if not is_placed and can_preempt:
            if not is_listed:
                is_listed = True
                list_victims(u, s, s.scalar[NOW])
            if choose_victims(u, s, job):
                pop_waiting(s, width_class)
                for nth in range(s.scalar[RANKED]):
                    other = s.victim[s.scalar[VICTIMS] - 1 - nth]
                    if s.marked[other]:
                        s.marked[other] = 0
                        stop_job(u, s, b, other, PREEMPT)
                start_job(u, s, b, job)
                continue
        if is_placed:
            pop_waiting(s, width_class)
            start_job(u, s, b, job)
        elif u.has_backfill:
            is_held[width_class] = True
        else:
            return


@compiled
def num_waiting(s):
    """Return the number of jobs in the queues."""
    count = 0
    for width_class in range(len(s.heap_size)):
        count += s.heap_size[width_class]
    return count


@compiled
def next_time(u, s, num_waiting):
    """Return the time of the next end, failing attempt, end of back-off, submission or (while there are jobs) outage."""
    when = min(next_event(s.scalar, s.version, s.ends, ENDS), next_turn(s))
    if s.scalar[ARRIVED] < len(u.submit):
        when = min(when, u.submit[s.scalar[ARRIVED]])
    is_idle = when == NEVER and not num_waiting
    if len(u.outage) and not is_idle:
        when = min(when, u.outage[s.scalar[OUTAGES], 0])
    return when


@compiled
def _next_pass(u, s):
    """Return the time of the next event, or of the next threshold or tick that matters to a waiting job."""
    waiting = num_waiting(s)
    when = next_time(u, s, waiting)
    if waiting and s.scalar[RUNNING_JOBS]:
        when = min(when, next_event(s.scalar, s.version, s.demotions, DEMOTIONS))
        if u.preempts == AT_TICKS:
            when = min(when, (s.scalar[NOW] // u.quantum + 1) * u.quantum)
    return when


@compiled
def _crash_on(u, s, b, machine):
    """Stop the jobs on a machine that has failed, in order of their rows."""
    while True:
        first = NONE
        for at in range(s.scalar[RUNNING_JOBS]):
            job = s.running[at]
            if (first == NONE or job < first) and gpus_on(s, job, machine) > 0:
                first = job
        if first == NONE:
            return
        stop_job(u, s, b, first, KILLED_BY_OUTAGE)


@compiled
def apply_outages(u, s, b):
    """Apply machine failures and repairs that are due."""
    while s.scalar[OUTAGES] < len(u.outage) and u.outage[s.scalar[OUTAGES], 0] == s.scalar[NOW]:
        at = s.scalar[OUTAGES]
        machine = u.outage[at, 1]
        s.scalar[OUTAGES] = at + 1
        if u.outage[at, 2]:
            s.scalar[FAILURES] += 1
            _log_machine(s, b, MACHINE_DOWN, machine)
            _crash_on(u, s, b, machine)
            set_free(s, machine, 0)
        else:
            _log_machine(s, b, REPAIR, machine)
            set_free(s, machine, u.size[machine])


@compiled
def give_up(u, s, b, why):
    """Stop all running jobs, because no job can complete any more."""
    while s.scalar[RUNNING_JOBS]:
        first = s.running[0]
        for at in range(1, s.scalar[RUNNING_JOBS]):
            first = min(first, s.running[at])
        stop_job(u, s, b, first, PREEMPT)
    s.scalar[IS_OVER] = why


@compiled
def _demote_queue(u, s):
    """Process thresholds reached by now, and record the next threshold of each job."""
    while next_event(s.scalar, s.version, s.demotions, DEMOTIONS) <= s.scalar[NOW]:
        job = s.demotions[0, WHO]
        pop_event(s.scalar, s.demotions, DEMOTIONS)
        service = (s.executed[job] + s.scalar[NOW] - s.run_since[job]) * u.width[job]
        for at in range(len(u.demotion_threshold)):
            if u.demotion_threshold[at] > service:
                ahead = (u.demotion_threshold[at] - service + u.width[job] - 1) // u.width[job]
                push_event(
                    s.scalar,
                    s.version,
                    s.demotions,
                    DEMOTIONS,
                    s.scalar[NOW] + ahead,
                    job,
                )
                break


@compiled
def decide(u, s, b, is_held):
    """Process thresholds reached, and make a pass through the jobs."""
    _demote_queue(u, s)
    _pass(u, s, b, u.preempts == AT_EVENTS or (u.preempts == AT_TICKS and s.scalar[NOW] % u.quantum == 0), is_held)


@compiled
def is_halted(u, s, b, margin):
    """Return whether buffer space or known outages have run out, or no job can complete any more."""
    if s.scalar[EVENTS] + margin > len(b.time) or s.scalar[PLACES] + margin > len(b.machine):
        return True
    if len(u.outage) and s.scalar[OUTAGES] == len(u.outage):
        return True
    if s.scalar[FAILURES] > MAX_FAILURES:
        give_up(u, s, b, BY_FAILURES)
    elif s.scalar[STALLED] > MAX_STALLED and s.scalar[STALLED] > MAX_STALLED * (
        num_waiting(s) + s.scalar[RUNNING_JOBS]
    ):
        give_up(u, s, b, BY_STOPS)
    if s.scalar[RUNNING_JOBS] or s.scalar[ARRIVED] < len(u.submit):
        s.scalar[IDLE] = 0
    elif _are_up(u, s):
        s.scalar[IDLE] += 1
        if s.scalar[IDLE] > MAX_IDLE_CALLS:
            s.scalar[IS_OVER] = BY_MACHINES
    return s.scalar[IS_OVER] > 0


@compiled
def _are_up(u, s):
    """Return whether all machines are up, except those removed permanently."""
    for machine in range(len(u.size)):
        if s.free[machine] < u.size[machine] and u.gone_from[machine] > s.scalar[NOW]:
            return False
    return True


@compiled
def take_submitted(u, s, now):
    """Queue the jobs that are submitted now."""
    while s.scalar[ARRIVED] < len(u.submit) and u.submit[s.scalar[ARRIVED]] == now:
        enqueue(u, s, s.scalar[ARRIVED])
        s.scalar[ARRIVED] += 1
        s.scalar[FAILURES] = s.scalar[STALLED] = 0


@compiled
def happen(u, s, b):
    """Process the ends, failing attempts, outages and submissions that are due."""
    while next_event(s.scalar, s.version, s.ends, ENDS) <= s.scalar[NOW]:
        job = s.ends[0, WHO]
        pop_event(s.scalar, s.ends, ENDS)
        stop_job(u, s, b, job, END)
        s.scalar[FAILURES] = 0
    take_turns(u, s, b)
    apply_outages(u, s, b)
    take_submitted(u, s, s.scalar[NOW])


@compiled
def advance(u, s, b, is_held, steps, margin):
    """Simulate until the end, for `steps` instants, or until known outages or buffer space run out.

    The buffer must have space for `margin` events per instant.
    """
    for _ in range(steps):
        if is_halted(u, s, b, margin):
            return
        when = _next_pass(u, s)
        if when == NEVER:
            s.scalar[IS_OVER] = 1
            return
        s.scalar[NOW] = when
        happen(u, s, b)
        decide(u, s, b, is_held)


@compiled
def resume(u, s, b, now, started, log_first, log_machine, log_gpus, log_job):
    """Restore the running jobs of a present state with their GPUs and starts, and queue the submitted jobs."""
    for event in range(len(started)):
        s.scalar[NOW] = started[event]
        for at in range(log_first[event], log_first[event + 1]):
            take(s, log_job[event], log_machine[at], log_gpus[at])
        begin_run(u, s, b, log_job[event])
    s.scalar[NOW] = now
    while s.scalar[ARRIVED] < len(u.submit) and u.submit[s.scalar[ARRIVED]] <= now:
        if s.status[s.scalar[ARRIVED]] == NOT_COME:
            enqueue(u, s, s.scalar[ARRIVED])
        s.scalar[ARRIVED] += 1


def play_index(
    jobs: Workload,
    cluster: Cluster,
    policy: IndexPolicy,
    options: EngineOptions,
    seed: int,
    watch: Callable[[int], bool] | None,
    present: Present | None = None,
    priorities: "Priorities | None" = None,
) -> Run | None:
    """Simulate all jobs with the compiled loop, from a present state if given, and in the order of priorities if given."""
    parts: list[tuple[IntArray, ...]] = []
    for stretch in _stretches(jobs, cluster, policy, options, seed, present, STEPS, priorities):
        state, book, taken = stretch
        parts.append(taken)
        if watch is not None and watch(int(state.scalar[ARRIVED])) and not state.scalar[IS_OVER]:
            return None
    run = _as_run(jobs, policy, options, state, parts)
    if book is None:
        return run
    from optim.simulation.cluster.index.reservations import promised_by

    estimates, reserved, promised = promised_by(book)
    figures = promises(jobs.submit_us, jobs.gpus, reserved, promised, run.first_start_us)
    if priorities is not None:  # the checker supports promises only in the order of submission
        return replace(run, rules=replace(run.rules, reservation_depth=0), figures=figures)
    return replace(run, log=run.log.with_promises(estimates, reserved, promised), figures=figures)


def index_first_starts(
    jobs: Workload,
    cluster: Cluster,
    policy: IndexPolicy,
    options: EngineOptions,
    seed: int,
    present: Present,
    awaited: IntArray,
    priorities: "Priorities | None" = None,
) -> IntArray:
    """Simulate from a present state until the awaited jobs have started or the run ends; return first starts.

    A job that never starts gets the end of the run.
    """
    for state, _, _ in _stretches(jobs, cluster, policy, options, seed, present, STEPS_BETWEEN_LOOKS, priorities):
        if (state.first_start[awaited] < NEVER).all():
            break
    return np.asarray(np.minimum(state.first_start[awaited], state.scalar[NOW]))


def _stretches(
    jobs: Workload,
    cluster: Cluster,
    policy: IndexPolicy,
    options: EngineOptions,
    seed: int,
    present: Present | None,
    steps: int,
    priorities: "Priorities | None",
) -> "Iterator[tuple[State, Book | None, tuple[IntArray, ...]]]":
    """Simulate `steps` instants at a time.

    Yield the state, the book of reservations, and the events since the last yield.
    """
    setup = make_setup(jobs, cluster, policy, options, seed)
    state = make_state(setup, cluster)
    margin = 6 * cluster.num_gpus + 16
    feed = OutageFeed(cluster, options, seed, 0 if present is None else present.now_us)
    buffer = make_buffer(LOGGED + margin, LOGGED + margin)
    is_held = np.zeros(len(state.heap_size), np.bool_)
    play, book, start = advance, None, decide
    if policy.reservations is not None:
        from optim.simulation.cluster.index.priorities import no_priorities
        from optim.simulation.cluster.index.reservations import make_book, reserving, take_over

        book, orders = make_book(jobs, cluster, policy, options, setup), priorities or no_priorities()
        play = reserving(book, orders)
    elif priorities is not None:
        from optim.simulation.cluster.index.priorities import deciding_by, prioritising

        play, start = prioritising(priorities), deciding_by(priorities)
    if present is not None:
        begun = present.starts
        places = (begun.time_us, begun.first, begun.machine, begun.gpus, begun.job)
        resume(setup, state, buffer, present.now_us, *places)
        if book is None:
            start(setup, state, buffer, is_held)
        else:
            take_over(setup, state, buffer, book, orders)
        yield state, book, _taken(state, buffer)
    while not state.scalar[IS_OVER]:
        if state.scalar[OUTAGES] == len(setup.outage):
            setup = setup._replace(outage=feed.take_many(KNOWN_OUTAGES))
            state.scalar[OUTAGES] = 0
        play(setup, state, buffer, is_held, steps, margin)
        yield state, book, _taken(state, buffer)


def _taken(state: State, buffer: Buffer) -> tuple[IntArray, ...]:
    """Remove the events from a buffer and return copies: columns of events, allocations per event, and their columns."""
    events, places = int(state.scalar[EVENTS]), int(state.scalar[PLACES])
    state.scalar[[EVENTS, PLACES]] = 0
    counts = np.diff(buffer.first[: events + 1])
    return (*(part[:events].copy() for part in buffer[:3]), counts, *(part[:places].copy() for part in buffer[4:]))


def _as_run(
    jobs: Workload,
    policy: IndexPolicy,
    options: EngineOptions,
    state: State,
    parts: list[tuple[IntArray, ...]],
) -> Run:
    """Return the log and counters of the loop as a run."""
    time, kind, job, counts, machine, gpus = (np.concatenate(column) for column in zip(*parts, strict=True))
    log = EventLog(
        time_us=time,
        kind=kind.astype(np.int8),
        job=job,
        first=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        machine=machine,
        gpus=gpus,
    )
    end = np.maximum(last_times(log, len(jobs)), jobs.submit_us)
    return Run(
        policy=policy.name,
        log=log,
        first_start_us=np.minimum(state.first_start, end),
        end_us=end,
        executed_us=state.executed,
        overhead_us=state.overhead,
        lost_us=state.lost,
        is_done=log.is_done(len(jobs)),
        rules=options.on_failures(
            Rules(
                restart_us=options.overhead_us,
                move_us=options.overhead_us,
                kills_at_limit=policy.reservations is not None and policy.reservations.kills,
                reservation_depth=0 if policy.reservations is None else policy.reservations.depth,
            )
        ),
        allocated_gpu_us=float(jobs.gpus @ (state.executed + state.overhead).astype(float)),
        overhead_gpu_us=float(jobs.gpus @ state.overhead.astype(float)),
        halted=HALTS[int(state.scalar[IS_OVER])],
    )

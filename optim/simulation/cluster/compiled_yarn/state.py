"""State of the compiled capacity scheduler: tables, free GPUs, waiting queues.

A loop is compiled for every array that it is handed apart: few tables cost a third of many columns.

A pass that finds no place for a width doesn't look at its jobs at all: what it needs is the first of them at a level.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optim.compiled import by_reference, inner
from optim.core.arrays import FloatArray, IntArray
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.rules import Rules, tries_of
from optim.models.cluster.workload import Workload
from optim.simulation.cluster.index.state import level_order
from optim.simulation.cluster.options import EngineOptions, Placement

NEVER = 2**62

NONE = -1
"""Holder of a GPU that no job has."""

NOT_COME, WAITING, STARTING, RUNNING, STOPPING, BACKOFF, OVER = range(7)
"""States of a job; those that a pass starts or stops are told apart until it is over."""

NUM_SCALARS = 33

NOW, ARRIVED, ACTIVE, ENDS, TURNS, FREE, HELD, DOWN, RUNNING_JOBS, WAITING_JOBS, *_REST = range(NUM_SCALARS)

EVENTS, PLACES, IS_OVER, OUTAGES, AGAIN, IDLE_CALLS, CALLS, LAST_RUNNING, ORDERS, STARTED, STOPPED, CHOSEN, *_REST = (
    _REST
)

SEEN_AT, SEEN_FAIR_SHARE, SEEN_FRAGMENTATION, *_REST = _REST

STEP, ENOUGH, LARGEST, OVERHEAD, CHECKPOINT, RETRY_WAIT, MAY_SPREAD, TAKES_FIRST = _REST
"""Entries of `World.scalar`: time and counts; what the log holds; the last pass; and what doesn't change."""

NUM_JOB_COLUMNS = 34

SUBMIT, WIDTH, DURATION, SLOWDOWN, _1, _2, KIND, GROUP, QUEUE, TRIES, FAILS, GOOD, LAST_TRY, TOLD, *_REST = range(
    NUM_JOB_COLUMNS
)

STATUS, SINCE, LEVEL, FIRST_START, BEGUN, RUN_SINCE, FACTOR, EXECUTED, SERVED, PAUSED, LOST, END, *_REST = _REST

TRIED, TRY_BASE, ORDER, BEFORE, AFTER, EARLIER, LATER, FIRST_GPU = _REST
"""Columns of `World.job`: what it asks for and which tries fail; what became of it; and its neighbours in lists.

`BEFORE` and `AFTER` are its neighbours in its queue while it waits, and among running jobs by start while it runs. `EARLIER`
and `LATER` are those in the list of jobs of its width and level of locality, by when they began to wait.
"""

SIZE, RACK, FIRST, FREE_GPUS, TRIAL, BY_SIZE, BY_RACK = range(7)
"""Columns of `World.machine`; `BY_SIZE` and `BY_RACK` list machines in these orders."""

HOLDER, NEXT_GPU, MACHINE_OF = range(3)
"""Columns of `World.gpu`: which job has it, the job's next one, and its machine."""

RACK_FREE, RACK_FIRST, IS_PASSED = range(3)
"""Columns of `World.rack`: free GPUs, where its machines begin in `BY_RACK`, and whether a search went past it."""

HEAD, TAIL, AT_LEVEL, _1, _2 = range(5)
"""Columns of `World.queue`, the jobs of a virtual cluster and a width that wait: first and last, and how many at each level."""

ASKS, FEWEST, MIN_LEVEL, IS_HOPELESS, NUM_AT, _1, _2, OLDEST, _1, NEWEST, _1 = range(11)
"""Columns of `World.kind`, a width: GPUs, the fewest machines that hold them, the least level of locality at which they find
a place now, whether stopping others wouldn't help, how many jobs wait at each level, and who waits longest and shortest at
levels 0 and 1."""

NO_LEVEL = 3

USED, SPARE, VISITED, GROUP_WAITING, REACHED, IS_PASSED_OVER = range(6)
"""Columns of `World.group`: GPUs that its jobs hold, the same while victims are sought and at each visit of a pass, how many
jobs wait, and how far the pass got."""

SHARE_S, SHARE_US, FRAGMENT_S, FRAGMENT_US = range(4)
"""Entries of `World.delay`: seconds and microseconds waited by cause; their sum in microseconds might leave 64 bits."""


@by_reference
class World(NamedTuple):
    """All of a run.

    Parameters
    ----------
    scalar
        Single numbers by the names above.
    version
        How often a job was started or stopped; shape (jobs,).
    job, machine, gpu, rack, queue, kind, group
        Tables: rows are things, columns those above. A queue is a virtual cluster and a width, at group x kinds + kind.
    quota
        GPUs of each virtual cluster; shape (groups,).
    free_count
        How many machines of each rack, and in the last row of all, have 0, 1, ... free GPUs; shape (racks + 1, largest + 1).
    levels
        Which numbers of free GPUs a gang prefers of a machine; see `optim.simulation.cluster.index.state.level_order`.
    outage
        Times, machines and whether they fail (1), of the failures and repairs known ahead; shape (n, 3).
    end_time, end_job, end_version, turn_time, turn_job, turn_version
        Heaps of ends, and of tries that fail and jobs that were held back after one.
    started, stopped, passed
        Jobs that a pass starts and stops, and victims that it looks at; shape (GPUs,).
    choice
        Machines that a gang takes GPUs of, and how many; shape (machines, 2).
    delay
        Time waited, by cause.
    event, place
        Log of the last instants: time, kind, job and number of places of each event, and GPUs by number.
    """

    scalar: IntArray
    version: IntArray
    job: IntArray
    machine: IntArray
    gpu: IntArray
    rack: IntArray
    queue: IntArray
    kind: IntArray
    group: IntArray
    quota: FloatArray
    free_count: IntArray
    levels: IntArray
    outage: IntArray
    end_time: IntArray
    end_job: IntArray
    end_version: IntArray
    turn_time: IntArray
    turn_job: IntArray
    turn_version: IntArray
    started: IntArray
    stopped: IntArray
    passed: IntArray
    choice: IntArray
    delay: IntArray
    event: IntArray
    place: IntArray


def make_world(
    jobs: Workload, cluster: Cluster, quota: FloatArray, step_us: int, share: float, options: EngineOptions, events: int
) -> World:
    """Return the state before the first submission.

    Parameters
    ----------
    jobs, cluster, options
        Who asks, what there is, and the rules.
    quota
        GPUs of each virtual cluster, positive; shape (groups,).
    step_us
        Time after which a waiting job's locality is relaxed by a level.
    share
        Share of all GPUs in use above which virtual clusters take back what others hold beyond their quotas.
    events
        How many events, and places, the log holds at a time.
    """
    widths, kind = np.unique(jobs.gpus, return_inverse=True)
    racks, gpus, largest = int(cluster.rack.max()) + 1, cluster.num_gpus, int(cluster.gpus.max())
    free_count = np.zeros((racks + 1, largest + 1), np.int64)
    np.add.at(free_count, (cluster.rack, cluster.gpus), 1)
    free_count[-1] = free_count[:-1].sum(axis=0)
    tries = tries_of(jobs, options.on_failures(Rules()))
    turns = 2 * gpus + 16 + int((tries.failing > 0).sum())  # whoever runs, and whoever is held back
    heaps = {f"end_{part}": np.zeros(2 * gpus + 16, np.int64) for part in ("time", "job", "version")}
    heaps |= {f"turn_{part}": np.zeros(turns, np.int64) for part in ("time", "job", "version")}
    return World(
        scalar=_scalars(cluster, step_us, share, options),
        version=np.zeros(len(jobs), np.int64),
        job=_jobs(jobs, kind, len(widths), options),
        machine=_machines(cluster),
        gpu=np.column_stack([np.full((gpus, 2), NONE), np.repeat(np.arange(cluster.num_machines), cluster.gpus)]),
        rack=_racks(cluster, racks),
        queue=np.tile(np.array([NONE, NONE, 0, 0, 0]), (len(jobs.groups) * len(widths), 1)),
        kind=_kinds(widths, largest),
        group=np.zeros((len(jobs.groups), 6), np.int64),
        quota=quota,
        free_count=free_count,
        levels=level_order(options.placement, jobs.gpus, largest),
        outage=np.zeros((0, 3), np.int64),
        **heaps,
        **{name: np.zeros(gpus, np.int64) for name in ("started", "stopped", "passed")},
        choice=np.zeros((cluster.num_machines, 2), np.int64),
        delay=np.zeros(4, np.int64),
        event=np.zeros((events, 4), np.int64),
        place=np.zeros(events, np.int64),
    )


def _scalars(cluster: Cluster, step_us: int, share: float, options: EngineOptions) -> IntArray:
    scalar = np.zeros(NUM_SCALARS, np.int64)
    scalar[[FREE, AGAIN, LAST_RUNNING]] = cluster.num_gpus, NEVER, NONE
    scalar[[STEP, LARGEST, OVERHEAD, CHECKPOINT]] = (
        step_us,
        cluster.gpus.max(),
        options.overhead_us,
        options.checkpoint_us,
    )
    scalar[ENOUGH] = int(share * cluster.num_gpus)  # GPUs in use are a whole number
    scalar[[RETRY_WAIT, MAY_SPREAD]] = options.on_failures(Rules()).retry_wait_us, options.spread
    scalar[TAKES_FIRST] = options.placement is Placement.FIRST_FIT
    return scalar


def _jobs(jobs: Workload, kind: NDArray[np.intp], kinds: int, options: EngineOptions) -> IntArray:
    tries = tries_of(jobs, options.on_failures(Rules()))
    table = np.zeros((len(jobs), NUM_JOB_COLUMNS), np.int64)
    table[:, SLOWDOWN : SLOWDOWN + 3] = jobs.slowdown_ppm
    is_one_piece = not options.on_failures(Rules()).retries
    columns = {
        SUBMIT: jobs.submit_us,
        WIDTH: jobs.gpus,
        DURATION: jobs.duration_us,
        KIND: kind,
        GROUP: jobs.group,
        QUEUE: jobs.group * kinds + kind,
        TRIES: tries.failing,
        FAILS: tries.fails,
        GOOD: tries.good,
        LAST_TRY: tries.last,
        TOLD: jobs.fails_us if is_one_piece else NONE,
        **dict.fromkeys((FIRST_START, END, BEFORE, AFTER, EARLIER, LATER, FIRST_GPU), NONE),
    }
    for column, values in columns.items():
        table[:, column] = values
    return table


def _machines(cluster: Cluster) -> IntArray:
    columns = {
        SIZE: cluster.gpus,
        RACK: cluster.rack,
        FIRST: np.cumsum(cluster.gpus) - cluster.gpus,
        FREE_GPUS: cluster.gpus,
        TRIAL: 0 * cluster.gpus,
        BY_SIZE: np.lexsort((np.arange(cluster.num_machines), -cluster.gpus)),
        BY_RACK: np.argsort(cluster.rack, kind="stable"),
    }
    return np.column_stack([columns[column] for column in range(len(columns))]).astype(np.int64)


def _racks(cluster: Cluster, racks: int) -> IntArray:
    table = np.zeros((racks + 1, 3), np.int64)
    np.add.at(table[:, RACK_FREE], cluster.rack, cluster.gpus)
    table[1:, RACK_FIRST] = np.cumsum(np.bincount(cluster.rack, minlength=racks))
    return table


def _kinds(widths: IntArray, largest: int) -> IntArray:
    table = np.zeros((len(widths), 11), np.int64)
    table[:, ASKS] = widths
    table[:, FEWEST] = -(-widths // largest)
    table[:, OLDEST:] = NONE
    return table


@inner
def set_free(w, machine, free):
    """Let a machine have so many free GPUs."""
    before, rack = w.machine[machine, FREE_GPUS], w.machine[machine, RACK]
    w.machine[machine, FREE_GPUS] = free
    for row in (rack, len(w.free_count) - 1):
        w.free_count[row, before] -= 1
        w.free_count[row, free] += 1
    w.rack[rack, RACK_FREE] += free - before
    w.scalar[FREE] += free - before


@inner
def _take_of(w, job, machine, count, last):
    """Give a job the first free GPUs of a machine, behind the GPU `last` that it has; return the last one."""
    set_free(w, machine, w.machine[machine, FREE_GPUS] - count)
    gpu = w.machine[machine, FIRST]
    while count > 0:
        if w.gpu[gpu, HOLDER] == NONE:
            w.gpu[gpu, HOLDER] = job
            w.gpu[gpu, NEXT_GPU] = NONE
            if last == NONE:
                w.job[job, FIRST_GPU] = gpu
            else:
                w.gpu[last, NEXT_GPU] = gpu
            last = gpu
            count -= 1
        gpu += 1
    return last


@inner
def take_chosen(w, job):
    """Give a job the GPUs that were chosen: lowest numbers first, so that they are told in their order."""
    last = NONE
    for nth in range(w.scalar[CHOSEN]):
        machine, count = w.choice[nth, 0], w.choice[nth, 1]
        at = nth
        while at > 0 and w.choice[at - 1, 0] > machine:
            w.choice[at, 0], w.choice[at, 1] = w.choice[at - 1, 0], w.choice[at - 1, 1]
            at -= 1
        w.choice[at, 0], w.choice[at, 1] = machine, count
    for nth in range(w.scalar[CHOSEN]):
        last = _take_of(w, job, w.choice[nth, 0], w.choice[nth, 1], last)
    w.scalar[HELD] += w.job[job, WIDTH]
    w.group[w.job[job, GROUP], USED] += w.job[job, WIDTH]


@inner
def give_back(w, job):
    """Take all GPUs of a job back."""
    gpu = w.job[job, FIRST_GPU]
    while gpu != NONE:
        w.gpu[gpu, HOLDER] = NONE
        machine = w.gpu[gpu, MACHINE_OF]
        set_free(w, machine, w.machine[machine, FREE_GPUS] + 1)
        gpu = w.gpu[gpu, NEXT_GPU]
    w.job[job, FIRST_GPU] = NONE
    w.scalar[HELD] -= w.job[job, WIDTH]
    w.group[w.job[job, GROUP], USED] -= w.job[job, WIDTH]


@inner
def _machines_for(w, rack, width):
    """Return on how many machines of a rack a gang is put that takes those with most free GPUs first; it must have room."""
    count = 0
    for free in range(w.scalar[LARGEST], 0, -1):
        here = min(w.free_count[rack, free], (width + free - 1) // free)
        count += here
        width -= here * free
        if width <= 0:
            break
    return count


@inner
def _best_rack(w, width, fewest):
    """Return the rack with most free GPUs that holds a gang on so few machines (on any with `fewest` 0), `NONE` without one."""
    best = NONE
    for rack in range(len(w.rack) - 1):
        free = w.rack[rack, RACK_FREE]
        is_better = free >= width and (best == NONE or free > w.rack[best, RACK_FREE])
        if is_better and (fewest == 0 or _machines_for(w, rack, width) <= fewest):
            best = rack
    return best


@inner
def min_level(w, kind):
    """Return the least level of locality at which a width finds a place: 0, 1, 2, or `NO_LEVEL` where there is none."""
    width = w.kind[kind, ASKS]
    if width > w.scalar[FREE]:
        return NO_LEVEL
    if width <= w.scalar[LARGEST]:
        for free in range(width, w.scalar[LARGEST] + 1):
            if w.free_count[len(w.free_count) - 1, free] > 0:
                return 0
    elif _best_rack(w, width, w.kind[kind, FEWEST]) != NONE:
        return 0
    return 1 if _best_rack(w, width, 0) != NONE else 2


@inner
def _choose_in(w, rack, left):
    """Choose GPUs of a rack, machines with most free ones first; return how many are still wanted."""
    first, behind = w.rack[rack, RACK_FIRST], w.rack[rack + 1, RACK_FIRST]
    for free in range(w.scalar[LARGEST], 0, -1):
        if left > 0 and w.free_count[rack, free] > 0:
            for at in range(first, behind):
                machine = w.machine[at, BY_RACK]
                if left > 0 and w.machine[machine, FREE_GPUS] == free:
                    chosen = w.scalar[CHOSEN]
                    w.choice[chosen, 0], w.choice[chosen, 1] = machine, min(free, left)
                    w.scalar[CHOSEN] = chosen + 1
                    left -= min(free, left)
    return left


@inner
def choose(w, kind, level):
    """Choose GPUs for a width at a level of locality that has room for it: racks with most free ones first."""
    width = w.kind[kind, ASKS]
    w.scalar[CHOSEN] = 0
    if level < 2:
        _choose_in(w, _best_rack(w, width, w.kind[kind, FEWEST] if level == 0 else 0), width)
        return
    for rack in range(len(w.rack)):
        w.rack[rack, IS_PASSED] = 0
    while width > 0:
        most = NONE
        for rack in range(len(w.rack) - 1):
            if not w.rack[rack, IS_PASSED] and (most == NONE or w.rack[rack, RACK_FREE] > w.rack[most, RACK_FREE]):
                most = rack
        w.rack[most, IS_PASSED] = 1
        width = _choose_in(w, most, width)


@inner
def _count(w, job, change):
    """Count a job in or out where it waits."""
    level, kind = w.job[job, LEVEL], w.job[job, KIND]
    w.queue[w.job[job, QUEUE], AT_LEVEL + level] += change
    w.kind[kind, NUM_AT + level] += change
    w.group[w.job[job, GROUP], GROUP_WAITING] += change
    w.scalar[WAITING_JOBS] += change


@inner
def _line_up(w, job):
    """Put a job behind those of its width and level, of which none began to wait later."""
    kind, level = w.job[job, KIND], w.job[job, LEVEL]
    last = w.kind[kind, NEWEST + level]
    w.job[job, EARLIER], w.job[job, LATER] = last, NONE
    if last == NONE:
        w.kind[kind, OLDEST + level] = job
    else:
        w.job[last, LATER] = job
    w.kind[kind, NEWEST + level] = job


@inner
def _step_out(w, job):
    """Take a job out of those of its width and level."""
    kind, level = w.job[job, KIND], w.job[job, LEVEL]
    before, after = w.job[job, EARLIER], w.job[job, LATER]
    if before == NONE:
        w.kind[kind, OLDEST + level] = after
    else:
        w.job[before, LATER] = after
    if after == NONE:
        w.kind[kind, NEWEST + level] = before
    else:
        w.job[after, EARLIER] = before


@inner
def wait(w, job):
    """Let a job wait from now on, by its submission among those of its virtual cluster and width."""
    w.job[job, STATUS], w.job[job, SINCE], w.job[job, LEVEL] = WAITING, w.scalar[NOW], 0
    _line_up(w, job)
    queue = w.job[job, QUEUE]
    before, after = w.queue[queue, TAIL], NONE
    if before > job:  # it has run before: its place is near the front
        before, after = NONE, w.queue[queue, HEAD]
        while after < job:
            before, after = after, w.job[after, AFTER]
    w.job[job, BEFORE], w.job[job, AFTER] = before, after
    if before == NONE:
        w.queue[queue, HEAD] = job
    else:
        w.job[before, AFTER] = job
    if after == NONE:
        w.queue[queue, TAIL] = job
    else:
        w.job[after, BEFORE] = job
    _count(w, job, 1)


@inner
def dequeue(w, job):
    """Take a job out of the queues."""
    _count(w, job, -1)
    if w.job[job, LEVEL] < 2:
        _step_out(w, job)
    queue, before, after = w.job[job, QUEUE], w.job[job, BEFORE], w.job[job, AFTER]
    if before == NONE:
        w.queue[queue, HEAD] = after
    else:
        w.job[before, AFTER] = after
    if after == NONE:
        w.queue[queue, TAIL] = before
    else:
        w.job[after, BEFORE] = before


@inner
def relax_locality(w):
    """Relax the locality of the jobs that have waited long enough."""
    for kind in range(len(w.kind)):
        for level in range(2):
            job = w.kind[kind, OLDEST + level]
            while job != NONE and w.scalar[NOW] >= w.job[job, SINCE] + (level + 1) * w.scalar[STEP]:
                _step_out(w, job)
                _count(w, job, -1)
                w.job[job, LEVEL] = level + 1
                _count(w, job, 1)
                if level == 0:
                    _line_up(w, job)
                job = w.kind[kind, OLDEST + level]


@inner
def next_relaxation(w):
    """Return when the locality of a job that free GPUs would suffice for is relaxed next, `NEVER` without one."""
    when = NEVER
    for kind in range(len(w.kind)):
        if w.kind[kind, ASKS] <= w.scalar[FREE]:
            for level in range(2):
                job = w.kind[kind, OLDEST + level]
                if job != NONE:
                    when = min(when, w.job[job, SINCE] + (level + 1) * w.scalar[STEP])
    return when


@inner
def num_from(table, row, column, level):
    """Return how many jobs wait at a level or beyond, by their numbers at each level."""
    count = 0
    for each in range(level, 3):
        count += table[row, column + each]
    return count

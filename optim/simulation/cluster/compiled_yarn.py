"""Compiled loop of the capacity scheduler.

The loop makes the decisions of `optim.simulation.cluster.policies.yarn_cs`, some hundred times faster.

The order at one instant is: ends of jobs, failed attempts, machine failures and repairs, submissions, then one pass. The pass
starts waiting jobs, and preempts jobs of virtual clusters above quota for jobs of those within quota. If the free GPUs cannot
hold a gang of some width, the pass skips all jobs of that width: only the first job per locality level matters.

The state is stored in a few tables: with one array per column, Numba would take three times as long to compile.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optim.compiled import by_reference, compiled
from optim.core.arrays import FloatArray, IntArray
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import NO_JOB, Event, Run
from optim.models.cluster.rules import Rules, tries_of
from optim.models.cluster.workload import Workload
from optim.simulation.cluster.index.loop import WHO, level_order, next_event, pop_event, push_event, time_for, work_in
from optim.simulation.cluster.options import (
    BY_MACHINES,
    HALTS,
    KNOWN_OUTAGES,
    LOGGED,
    MAX_IDLE_CALLS,
    STEPS,
    EngineOptions,
    OutageFeed,
    Placement,
)
from optim.simulation.cluster.planning.engine import MAX_CALLS, as_log
from optim.simulation.cluster.policies.yarn_cs import YarnCs

NEVER = 2**62

NONE = -1
"""Holder of a free GPU."""

NOT_COME, WAITING, STARTING, RUNNING, STOPPING, BACKOFF, OVER = range(7)
"""States of a job. During a pass, the jobs that it starts are `STARTING`, and those that it stops are `STOPPING`."""

NUM_SCALARS = 28

NOW, ARRIVED, ACTIVE, ENDS, TURNS, FREE, HELD, RUNNING_JOBS, *_REST = range(NUM_SCALARS)

EVENTS, PLACES, IS_OVER, OUTAGES, AGAIN, IDLE_CALLS, CALLS, LAST_RUNNING, ORDERS, STARTED, STOPPED, CHOSEN, *_REST = (
    _REST
)

STEP, ENOUGH, LARGEST, OVERHEAD, CHECKPOINT, RETRY_WAIT, MAY_SPREAD, TAKES_FIRST = _REST
"""Positions in `World.scalar`: time and counters, sizes of the log, and constants."""

NUM_JOB_COLUMNS = 34

SUBMIT, WIDTH, DURATION, SLOWDOWN, _1, _2, KIND, GROUP, QUEUE, TRIES, FAILS, GOOD, LAST_TRY, TOLD, *_REST = range(
    NUM_JOB_COLUMNS
)

STATUS, SINCE, LEVEL, FIRST_START, BEGUN, RUN_SINCE, FACTOR, EXECUTED, SERVED, PAUSED, LOST, END, *_REST = _REST

TRIED, TRY_BASE, ORDER, BEFORE, AFTER, EARLIER, LATER, FIRST_GPU = _REST
"""Columns of `World.job`: the job's demands and failing attempts, its progress, and its neighbours in linked lists.

`BEFORE` and `AFTER` are neighbours in the queue of a waiting job, or among running jobs ordered by start. `EARLIER` and
`LATER` are neighbours among jobs of the same width and locality level, ordered by begin of waiting.
"""

SIZE, RACK, FIRST, FREE_GPUS, TRIAL, BY_SIZE, BY_RACK, GONE_FROM = range(8)
"""Columns of `World.machine`. The columns `BY_SIZE` and `BY_RACK` list all machines, sorted by size and by rack; `GONE_FROM` is
the time of a machine's permanent removal."""

HOLDER, NEXT_GPU, MACHINE_OF = range(3)
"""Columns of `World.gpu`: the job that holds the GPU, the next GPU of that job, and the GPU's machine."""

RACK_FREE, RACK_FIRST, IS_PASSED = range(3)
"""Columns of `World.rack`: free GPUs, position of the rack's first machine in `BY_RACK`, and whether a search has passed it."""

HEAD, TAIL, AT_LEVEL, _1, _2 = range(5)
"""Columns of `World.queue`: the first and the last waiting job of a virtual cluster and width, and the number of its
waiting jobs per locality level."""

ASKS, FEWEST, MIN_LEVEL, IS_HOPELESS, NUM_AT, _1, _2, OLDEST, _1, NEWEST, _1 = range(11)
"""Columns of `World.kind`, which has one row per width. In order: GPUs, minimum number of machines, lowest locality
level at which the free GPUs hold the gang, whether preemption is known to be useless, and number of waiting jobs per
level. Then, for levels 0 and 1: the job that has waited longest, and the job that has waited shortest."""

NO_LEVEL = 3

USED, SPARE, VISITED, GROUP_WAITING, REACHED, IS_PASSED_OVER = range(6)
"""Columns of `World.group`, which has one row per virtual cluster. In order: GPUs in use now, GPUs in use during a
search for victims, and GPUs in use at the visits of `take_back`. Then: number of waiting jobs, last job for which the
pass tried preemption, and whether the pass has ended its visits to this virtual cluster."""


@by_reference
class World(NamedTuple):
    """Complete state of a run.

    Parameters
    ----------
    scalar
        Single numbers; the positions are named above, from `NOW` to `TAKES_FIRST`.
    version
        Number of starts and stops of each job; shape (jobs,).
    job, machine, gpu, rack, queue, kind, group
        Tables with one row per job, machine and so on; the columns are named above. A queue belongs to a virtual
        cluster and a width; its row is group x kinds + kind.
    quota
        Quota of each virtual cluster in GPUs; shape (groups,).
    free_count
        Number of machines with 0, 1, ... free GPUs, one row per rack, and all racks in the last row; shape (racks + 1,
        largest + 1).
    levels
        For each size of gang, the numbers of free GPUs that a machine may have, in order of preference; see
        `optim.simulation.cluster.index.loop.level_order`.
    outage
        Failures and repairs known in advance; the columns are time, machine, and 1 for a failure or 0 for a repair;
        shape (n, 3).
    ends, turns
        Heap of the ends of jobs, and heap of failing attempts and retries.
    started, stopped, passed
        Jobs that a pass has started, jobs that it has stopped, and victims that it has considered; shape (GPUs,) each.
    choice
        Machines chosen for a gang, and number of chosen GPUs on each; shape (machines, 2).
    event, place
        Log of recent instants: `event` has the time, type, job and number of GPUs of each event, and `place` has the
        numbers of these GPUs.
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
    ends: IntArray
    turns: IntArray
    started: IntArray
    stopped: IntArray
    passed: IntArray
    choice: IntArray
    event: IntArray
    place: IntArray


def make_world(
    jobs: Workload, cluster: Cluster, quota: FloatArray, step_us: int, share: float, options: EngineOptions, events: int
) -> World:
    """Return the state before the first submission.

    Parameters
    ----------
    jobs, cluster, options
        Workload, cluster, and engine options.
    quota
        Quota of each virtual cluster in GPUs, positive; shape (groups,).
    step_us
        Microseconds after which a waiting job's locality is relaxed by one level.
    share
        Share of all GPUs in use above which virtual clusters under quota preempt jobs of virtual clusters over quota.
    events
        Maximum number of events in the log, and of GPU numbers in it.
    """
    widths, kind = np.unique(jobs.gpus, return_inverse=True)
    racks, gpus, largest = int(cluster.rack.max()) + 1, cluster.num_gpus, int(cluster.gpus.max())
    free_count = np.zeros((racks + 1, largest + 1), np.int64)
    np.add.at(free_count, (cluster.rack, cluster.gpus), 1)
    free_count[-1] = free_count[:-1].sum(axis=0)
    tries = tries_of(jobs, options.on_failures(Rules()))
    turns = 2 * gpus + 16 + int((tries.failing > 0).sum())  # one entry per running job, and per job in back-off
    return World(
        scalar=_scalars(cluster, step_us, share, options),
        version=np.zeros(len(jobs), np.int64),
        job=_jobs(jobs, kind, len(widths), options),
        machine=_machines(cluster, options),
        gpu=np.column_stack([np.full((gpus, 2), NONE), np.repeat(np.arange(cluster.num_machines), cluster.gpus)]),
        rack=_racks(cluster, racks),
        queue=np.tile(np.array([NONE, NONE, 0, 0, 0]), (len(jobs.groups) * len(widths), 1)),
        kind=_kinds(widths, largest),
        group=np.zeros((len(jobs.groups), 6), np.int64),
        quota=quota,
        free_count=free_count,
        levels=level_order(options.placement, jobs.gpus, largest),
        outage=np.zeros((0, 3), np.int64),
        ends=np.zeros((2 * gpus + 16, 3), np.int64),
        turns=np.zeros((turns, 3), np.int64),
        **{name: np.zeros(gpus, np.int64) for name in ("started", "stopped", "passed")},
        choice=np.zeros((cluster.num_machines, 2), np.int64),
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
    scalar[ENOUGH] = int(share * cluster.num_gpus)  # GPUs in use are an integer
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


def _machines(cluster: Cluster, options: EngineOptions) -> IntArray:
    columns = {
        SIZE: cluster.gpus,
        RACK: cluster.rack,
        FIRST: np.cumsum(cluster.gpus) - cluster.gpus,
        FREE_GPUS: cluster.gpus,
        TRIAL: 0 * cluster.gpus,
        BY_SIZE: np.lexsort((np.arange(cluster.num_machines), -cluster.gpus)),
        BY_RACK: np.argsort(cluster.rack, kind="stable"),
        GONE_FROM: options.gone_from(cluster),
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


@compiled
def set_free(w, machine, free):
    """Set the number of free GPUs of a machine."""
    before, rack = w.machine[machine, FREE_GPUS], w.machine[machine, RACK]
    w.machine[machine, FREE_GPUS] = free
    for row in (rack, len(w.free_count) - 1):
        w.free_count[row, before] -= 1
        w.free_count[row, free] += 1
    w.rack[rack, RACK_FREE] += free - before
    w.scalar[FREE] += free - before


@compiled
def _take_of(w, job, machine, count, last):
    """Give a job the first free GPUs of a machine, linked after its GPU `last`; return the last GPU given."""
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


@compiled
def take_chosen(w, job):
    """Give a job the chosen GPUs, lowest numbers first, so that the log lists them in order."""
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


@compiled
def give_back(w, job):
    """Release all GPUs of a job."""
    gpu = w.job[job, FIRST_GPU]
    while gpu != NONE:
        w.gpu[gpu, HOLDER] = NONE
        machine = w.gpu[gpu, MACHINE_OF]
        set_free(w, machine, w.machine[machine, FREE_GPUS] + 1)
        gpu = w.gpu[gpu, NEXT_GPU]
    w.job[job, FIRST_GPU] = NONE
    w.scalar[HELD] -= w.job[job, WIDTH]
    w.group[w.job[job, GROUP], USED] -= w.job[job, WIDTH]


@compiled
def _machines_for(w, rack, width):
    """Return the number of machines that a gang needs on a rack, most free GPUs first; the rack must have enough free GPUs."""
    count = 0
    for free in range(w.scalar[LARGEST], 0, -1):
        here = min(w.free_count[rack, free], (width + free - 1) // free)
        count += here
        width -= here * free
        if width <= 0:
            break
    return count


@compiled
def _best_rack(w, width, fewest):
    """Return the rack with the most free GPUs that holds a gang on `fewest` machines (any number if 0), or `NONE`."""
    best = NONE
    for rack in range(len(w.rack) - 1):
        free = w.rack[rack, RACK_FREE]
        is_better = free >= width and (best == NONE or free > w.rack[best, RACK_FREE])
        if is_better and (fewest == 0 or _machines_for(w, rack, width) <= fewest):
            best = rack
    return best


@compiled
def min_level(w, kind):
    """Return the lowest locality level at which the free GPUs hold a gang of a width: 0, 1, 2, or `NO_LEVEL`."""
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


@compiled
def _choose_in(w, rack, left):
    """Choose GPUs of a rack, machines with the most free GPUs first; return the number still missing."""
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


@compiled
def choose(w, kind, level):
    """Choose GPUs for a width at a level at which the gang fits, racks with the most free GPUs first."""
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


@compiled
def _count(w, job, change):
    """Add a job to, or remove it from, the counts of waiting jobs."""
    level, kind = w.job[job, LEVEL], w.job[job, KIND]
    w.queue[w.job[job, QUEUE], AT_LEVEL + level] += change
    w.kind[kind, NUM_AT + level] += change
    w.group[w.job[job, GROUP], GROUP_WAITING] += change


@compiled
def _line_up(w, job):
    """Insert a job into the list of its width and level, ordered by begin of waiting."""
    kind, level = w.job[job, KIND], w.job[job, LEVEL]
    last = w.kind[kind, NEWEST + level]
    w.job[job, EARLIER], w.job[job, LATER] = last, NONE
    if last == NONE:
        w.kind[kind, OLDEST + level] = job
    else:
        w.job[last, LATER] = job
    w.kind[kind, NEWEST + level] = job


@compiled
def _step_out(w, job):
    """Remove a job from the list of its width and level."""
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


@compiled
def wait(w, job):
    """Add a job to the waiting jobs of its virtual cluster and width, ordered by submission."""
    w.job[job, STATUS], w.job[job, SINCE], w.job[job, LEVEL] = WAITING, w.scalar[NOW], 0
    _line_up(w, job)
    queue = w.job[job, QUEUE]
    before, after = w.queue[queue, TAIL], NONE
    if before > job:  # it has run before, so its position is near the front
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


@compiled
def dequeue(w, job):
    """Remove a job from the queues."""
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


@compiled
def relax_locality(w):
    """Relax the locality of jobs whose waiting time has reached the next step."""
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


@compiled
def next_relaxation(w):
    """Return the next time at which the locality of a job with enough free GPUs is relaxed, or `NEVER`."""
    when = NEVER
    for kind in range(len(w.kind)):
        if w.kind[kind, ASKS] <= w.scalar[FREE]:
            for level in range(2):
                job = w.kind[kind, OLDEST + level]
                if job != NONE:
                    when = min(when, w.job[job, SINCE] + (level + 1) * w.scalar[STEP])
    return when


@compiled
def num_from(table, row, column, level):
    """Return the number of jobs that wait at a level or above, from the counts per level."""
    count = 0
    for each in range(level, 3):
        count += table[row, column + each]
    return count


STARTS, PREEMPTED, ENDED, CRASHED = int(Event.START), int(Event.PREEMPT), int(Event.END), int(Event.CRASH)

FAULTED, GAVE_UP = int(Event.FAULT), int(Event.GIVE_UP)


@compiled
def log(w, kind, job, first_gpu):
    """Append an event to the log, with the job's GPUs from `first_gpu` on."""
    event, entry, gpu = w.scalar[EVENTS], w.scalar[PLACES], first_gpu
    while gpu != NONE:
        w.place[entry] = gpu
        entry += 1
        gpu = w.gpu[gpu, NEXT_GPU]
    w.event[event, 0], w.event[event, 1], w.event[event, 2] = w.scalar[NOW], kind, job
    w.event[event, 3] = entry - w.scalar[PLACES]
    w.scalar[EVENTS], w.scalar[PLACES] = event + 1, entry


@compiled
def push_turn(w, when, job):
    """Schedule a failing attempt of a job, or the end of its back-off."""
    push_event(w.scalar, w.version, w.turns, TURNS, when, job)


@compiled
def _begin_of_try(w, job):
    """Return the run time at which a job's present attempt begins."""
    number, good = w.job[job, TRIED], w.job[job, GOOD]
    return min(number * w.job[job, FAILS], good) if number < w.job[job, TRIES] else good


@compiled
def _slowdown(w, job):
    """Return the slowdown of a job on its GPUs, by whether one machine, one rack or only the cluster contains them."""
    first = w.gpu[w.job[job, FIRST_GPU], MACHINE_OF]
    gpu, level = w.job[job, FIRST_GPU], 0
    while gpu != NONE:
        machine = w.gpu[gpu, MACHINE_OF]
        if w.machine[machine, RACK] != w.machine[first, RACK]:
            level = 2
        elif machine != first:
            level = max(level, 1)
        gpu = w.gpu[gpu, NEXT_GPU]
    return w.job[job, SLOWDOWN + level]


@compiled
def _list_running(w, job):
    """Insert a job into the running jobs, ordered by start, then by row."""
    after, before = NONE, w.scalar[LAST_RUNNING]
    while before != NONE and w.job[before, BEGUN] == w.scalar[NOW] and before > job:
        before, after = w.job[before, BEFORE], before
    w.job[job, BEFORE], w.job[job, AFTER] = before, after
    if before != NONE:
        w.job[before, AFTER] = job
    if after == NONE:
        w.scalar[LAST_RUNNING] = job
    else:
        w.job[after, BEFORE] = job
    w.scalar[RUNNING_JOBS] += 1


@compiled
def begin(w, job):
    """Start a job that has its GPUs."""
    now, is_first = w.scalar[NOW], w.job[job, FIRST_START] < 0
    if is_first:
        w.job[job, FIRST_START] = now
    since = now if is_first else now + w.scalar[OVERHEAD]
    w.job[job, STATUS], w.job[job, BEGUN], w.job[job, RUN_SINCE] = RUNNING, now, since
    w.job[job, ORDER] = w.scalar[ORDERS]
    w.scalar[ORDERS] += 1
    w.version[job] += 1
    _list_running(w, job)
    w.job[job, FACTOR] = _slowdown(w, job)
    log(w, STARTS, job, w.job[job, FIRST_GPU])
    if w.job[job, TRIED] < w.job[job, TRIES]:
        push_turn(w, since + w.job[job, FAILS] - (w.job[job, EXECUTED] - w.job[job, TRY_BASE]), job)
        return
    end = since + time_for(w.job[job, DURATION] - w.job[job, SERVED], w.job[job, FACTOR])
    push_event(w.scalar, w.version, w.ends, ENDS, end, job)
    told = since + w.job[job, TOLD] - w.job[job, EXECUTED]
    if w.job[job, TOLD] > w.job[job, EXECUTED] and told < end:
        push_turn(w, told, job)  # policies are informed: this only triggers a pass


@compiled
def stop(w, job, kind):
    """Record the progress of a job that has lost its GPUs, remove it from the running jobs, and log the event."""
    elapsed = max(0, w.scalar[NOW] - w.job[job, RUN_SINCE])
    w.job[job, EXECUTED] += elapsed
    w.job[job, PAUSED] += w.scalar[NOW] - w.job[job, BEGUN] - elapsed
    done = w.job[job, SERVED] + work_in(elapsed, w.job[job, FACTOR])
    if kind == ENDED:
        done = w.job[job, DURATION]
    elif kind == CRASHED:
        kept = max(w.job[job, SERVED], done // w.scalar[CHECKPOINT] * w.scalar[CHECKPOINT])
        w.job[job, LOST] += done - kept
        done = kept
    elif kind == FAULTED:
        w.job[job, LOST] += done - _begin_of_try(w, job)
        w.job[job, TRIED] += 1
        w.job[job, TRY_BASE] = w.job[job, EXECUTED]
        done = _begin_of_try(w, job)
    w.job[job, SERVED] = done
    w.version[job] += 1
    before, after = w.job[job, BEFORE], w.job[job, AFTER]
    if before != NONE:
        w.job[before, AFTER] = after
    if after == NONE:
        w.scalar[LAST_RUNNING] = before
    else:
        w.job[after, BEFORE] = before
    w.scalar[RUNNING_JOBS] -= 1
    if kind == FAULTED and w.job[job, TRIED] >= w.job[job, LAST_TRY]:
        kind = GAVE_UP
    if kind in (ENDED, GAVE_UP):
        w.job[job, STATUS], w.job[job, END] = OVER, w.scalar[NOW]
        w.scalar[ACTIVE] -= 1
    if kind in (ENDED, GAVE_UP, FAULTED):
        w.scalar[CALLS] = NONE
    log(w, kind, job, NONE)


@compiled
def lose(w, job, kind):
    """Take a job's GPUs before the pass, at its end or at a failure; after a failure it waits, or backs off first."""
    give_back(w, job)
    stop(w, job, kind)
    if w.job[job, STATUS] == OVER:
        return
    if kind == FAULTED and w.scalar[RETRY_WAIT] > 0:
        w.job[job, STATUS] = BACKOFF
        push_turn(w, w.scalar[NOW] + w.scalar[RETRY_WAIT], job)
    else:
        wait(w, job)


@compiled
def _find_levels(w):
    """Record for each width the lowest level at which it fits; count the widths with a waiting job at that level or above."""
    count = 0
    for kind in range(len(w.kind)):
        w.kind[kind, MIN_LEVEL] = NO_LEVEL
        if w.kind[kind, ASKS] <= w.scalar[FREE] and num_from(w.kind, kind, NUM_AT, 0):
            level = min_level(w, kind)
            w.kind[kind, MIN_LEVEL] = level
            count += num_from(w.kind, kind, NUM_AT, level) > 0
    return count


@compiled
def _first_in(w, group):
    """Return the first waiting job of a virtual cluster that fits now, or `NONE`."""
    first = NONE
    for kind in range(len(w.kind)):
        level, queue = w.kind[kind, MIN_LEVEL], group * len(w.kind) + kind
        if num_from(w.queue, queue, AT_LEVEL, level):
            job = w.queue[queue, HEAD]
            while w.job[job, LEVEL] < level:
                job = w.job[job, AFTER]
            if first == NONE or job < first:
                first = job
    return first


@compiled
def _min_used(w):
    """Return the first job that fits, of the virtual cluster with the lowest share of its quota in use, or `NONE`."""
    best, least = NONE, 0.0
    for group in range(len(w.group)):
        share = w.group[group, USED] / w.quota[group]
        if w.group[group, GROUP_WAITING] and (best == NONE or share < least):
            job = _first_in(w, group)
            if job != NONE:
                best, least = job, share
    return best


@compiled
def start(w, job):
    """Start a waiting job on the chosen GPUs."""
    dequeue(w, job)
    take_chosen(w, job)
    w.job[job, STATUS] = STARTING
    w.started[w.scalar[STARTED]] = job
    w.scalar[STARTED] += 1


@compiled
def fill(w):
    """Place waiting jobs until none fits."""
    while _find_levels(w):
        job = _min_used(w)
        choose(w, w.job[job, KIND], w.job[job, LEVEL])
        start(w, job)


@compiled
def _forget_hopeless(w):
    for kind in range(len(w.kind)):
        w.kind[kind, IS_HOPELESS] = 0


@compiled
def _num_above(w):
    """Return the number of virtual clusters at least one GPU above quota, and reset the trial usage."""
    count = 0
    for group in range(len(w.group)):
        w.group[group, SPARE] = w.group[group, USED]
        count += w.group[group, SPARE] - 1 >= w.quota[group]
    return count


@compiled
def _begin_trial(w):
    """Reset the trial; return the numbers of free GPUs in all, on completely free machines, and on the emptiest machine."""
    whole = most = 0
    for machine in range(len(w.machine)):
        free = w.machine[machine, FREE_GPUS]
        w.machine[machine, TRIAL] = free
        whole += free if free == w.machine[machine, SIZE] else 0
        most = max(most, free)
    return w.scalar[FREE], whole, most


@compiled
def _free_on_trial(w, victim, whole, most):
    """Release a victim's GPUs on trial.

    Return the new number of free GPUs on completely free machines, and the new maximum on one machine.
    """
    gpu = w.job[victim, FIRST_GPU]
    while gpu != NONE:
        machine = w.gpu[gpu, MACHINE_OF]
        free = w.machine[machine, TRIAL] + 1
        w.machine[machine, TRIAL] = free
        whole += free if free == w.machine[machine, SIZE] else 0
        most = max(most, free)
        gpu = w.gpu[gpu, NEXT_GPU]
    return whole, most


@compiled
def _choose_one(w, width):
    """Return the machine that the engine's placement rule chooses for a gang that fits on one machine on trial."""
    if w.scalar[TAKES_FIRST]:
        for machine in range(len(w.machine)):
            if w.machine[machine, TRIAL] >= width:
                return machine
    for nth in range(w.levels.shape[1]):
        for machine in range(len(w.machine)):
            if w.machine[machine, TRIAL] == w.levels[width, nth]:
                return machine
    return NONE


@compiled
def _add_choice(w, machine, count):
    chosen = w.scalar[CHOSEN]
    w.choice[chosen, 0], w.choice[chosen, 1] = machine, count
    w.scalar[CHOSEN] = chosen + 1
    return count


@compiled
def _choose_on_trial(w, width, whole, most):
    """Choose GPUs by the placement rule: on one machine, on completely free machines, or on those with the most free GPUs."""
    w.scalar[CHOSEN] = 0
    if width <= w.scalar[LARGEST] and most >= width:
        _add_choice(w, _choose_one(w, width), width)
        return
    if width > w.scalar[LARGEST] and whole >= width:
        for at in range(len(w.machine)):
            machine = w.machine[at, BY_SIZE]
            if width > 0 and w.machine[machine, TRIAL] == w.machine[machine, SIZE]:
                width -= _add_choice(w, machine, min(width, w.machine[machine, SIZE]))
        return
    for free in range(w.scalar[LARGEST], 0, -1):
        for machine in range(len(w.machine)):
            if width > 0 and w.machine[machine, TRIAL] == free:
                width -= _add_choice(w, machine, min(width, free))


@compiled
def _stop_on_choice(w, passed):
    """Stop those of the first `passed` victims that hold chosen GPUs.

    On each chosen machine, the first GPUs that are free or held by one of these victims are chosen.
    """
    for nth in range(passed):
        w.job[w.passed[nth], STATUS] = STOPPING  # until the victims without chosen GPUs are known
    before = w.scalar[STOPPED]
    for nth in range(w.scalar[CHOSEN]):
        gpu, left = w.machine[w.choice[nth, 0], FIRST], w.choice[nth, 1]
        while left > 0:
            holder = w.gpu[gpu, HOLDER]
            if holder == NONE:
                left -= 1
            elif w.job[holder, STATUS] == STOPPING:
                left -= 1
                is_new = True
                for at in range(before, w.scalar[STOPPED]):
                    is_new = is_new and w.stopped[at] != holder
                if is_new:
                    w.stopped[w.scalar[STOPPED]] = holder
                    w.scalar[STOPPED] += 1
            gpu += 1
    for nth in range(passed):
        w.job[w.passed[nth], STATUS] = RUNNING
    for at in range(before, w.scalar[STOPPED]):
        w.job[w.stopped[at], STATUS] = STOPPING
        give_back(w, w.stopped[at])


@compiled
def _make_room(w, job):
    """Stop the newest jobs of virtual clusters above quota until a job fits, and start it; return whether it fits."""
    width, passed = w.job[job, WIDTH], 0
    free, whole, most = _begin_trial(w)
    above, victim = _num_above(w), w.scalar[LAST_RUNNING]
    while victim != NONE and above:
        group, held = w.job[victim, GROUP], w.job[victim, WIDTH]
        if w.job[victim, STATUS] == RUNNING and w.group[group, SPARE] - held >= w.quota[group]:
            w.group[group, SPARE] -= held
            above -= w.group[group, SPARE] - 1 < w.quota[group]
            w.passed[passed] = victim
            passed += 1
            free += held
            whole, most = _free_on_trial(w, victim, whole, most)
            is_held = most >= width if width <= w.scalar[LARGEST] else whole >= width
            if is_held or (w.scalar[MAY_SPREAD] and free >= width):
                _choose_on_trial(w, width, whole, most)
                _stop_on_choice(w, passed)
                start(w, job)
                return True
        victim = w.job[victim, BEFORE]
    return False


@compiled
def _next_stuck(w, group, before):
    """Return a virtual cluster's next job before `before` that its quota covers and that preemption may help, or `NONE`."""
    first = NONE
    for kind in range(len(w.kind)):
        if not w.kind[kind, IS_HOPELESS] and w.kind[kind, ASKS] <= w.quota[group] - w.group[group, USED]:
            job = w.queue[group * len(w.kind) + kind, HEAD]
            while job != NONE and job <= w.group[group, REACHED]:
                job = w.job[job, AFTER]
            if job != NONE and job < before and (first == NONE or job < first):
                first = job
    return first


@compiled
def _may_help(w):
    """Return whether a job within quota waits while a virtual cluster is above quota."""
    if w.scalar[HELD] <= w.scalar[ENOUGH] or not _num_above(w):
        return False
    _forget_hopeless(w)
    for group in range(len(w.group)):
        w.group[group, REACHED] = NONE
    for group in range(len(w.group)):  # noqa: SIM110  # compiled
        if w.group[group, GROUP_WAITING] and _next_stuck(w, group, NEVER) != NONE:
            return True
    return False


@compiled
def _min_visited(w):
    """Return the virtual cluster that the pass visits next, or `NONE` at its end."""
    best, least = NONE, 0.0
    for group in range(len(w.group)):
        share = w.group[group, VISITED] / w.quota[group]
        if not w.group[group, IS_PASSED_OVER] and (best == NONE or share < least):
            best, least = group, share
    return best


@compiled
def take_back(w):
    """Preempt jobs for waiting jobs that do not fit, in the order in which the pass skipped the latter.

    The pass visits the virtual cluster with the lowest share of its quota in use. It skips jobs that do not fit until
    it starts one. If it starts none, it visits that virtual cluster no more. `fill` omits jobs that do not fit; their
    order is reconstructed here from the jobs that `fill` started.
    """
    if not _may_help(w):
        return
    for group in range(len(w.group)):
        w.group[group, IS_PASSED_OVER], w.group[group, VISITED] = 0, w.group[group, USED]
    filled = w.scalar[STARTED]
    for nth in range(filled):
        w.group[w.job[w.started[nth], GROUP], VISITED] -= w.job[w.started[nth], WIDTH]
    nth = 0
    while True:
        group = _min_visited(w)
        if group == NONE:
            return
        before = NEVER
        if nth < filled and w.job[w.started[nth], GROUP] == group:
            before = w.started[nth]
            w.group[group, VISITED] += w.job[before, WIDTH]
            nth += 1
        else:
            w.group[group, IS_PASSED_OVER] = 1
        job = _next_stuck(w, group, before)
        while job != NONE:
            if w.scalar[HELD] <= w.scalar[ENOUGH]:
                return
            w.group[group, REACHED] = job
            if _make_room(w, job):
                _forget_hopeless(w)
            else:
                w.kind[w.job[job, KIND], IS_HOPELESS] = 1
            job = _next_stuck(w, group, before)


FAILED, REPAIRED = int(Event.FAIL), int(Event.REPAIR)


@compiled
def _next_turn(w):
    return next_event(w.scalar, w.version, w.turns, TURNS)


@compiled
def _next_end(w):
    return next_event(w.scalar, w.version, w.ends, ENDS)


@compiled
def _end_jobs(w):
    """End jobs whose work is complete."""
    while _next_end(w) <= w.scalar[NOW]:
        job = w.ends[0, WHO]
        pop_event(w.scalar, w.ends, ENDS)
        lose(w, job, ENDED)


@compiled
def _take_turns(w):
    """Apply failing attempts that are due, and return jobs from back-off to the queue."""
    while _next_turn(w) <= w.scalar[NOW]:
        job = w.turns[0, WHO]
        pop_event(w.scalar, w.turns, TURNS)
        if w.job[job, STATUS] == BACKOFF:
            w.scalar[CALLS] = NONE
            wait(w, job)
        elif w.job[job, TRIED] < w.job[job, TRIES]:
            lose(w, job, FAULTED)


@compiled
def _first_on(w, machine):
    """Return the first job that has GPUs on a machine, or `NONE`."""
    first, job = w.machine[machine, FIRST], NONE
    for gpu in range(first, first + w.machine[machine, SIZE]):
        holder = w.gpu[gpu, HOLDER]
        if holder != NONE and (job == NONE or holder < job):
            job = holder
    return job


@compiled
def _log_machine(w, kind, machine):
    gpu = w.machine[machine, FIRST]
    next_gpu = w.gpu[gpu, NEXT_GPU]
    w.gpu[gpu, NEXT_GPU] = NONE
    log(w, kind, NO_JOB, gpu)
    w.gpu[gpu, NEXT_GPU] = next_gpu


@compiled
def _apply_outages(w):
    """Apply machine failures and repairs that are due."""
    while w.scalar[OUTAGES] < len(w.outage) and w.outage[w.scalar[OUTAGES], 0] == w.scalar[NOW]:
        machine, fails = w.outage[w.scalar[OUTAGES], 1], w.outage[w.scalar[OUTAGES], 2]
        w.scalar[OUTAGES] += 1
        _log_machine(w, FAILED if fails else REPAIRED, machine)
        while fails and _first_on(w, machine) != NONE:
            lose(w, _first_on(w, machine), CRASHED)
        set_free(w, machine, 0 if fails else w.machine[machine, SIZE])


@compiled
def _arrive(w):
    """Add the jobs submitted now to the queues."""
    while w.scalar[ARRIVED] < len(w.job) and w.job[w.scalar[ARRIVED], SUBMIT] == w.scalar[NOW]:
        w.scalar[ARRIVED] += 1
        w.scalar[ACTIVE] += 1
        w.scalar[CALLS] = NONE
        wait(w, w.scalar[ARRIVED] - 1)


@compiled
def _log_stops(w):
    """Log the jobs that the pass stopped, in order of their starts."""
    for nth in range(w.scalar[STOPPED]):
        job, at = w.stopped[nth], nth
        while at > 0 and w.job[w.stopped[at - 1], ORDER] > w.job[job, ORDER]:
            w.stopped[at] = w.stopped[at - 1]
            at -= 1
        w.stopped[at] = job
    for nth in range(w.scalar[STOPPED]):
        stop(w, w.stopped[nth], PREEMPTED)


@compiled
def _look(w):
    """Queue the jobs that the last pass stopped, and relax locality."""
    for nth in range(w.scalar[STOPPED]):
        wait(w, w.stopped[nth])
    w.scalar[STARTED] = w.scalar[STOPPED] = 0
    relax_locality(w)


@compiled
def _next_time(w):
    """Return the time of the next event."""
    when = min(_next_end(w), _next_turn(w), w.scalar[AGAIN])
    if w.scalar[ARRIVED] < len(w.job):
        when = min(when, w.job[w.scalar[ARRIVED], SUBMIT])
    if len(w.outage):
        when = min(when, w.outage[w.scalar[OUTAGES], 0])
    return when


@compiled
def _are_up(w):
    """Return whether all machines are up, except those removed permanently."""
    for machine in range(len(w.machine)):
        if w.machine[machine, FREE_GPUS] < w.machine[machine, SIZE] and w.machine[machine, GONE_FROM] > w.scalar[NOW]:
            return False
    return True


@compiled
def _give_up(w, why):
    """Stop all running jobs in order of their starts, because no job can complete any more."""
    w.scalar[STOPPED] = 0
    job = w.scalar[LAST_RUNNING]
    while job != NONE:
        w.stopped[w.scalar[STOPPED]] = job
        w.scalar[STOPPED] += 1
        job = w.job[job, BEFORE]
    _log_stops(w)
    w.scalar[IS_OVER] = why


@compiled
def advance(w, steps, margin):
    """Simulate until the end, for `steps` instants, or until outages or log space run out.

    The log must have space for `margin` events per instant.

    The function is long because every intermediate call would make Numba optimise the called loops again.
    """
    w.scalar[EVENTS] = w.scalar[PLACES] = 0
    for _ in range(steps):
        if w.scalar[EVENTS] + margin > len(w.event) or w.scalar[PLACES] + margin > len(w.place):
            return
        if len(w.outage) and w.scalar[OUTAGES] == len(w.outage):
            return
        is_through = w.scalar[ARRIVED] == len(w.job)
        when = NEVER if is_through and w.scalar[ACTIVE] == 0 else _next_time(w)
        if when == NEVER or w.scalar[IDLE_CALLS] > MAX_IDLE_CALLS or w.scalar[CALLS] > MAX_CALLS:
            _give_up(w, BY_MACHINES if when < NEVER and w.scalar[IDLE_CALLS] > MAX_IDLE_CALLS else 1)
            return
        w.scalar[NOW] = when
        _end_jobs(w)
        _take_turns(w)
        _apply_outages(w)
        _arrive(w)
        w.scalar[CALLS] += 1  # restarts from -1 if a job ended or was submitted
        _look(w)
        fill(w)
        take_back(w)
        w.scalar[AGAIN] = next_relaxation(w)
        _log_stops(w)
        for nth in range(w.scalar[STARTED]):
            begin(w, w.started[nth])
        is_idle = w.scalar[RUNNING_JOBS] == 0 and w.scalar[ARRIVED] == len(w.job)
        w.scalar[IDLE_CALLS] = w.scalar[IDLE_CALLS] + _are_up(w) if is_idle else 0


def play_capacity(
    jobs: Workload,
    cluster: Cluster,
    policy: YarnCs,
    options: EngineOptions,
    seed: int,
    watch: Callable[[int], bool] | None = None,
) -> Run | None:
    """Simulate jobs until all are complete or none can progress; return None if `watch` requests a stop.

    Jobs must use complete GPUs of one type, machines must have enough vCPUs and memory, and the policy must have no wrapper.
    """
    policy.begin(cluster, seed)
    margin = 6 * cluster.num_gpus + 2 * cluster.num_machines + 16
    share = policy.options.preempts_above
    world = make_world(jobs, cluster, policy.limit, policy.step_us, share, options, LOGGED + margin)
    feed = OutageFeed(cluster, options, seed)
    events: list[IntArray] = []
    places: list[IntArray] = []
    while not world.scalar[IS_OVER]:
        if world.scalar[OUTAGES] == len(world.outage):
            world = world._replace(outage=feed.take_many(KNOWN_OUTAGES))
            world.scalar[OUTAGES] = 0
        advance(world, STEPS, margin)
        events.append(world.event[: world.scalar[EVENTS]].copy())
        places.append(world.place[: world.scalar[PLACES]].copy())
        if watch is not None and watch(int(world.scalar[ARRIVED])) and not world.scalar[IS_OVER]:
            return None
    return _as_run(jobs, cluster, policy, options, world, np.concatenate(events), np.concatenate(places))


def _as_run(
    jobs: Workload,
    cluster: Cluster,
    policy: YarnCs,
    options: EngineOptions,
    world: World,
    events: IntArray,
    places: IntArray,
) -> Run:
    """Return the log and counters of the loop as a run."""
    log = as_log(cluster, events, places)
    table = {name: world.job[:, name].copy() for name in (FIRST_START, END, EXECUTED, PAUSED, LOST)}
    end = np.where(table[END] != NONE, table[END], np.maximum(world.scalar[NOW], jobs.submit_us))
    return Run(
        policy=policy.name,
        log=log,
        first_start_us=np.where(table[FIRST_START] != NONE, table[FIRST_START], end),
        end_us=end,
        executed_us=table[EXECUTED],
        overhead_us=table[PAUSED],
        lost_us=table[LOST],
        is_done=log.is_done(len(jobs)),
        rules=options.on_failures(policy.rules(options)),
        allocated_gpu_us=float(jobs.gpus @ (table[EXECUTED] + table[PAUSED])),
        overhead_gpu_us=float(jobs.gpus @ table[PAUSED]),
        figures=dict(policy.figures()),
        worth=policy.worth(),
        halted=HALTS[int(world.scalar[IS_OVER])],
    )

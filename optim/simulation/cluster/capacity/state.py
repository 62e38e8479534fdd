"""What the compiled loop of the capacity scheduler works on: one table a kind of thing, a row a thing, a column a quantity.

A loop is compiled for every array that it is handed apart: few tables cost a third of many columns.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optim.core.by_reference import by_reference
from optim.models.cluster.retries import tries_of
from optim.models.cluster.rules import Rules
from optim.models.cluster.workload import Workload
from optim.models.cluster.world import Cluster, FloatArray, IntArray
from optim.simulation.cluster.options import EngineOptions, Placement
from optim.simulation.cluster.state import level_order

NEVER = 2**62
NOBODY = -1
"""Holder of a GPU that no job has."""

NOT_COME, WAITING, STARTING, RUNNING, STOPPING, HELD_BACK, OVER = range(7)
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
SUBMIT, WIDTH, DURATION, SLOWDOWN, _1, _2, KIND, GROUP, CELL, TRIES, FAILS, GOOD, LAST_TRY, TOLD, *_REST = range(
    NUM_JOB_COLUMNS
)
STATUS, SINCE, LEVEL, FIRST_START, BEGUN, RUN_SINCE, FACTOR, EXECUTED, SERVED, PAUSED, LOST, END, *_REST = _REST
TRIED, TRY_BASE, ORDER, BEFORE, AFTER, EARLIER, LATER, FIRST_GPU = _REST
"""Columns of `World.job`: what it asks for and which tries fail; what became of it; and its neighbours in lists.

`BEFORE` and `AFTER` are its neighbours in its cell while it waits, and among running jobs by start while it runs. `EARLIER`
and `LATER` are those in the list of jobs of its width and level of locality, by when they began to wait.
"""

SIZE, RACK, FIRST, FREE_GPUS, TRIAL, BY_SIZE, BY_RACK = range(7)
"""Columns of `World.machine`; `BY_SIZE` and `BY_RACK` list machines in these orders."""

HOLDER, NEXT_GPU, MACHINE_OF = range(3)
"""Columns of `World.gpu`: which job has it, the job's next one, and its machine."""

RACK_FREE, RACK_FIRST, IS_PASSED = range(3)
"""Columns of `World.rack`: free GPUs, where its machines begin in `BY_RACK`, and whether a search went past it."""

HEAD, TAIL, AT_LEVEL, _1, _2 = range(5)
"""Columns of `World.cell`, the jobs of a virtual cluster and a width that wait: first and last, and how many at each level."""

ASKS, FEWEST, LEAST_LEVEL, IS_HOPELESS, NUM_AT, _1, _2, OLDEST, _1, NEWEST, _1 = range(11)
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
    job, machine, gpu, rack, cell, kind, group
        Tables: rows are things, columns those above. A cell is a virtual cluster and a width, at group x kinds + kind.
    quota
        GPUs of each virtual cluster; shape (groups,).
    shelf
        How many machines of each rack, and in the last row of all, have 0, 1, ... free GPUs; shape (racks + 1, largest + 1).
    levels
        Which numbers of free GPUs a gang prefers of a machine; see `optim.simulation.cluster.state.level_order`.
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
    cell: IntArray
    kind: IntArray
    group: IntArray
    quota: FloatArray
    shelf: IntArray
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
    shelf = np.zeros((racks + 1, largest + 1), np.int64)
    np.add.at(shelf, (cluster.rack, cluster.gpus), 1)
    shelf[-1] = shelf[:-1].sum(axis=0)
    tries = tries_of(jobs, options.on_failures(Rules()))
    turns = 2 * gpus + 16 + int((tries.failing > 0).sum())  # whoever runs, and whoever is held back
    heaps = {f"end_{part}": np.zeros(2 * gpus + 16, np.int64) for part in ("time", "job", "version")}
    heaps |= {f"turn_{part}": np.zeros(turns, np.int64) for part in ("time", "job", "version")}
    return World(
        scalar=_scalars(cluster, step_us, share, options),
        version=np.zeros(len(jobs), np.int64),
        job=_jobs(jobs, kind, len(widths), options),
        machine=_machines(cluster),
        gpu=np.column_stack([np.full((gpus, 2), NOBODY), np.repeat(np.arange(cluster.num_machines), cluster.gpus)]),
        rack=_racks(cluster, racks),
        cell=np.tile(np.array([NOBODY, NOBODY, 0, 0, 0]), (len(jobs.groups) * len(widths), 1)),
        kind=_kinds(widths, largest),
        group=np.zeros((len(jobs.groups), 6), np.int64),
        quota=quota,
        shelf=shelf,
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
    scalar[[FREE, AGAIN, LAST_RUNNING]] = cluster.num_gpus, NEVER, NOBODY
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
        CELL: jobs.group * kinds + kind,
        TRIES: tries.failing,
        FAILS: tries.fails,
        GOOD: tries.good,
        LAST_TRY: tries.last,
        TOLD: jobs.fails_us if is_one_piece else NOBODY,
        **dict.fromkeys((FIRST_START, END, BEFORE, AFTER, EARLIER, LATER, FIRST_GPU), NOBODY),
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
    table[:, OLDEST:] = NOBODY
    return table

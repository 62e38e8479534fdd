"""The compiled pass of policies with reservations, and their calendars.

Each machine has a calendar of the known times at which its GPUs become free or are taken. Running jobs are expected to
end by their estimates. Reserved jobs are expected to use their GPUs from their reserved starts for the length of their
estimates. Machines leave and return as planned. A job fits at a time if the placement rule finds GPUs that are free
from then on for its estimated run time. `optim.simulation.cluster.index.policy.Reservations` describes the rules; a
pass is part of the loop of `optim.simulation.cluster.index.loop`.

Reserved starts never move later while estimates are right. A pass therefore only checks, for each reserved job, whether
a machine with newly freed GPUs lets it start earlier. Jobs without a reservation are in one search tree per width, over
their estimates: a pass finds the first job that may start without visiting the other jobs. With priorities, all jobs
without a reservation are in one list, because their order changes at each update. Reservations are then planned again
from the first job whose position changed.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from optim.compiled import by_reference, compiled
from optim.core.arrays import IntArray
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.workload import Workload
from optim.simulation.cluster.index.loop import (
    END,
    ENDS,
    FAILURES,
    FREE_GPUS,
    IS_OVER,
    LEAVE,
    NEVER,
    NONE,
    NOW,
    OUTAGES,
    RUNNING,
    RUNNING_JOBS,
    WHO,
    Buffer,
    Setup,
    State,
    apply_outages,
    begin_run,
    is_before,
    is_halted,
    next_event,
    next_time,
    pop_event,
    pop_waiting,
    stop_job,
    take,
    take_submitted,
    take_turns,
)
from optim.simulation.cluster.index.policy import IndexPolicy, histories, stated_estimates
from optim.simulation.cluster.index.priorities import (
    IS_USED,
    Priorities,
    is_look_due,
    key_of,
    look,
    next_look,
    note_held,
)
from optim.simulation.cluster.options import EngineOptions

(
    WAITING,
    RESERVED,
    NUM_RUNNING,
    STAMP,
    SPARE,
    NEXT_PLANNED,
    IS_BROKEN,
    CHOSEN,
    DEPTH,
    PAST,
    DEFAULT,
    RECENT,
    NUM_SCALARS,
) = range(13)
"""Positions in `Book.scalar`. In order: number of waiting jobs without a reservation, of waiting jobs with a
reservation, and of running jobs; number of the last change; first unused node; earliest reserved start; whether
reserved starts on some machine may be invalid; number of chosen machines. Then three options of the policy, and the
number of machines changed in this pass or the previous one."""

(
    ESTIMATE,
    LIMIT,
    HISTORY,
    LEAF,
    NEED,
    ENDS_BY,
    PLANNED,
    PROMISED,
    RESERVED_AT,
    CHECKED,
    VERSION,
    NODE,
    SHIFTS,
    NUM_COLUMNS,
) = range(14)
"""Columns of `Book.job`. In order: estimated run time (`NONE` until it is guessed), run time at which the job is stopped, index
of its history, position in its tree, estimate plus pause of its next start, expected end, reserved start, first reserved start,
and time of that first reservation. Then: last change for which an earlier start was considered, version of the job's run, its
first node, and the last change of its machine after which enough GPUs are free just before its reserved start."""

TIME, GPUS, MACHINE, JOB, NEXT, BEFORE, SIBLING, NUM_NODE_COLUMNS = range(8)
"""Columns of `Book.node`: time at which GPUs of a machine become free or are taken, their number (below 0 if they are
taken), the machine, and the job (`NONE` for a planned outage). Then: the next and the previous node of the calendar,
and the next node of the job."""

HEAD, CHANGED, ROOM, IS_LATE, FROM, TO, FROM_BEFORE, TO_BEFORE, LISTED, NUM_MACHINE_COLUMNS = range(10)
"""Columns of `Book.machine`. In order: first node, last change that freed GPUs, number of GPUs free throughout a
period, and whether GPUs become free later than expected. Then: begin and end of the period that this pass freed, begin
and end of the period that the previous pass freed, and last change included in its listed windows."""

LONGEST, EARLIEST = range(2)
"""Columns of `Book.window`. A window is a period in which a machine has at least a given number of free GPUs. The
columns are the length of the longest window that overlaps newly freed time, and the earliest begin of such windows."""

COUNT, OLDEST, VALUES = range(3)
"""Columns of `Book.past`, with one history per row: number of run times, position of the next one to store, and first run
time."""


@by_reference
class Book(NamedTuple):
    """Reservations of a run.

    Parameters
    ----------
    scalar, job, node, machine
        Single numbers, and tables whose columns are named above.
    reserved, running
        Reserved jobs and running jobs, each in order.
    tree, tree_first, tree_leaves
        One search tree per width, over the jobs of this width in order. Each node has the minimum need (`NEED`) below
        it; the need is `NEVER` for jobs that have a reservation or do not wait. The other two arrays are the first node
        and the number of leaves of each tree.
    by_leaf, leaf_first
        Jobs sorted by width and then by order, and the position of each width's first job.
    past, sorted, share
        Histories of run times, one row per user or virtual cluster, and a last row for all jobs; scratch memory; and
        the quantile used as estimate, shape (1,).
    choice
        Chosen machines, and number of chosen GPUs on each; shape (machines, 2).
    recent, window, since
        Machines changed in this pass or the previous one; windows of each machine by number of GPUs, shape (machines,
        largest + 1, 2), whose columns are named above; and scratch memory.
    longest, listed, merged
        Scratch memory of passes by priority: for each width, the time for which a gang that starts now may use its
        GPUs; and jobs to sort.
    """

    scalar: IntArray
    job: IntArray
    node: IntArray
    machine: IntArray
    reserved: IntArray
    running: IntArray
    tree: IntArray
    tree_first: IntArray
    tree_leaves: IntArray
    by_leaf: IntArray
    leaf_first: IntArray
    past: IntArray
    sorted: IntArray
    share: "np.typing.NDArray[np.float64]"
    choice: IntArray
    recent: IntArray
    window: IntArray
    since: IntArray
    longest: IntArray
    listed: IntArray
    merged: IntArray


def make_book(jobs: Workload, cluster: Cluster, policy: IndexPolicy, options: EngineOptions, setup: Setup) -> Book:
    """Return the state before the first submission: no reservations, and planned outages of machines."""
    rule = policy.reservations
    assert rule is not None  # only called for policies with reservations
    count, machines = len(jobs), cluster.num_machines
    job = np.full((count, NUM_COLUMNS), NONE, np.int64)
    job[:, ESTIMATE] = stated_estimates(jobs, rule)
    job[:, LIMIT] = np.where((jobs.estimate_us > 0) & rule.kills, jobs.estimate_us, NEVER)
    job[:, HISTORY], num_histories = histories(jobs)
    job[:, [PLANNED, PROMISED]] = NEVER
    kinds = int(setup.width_class.max()) + 1
    of_kind = np.bincount(setup.width_class, minlength=kinds)
    leaf_first = np.concatenate([[0], np.cumsum(of_kind)]).astype(np.int64)
    by_leaf = np.argsort(setup.width_class, kind="stable").astype(np.int64)
    job[by_leaf, LEAF] = np.arange(count) - leaf_first[setup.width_class[by_leaf]]
    leaves = np.array([1 << max(0, int(each - 1).bit_length()) for each in of_kind.tolist()], np.int64)
    depth = min(rule.depth, count)
    spans = np.where(jobs.gpus > cluster.gpus.max(), -(-jobs.gpus // cluster.gpus.min()), 1)
    spans = np.minimum(jobs.gpus if options.spread else spans, machines)
    widest = int(np.partition(spans, count - depth)[count - depth :].sum())
    node = np.zeros((2 * (cluster.num_gpus + widest + len(options.planned)) + 16, NUM_NODE_COLUMNS), np.int64)
    node[:, NEXT] = np.arange(1, len(node) + 1)
    scalar = np.zeros(NUM_SCALARS, np.int64)
    scalar[[NEXT_PLANNED, DEPTH, PAST, DEFAULT]] = NEVER, depth, rule.past, rule.default_us
    machine = np.zeros((machines, NUM_MACHINE_COLUMNS), np.int64)
    machine[:, HEAD] = NONE
    machine[:, [TO, TO_BEFORE, LISTED]] = NONE
    book = Book(
        scalar=scalar,
        job=job,
        node=node,
        machine=machine,
        reserved=np.zeros(depth + 1, np.int64),
        running=np.zeros(cluster.num_gpus + 1, np.int64),
        tree=np.full(int(2 * leaves.sum()), NEVER, np.int64),
        tree_first=np.concatenate([[0], np.cumsum(2 * leaves)]).astype(np.int64),
        tree_leaves=leaves,
        by_leaf=by_leaf,
        leaf_first=leaf_first,
        past=np.zeros((num_histories + 1, VALUES + rule.past), np.int64),
        sorted=np.zeros(rule.past, np.int64),
        share=np.array([rule.quantile]),
        choice=np.zeros((machines, 2), np.int64),
        recent=np.zeros(machines, np.int64),
        window=np.zeros((machines, int(cluster.gpus.max()) + 1, 2), np.int64),
        since=np.zeros(int(cluster.gpus.max()) + 1, np.int64),
        longest=np.zeros(kinds, np.int64),
        listed=np.zeros(count, np.int64),
        merged=np.zeros(count, np.int64),
    )
    for each, begin, end in options.planned:
        link_planned(book, each, begin, -int(cluster.gpus[each]))
        link_planned(book, each, end, int(cluster.gpus[each]))
    return book


def promised_by(book: Book) -> tuple[IntArray, IntArray, IntArray]:
    """Return each job's estimate, time of its first reservation, and promised start, -1 if it has none; shape (jobs,) each."""
    promised = book.job[:, PROMISED]
    return book.job[:, ESTIMATE].copy(), book.job[:, RESERVED_AT].copy(), np.where(promised < NEVER, promised, NONE)


@compiled
def _link(p, machine, time, gpus, job):
    """Add a node to a machine's calendar, after the nodes of the same time."""
    node = p.scalar[SPARE]
    p.scalar[SPARE] = p.node[node, NEXT]
    before, at = NONE, p.machine[machine, HEAD]
    while at != NONE and p.node[at, TIME] <= time:
        before, at = at, p.node[at, NEXT]
    p.node[node, TIME], p.node[node, GPUS], p.node[node, MACHINE], p.node[node, JOB] = time, gpus, machine, job
    p.node[node, BEFORE], p.node[node, NEXT] = before, at
    if before == NONE:
        p.machine[machine, HEAD] = node
    else:
        p.node[before, NEXT] = node
    if at != NONE:
        p.node[at, BEFORE] = node
    p.machine[machine, LISTED] = NONE
    if job != NONE:
        p.node[node, SIBLING] = p.job[job, NODE]
        p.job[job, NODE] = node


@compiled
def link_planned(p, machine, time, gpus):
    """Record that GPUs of a machine leave (`gpus` is negative) or return at a time."""
    if time < NEVER:
        _link(p, machine, time, gpus, NONE)


@compiled
def _unlink(p, node):
    """Remove a node from its calendar."""
    before, at, machine = p.node[node, BEFORE], p.node[node, NEXT], p.node[node, MACHINE]
    if before == NONE:
        p.machine[machine, HEAD] = at
    else:
        p.node[before, NEXT] = at
    if at != NONE:
        p.node[at, BEFORE] = before
    p.node[node, NEXT] = p.scalar[SPARE]
    p.scalar[SPARE] = node


@compiled
def _note_free(p, machine, begin, end):
    """Record that the last change freed GPUs of a machine between two times."""
    if p.machine[machine, TO] == NONE:
        if p.machine[machine, TO_BEFORE] == NONE:
            p.recent[p.scalar[RECENT]] = machine
            p.scalar[RECENT] += 1
        p.machine[machine, FROM] = NEVER
    p.machine[machine, CHANGED] = p.scalar[STAMP]
    p.machine[machine, FROM] = min(p.machine[machine, FROM], begin)
    p.machine[machine, TO] = max(p.machine[machine, TO], end)


@compiled
def _begin_pass(p):
    """Discard the periods that were freed before the last pass: all reserved jobs have been compared with them."""
    kept = 0
    for nth in range(p.scalar[RECENT]):
        machine = p.recent[nth]
        p.machine[machine, FROM_BEFORE], p.machine[machine, TO_BEFORE] = (
            p.machine[machine, FROM],
            p.machine[machine, TO],
        )
        p.machine[machine, TO] = p.machine[machine, LISTED] = NONE
        if p.machine[machine, TO_BEFORE] != NONE:
            p.recent[kept] = machine
            kept += 1
    p.scalar[RECENT] = kept


@compiled
def _list_windows(s, p, machine):
    """List the windows of a machine that overlap newly freed time, and the reserved starts that may move."""
    p.machine[machine, LISTED] = p.machine[machine, CHANGED]
    begin, end = NEVER, NONE
    if p.machine[machine, TO] != NONE:
        begin, end = p.machine[machine, FROM], p.machine[machine, TO]
    if p.machine[machine, TO_BEFORE] != NONE:
        begin, end = min(begin, p.machine[machine, FROM_BEFORE]), max(end, p.machine[machine, TO_BEFORE])
    now, level = s.scalar[NOW], s.free[machine]
    at = p.machine[machine, HEAD]
    while at != NONE and p.node[at, TIME] <= now:
        level += p.node[at, GPUS]
        at = p.node[at, NEXT]
    largest = p.window.shape[1] - 1
    for gpus in range(1, largest + 1):
        p.window[machine, gpus, LONGEST], p.window[machine, gpus, EARLIEST] = 0, NEVER
    since = p.since
    for gpus in range(1, min(level, largest) + 1):
        since[gpus] = now
    while True:
        time, before = NEVER if at == NONE else p.node[at, TIME], level
        first = at
        while at != NONE and p.node[at, TIME] == time:
            level += p.node[at, GPUS]
            at = p.node[at, NEXT]
        while first != at:
            if p.node[first, GPUS] < 0 and p.node[first, JOB] != NONE and before >= -p.node[first, GPUS]:
                p.job[p.node[first, JOB], SHIFTS] = p.machine[machine, CHANGED]
            first = p.node[first, NEXT]
        lowest = level if time < NEVER else 0
        for gpus in range(max(0, lowest) + 1, min(before, largest) + 1):
            if since[gpus] < end and time > begin:
                p.window[machine, gpus, LONGEST] = max(p.window[machine, gpus, LONGEST], time - since[gpus])
                p.window[machine, gpus, EARLIEST] = min(p.window[machine, gpus, EARLIEST], since[gpus])
        if time == NEVER:
            return
        for gpus in range(max(0, before) + 1, min(level, largest) + 1):
            since[gpus] = time


@compiled
def _may_move(s, p, job, machine, gpus, limit):
    """Return False only if newly freed GPUs of a machine certainly don't let a job start there before its reserved start."""
    if p.machine[machine, LISTED] != p.machine[machine, CHANGED]:
        _list_windows(s, p, machine)
    window = p.window[machine, gpus]
    if p.job[job, NEED] <= window[LONGEST] and window[EARLIEST] < limit:
        return True
    return p.job[job, SHIFTS] == p.machine[machine, CHANGED]


@compiled
def _forget(p, job):
    """Remove all nodes of a job; its expected allocation becomes free."""
    p.scalar[STAMP] += 1
    node = p.job[job, NODE]
    begin = p.job[job, PLANNED] if p.job[job, PLANNED] < NEVER else 0
    while node != NONE:
        _note_free(p, p.node[node, MACHINE], begin, p.node[node, TIME])
        sibling = p.node[node, SIBLING]
        _unlink(p, node)
        node = sibling
    p.job[job, NODE] = NONE


@compiled
def _earliest(p, machine, free, width, need, begin, limit, job):
    """Return the earliest time in [begin, limit) from which a machine has `width` GPUs free for `need`, or `NEVER`.

    The nodes of the job itself are ignored.
    """
    at, level = p.machine[machine, HEAD], free
    while at != NONE and p.node[at, TIME] <= begin:
        if p.node[at, JOB] != job:
            level += p.node[at, GPUS]
        at = p.node[at, NEXT]
    start = begin if level >= width else NEVER
    while at != NONE:
        time = p.node[at, TIME]
        if start != NEVER and time - start >= need:
            break
        if start == NEVER and time >= limit:
            return NEVER
        while at != NONE and p.node[at, TIME] == time:
            if p.node[at, JOB] != job:
                level += p.node[at, GPUS]
            at = p.node[at, NEXT]
        if level < width:
            start = NEVER
        elif start == NEVER:
            start = time
    return start if start < limit else NEVER


@compiled
def _least(p, machine, free, begin, need, job):
    """Return the number of GPUs of a machine that are free throughout a period."""
    at, level = p.machine[machine, HEAD], free
    while at != NONE and p.node[at, TIME] <= begin:
        if p.node[at, JOB] != job:
            level += p.node[at, GPUS]
        at = p.node[at, NEXT]
    least = level
    while at != NONE and p.node[at, TIME] - begin < need:
        time = p.node[at, TIME]
        while at != NONE and p.node[at, TIME] == time:
            if p.node[at, JOB] != job:
                level += p.node[at, GPUS]
            at = p.node[at, NEXT]
        least = min(least, level)
    return least


@compiled
def _drop(p, machine, free, width, now):
    """Return the time until which a machine has `width` GPUs free from now on, or `NEVER`.

    The result is at most `now` if the machine has fewer GPUs free now.
    """
    at, level = p.machine[machine, HEAD], free
    if level < width:
        return now
    while at != NONE:
        time = p.node[at, TIME]
        while at != NONE and p.node[at, TIME] == time:
            level += p.node[at, GPUS]
            at = p.node[at, NEXT]
        if level < width:
            return time
    return NEVER


@compiled
def _next_change(p, time):
    """Return the first calendar change after a time."""
    first = NEVER
    for machine in range(len(p.machine)):
        at = p.machine[machine, HEAD]
        while at != NONE and p.node[at, TIME] <= time:
            at = p.node[at, NEXT]
        if at != NONE:
            first = min(first, p.node[at, TIME])
    return first


@compiled
def _look(s, p, begin, need, job):
    """Compute the number of GPUs of each machine free throughout a period, and return their sum."""
    total = 0
    for machine in range(len(p.machine)):
        p.machine[machine, ROOM] = max(0, _least(p, machine, s.free[machine], begin, need, job))
        total += p.machine[machine, ROOM]
    return total


@compiled
def _slot(u, s, p, job, limit, since):
    """Return the earliest start before a limit that the placement rule allows, or `NEVER`.

    Only machines with GPUs freed after the change `since` are searched: the other machines offered no earlier start
    before.
    """
    now, width, need = s.scalar[NOW], u.width[job], p.job[job, NEED]
    largest = len(s.num_with_free) - 1
    if width <= largest and not u.may_spread:
        return _slot_on_one(u, s, p, job, limit, since)
    time = NEVER  # an earlier start needs at least one changed machine
    if u.may_spread:
        time = now
    else:
        for machine in range(len(p.machine)):
            if p.machine[machine, CHANGED] <= since:
                continue
            gpus = u.size[machine]
            if since == NONE or _has_part(p, job, machine) or _may_move(s, p, job, machine, gpus, limit):
                time = min(time, _earliest(p, machine, s.free[machine], u.size[machine], need, now, limit, job))
    while time < limit:
        if u.may_spread:
            if _look(s, p, time, need, job) >= width:
                return time
            time = _next_change(p, time)
        else:
            ahead = _whole_from(u, s, p, job, time, limit)
            if ahead == time:
                return time
            time = ahead
    return NEVER


@compiled
def _has_part(p, job, machine):
    """Return whether a job's reservation includes GPUs of a machine."""
    node = p.job[job, NODE]
    while node != NONE and p.node[node, MACHINE] != machine:
        node = p.node[node, SIBLING]
    return node != NONE


@compiled
def _slot_on_one(u, s, p, job, limit, since):
    """Return the earliest start of a gang that fits on one machine, and choose the first machine with that start."""
    now, width, need = s.scalar[NOW], u.width[job], p.job[job, NEED]
    best, chosen = limit, NONE
    if since == NONE:
        for machine in range(len(p.machine)):
            if u.size[machine] >= width:
                start = _earliest(p, machine, s.free[machine], width, need, now, best, job)
                if start < best:
                    best, chosen = start, machine
                    if best == now:
                        break
    else:
        for nth in range(p.scalar[RECENT]):
            machine = p.recent[nth]
            # Of several machines with the same start, the first is chosen.
            most = best + 1 if chosen != NONE and machine < chosen else best
            is_changed = p.machine[machine, CHANGED] > since and u.size[machine] >= width
            if is_changed and _may_move(s, p, job, machine, width, most):
                start = _earliest(p, machine, s.free[machine], width, need, now, most, job)
                if start < most:
                    best, chosen = start, machine
    if chosen == NONE:
        return NEVER
    p.scalar[CHOSEN] = 0
    _add(p, chosen, width)
    return best


@compiled
def _whole_from(u, s, p, job, begin, limit):
    """Return a lower bound on the time at which a gang has enough completely free machines.

    The result is `begin` if the gang has enough such machines from `begin` on.
    """
    width, need = u.width[job], p.job[job, NEED]
    for machine in range(len(p.machine)):
        p.machine[machine, ROOM] = _earliest(p, machine, s.free[machine], u.size[machine], need, begin, limit, job)
    found, last = 0, begin
    while found < width:
        first = NEVER
        for machine in range(len(p.machine)):
            first = min(first, p.machine[machine, ROOM])
        if first == NEVER:
            return NEVER
        last = first
        for machine in range(len(p.machine)):
            if p.machine[machine, ROOM] == first:
                found += u.size[machine]
                p.machine[machine, ROOM] = NEVER
    return last


@compiled
def _choose(u, s, p, job, begin, is_start):
    """Choose machines with enough free GPUs from a time on: by the placement rule for a start, otherwise the first ones."""
    width = u.width[job]
    p.scalar[CHOSEN] = 0
    _look(s, p, begin, p.job[job, NEED], job)
    if width <= len(s.num_with_free) - 1:
        machine = _one_machine(u, s, p, width, is_start)
        if machine != NONE:
            _add(p, machine, width)
            return
    else:
        whole = 0
        for machine in range(len(u.size)):
            if p.machine[machine, ROOM] == u.size[machine]:
                whole += u.size[machine]
        if whole >= width:
            for nth in range(len(u.by_size)):
                machine = u.by_size[nth]
                if p.machine[machine, ROOM] == u.size[machine] and width > 0:
                    # A wide gang starts on completely free machines, so all GPUs of its last machine are reserved.
                    _add(p, machine, min(width, u.size[machine]) if is_start or u.may_spread else u.size[machine])
                    width -= min(width, u.size[machine])
            return
    while width > 0:  # spread over machines, next the one with the most free GPUs
        most = 0
        for machine in range(1, len(u.size)):
            if p.machine[machine, ROOM] > p.machine[most, ROOM]:
                most = machine
        gpus = min(width, p.machine[most, ROOM])
        _add(p, most, gpus)
        p.machine[most, ROOM] = 0
        width -= gpus


@compiled
def _add(p, machine, gpus):
    p.choice[p.scalar[CHOSEN], 0], p.choice[p.scalar[CHOSEN], 1] = machine, gpus
    p.scalar[CHOSEN] += 1


@compiled
def _one_machine(u, s, p, width, is_start):
    """Return the machine that `_choose` takes for a gang that fits on one machine, or `NONE` if it fits on none."""
    if u.takes_first or not is_start:
        for machine in range(len(u.size)):
            if p.machine[machine, ROOM] >= width:
                return machine
        return NONE
    for nth in range(u.level_order.shape[1]):
        level = u.level_order[width, nth]
        if level == NONE:
            return NONE
        if s.num_with_free[level] > 0:
            for machine in range(len(u.size)):
                if s.free[machine] == level and p.machine[machine, ROOM] >= width:
                    return machine
    return NONE


@compiled
def _insert(jobs, count, job):
    """Insert a job into a sorted list."""
    at = count
    while at > 0 and jobs[at - 1] > job:
        jobs[at] = jobs[at - 1]
        at -= 1
    jobs[at] = job


@compiled
def _begin(u, s, b, p, job):
    """Start a job that fits now for all of its estimated run time."""
    _choose(u, s, p, job, s.scalar[NOW], True)
    for nth in range(p.scalar[CHOSEN]):
        take(s, job, p.choice[nth, 0], p.choice[nth, 1])
    begin_run(u, s, b, job)
    _note_begin(s, p, job)


@compiled
def _note_begin(s, p, job):
    """Expect a running job to end by its estimate."""
    p.job[job, VERSION] = s.version[job]
    p.job[job, ENDS_BY] = s.run_since[job] + p.job[job, ESTIMATE]
    _insert(p.running, p.scalar[NUM_RUNNING], job)
    p.scalar[NUM_RUNNING] += 1
    _expect(s, p, job)


@compiled
def _expect(s, p, job):
    """Add the expected end of a running job to the calendars."""
    place = s.head[job]
    while place != NONE:
        _link(p, s.place_machine[place], p.job[job, ENDS_BY], s.place_gpus[place], job)
        place = s.next_place[place]


@compiled
def _reserve(u, s, p, job, start):
    """Reserve GPUs for a job, on the machine already chosen if one machine holds the gang."""
    if u.may_spread or u.width[job] > len(s.num_with_free) - 1:
        _choose(u, s, p, job, start, False)
    p.job[job, PLANNED] = start
    if p.job[job, PROMISED] == NEVER and s.first_start[job] == NEVER:
        p.job[job, PROMISED], p.job[job, RESERVED_AT] = start, s.scalar[NOW]
    for nth in range(p.scalar[CHOSEN]):
        machine, gpus = p.choice[nth, 0], p.choice[nth, 1]
        _link(p, machine, start, -gpus, job)
        _link(p, machine, start + p.job[job, NEED], gpus, job)


@compiled
def _set_leaf(u, p, job, need):
    """Set the need of a job that waits without a reservation; `NEVER` removes the job from the tree."""
    kind = u.width_class[job]
    base, node = p.tree_first[kind], p.tree_leaves[kind] + p.job[job, LEAF]
    p.tree[base + node] = need
    node //= 2
    while node >= 1:
        p.tree[base + node] = min(p.tree[base + 2 * node], p.tree[base + 2 * node + 1])
        node //= 2


@compiled
def _first_within(p, kind, most):
    """Return the first job of a width without a reservation whose need is at most `most`, or `NONE`."""
    base, leaves, node = p.tree_first[kind], p.tree_leaves[kind], 1
    if p.tree[base + 1] > most:
        return NONE
    while node < leaves:
        node = 2 * node if p.tree[base + 2 * node] <= most else 2 * node + 1
    return p.by_leaf[p.leaf_first[kind] + node - leaves]


@compiled
def _note_end(s, p, job):
    """Add a job's run time to its history, and to the history of all jobs."""
    for history in (p.job[job, HISTORY], len(p.past) - 1):
        p.past[history, VALUES + p.past[history, OLDEST]] = s.executed[job]
        p.past[history, OLDEST] = (p.past[history, OLDEST] + 1) % p.scalar[PAST]
        p.past[history, COUNT] = min(p.scalar[PAST], p.past[history, COUNT] + 1)


@compiled
def _guess(p, job):
    """Return a quantile of a job's history of run times, or of all jobs if it is empty; the default before any job ended."""
    history = p.job[job, HISTORY]
    if p.past[history, COUNT] == 0:
        history = len(p.past) - 1
    count = p.past[history, COUNT]
    if count == 0:
        return p.scalar[DEFAULT]
    for nth in range(count):
        _insert(p.sorted, nth, p.past[history, VALUES + nth])
    return max(1, p.sorted[max(0, int(np.ceil(p.share[0] * count)) - 1)])


@compiled
def _wait(u, s, p, q, job):
    """Add a job to the waiting jobs without a reservation."""
    if q.scalar[IS_USED]:
        s.key_1[job] = key_of(u, s, q, job)
        at = p.scalar[WAITING]
        while at > 0 and is_before(s.key_1, s.key_2, job, q.order[at - 1]):
            q.order[at] = q.order[at - 1]
            at -= 1
        q.order[at] = job
    else:
        _set_leaf(u, p, job, p.job[job, NEED])
    p.scalar[WAITING] += 1


@compiled
def _take_first(u, p, q):
    """Remove the first waiting job without a reservation."""
    if q.scalar[IS_USED]:
        job = q.order[0]
        _take_out(p, q, 0)
        return job
    job = NEVER
    for kind in range(len(p.tree_leaves)):
        first = _first_within(p, kind, NEVER - 1)
        if first != NONE:
            job = min(job, first)
    _set_leaf(u, p, job, NEVER)
    p.scalar[WAITING] -= 1
    return job


@compiled
def _take_out(p, q, nth):
    """Remove a job from the list that is sorted by priority."""
    p.scalar[WAITING] -= 1
    for at in range(nth, p.scalar[WAITING]):
        q.order[at] = q.order[at + 1]


@compiled
def _sort(s, p, count):
    """Sort the listed jobs by key with a bottom-up merge sort; runs already in order stay."""
    width = 1
    while width < count:
        for first in range(0, count - width, 2 * width):
            middle, end = first + width, min(first + 2 * width, count)
            if is_before(s.key_1, s.key_2, p.listed[middle - 1], p.listed[middle]):
                continue
            p.merged[first:middle] = p.listed[first:middle]
            left, right, at = first, middle, first
            while left < middle and right < end:
                if is_before(s.key_1, s.key_2, p.listed[right], p.merged[left]):
                    p.listed[at] = p.listed[right]
                    right += 1
                else:
                    p.listed[at] = p.merged[left]
                    left += 1
                at += 1
            while left < middle:
                p.listed[at] = p.merged[left]
                left, at = left + 1, at + 1
        width *= 2


@compiled
def _order_again(u, s, p, q):
    """Put all waiting jobs into the updated order; reservations remain up to the first job whose position changed."""
    reserved = p.scalar[RESERVED]
    count = reserved + p.scalar[WAITING]
    p.listed[:reserved] = p.reserved[:reserved]
    p.listed[reserved:count] = q.order[: count - reserved]
    for nth in range(count):
        s.key_1[p.listed[nth]] = key_of(u, s, q, p.listed[nth])
    _sort(s, p, count)
    same = 0
    while same < reserved and p.listed[same] == p.reserved[same]:
        same += 1
    for nth in range(same, reserved):
        _forget(p, p.reserved[nth])
        p.job[p.reserved[nth], PLANNED] = NEVER
    p.scalar[RESERVED], p.scalar[WAITING] = same, count - same
    q.order[: count - same] = p.listed[same:count]


@compiled
def _take_in(u, s, p, q):
    """Add jobs that were submitted or lost their GPUs to the waiting jobs without a reservation."""
    for kind in range(len(s.heap_size)):
        while s.heap_size[kind]:
            job = s.heap[s.heap_first[kind]]
            pop_waiting(s, kind)
            if p.job[job, ESTIMATE] == NONE:
                p.job[job, ESTIMATE] = _guess(p, job)
            p.job[job, NEED] = p.job[job, ESTIMATE] + (u.overhead if s.first_start[job] != NEVER else u.startup)
            p.job[job, PLANNED] = NEVER
            _wait(u, s, p, q, job)


@compiled
def _break_plans(p, machine):
    """Record that a machine's GPUs become free later than expected, so that its reservations are planned again."""
    p.machine[machine, IS_LATE] = p.scalar[IS_BROKEN] = 1


@compiled
def _note_outages(u, s, p, first):
    """Record the machines that failed or were repaired outside the plan."""
    for at in range(first, s.scalar[OUTAGES]):
        machine, is_planned = u.outage[at, 1], False
        node = p.machine[machine, HEAD]
        while node != NONE and p.node[node, TIME] <= s.scalar[NOW]:
            is_planned |= p.node[node, JOB] == NONE
            node = p.node[node, NEXT]
        if is_planned:
            continue
        if u.outage[at, 2]:
            _break_plans(p, machine)
        else:
            p.scalar[STAMP] += 1
            _note_free(p, machine, 0, NEVER)


@compiled
def _close_books(s, p):
    """Remove ended runs, and planned outages that have occurred."""
    kept = 0
    for nth in range(p.scalar[NUM_RUNNING]):
        job = p.running[nth]
        if s.status[job] == RUNNING and s.version[job] == p.job[job, VERSION]:
            p.running[kept] = job
            kept += 1
        else:
            _forget(p, job)
    p.scalar[NUM_RUNNING] = kept
    for machine in range(len(p.machine)):
        at = p.machine[machine, HEAD]
        while at != NONE and p.node[at, TIME] <= s.scalar[NOW]:
            after = p.node[at, NEXT]
            if p.node[at, JOB] == NONE:
                _unlink(p, at)
            at = after


@compiled
def _pass_limits(u, s, b, p):
    """Stop jobs at their limits, and double the expected run time of jobs that exceeded their estimates."""
    now, stopped = s.scalar[NOW], False
    for nth in range(p.scalar[NUM_RUNNING]):
        job = p.running[nth]
        if s.status[job] == RUNNING and p.job[job, ENDS_BY] <= now:
            if now - s.run_since[job] >= p.job[job, LIMIT]:
                stop_job(u, s, b, job, LEAVE)
                _note_end(s, p, job)
                s.scalar[FAILURES] = 0
                stopped = True
            else:
                _forget(p, job)
                p.job[job, ENDS_BY] = now + max(1, now - s.run_since[job])
                _expect(s, p, job)
                place = s.head[job]
                while place != NONE:
                    _break_plans(p, s.place_machine[place])
                    place = s.next_place[place]
    if stopped:
        _close_books(s, p)


@compiled
def _improve(u, s, b, p):
    """Visit the reserved jobs: start the jobs that may start, and move other jobs to earlier starts if possible."""
    now, kept = s.scalar[NOW], 0
    p.scalar[NEXT_PLANNED] = NEVER
    if p.scalar[IS_BROKEN]:
        p.scalar[IS_BROKEN] = 0
        for nth in range(p.scalar[RESERVED]):
            job = p.reserved[nth]
            node, is_late = p.job[job, NODE], False
            while node != NONE:
                is_late |= p.machine[p.node[node, MACHINE], IS_LATE] > 0
                node = p.node[node, SIBLING]
            if is_late:
                _forget(p, job)
                p.job[job, PLANNED] = NEVER
        for machine in range(len(p.machine)):
            p.machine[machine, IS_LATE] = 0
    for nth in range(p.scalar[RESERVED]):
        job = p.reserved[nth]
        is_due = p.job[job, PLANNED] <= now
        limit = NEVER if is_due else p.job[job, PLANNED]
        since = NONE if limit == NEVER else p.job[job, CHECKED]
        p.job[job, CHECKED] = p.scalar[STAMP]
        start = _slot(u, s, p, job, limit, since)
        if start != NEVER or is_due:
            _forget(p, job)
            p.job[job, PLANNED] = NEVER
        if start == now:
            _begin(u, s, b, p, job)
            continue
        if start != NEVER:
            _reserve(u, s, p, job, start)
        p.reserved[kept] = job
        kept += 1
        p.scalar[NEXT_PLANNED] = min(p.scalar[NEXT_PLANNED], p.job[job, PLANNED])
    p.scalar[RESERVED] = kept


@compiled
def _reserve_more(u, s, b, p, q):
    """Start waiting jobs in order, and reserve GPUs for jobs that cannot start, up to the policy's depth."""
    now = s.scalar[NOW]
    while p.scalar[WAITING] and p.scalar[RESERVED] < p.scalar[DEPTH]:
        job = _take_first(u, p, q)
        p.job[job, CHECKED] = p.scalar[STAMP]
        start = _slot(u, s, p, job, NEVER, NONE)
        if start == now:
            _begin(u, s, b, p, job)
            continue
        if start != NEVER:
            _reserve(u, s, p, job, start)
            p.scalar[NEXT_PLANNED] = min(p.scalar[NEXT_PLANNED], start)
        if q.scalar[IS_USED]:
            p.reserved[p.scalar[RESERVED]] = job
        else:
            _insert(p.reserved, p.scalar[RESERVED], job)
        p.scalar[RESERVED] += 1


@compiled
def _longest(u, s, p, width):
    """Return for how long a gang that starts now can use its GPUs without delaying a reserved start."""
    now = s.scalar[NOW]
    if width > s.scalar[FREE_GPUS]:
        return 0
    if u.may_spread:
        until = now
        while until < NEVER and _look(s, p, now, until + 1 - now, NONE - 1) >= width:
            until = _next_change(p, until)
        return until - now
    until = now
    if width <= len(s.num_with_free) - 1:
        for machine in range(len(p.machine)):
            if s.free[machine] >= width:
                until = max(until, _drop(p, machine, s.free[machine], width, now))
        return until - now
    for machine in range(len(p.machine)):
        is_whole = s.free[machine] == u.size[machine]
        p.machine[machine, ROOM] = _drop(p, machine, s.free[machine], u.size[machine], now) if is_whole else now
    found = 0
    while found < width:
        most = 0
        for machine in range(1, len(p.machine)):
            if p.machine[machine, ROOM] > p.machine[most, ROOM]:
                most = machine
        until = p.machine[most, ROOM]
        if until <= now:
            return 0
        found += u.size[most]
        p.machine[most, ROOM] = now
    return until - now


@compiled
def _backfill(u, s, b, p):
    """Start waiting jobs, in order, that delay no reserved start: they end before it, or leave enough other GPUs free."""
    while p.scalar[WAITING] and s.scalar[FREE_GPUS]:
        best = NEVER
        for kind in range(len(p.tree_leaves)):
            if p.tree[p.tree_first[kind] + 1] < NEVER:
                width = u.width[p.by_leaf[p.leaf_first[kind]]]
                job = _first_within(p, kind, min(NEVER - 1, _longest(u, s, p, width)))
                if job != NONE:
                    best = min(best, job)
        if best == NEVER:
            return
        _set_leaf(u, p, best, NEVER)
        p.scalar[WAITING] -= 1
        _begin(u, s, b, p, best)


@compiled
def _backfill_by_priority(u, s, b, p, q):
    """Backfill in order of priorities; a job that does not fit now cannot fit after another start either."""
    p.longest[:] = NONE
    nth = 0
    while nth < p.scalar[WAITING] and s.scalar[FREE_GPUS]:
        job = q.order[nth]
        kind = u.width_class[job]
        if p.longest[kind] == NONE:
            p.longest[kind] = _longest(u, s, p, u.width[job])
        if p.job[job, NEED] <= p.longest[kind]:
            _take_out(p, q, nth)
            _begin(u, s, b, p, job)
            p.longest[:] = NONE
        else:
            nth += 1


@compiled
def _next_time(u, s, p, q):
    """Return the time of the next event, job's limit or expected end, reserved start or priority update."""
    waiting = p.scalar[WAITING] + p.scalar[RESERVED]
    when = min(next_time(u, s, waiting), p.scalar[NEXT_PLANNED])
    if q.scalar[IS_USED]:
        when = min(when, next_look(s, q, waiting))
    for nth in range(p.scalar[NUM_RUNNING]):
        when = min(when, p.job[p.running[nth], ENDS_BY])
    return when


@compiled
def _decide(u, s, b, p, q):
    """Update the book, start the jobs that may start, and reserve GPUs for the next jobs."""
    _close_books(s, p)
    _pass_limits(u, s, b, p)
    is_due = q.scalar[IS_USED] > 0 and is_look_due(s, q)
    if is_due:
        look(s, q)
    _take_in(u, s, p, q)
    if is_due:
        _order_again(u, s, p, q)
    _improve(u, s, b, p)
    _reserve_more(u, s, b, p, q)
    if q.scalar[IS_USED]:
        _backfill_by_priority(u, s, b, p, q)
        note_held(s, q)
    else:
        _backfill(u, s, b, p)


@compiled
def take_over(u, s, b, p, q):
    """Enter the running jobs of a present state into the book, and decide."""
    for nth in range(s.scalar[RUNNING_JOBS]):
        job = s.running[nth]
        if p.job[job, ESTIMATE] == NONE:
            p.job[job, ESTIMATE] = _guess(p, job)
        _note_begin(s, p, job)
    _decide(u, s, b, p, q)


@compiled
def advance_reserving(u, s, b, p, q, steps, margin):
    """Simulate as `optim.simulation.cluster.index.loop.advance`, with passes that reserve."""
    for _ in range(steps):
        if is_halted(u, s, b, margin):
            return
        _begin_pass(p)
        when = _next_time(u, s, p, q)
        if when == NEVER:
            s.scalar[IS_OVER] = 1
            return
        s.scalar[NOW] = when
        while next_event(s.scalar, s.version, s.ends, ENDS) <= when:
            job = s.ends[0, WHO]
            pop_event(s.scalar, s.ends, ENDS)
            stop_job(u, s, b, job, END)
            _note_end(s, p, job)
            s.scalar[FAILURES] = 0
        take_turns(u, s, b)
        outages = s.scalar[OUTAGES]
        apply_outages(u, s, b)
        _note_outages(u, s, p, outages)
        take_submitted(u, s, when)
        _decide(u, s, b, p, q)


def reserving(book: Book, q: Priorities) -> Callable[[Setup, State, Buffer, object, int, int], None]:
    """Return the loop with a book and priorities, with the signature of `optim.simulation.cluster.index.loop.advance`."""

    def play(setup: Setup, state: State, buffer: Buffer, is_held: object, steps: int, margin: int) -> None:
        del is_held
        advance_reserving(setup, state, buffer, book, q, steps, margin)

    return play

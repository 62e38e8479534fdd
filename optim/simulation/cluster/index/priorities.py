"""Priorities that change with time, compiled: age and fair share of waiting jobs, updated once per period.

`optim.simulation.cluster.policies.multifactor` describes the rules. A pass is part of the loop of
`optim.simulation.cluster.index.loop`, or of `optim.simulation.cluster.index.reservations`. Between two updates the key
of a waiting job is constant, and a new job gets its key on arrival. A pass can therefore use heaps or sorted lists.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from optim.compiled import by_reference, compiled
from optim.core.arrays import FloatArray, IntArray
from optim.models.cluster.fair_share import AssociationTree
from optim.simulation.cluster.index.loop import (
    FREE_GPUS,
    IS_OVER,
    NEVER,
    NONE,
    NOW,
    RUNNING_JOBS,
    Buffer,
    Setup,
    State,
    first_waiting,
    happen,
    has_room,
    is_halted,
    lower,
    next_time,
    num_waiting,
    pop_waiting,
    push_waiting,
    start_job,
)
from optim.simulation.cluster.index.policy import CHARGE_UNIT, MAX_PRIORITY

PERIOD, LOOKED, SINCE, IS_USED, IS_TREE, IS_STRICT, NUM_SCALARS = range(7)
"""Positions in `Priorities.scalar`. In order: update period, last update, time of the last change of allocations,
whether priorities are in use, whether the fair-share factor is that of Fair Tree, and whether the order can change
without any event."""

RATE, WEIGHT_AGE, MAX_AGE, WEIGHT_FAIR_SHARE, DAMPING, NUM_FACTORS = range(6)
"""Positions in `Priorities.factor`: decay per microsecond, weight of age, maximum age in microseconds, weight of fair
share, and damping."""


@by_reference
class Priorities(NamedTuple):
    """Priority factors of jobs, and past usage of their users.

    Parameters
    ----------
    scalar, factor
        Single numbers; the positions are named above.
    base, level, association, charge
        For each job: sum of the weighted constant factors; level, 1 for the jobs that are served first; row of its
        user; and usage charged to the user while the job runs. Shape (jobs,) each.
    parent, share, part, is_user, takes_parent, child_first, child
        For each association: its parent, the product of `part` up to the root, its fraction of all siblings' shares,
        whether it is a user, and whether it uses its parent's shares. Also the children of all associations, and the
        position of each association's first child in this list.
    used, held, new_held, fair_share
        For each association: usage at the last change of allocations (`SINCE`), allocation since then, scratch memory,
        and fair-share factor.
    actual, total, value, queue, stack
        Scratch memory for the computation of fair-share factors.
    alike
        Class number of each job; jobs of a class are equal except for their submission; shape (jobs,).
    first, last, next
        Linked lists of waiting jobs that never ran, by class and submission. This is always the order of their keys, so
        only the first of each list is in a heap.
    order
        With reservations: the waiting jobs without a reservation, in order; shape (jobs,).
    """

    scalar: IntArray
    factor: FloatArray
    base: FloatArray
    level: IntArray
    association: IntArray
    charge: IntArray
    parent: IntArray
    share: FloatArray
    part: FloatArray
    is_user: IntArray
    takes_parent: IntArray
    child_first: IntArray
    child: IntArray
    used: FloatArray
    held: FloatArray
    new_held: FloatArray
    fair_share: FloatArray
    actual: FloatArray
    total: FloatArray
    value: FloatArray
    queue: IntArray
    stack: IntArray
    alike: IntArray
    first: IntArray
    last: IntArray
    next: IntArray
    order: IntArray


def make_priorities(
    tree: AssociationTree,
    *,
    period_us: int,
    is_tree: bool,
    is_strict: bool,
    factors: tuple[float, float, float, float, float],
    base: FloatArray,
    level: IntArray,
    association: IntArray,
    charge: IntArray,
    gpus: IntArray,
) -> Priorities:
    """Return the state before the first submission.

    Parameters
    ----------
    tree
        Accounts and users.
    period_us, is_tree, is_strict, factors, base, level, association, charge
        As in `Priorities`.
    gpus
        Gang of each job; shape (jobs,).
    """
    count, jobs = len(tree.names), len(base)
    children = np.argsort(tree.parent[1:], kind="stable").astype(np.int64) + 1
    below = np.bincount(tree.parent[1:], minlength=count)
    _, alike = np.unique(np.stack([base, level, association, gpus]), axis=1, return_inverse=True)
    alike = alike.ravel().astype(np.int64)
    scalar = np.zeros(NUM_SCALARS, np.int64)
    scalar[[PERIOD, IS_USED, IS_TREE, IS_STRICT]] = period_us, 1, is_tree, is_strict
    part = tree.parts_of_shares()
    share = np.ones(count)
    for row in range(1, count):
        above = int(tree.parent[row])
        share[row] = share[above] if tree.takes_parent[row] else share[above] * part[row]
    state = Priorities(
        scalar=scalar,
        factor=np.array(factors, np.float64),
        base=base.astype(np.float64),
        level=level.astype(np.int64),
        association=association.astype(np.int64),
        charge=charge.astype(np.int64),
        parent=tree.parent.astype(np.int64),
        share=share,
        part=part,
        is_user=tree.is_user.astype(np.int64),
        takes_parent=tree.takes_parent.astype(np.int64),
        child_first=np.concatenate([[0], np.cumsum(below)]).astype(np.int64),
        child=children,
        **{name: np.zeros(count) for name in ("used", "held", "new_held", "fair_share", "actual", "total", "value")},
        queue=np.zeros(count, np.int64),
        stack=np.zeros((2 * count + 2, 3), np.int64),
        alike=alike,
        first=np.full(int(alike.max(initial=0)) + 1, NONE),
        last=np.full(int(alike.max(initial=0)) + 1, NONE),
        next=np.full(jobs, NONE),
        order=np.zeros(jobs, np.int64),
    )
    share_out(state, 0)
    return state


def no_priorities() -> Priorities:
    """Return placeholder priorities, for policies that serve jobs in order of submission."""
    none, whole = np.zeros(0), np.zeros(0, np.int64)
    named: dict[str, Any] = {
        name: whole if kind is IntArray else none for name, kind in Priorities.__annotations__.items()
    }
    return Priorities(**{**named, "scalar": np.zeros(NUM_SCALARS, np.int64), "stack": np.zeros((0, 3), np.int64)})


@compiled
def _used_at(q, now):
    """Compute each association's usage at a time, without the usage of the associations below it."""
    passed = now - q.scalar[SINCE]
    rate = q.factor[RATE]
    left, grown = 1.0, float(passed)
    if rate > 0:
        left = np.exp(-rate * passed)
        grown = -np.expm1(-rate * passed) / rate
    for row in range(len(q.used)):
        q.value[row] = q.used[row] * left + q.held[row] * grown if passed > 0 else q.used[row]


@compiled
def share_out(q, now):
    """Compute the fair-share factors from the usage up to a time."""
    _used_at(q, now)
    count = len(q.used)
    for row in range(count):
        q.actual[row] = q.value[row]
    for row in range(count - 1, 0, -1):
        q.actual[q.parent[row]] += q.actual[row]
    if q.scalar[IS_TREE]:
        _fair_tree(q)
    else:
        _classic(q)


@compiled
def _classic(q):
    """Set the classic factor: `optim.models.cluster.fair_share.AssociationTree.classic_factors`."""
    whole = q.actual[0]
    for row in range(len(q.actual)):
        if whole > 0:
            q.actual[row] /= whole
        q.value[row] = q.actual[row]
    for row in range(1, len(q.actual)):
        parent = q.parent[row]
        if q.takes_parent[row]:
            q.value[row] = q.value[parent]
        elif parent:
            q.value[row] += (q.value[parent] - q.actual[row]) * q.part[row]
    for row in range(len(q.actual)):
        exponent = q.value[row] / q.share[row] if q.share[row] > 0 else np.inf
        q.fair_share[row] = np.exp2(-exponent / q.factor[DAMPING])


@compiled
def _fair_tree(q):
    """Set the factor of Fair Tree: `optim.models.cluster.fair_share.AssociationTree.fair_tree_factors`.

    `queue` lists the associations in the order of visits, siblings by level. `stack` lists its parts still to be
    visited, and whether the first associations of a part tie with users already ranked.
    """
    count = len(q.actual)
    q.total[:] = 0.0
    for row in range(1, count):
        q.total[q.parent[row]] += q.actual[row]
    users = 0
    for row in range(1, count):
        users += q.is_user[row]
        total = q.total[q.parent[row]]
        used = q.actual[row] / total if total > 0 else 0.0
        q.value[row] = 0.0 if q.part[row] <= 0 else q.part[row] / used if used > 0 else np.inf
    rank = tied_rank = users
    last, depth = _read_children(q, 0, 0), 1
    q.stack[0, 0], q.stack[0, 1], q.stack[0, 2] = 0, last, 0
    _sort_by_level(q, 0, last)
    while depth:
        depth -= 1
        first, end, is_tied = q.stack[depth, 0], q.stack[depth, 1], q.stack[depth, 2]
        if first == end:
            continue
        same = first
        while same < end and q.value[q.queue[same]] == q.value[q.queue[first]]:
            same += 1
        if same < end:
            q.stack[depth, 0], q.stack[depth, 1], q.stack[depth, 2] = same, end, 0
            depth += 1
        for at in range(first, same):
            row = q.queue[at]
            if q.is_user[row]:
                if not is_tied:
                    tied_rank, is_tied = rank, 1
                q.fair_share[row] = tied_rank / users
                rank -= 1
        begin = last
        for at in range(first, same):
            last = _read_children(q, q.queue[at], last)
        _sort_by_level(q, begin, last)
        q.stack[depth, 0], q.stack[depth, 1], q.stack[depth, 2] = begin, last, is_tied
        depth += 1


@compiled
def _read_children(q, row, last):
    """Append the children of an association to the queue, and return its new end."""
    for at in range(q.child_first[row], q.child_first[row + 1]):
        q.queue[last] = q.child[at]
        last += 1
    return last


@compiled
def _sort_by_level(q, first, end):
    """Sort a part of the queue by decreasing level: an in-place heap sort, in which the order of ties is irrelevant."""
    size = end - first
    for at in range(size // 2 - 1, -1, -1):
        _sink(q, first, at, size)
    while size > 1:
        size -= 1
        q.queue[first], q.queue[first + size] = q.queue[first + size], q.queue[first]
        _sink(q, first, 0, size)


@compiled
def _sink(q, first, at, size):
    """Restore the heap below a position; the lowest level is at the root."""
    while True:
        below = 2 * at + 1
        if below >= size:
            return
        if below + 1 < size and q.value[q.queue[first + below + 1]] < q.value[q.queue[first + below]]:
            below += 1
        if q.value[q.queue[first + below]] >= q.value[q.queue[first + at]]:
            return
        q.queue[first + below], q.queue[first + at] = q.queue[first + at], q.queue[first + below]
        at = below


@compiled
def key_of(u, s, q, job):
    """Return the key of a waiting job, above 0 and smaller first: its level times 2^32, minus its priority."""
    waits = q.scalar[LOOKED] - max(u.submit[job], s.stopped[job])
    age = min(1.0, max(0, waits) / q.factor[MAX_AGE])
    fair_share = q.fair_share[q.association[job]]
    total = q.factor[WEIGHT_AGE] * age + (q.factor[WEIGHT_FAIR_SHARE] * fair_share + q.base[job])
    return q.level[job] * 2**32 - int(min(total, float(MAX_PRIORITY)))


@compiled
def is_look_due(s, q):
    """Return whether a new period has begun since the last update."""
    return s.scalar[NOW] // q.scalar[PERIOD] * q.scalar[PERIOD] > q.scalar[LOOKED]


@compiled
def look(s, q):
    """Update priorities from usage at the beginning of the present period."""
    q.scalar[LOOKED] = s.scalar[NOW] // q.scalar[PERIOD] * q.scalar[PERIOD]
    share_out(q, q.scalar[LOOKED])


@compiled
def note_held(s, q):
    """If users' allocations change now, add their usage since the last change."""
    q.new_held[:] = 0.0
    for at in range(s.scalar[RUNNING_JOBS]):
        job = s.running[at]
        q.new_held[q.association[job]] += q.charge[job]
    is_changed = False
    for row in range(len(q.held)):
        q.new_held[row] /= CHARGE_UNIT
        is_changed |= q.new_held[row] != q.held[row]
    if is_changed:
        _used_at(q, s.scalar[NOW])
        for row in range(len(q.held)):
            q.used[row], q.held[row] = q.value[row], q.new_held[row]
        q.scalar[SINCE] = s.scalar[NOW]


@compiled
def next_look(s, q, num_waiting):
    """Return the beginning of the next period if a changed order could start a job then, otherwise `NEVER`."""
    if q.scalar[IS_STRICT] and num_waiting and s.scalar[FREE_GPUS]:
        return (s.scalar[NOW] // q.scalar[PERIOD] + 1) * q.scalar[PERIOD]
    return NEVER


@compiled
def _order_heaps(u, s, q):
    """Recompute the keys of all waiting jobs if an update is due, otherwise only those of new jobs."""
    is_due = is_look_due(s, q)
    if is_due:
        look(s, q)
    for kind in range(len(s.heap_size)):
        first = s.heap_first[kind]
        while s.heap_size[kind] and s.key_1[s.heap[first]] == 0:  # a new job precedes all others
            job = s.heap[first]
            pop_waiting(s, kind)
            if s.stopped[job] == NONE and not _is_first(q, job):
                continue
            s.key_1[job] = key_of(u, s, q, job)
            push_waiting(s, kind, job)
        size = s.heap_size[kind]
        if is_due:
            for at in range(first, first + size):
                s.key_1[s.heap[at]] = key_of(u, s, q, s.heap[at])
            for at in range(size // 2 - 1, -1, -1):
                lower(s.heap[first:], s.key_1, s.key_2, at, size, s.heap[first + at])


@compiled
def _is_first(q, job):
    """Append a submitted job to the list of its class; return whether it is the first."""
    kind = q.alike[job]
    is_first = q.first[kind] == NONE
    if is_first:
        q.first[kind] = job
    else:
        q.next[q.last[kind]] = job
    q.last[kind] = job
    return is_first


@compiled
def _follow(u, s, q, job):
    """Put the next job of the class into the heap in place of a job that starts."""
    kind = q.alike[job]
    if q.first[kind] == job:
        follower = q.next[job]
        q.first[kind] = follower
        if follower != NONE:
            s.key_1[follower] = key_of(u, s, q, follower)
            push_waiting(s, u.width_class[follower], follower)


@compiled
def decide_by_priority(u, s, b, q, is_held):
    """Update priorities, and make a pass through the jobs."""
    _order_heaps(u, s, q)
    is_held[:] = False
    while True:
        job = first_waiting(s, is_held)
        if job == NONE:
            break
        if has_room(u, s, u.width[job]):
            pop_waiting(s, u.width_class[job])
            start_job(u, s, b, job)
            _follow(u, s, q, job)
        elif u.has_backfill:
            is_held[u.width_class[job]] = True
        else:
            break
    note_held(s, q)


@compiled
def advance_by_priority(u, s, b, q, is_held, steps, margin):
    """Simulate as `optim.simulation.cluster.index.loop.advance`, with priorities."""
    for _ in range(steps):
        if is_halted(u, s, b, margin):
            return
        waiting = num_waiting(s)
        when = min(next_time(u, s, waiting), next_look(s, q, waiting))
        if when == NEVER:
            s.scalar[IS_OVER] = 1
            return
        s.scalar[NOW] = when
        happen(u, s, b)
        decide_by_priority(u, s, b, q, is_held)


def prioritising(q: Priorities) -> Callable[[Setup, State, Buffer, object, int, int], None]:
    """Return a loop that uses these priorities, with the signature of `optim.simulation.cluster.index.loop.advance`."""

    def play(setup: Setup, state: State, buffer: Buffer, is_held: object, steps: int, margin: int) -> None:
        advance_by_priority(setup, state, buffer, q, is_held, steps, margin)

    return play


def deciding_by(q: Priorities) -> Callable[[Setup, State, Buffer, object], None]:
    """Return the function that makes the first pass from a present state, in the order of these priorities."""

    def decide(setup: Setup, state: State, buffer: Buffer, is_held: object) -> None:
        decide_by_priority(setup, state, buffer, q, is_held)

    return decide

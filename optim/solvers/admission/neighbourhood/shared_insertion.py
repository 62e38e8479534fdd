"""Workers and PSs of one job on what is left of shared servers, compiled: a quick way, not always the best.

What several servers with different rests hold together is a sum of sets of pairs (workers, PSs), too dear to work out
in every slot of every move. So units are put one after the other: workers from one end of the servers, the PSs that
they then need from the other, first of all where no worker fits. Each number of workers goes on from the one before,
which gives the whole table of a slot in one pass.
"""

from typing import NamedTuple

from optim.core.by_reference import by_reference
from optim.core.compile_cache import compiled, inner
from optim.models.admission.instance import FloatArray, IntArray
from optim.solvers.admission.pricing.best_schedule import NONE, ZERO, sort_by_key


@by_reference
class SharedServers(NamedTuple):
    """What one job may use of a server, shape (classes, slots, resources), and work space; of no size elsewhere.

    Parameters
    ----------
    room
        Shape (servers,): workers that fit while the job has nothing there.
    order, ps_order
        Shape (servers,): in which units look for room.
    class_of
        Shape (servers,): class of each server.
    workers, ps
        Shape (servers,): units put so far.
    """

    share: FloatArray
    class_of: IntArray
    room: IntArray
    order: IntArray
    ps_order: IntArray
    workers: IntArray
    ps: IntArray


@inner
def _takes(h, y, z, s, t, left, workers, ps, shared):
    """Tell whether server h holds y workers and z PSs of the job."""
    c = shared.class_of[h]
    if y > workers.room[s, c, t] or z > ps.room[s, c, t]:
        return False
    for r in range(left.shape[1]):
        use = y * workers.demand[s, r] + z * ps.demand[s, r]
        if use > left[h, r] or (y + z > 1 and use > shared.share[c, t, r]):
            return False
    return True


@inner
def _order_servers(s, t, left, workers, shared, class_order, ps_class_order, is_tight):
    """List the servers as workers look for room, and as PSs do, both by class; return how many there are.

    PSs look first at servers without room for a worker, then at the others from the other end.
    """
    number = ZERO
    for turn in range(len(class_order)):
        c = class_order[turn]
        low, size = workers.first[c], workers.first[c + 1] - workers.first[c]
        for h in range(low, low + size):
            held = float(workers.room[s, c, t])
            for r in range(left.shape[1]):
                if workers.demand[s, r] > 0.0:
                    held = min(held, left[h, r] / workers.demand[s, r])
            shared.room[h] = int(held)
            shared.workers[h] = shared.ps[h] = 0
        own = shared.order[number : number + size]
        sort_by_key(shared.room[low : low + size], size, own)
        for k in range(size):
            own[k] += low
        if not is_tight:
            for k in range(size // 2):
                own[k], own[size - 1 - k] = own[size - 1 - k], own[k]
        number += size
    count = ZERO
    for turn in range(len(ps_class_order)):
        c = ps_class_order[turn]
        for is_spare in (True, False):
            for position in range(number):
                h = shared.order[position] if is_spare else shared.order[number - 1 - position]
                if shared.class_of[h] == c and (shared.room[h] == 0) == is_spare:
                    shared.ps_order[count] = h
                    count += 1
    return number


@compiled
def fill_shared(s, t, most, needed, scale, left, workers, ps, shared, class_order, ps_class_order, is_tight, unit, ps_unit, table):  # fmt: skip
    """Put up to `most` workers and the ``needed[Y]`` PSs on servers; return how many workers found room with theirs.

    Parameters
    ----------
    s, t
        Segment and slot.
    left
        Shape (servers, resources): of the slot.
    workers, ps
        Sides.
    class_order, ps_class_order
        Classes by cost of a worker, and of a PS.
    unit, ps_unit
        Shape (classes,): cost of one at scale 1.
    table
        Receives the costs of Y = 0, 1, ... workers with their PSs. The units of the last Y are in `shared`.
    """
    number = _order_servers(s, t, left, workers, shared, class_order, ps_class_order, is_tight)
    at, ps_at, placed, total = ZERO, ZERO, ZERO, 0.0
    for y in range(most + 1):
        if y > 0:
            while at < number and not _takes(
                shared.order[at], shared.workers[shared.order[at]] + 1, shared.ps[shared.order[at]], s, t, left,
                workers, ps, shared,
            ):  # fmt: skip
                at += 1
            if at == number:
                return y - 1
            h = shared.order[at]
            shared.workers[h] += 1
            total += scale * unit[shared.class_of[h]]
        while placed < needed[y]:
            while ps_at < number and not _takes(
                shared.ps_order[ps_at], shared.workers[shared.ps_order[ps_at]], shared.ps[shared.ps_order[ps_at]] + 1,
                s, t, left, workers, ps, shared,
            ):  # fmt: skip
                ps_at += 1
            if ps_at == number:
                return y - 1 if y > 0 else NONE
            h = shared.ps_order[ps_at]
            shared.ps[h] += 1
            placed += 1
            total += scale * ps_unit[shared.class_of[h]]
        table[y] = total
    return most


@compiled
def write_shared(i, s, t, units, row_offset, side, state):
    """Append a side's units, by server, to a job's rows, and take their room."""
    own = row_offset[i]
    for h in range(len(units)):
        if units[h] > 0:
            row = own + state.used[i]
            state.rows[row, 0], state.rows[row, 1], state.rows[row, 2], state.rows[row, 3] = t, h, units[h], s
            state.used[i] += 1
            for r in range(state.left.shape[2]):
                state.left[t, h, r] -= units[h] * side.demand[s, r]

"""The arrays that the compiled search on single servers reads, and those that it works in."""

from typing import NamedTuple

import numpy as np

from optim.core.by_reference import by_reference
from optim.core.compile_cache import inner
from optim.models.admission.instance import FloatArray, IntArray
from optim.solvers.admission.pricing.best_schedule import Space
from optim.solvers.admission.pricing.job_tables import JobTables
from optim.solvers.admission.pricing.shared_room import PairScratch, Places, pair_scratch, share_limit

SLOT, SERVER, COUNT, SEGMENT = range(4)
"""Columns of the placements that the loop writes."""


@by_reference
class SideArrays(NamedTuple):
    """One side's servers as a job meets them.

    Parameters
    ----------
    demand
        Shape (segments, resources), 1e-6 units a worker (a PS).
    limit
        Shape (segments, classes, slots): most units on one empty server.
    class_of_server
        Shape (servers,).
    rank
        Shape (slots, servers): order of the servers' capacity vectors, equal for equal ones.
    residual
        Shape (slots, resources, servers), 1e-6 units.
    price
        Shape (slots, resources, servers), utils a whole unit.
    """

    demand: FloatArray
    limit: IntArray
    class_of_server: IntArray
    rank: IntArray
    residual: FloatArray
    price: FloatArray


@by_reference
class ServerScratch(NamedTuple):
    """Work space, one entry a server: what a unit costs, how many units it holds, a heap of servers."""

    unit: FloatArray
    room: FloatArray
    heap: IntArray


@by_reference
class SharedArrays(NamedTuple):
    """What shared servers need beside the two sides, and work space.

    Parameters
    ----------
    share_limit
        Shape (slots, resources, classes): what one job may use of a server, 1e-6 units.
    blocking, mark, server, out_workers, out_ps
        One entry a server.
    left, room
        One entry a resource.
    one, power, work
        Frontiers: one entry for 0, 1, ... workers.
    places, pairs
        A place a server, and the recursion's tables.
    """

    share_limit: FloatArray
    blocking: FloatArray
    mark: IntArray
    server: IntArray
    out_workers: IntArray
    out_ps: IntArray
    left: FloatArray
    room: FloatArray
    one: IntArray
    power: IntArray
    work: IntArray
    places: Places
    pairs: PairScratch


@by_reference
class Scratch(NamedTuple):
    """Work space of either side, and results as rows (slot, server, count, segment)."""

    workers: ServerScratch
    ps: ServerScratch
    worker_rows: IntArray
    ps_rows: IntArray


@by_reference
class ServerSource(NamedTuple):
    """Single servers as a search meets them."""

    workers: SideArrays
    ps: SideArrays
    scratch: Scratch


@by_reference
class SharedServerSource(NamedTuple):
    """Single servers that workers and PSs share."""

    workers: SideArrays
    ps: SideArrays
    scratch: Scratch
    shared: SharedArrays


@inner
def write_row(rows, number, slot, server, count, segment):
    """Write where units of one slot are."""
    rows[number, SLOT] = slot
    rows[number, SERVER] = server
    rows[number, COUNT] = count
    rows[number, SEGMENT] = segment


def make_scratch(tables: JobTables, space: Space) -> Scratch:
    """Return work space that is large enough for every job of an instance."""
    longest, most = len(space.largest), space.tables.shape[2] - 1

    def of_servers(number: int) -> ServerScratch:
        return ServerScratch(np.zeros(number), np.zeros(number), np.zeros(number, dtype=np.int64))

    def rows(number: int) -> IntArray:
        return np.empty((longest * min(most, number), 4), dtype=np.int64)

    workers, ps = tables.instance.worker_servers.num_servers, tables.instance.ps_servers.num_servers
    return Scratch(of_servers(workers), of_servers(ps), rows(workers), rows(ps))


def make_shared(tables: JobTables) -> SharedArrays:
    """Return what the search needs on the shared servers of an instance."""
    instance = tables.instance
    servers = instance.worker_servers
    num = servers.num_servers
    limit = share_limit(instance, servers.capacity).transpose(1, 2, 0).astype(np.float64)
    most, most_ps = tables.most_at_once

    def ints(size: int) -> IntArray:
        return np.zeros(size, dtype=np.int64)

    return SharedArrays(
        share_limit=np.ascontiguousarray(limit),
        blocking=np.zeros(num),
        mark=ints(num),
        server=ints(num),
        out_workers=ints(num),
        out_ps=ints(num),
        left=np.zeros(instance.num_resources),
        room=np.zeros(instance.num_resources),
        one=ints(most + 1),
        power=ints(most + 1),
        work=ints(most + 1),
        places=Places(np.zeros(num), np.zeros(num), ints(num), ints(num * (most + 1))),
        pairs=pair_scratch(most, most_ps),
    )

"""The arrays that the compiled search on single servers reads, and those that it works in."""

from typing import NamedTuple

import numpy as np

from optim.models.admission.instance import FloatArray, IntArray
from optim.solvers.admission.pricing.job_tables import JobTables
from optim.solvers.admission.pricing.shared_room import PairScratch, Places, pair_scratch, share_limit

SLOT, SERVER, COUNT, SEGMENT = range(4)
"""Columns of the placements that the loop writes."""


class JobArrays(NamedTuple):
    """The jobs, as in `JobTables`."""

    arrival: IntArray
    deadline: IntArray
    target: IntArray
    most: IntArray
    value: FloatArray
    segment_offset: IntArray
    segment_start: IntArray
    table_offset: IntArray
    progress: IntArray
    ps_needed: IntArray


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


class ServerScratch(NamedTuple):
    """Work space, one entry a server: what a unit costs, how many units it holds, a heap of servers."""

    unit: FloatArray
    room: FloatArray
    heap: IntArray


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


class Scratch(NamedTuple):
    """Work space: costs by slot and progress, tables by slot and segment, and results as rows."""

    states: FloatArray
    tables: FloatArray
    largest: IntArray
    worker: ServerScratch
    ps: ServerScratch
    worker_rows: IntArray
    ps_rows: IntArray


def make_scratch(tables: JobTables) -> Scratch:
    """Return work space that is large enough for every job of an instance."""
    instance = tables.instance
    window = tables.deadline - tables.arrival + 1
    fastest = np.array([table[-1] for table in instance.progress], dtype=np.int64)
    # Others have no schedule at all; their targets may be beyond any memory.
    live = (window > 0) & (tables.target <= fastest * np.maximum(window, 0))
    longest = int(window[live].max(initial=0))
    widest = int(tables.target[live].max(initial=0))
    most = int(tables.most[live].max(initial=0))
    segments = int(np.diff(tables.segment_offset).max(initial=1))
    servers = (instance.worker_servers.num_servers, instance.ps_servers.num_servers)

    def of_servers(number: int) -> ServerScratch:
        return ServerScratch(np.zeros(number), np.zeros(number), np.zeros(number, dtype=np.int64))

    def rows(number: int) -> IntArray:
        return np.empty((longest * min(most, number), 4), dtype=np.int64)

    return Scratch(
        states=np.empty((longest + 1, widest + 1)),
        tables=np.empty((longest, segments, most + 1)),
        largest=np.empty((longest, segments), dtype=np.int64),
        worker=of_servers(servers[0]),
        ps=of_servers(servers[1]),
        worker_rows=rows(servers[0]),
        ps_rows=rows(servers[1]),
    )


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

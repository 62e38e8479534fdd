"""The arrays that the compiled search on single servers reads, and those that it works in."""

from typing import NamedTuple

import numpy as np

from optim.models.admission.instance import FloatArray, IntArray
from optim.solvers.admission.job_tables import JobTables

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
    return _scratch(longest=longest, widest=widest, segments=segments, most=most, servers=servers)


def smallest_scratch() -> Scratch:
    """Return work space for one job of one worker-slot on one server of each kind."""
    return _scratch(longest=1, widest=1, segments=1, most=1, servers=(1, 1))


def _scratch(*, longest: int, widest: int, segments: int, most: int, servers: tuple[int, int]) -> Scratch:
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

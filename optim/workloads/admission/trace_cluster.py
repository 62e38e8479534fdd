"""The cluster on which a trace's jobs compete: sized as the trace's own, by their work, or by numbers of servers."""

import math
from collections import Counter

import numpy as np

from optim.core.errors import InvalidProblemError
from optim.core.limits import check_limit
from optim.models.admission.instance import MICRO, FloatArray, IntArray, ServerClasses
from optim.workloads.admission.trace_options import TraceOptions
from optim.workloads.traces.job_table import JobTable, NodeTable

MOST = 0.5
"""Share of the jobs whose workers must fit on a node of a trace."""


def most_gpus_held(table: JobTable, clock: int) -> float:
    """Return the most GPUs that the jobs of one clock hold at once, each running from its submission on.

    That is what the trace tells of its cluster's size; a job that ends when another begins doesn't meet it.
    """
    own = table.clock == clock
    gpus = table.workers[own] * (1.0 if table.demand is None else table.demand[own, 0])
    times = np.concatenate([table.submit_s[own], table.submit_s[own] + table.duration_s[own]])
    change = np.concatenate([gpus, -gpus])
    held = np.cumsum(change[np.lexsort((change, times))])
    return float(held.max(initial=0.0))


def uniform_cluster(gpus: int, options: TraceOptions) -> tuple[ServerClasses, ServerClasses]:
    """Return servers that hold the options' workers and PSs without remainder.

    Parameters
    ----------
    gpus
        Workers that the cluster should hold, unless `num_worker_servers` says otherwise.
    options
        Demands, sizes of servers, and numbers where they are given.

    Raises
    ------
    InvalidProblemError
        If these are more servers than the limit on counts.
    """
    worker = np.array([options.worker_gpu, options.worker_vcpu, options.worker_memory_gb])
    ps = np.array([0.0, options.ps_vcpu, options.ps_memory_gb])
    sides = []
    for name, unit, total, largest, number in (
        ("workers", worker, gpus, options.gpus_per_server, options.num_worker_servers),
        ("ps", ps, num_ps(gpus, options), options.pss_per_server, options.num_ps_servers),
    ):
        sizes = [largest] * number if number is not None else _even_sizes(total, largest)
        counts = sorted(Counter(sizes).items(), reverse=True)
        sides.append(_classes([(f"{name}-{size}", unit * size, count) for size, count in counts], options))
    return sides[0], sides[1]


def cluster_of_nodes(
    nodes: NodeTable, gpus: int, demand: FloatArray, options: TraceOptions, rng: np.random.Generator
) -> tuple[ServerClasses, ServerClasses]:
    """Draw servers from a trace's own: nodes with GPUs host workers, nodes without host PSs.

    Nodes are taken in random order, without replacement: as many as the options say, or else until they hold
    `gpus` GPUs (PSs for as many), leaving out those that hold more than is still missing. Nodes that are too
    small for most of the jobs' workers are passed over.

    Parameters
    ----------
    nodes
        The trace's servers.
    gpus
        GPUs that the cluster should have, unless `num_worker_servers` says otherwise.
    demand
        What one worker of each job takes, shape (jobs, resources).
    options
        Demands of PSs, and numbers of servers where they are given.
    rng
        Source of chance.

    Raises
    ------
    InvalidProblemError
        If there are no nodes of a kind, or fewer than the options ask for.
    """
    has_gpu = nodes.capacity[:, 0] > 0
    fits_most = (demand[:, None, :] <= nodes.capacity[None]).all(axis=2).mean(axis=0) >= MOST
    ps = np.array([0.0, options.ps_vcpu, options.ps_memory_gb])
    with np.errstate(divide="ignore", invalid="ignore"):
        hosted = np.floor(np.where(ps > 0, nodes.capacity / ps, np.inf).min(axis=1))
    sides = []
    for name, which, size, total, number in (
        (
            "num_worker_servers",
            np.flatnonzero(has_gpu & fits_most),
            nodes.capacity[:, 0],
            gpus,
            options.num_worker_servers,
        ),
        ("num_ps_servers", np.flatnonzero(~has_gpu), hosted, num_ps(gpus, options), options.num_ps_servers),
    ):
        order = rng.permutation(which)
        if number is not None and number > len(order):
            raise InvalidProblemError(
                f"{name} must be at most {len(order)}, the trace's nodes that can be used, got {number}"
            )
        chosen = _until_full(order, size, total) if number is None else order[:number]
        if not len(chosen):
            raise InvalidProblemError(f"the node list has no node to count as {name}; give one that has")
        sides.append(_grouped(nodes, chosen, options))
    return sides[0], sides[1]


def num_ps(gpus: int, options: TraceOptions) -> int:
    """Return how many PSs the default cluster hosts."""
    return max(1, math.ceil(options.ps_per_gpu * gpus))


def _even_sizes(total: int, largest: int) -> list[int]:
    """Return sizes of as few servers as can hold `total`, differing by one at most."""
    number = math.ceil(total / largest)
    check_limit("count", number, "servers for a trace's jobs")
    return [total // number + (k < total % number) for k in range(number)]


def _until_full(order: IntArray, size: FloatArray, total: int) -> IntArray:
    """Return the servers that hold `total` together: in order, those that fit, then the smallest left."""
    chosen: list[int] = []
    missing = float(total)
    for server in order.tolist():
        if 0 < size[server] <= missing:
            chosen.append(server)
            missing -= size[server]
    left = sorted((size[server], place, server) for place, server in enumerate(order.tolist()) if size[server] > 0)
    for _, _, server in left:
        if missing <= 0:
            break
        if server not in chosen:
            chosen.append(server)
            missing -= size[server]
    return np.array(chosen, dtype=np.int64)


def _grouped(nodes: NodeTable, which: IntArray, options: TraceOptions) -> ServerClasses:
    """Return drawn nodes with equal ones as one class, largest classes of a kind first."""
    counts = Counter((nodes.kind[k], tuple(nodes.capacity[k].tolist())) for k in which.tolist())
    ordered = sorted(counts.items(), key=lambda entry: (entry[0][0], -entry[1], entry[0][1]))
    return _classes([(kind, np.array(capacity), count) for (kind, capacity), count in ordered], options)


def _classes(rows: list[tuple[str, FloatArray, int]], options: TraceOptions) -> ServerClasses:
    capacity = np.array([np.floor(np.round(row[1] * MICRO, 3)) for row in rows], dtype=np.int64)
    return ServerClasses(
        types=tuple(row[0] for row in rows),
        capacity=np.repeat(capacity[:, None, :], options.num_slots, axis=1),
        count=np.array([row[2] for row in rows], dtype=np.int64),
    )

"""The fewest equal servers that hold jobs whose requests change with the work done.

Job j arrives in slot a_j and starts at most S slots later, on one server, where it stays; in slot t of a start at s it asks for
d_j(t - s). A server holds any jobs whose requests fit at all times. For weights w(t, r) >= 0 with sum_t,r w(t, r) c(r) = 1, c the capacity,

    sum_j min_s sum_t,r w(t, r) d_j(t - s, r)

servers at least are busy at some time: weak duality of the programme that starts fractions of jobs, whose optimum the best weights give.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidProblemError
from optim.solvers.lp.highs import CompiledModel, solve_with_highs

FIT_TOL = 1e-9
"""Sums of many floats that just fill a server fit."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServerProblem:
    """Jobs and servers.

    Attributes
    ----------
    requests
        Of each job what it asks for in each slot of its work, shape (slots, R), each at most the capacity.
    arrival
        Shape (J,): slot of arrival.
    capacity
        Shape (R,): of each server.
    most_shift
        S: a job starts at most so many slots after its arrival.
    """

    requests: tuple[FloatArray, ...]
    arrival: IntArray
    capacity: FloatArray
    most_shift: int = 0

    def __post_init__(self) -> None:
        """Refuse jobs that no server holds."""
        for number, request in enumerate(self.requests):
            if (request > self.capacity * (1 + FIT_TOL)).any():
                raise InvalidProblemError(f"job {number} asks for more than a server has; make servers larger")

    @property
    def num_slots(self) -> int:
        """Slots until the last job has ended, whenever it starts."""
        ends = [int(a) + self.most_shift + len(d) for a, d in zip(self.arrival, self.requests, strict=True)]
        return max(ends, default=0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placement:
    """Where each job runs and from when, shape (J,) both.

    Attributes
    ----------
    server, start
        Number of the server, and the slot that it starts in.
    """

    server: IntArray
    start: IntArray

    @property
    def num_servers(self) -> int:
        """Servers that are used."""
        return len(np.unique(self.server))


def first_fit(problem: ServerProblem) -> Placement:
    """Place jobs in the order of their arrival: on the first server, and there in the first slot, that holds them, else on a new one."""
    load: list[FloatArray] = []
    server, start = np.zeros(len(problem.requests), dtype=np.int64), problem.arrival.astype(np.int64).copy()
    capacity = problem.capacity * (1 + FIT_TOL)
    for job in np.argsort(problem.arrival, kind="stable").tolist():
        request, arrival = problem.requests[job], int(problem.arrival[job])
        choices = ((k, arrival + shift) for k in range(len(load)) for shift in range(problem.most_shift + 1))
        position = next(
            ((k, s) for k, s in choices if (load[k][s : s + len(request)] + request <= capacity).all()), None
        )
        if position is None:
            load.append(np.zeros((problem.num_slots, len(problem.capacity))))
            position = len(load) - 1, arrival
        server[job], start[job] = position
        load[position[0]][position[1] : position[1] + len(request)] += request
    return Placement(server=server, start=start)


def is_feasible(problem: ServerProblem, placement: Placement) -> bool:
    """Return whether no server ever has to hold more than it has, and each job starts when it may."""
    late = placement.start - problem.arrival
    load = np.zeros((int(placement.server.max(initial=-1)) + 1, problem.num_slots, len(problem.capacity)))
    if (late < 0).any() or (late > problem.most_shift).any():
        return False
    for request, server, start in zip(problem.requests, placement.server, placement.start, strict=True):
        load[server, start : start + len(request)] += request
    return bool((load <= problem.capacity * (1 + len(problem.requests) * FIT_TOL)).all())


def proven_bound(problem: ServerProblem, weights: FloatArray) -> float:
    """Return the bound above that weights, shape (slots, R), prove, whatever their scale."""
    weights = np.maximum(weights, 0.0)
    scale = float((weights * problem.capacity).sum())
    if scale <= 0:
        return 0.0
    total = 0.0
    for request, arrival in zip(problem.requests, problem.arrival.tolist(), strict=True):
        starts = range(arrival, arrival + problem.most_shift + 1)
        total += min(float((weights[s : s + len(request)] * request).sum()) for s in starts)
    return total / scale


def best_weights(problem: ServerProblem) -> FloatArray:
    """Return the weights, shape (slots, R), of the best such bound, by the linear programme's dual."""
    jobs, shifts, width = len(problem.requests), problem.most_shift + 1, len(problem.capacity)
    rows, columns, values = [], [], []
    for job, (request, arrival) in enumerate(zip(problem.requests, problem.arrival.tolist(), strict=True)):
        for shift in range(shifts):
            slot = np.repeat(np.arange(arrival + shift, arrival + shift + len(request)), width)
            rows.append(slot * width + np.tile(np.arange(width), len(request)))
            columns.append(np.full(request.size, job * shifts + shift))
            values.append((request / problem.capacity).ravel())
    size = problem.num_slots * width
    rows.append(np.arange(size))
    columns.append(np.full(size, jobs * shifts))
    values.append(np.full(size, -1.0))
    load = coo_array(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape=(size, jobs * shifts + 1)
    ).tocsr()
    starts = coo_array((np.ones(jobs * shifts), (np.repeat(np.arange(jobs), shifts), np.arange(jobs * shifts))))
    starts = coo_array((starts.data, starts.coords), shape=(jobs, jobs * shifts + 1)).tocsr()
    cost = np.append(np.zeros(jobs * shifts), 1.0)
    solution = linprog(cost, A_ub=load, b_ub=np.zeros(size), A_eq=starts, b_eq=np.ones(jobs), method="highs")
    if not solution.success:  # any weights prove a bound
        return np.ones((problem.num_slots, width)) / problem.capacity
    return np.asarray(-solution.ineqlin.marginals.reshape(-1, width) / problem.capacity)


def min_servers(problem: ServerProblem) -> int:
    """Return a number of servers that no placement is below, proven by weights."""
    return math.ceil(proven_bound(problem, best_weights(problem)) - 1e-6)


def min_servers_by_model(problem: ServerProblem, time_limit_s: float) -> tuple[Placement, int, int]:
    """Return a placement, a proven bound and a claimed one: first-fit's, or better by the mixed-integer programme within the time.

    Notes
    -----
    Minimise sum_k u_k over binaries u_k (server k is used) and x_jks (job j starts on k in slot s): each job once, requests
    on each server in each slot at most u_k c, and u falling in k. HiGHS' bound comes without a proof: it is the claim, unless the
    placement refutes it. The placement is checked against the requests themselves.
    """
    start = first_fit(problem)
    bound = min_servers(problem)
    if start.num_servers <= bound:
        return start, bound, bound
    model = _model(problem, start.num_servers)
    outcome = solve_with_highs(CompiledModel(model), time_limit_s=time_limit_s)
    if not outcome.has_values:
        return start, bound, bound
    chosen = [key for key, variable in model.x.items() if variable.value > 0.5]
    server, begin = np.zeros(len(problem.requests), dtype=np.int64), np.zeros(len(problem.requests), dtype=np.int64)
    for job, k, slot in chosen:
        server[job], begin[job] = k, slot
    placement = Placement(server=server, start=begin)
    if not is_feasible(problem, placement) or placement.num_servers >= start.num_servers:
        placement = start
    claimed = math.ceil((outcome.bound or 0.0) - 1e-6)
    return placement, bound, max(bound, claimed) if claimed <= placement.num_servers else bound


def _model(problem: ServerProblem, max_servers: int) -> Any:
    """Return the programme with at most so many servers, in Pyomo."""
    import pyomo.environ as pyo

    jobs, servers = range(len(problem.requests)), range(max_servers)
    starts = [range(int(a), int(a) + problem.most_shift + 1) for a in problem.arrival]
    model = pyo.ConcreteModel()
    model.u = pyo.Var(servers, domain=pyo.Binary)
    model.x = pyo.Var([(j, k, s) for j in jobs for k in servers for s in starts[j]], domain=pyo.Binary)
    model.total = pyo.Objective(expr=pyo.quicksum(model.u[k] for k in servers))
    model.once = pyo.Constraint(jobs, rule=lambda m, j: sum(m.x[j, k, s] for k in servers for s in starts[j]) == 1)
    model.order = pyo.Constraint(range(1, max_servers), rule=lambda m, k: m.u[k] <= m.u[k - 1])

    def fits(m: Any, k: int, slot: int, column: int) -> Any:
        load = [
            float(problem.requests[j][slot - s, column]) * m.x[j, k, s]
            for j in jobs
            for s in starts[j]
            if 0 <= slot - s < len(problem.requests[j])
        ]
        return sum(load) <= float(problem.capacity[column]) * m.u[k] if load else pyo.Constraint.Skip

    model.fits = pyo.Constraint(servers, range(problem.num_slots), range(len(problem.capacity)), rule=fits)
    return model


def loads(series: Sequence[FloatArray], placement: Placement, slot_samples: int) -> list[FloatArray]:
    """Return what the true series of the jobs on each used server add up to, a (samples, R) each, from slot 0 on."""
    totals = []
    for server in np.unique(placement.server).tolist():
        jobs = np.flatnonzero(placement.server == server).tolist()
        begin = {job: int(placement.start[job]) * slot_samples for job in jobs}
        total = np.zeros((max(begin[job] + len(series[job]) for job in jobs), series[0].shape[1]))
        for job in jobs:
            total[begin[job] : begin[job] + len(series[job])] += series[job]
        totals.append(total)
    return totals


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pairing:
    """Jobs in pairs.

    Attributes
    ----------
    pairs
        Pairs of job numbers, the smaller first, rising; of an odd number one job is left alone and in none.
    joint
        Shape (pairs, R): what each pair needs together at any one time.
    apart
        Shape (pairs, R): the sum of what both need at their own worst times.
    """

    pairs: tuple[tuple[int, int], ...]
    joint: FloatArray
    apart: FloatArray

    @property
    def saving(self) -> FloatArray:
        """Share of capacity that pairing saves, shape (R,)."""
        return share_saved(self.joint.sum(axis=0), self.apart.sum(axis=0))


def share_saved(joint: FloatArray, apart: FloatArray) -> FloatArray:
    """Return which share of what is needed apart isn't needed together, by resource; 0 where nothing is needed apart."""
    return np.asarray(np.where(apart > 0, 1.0 - joint / np.where(apart > 0, apart, 1.0), 0.0))


def joint_demand(first: FloatArray, second: FloatArray) -> FloatArray:
    """Return what two jobs that start together need, shape (the longer one's length, R), by slot or by sample."""
    total = np.zeros((max(len(first), len(second)), first.shape[1]))
    total[: len(first)] += first
    total[: len(second)] += second
    return total


def joint_peak(first: FloatArray, second: FloatArray) -> FloatArray:
    """Return the peak of two jobs that start together, shape (R,), from demands by slot, shape (slots, R)."""
    return np.asarray(joint_demand(first, second).max(axis=0))


def pair_jobs(demands: Sequence[FloatArray]) -> Pairing:
    """Pair jobs so that pairs save the most in total: a matching of maximum weight.

    A pair's weight is the sum over resources of peak + peak - joint peak, each over the mean peak of that resource.

    Parameters
    ----------
    demands
        Of each job the demand by slot, shape (slots, R); jobs of a pair start together.
    """
    import networkx as nx

    peaks = np.stack([demand.max(axis=0) for demand in demands])
    scale = np.where(peaks.mean(axis=0) > 0, peaks.mean(axis=0), 1.0)
    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(range(len(demands)))
    for i in range(len(demands)):
        for j in range(i + 1, len(demands)):
            saved = peaks[i] + peaks[j] - joint_peak(demands[i], demands[j])
            graph.add_edge(i, j, weight=float((saved / scale).sum()))
    matching = nx.max_weight_matching(graph, maxcardinality=True)
    pairs = tuple(sorted((min(pair), max(pair)) for pair in matching))
    width = peaks.shape[1]
    joint = [joint_peak(demands[i], demands[j]) for i, j in pairs]
    return Pairing(
        pairs=pairs,
        joint=np.array(joint).reshape(-1, width),
        apart=np.array([peaks[i] + peaks[j] for i, j in pairs]).reshape(-1, width),
    )

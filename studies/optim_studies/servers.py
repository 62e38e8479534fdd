"""The study `servers`: number of equal servers for recurring jobs at equal kills, by the sizing of their requests.

All sizing rules use the same earlier runs of each job and one multiplier, tuned on some sets of jobs to the same kills and
throttling; servers are counted on other sets. Requests by slot of five minutes save 2.7 % [1.3, 4.1] of the servers of a flat
quantile, and 1.2 % [-0.7, 3.1] if jobs may start four slots late.

The problem is to minimise the number of equal servers for jobs whose requests change with the work done.

Job j arrives in slot a_j and starts at most S slots later on one server, where it stays. If it starts in slot s, it requests
d_j(t - s) in slot t. In every slot, the sum of the requests on a server is at most its capacity c. For weights w(t, r) >= 0
with sum_t,r w(t, r) c(r) = 1,

    sum_j min_s sum_t,r w(t, r) d_j(t - s, r)

is a lower bound on the maximum number of busy servers in a slot. This is weak duality for the programme with fractional
starts; the best weights give its optimum.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.benchmarks.suite import FULL, SMALL
from optim.core.arrays import FloatArray, IntArray
from optim.core.driver import PhaseClock
from optim.core.errors import InvalidProblemError, check_in
from optim.core.limits import check_drawn
from optim.core.progress import Progress
from optim.core.stopping import StoppingCriterion
from optim.solvers.lp.highs import CompiledModel, solve_with_highs
from optim.statistics import Interval
from optim.workloads.containers import ContainerOptions, generate_containers

FIT_TOL = 1e-9
"""Tolerance for sums of floats that exactly fill a server."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServerProblem:
    """Jobs and servers.

    Attributes
    ----------
    requests
        Requests of each job in each slot of its work, shape (slots, R), each at most the capacity.
    arrival
        Shape (J,): slot of arrival.
    capacity
        Shape (R,): capacity of each server.
    max_shift
        S: maximum slots between a job's arrival and its start.
    """

    requests: tuple[FloatArray, ...]
    arrival: IntArray
    capacity: FloatArray
    max_shift: int = 0

    def __post_init__(self) -> None:
        """Raise InvalidProblemError for jobs that fit no server."""
        for number, request in enumerate(self.requests):
            if (request > self.capacity * (1 + FIT_TOL)).any():
                raise InvalidProblemError(
                    f"job {number} requests more than the capacity of a server; make servers larger"
                )

    @property
    def num_slots(self) -> int:
        """Number of slots until all jobs have ended, for any allowed starts."""
        ends = [int(a) + self.max_shift + len(d) for a, d in zip(self.arrival, self.requests, strict=True)]
        return max(ends, default=0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placement:
    """Server and start of each job, shape (J,) both.

    Attributes
    ----------
    server, start
        Index of the server, and the slot of the start.
    """

    server: IntArray
    start: IntArray

    @property
    def num_servers(self) -> int:
        """Number of used servers."""
        return len(np.unique(self.server))


def first_fit(problem: ServerProblem) -> Placement:
    """Place each job, by arrival, on the first server that fits it and in the first slot there; else on a new server."""
    load: list[FloatArray] = []
    server, start = np.zeros(len(problem.requests), dtype=np.int64), problem.arrival.astype(np.int64).copy()
    capacity = problem.capacity * (1 + FIT_TOL)
    for job in np.argsort(problem.arrival, kind="stable").tolist():
        request, arrival = problem.requests[job], int(problem.arrival[job])
        choices = ((k, arrival + shift) for k in range(len(load)) for shift in range(problem.max_shift + 1))
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
    """Return whether no server is ever overloaded, and each job starts within its allowed slots."""
    late = placement.start - problem.arrival
    load = np.zeros((int(placement.server.max(initial=-1)) + 1, problem.num_slots, len(problem.capacity)))
    if (late < 0).any() or (late > problem.max_shift).any():
        return False
    for request, server, start in zip(problem.requests, placement.server, placement.start, strict=True):
        load[server, start : start + len(request)] += request
    return bool((load <= problem.capacity * (1 + len(problem.requests) * FIT_TOL)).all())


def proven_bound(problem: ServerProblem, weights: FloatArray) -> float:
    """Return the lower bound that weights, shape (slots, R), prove; their scale is irrelevant."""
    weights = np.maximum(weights, 0.0)
    scale = float((weights * problem.capacity).sum())
    if scale <= 0:
        return 0.0
    total = 0.0
    for request, arrival in zip(problem.requests, problem.arrival.tolist(), strict=True):
        starts = range(arrival, arrival + problem.max_shift + 1)
        total += min(float((weights[s : s + len(request)] * request).sum()) for s in starts)
    return total / scale


def best_weights(problem: ServerProblem) -> FloatArray:
    """Return the weights, shape (slots, R), of the best lower bound, from the linear programme's dual."""
    jobs, shifts, width = len(problem.requests), problem.max_shift + 1, len(problem.capacity)
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
    """Return a lower bound on the number of servers, proven by weights."""
    return math.ceil(proven_bound(problem, best_weights(problem)) - 1e-6)


def min_servers_by_model(problem: ServerProblem, time_limit_s: float) -> tuple[Placement, int, int]:
    """Return a placement, a proven bound on the number of servers, and a claimed bound.

    The placement is that of first-fit, or of the mixed-integer programme if that finds a better one in time.

    Notes
    -----
    Minimise sum_k u_k over binaries u_k (server k is used) and x_jks (job j starts on k in slot s): each job once, requests
    on each server in each slot at most u_k c, and u decreasing in k. HiGHS' bound has no proof: it is the claimed one, unless the
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
    """Return the Pyomo model with at most `max_servers` servers."""
    from optim.models.pyomo import pyo

    jobs, servers = range(len(problem.requests)), range(max_servers)
    starts = [range(int(a), int(a) + problem.max_shift + 1) for a in problem.arrival]
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
    """Return the sum of the jobs' true series on each used server, shape (samples, R) each, from slot 0 on."""
    totals = []
    for server in np.unique(placement.server).tolist():
        jobs = np.flatnonzero(placement.server == server).tolist()
        begin = {job: int(placement.start[job]) * slot_samples for job in jobs}
        total = np.zeros((max(begin[job] + len(series[job]) for job in jobs), series[0].shape[1]))
        for job in jobs:
            total[begin[job] : begin[job] + len(series[job])] += series[job]
        totals.append(total)
    return totals


FLAT_LEVEL = 0.95
"""Level of the quantiles of `flat` and `slot`."""


class RequestSizing(StrEnum):
    """Rules that size requests from earlier runs."""

    PEAK = "peak"
    """The maximum of any run, constant over time."""
    FLAT = "flat"
    """The 95 % quantile of all samples, constant over time."""
    SLOT = "slot"
    """The 95 % quantile of the samples in the slot and its two neighbours."""


def earlier_runs(values: FloatArray, number: int, error: float, rng: np.random.Generator) -> list[FloatArray]:
    """Return runs similar to a job's, with lengths and levels multiplied by exp(error N(0, 1)).

    Parameters
    ----------
    values
        Shape (samples, R): the unknown next run.
    number, error
        Number of runs, and standard deviation of the logarithms of their lengths and levels.
    rng
        Source of randomness.
    """
    runs = []
    for _ in range(number):
        length = max(1, round(len(values) * float(np.exp(error * rng.normal()))))
        place = np.minimum((np.arange(length) * len(values) / length).astype(np.int64), len(values) - 1)
        runs.append(values[place] * np.exp(error * rng.normal(size=(1, values.shape[1]))))
    return runs


def requests(
    runs: Sequence[FloatArray], sizing: RequestSizing, slot_samples: int, level: float = FLAT_LEVEL
) -> FloatArray:
    """Return a job's request in each slot of its work, shape (slots, R), as many slots as its longest run has.

    `level` is that of the quantiles of `flat` and `slot`.
    """
    slots = max(-(-len(run) // slot_samples) for run in runs)
    if sizing is not RequestSizing.SLOT:
        level = 1.0 if sizing is RequestSizing.PEAK else level
        return np.tile(np.quantile(np.concatenate(runs), level, axis=0), (slots, 1))
    windows = []
    for slot in range(slots):
        begin, end = max(0, slot - 1) * slot_samples, (slot + 2) * slot_samples
        windows.append(np.concatenate([run[begin:end] for run in runs if len(run) > begin]))
    return np.array([np.quantile(values, level, axis=0) for values in windows])


HALVINGS = 9
MULTIPLIERS = (0.5, 3.0)
TUNING_SEED = 10_000
"""First seed of the sets for tuning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Jobs, servers and the constraints that all sizing rules meet.

    Attributes
    ----------
    jobs, seeds
        Number of jobs per set, and of sets on which servers are counted; as many other sets serve for tuning.
    runs, error
        Number of earlier runs of each job, and standard deviation of the logarithms of their lengths and levels.
    kills
        Allowed share of killed jobs, over all tuning sets.
    throttled
        Allowed share of a busy server's samples short of CPU.
    max_shift
        Slots by which a job may start late.
    jobs_per_server
        Capacity of a server, relative to the mean peak of a job.
    slot_s, horizon_slots
        Length of a slot in seconds; number of slots in which jobs arrive.
    model_s
        Seconds for the mixed-integer programme on each counted set; 0 omits it.
    """

    jobs: int = 40
    seeds: int = 20
    runs: int = 3
    error: float = 0.05
    kills: float = 0.02
    throttled: float = 0.02
    max_shift: int = 0
    jobs_per_server: float = 4.0
    slot_s: float = 300.0
    horizon_slots: int = 12
    model_s: float = 0.0

    def __post_init__(self) -> None:
        """Check ranges."""
        check_in("[1, inf)", self, "jobs", "runs", "horizon_slots")
        check_in(f"[2, {TUNING_SEED}]", self, "seeds")  # with more, a set would be both tuned and counted on
        check_drawn("count", self.jobs * self.seeds, "jobs of all sets")
        check_in("[0, 1]", self, "error")
        check_in("(0, 1)", self, "kills", "throttled")
        check_in("[0, inf)", self, "max_shift", "model_s")
        check_in("(0, inf)", self, "jobs_per_server", "slot_s")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobSet:
    """A set of jobs: true series (CPU, memory), arrivals, capacity of the servers, samples per slot, requests by sizing rule."""

    series: list[FloatArray]
    arrival: np.ndarray
    capacity: FloatArray
    slot_samples: int
    asked: dict[RequestSizing, list[FloatArray]]

    def problem(self, asking: RequestSizing, multiplier: float, max_shift: int) -> ServerProblem:
        """Return the problem with requests times a multiplier, capped at the capacity."""
        asked = tuple(np.minimum(multiplier * request, self.capacity) for request in self.asked[asking])
        return ServerProblem(requests=asked, arrival=self.arrival, capacity=self.capacity, max_shift=max_shift)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Counted:
    """Results of a sizing rule.

    Attributes
    ----------
    multiplier, is_reached
        Factor on requests, and whether it meets the constraints; if no factor up to 3 does, results are for 3.
    servers, by_model
        Shape (sets,): number of servers by first-fit, and by the mixed-integer programme if it has time.
    least, claimed
        Mean bound proven by weights, and the larger of it and HiGHS' unproven bound.
    kills, throttled
        Resulting shares.
    """

    multiplier: float
    is_reached: bool
    servers: FloatArray
    by_model: FloatArray
    least: float
    claimed: float
    kills: float
    throttled: float


@lru_cache(maxsize=2)
def drawn_sets(options: ServerOptions, seed: int) -> tuple[list[JobSet], list[JobSet]]:
    """Return sets to tune on and sets to count on."""
    numbers = range(seed, seed + options.seeds)
    return [draw_set(options, TUNING_SEED + k) for k in numbers], [draw_set(options, k) for k in numbers]


@lru_cache(maxsize=3)
def count_servers(options: ServerOptions, seed: int, asking: RequestSizing) -> Counted:
    """Tune a sizing rule on some sets, and count servers on others."""
    tuning, fresh = drawn_sets(options, seed)
    *_, multiplier = _halvings(tuning, asking, options)
    problems = [job_set.problem(asking, multiplier, options.max_shift) for job_set in fresh]
    placed = [first_fit(problem) for problem in problems]
    counts = [
        _by_model(problem, options.model_s, placement) for problem, placement in zip(problems, placed, strict=True)
    ]
    by_model, bounds, claimed = np.array(counts, dtype=np.float64).T
    kills, throttled = _violations(fresh, placed)
    return Counted(
        multiplier=multiplier,
        is_reached=multiplier < MULTIPLIERS[1] or _is_met(tuning, asking, multiplier, options),
        servers=np.array([placement.num_servers for placement in placed], dtype=np.float64),
        by_model=by_model,
        least=float(bounds.mean()),
        claimed=float(claimed.mean()),
        kills=kills,
        throttled=throttled,
    )


def _by_model(problem: ServerProblem, model_s: float, placed: Placement) -> tuple[int, int, int]:
    """Return the number of servers (by the mixed-integer programme if `model_s` > 0), a proven and a claimed bound."""
    if model_s <= 0:
        bound = min_servers(problem)
        return placed.num_servers, bound, bound
    placement, bound, claimed = min_servers_by_model(problem, model_s)
    return placement.num_servers, bound, claimed


def draw_set(options: ServerOptions, seed: int) -> JobSet:
    """Draw jobs, their arrivals and their earlier runs."""
    containers = generate_containers(ContainerOptions(num_containers=options.jobs), seed)
    rng = np.random.default_rng([seed, options.jobs])
    series = [containers.values[rows] for rows in containers.segments()]
    slot_samples = max(1, round(options.slot_s / (containers.interval_s or options.slot_s)))
    runs = [earlier_runs(values, options.runs, options.error, rng) for values in series]
    capacity = options.jobs_per_server * np.mean([values.max(axis=0) for values in series], axis=0)
    return JobSet(
        series=series,
        arrival=np.sort(rng.integers(0, options.horizon_slots, size=options.jobs)),
        capacity=np.maximum(capacity, np.max([values.max(axis=0) for values in series], axis=0)),
        slot_samples=slot_samples,
        asked={asking: [requests(job_runs, asking, slot_samples) for job_runs in runs] for asking in RequestSizing},
    )


def _halvings(sets: Sequence[JobSet], asking: RequestSizing, options: ServerOptions) -> Iterator[float]:
    """Yield multipliers by bisection; the last is the smallest found that meets the constraints, or the largest allowed."""
    low, high = MULTIPLIERS
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if _is_met(sets, asking, middle, options) else (middle, high)
        yield high


def _is_met(sets: Sequence[JobSet], asking: RequestSizing, multiplier: float, options: ServerOptions) -> bool:
    """Return whether a multiplier meets the constraints on kills and throttling over all sets."""
    placed = [first_fit(job_set.problem(asking, multiplier, options.max_shift)) for job_set in sets]
    kills, throttled = _violations(sets, placed)
    return kills <= options.kills and throttled <= options.throttled


def _violations(sets: Sequence[JobSet], placed: Sequence[Placement]) -> tuple[float, float]:
    """Return the share of jobs killed, and of busy servers' samples short of CPU.

    A server that runs out of memory kills one job per slot; the job's series continues, so that the next slot may kill another.
    """
    kills = jobs = samples = short = 0
    for job_set, placement in zip(sets, placed, strict=True):
        slot_samples = job_set.slot_samples
        for load in loads(job_set.series, placement, slot_samples):
            over = load > job_set.capacity * (1 + FIT_TOL)
            slots = -(-len(load) // slot_samples) * slot_samples
            by_slot = np.zeros(slots, dtype=bool)
            by_slot[: len(load)] = over[:, 1]
            kills += int(by_slot.reshape(-1, slot_samples).any(axis=1).sum())
            busy = load.any(axis=1)
            samples += int(busy.sum())
            short += int(over[:, 0].sum())
        jobs += len(job_set.series)
    return kills / max(jobs, 1), short / max(samples, 1)


@dataclass(frozen=True, kw_only=True)
class ServerWork(AbstractStudy):
    """Count the servers that jobs need under the sizing rule in `solver`."""

    options_type = ServerOptions
    is_stoppable = False

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Tune, count, and compare with flat requests."""
        del stop, progress
        options, clock = self.chosen, PhaseClock()
        with clock.phase("build"):
            drawn_sets(options, self.seed)
        with clock.phase("solve"):
            flat = count_servers(options, self.seed, RequestSizing.FLAT)
            counted = count_servers(options, self.seed, RequestSizing(self.solver))
        saved = Interval.of((flat.servers - counted.servers) / flat.servers.mean())
        below = counted.servers.mean() < counted.least
        return Finding(
            findings={
                "multiplier": counted.multiplier,
                "is_reached": counted.is_reached,
                "servers": float(counted.servers.mean()),
                "saved": saved.mean,
                "saved_low": saved.low,
                "saved_high": saved.high,
                "by_model": float(counted.by_model.mean()),
                "least": counted.least,
                "claimed_bound": counted.claimed,
                "kills": counted.kills,
                "throttled": counted.throttled,
            },
            seconds=clock.seconds,
            problems=["fewer servers than the proven bound"] if below else [],
        )


def _subjects(options: ServerOptions, seed: int) -> Iterator[tuple[StudySubject, Mapping[str, Any]]]:
    name = f"recurring-{options.jobs}-{options.seeds}-{seed}"
    yield StudySubject(name=name, topic="phases", parameters={"jobs": options.jobs, "sets": options.seeds}), {}


SPEC = register_study(
    "servers",
    "phases",
    "servers that recurring jobs need at equal kills, by the rule that sets requests from earlier runs",
    kind=ServerWork,
    sizes=MappingProxyType({SMALL: ServerOptions(jobs=12, seeds=2), FULL: ServerOptions(jobs=100)}),
    subjects=_subjects,
    ways=tuple(map(str, RequestSizing)),
    columns=("multiplier", "servers", "saved", "saved_low", "saved_high", "by_model", "least", "kills", "throttled"),
)

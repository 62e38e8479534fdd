"""Dorm: at every arrival and completion a mixed-integer programme divides the cluster again.

For jobs i, server classes c of workers and k of PSs, with Y_i = sum_c y_ic:

    max  sum_i u_i Y_i                                            utilisation, summed over resources
    s.t. capacity of every class and resource                     rows (4), (5)
         b_i Y_i <= B_i sum_k z_ik <= B_i Y_i                     rows (6), (7)
         min_i a_i <= Y_i <= max_i a_i,  a_i = 1 if i runs     running jobs
         l_i >= d_i |Y_i - fair_i|,  sum_i l_i <= fairness limit  d_i: dominant share of one worker
         |y_ic - held_ic| <= cap r_i, likewise z;  sum_i r_i <= change limit   over the running jobs

Identical servers form one class; the placement decides whether the class totals fit on single servers.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidOptionError, check_in
from optim.core.registry import register
from optim.core.solution import Termination
from optim.core.stopping import never
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.drf import dominant_share, fill_progressively
from optim.solvers.admission.slots import AbstractSlotSolver, Allocation, Board, JobView, SlotState
from optim.solvers.lp.highs import highs_lp, no_answer, run_highs, silent_highs

INTEGER_TOL = 1e-6
"""A relaxed count within this distance of an integer is rounded to it (HiGHS' own integrality tolerance)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Division:
    """Workers and PSs of each job in each server class, shapes (jobs, classes)."""

    workers: IntArray
    ps: IntArray


@dataclass(frozen=True, kw_only=True, eq=False)
class DivisionProblem:
    """The data of the programme, one row per job.

    Parameters
    ----------
    worker_demand, ps_demand
        Shape (jobs, resources): demands of one worker and of one PS.
    worker_limit, ps_limit
        Shape (jobs, classes): largest number of units in all servers of the class.
    worker_capacity, ps_capacity
        Shape (classes, resources): capacity of all servers of the class; `ps_capacity` is unused if servers are shared.
    is_shared
        Whether workers and PSs use the same servers.
    ps_per_worker
        PSs per worker before rounding, b / B.
    least, most
        Minimal and maximal number of workers of a running job.
    fair
        Number of workers under dominant resource fairness.
    is_running, current
        Whether each job runs, and the present allocations.
    fairness_limit, change_limit
        Bounds on the summed loss of fairness and on the number of running jobs that change.
    """

    worker_demand: FloatArray
    ps_demand: FloatArray
    worker_limit: IntArray
    ps_limit: IntArray
    worker_capacity: FloatArray
    ps_capacity: FloatArray
    is_shared: bool
    ps_per_worker: FloatArray
    least: IntArray
    most: IntArray
    fair: IntArray
    is_running: IntArray
    current: Division
    fairness_limit: float
    change_limit: int

    @property
    def num_jobs(self) -> int:
        """Number of jobs."""
        return len(self.least)

    @property
    def floor_is_fixed(self) -> IntArray:
        """Whether a_i is fixed at 1: the job runs, or it waits and its minimum is at most one worker."""
        return ((self.is_running > 0) | (self.least <= 1)).astype(np.int64)

    def dominant_share(self) -> FloatArray:
        """Return d: the largest share of a resource that one worker takes, shape (jobs,)."""
        result: FloatArray = _shares(self.worker_demand, self.worker_capacity).max(axis=1, initial=0.0)
        return result

    def utilisation(self) -> FloatArray:
        """Return u: the increase of utilisation, summed over resources, by one worker with its share of a PS."""
        per_ps = self.ps_per_worker[:, None] * self.ps_demand
        if self.is_shared:
            shared: FloatArray = _shares(self.worker_demand + per_ps, self.worker_capacity).sum(axis=1)
            return shared
        worker, ps = _shares(self.worker_demand, self.worker_capacity), _shares(per_ps, self.ps_capacity)
        result: FloatArray = worker.sum(axis=1) + ps.sum(axis=1)
        return result


@dataclass(frozen=True, slots=True, kw_only=True)
class DivisionLimits:
    """Work limits of HiGHS for one programme.

    Parameters
    ----------
    columns
        With more integer columns, each count is restricted to the range between its present value and its value in the
        relaxation, rounded outwards.
    nodes, time_s, relative_gap
        Limits of the branch and bound.
    should_stop
        Polled while HiGHS runs; if true, the programme counts as out of time.
    """

    columns: int
    nodes: int
    time_s: float
    relative_gap: float
    should_stop: Callable[[], bool] = never


@dataclass(frozen=True, kw_only=True, eq=False)
class DivisionOutcome:
    """The best division, or None; whether its programme was restricted; and whether time ran out."""

    division: Division | None
    is_confined: bool
    is_out_of_time: bool


def divide(problem: DivisionProblem, limits: DivisionLimits) -> DivisionOutcome:
    """Solve the programme by HiGHS on one thread; a large one is restricted first, and solved in full if that fails."""
    columns, rows = _columns(problem), _rows(problem)
    values, is_confined, is_out_of_time = None, False, False
    if columns.num_integers > limits.columns:
        relaxed, is_out_of_time = _solve(columns, rows, limits, is_integer=False)
        if relaxed is not None:
            confined = columns.confined(relaxed, problem)
            values, is_out_of_time = _solve(confined, rows, limits, is_integer=True)
            is_confined = values is not None
    if values is None and not is_out_of_time:
        values, is_out_of_time = _solve(columns, rows, limits, is_integer=True)
    division = None if values is None else _division(problem, values)
    return DivisionOutcome(division=division, is_confined=is_confined, is_out_of_time=is_out_of_time)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Columns:
    """Costs and bounds of the columns y, z, a, r, l; l is continuous, the other columns are integer."""

    cost: FloatArray
    lower: FloatArray
    upper: FloatArray
    num_integers: int

    def confined(self, relaxed: FloatArray, problem: DivisionProblem) -> "_Columns":
        """Return bounds that restrict each count to the range between its present and its relaxed value, rounded outwards."""
        current = np.concatenate([problem.current.workers.ravel(), problem.current.ps.ravel()])
        size = len(current)
        lower, upper = self.lower.copy(), self.upper.copy()
        lower[:size] = np.maximum(lower[:size], np.minimum(current, np.floor(relaxed[:size] + INTEGER_TOL)))
        upper[:size] = np.minimum(upper[:size], np.maximum(current, np.ceil(relaxed[:size] - INTEGER_TOL)))
        return _Columns(cost=self.cost, lower=lower, upper=upper, num_integers=self.num_integers)


_Term = tuple[IntArray, IntArray, FloatArray | IntArray | float]
"""Entries of a block of rows: row within the block, column, value; values are broadcast to the columns."""


class _Rows:
    """Rows ``sum of value * column <= upper``, collected as entries."""

    def __init__(self) -> None:
        self._entries: list[tuple[IntArray, IntArray, FloatArray]] = []
        self._upper: list[FloatArray] = []
        self._num_rows = 0

    def add(self, upper: FloatArray, *terms: _Term) -> None:
        """Add one row per entry of `upper`."""
        for row, column, value in terms:
            values = np.broadcast_to(value, column.shape).astype(np.float64)
            self._entries.append((row.ravel() + self._num_rows, column.ravel(), values.ravel()))
        self._upper.append(upper)
        self._num_rows += len(upper)

    @property
    def upper(self) -> FloatArray:
        """Right-hand sides."""
        return np.concatenate(self._upper)

    def matrix(self, num_columns: int) -> sparse.csc_array:
        """Return the coefficients by column."""
        row, column, value = (np.concatenate(parts) for parts in zip(*self._entries, strict=True))
        return sparse.csc_array((value, (row, column)), shape=(self._num_rows, num_columns))


def _solve(
    columns: _Columns, rows: _Rows, limits: DivisionLimits, *, is_integer: bool
) -> tuple[FloatArray | None, bool]:
    """Return the best point found by HiGHS (or None), and whether time ran out."""
    upper = rows.upper
    model = highs_lp(
        cost=columns.cost,
        lower=columns.lower,
        upper=columns.upper,
        matrix=rows.matrix(len(columns.cost)),
        row_lower=np.full(len(upper), -np.inf),
        row_upper=upper,
        is_integer=(np.arange(len(columns.cost)) < columns.num_integers) & is_integer,
        is_maximisation=True,
    )
    highs = silent_highs(model)
    outcome = run_highs(
        highs,
        time_limit_s=limits.time_s,
        options={"mip_rel_gap": limits.relative_gap, "mip_max_nodes": limits.nodes},
        watch=lambda _: Termination.TIME_LIMIT if limits.should_stop() else None,
    )
    if outcome.is_aborted:
        raise KeyboardInterrupt
    if outcome.termination is Termination.NUMERICAL_ERROR:
        raise no_answer(highs)
    return outcome.values, outcome.termination is Termination.TIME_LIMIT


def _division(problem: DivisionProblem, values: FloatArray) -> Division:
    """Return the counts of an integer point."""
    counts = np.rint(values).astype(np.int64)
    num_workers, num_ps = problem.worker_limit.size, problem.ps_limit.size
    return Division(
        workers=counts[:num_workers].reshape(problem.worker_limit.shape),
        ps=counts[num_workers : num_workers + num_ps].reshape(problem.ps_limit.shape),
    )


def _shares(demand: FloatArray, capacity: FloatArray) -> FloatArray:
    """Return a unit's share of each resource's total capacity, shape (jobs, resources)."""
    total = capacity.sum(axis=0)
    share: FloatArray = np.divide(demand, total, out=np.zeros_like(demand), where=total > 0)
    return share


def _columns(problem: DivisionProblem) -> _Columns:
    """Return the costs and bounds of all columns."""
    jobs, runs = problem.num_jobs, problem.is_running.astype(np.float64)
    utilisation = np.repeat(problem.utilisation(), problem.worker_limit.shape[1])
    upper = np.concatenate(
        [problem.worker_limit.ravel(), problem.ps_limit.ravel(), np.ones(jobs), runs, np.full(jobs, np.inf)]
    )
    lower = np.zeros(len(upper))
    first_runs = problem.worker_limit.size + problem.ps_limit.size
    lower[first_runs : first_runs + jobs] = problem.floor_is_fixed
    cost = np.zeros(len(upper))
    cost[: len(utilisation)] = utilisation
    return _Columns(cost=cost, lower=lower, upper=upper.astype(np.float64), num_integers=len(upper) - jobs)


def _rows(problem: DivisionProblem) -> _Rows:
    """Return all rows."""
    jobs, index = problem.num_jobs, _ColumnIndex(problem)
    each = np.arange(jobs)
    of_worker, of_ps = np.broadcast_to(each[:, None], index.y.shape), np.broadcast_to(each[:, None], index.z.shape)
    share, none = problem.dominant_share(), np.zeros(jobs)
    floor = np.where((problem.is_running > 0) | (problem.least > 1), problem.least, 0)
    rows = _Rows()
    _add_capacity(rows, problem, index)
    ratio = problem.ps_per_worker
    rows.add(none, (of_worker, index.y, ratio[:, None]), (of_ps, index.z, -1.0))
    rows.add(none, (of_worker, index.y, -1.0), (of_ps, index.z, 1.0))
    rows.add(none, (of_worker, index.y, -1.0), (each, index.a, floor))
    rows.add(none, (of_worker, index.y, 1.0), (each, index.a, -problem.most))
    for sign in (1.0, -1.0):
        loss = (of_worker, index.y, sign * share[:, None]), (each, index.l, -1.0)
        rows.add(sign * share * problem.fair, *loss)
    rows.add(np.array([problem.fairness_limit]), (np.zeros_like(each), index.l, 1.0))
    rows.add(np.array([float(problem.change_limit)]), (np.zeros_like(each), index.r, 1.0))
    _add_changes(rows, problem, index)
    return rows


def _add_capacity(rows: _Rows, problem: DivisionProblem, index: "_ColumnIndex") -> None:
    """Add rows (4) and (5), scaled by capacity; where it is 0 the limits forbid any use."""
    workers = _uses(problem.worker_demand, problem.worker_capacity, index.y)
    if problem.is_shared:
        ps = _uses(problem.ps_demand, problem.worker_capacity, index.z)
        rows.add(np.ones(problem.worker_capacity.size), workers, ps)
    else:
        rows.add(np.ones(problem.worker_capacity.size), workers)
        rows.add(np.ones(problem.ps_capacity.size), _uses(problem.ps_demand, problem.ps_capacity, index.z))


def _uses(demand: FloatArray, capacity: FloatArray, columns: IntArray) -> "_Term":
    """Return the share of each (class, resource) that one unit of each (job, class) uses."""
    j, c, r = np.indices((len(demand), *capacity.shape)).reshape(3, -1)
    is_used = (demand[j, r] > 0) & (capacity[c, r] > 0)
    j, c, r = j[is_used], c[is_used], r[is_used]
    return c * demand.shape[1] + r, columns[j, c], demand[j, r] / capacity[c, r]


def _add_changes(rows: _Rows, problem: DivisionProblem, index: "_ColumnIndex") -> None:
    """Add |count - held| <= cap r for every class and running job."""
    running = np.flatnonzero(problem.is_running)
    sides = (
        (index.y, problem.worker_limit, problem.current.workers),
        (index.z, problem.ps_limit, problem.current.ps),
    )
    for columns, limit, current in sides:
        count, before = columns[running].ravel(), current[running].ravel().astype(np.float64)
        cap = np.maximum(limit, current)[running].ravel()
        change = np.repeat(index.r[running], limit.shape[1])
        row = np.arange(len(count))
        for sign in (1.0, -1.0):
            rows.add(sign * before, (row, count, sign), (row, change, -cap))


class _ColumnIndex:
    """Positions of the columns y, z (jobs, classes) and a, r, l (jobs,)."""

    def __init__(self, problem: DivisionProblem) -> None:
        jobs, num_y, num_z = problem.num_jobs, problem.worker_limit.size, problem.ps_limit.size
        self.y: IntArray = np.arange(num_y).reshape(problem.worker_limit.shape)
        self.z: IntArray = np.arange(num_y, num_y + num_z).reshape(problem.ps_limit.shape)
        self.a, self.r, self.l = (num_y + num_z + k * jobs + np.arange(jobs) for k in range(3))


@dataclass(frozen=True, slots=True, kw_only=True)
class DormOptions:
    """Options of `dorm`.

    Parameters
    ----------
    theta1
        In [0, 1]; the summed loss of fairness is at most ``theta1 * 2 m`` with m resources.
    theta2
        Largest share of the running jobs, rounded up, that change their allocation at once, in [0, 1].
    max_waiting
        Maximal number of waiting jobs in a programme, the first by arrival, which limits its size. At least 1.
    full_columns
        Programmes with more integer columns are restricted to the neighbourhood of their relaxation's
        optimum and of the present allocations.
    node_limit
        Branch-and-bound nodes per programme: ends hard programmes, in the same way on every machine.
    time_limit_s
        Seconds per programme: only a safeguard, since a wall-clock limit differs between machines.
    relative_gap
        Gap at which a programme counts as solved.
    """

    theta1: float = 0.1
    theta2: float = 0.1
    max_waiting: int = 20
    full_columns: int = 100
    node_limit: int = 10
    time_limit_s: float = 30.0
    relative_gap: float = 0.02

    def __post_init__(self) -> None:
        check_in("[0, 1]", self, "theta1", "theta2")
        check_in("[1, inf)", self, "max_waiting", "node_limit")
        for name in ("time_limit_s", "relative_gap"):
            if not getattr(self, name) >= 0:
                raise InvalidOptionError(f"{name} must be at least 0, got {getattr(self, name)}")


class DormPolicy:
    """Keep allocations between events; at an event divide the cluster again.

    Parameters
    ----------
    options
        Bounds and limits.
    """

    def __init__(self, options: DormOptions) -> None:
        self._options = options
        self.counts = {
            "programmes": 0, "confined": 0, "fallbacks": 0, "out_of_time": 0, "workers_not_placed": 0
        }  # fmt: skip

    def allocate(self, state: SlotState) -> Mapping[int, Allocation]:
        """Keep the running jobs on their servers; after an event, divide and place."""
        views = [view for view in state.jobs if view.can_progress]
        board = state.board
        for view in views:
            if view.job in state.previous:
                counts = state.previous[view.job]
                wanted = min(int(counts.workers.sum()), view.useful_workers)
                placed = board.hold(view, counts, wanted)
                if placed < view.min_workers:
                    board.clear(view)
        current = board.allocations()
        views = self._considered(views, current, board)
        if not (state.is_event and views):
            return current
        self.counts["programmes"] += 1
        outcome = divide(self.division_problem(views, current, board), self._limits(state))
        self.counts["confined"] += outcome.is_confined
        self.counts["out_of_time"] += outcome.is_out_of_time
        if outcome.division is None:
            self.counts["fallbacks"] += 1
            return current
        return self._place(views, current, outcome.division, board)

    def _considered(self, views: Sequence[JobView], current: Mapping[int, Allocation], board: Board) -> list[JobView]:
        """Return the running jobs and the first waiting jobs that fit on some server."""
        result, waiting = [], 0
        for view in views:
            if view.job in current:
                result.append(view)
            elif waiting < self._options.max_waiting and all(limit.any() for limit in board.servers.class_limits(view)):
                result.append(view)
                waiting += 1
        return result

    def division_problem(
        self, views: Sequence[JobView], current: Mapping[int, Allocation], board: Board
    ) -> DivisionProblem:
        """Build the programme for a slot's jobs, their allocations, and the slot's servers."""
        servers = board.servers
        fair = board.empty()
        fill_progressively(fair, views)
        placed = [servers.class_counts(current[view.job]) if view.job in current else None for view in views]
        num_current = np.array([0 if counts is None else counts[0].sum() for counts in placed], dtype=np.int64)
        worker_capacity, ps_capacity = servers.class_capacity()
        none = np.zeros(len(worker_capacity), dtype=np.int64), np.zeros(len(ps_capacity), dtype=np.int64)
        useful = np.array([view.useful_workers for view in views], dtype=np.int64)
        limits = [servers.class_limits(view) for view in views]
        return DivisionProblem(
            worker_demand=np.array([view.worker_demand for view in views], dtype=np.float64),
            ps_demand=np.array([view.ps_demand for view in views], dtype=np.float64),
            worker_limit=np.array([limit[0] for limit in limits], dtype=np.int64),
            ps_limit=np.array([limit[1] for limit in limits], dtype=np.int64),
            worker_capacity=worker_capacity,
            ps_capacity=ps_capacity,
            is_shared=servers.is_shared,
            ps_per_worker=np.array([view.ps_per_worker for view in views]),
            least=np.array([view.min_workers for view in views], dtype=np.int64),
            most=np.maximum(useful, num_current),
            fair=np.array([fair.count(view) for view in views], dtype=np.int64),
            is_running=(num_current > 0).astype(np.int64),
            current=Division(
                workers=np.array([none[0] if counts is None else counts[0] for counts in placed]),
                ps=np.array([none[1] if counts is None else counts[1] for counts in placed]),
            ),
            fairness_limit=self._options.theta1 * 2 * worker_capacity.shape[1],
            change_limit=math.ceil(self._options.theta2 * int((num_current > 0).sum())),
        )

    def _limits(self, state: SlotState) -> DivisionLimits:
        options = self._options
        return DivisionLimits(
            columns=options.full_columns,
            nodes=options.node_limit,
            time_s=min(options.time_limit_s, state.remaining_s),
            relative_gap=options.relative_gap,
            should_stop=state.should_stop,
        )

    def _place(
        self, views: Sequence[JobView], current: Mapping[int, Allocation], division: Division, board: Board
    ) -> Mapping[int, Allocation]:
        """Place a division on single servers: jobs without changes stay exactly where they are."""
        fresh = board.empty()
        changing = []
        for place, view in enumerate(views):
            workers, ps = division.workers[place], division.ps[place]
            counts = board.servers.class_counts(current[view.job]) if view.job in current else None
            if counts is not None and (counts[0] == workers).all() and (counts[1] == ps).all():
                fresh.hold(view, current[view.job], int(workers.sum()))
            elif workers.any():
                changing.append((view, workers, ps))
        # Large workers first: small ones still fit into the remaining capacity.
        changing.sort(key=lambda change: (-dominant_share(change[0], board.servers, 1), change[0].job))
        for view, workers, ps in changing:
            placed = fresh.place_by_class(view, current.get(view.job), workers, ps)
            self.counts["workers_not_placed"] += int(workers.sum()) - placed
            if placed < view.min_workers:
                fresh.clear(view)
        return fresh.allocations()


@register("dorm", problem="admission")
class DormSolver(AbstractSlotSolver[DormPolicy]):
    """Dorm: dynamic partitions by a utilisation-fairness programme.

    At each arrival and completion a mixed-integer programme divides the cluster. The programme maximises the
    utilisation, summed over the resources. The summed difference between the jobs' dominant shares and those of dominant
    resource fairness is at most ``theta1 * 2 m``, and at most a share `theta2` of the running jobs changes its
    allocation. Running jobs keep at least one worker. Between events, allocations don't change. Every job is
    accepted; utilities play no part.

    Notes
    -----
    The programme follows the idea of the first reference; its details may differ from the paper.
    Details added here:

    - a job's share counts its workers, not its PSs, so that it is linear; shares of dominant resource
      fairness are those of the progressive filling of `drf` in the same slot;
    - utilisation counts only the share b/B of a PS that each worker needs, so that idle PSs don't count;
    - a waiting job starts if the programme gives it workers: at most N_i, and at most as many as complete it;
    - identical servers are one class in the programme; totals are placed class by class, round-robin,
      on the job's old servers first; workers that don't fit on single servers of their class go to any
      server with capacity, and `workers_not_placed` counts workers that fit nowhere;
    - the limit theta1 * 2 m is not rounded, the limit on changes is rounded up;
    - the cluster is also divided again when a capacity changes or a job enters another demand segment;
      a job that no longer fits then loses workers (`Board.hold`) or pauses, and may move;
    - if a programme has no solution within its limits, the allocations stay (`fallbacks` counts these
      cases) and newcomers wait for the next event. Programmes end at `node_limit`, which is the same on
      every machine; if `out_of_time` isn't zero, `time_limit_s` ended some programmes, and another run may differ.

    References
    ----------
    Sun, Wen, Ta, Yan, "Towards Distributed Machine Learning in Shared Clusters: A Dynamically-Partitioned
    Approach", SMARTCOMP 2017, DOI 10.1109/SMARTCOMP.2017.7947053, arXiv 1704.06738.
    Bao, Peng, Wu, Li, "Online Job Scheduling in Distributed Machine Learning Clusters", INFOCOM 2018,
    DOI 10.1109/INFOCOM.2018.8486422, evaluation section.
    """

    summary = "Dorm: divides the cluster at each event by a programme for utilisation and fairness (rival)"
    options_type = DormOptions

    def make_policy(self, instance: AdmissionInstance, options: DormOptions, rng: np.random.Generator) -> DormPolicy:
        """Return a new policy."""
        return DormPolicy(options)

    def policy_counts(self, policy: DormPolicy) -> Mapping[str, float]:
        """Return the numbers of programmes, restricted programmes, fallbacks, timeouts and workers not placed."""
        return policy.counts

"""Dorm's mixed-integer programme: divide a cluster for utilisation, with bounds on unfairness and change.

For jobs i, server classes c of workers and k of PSs, with Y_i = sum_c y_ic:

    max  sum_i u_i Y_i                                            utilisation, summed over resources
    s.t. capacity of every class and resource                     rows (4), (5)
         b_i Y_i <= B_i sum_k z_ik <= B_i Y_i                     rows (6), (7)
         least_i a_i <= Y_i <= most_i a_i,  a_i = 1 if i runs     who runs
         l_i >= d_i |Y_i - fair_i|,  sum_i l_i <= fairness limit  d_i: dominant share of one worker
         |y_ic - held_ic| <= cap r_i, likewise z;  sum_i r_i <= change limit   over the running jobs

Identical servers are one class: whether its totals split onto single servers is left to the placement.
"""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from optim.models.admission.instance import FloatArray, IntArray

INTEGER_TOL = 1e-6
"""A relaxed count closer than this to a whole number is that number (HiGHS' own integrality tolerance)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Division:
    """Workers and PSs of each job in each server class, shapes (jobs, classes)."""

    workers: IntArray
    ps: IntArray


@dataclass(frozen=True, kw_only=True, eq=False)
class DivisionProblem:
    """The data of the programme, one row a job.

    Parameters
    ----------
    worker_demand, ps_demand
        Shape (jobs, resources).
    worker_limit, ps_limit
        Shape (jobs, classes): most units in the whole class.
    worker_capacity, ps_capacity
        Shape (classes, resources): capacity of the whole class; the latter is unused where shared.
    is_shared
        Whether workers and PSs live on the same servers.
    ps_per_worker
        b / B.
    least, most
        Fewest workers of a job that runs at all, and most of use.
    fair
        Workers under dominant resource fairness.
    is_running, held
        Which jobs run, and what they hold.
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
    held: Division
    fairness_limit: float
    change_limit: int

    @property
    def num_jobs(self) -> int:
        """Number of jobs."""
        return len(self.least)

    @property
    def floor_is_fixed(self) -> IntArray:
        """Whether a_i = 1 without loss: the job runs, or its floor is one worker and so needs no choice."""
        return ((self.is_running > 0) | (self.least <= 1)).astype(np.int64)

    def dominant_share(self) -> FloatArray:
        """Return d: the largest share of a resource that one worker takes, shape (jobs,)."""
        total = self.worker_capacity.sum(axis=0)
        share = np.divide(self.worker_demand, total, out=np.zeros_like(self.worker_demand), where=total > 0)
        result: FloatArray = share.max(axis=1, initial=0.0)
        return result

    def utilisation(self) -> FloatArray:
        """Return u: what one worker, with its part of a PS, adds to the utilisation summed over resources."""
        per_ps = self.ps_per_worker[:, None] * self.ps_demand
        if self.is_shared:
            return _use(self.worker_demand + per_ps, self.worker_capacity)
        return _use(self.worker_demand, self.worker_capacity) + _use(per_ps, self.ps_capacity)


@dataclass(frozen=True, slots=True, kw_only=True)
class DivisionLimits:
    """How much work HiGHS may do on one programme.

    Parameters
    ----------
    columns
        Programmes with more integer columns are confined: each count lies next to its value in the
        relaxation, or next to what is held.
    nodes, time_s, relative_gap
        Limits of the branch and bound.
    """

    columns: int
    nodes: int
    time_s: float
    relative_gap: float


@dataclass(frozen=True, kw_only=True, eq=False)
class DivisionOutcome:
    """The best division found, None if none was; whether it was confined, and whether time ran out."""

    division: Division | None
    is_confined: bool
    is_out_of_time: bool


def divide(problem: DivisionProblem, limits: DivisionLimits) -> DivisionOutcome:
    """Solve the programme by HiGHS on one thread; in full where a confined one has no solution."""
    columns, rows = _columns(problem), _rows(problem)
    is_out_of_time = False
    if columns.num_integers > limits.columns:
        relaxed, is_out_of_time = _solve(columns, rows, limits, is_integer=False)
        if relaxed is not None:
            confined = columns.confined(relaxed, problem)
            values, is_out_of_time = _solve(confined, rows, limits, is_integer=True)
            if values is not None:
                return DivisionOutcome(
                    division=_division(problem, values), is_confined=True, is_out_of_time=is_out_of_time
                )
    if not is_out_of_time:
        values, is_out_of_time = _solve(columns, rows, limits, is_integer=True)
        if values is not None:
            return DivisionOutcome(
                division=_division(problem, values), is_confined=False, is_out_of_time=is_out_of_time
            )
    return DivisionOutcome(division=None, is_confined=False, is_out_of_time=is_out_of_time)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Columns:
    """Costs and bounds of the columns y, z, a, r, l; the last are continuous, the others integer."""

    cost: FloatArray
    lower: FloatArray
    upper: FloatArray
    num_integers: int

    def confined(self, relaxed: FloatArray, problem: DivisionProblem) -> "_Columns":
        """Return bounds that leave each count its two neighbours in the relaxation, and what is held."""
        held = np.concatenate([problem.held.workers.ravel(), problem.held.ps.ravel()])
        size = len(held)
        lower, upper = self.lower.copy(), self.upper.copy()
        lower[:size] = np.maximum(lower[:size], np.minimum(held, np.floor(relaxed[:size] + INTEGER_TOL)))
        upper[:size] = np.minimum(upper[:size], np.maximum(held, np.ceil(relaxed[:size] - INTEGER_TOL)))
        return _Columns(cost=self.cost, lower=lower, upper=upper, num_integers=self.num_integers)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Rows:
    """All rows, each of them ``matrix @ columns <= upper``."""

    matrix: sparse.csc_array
    upper: FloatArray


def _solve(
    columns: _Columns, rows: _Rows, limits: DivisionLimits, *, is_integer: bool
) -> tuple[FloatArray | None, bool]:
    """Return the best point found by HiGHS, None without one, and whether time ran out."""
    import highspy

    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(columns.cost), len(rows.upper)
    model.col_cost_, model.col_lower_, model.col_upper_ = columns.cost, columns.lower, columns.upper
    model.row_lower_, model.row_upper_ = np.full(len(rows.upper), -highspy.kHighsInf), rows.upper
    model.sense_ = highspy.ObjSense.kMaximize
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = rows.matrix.indptr
    model.a_matrix_.index_ = rows.matrix.indices
    model.a_matrix_.value_ = rows.matrix.data
    if is_integer:
        num_others = len(columns.cost) - columns.num_integers
        integer, continuous = highspy.HighsVarType.kInteger, highspy.HighsVarType.kContinuous
        model.integrality_ = [integer] * columns.num_integers + [continuous] * num_others
    solver = highspy.Highs()
    for name, value in (
        ("output_flag", False), ("threads", 1), ("random_seed", 0), ("mip_rel_gap", limits.relative_gap),
        ("mip_max_nodes", limits.nodes), ("time_limit", limits.time_s),
    ):  # fmt: skip
        solver.setOptionValue(name, value)
    solver.passModel(model)
    solver.run()
    is_out_of_time = solver.getModelStatus() == highspy.HighsModelStatus.kTimeLimit
    feasible = int(highspy.SolutionStatus.kSolutionStatusFeasible)
    if solver.getInfo().primal_solution_status != feasible:
        return None, is_out_of_time
    return np.array(solver.getSolution().col_value), is_out_of_time


def _division(problem: DivisionProblem, values: FloatArray) -> Division:
    """Return the counts of an integer point."""
    counts = np.rint(values).astype(np.int64)
    num_workers, num_ps = problem.worker_limit.size, problem.ps_limit.size
    return Division(
        workers=counts[:num_workers].reshape(problem.worker_limit.shape),
        ps=counts[num_workers : num_workers + num_ps].reshape(problem.ps_limit.shape),
    )


def _use(demand: FloatArray, capacity: FloatArray) -> FloatArray:
    total = capacity.sum(axis=0)
    share = np.divide(demand, total, out=np.zeros_like(demand), where=total > 0)
    result: FloatArray = share.sum(axis=1)
    return result


def _columns(problem: DivisionProblem) -> _Columns:
    """Return costs and bounds."""
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
    jobs = problem.num_jobs
    identity = sparse.identity(jobs, format="csr")
    workers = sparse.kron(identity, np.ones((1, problem.worker_limit.shape[1])))
    ps = sparse.kron(identity, np.ones((1, problem.ps_limit.shape[1])))
    share = sparse.diags(problem.dominant_share())
    fair = problem.dominant_share() * problem.fair
    floor = np.where((problem.is_running > 0) | (problem.least > 1), problem.least, 0).astype(np.float64)
    none, one_row = np.zeros(jobs), np.ones((1, jobs))
    blocks = [
        *_capacity_blocks(problem),
        ([sparse.diags(problem.ps_per_worker) @ workers, -ps, None, None, None], none),
        ([-workers, ps, None, None, None], none),
        ([-workers, None, sparse.diags(floor), None, None], none),
        ([workers, None, -sparse.diags(problem.most.astype(np.float64)), None, None], none),
        ([share @ workers, None, None, None, -identity], fair),
        ([-share @ workers, None, None, None, -identity], -fair),
        ([None, None, None, None, one_row], np.array([problem.fairness_limit])),
        ([None, None, None, one_row, None], np.array([float(problem.change_limit)])),
        *_change_blocks(problem),
    ]
    widths = [problem.worker_limit.size, problem.ps_limit.size, jobs, jobs, jobs]
    filled = [
        [
            sparse.csr_array((len(upper), width)) if part is None else part
            for part, width in zip(row, widths, strict=True)
        ]
        for row, upper in blocks
    ]
    return _Rows(
        matrix=sparse.csc_array(sparse.block_array(filled, format="csc")),
        upper=np.concatenate([upper for _, upper in blocks]),
    )


def _capacity_blocks(problem: DivisionProblem) -> list[tuple[list[sparse.sparray | None], FloatArray]]:
    """Return rows (4) and (5), scaled by capacity; where that is zero the limits forbid any use."""
    workers = _capacity_rows(problem.worker_demand, problem.worker_capacity)
    if problem.is_shared:
        both = [workers, _capacity_rows(problem.ps_demand, problem.worker_capacity), None, None, None]
        return [(both, np.ones(workers.shape[0]))]
    ps = _capacity_rows(problem.ps_demand, problem.ps_capacity)
    return [
        ([workers, None, None, None, None], np.ones(workers.shape[0])),
        ([None, ps, None, None, None], np.ones(ps.shape[0])),
    ]


def _capacity_rows(demand: FloatArray, capacity: FloatArray) -> sparse.csr_array:
    """Return the share of each (class, resource) that one unit of each (job, class) uses."""
    jobs, num_classes = len(demand), len(capacity)
    j, c, r = np.indices((jobs, num_classes, demand.shape[1])).reshape(3, -1)
    uses = (demand[j, r] > 0) & (capacity[c, r] > 0)
    j, c, r = j[uses], c[uses], r[uses]
    shape = (capacity.size, jobs * num_classes)
    entries = (demand[j, r] / capacity[c, r], (c * demand.shape[1] + r, j * num_classes + c))
    return sparse.csr_array(entries, shape=shape)


def _change_blocks(problem: DivisionProblem) -> list[tuple[list[sparse.sparray | None], FloatArray]]:
    """Return |count - held| <= cap r for every class and running job."""
    runs = problem.is_running.astype(bool)
    blocks: list[tuple[list[sparse.sparray | None], FloatArray]] = []
    sides = ((0, problem.worker_limit, problem.held.workers), (1, problem.ps_limit, problem.held.ps))
    for position, limit, held in sides:
        rows = np.flatnonzero(np.repeat(runs, limit.shape[1]))
        if len(rows) == 0:
            continue
        pick = sparse.identity(limit.size, format="csr")[rows]
        cap = np.maximum(limit, held).ravel()[rows]
        change = sparse.csr_array(
            (-cap.astype(np.float64), (np.arange(len(rows)), rows // limit.shape[1])),
            shape=(len(rows), problem.num_jobs),
        )
        for sign in (1, -1):
            block: list[sparse.sparray | None] = [None, None, None, change, None]
            block[position] = sign * pick
            blocks.append((block, sign * held.ravel()[rows].astype(np.float64)))
    return blocks

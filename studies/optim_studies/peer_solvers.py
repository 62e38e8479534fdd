"""Other exact solvers on the compact programme of admission: HiGHS on two threads, SCIP, and CP-SAT of OR-tools.

Each adapter states the programme (A.1) to (A.13) of docs/mathematics/admission.md through `compact_model`, which
`optim.export` also writes. It returns a plan, the peer's claim, and its processor seconds. `plan_from_compact` converts the
plan, and the caller checks it by `optim.verify`. A bound is the peer's unproven claim.

*Exactness.* All coefficients of the rows and all variables are integers. So CP-SAT gets the rows unchanged, and
utilities rounded to the nearest multiple of `CP_SAT_UNIT`. Its claim of optimality holds up to half a unit per job, and its
bound is widened by that amount. HiGHS and SCIP get the utilities unchanged, and compute with their tolerances.

*Classes.* A programme of more than `MAX_VARIABLES` variables is stated on classes of equal servers instead: one server
per class with the class' total capacity, and at most as many units of a job as its servers fit together. That relaxes
the programme, so the peer's bound remains valid. The plan is repaired: jobs are placed on single servers by decreasing
value if their counts fit; the other jobs are then rescheduled.

*Time.* Building the programme is not counted. The limit is a stopping rule, of the wall clock or of processor seconds.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy.sparse import csc_array

from optim.core.arrays import FloatArray
from optim.core.errors import MissingDependencyError
from optim.core.solution import Termination
from optim.core.stopping import SolveState, StoppingCriterion
from optim.models.admission.compact_index import compact_size
from optim.models.admission.compact_programme import compact_model, plan_from_compact
from optim.models.admission.data import ServerClasses
from optim.models.admission.decision import COUNT, JOB, SERVER, SLOT, AdmissionPlan
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.local_search.plan_moves import Neighbourhood
from optim.solvers.admission.packing.capacity_rows import CapacityRows
from optim.solvers.admission.packing.column_pool import Schedule
from optim.solvers.admission.packing.dual_points import DualPoint
from optim.solvers.admission.pricing.classes import JobTables
from optim.solvers.lp.highs import CompiledModel, HighsState, solve_with_highs

MAX_VARIABLES = 60_000
"""Larger programmes are stated on classes of servers. Programmes of the largest family have 8,000 variables."""

CP_SAT_UNIT = 1e-6
"""Utility units of one unit of CP-SAT's objective."""

MIP_GAP = 1e-6
"""Relative gap at which a peer claims optimality, the same as that of `compact-milp`."""

POLL_S = 0.05
"""Seconds between checks of the stopping rule while CP-SAT runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerAnswer:
    """Result of a peer.

    Parameters
    ----------
    plan
        Unchecked plan on single servers.
    claims_optimal
        Whether the peer claims optimality up to `MIP_GAP`; always false on classes, where the plan is repaired.
    claimed_bound
        Upper bound on the value of all plans, in utility units; None if the peer gives no bound.
    termination
        `completed` for a finished run, otherwise the reason for its end.
    processor_s, wall_s
        Seconds of the run, without building the programme.
    build_s
        Wall-clock seconds to build the programme.
    num_variables
        Number of variables of the programme.
    on_classes
        Whether the programme was on classes of servers.
    version
        Name and release of the peer.
    """

    plan: AdmissionPlan
    claims_optimal: bool
    claimed_bound: float | None
    termination: Termination
    processor_s: float
    wall_s: float
    build_s: float
    num_variables: int
    on_classes: bool
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A peer's solution of a programme: values of the columns, None without a solution, and its claims."""

    values: FloatArray | None
    bound: float | None
    has_ended: bool
    reason: Termination | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorLimit:
    """Stop after a number of processor seconds of this process, over all threads, since the creation of the rule.

    On a shared machine, each solver gets the same processor time; with a wall-clock limit it would depend on the load.
    """

    limit_s: float
    begun_s: float

    @classmethod
    def of(cls, limit_s: float) -> "ProcessorLimit":
        """Return a rule that starts now."""
        return cls(limit_s=limit_s, begun_s=time.process_time())

    def __call__(self, state: SolveState) -> Termination | None:
        """Stop once no processor seconds remain."""
        return Termination.TIME_LIMIT if self.remaining_s(0.0) <= 0 else None

    def remaining_s(self, elapsed_s: float) -> float:
        """Return the processor seconds left, independent of the elapsed wall-clock time."""
        del elapsed_s
        return max(0.0, self.limit_s - (time.process_time() - self.begun_s))


def by_highs(compiled: CompiledModel, stop: StoppingCriterion, threads: int, seed: int) -> Point:
    """Run HiGHS on `threads` threads."""

    def watch(state: HighsState) -> Termination | None:
        return stop(SolveState(elapsed_s=state.elapsed_s))

    outcome = solve_with_highs(
        compiled, seed=seed, options={"mip_rel_gap": MIP_GAP, "threads": threads, "parallel": "on"}, watch=watch
    )
    has_ended = outcome.termination is Termination.OPTIMAL
    reason = None if has_ended else outcome.termination
    return Point(values=outcome.values, bound=outcome.bound, has_ended=has_ended, reason=reason)


def by_scip(compiled: CompiledModel, stop: StoppingCriterion, threads: int, seed: int) -> Point:
    """Run SCIP, whose packages for Python have no parallel mode: `threads` is not used.

    SCIP's time limit is the time that the stopping rule leaves, in processor seconds if the rule counts these.
    """
    del threads
    import pyscipopt

    lp = compiled.lp
    model = pyscipopt.Model()
    model.hideOutput()
    columns = [
        model.addVar(vtype="I", lb=low, ub=high, obj=cost)
        for low, high, cost in zip(lp.col_lower_, lp.col_upper_, lp.col_cost_, strict=True)
    ]
    model.setMaximize()
    model.addObjoffset(lp.offset_)
    for low, high, terms in _rows(compiled):
        total = pyscipopt.quicksum(value * columns[column] for column, value in terms)
        model.addCons(
            pyscipopt.scip.ExprCons(total, None if low == -math.inf else low, None if high == math.inf else high)
        )
    model.setParam("limits/gap", MIP_GAP)
    model.setParam("randomization/randomseedshift", seed % 2**31)
    model.setParam("misc/catchctrlc", False)
    left = stop.remaining_s(0.0)
    if left < math.inf:
        model.setParam("timing/clocktype", 1 if _counts_processor(stop) else 2)
        model.setParam("limits/time", left)
    model.optimizeNogil()
    has_ended = model.getStatus() in ("optimal", "gaplimit")
    values = None
    if model.getNSols() > 0:
        best = model.getBestSol()
        values = np.array([model.getSolVal(best, column) for column in columns])
    bound = model.getDualbound()
    return Point(
        values=values,
        bound=bound if abs(bound) < model.infinity() else None,
        has_ended=has_ended,
        reason=None if has_ended else Termination.TIME_LIMIT,
    )


def by_cp_sat(compiled: CompiledModel, stop: StoppingCriterion, threads: int, seed: int) -> Point:
    """Run CP-SAT on `threads` workers; utilities are rounded to `CP_SAT_UNIT`."""
    from ortools.sat.python import cp_model

    lp = compiled.lp
    model = cp_model.CpModel()
    columns = [
        model.new_int_var(int(low), int(high), "") for low, high in zip(lp.col_lower_, lp.col_upper_, strict=True)
    ]
    for low, high, terms in _rows(compiled):
        total = cp_model.LinearExpr.weighted_sum([columns[k] for k, _ in terms], [_whole(value) for _, value in terms])
        model.add_linear_constraint(
            total,
            cp_model.INT_MIN if low == -math.inf else _whole(low),
            cp_model.INT_MAX if high == math.inf else _whole(high),
        )
    gains = [round(cost / CP_SAT_UNIT) for cost in lp.col_cost_]
    model.maximize(cp_model.LinearExpr.weighted_sum(columns, gains))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = threads
    solver.parameters.random_seed = seed % 2**31
    solver.parameters.relative_gap_limit = MIP_GAP
    reason: list[Termination] = []
    with _asked(stop, solver.stop_search, reason):
        status = solver.solve(model)
    has_values = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    has_ended = status == cp_model.OPTIMAL
    # Each job completes once, so that its utility was rounded once.
    slack = CP_SAT_UNIT / 2 * _num_gaining(compiled)
    has_bound = status != cp_model.UNKNOWN or abs(solver.best_objective_bound) > 0
    return Point(
        values=np.array([float(solver.value(column)) for column in columns]) if has_values else None,
        bound=solver.best_objective_bound * CP_SAT_UNIT + slack + lp.offset_ if has_bound else None,
        has_ended=has_ended,
        reason=None if has_ended else (reason or [Termination.TIME_LIMIT])[0],
    )


Run = Callable[[CompiledModel, StoppingCriterion, int, int], Point]

PEERS: Mapping[str, tuple[Run, str, str]] = MappingProxyType(
    {
        "highs": (by_highs, "highspy", "highspy"),
        "scip": (by_scip, "pyscipopt", "pyscipopt"),
        "cp-sat": (by_cp_sat, "ortools", "ortools"),
    }
)
"""By name: the adapter, the module that it imports, and the distribution that contains the module."""


def why_missing(peer: str) -> str | None:
    """Return why a peer can't run here, None if it can."""
    _, module, distribution = PEERS[peer]
    if find_spec(module) is not None:
        return None
    return f"{distribution} isn't installed; pip install './studies[peers]'"


def solve_by_peer(
    peer: str, instance: AdmissionInstance, stop: Callable[[], StoppingCriterion], *, threads: int = 2, seed: int = 0
) -> PeerAnswer:
    """Solve an instance's compact programme by a peer.

    Parameters
    ----------
    peer
        One of `PEERS`.
    instance
        The instance.
    stop
        Function that creates the stopping rule when the peer begins, after the programme is built.
    threads, seed
        Number of threads of the peer; SCIP always runs on one.

    Raises
    ------
    MissingDependencyError
        If the peer isn't installed.
    """
    missing = why_missing(peer)
    if missing is not None:
        raise MissingDependencyError(missing)
    begun = time.perf_counter()
    on_classes = compact_size(instance) > MAX_VARIABLES
    stated = classes_as_servers(instance) if on_classes else instance
    model = compact_model(stated)
    if on_classes:
        _limit_units(model, instance)
    compiled = CompiledModel(model)
    run, _, distribution = PEERS[peer]
    wall, processor = time.perf_counter(), time.process_time()
    if compiled.columns:
        point = run(compiled, stop(), threads, seed)
    else:
        point = Point(values=np.zeros(0), bound=0.0, has_ended=True)
    processor_s, wall_s = time.process_time() - processor, time.perf_counter() - wall
    if point.values is not None:
        compiled.load(point.values)
    plan = plan_from_compact(model, stated)
    if on_classes:
        plan = on_single_servers(instance, plan)
    return PeerAnswer(
        plan=plan,
        claims_optimal=point.has_ended and not on_classes,
        claimed_bound=point.bound,
        termination=point.reason or Termination.COMPLETED,
        processor_s=processor_s,
        wall_s=wall_s,
        build_s=wall - begun,
        num_variables=len(compiled.columns),
        on_classes=on_classes,
        version=_version(distribution),
    )


def classes_as_servers(instance: AdmissionInstance) -> AdmissionInstance:
    """Return an instance with one server per class, of the class's total capacity, and without caps on shares."""

    def whole(servers: ServerClasses) -> ServerClasses:
        return replace(
            servers, capacity=servers.capacity * servers.count[:, None, None], count=np.ones_like(servers.count)
        )

    workers = whole(instance.worker_servers)
    ps = workers if instance.has_shared_servers else whole(instance.ps_servers)
    return replace(instance, worker_servers=workers, ps_servers=ps, max_share_per_server=None)


def _limit_units(model: Any, instance: AdmissionInstance) -> None:
    """Limit the units of a job in a class to the number that fits on the class's single servers together."""
    sides = (
        (model.workers, instance.workers_per_server, instance.worker_servers),
        (model.ps, instance.ps_per_server, instance.ps_servers),
    )
    for variables, per_server, servers in sides:
        for (job, segment, c, slot), variable in variables.items():
            number = model.data.windows[job].segments[segment]
            variable.setub(min(variable.ub, int(per_server[number, c, slot]) * int(servers.count[c])))


def on_single_servers(instance: AdmissionInstance, plan: AdmissionPlan) -> AdmissionPlan:
    """Place a plan over classes on single servers, by decreasing value; reschedule the jobs that do not fit."""
    tables = JobTables.build(instance)
    rows = CapacityRows.of(tables)
    free = DualPoint(row_prices=np.zeros(rows.num_rows), payoff=np.zeros(instance.num_jobs), bound=0.0)
    repaired = Neighbourhood(tables, rows, free, 0)
    value = instance.value[plan.admitted, plan.completion]
    order = np.argsort(-value, kind="stable")
    for k in order.tolist():
        job = int(plan.admitted[k])
        sides = [
            np.array(sorted(table[table[:, JOB] == job][:, [SERVER, SLOT, COUNT]].tolist()), dtype=np.int64).reshape(
                -1, 3
            )
            for table in (plan.workers, plan.ps)
        ]
        repaired.try_schedule(Schedule(job=job, completion=int(plan.completion[k]), workers=sides[0], ps=sides[1]))
    repaired.construct(plan.admitted[order], 0.0)
    return repaired.best_plan()


def _counts_processor(stop: StoppingCriterion) -> bool:
    """Return whether a stopping rule, or one of its parts, counts processor seconds."""
    return any(isinstance(rule, ProcessorLimit) for rule in getattr(stop, "rules", (stop,)))


def _rows(compiled: CompiledModel) -> Iterator[tuple[float, float, list[tuple[int, float]]]]:
    """Yield each row's limits and its columns with their coefficients."""
    lp, columns = compiled.lp, compiled.lp.a_matrix_
    matrix = csc_array((columns.value_, columns.index_, columns.start_), shape=(lp.num_row_, lp.num_col_)).tocsr()
    for row, (low, high) in enumerate(zip(lp.row_lower_, lp.row_upper_, strict=True)):
        entries = slice(matrix.indptr[row], matrix.indptr[row + 1])
        terms = list(zip(matrix.indices[entries].tolist(), matrix.data[entries].tolist(), strict=True))
        yield float(low), float(high), terms


def _num_gaining(compiled: CompiledModel) -> int:
    """Return the number of jobs with possible positive utility; each has one binary variable."""
    return sum(variable.parent_component().local_name == "admitted" for variable in compiled.columns)


def _whole(value: float) -> int:
    """Return a coefficient of the programme as an integer."""
    whole = round(value)
    assert whole == value, f"coefficient {value!r} of the compact programme is not an integer"
    return whole


@contextmanager
def _asked(stop: StoppingCriterion, end: Callable[[], None], reason: list[Termination]) -> Iterator[None]:
    """Poll a stopping rule from another thread, and end the block's work once it returns a reason."""
    is_done = threading.Event()
    begun = time.perf_counter()

    def ask() -> None:
        while not is_done.wait(POLL_S):
            found = stop(SolveState(elapsed_s=time.perf_counter() - begun))
            if found is not None:
                reason.append(found)
                while not is_done.wait(POLL_S):
                    end()  # repeated, since requests before the start of the search are lost
                return

    thread = threading.Thread(target=ask, name="peer", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        thread.join()


def _version(distribution: str) -> str:
    from importlib.metadata import version

    return f"{distribution} {version(distribution)}"

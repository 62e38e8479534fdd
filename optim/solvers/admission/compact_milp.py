"""The compact programme (1)-(13), solved by HiGHS: a cross-check on tiny and small instances."""

from dataclasses import dataclass, replace

from optim.core.certificate import Certificate
from optim.core.clock import PhaseClock, peak_memory_mb
from optim.core.errors import InvalidOptionError, UnsupportedProblemError
from optim.core.options import options_as_dict
from optim.core.progress import Progress
from optim.core.registry import SUPPORTED, Support, register
from optim.core.solution import Solution, Stats, relative_gap
from optim.core.status import CertificateKind, PointStatus, Sense, Termination
from optim.core.stopping import SolveState, StoppingCriterion
from optim.models.admission.compact_index import compact_size
from optim.models.admission.instance import AdmissionInstance
from optim.models.admission.plan import AdmissionPlan
from optim.solvers.admission.pricing.dual_points import certify_plan
from optim.solvers.admission.warm_up import smallest_instance
from optim.solvers.lp.highs_model import CompiledModel, HighsOutcome, HighsState, Watch, solve_with_highs

MAX_VARIABLES = 400_000
"""Larger programmes take minutes and gigabytes to build, and HiGHS doesn't get anywhere with them."""

OPTIMALITY_TOL = 1e-6
"""Largest relative gap to a proven bound that is called optimal."""

PLAN_TOL = 1e-6
"""A plan may be worth this much less, relatively, than the point that it was made from: HiGHS' tolerance."""

NO_BOUND = Certificate(kind=CertificateKind.FEASIBLE_ONLY, statement="the plan is feasible; no bound is claimed")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactMilpOptions:
    """Options of `compact-milp`.

    Parameters
    ----------
    symmetry_breaking
        Order equal servers in each slot, which leaves the optimum as it is. Off by default: HiGHS finds the
        symmetry itself, and on small instances finds better plans and bounds without the order.
    mip_gap
        Relative gap at which HiGHS stops, by its own bound.
    max_variables
        Refuse larger programmes; at most the limit of 400,000 that `supports` applies.
    """

    symmetry_breaking: bool = False
    mip_gap: float = 1e-6
    max_variables: int = MAX_VARIABLES

    def __post_init__(self) -> None:
        if not 0 <= self.mip_gap < 1:
            raise InvalidOptionError(f"mip_gap must be in [0, 1), got {self.mip_gap}")
        if not 1 <= self.max_variables <= MAX_VARIABLES:
            raise InvalidOptionError(f"max_variables must be between 1 and {MAX_VARIABLES}, got {self.max_variables}")


@register("compact-milp", problem="admission")
class CompactMilpSolver:
    """The compact mixed-integer programme (1)-(13) on single real servers, by HiGHS on one thread.

    HiGHS' own bound comes without a proof that could be checked; it is stated as the count `milp_bound`
    and never as the solution's bound, which is a price proof made for the plan. So the termination is
    `completed` when HiGHS claims optimality, and `optimal` only where the price proof closes the gap.

    Notes
    -----
    Iterations are HiGHS' nodes. Refusing every job is a plan: a run that finds nothing better in time
    returns it. A stopping rule sees HiGHS' bound as it runs.

    References
    ----------
    Bao, Peng, Wu, Li, "Online Job Scheduling in Distributed Machine Learning Clusters", INFOCOM 2018,
    DOI 10.1109/INFOCOM.2018.8486422, programme (1)-(13).
    """

    name: str
    problem: str
    summary = "the compact mixed-integer programme, by HiGHS"
    options_type = CompactMilpOptions

    def supports(self, instance: AdmissionInstance) -> Support:
        """Refuse programmes of more than 400,000 variables."""
        return _support(instance, MAX_VARIABLES)

    def solve(
        self,
        instance: AdmissionInstance,
        *,
        options: CompactMilpOptions,
        stop: StoppingCriterion,
        seed: int,
        progress: Progress,
    ) -> Solution:
        """Build the programme, run HiGHS, and turn its point into a plan.

        Raises
        ------
        UnsupportedProblemError
            If the programme has more variables than `options.max_variables`.
        """
        support = _support(instance, options.max_variables)
        if not support:
            raise UnsupportedProblemError(f"instance {instance.name!r}: {support.reason}")
        clock = PhaseClock()
        progress.start(self.name)
        plan, outcome = _run(instance, options, stop=stop, seed=seed, progress=progress, clock=clock)
        progress.finish()
        termination = _TERMINATIONS.get(outcome.termination, outcome.termination)
        has_plan = termination is not Termination.NUMERICAL_ERROR
        solution = Solution(
            problem=self.problem,
            instance=instance.name,
            solver=self.name,
            sense=Sense.MAXIMISE,
            termination=termination,
            primal=PointStatus.FEASIBLE if has_plan else PointStatus.NONE,
            decision=plan if has_plan else None,
            objective=plan.objective(instance) if has_plan else None,
            certificate=NO_BOUND if has_plan else None,
            seed=seed,
            options=options_as_dict(options),
            message=_message(outcome, plan.objective(instance)),
        )
        if has_plan and termination is not Termination.INTERRUPTED:
            with clock.phase("bound"):
                solution = _with_bound(instance, solution)
        return replace(solution, stats=_stats(instance, outcome, clock))


_TERMINATIONS = {
    Termination.OPTIMAL: Termination.COMPLETED,  # a claim without a proof
    Termination.INFEASIBLE: Termination.NUMERICAL_ERROR,  # refusing every job is feasible
    Termination.DUAL_INFEASIBLE: Termination.NUMERICAL_ERROR,
}
"""What HiGHS' terminations are worth here."""


def _support(instance: AdmissionInstance, max_variables: int) -> Support:
    size = compact_size(instance)
    if size <= max_variables:
        return SUPPORTED
    return Support(
        is_supported=False,
        reason=f"its compact programme has {size} variables, more than {max_variables}; "
        "use column-generation or search",
    )


def _run(
    instance: AdmissionInstance,
    options: CompactMilpOptions,
    *,
    stop: StoppingCriterion,
    seed: int,
    progress: Progress,
    clock: PhaseClock,
) -> tuple[AdmissionPlan, HighsOutcome]:
    """Build and run the programme; with nothing found the plan is to refuse every job."""
    nobody = AdmissionPlan.from_rows([], [])
    try:
        with clock.phase("compile"):
            from optim.models.admission.compact import compact_model, plan_from_compact

            certify_plan(smallest_instance(), nobody)
        with clock.phase("build"):
            reason = stop(SolveState(elapsed_s=clock.elapsed_s))
            if reason is None:
                model = compact_model(instance, symmetry_breaking=options.symmetry_breaking)
                compiled = CompiledModel(model)
        with clock.phase("solve"):
            if reason is not None:
                return nobody, _nothing_found(reason)
            outcome = solve_with_highs(
                compiled,
                time_limit_s=stop.remaining_s(clock.elapsed_s),
                seed=seed,
                options={"mip_rel_gap": options.mip_gap},
                watch=_watch(stop, progress, clock),
            )
            return plan_from_compact(model, instance), outcome
    except KeyboardInterrupt:
        return nobody, _nothing_found(Termination.INTERRUPTED)


def _nothing_found(reason: Termination) -> HighsOutcome:
    return HighsOutcome(termination=reason, has_values=False, objective=None, bound=None, nodes=0, simplex_iterations=0)


def _watch(stop: StoppingCriterion, progress: Progress, clock: PhaseClock) -> Watch:
    """Return what HiGHS asks whether to go on."""

    def watch(state: HighsState) -> Termination | None:
        progress.update(float(state.nodes), {"objective": state.objective, "bound": state.bound})
        return stop(
            SolveState(
                elapsed_s=clock.elapsed_s,
                iterations=state.nodes,
                objective=state.objective,
                bound=state.bound,
            )
        )

    return watch


def _with_bound(instance: AdmissionInstance, solution: Solution) -> Solution:
    """Add a proven bound; where it meets the objective the plan is optimal."""
    bound, certificate, dual = certify_plan(instance, solution.decision)
    gap = relative_gap(solution.objective, bound, solution.sense)
    if solution.termination is Termination.COMPLETED and gap is not None and gap <= OPTIMALITY_TOL:
        certificate = replace(certificate, kind=CertificateKind.OPTIMALITY)
        solution = replace(solution, termination=Termination.OPTIMAL)
    return replace(solution, bound=bound, certificate=certificate, dual=dual)


def _message(outcome: HighsOutcome, worth: float) -> str:
    if outcome.objective is not None and worth < outcome.objective - PLAN_TOL * max(1.0, abs(outcome.objective)):
        return (
            f"the plan is worth {worth:.9g}, less than HiGHS' point, {outcome.objective:.9g}: "
            "jobs that broke a row in exact arithmetic were dropped"
        )
    if outcome.bound is None:
        return "HiGHS found no bound"
    if outcome.termination is Termination.OPTIMAL:
        return f"HiGHS claims optimality with bound {outcome.bound:.9g}, which comes without a proof"
    return f"HiGHS claims the bound {outcome.bound:.9g}, which comes without a proof"


def _stats(instance: AdmissionInstance, outcome: HighsOutcome, clock: PhaseClock) -> Stats:
    counts = {
        "variables": float(compact_size(instance)),
        "simplex_iterations": float(outcome.simplex_iterations),
    }
    if outcome.bound is not None:
        counts["milp_bound"] = outcome.bound
    if outcome.objective is not None:
        counts["milp_objective"] = outcome.objective
    return Stats(seconds=clock.seconds, iterations=outcome.nodes, memory_mb=peak_memory_mb(), counts=counts)

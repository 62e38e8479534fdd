"""The compact programme (1)-(13), solved by HiGHS: a cross-check on tiny and small instances."""

from dataclasses import dataclass, replace

from optim.core.driver import AbstractSolver, Monitor, Outcome, SolverState
from optim.core.errors import InvalidOptionError, UnsupportedProblemError
from optim.core.registry import SUPPORTED, Support, register
from optim.core.solution import Termination
from optim.models.admission.compact_index import compact_size
from optim.models.admission.decision import AdmissionPlan
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.packing.dual_points import OPTIMALITY_TOL, certified
from optim.solvers.admission.pricing.classes import JobTables
from optim.solvers.admission.warm_up import compile_bound
from optim.solvers.lp.highs import CompiledModel, HighsOutcome, HighsState, solve_with_highs

MAX_VARIABLES = 400_000
"""Maximal number of variables; larger programmes take minutes to build, and HiGHS makes no progress on them."""

PLAN_TOL = 1e-6
"""Allowed relative loss of value between HiGHS' point and the plan made from it: HiGHS' tolerance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactMilpOptions:
    """Options of `compact-milp`.

    Parameters
    ----------
    mip_gap
        Relative gap at which HiGHS stops, by its own bound. Its tolerances are absolute: it may miss improvements of
        1e-6 utility units (or 1e-6 of the largest job value if no job has a value of 1).
    max_variables
        Largest number of variables to accept, up to the 400,000 that `supports` allows.
    """

    mip_gap: float = 1e-6
    max_variables: int = MAX_VARIABLES

    def __post_init__(self) -> None:
        if not 0 <= self.mip_gap < 1:
            raise InvalidOptionError(f"mip_gap must be in [0, 1), got {self.mip_gap}")
        if not 1 <= self.max_variables <= MAX_VARIABLES:
            raise InvalidOptionError(f"max_variables must be between 1 and {MAX_VARIABLES}, got {self.max_variables}")


@register("compact-milp", problem="admission")
class CompactMilpSolver(AbstractSolver[AdmissionInstance, CompactMilpOptions]):
    """The compact mixed-integer programme (1)-(13) on single real servers, by HiGHS on one thread.

    HiGHS' own bound has no checkable proof. It is reported as the count `claimed_bound`, never as the solution's bound,
    which is a price proof made for the plan. So the termination is `completed` when HiGHS claims optimality, and
    `optimal` only if the price proof closes the gap. If the plan's value exceeds HiGHS' bound, the claim is wrong, and
    the message reports it.

    Notes
    -----
    Iterations are HiGHS' nodes. The plan that rejects every job is feasible: a run that finds no better one in time
    returns it. A stopping rule sees HiGHS' bound during the run. The termination is `gap_limit` only if the proven gap
    is within the limit; otherwise it is `completed`, and the message reports the difference.

    References
    ----------
    Bao, Peng, Wu, Li, "Online Job Scheduling in Distributed Machine Learning Clusters", INFOCOM 2018,
    DOI 10.1109/INFOCOM.2018.8486422, programme (1)-(13).
    """

    summary = "the compact mixed-integer programme, solved by HiGHS"
    options_type = CompactMilpOptions

    def supports(self, instance: AdmissionInstance) -> Support:
        """Return whether the programme has at most 400,000 variables."""
        return _support(instance, MAX_VARIABLES)

    def warm_up(self, instance: AdmissionInstance, options: CompactMilpOptions) -> None:
        """Compile the loops of the bound."""
        compile_bound(is_shared=instance.has_shared_servers)

    def run(self, instance: AdmissionInstance, options: CompactMilpOptions, monitor: Monitor, seed: int) -> Outcome:
        """Build the programme, run HiGHS, and convert its point to a plan.

        Raises
        ------
        UnsupportedProblemError
            If the programme has more variables than `options.max_variables`.
        """
        support = _support(instance, options.max_variables)
        if not support:
            raise UnsupportedProblemError(f"instance {instance.name!r}: {support.reason}")
        monitor.progress.start(self.name)
        plan, highs = _run_highs(instance, options, monitor, seed)
        monitor.progress.finish()
        termination = _TERMINATIONS.get(highs.termination, highs.termination)
        known = {"claimed_bound": highs.bound, "milp_objective": highs.objective}
        outcome = Outcome(
            termination=termination,
            iterations=highs.nodes,
            counts={
                "variables": float(compact_size(instance)),
                "simplex_iterations": float(highs.simplex_iterations),
                **{name: value for name, value in known.items() if value is not None},
            },
            message=_message(highs, plan.objective(instance)),
        )
        if termination is Termination.NUMERICAL_ERROR:
            return outcome
        # A limit ends HiGHS, but the bound is still computed.
        is_interrupted = termination is Termination.INTERRUPTED
        proven = certified(JobTables.build(instance), plan, monitor.clock, is_cut_short=is_interrupted)
        message = outcome.message
        if termination is Termination.GAP_LIMIT and not monitor.is_gap_within(proven.objective, proven.bound):
            # HiGHS' bound meets the limit, but the price proof doesn't: a claim without a proof.
            termination = Termination.COMPLETED
            message = (
                f"the gap to HiGHS' bound is within the gap limit, but the gap to the proven bound is not; {message}"
            )
        return replace(
            proven,
            tol=OPTIMALITY_TOL,
            termination=termination,
            iterations=outcome.iterations,
            counts=outcome.counts,
            message=message,
        )


_TERMINATIONS = {
    Termination.OPTIMAL: Termination.COMPLETED,  # a claim without a proof
    Termination.INFEASIBLE: Termination.NUMERICAL_ERROR,  # rejecting every job is feasible
    Termination.DUAL_INFEASIBLE: Termination.NUMERICAL_ERROR,
}
"""Termination of the solver for each termination of HiGHS."""


def _support(instance: AdmissionInstance, max_variables: int) -> Support:
    size = compact_size(instance)
    if size <= max_variables:
        return SUPPORTED
    return Support(
        is_supported=False,
        reason=f"its compact programme has {size} variables, more than {max_variables}; "
        "use column-generation or search",
    )


def _run_highs(
    instance: AdmissionInstance, options: CompactMilpOptions, monitor: Monitor, seed: int
) -> tuple[AdmissionPlan, HighsOutcome]:
    """Build and run the programme; if HiGHS finds no point the plan rejects every job."""
    from optim.models.admission.compact_programme import compact_model, plan_from_compact

    nobody = AdmissionPlan.from_rows([], [])

    def watch(state: HighsState) -> Termination | None:
        standing = SolverState(iterations=state.nodes, objective=state.objective, bound=state.bound)
        monitor.show(standing)
        monitor.is_over(standing)
        return monitor.reason

    try:
        with monitor.clock.phase("build"):
            if monitor.is_over():
                return nobody, _nothing_found(monitor.reason)
            model = compact_model(instance)
            compiled = CompiledModel(model)
        with monitor.clock.phase("solve"):
            outcome = solve_with_highs(
                compiled,
                time_limit_s=monitor.remaining_s,
                seed=seed,
                options={"mip_rel_gap": options.mip_gap},
                watch=watch,
            )
            return plan_from_compact(model, instance), outcome
    except KeyboardInterrupt:
        return nobody, _nothing_found(Termination.INTERRUPTED)


def _nothing_found(reason: Termination | None) -> HighsOutcome:
    assert reason is not None
    return HighsOutcome(termination=reason, values=None, objective=None, bound=None, nodes=0, simplex_iterations=0)


def _message(outcome: HighsOutcome, plan_value: float) -> str:
    if outcome.objective is not None and plan_value < outcome.objective - PLAN_TOL * max(1.0, abs(outcome.objective)):
        return (
            f"the plan's value {plan_value:.9g} is less than HiGHS' point, {outcome.objective:.9g}: "
            "jobs that violate a row in exact arithmetic were dropped"
        )
    if outcome.bound is None:
        return "HiGHS found no bound"
    if plan_value > outcome.bound + PLAN_TOL * max(1.0, abs(outcome.bound)):
        return f"HiGHS claims the bound {outcome.bound:.9g}, which is wrong: the plan's value is {plan_value:.9g}"
    if outcome.termination is Termination.OPTIMAL:
        return f"HiGHS claims optimality with bound {outcome.bound:.9g}, which comes without a proof"
    return f"HiGHS claims the bound {outcome.bound:.9g}, which comes without a proof"

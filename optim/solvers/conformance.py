"""Requirements for all registered solvers, as checks that also run on custom solvers.

A `Trial` solves one instance with one solver (twice with one seed, once with a time limit of 0). Each check examines the
trial and raises `ConformanceError` with the requirement and the actual result.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from optim.core.errors import OptimError
from optim.core.options import build_options
from optim.core.solution import CertificateKind, PointStatus, Sense, Solution, Termination, Verification
from optim.core.stopping import IterationLimit
from optim.models.catalogue import problem_of
from optim.models.files import read_solution, verify, write_solution
from optim.solvers.solve import solve, solver_named

OPTIMALITY_TOL = 1e-6
"""Largest relative gap of an optimal solution."""

CROSSING_TOL = 1e-9
"""Relative amount by which an objective may exceed its bound, due to rounding."""

TIMED_PHASES = ("build", "compile", "solve")
"""Phases for which every solver must report seconds."""

NO_POINT = frozenset({Termination.INFEASIBLE, Termination.NUMERICAL_ERROR, Termination.DUAL_INFEASIBLE})
CLOCK = frozenset({Termination.TIME_LIMIT, Termination.INTERRUPTED})
"""Terminations that depend on how fast the machine is."""


class ConformanceError(OptimError, AssertionError):
    """A solver violates a requirement for all solvers.

    >>> issubclass(ConformanceError, AssertionError)
    True
    """


class Trial:
    """One solver on one instance; solutions are computed on first use.

    Parameters
    ----------
    instance
        An instance that the solver supports.
    solver
        Name of a registered solver of the instance's problem.
    options
        The solver's options object, or a mapping of its fields.
    seed
        Seed of every solve.
    iteration_limit
        Largest number of iterations per solve; a limit in seconds would make solutions depend on the machine.

    Examples
    --------
    >>> import optim
    >>> Trial(optim.reference_instance("tiny-0"), "online").verification.is_ok
    True
    """

    def __init__(
        self, instance: Any, solver: str, *, options: Any = None, seed: int = 0, iteration_limit: int = 50
    ) -> None:
        self.instance = instance
        self.problem = problem_of(instance)
        self.solver = solver_named(self.problem.name, solver)
        self.options = options
        self.seed = seed
        self.iteration_limit = iteration_limit
        self.document: bytes = self.problem.write_instance(instance)

    @cached_property
    def solution(self) -> Solution:
        """The solution."""
        return self._solve()

    @cached_property
    def repetition(self) -> Solution:
        """The solution of a second solve with the same arguments."""
        return self._solve()

    @cached_property
    def zero_time(self) -> Solution:
        """The solution with a time limit of 0."""
        return solve(self.instance, self.solver.name, options=self.options, seed=self.seed, time_limit_s=0.0)

    @cached_property
    def verification(self) -> Verification:
        """The independent checker's verification of the solution."""
        return verify(self.instance, self.solution)

    def _solve(self) -> Solution:
        stop = IterationLimit(self.iteration_limit)
        return solve(self.instance, self.solver.name, options=self.options, seed=self.seed, stop=stop)


def _demand(holds: bool, owed: str, actual: object) -> None:
    """Raise ConformanceError with the requirement and the actual result unless `holds`."""
    if not holds:
        raise ConformanceError(f"{owed}, got {actual}")


def check_verifies(trial: Trial) -> None:
    """Demand that the independent checker accepts every claim."""
    _demand(
        trial.verification.is_ok, "the checker must accept every claim", [*map(str, trial.verification.violations[:3])]
    )


def check_identity(trial: Trial) -> None:
    """Demand that the solution names its problem, instance, solver, sense, seed, options and versions."""
    solution = trial.solution
    named = (solution.problem, solution.instance, solution.solver, solution.sense, solution.seed)
    expected = (trial.problem.name, trial.instance.name, trial.solver.name, trial.problem.sense, trial.seed)
    _demand(named == expected, f"the solution must be named {expected}", named)
    build_options(trial.solver.options_type, dict(solution.options))
    _demand(bool(solution.versions), "versions must be recorded", solution.versions)


def check_statuses(trial: Trial) -> None:
    """Demand that statuses are consistent: a decision has a value, a bound has a proof, an optimum has no gap."""
    for solution in (trial.solution, trial.zero_time):
        has_decision = solution.decision is not None
        _demand(
            (solution.primal is PointStatus.FEASIBLE) == has_decision
            and (solution.objective is not None) == has_decision,
            "a decision, its value and the primal status 'feasible' must come together",
            (solution.primal, solution.objective, has_decision),
        )
        has_proof = solution.certificate is not None and solution.certificate.proof is not None
        _demand(
            (solution.dual is PointStatus.FEASIBLE) == (solution.bound is not None) == has_proof,
            "a bound, its proof and the dual status 'feasible' must come together",
            (solution.dual, solution.bound, has_proof),
        )
        _demand(
            has_decision or solution.certificate is None or solution.certificate.kind is CertificateKind.BOUND,
            "a certificate without a decision can only be a bound",
            solution.certificate,
        )
        _demand(
            solution.termination not in NO_POINT or not has_decision,
            f"termination {solution.termination.value!r} must come without a decision",
            solution.objective,
        )
        is_optimal = solution.termination is Termination.OPTIMAL
        gap = solution.gap
        _demand(
            not is_optimal or (gap is not None and gap <= OPTIMALITY_TOL),
            f"an optimal solution must have a gap of at most {OPTIMALITY_TOL}",
            gap,
        )


def check_bound_not_crossed(trial: Trial) -> None:
    """Demand that no objective, of the solve or of the solve with a time limit of 0, is better than a bound of either."""
    solutions = (trial.solution, trial.zero_time)
    sign = 1.0 if trial.problem.sense is Sense.MAXIMISE else -1.0
    for first in solutions:
        for second in solutions:
            if first.objective is not None and second.bound is not None:
                slack = CROSSING_TOL * max(1.0, abs(second.bound))
                _demand(
                    sign * (first.objective - second.bound) <= slack,
                    f"an objective must not be better than a bound of {second.bound}",
                    first.objective,
                )


def check_not_worse_than_nothing(trial: Trial) -> None:
    """Demand objectives and bounds of at least 0 in maximisation problems, in which the empty decision has value 0."""
    if trial.problem.sense is Sense.MAXIMISE:
        for solution in (trial.solution, trial.zero_time):
            for value in (solution.objective, solution.bound):
                _demand(value is None or value >= 0, "objective and bound must be at least 0", value)


def check_same_seed_same_answer(trial: Trial) -> None:
    """Demand that solving again with the same seed gives the same decision, objective, bound and iterations.

    A solver with `is_reproducible` false must give the same objective if both runs prove optimality.
    """
    first, second = trial.solution, trial.repetition
    if first.termination in CLOCK or second.termination in CLOCK:
        return
    if not getattr(trial.solver, "is_reproducible", True):
        if first.termination is second.termination is Termination.OPTIMAL:
            assert first.objective is not None
            assert second.objective is not None
            gap = abs(first.objective - second.objective)
            is_same = gap <= OPTIMALITY_TOL * max(1.0, abs(first.objective))
            _demand(is_same, f"the same seed must give the same optimum: {first.objective}", second.objective)
        return
    for name, one, other in zip(("decision", "outcome"), _answer(trial, first), _answer(trial, second), strict=True):
        _demand(one == other, f"the same seed must give the same {name}: {one}", other)


def _answer(trial: Trial, solution: Solution) -> tuple[Any, ...]:
    decision = solution.decision
    plain = None if decision is None else trial.problem.decision_to_json(trial.instance, decision)
    return plain, (solution.termination, solution.objective, solution.bound, solution.stats.iterations)


def check_round_trip(trial: Trial) -> None:
    """Demand that a solution written to JSON and read back is the same, and still verifies."""
    again = read_solution(write_solution(trial.solution, trial.instance), trial.instance)
    once = write_solution(again, trial.instance)
    twice = write_solution(read_solution(once, trial.instance), trial.instance)
    _demand(once == twice, "a solution that is read back must give the same document", "a different one")
    first, second = _answer(trial, trial.solution), _answer(trial, again)
    _demand(first == second, f"the solution read back must be {first}", second)
    _demand(verify(trial.instance, again).is_ok, "the solution read back must verify", "a rejection")


def check_without_time(trial: Trial) -> None:
    """Demand that a solver with a time limit of 0 returns a valid status and only correct claims."""
    hurried = trial.zero_time
    ended = {Termination.TIME_LIMIT, Termination.COMPLETED, Termination.OPTIMAL, *NO_POINT}
    _demand(
        hurried.termination in ended,
        "a solve with time limit 0 must end by its time limit, complete, or find no decision",
        hurried.termination,
    )
    violations = verify(trial.instance, hurried).violations
    _demand(not violations, "a solve with time limit 0 must only make correct claims", [*map(str, violations[:3])])


def check_phases(trial: Trial) -> None:
    """Demand that seconds are reported by phase and aren't negative."""
    seconds = trial.solution.stats.seconds
    _demand(
        all(name in seconds for name in TIMED_PHASES), f"seconds must have the phases {TIMED_PHASES}", dict(seconds)
    )
    _demand(all(value >= 0 for value in seconds.values()), "seconds must be at least 0", dict(seconds))


def check_instance_untouched(trial: Trial) -> None:
    """Demand that solving doesn't change the instance."""
    _ = trial.solution
    _demand(
        trial.problem.write_instance(trial.instance) == trial.document,
        "solving must not change the instance",
        "a change",
    )


CHECKS: Mapping[str, Callable[[Trial], None]] = {
    check.__name__.removeprefix("check_"): check
    for check in (
        check_verifies,
        check_identity,
        check_statuses,
        check_bound_not_crossed,
        check_not_worse_than_nothing,
        check_same_seed_same_answer,
        check_round_trip,
        check_without_time,
        check_phases,
        check_instance_untouched,
    )
}
"""Every check, by name."""


def failures(trial: Trial) -> tuple[str, ...]:
    """Run all checks and return the failures, one line per check.

    Examples
    --------
    >>> import optim
    >>> from optim.solvers.conformance import Trial, failures
    >>> failures(Trial(optim.reference_instance("tiny-0"), "online"))
    ()
    """
    failed = []
    for name, check in CHECKS.items():
        try:
            check(trial)
        except ConformanceError as error:
            failed.append(f"{name}: {error}")
    return tuple(failed)

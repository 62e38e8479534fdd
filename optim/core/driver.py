"""The driver of solvers: timing by phase, Ctrl-C, and the loop of iterative solvers.

An iterative method has `init`, `step`, `is_done`, `standing` and `finish`; `run_iteration` is its loop. A `Monitor` combines
the stopping rule, the progress and the clock of a run. A solver returns an `Outcome`, which `AbstractSolver` turns into a
`Solution` with statuses.

An interruption is a stopping rule (`optim.core.stopping.Interruption`) that ends a run between two steps. A
KeyboardInterrupt propagates instead, because it may leave a step incomplete.
"""

import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from numbers import Real
from types import FrameType
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from optim.core.errors import NotAllowedError
from optim.core.limits import peak_memory
from optim.core.options import options_as_dict
from optim.core.progress import Progress, SilentProgress
from optim.core.registry import SUPPORTED, Support
from optim.core.solution import (
    Certificate,
    CertificateKind,
    PointStatus,
    Relaxation,
    Sense,
    Solution,
    Stats,
    Termination,
    relative_gap,
)
from optim.core.stopping import AnyOf, Interruption, Never, SolveState, StoppingCriterion, TimeReserve
from optim.core.user_code import who_answers


class PhaseClock:
    """Collect wall-clock seconds by named phase."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time spent inside the block to phase `name`."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begun

    @property
    def elapsed_s(self) -> float:
        """Seconds since the clock was created, without the phase ``compile``."""
        return time.perf_counter() - self._started - self.seconds.get("compile", 0.0)


class SolveInterrupted(KeyboardInterrupt):
    """Ctrl-C was pressed during a solve; the solution's `termination` shows whether it ended the solve.

    The exception is raised in both cases, so that Ctrl-C also ends a loop of short solves.

    Parameters
    ----------
    solution
        The best decision and bound so far, with their certificate.

    Examples
    --------
    >>> import optim
    >>> try:
    ...     solution = optim.solve(optim.reference_instance("tiny-0"), "online")
    ... except optim.SolveInterrupted as interrupted:
    ...     solution = interrupted.solution
    >>> solution.objective > 0
    True
    """

    def __init__(self, solution: Solution) -> None:
        is_cut_short = solution.termination is Termination.INTERRUPTED
        outcome = "was interrupted; its solution so far" if is_cut_short else "finished after Ctrl-C; its solution"
        super().__init__(
            f"solver {solution.solver!r} {outcome} (objective {solution.objective}, "
            f"bound {solution.bound}) is the exception's `solution`"
        )
        self.solution = solution


@contextmanager
def stopping_at_ctrl_c() -> Iterator[Interruption]:
    """Yield a stopping rule that the first Ctrl-C triggers; the second raises KeyboardInterrupt at once.

    Nothing changes if the program has its own handler, or outside the main thread, where Python handles no signals.
    """
    interruption = Interruption()
    is_ours = threading.current_thread() is threading.main_thread()
    if not is_ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield interruption
        return

    def ask(number: int, frame: FrameType | None) -> None:
        del number, frame
        if interruption.is_requested:
            raise KeyboardInterrupt
        interruption.request()

    signal.signal(signal.SIGINT, ask)
    try:
        yield interruption
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class NamedInstance(Protocol):
    """An instance of any problem."""

    @property
    def name(self) -> str:
        """Name of the instance in solutions."""
        ...


InstanceT = TypeVar("InstanceT", bound=NamedInstance)

OptionsT = TypeVar("OptionsT")

ResultT = TypeVar("ResultT")

ROUNDING = 1e-12
"""Relative distance within which a bound on the wrong side of the objective is a rounding error."""

PHASES = ("build", "compile", "solve")
"""Phases in the statistics of every solution; 0 seconds if a solver does not have the phase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverState:
    """State of a run, for stopping rules and progress bars.

    Parameters
    ----------
    iterations
        Completed steps of the main loop.
    objective, bound
        Value of the best decision, and bound on every decision's value; None if unknown.
    figures
        Further values to show, by name.
    """

    iterations: int = 0
    objective: float | None = None
    bound: float | None = None
    figures: Mapping[str, float | None] = field(default_factory=dict)


EMPTY_STATE = SolverState()
"""State for stopping rules that depend only on the clock or an interruption."""


class Monitor:
    """The stopping rule, progress and clock of one run.

    Parameters
    ----------
    stop, progress
        As passed by `optim.solve`.
    sense
        Direction of the objective, for gaps.
    clock
        Clock of the solve; a new one by default.
    unit
        Factor that converts the run's objectives and bounds to the units of `stop` and `progress`.
    """

    def __init__(
        self,
        stop: StoppingCriterion | None = None,
        progress: Progress | None = None,
        *,
        sense: Sense = Sense.MAXIMISE,
        clock: PhaseClock | None = None,
        unit: float = 1.0,
    ) -> None:
        self.stop: StoppingCriterion = Never() if stop is None else stop
        self.progress: Progress = SilentProgress() if progress is None else progress
        self.sense = sense
        self.clock = PhaseClock() if clock is None else clock
        self.unit = unit
        self.reason: Termination | None = None
        """Reason to stop; None while the run may continue."""

    def is_over(self, standing: SolverState = EMPTY_STATE) -> bool:
        """Return whether the stopping rule ends the run; its first reason is final."""
        if self.reason is None:
            self.reason = self.stop(
                SolveState(
                    elapsed_s=self.clock.elapsed_s,
                    iterations=standing.iterations,
                    objective=self._unscaled(standing.objective),
                    bound=self._unscaled(standing.bound),
                    sense=self.sense,
                )
            )
        return self.reason is not None

    def is_gap_within(self, objective: float | None, bound: float | None) -> bool:
        """Return whether the gap between these values would end a run, regardless of clock and iterations."""
        state = SolveState(
            elapsed_s=0.0, objective=self._unscaled(objective), bound=self._unscaled(bound), sense=self.sense
        )
        return self.stop(state) is Termination.GAP_LIMIT

    def show(self, standing: SolverState) -> None:
        """Report the state of the run to the progress; unknown values are None."""
        objective, bound = self._unscaled(standing.objective), self._unscaled(standing.bound)
        known = {"objective": objective, "bound": bound, "gap": relative_gap(objective, bound, self.sense)}
        self.progress.update(standing.iterations, {**known, **standing.figures})

    @property
    def remaining_s(self) -> float:
        """Seconds until the time limit, infinity without one."""
        return self.stop.remaining_s(self.clock.elapsed_s)

    def part(self, *further: StoppingCriterion, share: float = 1.0) -> "Monitor":
        """Return a monitor for a part of the run, with further stopping rules and a share of the remaining time.

        The part has its own iterations and reason to stop, so an iteration limit that ends the part does not end the run.
        """
        rules = [self.stop, *further]
        if share < 1.0 and self.remaining_s < float("inf"):
            rules.append(TimeReserve(self.stop, (1.0 - share) * self.remaining_s))
        return Monitor(AnyOf(*rules), self.progress, sense=self.sense, clock=self.clock, unit=self.unit)

    def in_unit(self, unit: float) -> "Monitor":
        """Return a monitor for the same run with objectives and bounds in another unit."""
        return Monitor(self.stop, self.progress, sense=self.sense, clock=self.clock, unit=unit * self.unit)

    def _unscaled(self, number: float | None) -> float | None:
        return None if number is None else number * self.unit


class AbstractIteration(ABC, Generic[ResultT]):
    """An iterative method, run by `run_iteration`; its attributes are its state, so it can be resumed."""

    has_begun = False

    def init(self) -> None:
        """Prepare the first step; the default has no effect."""

    @abstractmethod
    def is_done(self) -> bool:
        """Return whether the method has finished."""

    @abstractmethod
    def step(self) -> None:
        """Perform one step; the method may be stopped after it."""

    @abstractmethod
    def standing(self) -> SolverState:
        """Return the state of the method."""

    @abstractmethod
    def finish(self, reason: Termination | None) -> ResultT:
        """Return the result; `reason` is the reason for stopping, None if the method finished."""


def run_iteration(
    method: AbstractIteration[ResultT], monitor: Monitor, *, task: str | None = None, total: float | None = None
) -> ResultT:
    """Run a method until it finishes or its monitor stops it; call again to resume it.

    Parameters
    ----------
    method
        Method to run. A method that finishes as it reaches a limit counts as finished, because `is_done` is called
        before the stopping rule.
    monitor
        Called before each step, and informed after each.
    task, total
        Name and number of steps for the progress; without a name, no progress is reported.
    """
    if task is not None:
        monitor.progress.start(task, total)
    if not method.has_begun:
        method.init()
        method.has_begun = True
    while not (method.is_done() or monitor.is_over(method.standing())):
        method.step()
        if task is not None:
            monitor.show(method.standing())
    if task is not None:
        monitor.progress.finish()
    return method.finish(monitor.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of a solver; `AbstractSolver` turns it into a `Solution`.

    Parameters
    ----------
    decision, objective
        The best decision and its value, or None.
    bound, proof
        Bound on every decision's value, and its proof.
    statement, conditions
        Statement (``{bound}`` is replaced by the bound) and conditions of the certificate if the objective does not
        attain the bound. Without a statement, there is no certificate.
    optimal_statement
        Statement if the objective attains the bound; default: `statement`.
    tol
        Relative gap at which the objective counts as attaining the bound; None never claims optimality.
    is_optimal
        Whether the objective attains the bound by the solver's criterion; replaces `tol`.
    termination
        Reason why the run ended; default: the monitor's reason, or `completed`. An optimal decision always has `optimal`.
    iterations, counts, decision_ms, message, relaxation
        As in `Solution` and its `Stats`.
    """

    decision: Any = None
    objective: float | None = None
    bound: float | None = None
    proof: Any = None
    statement: str = ""
    conditions: tuple[str, ...] = ()
    optimal_statement: str = ""
    tol: float | None = None
    is_optimal: bool | None = None
    termination: Termination | None = None
    iterations: int = 0
    counts: Mapping[str, float] = field(default_factory=dict)
    decision_ms: tuple[float, ...] = ()
    message: str = ""
    relaxation: Relaxation | None = None

    def rounded(self, sense: Sense) -> "Outcome":
        """Return the outcome; a bound that rounding errors put on the wrong side of the objective becomes the objective."""
        if (
            self.objective is None
            or self.bound is None
            or abs(self.bound - self.objective) > ROUNDING * abs(self.objective)
        ):
            return self
        return replace(self, bound=(max if sense is Sense.MAXIMISE else min)(self.bound, self.objective))

    def attains_bound(self, sense: Sense) -> bool:
        """Return whether the decision is proven optimal."""
        if self.is_optimal is not None:
            return self.is_optimal
        gap = relative_gap(self.objective, self.bound, sense)
        return self.tol is not None and gap is not None and gap <= self.tol

    def certificate(self, sense: Sense) -> Certificate | None:
        """Return the certificate, if any."""
        statement, kind = self.statement, CertificateKind.BOUND
        if self.attains_bound(sense):
            statement, kind = self.optimal_statement or self.statement, CertificateKind.OPTIMALITY
        elif self.bound is None:
            kind = CertificateKind.FEASIBLE_ONLY
        if not statement:
            return None
        sentence = statement if self.bound is None else statement.replace("{bound}", f"{self.bound:.9g}")
        return Certificate(kind=kind, statement=sentence, proof=self.proof, conditions=self.conditions)


def _check(solver: Any, outcome: Any) -> None:
    """Raise NotAllowedError unless a solver returned a valid `Outcome`."""
    if not isinstance(outcome, Outcome):
        raise NotAllowedError(f"solver {who_answers(solver, 'run')} must return an Outcome, got {outcome!r}")
    for name in ("objective", "bound"):
        value = getattr(outcome, name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, Real)):
            raise NotAllowedError(
                f"solver {who_answers(solver, 'run')}: {name} must be a number or None, got {value!r}"
            )


class AbstractSolver(ABC, Generic[InstanceT, OptionsT]):
    """Base of solvers, which implement `run`; a solver supports all instances of its problem unless it overrides `supports`."""

    name: str
    problem: str
    summary: ClassVar[str]
    options_type: ClassVar[type[Any]]
    sense: ClassVar[Sense] = Sense.MAXIMISE
    is_reproducible: ClassVar[bool] = True
    """Whether equal seeds give equal decisions, bounds and work; if False, only the objectives of proven optima are equal."""

    @abstractmethod
    def run(self, instance: InstanceT, options: OptionsT, monitor: Monitor, seed: int) -> Outcome:
        """Solve the instance; the monitor's clock times the phases."""

    def _run(self, instance: InstanceT, options: OptionsT, monitor: Monitor, seed: int) -> Outcome:
        """Call `run`; override to run on another form of the instance."""
        return self.run(instance, options, monitor, seed)

    def warm_up(self, instance: InstanceT, options: OptionsT) -> None:
        """Compile the loops of a run, once per process; timed as ``compile``. The default compiles nothing."""
        del instance, options

    def foresight(self, options: OptionsT) -> str:
        """Describe the future information that an online rule receives in advance; default: "" (none)."""
        del options
        return ""

    def supports(self, instance: InstanceT) -> Support:
        """Return whether the solver supports the instance, and the reason if not."""
        del instance
        return SUPPORTED

    def is_default_for(self, instance: InstanceT) -> bool:
        """Return whether this solver is a default for the instance; the first one by name is used."""
        del instance
        return False

    def solve(
        self,
        instance: InstanceT,
        *,
        options: OptionsT,
        stop: StoppingCriterion,
        seed: int,
        progress: Progress,
    ) -> Solution:
        """Solve the instance, and return the solution."""
        monitor = Monitor(stop, progress, sense=self.sense)
        with monitor.clock.phase("compile"):
            self.warm_up(instance, options)
        outcome = self._run(instance, options, monitor, seed)
        _check(self, outcome)
        return self.solution(instance, outcome, options=options, seed=seed, monitor=monitor)

    def solution(
        self, instance: InstanceT, outcome: Outcome, *, options: OptionsT, seed: int, monitor: Monitor
    ) -> Solution:
        """Turn an outcome into a solution."""
        outcome = outcome.rounded(self.sense)
        termination = outcome.termination or monitor.reason or Termination.COMPLETED
        return Solution(
            problem=self.problem,
            instance=instance.name,
            solver=self.name,
            sense=self.sense,
            termination=Termination.OPTIMAL if outcome.attains_bound(self.sense) else termination,
            primal=PointStatus.NONE if outcome.decision is None else PointStatus.FEASIBLE,
            dual=PointStatus.NONE if outcome.bound is None else PointStatus.FEASIBLE,
            decision=outcome.decision,
            objective=outcome.objective,
            bound=outcome.bound,
            certificate=outcome.certificate(self.sense),
            seed=seed,
            options=options_as_dict(options),
            stats=Stats(
                seconds={**dict.fromkeys(PHASES, 0.0), **monitor.clock.seconds},
                iterations=outcome.iterations,
                memory_mb=peak_memory() / 2**20,
                decision_ms=outcome.decision_ms,
                counts=outcome.counts,
            ),
            message=outcome.message,
            relaxation=outcome.relaxation,
        )

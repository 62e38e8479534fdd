"""The driver of solvers: seconds by phase, Ctrl-C, and the loop of iterative solvers.

An iterative method has `init`, `step`, `is_done`, `standing` and `finish`; `run_iteration` is its loop. A `Monitor` holds what
the loop asks and tells: stopping rule, progress and clock. A solver gives an `Outcome`; `AbstractSolver` makes the
`Solution` of it, with the statuses that follow.

Interruption comes as a stopping rule (`optim.core.stopping.Interruption`) and ends a run between two steps. The
exception of Ctrl-C passes through instead: what a step left half done is not to be trusted.
"""

import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
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
        """Seconds since the clock was made, less the phase ``compile`` (compiling is no solving)."""
        return time.perf_counter() - self._started - self.seconds.get("compile", 0.0)


class SolveInterrupted(KeyboardInterrupt):
    """Ctrl-C came during a solve, and ended it unless it came to its end by itself: its `termination` tells which.

    A program that wants to end ends in both cases, in the middle of a loop of short solves, too.

    Parameters
    ----------
    solution
        What the solver had found by then: its best decision and bound, with its certificate.

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
        outcome = (
            "was interrupted; its solution so far" if is_cut_short else "came to its end after Ctrl-C; its solution"
        )
        super().__init__(
            f"solver {solution.solver!r} {outcome} (objective {solution.objective}, "
            f"bound {solution.bound}) is the exception's `solution`"
        )
        self.solution = solution


@contextmanager
def stopping_at_ctrl_c() -> Iterator[Interruption]:
    """Give a stopping rule that the first Ctrl-C triggers; the second raises KeyboardInterrupt at once.

    Where somebody else handles Ctrl-C already, and in threads, to which Python sends no signals, nothing is changed.
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
    """Any problem's instance."""

    @property
    def name(self) -> str:
        """Its name, as solutions quote it."""
        ...


InstanceT = TypeVar("InstanceT", bound=NamedInstance)

OptionsT = TypeVar("OptionsT")

ResultT = TypeVar("ResultT")

PHASES = ("build", "compile", "solve")
"""Phases that every solution's statistics name, with 0 seconds where a solver has none of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverState:
    """Where a run stands: what stopping rules may look at and a progress bar shows.

    Parameters
    ----------
    iterations
        Steps of the main loop so far.
    objective, bound
        Value of the best decision and bound on every one's, None where there is none.
    figures
        Further figures worth showing, by name.
    """

    iterations: int = 0
    objective: float | None = None
    bound: float | None = None
    figures: Mapping[str, float | None] = field(default_factory=dict)


EMPTY_STATE = SolverState()
"""For questions that only a clock or an interruption answers."""


class Monitor:
    """The stopping rule, the progress and the clock of one run, asked from wherever its work is done.

    Parameters
    ----------
    stop, progress
        As `optim.solve` hands them on.
    sense
        Of the objective, for gaps.
    clock
        Of the solve; a new one by default.
    unit
        What one unit of the run's objectives and bounds is worth to the rule and the progress.
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
        """Why the run was told to stop; None while it wasn't."""

    def is_over(self, standing: SolverState = EMPTY_STATE) -> bool:
        """Ask the stopping rule; once it has given a reason the run is over for good, and the first reason stays."""
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
        """Tell whether the rule would end a run for the gap of these; clock and iterations count for nothing."""
        state = SolveState(
            elapsed_s=0.0, objective=self._unscaled(objective), bound=self._unscaled(bound), sense=self.sense
        )
        return self.stop(state) is Termination.GAP_LIMIT

    def show(self, standing: SolverState) -> None:
        """Tell the progress where the run stands; what is not known is None."""
        objective, bound = self._unscaled(standing.objective), self._unscaled(standing.bound)
        known = {"objective": objective, "bound": bound, "gap": relative_gap(objective, bound, self.sense)}
        self.progress.update(standing.iterations, {**known, **standing.figures})

    @property
    def remaining_s(self) -> float:
        """Seconds left, infinity where no rule knows a clock."""
        return self.stop.remaining_s(self.clock.elapsed_s)

    def part(self, *further: StoppingCriterion, share: float = 1.0) -> "Monitor":
        """Return a monitor for a part of the run, with its own reason, further rules, and a share of the time left.

        The part's iterations are its own, so a limit of iterations that ends it doesn't end the whole.
        """
        rules = [self.stop, *further]
        if share < 1.0 and self.remaining_s < float("inf"):
            rules.append(TimeReserve(self.stop, (1.0 - share) * self.remaining_s))
        return Monitor(AnyOf(*rules), self.progress, sense=self.sense, clock=self.clock, unit=self.unit)

    def in_unit(self, unit: float) -> "Monitor":
        """Return a monitor for the whole run in another unit of objectives and bounds."""
        return Monitor(self.stop, self.progress, sense=self.sense, clock=self.clock, unit=unit * self.unit)

    def _unscaled(self, number: float | None) -> float | None:
        return None if number is None else number * self.unit


class AbstractIteration(ABC, Generic[ResultT]):
    """An iterative method, run by `run_iteration`. Its attributes are its state, so that it can be resumed."""

    has_begun = False

    def init(self) -> None:
        """Do what precedes the first step; nothing by default."""

    @abstractmethod
    def is_done(self) -> bool:
        """Tell whether the method has come to its natural end."""

    @abstractmethod
    def step(self) -> None:
        """Go on by one step, after which the method may be stopped."""

    @abstractmethod
    def standing(self) -> SolverState:
        """Return where the method stands."""

    @abstractmethod
    def finish(self, reason: Termination | None) -> ResultT:
        """Return the result; `reason` tells why the method was stopped, None at its natural end."""


def run_iteration(
    method: AbstractIteration[ResultT], monitor: Monitor, *, task: str | None = None, total: float | None = None
) -> ResultT:
    """Run a method until it is done or its monitor says that it is over; call again to resume it.

    Parameters
    ----------
    method
        What is run. It is asked whether it is done before the stopping rule is asked: a natural end that
        coincides with a limit counts as one.
    monitor
        Asked before each step, told after each.
    task, total
        Name and number of steps for the progress; without a name nothing is started or shown there.
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
    """What a solver found; `AbstractSolver` makes a `Solution` of it.

    Parameters
    ----------
    decision, objective
        The best decision and its value; None without one.
    bound, proof
        What is proven of every decision's value, and by what.
    statement, conditions
        Of the certificate, where the objective doesn't attain the bound, with ``{bound}`` in the bound's place; no
        statement, no certificate.
    optimal_statement
        Of the certificate where it does; the same by default.
    tol
        Relative gap at which the objective counts as attaining the bound; None if that is never claimed.
    is_optimal
        Given where the solver's own rule tells, instead of `tol`.
    termination
        Why the run ended: by default the monitor's reason, `completed` without one. An optimal decision's is
        `optimal` whatever is given.
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

    def attains_bound(self, sense: Sense) -> bool:
        """Tell whether the decision is proven optimal."""
        if self.is_optimal is not None:
            return self.is_optimal
        gap = relative_gap(self.objective, self.bound, sense)
        return self.tol is not None and gap is not None and gap <= self.tol

    def certificate(self, sense: Sense) -> Certificate | None:
        """Return what is proven."""
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
    """Raise NotAllowedError unless a solver's answer is one."""
    if not isinstance(outcome, Outcome):
        raise NotAllowedError(f"solver {who_answers(solver, 'run')} must return an Outcome, got {outcome!r}")
    for name in ("objective", "bound"):
        value = getattr(outcome, name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, Real)):
            raise NotAllowedError(
                f"solver {who_answers(solver, 'run')}: {name} must be a number or None, got {value!r}"
            )


class AbstractSolver(ABC, Generic[InstanceT, OptionsT]):
    """A solver by its `run`; every instance of its problem is supported unless `supports` says otherwise."""

    name: str
    problem: str
    summary: ClassVar[str]
    options_type: ClassVar[type[Any]]
    sense: ClassVar[Sense] = Sense.MAXIMISE
    is_reproducible: ClassVar[bool] = True
    """Whether the same seed gives the same decision, bound and work; if not, it does so for the objective of an optimum."""

    @abstractmethod
    def run(self, instance: InstanceT, options: OptionsT, monitor: Monitor, seed: int) -> Outcome:
        """Solve the instance; work is timed by phases of the monitor's clock."""

    def _run(self, instance: InstanceT, options: OptionsT, monitor: Monitor, seed: int) -> Outcome:
        """Run; a solver that runs on another form of the instance says so here."""
        return self.run(instance, options, monitor, seed)

    def warm_up(self, instance: InstanceT, options: OptionsT) -> None:
        """Compile the loops that a run needs, once a process; it is timed as ``compile``. By default there are none."""
        del instance, options

    def foresight(self, options: OptionsT) -> str:
        """Return what of the future a rule that decides job by job is told beforehand; nothing by default."""
        del options
        return ""

    def supports(self, instance: InstanceT) -> Support:
        """Tell whether the instance can be treated, and if not, why."""
        del instance
        return SUPPORTED

    def is_default_for(self, instance: InstanceT) -> bool:
        """Tell whether `optim solve` takes this solver for the instance where none is named; at most one does."""
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
        """Run, and return what was found with the statuses that follow from it."""
        monitor = Monitor(stop, progress, sense=self.sense)
        with monitor.clock.phase("compile"):
            self.warm_up(instance, options)
        outcome = self._run(instance, options, monitor, seed)
        _check(self, outcome)
        return self.solution(instance, outcome, options=options, seed=seed, monitor=monitor)

    def solution(
        self, instance: InstanceT, outcome: Outcome, *, options: OptionsT, seed: int, monitor: Monitor
    ) -> Solution:
        """Return an outcome as a solution."""
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

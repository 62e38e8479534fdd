"""A piece of work of a benchmark: something that can be named, run, and told apart from all others."""

import hashlib
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import msgspec

from optim.benchmarks.meter import Meter
from optim.benchmarks.record import PHASES, Record, outcome, plain, provenance
from optim.core.errors import OptimError
from optim.core.execution import SentOnce
from optim.core.options import build_options, options_as_dict
from optim.core.own_code import is_own, own_digest
from optim.core.problem import AbstractProblem
from optim.core.progress import Progress
from optim.core.provenance import package_versions
from optim.core.solution import Solution
from optim.core.status import Termination
from optim.core.stopping import StoppingCriterion
from optim.models.catalogue import problem_of
from optim.models.files import verify
from optim.solvers.solve import solve, solver_named

LOAD_COUNTS = ("tight_rows", "refused_jobs")
"""Counts by which a solver without a decision tells how loaded its relaxation is, as shares."""


class AbstractSubject(Protocol):
    """What work is about, with what records say of it."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def topic(self) -> str:
        """The problem that it is an instance of, or what a study is about."""
        ...

    @property
    def digest(self) -> str:
        """Digest of all that it consists of: equal digests mean equal data."""
        ...

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Figures of it."""
        ...


class Subject(SentOnce):
    """An instance under test with what records say about it, computed once."""

    def __init__(self, instance: Any) -> None:
        self.instance = instance
        self.problem = problem_of(instance)
        self.name: str = instance.name
        self.topic = self.problem.name

    @cached_property
    def digest(self) -> str:
        """Digest of the instance's document: equal digests mean equal data."""
        return hashlib.sha256(self.problem.write_instance(self.instance)).hexdigest()[:16]

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """Figures of the instance."""
        return plain(self.problem.describe(self.instance))


@dataclass(frozen=True, kw_only=True)
class AbstractWork(ABC):
    """One future record.

    A suite that solves instances uses `SolveWork`, one that measures something else derives from
    `optim.benchmarks.study.AbstractStudy`: at the top of a module, so that processes can receive it.

    Parameters
    ----------
    suite
        Name of the suite.
    subject
        The instance, or what else is studied.
    solver
        What is measured; for `SolveWork` a registered solver.
    seed
        Same seed, same answer.
    time_limit_s
        Wall-clock limit of the solve in seconds, None for none.
    options
        Options by name; those not given have their defaults.
    labels
        The suite's own marks of the row. Rows are compared with stored ones by suite, instance,
        solver, seed and labels, so what a suite varies beyond these belongs here.
    """

    suite: str | None
    subject: AbstractSubject
    solver: str
    seed: int = 0
    time_limit_s: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, Any] = field(default_factory=dict)

    @abstractmethod
    def run(self, stop: StoppingCriterion, progress: Progress) -> Record:
        """Do the work; bad outcomes are records too. What this raises becomes a record's error."""

    def resolved_options(self) -> dict[str, Any]:
        """Return all options as plain values, defaults included."""
        return plain(self.options)

    @cached_property
    def key(self) -> str:
        """Digest of what is asked for; code and versions are no part of it, but for a solver of one's own file."""
        asked = [
            self.suite,
            self.subject.digest,
            self.subject.name,
            self.solver,
            self.resolved_options(),
            self.seed,
            self.time_limit_s,
            plain(self.labels),
            *([own_digest(self.solver.rpartition(":")[0])] if is_own(self.solver) else []),
        ]
        return hashlib.sha256(msgspec.json.encode(asked, order="sorted")).hexdigest()[:16]

    def identity(self) -> dict[str, Any]:
        """Return the fields of the record that say what was asked for."""
        return {
            "key": self.key,
            "suite": self.suite,
            "problem": self.subject.topic,
            "instance": self.subject.name,
            "instance_digest": self.subject.digest,
            "solver": self.solver,
            "seed": self.seed,
            "time_limit_s": self.time_limit_s,
            "options": self.resolved_options(),
            "labels": plain(self.labels),
            "parameters": dict(self.subject.parameters),
        }

    def failed(self, error: str) -> Record:
        """Return the record of work that raised, or whose process died."""
        return Record(
            **self.identity(),
            **provenance(),
            versions=dict(package_versions()),
            termination=Termination.NUMERICAL_ERROR.value,
            seconds=dict.fromkeys(PHASES, 0.0),
            verified=False,
            message=error,
            error=error,
        )


@dataclass(frozen=True, kw_only=True)
class SolveWork(AbstractWork):
    """Solve an instance with a solver, and verify the answer independently.

    Raises
    ------
    InvalidOptionError
        On construction, if the solver or an option is unknown or out of range.
    """

    subject: Subject

    def __post_init__(self) -> None:
        self.resolved_options()

    def resolved_options(self) -> dict[str, Any]:
        """Return the solver's complete options as plain values."""
        chosen = solver_named(self.subject.problem.name, self.solver)
        return plain(options_as_dict(build_options(chosen.options_type, self.options)))

    def run(self, stop: StoppingCriterion, progress: Progress) -> Record:
        """Solve and verify."""
        return self.attempt(stop, progress)[1]

    def attempt(self, stop: StoppingCriterion, progress: Progress) -> tuple[Solution, Record]:
        """Solve and verify; return the solution with its record, and let exceptions through."""
        instance, problem = self.subject.instance, self.subject.problem
        with Meter() as meter:
            solution = solve(
                instance,
                self.solver,
                options=self.options,
                time_limit_s=self.time_limit_s,
                stop=stop,
                seed=self.seed,
                progress=progress,
            )
        begun = time.perf_counter()
        verification = verify(instance, solution)
        verify_s = time.perf_counter() - begun
        came_out = outcome(solution, verification, verify_s)
        load = _load(problem, instance, solution)
        return solution, Record(**self.identity(), **came_out, **provenance(), **meter.figures, load=load)


def _load(problem: AbstractProblem[Any], instance: Any, solution: Solution) -> dict[str, Any] | None:
    """Return how loaded the instance is: measured on a decision, or as a relaxation's solver counts it."""
    if solution.decision is not None:
        return plain(problem.decision_figures(instance, solution.decision))
    counted = {name: solution.stats.counts[name] for name in LOAD_COUNTS if name in solution.stats.counts}
    return plain(counted) if counted else None


def describe_error(error: Exception) -> str:
    """Return an exception as one line; for those not raised on purpose, with the place it came from."""
    if isinstance(error, OptimError):
        return str(error)
    place = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).split())
    file = place.filename.rpartition("/")[2]
    return f"{type(error).__name__}: {text} ({place.name}, line {place.lineno} of {file})"

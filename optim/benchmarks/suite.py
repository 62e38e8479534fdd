"""Suites: a specification turns a request into a list of work; suites are registered by name."""

import hashlib
import pkgutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import msgspec

from optim.benchmarks import suites
from optim.benchmarks.measuring import Meter
from optim.benchmarks.records import PHASES, Record, outcome, plain, provenance
from optim.core.errors import InvalidOptionError, unknown_name
from optim.core.optional import find_plugin, load_plugin, note_registration
from optim.core.options import build_options, options_as_dict
from optim.core.progress import Progress
from optim.core.provenance import package_versions
from optim.core.registry import AbstractProblem, Registry
from optim.core.solution import Solution, Termination
from optim.core.stopping import StoppingCriterion
from optim.core.user_code import is_file_reference, user_code_digest
from optim.execution import Broadcast
from optim.models.catalogue import problem_of
from optim.models.files import verify
from optim.report.plots import Figure
from optim.solvers.solve import solve, solver_named
from optim.workloads.instances import InstanceSource, profiled

LOAD_COUNTS = ("tight_rows", "rejected_jobs")
"""Counters with which a solver that returns no decision reports the load of its relaxation."""


class AbstractSubject(Protocol):
    """The subject of a piece of work, with the fields that its records show."""

    @property
    def name(self) -> str:
        """Name of the subject."""
        ...

    @property
    def topic(self) -> str:
        """The problem of an instance, or the topic of a study."""
        ...

    @property
    def digest(self) -> str:
        """Digest of the data: equal digests mean equal data."""
        ...

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Summary statistics of the subject."""
        ...


class Subject(Broadcast):
    """An instance under test, with digest and statistics, computed once."""

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
        """Summary statistics of the instance."""
        return plain(self.problem.describe(self.instance))


@dataclass(frozen=True, kw_only=True)
class AbstractWork(ABC):
    """A piece of work that makes one record.

    A suite that solves instances uses `SolveWork`. A suite that measures something else derives a class from
    `optim.benchmarks.study.AbstractStudy`, at the top of a module, so that processes can receive its objects.

    Parameters
    ----------
    suite
        Name of the suite.
    subject
        The instance, or the subject of a study.
    solver
        Name of the method under test; for `SolveWork` a registered solver.
    seed
        Random seed.
    time_limit_s
        Wall-clock limit of the solve in seconds, or None.
    options
        Options by name; others have their defaults.
    labels
        Other parameters that the suite varies. Together with suite, instance, solver and seed they identify the record in
        comparisons.
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
        """Do the work and return its record; the runner turns an exception into the record's error."""

    def resolved_options(self) -> dict[str, Any]:
        """Return all options as plain values, defaults included."""
        return plain(self.options)

    @cached_property
    def key(self) -> str:
        """Digest of the request, without code and versions, except for the code of a user's file."""
        asked = [
            self.suite,
            self.subject.digest,
            self.subject.name,
            self.solver,
            self.resolved_options(),
            self.seed,
            self.time_limit_s,
            plain(self.labels),
            *(user_code_digest(name.rpartition(":")[0]) for name in self._own_files()),
        ]
        return hashlib.sha256(msgspec.json.encode(asked, order="sorted")).hexdigest()[:16]

    def _own_files(self) -> list[str]:
        """Return the references to classes in users' files, ``./file.py:Class``, among the solver and the options."""
        texts = [
            self.solver,
            *(value for _, value in sorted(self.resolved_options().items()) if isinstance(value, str)),
        ]
        return [text for text in texts if is_file_reference(text)]

    def identity(self) -> dict[str, Any]:
        """Return the fields of the record that state the request."""
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
    """Solve an instance with a solver, and verify the solution independently.

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
        """Solve and verify; return the solution with its record. Exceptions propagate."""
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
        result = outcome(solution, verification, verify_s)
        load = _load(problem, instance, solution)
        return solution, Record(**self.identity(), **result, **provenance(), **meter.figures, load=load)


def _load(problem: AbstractProblem[Any], instance: Any, solution: Solution) -> dict[str, Any] | None:
    """Return the load of the instance under the decision, or as counted by the solver of a relaxation."""
    if solution.decision is not None:
        return plain(problem.decision_figures(instance, solution.decision))
    counted = {name: solution.stats.counts[name] for name in LOAD_COUNTS if name in solution.stats.counts}
    return plain(counted) if counted else None


SMALL = "small"
"""The size that every suite has; all suites together take under three minutes at this size on two cores."""

FULL = "full"
"""The size at which the published results were measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRequest:
    """The user's request to a suite; None stands for the suite's choice.

    Parameters
    ----------
    size
        One of the suite's sizes.
    sources
        Instances to use in place of those of the suite.
    profile
        Job profiles, a file or ``published``, from which suites generate instances if `sources` is None.
    solvers
        Names of solvers in order.
    seeds
        Seeds; each piece of work runs once per seed.
    time_limit_s
        Wall-clock limit of one solve in seconds.
    options
        Solver options by name; a name ``solver.option`` applies only to that solver.
    histories
        Number of instances of earlier days for solvers that learn, per instance: shipped ones, or generated ones if none
        are shipped. Default: shipped ones only.
    folder
        Folder in which generated instances of earlier days are stored.
    """

    size: str = SMALL
    sources: tuple[InstanceSource, ...] | None = None
    profile: str | None = None
    solvers: tuple[str, ...] | None = None
    seeds: tuple[int, ...] = (0,)
    time_limit_s: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    histories: int | None = None
    folder: Path = Path("results")

    def for_problem(self, problem: str) -> "BenchRequest":
        """Return the request with the instances that a suite of this problem generates from the profiles, if any."""
        if self.profile is None or self.sources is not None:
            return self
        return replace(self, sources=(profiled(self.profile, problem),))


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A skipped pair of solver and instance, with the reason."""

    suite: str
    instance: str
    solver: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchSpec:
    """A suite of benchmarks.

    Parameters
    ----------
    name
        The name on the command line; the suite named after a problem is its default suite.
    problem
        The problem of its instances.
    summary
        Description in one line.
    build
        A function from a request to work and skipped pairs.
    sizes
        The available sizes, `SMALL` first.
    takes_instances
        Whether it accepts the user's instances.
    columns
        Labels and parameters with a column in the table.
    figures
        A function that draws the plots of the suite from its records.
    """

    name: str
    problem: str
    summary: str
    build: Callable[[BenchRequest], Iterable[AbstractWork | Skipped]]
    sizes: tuple[str, ...] = (SMALL,)
    takes_instances: bool = False
    columns: tuple[str, ...] = ()
    figures: Callable[[Sequence[Record]], Sequence[Figure]] | None = None


ENTRY_POINT_GROUP = "optim.suites"


class SuiteRegistry(Registry[str, BenchSpec]):
    """A table of suites by name."""

    def __init__(self) -> None:
        super().__init__(ENTRY_POINT_GROUP)

    def register(self, spec: BenchSpec) -> BenchSpec:
        """Add a suite; called once, at the end of the suite's file.

        Raises
        ------
        NotAllowedError
            If the name is taken.
        """
        label = f"suite {spec.name!r}"
        self._check_free(spec.name, label)
        self._items[spec.name] = spec
        note_registration(label)
        return spec

    def get(self, name: str) -> BenchSpec:
        """Return a suite by name.

        Raises
        ------
        InvalidOptionError
            If the name is unknown; the message lists the suites.
        """
        found = self.find(name)
        if found is None:
            raise unknown_name("suite", name, sorted(self._items))
        return found

    def find(self, name: str) -> BenchSpec | None:
        """Return a suite by name, None if it is unknown; import all suites only if no module of that name registers it."""
        if name not in self._items and not self._is_complete:
            self._import_one(name)
        if name not in self._items:
            self._complete()
        return self._items.get(name)

    def _import_one(self, name: str) -> None:
        if any(module.name == name for module in pkgutil.iter_modules(suites.__path__)):
            import_module(f"{suites.__name__}.{name}")
        elif (entry_point := find_plugin(ENTRY_POINT_GROUP, name)) is not None:
            with suppress(InvalidOptionError):  # `_complete` warns about it
                load_plugin(entry_point)

    def _import_shipped(self) -> None:
        for module in pkgutil.iter_modules(suites.__path__):
            import_module(f"{suites.__name__}.{module.name}")


SUITES = SuiteRegistry()
"""The registry of this process; running a suite does not change it."""

register_suite = SUITES.register


def choose_suites(
    words: Sequence[str], names: Sequence[str] = (), *, instances_of: str | None = None, is_profiled: bool = False
) -> tuple[BenchSpec, ...]:
    """Return the suites selected on a command line, without duplicates.

    Parameters
    ----------
    words
        Suites or problems; the name of a problem selects its default suite. If `names` is given, it selects the suites, and
        each word must be one of these suites or the problem of one of them.
    names
        Suites selected by option.
    instances_of
        Problem of the user's instances, if any; the default is then all suites of this problem that accept instances.
    is_profiled
        Whether instances are generated from job profiles; the default is then the default suite of each problem.

    Raises
    ------
    InvalidOptionError
        If a name is unknown, or a suite does not belong to the named problem.
    """
    if not words and not names and is_profiled:
        return tuple(spec for spec in SUITES if spec.takes_instances and spec.name == spec.problem)
    if not words and not names:
        return tuple(
            spec for spec in SUITES if instances_of is None or (spec.takes_instances and spec.problem == instances_of)
        )
    if not names:
        return tuple(dict.fromkeys(SUITES.get(word) for word in words))
    chosen = tuple(dict.fromkeys(SUITES.get(name) for name in names))
    for word in words:
        if not any(word in (spec.problem, spec.name) for spec in chosen):
            raise InvalidOptionError(f"suite {chosen[0].name!r} does not belong to {word!r}; omit one of them")
    return chosen

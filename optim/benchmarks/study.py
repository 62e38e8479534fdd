"""Studies: work that measures something and solves no instance.

The record of a study has no objective, bound or gap, which only checked decisions have. A record's `findings` are
reproducible on every machine. A record's `measures` depend on the machine and its clock, or are too detailed to be compared.
"""

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from optim.benchmarks.measuring import Meter
from optim.benchmarks.records import PHASES, SHOWN_VIOLATIONS, Record, plain, provenance
from optim.benchmarks.suite import (
    FULL,
    SMALL,
    AbstractSubject,
    AbstractWork,
    BenchRequest,
    BenchSpec,
    Skipped,
    register_suite,
)
from optim.core.errors import InvalidOptionError
from optim.core.options import build_options, options_as_dict
from optim.core.progress import Progress
from optim.core.provenance import package_versions
from optim.core.solution import Termination
from optim.core.stopping import AnyOf, SolveState, StoppingCriterion, TimeLimit
from optim.report.plots import Figure


@dataclass(frozen=True, kw_only=True)
class StudySubject:
    """The subject of a study that is not an instance of a problem.

    Parameters
    ----------
    name
        Name of the subject.
    topic
        Topic of the study.
    drawn_from
        Values that determine the subject; equal values (by their text) mean equal work.
    """

    name: str
    topic: str
    drawn_from: Any = None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def digest(self) -> str:
        """Digest of the values that determine the subject."""
        return hashlib.sha256(repr((self.name, self.drawn_from)).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one piece of a study.

    Parameters
    ----------
    findings
        Reproducible numbers and names.
    measures
        All other measurements.
    parameters
        Further statistics of the subject.
    seconds
        Wall-clock seconds by phase; phases without an entry took none.
    problems
        Violations of the study's checks; empty if all hold.
    iterations
        Number of iterations.
    is_whole
        Whether the study finished; otherwise its stopping rule ended it.
    """

    findings: Mapping[str, Any] = field(default_factory=dict)
    measures: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    problems: Sequence[str] = ()
    iterations: int = 0
    is_whole: bool = True


@dataclass(frozen=True, kw_only=True)
class AbstractStudy(AbstractWork):
    """A piece of a study; `solver` names the method under study."""

    options_type: ClassVar[type]
    """Options of the study, a dataclass that validates itself."""

    is_stoppable: ClassVar[bool] = True
    """Whether `measure` calls its stopping rule; other studies accept no time limit."""

    @abstractmethod
    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Do the work."""

    @cached_property
    def chosen(self) -> Any:
        """The study's complete options."""
        return build_options(self.options_type, self.options)

    def resolved_options(self) -> dict[str, Any]:
        """Return the study's complete options as plain values."""
        return plain(options_as_dict(self.chosen))

    def run(self, stop: StoppingCriterion, progress: Progress) -> Record:
        """Measure, and return the record."""
        rule = stop if self.time_limit_s is None else AnyOf(stop, TimeLimit(self.time_limit_s))
        with Meter() as meter:
            result = self.measure(rule, progress)
        reason = rule(SolveState(elapsed_s=meter.wall_s, iterations=result.iterations))
        if result.is_whole and reason is not Termination.INTERRUPTED:
            reason = None
        return Record(
            **self.identity() | {"parameters": {**self.subject.parameters, **plain(result.parameters)}},
            **provenance(),
            **meter.figures,
            versions=dict(package_versions()),
            termination=(reason or Termination.COMPLETED).value,
            findings=plain(result.findings),
            measures=plain(result.measures),
            seconds={**dict.fromkeys(PHASES, 0.0), **result.seconds},
            verified=not result.problems,
            violations=list(result.problems[:SHOWN_VIOLATIONS]),
            iterations=result.iterations,
        )


Subjects = Callable[[Any, int], Iterable[tuple[AbstractSubject, Mapping[str, Any]]]]
"""Function from a study's options and a seed to the subjects, with labels of their rows."""


def register_study(
    name: str,
    problem: str,
    summary: str,
    *,
    kind: type[AbstractStudy],
    sizes: Mapping[str, Any],
    subjects: Subjects,
    ways: Sequence[str],
    small_ways: Sequence[str] | None = None,
    others: str | None = None,
    columns: tuple[str, ...] = (),
    figures: Callable[[Sequence[Record]], Sequence[Figure]] | None = None,
) -> BenchSpec:
    """Register the suite of a study, which measures each subject of each seed with each method.

    Parameters
    ----------
    name, problem, summary, columns, figures
        As in `BenchSpec`.
    kind, sizes
        The class of the study, and its options at each size.
    subjects
        A function that yields the subjects.
    ways, small_ways
        The methods, which take the place of solvers: all, and those of the small size (default: all).
    others
        The reason for skipping solvers with other names; None if such a name is an error.
    """
    chosen_small = ways if small_ways is None else small_ways

    def build(request: BenchRequest) -> Iterator[AbstractWork | Skipped]:
        usual = options_as_dict(kind.options_type())
        of_size = {name: value for name, value in options_as_dict(sizes[request.size]).items() if value != usual[name]}
        values = {**of_size, **request.options}
        options: Any = build_options(kind.options_type, values)
        for way in request.solvers or ():
            if way not in ways and others is None:
                raise InvalidOptionError(f"suite {name!r} has no method {way!r}; there are: {', '.join(ways)}")
        chosen = request.solvers or (chosen_small if request.size == SMALL else ways)
        for seed in request.seeds:
            for subject, labels in subjects(options, seed):
                for way in chosen:
                    if way not in ways:
                        yield Skipped(suite=name, instance=subject.name, solver=way, reason=others or "")
                        continue
                    yield kind(
                        suite=name,
                        subject=subject,
                        solver=way,
                        seed=seed,
                        time_limit_s=request.time_limit_s if kind.is_stoppable else None,
                        options=values,
                        labels=labels,
                    )

    return register_suite(
        BenchSpec(
            name=name,
            problem=problem,
            summary=summary,
            build=build,
            sizes=(SMALL, FULL),
            columns=columns,
            figures=figures,
        )
    )

"""Studies: work that measures something and solves no instance, and whose records say just that.

A study's record has no objective, bound or gap: these belong to decisions that a checker has seen. What a study found stands
under `findings`, which must come out again wherever it is run, and under `measures`, which depend on the machine and its clock
or describe more than can be compared.
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
    """What a study is about, where that is no instance of a problem.

    Parameters
    ----------
    name, topic
        Its name, and what studies of it are about.
    drawn_from
        What it follows from: equal values (by their text) mean equal work.
    """

    name: str
    topic: str
    drawn_from: Any = None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def digest(self) -> str:
        """Digest of what it follows from."""
        return hashlib.sha256(repr((self.name, self.drawn_from)).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What came of a study.

    Parameters
    ----------
    findings
        Numbers and names that must come out again.
    measures
        All else that was measured.
    parameters
        Figures of the subject that are known only where it is studied.
    seconds
        Wall-clock seconds by phase; those not named took none.
    problems
        What contradicts the study's own checks; none if all hold.
    iterations
        Work done.
    is_whole
        Whether all was done that was asked for; otherwise it was told to stop.
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
    """A piece of a study; `solver` names the way that is studied."""

    options_type: ClassVar[type]
    """Options of the study, a dataclass that validates itself."""

    is_stoppable: ClassVar[bool] = True
    """Whether `measure` asks its stopping rule; other studies take no time limit."""

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
        """Measure, and say what was found."""
        rule = stop if self.time_limit_s is None else AnyOf(stop, TimeLimit(self.time_limit_s))
        with Meter() as meter:
            found = self.measure(rule, progress)
        reason = rule(SolveState(elapsed_s=meter.wall_s, iterations=found.iterations))
        if found.is_whole and reason is not Termination.INTERRUPTED:
            reason = None
        return Record(
            **self.identity() | {"parameters": {**self.subject.parameters, **plain(found.parameters)}},
            **provenance(),
            **meter.figures,
            versions=dict(package_versions()),
            termination=(reason or Termination.COMPLETED).value,
            findings=plain(found.findings),
            measures=plain(found.measures),
            seconds={**dict.fromkeys(PHASES, 0.0), **found.seconds},
            verified=not found.problems,
            violations=list(found.problems[:SHOWN_VIOLATIONS]),
            iterations=found.iterations,
        )


Subjects = Callable[[Any, int], Iterable[tuple[AbstractSubject, Mapping[str, Any]]]]
"""From a study's options and a seed: what is studied, with the labels of its rows."""


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
    """Register the suite of a study: each subject of each seed in each way.

    Parameters
    ----------
    name, problem, summary, columns, figures
        As those of a `BenchSpec`.
    kind, sizes
        The study's work, and its options at each size.
    subjects
        What is studied.
    ways, small_ways
        What may stand for a solver, and what does at small size unless asked for.
    others
        Why solvers of other names are left out; None if asking for one is an error.
    """
    chosen_small = ways if small_ways is None else small_ways

    def build(request: BenchRequest) -> Iterator[AbstractWork | Skipped]:
        usual = options_as_dict(kind.options_type())
        own = {name: value for name, value in options_as_dict(sizes[request.size]).items() if value != usual[name]}
        given = {**own, **request.options}
        options: Any = build_options(kind.options_type, given)
        for way in request.solvers or ():
            if way not in ways and others is None:
                raise InvalidOptionError(f"suite {name!r} doesn't know {way!r}; there are: {', '.join(ways)}")
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
                        options=given,
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

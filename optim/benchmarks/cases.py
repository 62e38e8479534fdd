"""Suites that compare the solvers of a problem: cases of instances, and options for several solvers."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optim.benchmarks.suite import (
    FULL,
    SMALL,
    AbstractWork,
    BenchRequest,
    BenchSpec,
    Skipped,
    SolveWork,
    Subject,
    register_suite,
)
from optim.core.errors import InvalidOptionError, unknown_name
from optim.core.user_code import is_file_reference
from optim.solvers.solve import solver_named, solvers_of
from optim.workloads.instances import GeneratedSource, InstanceSource


def options_for(problem: str, solvers: Sequence[str], settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the options of each solver.

    A plain name applies to every chosen solver with this option, and ``solver.name`` only to that solver. For a class of a
    user's file, ``Class.name`` is possible as well.

    Raises
    ------
    InvalidOptionError
        If no chosen solver has an option, or a named solver is not chosen.
    """
    known = {name: _option_names(problem, name) for name in solvers}
    result: dict[str, dict[str, Any]] = {name: {} for name in solvers}
    classes = {name.rpartition(":")[2]: name for name in solvers if is_file_reference(name)}
    for text, value in settings.items():
        owner, dot, option = text.rpartition(".")
        owner = owner if owner in known else classes.get(owner, owner)
        if dot and owner not in known:
            mine = next((f"; for the chosen solver, use {name}.{option}" for name in classes.values()), "")
            raise InvalidOptionError(
                f"option {text!r} is for solver {owner!r}, which is not chosen; add --solver {owner}{mine}"
            )
        takers = [owner] if dot else [name for name in solvers if option in known[name]]
        if not takers or option not in known[takers[0]]:
            raise unknown_name("option", option, sorted(frozenset().union(*known.values())), " (of the chosen solvers)")
        for name in takers:
            result[name][option] = value
    return result


def _option_names(problem: str, solver: str) -> frozenset[str]:
    options_type = solver_named(problem, solver).options_type
    return frozenset(field.name for field in dataclasses.fields(options_type))


GIVEN_LIMIT_S = 60.0
"""Default time limit in seconds on instances of the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An instance of a suite, with its solve options.

    Parameters
    ----------
    source
        The instance.
    label
        Label of the row, None if the instance's name suffices.
    time_limit_s
        Limit per solve in seconds.
    left_out
        Solvers that are skipped unless requested.
    options
        Default options by solver.
    """

    source: InstanceSource
    label: str | None = None
    time_limit_s: float = GIVEN_LIMIT_S
    left_out: frozenset[str] = frozenset()
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def given_case(source: InstanceSource) -> Case:
    """Return the case of an instance of the user."""
    return Case(source=source, label="given")


def generated_case(problem: str, generator_options: Any, label: str, limit_s: float, **fields: Any) -> Case:
    """Return a case of the problem's generator with the given options."""
    return Case(
        source=GeneratedSource(options=generator_options, problem=problem), label=label, time_limit_s=limit_s, **fields
    )


Further = Callable[[BenchRequest, Any, int, Sequence[str]], Mapping[str, Mapping[str, Any]]]
"""Function from request, instance, seed and chosen solvers to further options by solver for this instance."""


def nothing_further(
    request: BenchRequest, instance: Any, seed: int, solvers: Sequence[str]
) -> Mapping[str, Mapping[str, Any]]:
    """Return no options."""
    del request, instance, seed, solvers
    return {}


def register_solver_suite(
    problem: str,
    summary: str,
    small: Callable[[], Iterable[Case]],
    full: Callable[[], Iterable[Case]],
    given: Callable[[InstanceSource], Case] = given_case,
    columns: tuple[str, ...] = ("case",),
    further: Further = nothing_further,
    kind: type[SolveWork] = SolveWork,
) -> BenchSpec:
    """Register a problem's default suite: each case with each seed and solver, in the order of the cases."""

    def build(request: BenchRequest) -> Iterator[AbstractWork | Skipped]:
        if request.sources is not None:
            cases: Iterable[Case] = [given(source) for source in request.sources]
        else:
            cases = small() if request.size == SMALL else full()
        return solve_cases(problem, cases, request, further, kind)

    return register_suite(
        BenchSpec(
            name=problem,
            problem=problem,
            summary=summary,
            build=build,
            sizes=(SMALL, FULL),
            takes_instances=True,
            columns=columns,
        )
    )


def solve_cases(
    problem: str,
    cases: Iterable[Case],
    request: BenchRequest,
    further: Further = nothing_further,
    kind: type[SolveWork] = SolveWork,
) -> Iterator[AbstractWork | Skipped]:
    """Yield the work of cases.

    Raises
    ------
    InvalidOptionError
        If a solver or option is unknown.
    """
    names = request.solvers or tuple(solver.name for solver in solvers_of(problem))
    options = options_for(problem, names, request.options)
    for case in cases:
        for seed in request.seeds:
            subject = Subject(case.source.load(seed))
            further_options = further(request, subject.instance, seed, names)
            for name in names:
                if name in case.left_out and not request.solvers:
                    continue
                yield solve_or_skip(
                    kind,
                    suite=problem,
                    subject=subject,
                    solver=name,
                    seed=seed,
                    time_limit_s=case.time_limit_s if request.time_limit_s is None else request.time_limit_s,
                    options={**case.options.get(name, {}), **further_options.get(name, {}), **options[name]},
                    labels={} if case.label is None else {"case": case.label},
                )


def solve_or_skip(
    kind: type[SolveWork], *, suite: str, subject: Subject, solver: str, **fields: Any
) -> SolveWork | Skipped:
    """Return the work of a solver on an instance, or the reason why the solver does not support it."""
    support = solver_named(subject.problem.name, solver).supports(subject.instance)
    if not support:
        return Skipped(suite=suite, instance=subject.name, solver=solver, reason=support.reason)
    return kind(suite=suite, subject=subject, solver=solver, **fields)

"""Admission: every solver side by side on the reference instances, or on the user's own."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from optim.benchmarks.registry import register_suite
from optim.benchmarks.solver_options import options_for
from optim.benchmarks.sources import InstanceRequest, InstanceSource, NamedSource, ProfiledSource
from optim.benchmarks.spec import SMALL, BenchRequest, BenchSpec, Skipped
from optim.benchmarks.work import AbstractWork, SolveWork, Subject
from optim.solvers.solve import solver_named, solvers_of

PROBLEM = "admission"
FULL = "full"

EXACT_SOLVERS = frozenset({"branch-and-price", "compact-milp"})
"""Solvers whose trees are for tiny and small instances: left out of larger ones unless asked for."""

GIVEN_LIMIT_S = 60.0
"""Time limit on the user's own instances, unless given."""

PROFILED_LIMIT_S = 15.0
"""Seconds for each solve of an instance drawn from a profile, of which all solvers are to be seen side by side."""


BRIEF: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "column-generation": {"tol": 1e-3},
        "dorm": {"relative_gap": 0.1, "most_waiting": 5},
        "price-and-branch": {"lp_tol": 1e-2, "max_columns": 500},
        "search": {"lp_tol": 1e-2, "cut_rounds": 0, "num_moves": 5_000},
    }
)
"""Options with which solvers end in seconds on all but large instances, by themselves: so rows can be compared."""

TINY: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {"search": {"num_moves": 5_000}, "branch-and-price": {"max_nodes": 10}}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An instance of the suite, and how it is solved.

    Parameters
    ----------
    source
        The instance.
    time_limit_s
        Limit of one solve in seconds.
    left_out
        Solvers that are left out unless asked for.
    options
        Options by solver, unless given.
    """

    source: InstanceSource
    time_limit_s: float
    left_out: frozenset[str] = frozenset()
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def _small() -> tuple[Case, ...]:
    """Return what all solvers together solve in a minute; the limits are for machines far slower than usual."""
    tiny = [NamedSource(f"tiny-{number}") for number in range(3)]
    generated = InstanceRequest(jobs=40, slots=30, worker_servers=6, ps_servers=6).sources() or ()
    return (
        *(Case(source=source, time_limit_s=10.0, options=TINY) for source in tiny),
        Case(source=NamedSource("small-0"), time_limit_s=10.0, options=TINY),
        *(Case(source=source, time_limit_s=30.0, left_out=EXACT_SOLVERS, options=BRIEF) for source in generated),
        Case(source=NamedSource("medium-0"), time_limit_s=30.0, left_out=EXACT_SOLVERS, options=BRIEF),
    )


def _full() -> tuple[Case, ...]:
    """Return all reference instances at the limits of the published targets."""
    small = [f"{size}-{number}" for size in ("tiny", "small") for number in range(3)]
    large = [f"{size}-{number}" for size in ("light", "medium", "heavy") for number in range(3)]
    return (
        *(Case(source=NamedSource(name), time_limit_s=300.0) for name in small),
        *(Case(source=NamedSource(name), time_limit_s=300.0, left_out=EXACT_SOLVERS) for name in large),
        Case(
            source=NamedSource("wide-0"),
            time_limit_s=300.0,
            left_out=EXACT_SOLVERS | {"search", "price-and-branch"},
        ),
        Case(source=NamedSource("large-0"), time_limit_s=600.0, left_out=EXACT_SOLVERS),
    )


def build(request: BenchRequest) -> Iterator[AbstractWork | Skipped]:
    """Yield each instance with each solver and seed, instances outermost.

    Raises
    ------
    InvalidOptionError
        If a solver or option is unknown.
    """
    names = request.solvers or tuple(solver.name for solver in solvers_of(PROBLEM))
    options = options_for(PROBLEM, names, request.options)
    for case in _cases(request):
        left_out = frozenset[str]() if request.solvers else case.left_out
        limit = case.time_limit_s if request.time_limit_s is None else request.time_limit_s
        for seed in request.seeds:
            subject = Subject(case.source.load(seed))
            merged = {name: {**case.options.get(name, {}), **options[name]} for name in names}
            yield from _pairs(subject, [name for name in names if name not in left_out], merged, seed, limit)


def _cases(request: BenchRequest) -> tuple[Case, ...]:
    if request.sources is not None:
        return tuple(Case(source=source, time_limit_s=_limit(source)) for source in request.sources)
    return _small() if request.size == SMALL else _full()


def _limit(source: InstanceSource) -> float:
    return PROFILED_LIMIT_S if isinstance(source, ProfiledSource) else GIVEN_LIMIT_S


def _pairs(
    subject: Subject, names: Iterable[str], options: Mapping[str, Mapping[str, Any]], seed: int, limit: float
) -> Iterator[AbstractWork | Skipped]:
    for name in names:
        support = solver_named(PROBLEM, name).supports(subject.instance)
        if support:
            yield SolveWork(
                suite=SPEC.name,
                subject=subject,
                solver=name,
                seed=seed,
                time_limit_s=limit,
                options=options[name],
            )
        else:
            yield Skipped(suite=SPEC.name, instance=subject.name, solver=name, reason=support.reason)


SPEC = register_suite(
    BenchSpec(
        name=PROBLEM,
        problem=PROBLEM,
        summary="every solver side by side on the reference instances, or on your own",
        build=build,
        sizes=(SMALL, FULL),
        takes_instances=True,
    )
)

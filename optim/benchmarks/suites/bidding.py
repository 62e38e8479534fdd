"""Bidding: every solver side by side on the reference instances and on generated ones, or on the user's own."""

from collections.abc import Iterator
from dataclasses import dataclass

from optim.benchmarks.registry import register_suite
from optim.benchmarks.solver_options import options_for
from optim.benchmarks.sources import GeneratedSource, InstanceSource, NamedSource
from optim.benchmarks.spec import SMALL, BenchRequest, BenchSpec, Skipped
from optim.benchmarks.work import AbstractWork, SolveWork, Subject
from optim.models.reference import reference_names
from optim.solvers.solve import solver_named, solvers_of
from optim.workloads.bidding.generator import GeneratorOptions

PROBLEM = "bidding"
FULL = "full"

GIVEN_LIMIT_S = 60.0
"""Time limit on the user's own instances, unless given."""

WINDOWS_TOL = 1e-4
"""Gap to prove where scenarios are weighed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An instance of the suite with what the row is about, the limit of one solve in seconds, and options."""

    source: InstanceSource
    label: str
    time_limit_s: float = 30.0
    left_out: frozenset[str] = frozenset()
    tol: float | None = None


def _generated(label: str, *, limit_s: float, left_out: tuple[str, ...], **options: object) -> Case:
    return Case(
        source=GeneratedSource(options=GeneratorOptions(**options), problem=PROBLEM),  # type: ignore[arg-type]
        label=label,
        time_limit_s=limit_s,
        left_out=frozenset(left_out),
        tol=WINDOWS_TOL if options.get("windows") else None,
    )


def _small() -> tuple[Case, ...]:
    """Return what all solvers together do in well under a minute."""
    slow = ("plain-milp", "frontier")
    tiny = [Case(source=NamedSource(name), label="tiny") for name in reference_names(PROBLEM) if "tiny" in name]
    hour = [Case(source=NamedSource(f"spot-hour-{k}"), label="one hour") for k in range(3)]
    windows = [
        Case(source=NamedSource(f"spot-windows-{k}"), label="16 windows", left_out=frozenset(slow), tol=WINDOWS_TOL)
        for k in range(2)
    ]
    return (
        Case(source=NamedSource("spot-vector"), label="tiny"),
        *tiny,
        *hour,
        Case(
            source=NamedSource("spot-market-0"),
            label="nested evictions",
            left_out=frozenset((*slow, "dinkelbach")),
        ),
        *windows,
    )


def _full() -> tuple[Case, ...]:
    """Return the sizes of the published targets."""
    slow = ("plain-milp", "frontier")
    return (
        *_small(),
        _generated("one hour, own evictions", limit_s=60.0, left_out=(), term="own"),
        _generated("one hour, any eviction", limit_s=60.0, left_out=slow, term="any"),
        _generated("one hour, nested evictions", limit_s=60.0, left_out=slow, term="market"),
        _generated("32 windows", limit_s=120.0, left_out=slow, windows=32),
        _generated("64 windows", limit_s=120.0, left_out=slow, windows=64),
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
            for name in names:
                if name in left_out:
                    continue
                support = solver_named(PROBLEM, name).supports(subject.instance)
                if not support:
                    yield Skipped(suite=SPEC.name, instance=subject.name, solver=name, reason=support.reason)
                    continue
                tol = {"tol": case.tol} if case.tol is not None and name in ("dinkelbach", "frontier") else {}
                yield SolveWork(
                    suite=SPEC.name,
                    subject=subject,
                    solver=name,
                    seed=seed,
                    time_limit_s=limit,
                    options={**tol, **options[name]},
                    labels={"case": case.label},
                )


def _cases(request: BenchRequest) -> tuple[Case, ...]:
    if request.sources is not None:
        return tuple(Case(source=source, label="given", time_limit_s=GIVEN_LIMIT_S) for source in request.sources)
    return _small() if request.size == SMALL else _full()


SPEC = register_suite(
    BenchSpec(
        name=PROBLEM,
        problem=PROBLEM,
        summary="the least cost per work of spot instances: exact, greedy, local search, risk-averse",
        build=build,
        sizes=(SMALL, FULL),
        takes_instances=True,
        columns=("case",),
    )
)

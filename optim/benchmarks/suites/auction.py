"""Auction: every solver side by side on the reference instances and on generated ones, or on the user's own."""

from collections.abc import Iterator
from dataclasses import dataclass

from optim.benchmarks.registry import register_suite
from optim.benchmarks.solver_options import options_for
from optim.benchmarks.sources import GeneratedSource, InstanceSource, NamedSource
from optim.benchmarks.spec import SMALL, BenchRequest, BenchSpec, Skipped
from optim.benchmarks.work import AbstractWork, SolveWork, Subject
from optim.models.reference import reference_names
from optim.solvers.solve import solver_named, solvers_of
from optim.workloads.auction.generator import GeneratorOptions

PROBLEM = "auction"
FULL = "full"

GIVEN_LIMIT_S = 60.0
"""Time limit on the user's own instances, unless given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An instance of the suite with what the row is about, and the limit of one solve in seconds."""

    source: InstanceSource
    label: str
    time_limit_s: float = 10.0
    left_out: frozenset[str] = frozenset()


def _generated(label: str, *, limit_s: float = 10.0, left_out: tuple[str, ...] = (), **options: object) -> Case:
    return Case(
        source=GeneratedSource(options=GeneratorOptions(**options), problem=PROBLEM),  # type: ignore[arg-type]
        label=label,
        time_limit_s=limit_s,
        left_out=frozenset(left_out),
    )


def _small() -> tuple[Case, ...]:
    """Return what all solvers together do in well under a minute."""
    references = [Case(source=NamedSource(name), label="reference") for name in reference_names(PROBLEM)]
    return (
        *references,
        _generated("16 bidders", num_apps=16),
        _generated("sizes that divide", sizes="dividing"),
        _generated("any sizes"),
        _generated("packing binds", gangs="any", widest="machine", network_share=1.0),
        _generated("a third held", held_share=0.3),
    )


def _full() -> tuple[Case, ...]:
    """Return the instances of the published targets."""
    large = {"num_apps": 512, "num_gpus": 4096, "num_machines": 512}
    slow = ("convex", "batched")
    return (
        *_small(),
        _generated("512: sizes that divide", limit_s=300.0, left_out=slow, sizes="dividing", **large),
        _generated("512: any sizes", limit_s=300.0, left_out=slow, **large),
        _generated("512: any gangs", limit_s=300.0, left_out=slow, gangs="any", network_share=1.0, **large),
        _generated(
            "a third held, 256",
            limit_s=300.0,
            left_out=slow,
            num_apps=256,
            num_gpus=1024,
            num_machines=128,
            held_share=0.3,
        ),
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
                yield SolveWork(
                    suite=SPEC.name,
                    subject=subject,
                    solver=name,
                    seed=seed,
                    time_limit_s=limit,
                    options=options[name],
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
        summary="every solver side by side, with payments, on clusters free and partly held",
        build=build,
        sizes=(SMALL, FULL),
        takes_instances=True,
        columns=("case",),
    )
)

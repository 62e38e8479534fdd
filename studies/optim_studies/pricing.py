"""Pricing: the best schedules of all jobs at once, by the compiled loop and by the batched kernel.

A row is one implementation on one instance at one vector of prices. Its bound is the Lagrangian bound that follows from
the payoffs, checked by the independent checker. Its milliseconds per call are the median, without compile time.
The loop also returns the schedules; the kernel returns payoffs and completion slots.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from optim.benchmarks.measuring import Meter, medians, race
from optim.benchmarks.records import Record, outcome, provenance
from optim.benchmarks.suite import FULL, SMALL, AbstractWork, BenchRequest, BenchSpec, Skipped, Subject, register_suite
from optim.core.arrays import FloatArray
from optim.core.driver import PhaseClock
from optim.core.errors import InvalidOptionError, UnsupportedProblemError
from optim.core.progress import Progress
from optim.core.provenance import package_versions
from optim.core.solution import Certificate, PointStatus, Sense, Solution, Stats, Termination
from optim.core.stopping import StoppingCriterion
from optim.models.files import verify
from optim.solvers.admission.packing.capacity_rows import CapacityRows
from optim.solvers.admission.packing.dual_points import DualPoint, bounded, search_scale
from optim.solvers.admission.pricing.classes import JobTables, Prices, price
from optim.workloads.instances import InstanceSource, NamedSource

LOOP, BATCHED = "loop", "batched"
WAYS = (LOOP, BATCHED)

REPEATS, ENOUGH_S = 9, 2.0
"""Number of calls for the median, after a first call that compiles, and total seconds after which no further call starts."""

SIZES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {SMALL: ("small-0", "medium-0"), FULL: ("small-0", "medium-0", "heavy-0", "large-0")}
)


@dataclass(frozen=True, kw_only=True)
class PricingWork(AbstractWork):
    """Price all jobs of an instance repeatedly; `solver` names the implementation."""

    subject: Subject

    def run(self, stop: StoppingCriterion, progress: Progress) -> Record:
        """Measure, and verify the bound from the payoffs."""
        clock = PhaseClock()
        with Meter() as meter:
            with clock.phase("build"):
                tables = JobTables.build(self.subject.instance)
                rows = CapacityRows.of(tables)
                row_prices = prices_of(tables, rows)
            call, device = _way(self.solver, tables, rows.prices(row_prices))
            with clock.phase("compile"):
                payoff = call()
            times = race({self.solver: call}, REPEATS, stop, progress, side_s=ENOUGH_S)
        median = 1e3 * medians(times)[self.solver]
        point = DualPoint(row_prices=row_prices, payoff=payoff, bound=float(payoff.sum() + row_prices @ rows.capacity))
        seconds = clock.seconds | {"solve": sum(wall for wall, _ in times[self.solver])}
        solution = self._claim(
            bounded(rows, point).certificate(Sense.MAXIMISE), point.bound, seconds, len(times[self.solver])
        )
        with clock.phase("verify"):
            verification = verify(self.subject.instance, solution)
        return Record(
            **self.identity(),
            **outcome(solution, verification, clock.seconds["verify"]),
            **provenance(),
            **meter.figures,
            measures={"device": device, "ms": round(median, 3), "us_a_job": 1e3 * median / max(tables.num_jobs, 1)},
        )

    def _claim(self, certificate: Certificate | None, bound: float, seconds: dict[str, float], calls: int) -> Solution:
        """Return the solution with the bound from the payoffs."""
        return Solution(
            problem=self.subject.topic,
            instance=self.subject.name,
            solver=self.solver,
            sense=Sense.MAXIMISE,
            termination=Termination.COMPLETED,
            primal=PointStatus.NONE,
            dual=PointStatus.FEASIBLE,
            bound=bound,
            certificate=certificate,
            seed=self.seed,
            versions=package_versions(),
            stats=Stats(seconds=seconds, iterations=calls),
        )


def prices_of(tables: JobTables, rows: CapacityRows) -> FloatArray:
    """Return prices proportional to 1 / capacity, scaled so that some jobs have a positive payoff and others don't."""
    even = np.divide(1.0, rows.capacity, out=np.zeros(rows.num_rows), where=rows.capacity > 0)
    return search_scale(tables, rows, even).row_prices


def _way(name: str, tables: JobTables, prices: Prices) -> tuple[Callable[[], FloatArray], str]:
    """Return a function that prices all jobs and returns their payoffs, and its device."""
    if name == LOOP:
        return lambda: price(tables, prices).payoff, "cpu"
    import jax

    from optim.solvers.admission.pricing.batched_pricing import price_batched

    return lambda: price_batched(tables, prices)[0], jax.devices()[0].device_kind


def build(request: BenchRequest) -> Iterator[AbstractWork | Skipped]:
    """Yield each instance with each implementation of pricing, for each seed.

    Raises
    ------
    InvalidOptionError
        If an implementation is unknown, or if options are given, since the suite has no options.
    """
    if request.options:
        raise InvalidOptionError(f"the pricing suite has no options, got {', '.join(request.options)}")
    for name in request.solvers or ():
        if name not in WAYS:
            raise InvalidOptionError(f"unknown implementation of pricing {name!r}; there are: {', '.join(WAYS)}")
    sources: tuple[InstanceSource, ...] = tuple(NamedSource(name) for name in SIZES[request.size])
    for source in request.sources or sources:
        for seed in request.seeds:
            subject = Subject(source.load(seed))
            for way in request.solvers or WAYS:
                reason = _refusal(subject) if way == BATCHED else None
                if reason is not None:
                    yield Skipped(suite=SPEC.name, instance=subject.name, solver=way, reason=reason)
                    continue
                yield PricingWork(
                    suite=SPEC.name, subject=subject, solver=way, seed=seed, time_limit_s=request.time_limit_s
                )


def _refusal(subject: Subject) -> str | None:
    from optim.solvers.admission.pricing.batched_pricing import check_supported

    try:
        check_supported(subject.instance)
    except UnsupportedProblemError as error:
        return str(error)
    return None


SPEC = register_suite(
    BenchSpec(
        name="pricing",
        problem="admission",
        summary="best schedules of all jobs at once: the compiled loop compared with the batched kernel",
        build=build,
        sizes=(SMALL, FULL),
        takes_instances=True,
        columns=("device", "ms"),
    )
)

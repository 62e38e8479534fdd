"""The study `fractional`: all payments of a divisible market in one JAX batch, beside N + 1 solves by Clarabel."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from optim.benchmarks.record import Record, plain, provenance
from optim.benchmarks.registry import register_suite
from optim.benchmarks.spec import SMALL, BenchRequest, BenchSpec, Skipped
from optim.benchmarks.work import AbstractWork, Subject, describe_error
from optim.core.errors import InvalidOptionError
from optim.core.options import build_options, options_as_dict
from optim.core.progress import Progress
from optim.core.status import PointStatus, Termination
from optim.core.stopping import StoppingCriterion
from optim.models.auction.cone import elapsed_programme, solve_cone
from optim.models.auction.market import FractionalMarket, market_of
from optim.solvers.auction.fractional.interior_point import solve_fractional
from optim.solvers.solve import package_versions
from optim.workloads.auction.generator import GeneratorOptions, generate

PROBLEM = "auction"
FULL = "full"
SOLVER = "batched"

AGREEMENT = 1e-3
"""Largest difference of a share c from Clarabel's that is accepted."""

REPEATS = 3
"""Runs of the compiled batch, of which the fastest counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FractionalOptions:
    """Sizes of the study.

    Parameters
    ----------
    apps, machines
        Apps, and machines of eight GPUs, each of them a good of its own: every app has its own speed there.
    compared
        How many of the problems without an app Clarabel solves, 0 for all; its seconds are scaled up to all.
    tol
        Gap to which the batch closes each problem.
    """

    apps: int = 64
    machines: int = 32
    compared: int = 8
    tol: float = 1e-4

    def __post_init__(self) -> None:
        for name, least in (("apps", 2), ("machines", 1), ("compared", 0)):
            if getattr(self, name) < least:
                raise InvalidOptionError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if not 0 < self.tol < 1:
            raise InvalidOptionError(f"tol must be in (0, 1), got {self.tol}")


SIZES: Mapping[str, FractionalOptions] = MappingProxyType(
    {SMALL: FractionalOptions(), FULL: FractionalOptions(compared=0)}
)


@dataclass(frozen=True, kw_only=True)
class FractionalWork(AbstractWork):
    """Solve a market both ways and compare every share."""

    def resolved_options(self) -> dict[str, Any]:
        """Return the study's complete options."""
        return plain(options_as_dict(build_options(FractionalOptions, self.options)))

    def run(self, stop: StoppingCriterion, progress: Progress) -> Record:
        """Compile, run the batch, run Clarabel."""
        del stop
        try:
            return self._study(progress)
        except Exception as error:  # one market that fails must not end the others
            return self.failed(describe_error(error))

    def _study(self, progress: Progress) -> Record:
        options = build_options(FractionalOptions, self.options)
        market = market_of(self.subject.instance)
        begun = time.perf_counter()
        solve_fractional(market, tol=options.tol)
        cold = time.perf_counter() - begun
        times = []
        for _ in range(REPEATS):
            begun, cpu = time.perf_counter(), time.process_time()
            found = solve_fractional(market, tol=options.tol)
            times.append((time.perf_counter() - begun, time.process_time() - cpu))
        wall, cpu = min(times)
        kept, clarabel_s, value = _by_clarabel(market, options.compared, progress)
        apps = sorted(kept)
        error = float(np.abs(found.kept[apps] - np.array([kept[i] for i in apps])).max())
        figures = {
            "error": error,
            "widest_interval": found.widest,
            "batch_ms": 1e3 * wall,
            "batch_cpu_ms": 1e3 * cpu,
            "clarabel_ms": 1e3 * clarabel_s,
            "speedup": clarabel_s / wall,
            "steps": found.steps[1],
            "goods": len(market.supply),
            "compared": len(apps),
        }
        problems = [f"c differs by {error:.2e}"] if error > AGREEMENT else []
        problems += [f"an interval is {found.widest:.2e} wide"] if found.widest > AGREEMENT else []
        problems += ["the value exceeds Clarabel's"] if found.value > value + 10 * options.tol else []
        return Record(
            **self.identity() | {"parameters": {**self.subject.parameters, **plain(figures)}},
            **provenance(),
            versions=dict(package_versions()),
            termination=Termination.COMPLETED.value,
            primal=PointStatus.FEASIBLE.value,
            dual=PointStatus.FEASIBLE.value,
            objective=found.value,
            bound=found.bound,
            gap=(found.bound - found.value) / max(abs(found.value), 1e-9),
            load=plain(figures),
            seconds={"build": 0.0, "compile": max(0.0, cold - wall), "solve": wall, "verify": clarabel_s},
            verified=not problems,
            violations=problems,
            iterations=sum(found.steps),
        )


def _by_clarabel(market: FractionalMarket, compared: int, progress: Progress) -> tuple[dict[int, float], float, float]:
    """Return shares by app, Clarabel's own seconds for all N + 1 problems, and the main value."""
    n = len(market.cap)
    main = solve_cone(elapsed_programme(market))
    own = market.log_values(main.speed)
    apps = range(n) if compared == 0 else np.unique(np.linspace(0, n - 1, min(n, compared)).astype(int)).tolist()
    progress.start("Clarabel", len(apps))
    kept, spent = {}, 0.0
    for done, i in enumerate(apps):
        without = solve_cone(elapsed_programme(market.without(i)))
        kept[i] = float(np.exp(min(0.0, own.sum() - own[i] - without.value)))
        spent += without.solver_s
        progress.update(done + 1)
    progress.finish()
    return kept, main.solver_s + spent * n / len(apps), main.value


def build(request: BenchRequest) -> Iterator[AbstractWork | Skipped]:
    """Yield one market for each seed.

    Raises
    ------
    InvalidOptionError
        If an option isn't one of `FractionalOptions`.
    """
    given = {**options_as_dict(SIZES[request.size]), **request.options}
    options = build_options(FractionalOptions, given)
    drawn = GeneratorOptions(
        num_apps=options.apps, num_gpus=8 * options.machines, num_machines=options.machines, bids="named"
    )
    for seed in request.seeds:
        subject = Subject(generate(drawn, seed))
        for solver in request.solvers or (SOLVER,):
            if solver != SOLVER:
                reason = "the study compares the batch with Clarabel"
                yield Skipped(suite=SPEC.name, instance=subject.name, solver=solver, reason=reason)
                continue
            yield FractionalWork(suite=SPEC.name, subject=subject, solver=SOLVER, seed=seed, options=given)


SPEC = register_suite(
    BenchSpec(
        name="fractional",
        problem=PROBLEM,
        summary="all payments of a divisible market in one JAX batch, beside N + 1 solves by Clarabel",
        build=build,
        sizes=(SMALL, FULL),
        columns=("error", "widest_interval", "batch_ms", "clarabel_ms", "speedup", "compared"),
    )
)

"""The study `fractional`: all payments of a divisible market in one JAX batch, compared with N + 1 solves by Clarabel."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from optim.benchmarks.measuring import timed
from optim.benchmarks.study import AbstractStudy, Finding, register_study
from optim.benchmarks.suite import FULL, SMALL, Subject
from optim.core.errors import InvalidOptionError
from optim.core.progress import Progress
from optim.core.stopping import StoppingCriterion
from optim.workloads.auction.generator import GeneratorOptions, generate
from optim_studies.divisible_market import FractionalMarket, elapsed_programme, market_of, solve_cone, solve_fractional

AGREEMENT = 1e-3
"""Maximum accepted difference between a share c and Clarabel's value of it."""

REPEATS = 3
"""Runs of the compiled batch, of which the fastest counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FractionalOptions:
    """Sizes of the study.

    Parameters
    ----------
    apps, machines
        Number of apps, and of machines with eight GPUs. Each machine is a separate good with a speed per app.
    compared
        Number of problems without one app that Clarabel solves, 0 for all; its time is scaled up to all of them.
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
class FractionalWork(AbstractStudy):
    """Solve a market by the batch and by Clarabel, and compare the shares."""

    options_type = FractionalOptions
    is_stoppable = False
    subject: Subject

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Compile, run the batch, run Clarabel."""
        del stop
        options = self.chosen
        market = market_of(self.subject.instance)
        cold, _ = timed(lambda: solve_fractional(market, tol=options.tol))
        wall, cpu = min(timed(lambda: solve_fractional(market, tol=options.tol)) for _ in range(REPEATS))
        payments = solve_fractional(market, tol=options.tol)
        begun = time.perf_counter()
        kept_by_app, clarabel_s, value = _by_clarabel(market, options.compared, progress)
        verify_s = time.perf_counter() - begun
        apps = sorted(kept_by_app)
        error = float(np.abs(payments.kept_share[apps] - np.array([kept_by_app[i] for i in apps])).max())
        problems = [f"c differs by {error:.2e}"] if error > AGREEMENT else []
        problems += [f"an interval is {payments.widest:.2e} wide"] if payments.widest > AGREEMENT else []
        problems += ["the value exceeds Clarabel's"] if payments.value > value + 10 * options.tol else []
        return Finding(
            findings={"goods": len(market.supply), "compared": len(apps), "clarabel_value": value},
            measures={
                "value": payments.value,
                "value_bound": payments.bound,
                "error": error,
                "widest_interval": payments.widest,
                "batch_ms": 1e3 * wall,
                "batch_cpu_ms": 1e3 * cpu,
                "clarabel_ms": 1e3 * clarabel_s,
                "speedup": clarabel_s / wall,
                "steps": payments.steps[1],
            },
            seconds={"compile": cold, "solve": wall, "verify": verify_s},
            problems=problems,
            iterations=sum(payments.steps),
        )


def _by_clarabel(market: FractionalMarket, compared: int, progress: Progress) -> tuple[dict[int, float], float, float]:
    """Return shares by app, Clarabel's time for all N + 1 problems (scaled up if it solves only some), and the main value."""
    n = len(market.cap)
    main = solve_cone(elapsed_programme(market))
    log_values = market.log_values(main.speed)
    apps = range(n) if compared == 0 else np.unique(np.linspace(0, n - 1, min(n, compared)).astype(int)).tolist()
    progress.start("Clarabel", len(apps))
    kept_by_app, spent = {}, 0.0
    for done, i in enumerate(apps):
        without = solve_cone(elapsed_programme(market.without(i)))
        kept_by_app[i] = float(np.exp(min(0.0, log_values.sum() - log_values[i] - without.value)))
        spent += without.solver_s
        progress.update(done + 1)
    progress.finish()
    return kept_by_app, main.solver_s + spent * n / len(apps), main.value


def _subjects(options: FractionalOptions, seed: int) -> Iterator[tuple[Subject, Mapping[str, Any]]]:
    gpus = 8 * options.machines
    generator_options = GeneratorOptions(
        num_apps=options.apps, num_gpus=gpus, num_machines=options.machines, bids="named"
    )
    yield Subject(generate(generator_options, seed)), {}


SPEC = register_study(
    "fractional",
    "auction",
    "all payments of a divisible market in one JAX batch, compared with N + 1 solves by Clarabel",
    kind=FractionalWork,
    sizes=SIZES,
    subjects=_subjects,
    ways=("batched",),
    others="the study compares the batch with Clarabel",
    columns=("value", "value_bound", "error", "widest_interval", "batch_ms", "clarabel_ms", "speedup", "compared"),
)

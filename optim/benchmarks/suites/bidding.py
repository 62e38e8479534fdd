"""Bidding suite: all solvers on reference and generated instances, or on instances of the user."""

from typing import Any

from optim.benchmarks.cases import Case, generated_case, register_solver_suite
from optim.models.reference import reference_names
from optim.workloads.bidding.generator import GeneratorOptions
from optim.workloads.instances import NamedSource

PROBLEM = "bidding"

WINDOWS_TOL = 1e-4
"""Gap to prove on instances with several windows."""

WINDOWS = {name: {"tol": WINDOWS_TOL} for name in ("dinkelbach", "frontier")}

SLOW = frozenset({"frontier"})
"""Solvers skipped on instances with several windows or an hour with many evictions, unless requested."""


def _named(name: str, label: str, **fields: Any) -> Case:
    return Case(source=NamedSource(name), label=label, time_limit_s=30.0, **fields)


def _small() -> tuple[Case, ...]:
    """Return cases that all solvers together solve in well under a minute."""
    return (
        _named("spot-vector", "tiny"),
        *(_named(name, "tiny") for name in reference_names(PROBLEM) if "tiny" in name),
        *(_named(f"spot-hour-{k}", "one hour") for k in range(3)),
        _named("spot-market-0", "nested evictions", left_out=SLOW | {"dinkelbach"}),
        *(_named(f"spot-windows-{k}", "16 windows", left_out=SLOW, options=WINDOWS) for k in range(2)),
        generated_case(
            PROBLEM, GeneratorOptions(zone_types=12), "12 kinds without bids", 30.0, left_out=SLOW, options=WINDOWS
        ),
        generated_case(
            PROBLEM,
            GeneratorOptions(zone_types=12, min_gpus=16, min_probability=0.8),
            "12 kinds without bids, 16 GPUs that last",
            30.0,
            left_out=SLOW,
            options=WINDOWS,
        ),
    )


def _full() -> tuple[Case, ...]:
    """Return the small cases and the instances of the published results."""
    hours = (
        ("own evictions", "per-bid", frozenset[str]()),
        ("any eviction", "any-bid", SLOW),
        ("nested evictions", "per-market", SLOW),
    )
    return (
        *_small(),
        *(
            generated_case(PROBLEM, GeneratorOptions(term=term), f"one hour, {label}", 60.0, left_out=left_out)
            for label, term, left_out in hours
        ),
        *(
            generated_case(PROBLEM, GeneratorOptions(windows=k), f"{k} windows", 120.0, left_out=SLOW, options=WINDOWS)
            for k in (32, 64)
        ),
        generated_case(
            PROBLEM, GeneratorOptions(zone_types=40), "40 kinds without bids", 60.0, left_out=SLOW, options=WINDOWS
        ),
        generated_case(
            PROBLEM,
            GeneratorOptions(zone_types=40, min_gpus=16, min_probability=0.8),
            "40 kinds without bids, 16 GPUs that last",
            60.0,
            left_out=SLOW,
            options=WINDOWS,
        ),
    )


SPEC = register_solver_suite(
    PROBLEM, "minimum cost per unit of work on spot instances: exact, greedy, local search", _small, _full
)

"""Auction suite: all solvers on reference and generated instances, or on instances of the user."""

from typing import Any

from optim.benchmarks.cases import Case, generated_case, register_solver_suite
from optim.models.reference import reference_names
from optim.workloads.auction.generator import GeneratorOptions
from optim.workloads.instances import NamedSource

PROBLEM = "auction"


def _small_case(label: str, **options: Any) -> Case:
    return generated_case(PROBLEM, GeneratorOptions(**options), label, 10.0)


def _large_case(label: str, **options: Any) -> Case:
    return generated_case(PROBLEM, GeneratorOptions(**options), label, 300.0)


def _small() -> tuple[Case, ...]:
    """Return cases that all solvers together solve in well under a minute."""
    references = reference_names(PROBLEM)
    return (
        *(Case(source=NamedSource(name), label="reference", time_limit_s=10.0) for name in references),
        _small_case("16 bidders", num_apps=16),
        _small_case("sizes that divide", sizes="dividing"),
        _small_case("any sizes"),
        _small_case("packing binds", gangs="any", widest="machine", network_share=1.0),
        _small_case("a third held", allocated_share=0.3),
    )


def _full() -> tuple[Case, ...]:
    """Return the small cases and the instances of the published results."""
    large = {"num_apps": 512, "num_gpus": 4096, "num_machines": 512}
    partly_allocated = {"num_apps": 256, "num_gpus": 1024, "num_machines": 128, "allocated_share": 0.3}
    return (
        *_small(),
        _large_case("512: sizes that divide", sizes="dividing", **large),
        _large_case("512: any sizes", **large),
        _large_case("512: any gangs", gangs="any", network_share=1.0, **large),
        _large_case("a third held, 256", **partly_allocated),
    )


SPEC = register_solver_suite(
    PROBLEM, "all solvers, with payments, on empty and partly allocated clusters", _small, _full
)

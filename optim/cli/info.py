"""`optim info`: versions, processor, devices and installed parts, for bug reports."""

from typing import Any

from optim.cli.output import OutputFormat, print_one
from optim.cli.parameters import FormatOption

PACKAGES = (
    "mlcluster-optim", "numpy", "scipy", "highspy", "pyomo", "cvxpy", "cvxpy-base", "networkx", "jax", "numba", "pandas",
    "matplotlib", "typer", "rich", "msgspec",
)  # fmt: skip


def info(output: FormatOption = OutputFormat.TABLE) -> None:
    """Show versions, processor, devices, and the available problems, solvers, suites and instances."""
    from optim.benchmarks.compare import golden_names
    from optim.benchmarks.suite import SUITES
    from optim.core.optional import installed_version
    from optim.core.provenance import code_digest, commit, machine_facts
    from optim.models.catalogue import problem_names
    from optim.models.reference import reference_names
    from optim.solvers.solve import solvers_of
    from optim.workloads.instances import GENERATED

    facts: dict[str, Any] = {
        "machine": dict(machine_facts()),
        "devices": _devices(),
        "versions": {name: installed_version(name) for name in PACKAGES},
        "code": {"digest": code_digest(), "commit": commit()},
        "problems": {name: [solver.name for solver in solvers_of(name)] for name in problem_names()},
        "suites": [spec.name for spec in SUITES],
        "instances": [*reference_names(), *GENERATED],
        "golden": list(golden_names()),
    }
    print_one(facts, output)


def _devices() -> list[str]:
    """Return the names of JAX's devices; no other part of this command imports JAX."""
    try:
        import jax
    except ImportError:
        return []
    return [str(device) for device in jax.devices()]

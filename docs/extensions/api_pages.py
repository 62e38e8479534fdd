"""Write a page for each public package and module: its names are read from the code, so that none is forgotten."""

import ast
import inspect
import pkgutil
from importlib import import_module
from pathlib import Path

from sphinx.application import Sphinx

import optim

NOT_PUBLIC = ("optim.cli", "optim.benchmarks", "optim.execution", "optim.solvers")
"""Packages whose names are for this package itself; solvers are told by their registry."""

MODULES = (
    "optim.core.driver",
    "optim.core.errors",
    "optim.core.limits",
    "optim.core.registry",
    "optim.core.solution",
    "optim.core.stopping",
    "optim.models.admission.decision",
    "optim.models.auction.decision",
    "optim.models.bidding.decision",
    "optim.models.cluster.proof",
    "optim.models.programmes",
    "optim.simulation.cluster.conformance",
    "optim.simulation.cluster.planning.free_gpus",
    "optim.simulation.cluster.planning.policy",
    "optim.simulation.spot.policy",
    "optim.simulation.spot.zones",
    "optim.solvers.conformance",
    "optim.training.application",
    "optim.training.stages",
    "optim.training.trainer",
    "optim.workloads.admission.generator",
    "optim.workloads.admission.traces",
    "optim.workloads.auction.generator",
    "optim.workloads.bidding.generator",
)
"""What a solver, policy, application or workload of one's own is made from."""


def reexported(package: str) -> list[str]:
    """Return the names that a package hands on (`from x import A as A`), and those that it defines itself."""
    if package == "optim":
        return [name for name in optim.__all__ if not inspect.ismodule(getattr(optim, name))]
    tree = ast.parse(inspect.getsource(import_module(package)))
    handed = [
        alias.asname
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    ]
    return sorted(handed, key=str.lower)


def defined(module: str) -> list[str]:
    """Return the public classes and functions that a module defines."""
    loaded = import_module(module)
    return [
        name
        for name, value in vars(loaded).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module and callable(value)
    ]


def public_packages() -> list[str]:
    """Return `optim` and those packages below it that hand names on."""
    below = [info.name for info in pkgutil.walk_packages(optim.__path__, "optim.") if info.ispkg]
    return ["optim", *(name for name in below if not name.startswith(NOT_PUBLIC) and reexported(name))]


def public_names() -> dict[str, list[str]]:
    """Return the public names of each page."""
    packages = {package: reexported(package) for package in public_packages()}
    modules = (*(f"optim.{name}" for name in optim.__all__ if inspect.ismodule(getattr(optim, name))), *MODULES)
    return packages | {module: defined(module) for module in modules}


def page_of(module: str, names: list[str]) -> str:
    """Return the page of a module, in reStructuredText."""
    lines = [module, "=" * len(module), "", f".. module:: {module}", ""]
    lines += [(inspect.getdoc(import_module(module)) or "").split("\n\n", maxsplit=1)[0].replace("`", "``"), ""]
    lines += [".. autosummary::", "", *(f"   {name}" for name in names), ""]
    loaded = import_module(module)
    for name in names:
        value = getattr(loaded, name)
        if inspect.isclass(value):
            lines += [f".. autoclass:: {name}", "   :members:", ""]
        elif callable(value):
            lines += [f".. autofunction:: {name}", ""]
        else:
            lines += [f".. autodata:: {name}", "   :no-value:", ""]
    return "\n".join(lines)


def write_pages(app: Sphinx) -> None:
    """Write the pages that have changed."""
    folder = Path(app.srcdir) / "reference" / "api"
    folder.mkdir(parents=True, exist_ok=True)
    pages = {f"{module}.rst": page_of(module, names) for module, names in public_names().items()}
    for stale in {path.name for path in folder.glob("*.rst")} - set(pages):
        (folder / stale).unlink()
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the pages before sources are looked for."""
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""Imports respect the package's layers; commands load little at their start; and the links at the top exist."""

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.architecture.import_lines import import_lines

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "optim"
STUDIES = ROOT / "studies" / "optim_studies"

FLOORS = (
    ("core",),
    ("execution", "statistics", "compiled"),
    ("models", "kernels"),
    ("profiling",),
    ("solvers", "training", "phases", "workloads"),
    ("simulation", "rightsizing"),
    ("report",),
    ("benchmarks",),
    ("cli",),
)
"""Layers from the lowest up; packages of one layer never import each other."""

FLOOR_OF = {name: floor for floor, names in enumerate(FLOORS) for name in names}
LINKED = ("models", "solvers", "kernels", "benchmarks")
HEAVY = ("pyomo", "jax", "numba", "pandas", "matplotlib", "highspy", "cvxpy", "scipy.optimize", "networkx")

DOTTED_TEXT = re.compile(r"""["'](optim\.\w+\.(?:\w+(?:\.\w+)*\.?)?)["'{]""")
"""Texts for import_module: three parts at least, the last one possibly filled in later."""

FACADE_FLOOR = FLOOR_OF["benchmarks"]
"""Layer of the modules directly in `optim`, which re-export lower layers: only `optim.cli` may import them."""


@dataclass(frozen=True)
class Arrow:
    """One import: its module and line, and the imported module."""

    module: str
    line: int
    target: str

    @property
    def home(self) -> str:
        """The importing module's package directly under `optim`."""
        return package_of(self.module)

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.target}"


def package_of(name: str) -> str:
    """Return the second part of a dotted name: "models" of "optim.models.files", "" of "optim"."""
    return [*name.split("."), ""][1]


def modules() -> Iterator[tuple[str, str]]:
    """Yield every module of the package with its text."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path.read_text(encoding="utf-8")


def arrows_of(name: str, source: str) -> Iterator[Arrow]:
    """Yield the imports of this package's modules, at the top or within functions, or by a dotted text."""
    for line, module, names in import_lines(source):
        base = module.lstrip(".")
        if level := len(module) - len(base):
            base = ".".join([*name.split(".")[:-level], *filter(None, [base])])
        targets = [f"{base}.{one}" for one in names] if names and base in ("optim", name) else [base]
        for target in targets:
            if target == "optim" or target.startswith("optim."):
                yield Arrow(module=name, line=line, target=target)
    for text in DOTTED_TEXT.finditer(source):
        yield Arrow(module=name, line=source.count("\n", 0, text.start()) + 1, target=text[1])


@cache
def arrows() -> list[Arrow]:
    """Return every import within the package, the table of public names in `optim` itself left out."""
    return [arrow for name, source in modules() if name != "optim" for arrow in arrows_of(name, source)]


def runs_up(arrow: Arrow) -> bool:
    """Return whether an import leads to the other package of the same layer, or to a higher one."""
    target, floor = package_of(arrow.target), FLOOR_OF.get(arrow.home, len(FLOORS))
    if target in (arrow.home, "__version__"):
        return False
    return floor <= FLOOR_OF.get(target, FACADE_FLOOR)


def run(code: str) -> str:
    """Run a text in a fresh interpreter at the top of the repository."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    return done.stdout.strip() if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def test_every_package_has_a_floor() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert folders <= set(FLOOR_OF)
    assert {"core", "models", "solvers"} <= folders


def test_no_import_runs_up() -> None:
    assert [str(arrow) for arrow in arrows() if runs_up(arrow)] == []


def test_imports_between_packages_form_no_circle() -> None:
    graph: dict[str, set[str]] = {}
    for arrow in arrows():
        target = package_of(arrow.target)
        if target in FLOOR_OF and target != arrow.home:
            graph.setdefault(arrow.home, set()).add(target)
    order = list(TopologicalSorter(graph).static_order())
    assert order.index("core") < order.index("models") < order.index("solvers")


@pytest.mark.parametrize(
    ("module", "code", "is_upward"),
    [
        ("optim.models.files", "from optim.core.errors import OptimError", False),
        ("optim.models.files", "from optim.models.catalogue import problem_of", False),
        ("optim.models.files", "from optim.solvers.solve import solve", True),
        ("optim.models.files", "from optim import solvers", True),
        ("optim.models.files", "from optim import solve", True),
        ("optim.models.files", "import optim.kernels.crbm", True),
        ("optim.models.files", "from ..solvers import solve", True),
        ("optim.models.files", "def f():\n    from optim.cli import main", True),
        ("optim.models.files", "from optim import (\n    __version__,  # whose\n    solvers as own,\n)", True),
        ("optim.models.files", "from optim import __version__, \\\n    solvers", True),
        ("optim.models.files", "import re, optim.solvers as own", True),
        ("optim.models.files", "if True: import re; from optim import solve", True),
        ("optim.models.files", "import_module('optim.solvers.admission.online')", True),
        ("optim.models.files", "import_module(f'optim.solvers.{problem}')", True),
        ("optim.solvers.solve", "from optim.models.files import verify", False),
        ("optim.solvers.solve", "from optim.workloads import philly", True),
        ("optim.core.registry", "GROUP = 'optim.solvers'", False),
        ("optim.cli.main", "from optim import __version__, solve", False),
        ("optim.core.driver", "from optim import __version__", False),
    ],
)
def test_knows_an_upward_import_when_it_sees_one(module: str, code: str, is_upward: bool) -> None:
    assert any(runs_up(arrow) for arrow in arrows_of(module, code)) == is_upward


def test_checkers_share_no_code_with_solvers() -> None:
    found = [arrow for arrow in arrows() if ".check" in arrow.module and arrow.home == "models"]
    assert found, "no checker was found"
    data = (
        *(
            "data",
            "instance",
            "decision",
            "proof",
            "log",
            "rules",
            "run_file",
            "workload",
            "cluster",
            "market.prices",
            "market.billing",
            "market.zones",
        ),
        "philly",
        "policy_names",
        "columns",
    )
    allowed = ("check", "metrics", *data)
    wrong = []
    for arrow in found:
        problem = ".".join(arrow.module.split(".")[:3])
        if package_of(arrow.target) in ("core", "compiled"):
            continue
        if not any(f"{arrow.target}.".startswith(f"{problem}.{name}.") for name in allowed):
            wrong.append(str(arrow))
    assert wrong == []


def test_the_package_names_no_study() -> None:
    assert [name for name, source in modules() if "optim_studies" in source] == []


def test_studies_import_no_private_name() -> None:
    paths = sorted(STUDIES.rglob("*.py"))
    assert paths, "no study was found"
    wrong = [
        f"{path.name}:{line} imports {module}: {', '.join(names)}"
        for path in paths
        for line, module, names in import_lines(path.read_text(encoding="utf-8"))
        if module.startswith("optim.") and any(part.startswith("_") for part in [*module.split("."), *(names or [])])
    ]
    assert wrong == []


PRIVATE_APIS = ("numba.core", "jax._src", "_pytest")
ALLOWED_PRIVATE = {"optim/compiled.py", "tests/solvers/test_memory.py"}
"""The compile cache, and a test that reads the statistics enabled by NUMBA_NRT_STATS."""


def test_private_apis_of_numba_jax_and_pytest_are_imported_in_one_module() -> None:
    paths = [path for folder in ("optim", "studies", "tests") for path in (ROOT / folder).rglob("*.py")]
    found = {
        str(path.relative_to(ROOT))
        for path in paths
        for _, module, _ in import_lines(path.read_text(encoding="utf-8"))
        if f"{module}.".startswith(tuple(f"{name}." for name in PRIVATE_APIS))
    }
    assert found == ALLOWED_PRIVATE


def test_checking_loads_no_solver() -> None:
    loaded = "[name for name in sys.modules if name.startswith('optim.solvers')]"
    assert run(f"import sys, optim.models.admission.check; print({loaded})") == "[]"


def test_import_optim_loads_nothing_heavy() -> None:
    assert run(f"import sys, optim; print([name for name in {HEAVY!r} if name in sys.modules])") == "[]"


@pytest.mark.parametrize("name", LINKED)
def test_links_at_the_top_point_into_the_package(name: str) -> None:
    link = ROOT / name
    assert link.is_symlink()
    assert link.readlink() == Path("optim") / name
    assert link.resolve() == (PACKAGE / name).resolve()


@pytest.mark.parametrize("name", LINKED)
def test_refuses_to_be_imported_under_a_links_name(name: str) -> None:
    assert run(f"import {name}").startswith(f"ImportError: import this package as optim.{name}")

"""Names of the package in notebooks exist: modules, attributes, arguments, and options of solvers.

One notebook is run, on few jobs.
"""

import ast
import inspect
from importlib import import_module
from pathlib import Path

import nbformat
import pytest

from optim.solvers.solve import solvers_of

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
PROBLEMS = ("admission", "auction", "bidding")


def code_of(path):
    """Return a notebook's cells as one module's tree."""
    cells = nbformat.read(path, as_version=4).cells
    lines = "\n".join(cell.source for cell in cells if cell.cell_type == "code").splitlines()
    return ast.parse("\n".join(line for line in lines if not line.startswith("%")))


class Names:
    """The objects of the package's names in a notebook, and the errors in their use."""

    def __init__(self, tree):
        self.known, self.wrong, self.checked = {}, [], 0
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self._import(alias.name, None, alias.asname)
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    self._import(node.module, alias.name, alias.asname)
        stored = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        self.known = {name: value for name, value in self.known.items() if name not in stored}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                self._resolve(node)
            elif isinstance(node, ast.Call):
                self._check_call(node)

    def _import(self, module, name, called):
        if module.split(".")[0] != "optim":
            return
        try:
            value = import_module(module)
            self.known[called or name or module.split(".")[0]] = value if name is None else getattr(value, name)
        except (ImportError, AttributeError) as error:
            self.wrong.append(str(error))

    def _resolve(self, node):
        """Return the object of a name or of a chain of attributes, None if only running it determines the object."""
        if isinstance(node, ast.Name):
            return self.known.get(node.id)
        if not isinstance(node, ast.Attribute):
            return None
        owner = self._resolve(node.value)
        if not (inspect.ismodule(owner) or inspect.isclass(owner)):
            return None
        if not hasattr(owner, node.attr):
            self.wrong.append(f"{ast.unparse(node)} doesn't exist")
        return getattr(owner, node.attr, None)

    def _check_call(self, node):
        called = self._resolve(node.func)
        if not callable(called) or any(isinstance(each, ast.Starred) for each in node.args):
            return
        self.checked += 1
        names = [keyword.arg for keyword in node.keywords if keyword.arg is not None]
        try:
            inspect.signature(called).bind_partial(*node.args, **dict.fromkeys(names))
        except TypeError as error:
            self.wrong.append(f"{ast.unparse(node)[:80]}: {error}")
        if getattr(called, "__name__", "") == "solve":
            self._check_options(node)

    def _check_options(self, node):
        solver = node.args[1].value if len(node.args) > 1 and isinstance(node.args[1], ast.Constant) else None
        found = [each for problem in PROBLEMS for each in solvers_of(problem) if each.name == solver]
        if solver is not None and not found:
            self.wrong.append(f"there is no solver {solver!r}")
        for keyword in node.keywords:
            if keyword.arg == "options" and isinstance(keyword.value, ast.Dict) and found:
                for key in keyword.value.keys:
                    fields = {name for each in found for name in each.options_type.__dataclass_fields__}
                    if key.value not in fields:
                        self.wrong.append(f"solver {solver!r} has no option {key.value!r}")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_a_notebook_names_exists(path):
    names = Names(code_of(path))
    assert names.wrong == []
    assert names.checked >= 5


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("from optim.simulation.cluster.options import EngineOption", "EngineOption"),
        ("from optim.simulation.cluster.options import EngineOptions\nEngineOptions(overhead=3)", "overhead"),
        ("from optim.models.cluster.cluster import Cluster\nCluster.lattice('1x1')", "Cluster.lattice doesn't exist"),
        ("import optim\noptim.solve(day, 'seek')", "no solver 'seek'"),
        ("import optim\noptim.solve(day, 'search', options={'moves': 1})", "'search' has no option 'moves'"),
        ("import optim.nowhere", "optim.nowhere"),
    ],
)
def test_a_name_that_is_gone_is_found(code, said):
    assert any(said in each for each in Names(ast.parse(code)).wrong)


def test_the_cluster_notebook_runs_on_few_jobs(monkeypatch):
    """The same holds for names that only running determines: policies, columns of rows, tables of the study."""
    monkeypatch.setenv("MPLBACKEND", "agg")
    code = ast.unparse(code_of(Path(__file__).parents[2] / "notebooks" / "cluster.ipynb"))
    for large, small in (("jobs=800", "jobs=60"), ("steps=30", "steps=3")):
        assert large in code
        code = code.replace(large, small)
    names = {}
    exec(compile(code, "cluster.ipynb", "exec"), names)
    assert [one.row.policy for one in names["played"]] == ["fifo", "srtf", "las", "tiresias"]
    assert all(found.is_ok for _, found in names["check_runs"](names["record"]))

"""Every public name is documented, shown by an example that runs, and typed."""

import ast
import doctest
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import optim

ROOT = Path(__file__).parents[1]
TYPED = ROOT / "tests" / "typing" / "every_public_name.py"
MODULES = ("plot", "testing")
NAMES = [name for name in optim.__all__ if name not in MODULES] + [
    f"{module}.{name}" for module in MODULES for name in getattr(optim, module).__all__
]


def public(name: str) -> object:
    """Return the object of a public name."""
    value: object = optim
    for part in name.split("."):
        value = getattr(value, part)
    return value


def members(name: str) -> Iterator[tuple[str, object]]:
    """Yield a public name and, for a class, its own methods and properties."""
    value = public(name)
    yield name, value
    if isinstance(value, type):
        for member, found in vars(value).items():
            if not member.startswith("_") and (callable(found) or hasattr(found, "__func__") or hasattr(found, "func")):
                yield f"{name}.{member}", getattr(found, "__func__", getattr(found, "func", found))
            elif isinstance(found, property):
                yield f"{name}.{member}", found.fget


def untyped(function: object) -> list[str]:
    """Return the parameters of a function without a type, and "return" where its result has none."""
    if not inspect.isfunction(function):
        return []
    signature = inspect.signature(function)
    bare = [
        one.name
        for one in signature.parameters.values()
        if one.annotation is one.empty and one.name not in ("self", "cls")
    ]
    return bare + (["return"] if signature.return_annotation is signature.empty else [])


def test_every_public_name_has_a_docstring_an_example_and_types():
    wrong = []
    for name in NAMES:
        if not any(">>>" in (inspect.getdoc(value) or "") for _, value in members(name)):  # a class by its builders
            wrong.append(f"{name}: example")
        for path, value in members(name):
            if not (inspect.getdoc(value) or "").strip():
                wrong.append(f"{path}: docstring")
            wrong += [f"{path}: type of {part}" for part in untyped(value)]
    assert wrong == []


def run_examples(name: str) -> list[str]:
    """Run the examples of a name and of its members; return the failures."""
    told: list[str] = []
    for path, value in members(name):
        text = inspect.getdoc(value) or ""
        examples = doctest.DocTestParser().get_doctest(
            text, vars(inspect.getmodule(value) or optim).copy(), path, None, 0
        )
        doctest.DocTestRunner(verbose=False).run(examples, out=told.append)
    return told


QUICK = [name for name in NAMES if not name.startswith("plot.") and name != "export"]


@pytest.mark.parametrize("name", QUICK)
def test_the_examples_of_public_names_run(name):
    assert run_examples(name) == []


@pytest.mark.prove
@pytest.mark.parametrize("name", sorted({*NAMES} - {*QUICK}))
def test_the_slower_examples_of_public_names_run(name):
    assert run_examples(name) == []


def test_an_example_that_is_wrong_is_found(monkeypatch):
    def wrong():
        """Return two.

        >>> 1 + 1
        3
        """

    monkeypatch.setattr(optim, "wrong", wrong, raising=False)
    assert run_examples("wrong")


def test_the_typed_file_uses_every_public_name():
    used = set()
    for node in ast.walk(ast.parse(TYPED.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "optim":
            used.add(node.attr)
    assert used == {*optim.__all__, "__version__"}


@pytest.mark.prove
def test_mypy_has_nothing_to_say_of_the_typed_file():
    from mypy import api

    out, err, code = api.run(
        ["--strict", "--config-file=", "--follow-imports=silent", "--ignore-missing-imports", str(TYPED)]
    )
    assert (code, err) == (0, ""), out


@pytest.mark.prove
def test_pyright_has_nothing_to_say_of_the_typed_file():
    pytest.importorskip("basedpyright", reason="basedpyright is not installed: pip install basedpyright")
    done = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--level", "error", str(TYPED)],
        check=False, capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert re.search(r"^0 errors", done.stdout, re.MULTILINE), done.stdout

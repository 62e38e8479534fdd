"""Dataclasses with arrays have no generated ``==``: arrays have no truth value, and Python 3.13 asks each field separately."""

import ast
import re
from collections import ChainMap
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

import optim

ARRAYS = ("Array", "ndarray")
"""In an annotation: a field is an array, or holds some."""


@cache
def nodes_of(text: str) -> list[ast.stmt]:
    """Return a module's classes, imports and top-level assignments, read once."""
    tree = ast.parse(text)
    inner = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.ImportFrom)]
    return [*inner, *(node for node in tree.body if isinstance(node, ast.Assign))]


def classes_of(text: str) -> dict[str, ast.ClassDef]:
    """Return the classes of a module by name."""
    return {node.name: node for node in nodes_of(text) if isinstance(node, ast.ClassDef)}


def aliases_of(text: str) -> set[str]:
    """Return the names in a module of arrays, or of containers of arrays."""
    made = (node for node in nodes_of(text) if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name))
    return {
        ast.unparse(node.targets[0])
        for node in made
        if any(word in (value := ast.unparse(node.value)) for word in ARRAYS) and not value.startswith("Callable")
    }


def imports_of(text: str) -> set[str]:
    """Return the names that a module takes from other modules."""
    return {alias.name for node in nodes_of(text) if isinstance(node, ast.ImportFrom) for alias in node.names}


def decorator(one: ast.ClassDef) -> str | None:
    """Return the source of the decorator that makes a class a dataclass, None where it is none."""
    return next((text for text in map(ast.unparse, one.decorator_list) if text.split("(")[0] == "dataclass"), None)


def holds_arrays(name: str, classes: Mapping[str, ast.ClassDef], aliases: set[str]) -> bool:
    """Return whether a field, inherited or not, contains arrays."""
    if name not in classes:
        return False
    own = [ast.unparse(item.annotation) for item in classes[name].body if isinstance(item, ast.AnnAssign)]
    bases = [ast.unparse(base).split("[")[0].rpartition(".")[2] for base in classes[name].bases]
    fields = [text for text in own if not text.startswith("ClassVar")]
    is_array = any(word in text for text in fields for word in ARRAYS)
    is_alias = any(aliases & set(re.findall(r"\w+", text)) for text in fields)
    return is_array or is_alias or any(holds_arrays(base, classes, aliases) for base in bases if base != name)


def with_generated_equality(
    classes: dict[str, ast.ClassDef], aliases: set[str], others: dict[str, ast.ClassDef] | None = None
) -> list[str]:
    """Return the dataclasses whose generated ``==`` would compare arrays; `others` are classes that these may inherit from."""
    known = ChainMap(classes, others or {})
    return [
        name
        for name, one in classes.items()
        if (made := decorator(one)) is not None
        and "eq=False" not in made
        and not any(isinstance(item, ast.FunctionDef) and item.name == "__eq__" for item in one.body)
        and holds_arrays(name, known, aliases)
    ]


def test_no_dataclass_that_holds_arrays_has_a_generated_equality() -> None:
    texts = [path.read_text() for path in Path(optim.__file__).parent.rglob("*.py")]
    all_aliases = set().union(*map(aliases_of, texts))
    files = [(classes_of(text), aliases_of(text) | (all_aliases & imports_of(text))) for text in texts]
    known = {name: one for classes, _ in files for name, one in classes.items()}
    assert sum(holds_arrays(name, known, set()) for name, one in known.items() if decorator(one) is not None) > 100
    wrong = [name for classes, aliases in files for name in with_generated_equality(classes, aliases, known)]
    assert wrong == [], "give them `eq=False`, or an `__eq__` that compares arrays"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("@dataclass\nclass A:\n x: FloatArray", ["A"]),
        ("@dataclass(frozen=True)\nclass A:\n x: dict[str, np.ndarray] | None", ["A"]),
        ("@dataclass(eq=False)\nclass A:\n x: IntArray", []),
        ("@dataclass\nclass A:\n x: IntArray\n def __eq__(self, other): ...", []),
        ("@dataclass\nclass A:\n x: int", []),
        ("class A:\n x: IntArray", []),
        ("V = NDArray[Any]\n@dataclass\nclass A:\n x: list[V]", ["A"]),
        ("F = Callable[[NDArray[Any]], int]\n@dataclass\nclass A:\n x: F", []),
        ("@dataclass(eq=False)\nclass A:\n x: IntArray\n@dataclass\nclass B(A):\n y: int", ["B"]),
    ],
)
def test_finds_them(text: str, found: list[str]) -> None:
    assert with_generated_equality(classes_of(text), aliases_of(text)) == found

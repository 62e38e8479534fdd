"""The examples in docstrings of names that aren't public give the results that they show."""

import doctest
import importlib
from pathlib import Path

from tests.test_public_names import NAMES, public

ROOT = Path(__file__).parents[1]
PUBLIC = {id(public(name)) for name in NAMES}
"""Objects whose examples `test_public_names` runs."""

FILES = [
    path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "optim").rglob("*.py")) if ">>> " in path.read_text()
]


def examples_of(path: str) -> list[doctest.DocTest]:
    """Return the examples of a file, without those of public names and their members."""
    module = importlib.import_module(path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    public_names = {f"{module.__name__}.{name}" for name, value in vars(module).items() if id(value) in PUBLIC}
    return [
        found
        for found in doctest.DocTestFinder(exclude_empty=True).find(module)
        if found.examples and not any(f"{found.name}.".startswith(f"{name}.") for name in public_names)
    ]


def test_the_examples_of_names_that_are_not_public_run():
    count, failures = 0, list[str]()
    for path in FILES:
        for found in examples_of(path):
            count += len(found.examples)
            doctest.DocTestRunner(verbose=False).run(found, out=failures.append)
    assert count > 0
    assert failures == []

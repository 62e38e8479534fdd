"""The problems, by name, by file schema and by instance type. Each problem is loaded on first use.

A problem is a folder of this package with a module `problem`, whose `PROBLEM` declares name, schema, codec, programme and
checker. A problem's generator, if it has one, is ``optim.workloads.<name>.generator``.
"""

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from optim.core.errors import InvalidProblemError
from optim.core.registry import AbstractProblem


@cache
def problem_names() -> tuple[str, ...]:
    """Return the names of all problems, sorted; none is imported."""
    return tuple(sorted(path.parent.name for path in Path(__file__).parent.glob("*/problem.py")))


def problem_named(name: str) -> AbstractProblem[Any]:
    """Return a problem by name.

    Raises
    ------
    InvalidProblemError
        If no problem has that name.
    """
    if name not in problem_names():
        raise InvalidProblemError(f"unknown problem {name!r}; there are: {', '.join(problem_names())}")
    problem: AbstractProblem[Any] = import_module(f"{__package__}.{name}.problem").PROBLEM
    return problem


def problem_of_schema(schema: str) -> AbstractProblem[Any]:
    """Return the problem whose files carry `schema`, or carried it in an earlier version.

    Raises
    ------
    InvalidProblemError
        If no problem has that schema.
    """
    _, _, rest = schema.partition("optim/")
    name, _, _ = rest.partition("/")
    if name in problem_names():
        problem = problem_named(name)
        if schema in (problem.schema, *problem.earlier_schemas):
            return problem
    known = ", ".join(problem_named(each).schema for each in problem_names())
    raise InvalidProblemError(f"schema: must be one of {known}, got {schema!r}")


def problem_of(instance: Any) -> AbstractProblem[Any]:
    """Return the problem that an instance belongs to.

    Raises
    ------
    InvalidProblemError
        If it is not an instance of any problem.
    """
    for name in problem_names():
        problem = problem_named(name)
        if isinstance(instance, problem.instance_type):
            return problem
    raise InvalidProblemError(
        f"{type(instance).__name__} is not the instance type of any problem; read an instance with optim.load"
    )

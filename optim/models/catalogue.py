"""Which problems there are: by name, by file schema, by instance type. Each loads on first use."""

from importlib import import_module
from typing import Any

from optim.core.errors import InvalidProblemError
from optim.core.registry import AbstractProblem

_MODULES = {
    "admission": "optim.models.admission.problem",
    "auction": "optim.models.auction.problem",
    "bidding": "optim.models.bidding.problem",
}

_SCHEMAS = {
    "optim/admission/1": "admission",
    "optim/auction/1": "auction",
    "optim/bidding/1": "bidding",
}


def problem_names() -> tuple[str, ...]:
    """Return the names of all problems."""
    return tuple(_MODULES)


def problem_named(name: str) -> AbstractProblem[Any]:
    """Return a problem by name.

    Raises
    ------
    InvalidProblemError
        If there is none of that name.
    """
    if name not in _MODULES:
        raise InvalidProblemError(f"unknown problem {name!r}; known: {', '.join(_MODULES)}")
    problem: AbstractProblem[Any] = import_module(_MODULES[name]).PROBLEM
    return problem


def problem_of_schema(schema: str) -> AbstractProblem[Any]:
    """Return the problem whose files carry `schema`.

    Raises
    ------
    InvalidProblemError
        If no problem has that schema.
    """
    if schema not in _SCHEMAS:
        raise InvalidProblemError(f"schema: must be one of {', '.join(_SCHEMAS)}, got {schema!r}")
    return problem_named(_SCHEMAS[schema])


def problem_of(instance: Any) -> AbstractProblem[Any]:
    """Return the problem that an instance belongs to.

    Raises
    ------
    InvalidProblemError
        If it is no instance of any problem.
    """
    for name in _MODULES:
        problem = problem_named(name)
        if isinstance(instance, problem.instance_type):
            return problem
    raise InvalidProblemError(f"{type(instance).__name__} is no instance of any problem; build one with optim.load")

"""Named reference instances that ship with the library, with the best known solutions of some of them."""

import os
from importlib.resources import files
from typing import Any, Literal

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.core.files import read_bytes
from optim.core.solution import Solution
from optim.models.catalogue import problem_names
from optim.models.files import load, read_instance, read_solution

AdmissionName = Literal[
    "adversary-exponential-strict-small",
    "adversary-paper-small",
    "adversary-zero-start-coarse",
    "adversary-zero-start-small",
    "adversary-zero-start-strict-small",
    "heavy-0",
    "heavy-1",
    "heavy-2",
    "large-0",
    "light-0",
    "light-1",
    "light-2",
    "medium-0",
    "medium-1",
    "medium-2",
    "shared-0",
    "shared-1",
    "shared-2",
    "small-0",
    "small-1",
    "small-2",
    "tiny-0",
    "tiny-1",
    "tiny-2",
    "wide-0",
]
"""Names of the instances of the problem ``admission``."""

AuctionName = Literal[
    "auction-held-0",
    "auction-named-0",
    "auction-slots-0",
    "auction-tiny-0",
    "auction-zero-0",
]
"""Names of the instances of the problem ``auction``."""

BiddingName = Literal[
    "spot-hour-0",
    "spot-hour-1",
    "spot-hour-2",
    "spot-market-0",
    "spot-tiny-any",
    "spot-tiny-market",
    "spot-tiny-own",
    "spot-tiny-windows",
    "spot-vector",
    "spot-windows-0",
    "spot-windows-1",
]
"""Names of the instances of the problem ``bidding``."""

SUFFIX = ".json.gz"


def _names(folder: str, problem: str | None = None) -> tuple[str, ...]:
    """Return the names of the files that ship in a folder of one problem or of all, sorted."""
    names = []
    for owner in problem_names() if problem is None else (problem,):
        place = files("optim.models") / owner / folder
        if place.is_dir():
            names += [entry.name.removesuffix(SUFFIX) for entry in place.iterdir() if entry.name.endswith(SUFFIX)]
    return tuple(sorted(names))


def _read(folder: str, name: str) -> bytes | None:
    """Return the content of a shipped file by name, from a folder of any problem; None if there is no such file."""
    entries = (files("optim.models") / owner / folder / f"{name}{SUFFIX}" for owner in problem_names())
    return next((read_bytes(str(entry)) for entry in entries if entry.is_file()), None)


def reference_names(problem: str | None = None) -> tuple[str, ...]:
    """Return the names of the shipped instances, of one problem or of all, sorted.

    Examples
    --------
    >>> import optim
    >>> optim.reference_names("auction")[0]
    'auction-held-0'
    """
    return _names("instances", problem)


def reference_instance(name: str) -> Any:
    """Return a shipped instance by name.

    Raises
    ------
    InvalidProblemError
        If there is no instance with that name; the message lists all names.
    """
    found = _read("instances", name)
    if found is None:
        raise InvalidProblemError(f"no reference instance {name!r}; there are: {', '.join(reference_names())}")
    return read_instance(found)


def reference_solution(name: str) -> Solution:
    """Return the best known solution of a shipped instance: its decision, and a bound with its proof.

    Raises
    ------
    InvalidProblemError
        If no solution ships for that instance; the message lists the instances with solutions.

    Examples
    --------
    >>> import optim
    >>> optim.reference_solution("tiny-0").objective == optim.reference_solution("tiny-0").bound
    True
    """
    found = _read("solutions", name)
    if found is None:
        known = ", ".join(solved_reference_names())
        raise InvalidProblemError(f"no solution ships for {name!r}; there are: {known}")
    return read_solution(found, reference_instance(name))


def solved_reference_names() -> tuple[str, ...]:
    """Return the sorted names of the shipped instances that have a shipped solution."""
    return _names("solutions")


def history_names(name: str) -> tuple[str, ...]:
    """Return the names of the shipped earlier days of a reference instance, sorted; most instances have none.

    An earlier day is an admission instance from which online solvers can learn prices.
    """
    return tuple(day for day in _names("histories") if day.startswith(f"{name}-day"))


def history_instance(name: str) -> Any:
    """Return a shipped earlier day by name, such as ``medium-0-day1``.

    Raises
    ------
    InvalidProblemError
        If no earlier day with that name ships.
    """
    found = _read("histories", name)
    if found is None:
        raise InvalidProblemError(
            f"{name}: neither a file nor the name of a shipped earlier day (such as medium-0-day1); correct the name"
        )
    return read_instance(found)


def read_day(name: str) -> Any:
    """Return the admission instance of an earlier day, given as a file or as the name of a shipped day.

    Raises
    ------
    InvalidOptionError
        If the file holds an instance of another problem.
    InvalidProblemError
        If there is neither a file nor a shipped day with this name, or the file is invalid.
    """
    from optim.models.admission.instance import AdmissionInstance

    day = load(name) if os.path.exists(name) else history_instance(name)
    if not isinstance(day, AdmissionInstance):
        raise InvalidOptionError(
            f"history: {name} is not an admission instance; give admission instances of earlier days"
        )
    return day

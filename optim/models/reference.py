"""Named reference instances that ship with the library, and the best solutions known of some."""

from importlib.resources import files
from typing import TYPE_CHECKING, Any, overload

from optim.core.errors import InvalidProblemError
from optim.core.files import read_bytes
from optim.core.solution import Solution
from optim.models.catalogue import problem_names
from optim.models.files import InstanceT, of_kind, read_instance, read_solution
from optim.models.reference_literals import AdmissionName, AuctionName, BiddingName

if TYPE_CHECKING:
    from optim.models.admission.instance import AdmissionInstance
    from optim.models.auction.instance import AuctionInstance
    from optim.models.bidding.instance import BiddingInstance

SUFFIX = ".json.gz"


def reference_names(problem: str | None = None) -> tuple[str, ...]:
    """Return the names of the shipped instances, of one problem or of all, sorted.

    Examples
    --------
    >>> import optim
    >>> optim.reference_names("auction")[0]
    'auction-held-0'
    """
    names = []
    for owner in problem_names() if problem is None else (problem,):
        folder = files("optim.models") / owner / "instances"
        if folder.is_dir():
            names += [entry.name.removesuffix(SUFFIX) for entry in folder.iterdir() if entry.name.endswith(SUFFIX)]
    return tuple(sorted(names))


@overload
def reference_instance(name: AdmissionName) -> "AdmissionInstance": ...
@overload
def reference_instance(name: AuctionName) -> "AuctionInstance": ...
@overload
def reference_instance(name: BiddingName) -> "BiddingInstance": ...
@overload
def reference_instance(name: str) -> Any: ...
@overload
def reference_instance(name: str, kind: type[InstanceT]) -> InstanceT: ...
def reference_instance(name: str, kind: type[Any] | None = None) -> Any:
    """Return a shipped instance by name.

    Parameters
    ----------
    name
        One of `reference_names`. Type checkers know which kind of instance each of them is.
    kind
        For names that are known at run time only: what must be returned, such as `optim.AdmissionInstance`.

    Raises
    ------
    InvalidProblemError
        If there is none of that name, or it is of another kind; the text lists those there are.

    Examples
    --------
    >>> import optim
    >>> optim.reference_instance("tiny-0").num_jobs
    6
    """
    for owner in problem_names():
        entry = files("optim.models") / owner / "instances" / f"{name}{SUFFIX}"
        if entry.is_file():
            return of_kind(read_instance(read_bytes(str(entry))), kind)
    raise InvalidProblemError(f"no reference instance {name!r}; there are: {', '.join(reference_names())}")


def reference_solution(name: str) -> Solution:
    """Return the best solution known of a shipped instance: its decision, and a bound with its proof.

    Raises
    ------
    InvalidProblemError
        If none ships for that instance; the text lists those that do.

    Examples
    --------
    >>> import optim
    >>> optim.reference_solution("tiny-0").objective == optim.reference_solution("tiny-0").bound
    True
    """
    for owner in problem_names():
        entry = files("optim.models") / owner / "solutions" / f"{name}{SUFFIX}"
        if entry.is_file():
            return read_solution(read_bytes(str(entry)), reference_instance(name))
    known = ", ".join(solved_reference_names())
    raise InvalidProblemError(f"no solution ships for {name!r}; there are: {known}")


def solved_reference_names() -> tuple[str, ...]:
    """Return the names of the shipped instances of which a solution ships, sorted."""
    names = []
    for owner in problem_names():
        folder = files("optim.models") / owner / "solutions"
        if folder.is_dir():
            names += [entry.name.removesuffix(SUFFIX) for entry in folder.iterdir() if entry.name.endswith(SUFFIX)]
    return tuple(sorted(names))


def history_names(name: str) -> tuple[str, ...]:
    """Return the names of the earlier days that ship for a reference instance, the earliest first; most have none."""
    names = []
    for owner in problem_names():
        folder = files("optim.models") / owner / "histories"
        if folder.is_dir():
            days = (entry.name.removesuffix(SUFFIX) for entry in folder.iterdir() if entry.name.endswith(SUFFIX))
            names += [day for day in days if day.startswith(f"{name}-day")]
    return tuple(sorted(names))


def history_instance(name: str) -> Any:
    """Return a shipped earlier day by name, such as ``medium-0-day1``.

    Raises
    ------
    InvalidProblemError
        If there is none of that name.
    """
    for owner in problem_names():
        entry = files("optim.models") / owner / "histories" / f"{name}{SUFFIX}"
        if entry.is_file():
            return read_instance(read_bytes(str(entry)))
    raise InvalidProblemError(
        f"{name}: no such file, and no earlier day of that name ships; days are named like medium-0-day1"
    )

"""Instances of any problem, drawn by its calibrated generator."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, overload

from optim.core.errors import InvalidOptionError
from optim.core.options import build_options
from optim.core.ranges import check_seed

if TYPE_CHECKING:
    from optim.models.admission.instance import AdmissionInstance
    from optim.models.auction.instance import AuctionInstance
    from optim.models.bidding.instance import BiddingInstance

GENERATORS = ("admission", "auction", "bidding")
"""Problems whose instances can be drawn."""


@overload
def generate(problem: Literal["admission"], *, seed: int = 0, **options: object) -> "AdmissionInstance": ...
@overload
def generate(problem: Literal["auction"], *, seed: int = 0, **options: object) -> "AuctionInstance": ...
@overload
def generate(problem: Literal["bidding"], *, seed: int = 0, **options: object) -> "BiddingInstance": ...
@overload
def generate(problem: str, *, seed: int = 0, **options: object) -> Any: ...
def generate(problem: str, *, seed: int = 0, **options: object) -> Any:
    """Draw an instance.

    Parameters
    ----------
    problem
        ``"admission"``, ``"auction"`` or ``"bidding"``.
    seed
        Same seed, same instance.
    options
        Fields of the generator's options, `GeneratorOptions` of ``optim.workloads.<problem>.generator``: ``num_jobs``,
        ``num_slots``; ``num_apps``, ``num_gpus``; and so on. A wrong name is answered with those there are.

    Raises
    ------
    InvalidOptionError
        If the problem has no generator, an option is unknown or out of its range, or the seed is no whole number.

    Examples
    --------
    >>> import optim
    >>> optim.generate("admission", seed=3, num_jobs=5, num_slots=8).num_jobs
    5
    """
    module = generator_of(problem)
    check_seed(seed)
    return module.generate(build_options(module.GeneratorOptions, options), seed)


def generator_of(problem: str) -> Any:
    """Return the module of a problem's generator.

    Raises
    ------
    InvalidOptionError
        If it has none.
    """
    if problem not in GENERATORS:
        raise InvalidOptionError(f"{problem!r} has no generator; those with one: {', '.join(GENERATORS)}")
    return import_module(f"optim.workloads.{problem}.generator")

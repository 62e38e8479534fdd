"""Reference instances by name: those that ship, and those too large for that, which are drawn anew and held to a digest."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, overload

from optim.core.errors import InvalidProblemError
from optim.models import reference
from optim.models.catalogue import problem_of
from optim.models.files import InstanceT, of_kind
from optim.models.reference_literals import AdmissionName, AuctionName, BiddingName
from optim.workloads.admission.generator import generate
from optim.workloads.admission.generator_options import GeneratorOptions

if TYPE_CHECKING:
    from optim.models.admission.instance import AdmissionInstance
    from optim.models.auction.instance import AuctionInstance
    from optim.models.bidding.instance import BiddingInstance


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How an admission instance is drawn, and the first 16 digits of the SHA-256 of its document."""

    options: GeneratorOptions
    seed: int
    digest: str


GENERATED: Mapping[str, Recipe] = MappingProxyType(
    {
        "xl-0": Recipe(
            options=GeneratorOptions(num_jobs=10_000, num_slots=1_000, num_worker_servers=500, num_ps_servers=500),
            seed=0,
            digest="82aaa34df4fb468f",
        ),
    }
)
"""`xl-0` has the generator's defaults but for its sizes; drawing it takes some 10 s."""


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
    """Return a reference instance by name.

    Parameters
    ----------
    name
        One of `optim.reference_names`, or of a large one that is drawn anew, such as ``xl-0``. Type checkers know which
        kind of instance each of those that ship is.
    kind
        For names that are known at run time only: what must be returned, such as `optim.AdmissionInstance`.

    Raises
    ------
    InvalidProblemError
        If there is none of that name (the text lists those there are), it is of another kind, or what is drawn isn't what
        was pinned.

    Examples
    --------
    >>> import optim
    >>> optim.reference_instance("tiny-0").num_jobs
    6
    """
    if name not in GENERATED:
        if name in reference.reference_names():
            return of_kind(reference.reference_instance(name), kind)
        known = ", ".join((*reference.reference_names(), *GENERATED))
        raise InvalidProblemError(f"no reference instance {name!r}; there are: {known}")
    return of_kind(drawn(name, GENERATED[name]), kind)


def drawn(name: str, recipe: Recipe) -> Any:
    """Return what a recipe draws, under a name.

    Raises
    ------
    InvalidProblemError
        If its digest isn't the recipe's.
    """
    instance = replace(generate(recipe.options, recipe.seed), name=name)
    digest = sha256(problem_of(instance).write_instance(instance)).hexdigest()[: len(recipe.digest)]
    if digest != recipe.digest:
        raise InvalidProblemError(
            f"{name}: the generator draws another instance here (digest {digest}, pinned {recipe.digest}); "
            "use a NumPy that draws the same random numbers, or an unchanged generator"
        )
    return instance

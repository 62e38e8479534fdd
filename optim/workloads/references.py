"""Reference instances by name: those that ship, and those too large for that, which are drawn anew and held to a digest."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from types import MappingProxyType
from typing import Any

from optim.core.errors import InvalidProblemError
from optim.models import reference
from optim.models.catalogue import problem_of
from optim.workloads.admission.generator import generate
from optim.workloads.admission.generator_options import GeneratorOptions


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


def reference_instance(name: str) -> Any:
    """Return a reference instance by name.

    Raises
    ------
    InvalidProblemError
        If there is none of that name (the text lists those there are), or if what is drawn isn't what was pinned.
    """
    if name not in GENERATED:
        if name in reference.reference_names():
            return reference.reference_instance(name)
        known = ", ".join((*reference.reference_names(), *GENERATED))
        raise InvalidProblemError(f"no reference instance {name!r}; there are: {known}")
    return drawn(name, GENERATED[name])


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

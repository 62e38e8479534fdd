"""Let Numba compile sooner for tests: compare its settings quickly, and say in a few words that slices don't fit."""

from typing import Any

from numba.core.extending import overload
from numba.core.targetconfig import TargetConfig
from numba.np import arrayobj


def values(settings: Any) -> dict[str, Any]:
    """Return all settings, set or left at their defaults, without asking a property for each."""
    own = settings._values
    return {name: own.get(name, option.default) for name, option in settings.options.items()}


def are_equal(one: Any, other: Any) -> bool:
    """Tell what Numba's own comparison tells, which lists all settings of both even of one object and itself."""
    if not isinstance(other, TargetConfig):
        return NotImplemented
    return one is other or one._values == other._values or values(one) == values(other)


def hash_of(settings: Any) -> int:
    """Return a hash by the settings' names, as Numba's is: it sorts a mapping and thereby forgets the values."""
    return hash(type(settings))


def refuse_slice(source, target):
    """Stand for what raises in a loop where a slice is assigned an array of another shape."""
    raise NotImplementedError


@overload(refuse_slice)
def compile_refusal(source, target):
    """Return what is compiled; Numba's own puts both shapes into words, which takes as long as a loop of a page."""

    def refuse(source, target):
        raise ValueError("the slice has another shape than the array assigned to it")

    return refuse


def compile_quickly() -> None:
    """Replace both for the life of this process; what is compiled does the same.

    Comparing settings, which Numba does at each operator that it types, is a twentieth of what compiling takes.
    """
    TargetConfig.values, TargetConfig.__eq__, TargetConfig.__hash__ = values, are_equal, hash_of
    arrayobj.raise_with_shape_context = refuse_slice

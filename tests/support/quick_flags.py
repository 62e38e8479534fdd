"""Let Numba compare its settings of a compilation quickly: it does at each operator it types, a twentieth of what compiling takes."""

from typing import Any

from numba.core.targetconfig import TargetConfig


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


def compare_flags_quickly() -> None:
    """Replace the comparison for the life of this process; what is compiled stays the same."""
    TargetConfig.values, TargetConfig.__eq__, TargetConfig.__hash__ = values, are_equal, hash_of

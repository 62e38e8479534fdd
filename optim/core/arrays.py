"""Arrays of instances and decisions: read-only arrays, integer arrays, and scaling by powers of two.

Scaling by a power of two is exact in both directions.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from functools import cache, cached_property, wraps
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from optim.core.errors import InvalidProblemError

SMALLEST_EXPONENT = -1000
"""Smallest exponent of a scale, so that its inverse is a double."""


def power_of_two_scale(most: float) -> float:
    """Return the power of two `s` with ``1 <= most / s < 2`` for `most` in (0, 1), else 1."""
    if not 0.0 < most < 1.0:
        return 1.0
    return math.ldexp(1.0, max(math.frexp(most)[1] - 1, SMALLEST_EXPONENT))


ValueT = TypeVar("ValueT")

IntArray = NDArray[np.int64]

FloatArray = NDArray[np.float64]

BoolArray = NDArray[np.bool_]

TextArray = NDArray[np.object_]

WHOLE_TOL = 1e-6
"""Largest distance from an integer at which values are rounded, since integer-programming solvers return 0.9999999 for 1."""

MAX_WHOLE = 2**63
"""Upper limit of the absolute value of integers, which are stored in 64 bits."""


class _ReadOnly(dict[Any, Any]):
    """Stand-in for a read-only mapping in pickles."""


class ComparesByValue:
    """Mixin for frozen dataclasses (``eq=False``) with arrays: equal if all fields are equal, with NaN equal to NaN.

    The generated comparison would fail on the truth value of an array. Equal objects have equal hashes, so that an
    unpickled instance finds the same entry of a dictionary.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other):
            return NotImplemented
        return all(_are_equal(getattr(self, each.name), getattr(other, each.name)) for each in _compared(self))

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields without cached values; `_ReadOnly` replaces read-only mappings, which cannot be pickled."""
        state = {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]
        return {
            name: _ReadOnly(value) if isinstance(value, MappingProxyType) else value for name, value in state.items()
        }

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Set the fields, and make arrays read-only again, because equality and hash depend on them."""
        for name, value in state.items():
            frozen = MappingProxyType(dict(value)) if isinstance(value, _ReadOnly) else read_only(value)
            object.__setattr__(self, name, frozen)

    def __hash__(self) -> int:
        return hash((type(self), *(_cheap_hash(getattr(self, each.name)) for each in _compared(self))))


def _compared(value: Any) -> list[Field[Any]]:
    return [each for each in fields(value) if each.compare]


def _are_equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        alike = isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and one.dtype == other.dtype
        return alike and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_are_equal, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_are_equal(part, other[key]) for key, part in one.items())
    return bool(one == other) or (_is_nan(one) and _is_nan(other))


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _cheap_hash(value: Any) -> int:
    """Return a hash that does not read the values of arrays."""
    if isinstance(value, np.ndarray):
        return hash(value.shape)
    if isinstance(value, tuple) and not all(isinstance(part, str | int) for part in value):
        return hash(len(value))
    try:
        return 0 if _is_nan(value) else hash(value)
    except TypeError:  # an unhashable value, such as a mapping
        return 0


def freeze_arrays(owner: Any) -> None:
    """Replace every array field of a frozen dataclass by a read-only view; call in `__post_init__`."""
    for name in _field_names(type(owner)):  # type: ignore[arg-type]
        value = getattr(owner, name)
        if isinstance(value, _WITH_ARRAYS):
            object.__setattr__(owner, name, read_only(value))


_WITH_ARRAYS = (np.ndarray, tuple)


@cache
def _field_names(owner: type) -> tuple[str, ...]:
    return tuple(each.name for each in fields(owner))


def read_only(value: Any) -> Any:
    """Return a read-only view of an array, or a tuple of such views; return other values unchanged."""
    if isinstance(value, tuple) and any(isinstance(part, np.ndarray) for part in value):
        return tuple(map(read_only, value))
    if not isinstance(value, np.ndarray) or not value.flags.writeable:
        return value
    view = value.view()
    view.setflags(write=False)
    return view


def derived(function: Callable[[Any], ValueT]) -> cached_property[ValueT]:
    """Make a `cached_property` with read-only arrays, so that no caller can change the cached value."""

    @wraps(function)
    def frozen(owner: Any) -> ValueT:
        value: ValueT = read_only(function(owner))
        return value

    return cached_property(frozen)


def own_whole_rows(owner: Any, columns: Mapping[str, int | None], what: str) -> None:
    """Replace fields of a frozen dataclass by read-only integer arrays that it owns; call in `__post_init__`.

    Lists and arrays of floats become integer arrays. The shapes of integer arrays are not checked here; the checker does it.

    Parameters
    ----------
    columns
        Length of the rows of each field; None for a one-dimensional field.
    what
        Owner of the fields in error messages: "a plan's".

    Raises
    ------
    InvalidProblemError
        If numbers are not integers, or rows have a different length.
    """
    for name, width in columns.items():
        if isinstance(field_value := getattr(owner, name), np.ndarray) and field_value.dtype.kind in "iu":
            object.__setattr__(
                owner, name, read_only(field_value.copy() if field_value.flags.writeable else field_value)
            )
            continue
        table = whole_numbers(field_value, f"{what} {name}")
        if table.size == 0:
            table = table.reshape((0,) if width is None else (0, width))
        if table.ndim != (1 if width is None else 2) or (width is not None and table.shape[1] != width):
            wanted = "a sequence of numbers" if width is None else f"rows of {width} numbers"
            raise InvalidProblemError(f"{what} {name} must be {wanted}, got the shape {table.shape}")
        object.__setattr__(owner, name, read_only(table))


def whole_numbers(values: Any, what: str) -> NDArray[np.int64]:
    """Convert values to integers; values within 1e-6 of an integer are rounded.

    Parameters
    ----------
    values
        Numbers in nested sequences, or an array.
    what
        Name of the values in error messages: "a plan's rows".

    Raises
    ------
    InvalidProblemError
        If a value is not within 1e-6 of an integer, not finite, or does not fit 64 bits.
    """
    try:
        array = np.asarray(values)
        if array.dtype.kind in "iub" and (array.dtype != np.uint64 or int(array.max(initial=0)) < MAX_WHOLE):
            return np.array(array, dtype=np.int64)
        numbers = np.array(array, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidProblemError(f"{what} must be whole numbers, got {str(values)[:40]}") from None
    nearest = np.rint(numbers)
    with np.errstate(invalid="ignore"):
        is_whole = (np.abs(numbers - nearest) <= WHOLE_TOL) & (np.abs(numbers) < MAX_WHOLE)
    if not is_whole.all():
        bad = float(numbers[~is_whole].flat[0])
        raise InvalidProblemError(
            f"{what} must be whole numbers below 2^63 in absolute value, got {bad!r}; round to a feasible plan first"
        )
    return nearest.astype(np.int64)

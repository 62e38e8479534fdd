"""One way to say that a value is out of its range, for everything that validates itself."""

import math
from collections.abc import Collection, Mapping
from functools import cache
from numbers import Integral
from typing import Any

from optim.core.errors import InvalidOptionError


def check_in(interval: str, options: object, *names: str) -> None:
    """Raise unless values are in an interval; None stands for an option that is absent.

    Parameters
    ----------
    interval
        As it is written: ``[1, inf)``, ``(0, 1]``. No value is infinite, or not a number.
    options
        An object with these attributes, or a mapping.
    names
        Which of them are looked at; of a mapping all, if none is named.

    Raises
    ------
    InvalidOptionError
        At the first that isn't: ``num_jobs must be at least 1, got 0``.

    Examples
    --------
    >>> check_in("(0, 1]", {"share": 0.5, "most": None})
    """
    low, high, is_low_in, is_high_in, words = _parse(interval)
    for name, value in _values(options, names):
        if value is None:
            continue
        try:
            is_above = value >= low if is_low_in else value > low
            is_below = value <= high if is_high_in else value < high
        except TypeError as error:
            raise InvalidOptionError(f"{name} must be a number, {words}, got {value!r}") from error
        if not (is_above and is_below):
            raise InvalidOptionError(f"{name} must be {words}, got {value}")


def check_seed(seed: Any) -> None:
    """Raise InvalidOptionError unless a seed is a whole number of at least 0."""
    if isinstance(seed, bool) or not isinstance(seed, Integral) or seed < 0:
        raise InvalidOptionError(f"seed must be a whole number of at least 0, got {seed!r}")


def check_choices(options: object, known: Mapping[str, Collection[str]]) -> None:
    """Raise InvalidOptionError unless each option named is one of the texts known for it."""
    for name, value in _values(options, tuple(known)):
        if value not in known[name]:
            raise InvalidOptionError(f"{name} must be one of {', '.join(known[name])}, got {value!r}")


def _values(options: object, names: tuple[str, ...]) -> list[tuple[str, Any]]:
    if isinstance(options, Mapping):
        return [(name, options[name]) for name in names or options]
    return [(name, getattr(options, name)) for name in names]


@cache
def _parse(interval: str) -> tuple[float, float, bool, bool, str]:
    """Return the ends, whether they belong to it, and the interval in words."""
    low, high = interval[1:-1].split(", ")
    is_low_in = interval[0] == "["
    words = f"in {interval}"
    if math.isinf(float(high)):
        words = f"at least {low}" if is_low_in else "positive" if low == "0" else f"above {low}"
    return float(low), float(high), is_low_in, interval[-1] == "]", words

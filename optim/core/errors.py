"""The exceptions of the library, and checks with shared message texts.

Every message states the cause, the offending value, and the correction.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from numbers import Integral
from typing import Any

from optim.core.renamed import present_name


class OptimError(Exception):
    """Base of every exception raised on purpose by this library.

    Examples
    --------
    >>> import optim
    >>> try:
    ...     optim.reference_instance("tiny-9")
    ... except optim.OptimError as error:
    ...     print(error)
    no reference instance 'tiny-9'; did you mean tiny-2 or tiny-1?
    """


class InvalidProblemError(OptimError, ValueError):
    """An instance, decision or file is invalid."""


class InvalidOptionError(OptimError, ValueError):
    """An option is unknown or out of its range."""


class UnsupportedProblemError(OptimError):
    """The solver does not support instances of this form."""


class NotAllowedError(OptimError):
    """The call is not allowed in the current state."""


class TrainingError(OptimError):
    """The code of a training job failed, or returned values with which training cannot continue."""


class MissingDependencyError(OptimError, ImportError):
    """An optional package is absent; the message names the extra that installs it."""


class EngineError(OptimError, RuntimeError):
    """Workers of an execution engine cannot be reached, or are incompatible with this process."""


class SolverError(OptimError, RuntimeError):
    """A solver of another library ended with an error; its values are neither a solution nor a bound."""


class CertificateRefusedError(OptimError):
    """The checker refused a solution, because it does not prove its claims."""


MOST = 2

LONGEST = 100
"""Maximum characters of a name to compare; the time of matching grows with the square."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint: the present name if `name` is a former name, else the closest known names; "" if there are none.

    Examples
    --------
    >>> did_you_mean("serach", ["online", "search"])
    'did you mean search? '
    >>> did_you_mean("most_jobs", ["max_jobs"])
    'take max_jobs; '
    >>> did_you_mean("moon", ["online", "search"])
    ''
    """
    names = list(known)
    if present := present_name(name, names):
        return f"take {present}; "
    near = get_close_matches(name[:LONGEST], names, n=MOST)
    return f"did you mean {' or '.join(near)}? " if near else ""


def unknown_name(what: str, name: str, known: Iterable[str], besides: str = "") -> InvalidOptionError:
    """Return the error for an unknown name, with a hint (`did_you_mean`) and all known names.

    Parameters
    ----------
    what
        Type of the named object, such as ``"policy"``.
    besides
        Text about further possibilities, appended to the known names.

    Examples
    --------
    >>> print(unknown_name("solver", "serach", ["online", "search"]))
    unknown solver 'serach'; did you mean search? there are: online, search
    """
    names = list(known)
    shown = name if len(name) <= LONGEST else f"{name[:LONGEST]}..."
    return InvalidOptionError(
        f"unknown {what} {shown!r}; {did_you_mean(name, names)}there are: {', '.join(names) or 'none'}{besides}"
    )


def check_in(interval: str, options: object, *names: str) -> None:
    """Raise unless values are in an interval; None values are skipped.

    Parameters
    ----------
    interval
        Interval in mathematical notation, such as ``[1, inf)`` or ``(0, 1]``; both exclude NaN and infinity.
    options
        An object with attributes `names`, or a mapping.
    names
        Attributes or keys to check; by default all keys of a mapping.

    Raises
    ------
    InvalidOptionError
        At the first value outside the interval: ``num_jobs must be at least 1, got 0``.

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
    """Raise InvalidOptionError unless the value of each option in `known` is one of its known values."""
    for name, value in _values(options, tuple(known)):
        if value not in known[name]:
            raise InvalidOptionError(f"{name} must be one of {', '.join(known[name])}, got {value!r}")


def _values(options: object, names: tuple[str, ...]) -> list[tuple[str, Any]]:
    if isinstance(options, Mapping):
        return [(name, options[name]) for name in names or options]
    return [(name, getattr(options, name)) for name in names]


@cache
def _parse(interval: str) -> tuple[float, float, bool, bool, str]:
    """Return the ends of an interval, whether it includes each end, and its description."""
    low, high = interval[1:-1].split(", ")
    is_low_in = interval[0] == "["
    words = f"in {interval}"
    if math.isinf(float(high)):
        words = f"at least {low}" if is_low_in else "positive" if low == "0" else f"above {low}"
    return float(low), float(high), is_low_in, interval[-1] == "]", words

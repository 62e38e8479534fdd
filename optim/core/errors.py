"""The exceptions of the library, and the sentences that their texts share.

Every message states the cause, the offending value, and what to do about it.
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
    ...     print(str(error)[:34])
    no reference instance 'tiny-9'; th
    """


class InvalidProblemError(OptimError, ValueError):
    """An instance, decision or file contradicts its own definition."""


class InvalidOptionError(OptimError, ValueError):
    """An option is unknown or out of its range."""


class UnsupportedProblemError(OptimError):
    """The solver can never treat an instance of this form."""


class NotAllowedError(OptimError):
    """The call is possible in general, but not in the present state."""


class TrainingError(OptimError):
    """A training job's own code failed, or computed what no training can go on with."""


class MissingDependencyError(OptimError, ImportError):
    """An optional package is absent; the message names the extra that installs it."""


class EngineError(OptimError, RuntimeError):
    """Workers that were to do pieces of work cannot be reached, or do not fit this process."""


class SolverError(OptimError, RuntimeError):
    """A solver of another library ended with an error; what it holds is no answer, and proves nothing."""


class CertificateRefusedError(OptimError):
    """A solution does not prove what it claims."""


MOST = 2

LONGEST = 100
"""Characters of a name that are compared: matching takes time that grows with the square."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return what to write for a former name, or else a question that names the nearest of the known names.

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
    """Return the error for an unknown name, to be raised: what it names, its present or nearest name, all names known.

    Parameters
    ----------
    what
        What the name names: ``"policy"``.
    besides
        What is possible besides the known names, after them.

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

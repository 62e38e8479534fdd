"""Solver options: frozen dataclasses that validate themselves, built from mappings or TOML files."""

import dataclasses
import inspect
import itertools
import math
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from enum import Enum
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from optim.core.errors import InvalidOptionError, InvalidProblemError, unknown_name
from optim.core.files import read_bytes

OptionsT = TypeVar("OptionsT")

LARGEST, SMALLEST = 1e100, 1e-100
"""Largest and smallest absolute value of nonzero options; products of larger or smaller ones may overflow or underflow."""

MIN_WHOLE, MAX_WHOLE = -(2**63), 2**63 - 1
"""Range of whole numbers, which must fit into 64 bits for arrays and compiled loops."""

_MAX_BITS_SHOWN = 256


class OptionText(str):
    """A value from the command line (`NAME=VALUE`), which `build_options` parses; it does not parse other strings."""

    __slots__ = ()


_IN_WORDS: Mapping[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    type(None): "absent",
}


def build_options(options_type: type[OptionsT], given: OptionsT | Mapping[str, Any] | None) -> OptionsT:
    """Build validated options from a mapping; return an options object unchanged.

    Parameters
    ----------
    options_type
        A dataclass type; its `__post_init__` validates ranges.
    given
        An instance of it, a mapping of field names to values, or None for the defaults. Numbers, booleans and lists
        are parsed only from an `OptionText`, not from a plain string such as ``"5"``.

    Raises
    ------
    InvalidOptionError
        If a name is unknown, a value cannot be converted, or a number is too large or too small.
    """
    if given is None:
        return options_type()
    if isinstance(given, options_type):
        for name, value in options_as_dict(given).items():
            _check_size(name, value)
        return given
    if not isinstance(given, Mapping):
        raise InvalidOptionError(f"options must be a mapping or {options_type.__name__}, got {type(given).__name__}")
    fields = {field.name: field for field in named_fields(options_type)}
    hints = typing.get_type_hints(options_type)
    unknown = [name for name in given if name not in fields]
    if unknown:
        raise unknown_name("option", str(unknown[0]), sorted(fields))
    values = {name: _convert(name, value, hints[name]) for name, value in given.items()}
    for name, value in values.items():
        _check_size(name, value)
    return options_type(**values)


def read_options(path: str | Path) -> dict[str, Any]:
    """Read a mapping of options from a TOML file.

    Raises
    ------
    InvalidOptionError
        If the file cannot be read or is not TOML.
    """
    try:
        return tomllib.loads(read_bytes(path).decode())
    except InvalidProblemError as error:
        raise InvalidOptionError(f"options file {error}") from error
    except (ValueError, RecursionError) as error:  # ValueError also for integers of thousands of digits
        raise InvalidOptionError(f"options file {path}: not valid TOML: {error}; write NAME = VALUE lines") from error


def options_as_dict(options: Any) -> dict[str, Any]:
    """Return an options dataclass as a plain mapping, for records."""
    return {field.name: getattr(options, field.name) for field in named_fields(options)}


NOT_BY_NAME: Mapping[str, bool] = {"is_by_name": False}
"""Metadata of a field that is set by code, not as an option."""


def named_fields(options: Any) -> list[dataclasses.Field[Any]]:
    """Return the fields of an options dataclass that are options."""
    return [field for field in dataclasses.fields(options) if field.metadata.get("is_by_name", True)]


def option_meanings(options_type: type[Any]) -> dict[str, str]:
    """Return the meaning of each option, from the docstrings of the class and its bases.

    Examples
    --------
    >>> class Options:
    ...     '''Options of a search.
    ...
    ...     Parameters
    ...     ----------
    ...     first, last
    ...         Slots to search, both
    ...         included.
    ...     '''
    >>> option_meanings(Options)
    {'first': 'Slots to search, both included.', 'last': 'Slots to search, both included.'}
    """
    meanings = {name: text for base in options_type.__mro__[1:-1] for name, text in option_meanings(base).items()}
    return meanings | described_fields(inspect.getdoc(options_type) or "")[1]


def described_fields(text: str) -> tuple[str, dict[str, str]]:
    """Split a docstring at its ``Parameters`` or ``Attributes`` section: the text before it, and each field's meaning."""
    lines = inspect.cleandoc(text).splitlines()
    start = next((k for k in range(1, len(lines)) if lines[k - 1 : k + 1] in SECTIONS), len(lines) + 1)
    meanings: dict[str, str] = {}
    names: list[str] = []
    for line, following in itertools.pairwise([*lines[start + 1 :], ""]):
        if following.startswith("---"):  # the next section
            break
        if line.startswith(" "):
            meanings.update({name: f"{meanings[name]} {line.strip()}".strip() for name in names})
        elif line:
            names = [name.strip() for name in line.partition(":")[0].split(",")]
            meanings.update(dict.fromkeys(names, ""))
    return "\n".join(lines[: start - 1]).strip(), meanings


SECTIONS = [[title, "-" * len(title)] for title in ("Parameters", "Attributes")]


def _convert(name: str, value: Any, hint: Any) -> Any:
    """Convert a command-line value to the annotated type; other values only if their type fits."""
    alternatives = (
        typing.get_args(hint)
        if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
        else (hint,)
    )
    if value is None and type(None) in alternatives:
        return None
    for kind in alternatives:
        if kind is bool:
            if isinstance(value, bool):
                return value
            if isinstance(value, OptionText) and value.lower() in ("true", "false"):
                return value.lower() == "true"
        elif typing.get_origin(kind) is tuple:
            parts, hints = _parts(value), typing.get_args(kind)
            if parts is not None and Ellipsis in hints:
                return tuple(_convert(name, part, hints[0]) for part in parts)
            if parts is not None and len(parts) == len(hints):
                return tuple(_convert(name, part, part_hint) for part, part_hint in zip(parts, hints, strict=True))
        elif isinstance(kind, type) and kind is not type(None):
            if isinstance(value, bool):  # a subclass of int
                continue
            if isinstance(value, kind):
                return str(value) if kind is str else value
            if kind in (int, float) and isinstance(value, str) and not isinstance(value, OptionText):
                continue
            if kind is str and not isinstance(value, int | float | PathLike):  # str() accepts any object
                continue
            try:
                if kind is int and isinstance(value, float) and value != int(value):
                    continue
                return kind(value)
            except (TypeError, ValueError, OverflowError):
                continue
    expected = " or ".join(_describe(kind) for kind in alternatives)
    raise InvalidOptionError(f"option {name!r} must be {expected}, got {_shown(value)}{_remedy(name, value, hint)}")


def _remedy(name: str, value: Any, hint: Any) -> str:
    """Return advice if a plain string would be valid on the command line."""
    if not isinstance(value, str) or isinstance(value, OptionText):
        return ""
    try:
        meant = _convert(name, OptionText(value), hint)
    except InvalidOptionError:
        return ""
    return f", a string; write {meant!r}"


def _parts(value: Any) -> Sequence[Any] | None:
    """Return the parts of a list or of a comma-separated command-line value; None for other values."""
    if isinstance(value, OptionText):
        return [OptionText(part) for part in value.split(",")] if value else ()
    return value if isinstance(value, list | tuple) else None


def _check_size(name: str, value: Any) -> None:
    """Raise InvalidOptionError if a number is NaN, too large or too small; range checks reject infinity."""
    if isinstance(value, tuple):
        for part in value:
            _check_size(name, part)
    elif isinstance(value, float):
        if math.isnan(value) or (math.isfinite(value) and value != 0 and not SMALLEST <= abs(value) <= LARGEST):
            raise InvalidOptionError(
                f"option {name!r} must be 0, or between {SMALLEST:g} and {LARGEST:g} in absolute value, got {value}"
            )
    elif isinstance(value, int) and not MIN_WHOLE <= value <= MAX_WHOLE:
        raise InvalidOptionError(f"option {name!r} must be between -2^63 and 2^63 - 1, got {_shown(value)}")


def _shown(value: Any) -> str:
    """Return a value as text; Python's `repr` fails for integers of thousands of digits."""
    if isinstance(value, int) and value.bit_length() > _MAX_BITS_SHOWN:
        return f"a number of {value.bit_length()} bits"
    return repr(value)


def _describe(kind: Any) -> str:
    """Describe the type of a value; for an enumeration, list its values."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "one of " + ", ".join(str(member.value) for member in kind)
    if typing.get_origin(kind) is tuple:
        if Ellipsis in typing.get_args(kind):
            return f"a list, each entry {_describe(typing.get_args(kind)[0])} (NAME=A,B,...)"
        return " and ".join(map(_describe, typing.get_args(kind))) + " (NAME=A,B)"
    return _IN_WORDS.get(kind, getattr(kind, "__name__", str(kind)))

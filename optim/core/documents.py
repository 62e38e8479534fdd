"""JSON documents in and out: one clear line for whatever is wrong with a file."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from optim.core.errors import InvalidProblemError

DocumentT = TypeVar("DocumentT")

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

MOST_WHOLE = 2**53
"""Largest whole number in a document: beyond it readers that use doubles would see another one."""

Whole = Annotated[int, Meta(ge=-MOST_WHOLE, le=MOST_WHOLE)]
Count = Annotated[int, Meta(ge=0, le=MOST_WHOLE)]
PositiveInt = Annotated[int, Meta(ge=1, le=MOST_WHOLE)]
Name = Annotated[str, Meta(min_length=1)]

_AT_PATH = re.compile(r"^(?P<cause>.*?) - at `(?P<path>[^`]*)`$", re.DOTALL)
_NOT_JSON_NUMBERS = ("NaN", "Infinity", "-Infinity")


class _NotANumber:
    """Mark where a document holds a constant that JSON does not have."""

    def __init__(self, text: str) -> None:
        self.text = text


def decode(data: bytes, document_type: type[DocumentT]) -> DocumentT:
    """Decode JSON into a document type, decimals exact.

    Raises
    ------
    InvalidProblemError
        Naming the path of the bad field and the remedy.
    """
    document = _decoded(data, document_type)
    try:
        json.loads(data, object_pairs_hook=_distinct_keys, parse_int=float)
    except UnicodeDecodeError as error:  # in a field that the document type leaves out
        raise InvalidProblemError(_why_malformed(data, str(error))) from error
    return document


def _decoded(data: bytes, document_type: type[DocumentT]) -> DocumentT:
    """Decode JSON, whether or not a field is given twice."""
    try:
        return msgspec.json.decode(data, type=document_type)
    except msgspec.ValidationError as error:
        raise InvalidProblemError(_with_path(str(error))) from error
    except RecursionError as error:
        raise InvalidProblemError(
            "document: is nested too deeply; give a file that another tool wrote whole"
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidProblemError(_why_malformed(data, str(error))) from error


def convert(data: Any, kind: Any, what: str = "solution") -> Any:
    """Turn plain values, such as those of a solution file, into a document type; `what` they are of is named in errors.

    Raises
    ------
    InvalidProblemError
        Naming the path of the bad field.
    """
    try:
        return msgspec.convert(data, kind, strict=True)
    except msgspec.ValidationError as error:
        raise InvalidProblemError(f"{what}: {error}") from error


def distinct(entries: Iterable[tuple[KeyT, ValueT]], kind: str) -> dict[KeyT, ValueT]:
    """Return entries by their keys.

    Raises
    ------
    InvalidProblemError
        If a key comes twice: no reader could tell which of the two was meant.
    """
    found: dict[KeyT, ValueT] = {}
    for key, value in entries:
        if key in found:
            raise InvalidProblemError(f"solution lists {kind} {key!r} twice; leave one of the two out")
        found[key] = value
    return found


class Numbering:
    """Numbers of an instance's names, as solution files use them.

    Parameters
    ----------
    names
        In the order of their numbers.
    kind
        What they name, for messages.
    """

    def __init__(self, names: Sequence[str], kind: str) -> None:
        self._number = {name: number for number, name in enumerate(names)}
        self._kind = kind

    def __len__(self) -> int:
        return len(self._number)

    def __getitem__(self, name: str) -> int:
        if name not in self._number:
            raise InvalidProblemError(
                f"solution names {self._kind} {name!r}, which the instance lacks; check that the two belong together"
            )
        return self._number[name]


def encode(document: Any) -> bytes:
    """Encode a document as JSON: decimals as numbers, one line feed at the end."""
    return msgspec.json.format(_ENCODER.encode(document), indent=1) + b"\n"


def encode_line(record: Any) -> bytes:
    """Encode a record as one line of JSON; NaN and infinities become null."""
    return _ENCODER.encode(record)


def peek_schema(data: bytes) -> str:
    """Return the text of a document's field `schema`.

    Raises
    ------
    InvalidProblemError
        If the data isn't JSON, or names no schema.
    """

    class Header(msgspec.Struct):
        schema: str

    return _decoded(data, Header).schema


def json_schema(document_type: type[Any], schema: str) -> dict[str, Any]:
    """Return the JSON Schema of a file format; decimals are numbers, as they are in the files."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": schema}
    return {**head, **_with_numbers(msgspec.json.schema(document_type))}


def _with_numbers(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_with_numbers(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("format") == "decimal":
        schema = {name: value for name, value in schema.items() if name != "format"} | {"type": "number"}
    return {name: _with_numbers(value) for name, value in schema.items()}


_ENCODER = msgspec.json.Encoder(decimal_format="number")


def _distinct_keys(pairs: list[tuple[str, Any]]) -> None:
    """Refuse an object in which a key comes twice: decoders keep the last one, people read the first."""
    keys = [key for key, _ in pairs]
    if len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise InvalidProblemError(f"the field {twice!r} is given twice in one object; leave one of the two out")


def _with_path(text: str) -> str:
    """Turn the decoder's message into ``path: cause``, with a remedy for the commonest causes."""
    match = _AT_PATH.match(text)
    cause, path = (match["cause"], match["path"].removeprefix("$.")) if match else (text, "document")
    path = "document" if path in ("$", "") else path
    if "unknown field" in cause:
        cause += "; remove it or correct its spelling"
    elif "missing required field" in cause:
        cause += "; add it"
    elif path == "document" and cause.startswith("Expected `object`"):
        cause += "; give a file of fields and values, '{...}'"
    return f"{path}: {cause[0].lower()}{cause[1:]}"


def _why_malformed(data: bytes, cause: str) -> str:
    """Say where a text stops being JSON; NaN and infinities are traced to their field."""
    if not data.strip():
        return "the file is empty; write it again"
    try:
        parsed = json.loads(data, parse_constant=_NotANumber)
    except (ValueError, UnicodeDecodeError, RecursionError) as error:
        return f"not valid JSON: {error}; check that the file is whole"
    path = _find_constant(parsed, "")
    if path is None:
        return f"not valid JSON: {cause}"
    return f"{path[0]}: must be a finite number, got {path[1]}; JSON has no {' or '.join(_NOT_JSON_NUMBERS[:2])}"


def _find_constant(value: Any, path: str) -> tuple[str, str] | None:
    if isinstance(value, _NotANumber):
        return path or "document", value.text
    if isinstance(value, dict):
        children = ((f"{path}.{key}" if path else str(key), child) for key, child in value.items())
    elif isinstance(value, list):
        children = ((f"{path}[{index}]", child) for index, child in enumerate(value))
    else:
        return None
    for child_path, child in children:
        found = _find_constant(child, child_path)
        if found is not None:
            return found
    return None

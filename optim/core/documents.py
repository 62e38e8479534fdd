"""JSON documents in and out: one clear line for whatever is wrong with a file."""

import json
import re
from typing import Any, TypeVar

import msgspec

from optim.core.errors import InvalidProblemError

DocumentT = TypeVar("DocumentT")

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
    try:
        return msgspec.json.decode(data, type=document_type)
    except msgspec.ValidationError as error:
        raise InvalidProblemError(_with_path(str(error))) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidProblemError(_why_malformed(data, str(error))) from error


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

    return decode(data, Header).schema


_ENCODER = msgspec.json.Encoder(decimal_format="number")


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

"""Reading and writing JSON documents, with one-line errors that name the wrong field."""

import codecs
import gc
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta
from msgspec.inspect import EnumType, LiteralType, StructType, TupleType, UnionType

from optim.core.errors import InvalidProblemError
from optim.core.limits import check_limit
from optim.core.options import described_fields

DocumentT = TypeVar("DocumentT")

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

MAX_WHOLE = 2**53
"""Largest whole number in a document; readers that use doubles would change larger ones."""

Whole = Annotated[int, Meta(ge=-MAX_WHOLE, le=MAX_WHOLE)]
Count = Annotated[int, Meta(ge=0, le=MAX_WHOLE)]
PositiveInt = Annotated[int, Meta(ge=1, le=MAX_WHOLE)]
Name = Annotated[str, Meta(min_length=1)]

_AT_PATH = re.compile(r"^(?P<cause>.*?) - at `(?P<path>[^`]*)`$", re.DOTALL)
_HALF = re.compile("[\ud800-\udfff]")
_NOT_JSON_NUMBERS = ("NaN", "Infinity", "-Infinity")


class _NotANumber:
    """Marker for a constant that is not part of JSON."""

    def __init__(self, text: str) -> None:
        self.text = text


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the cyclic garbage collector, which would traverse the millions of objects of a large document repeatedly."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def decode(data: bytes, document_type: type[DocumentT]) -> DocumentT:
    """Decode JSON into a document type, with exact decimals; skip a UTF-8 byte order mark.

    Raises
    ------
    InvalidProblemError
        If the document is invalid (the message names the wrong field and the correction) or exceeds a limit.
    """
    data = _without_mark(data)
    check_limit("objects", data.count(b"{"), "JSON objects")
    check_limit("lists", data.count(b"["), "JSON lists")
    check_limit("values", data.count(b","), "JSON values")
    document = _decoded(data, document_type)
    try:
        json.loads(data, object_pairs_hook=_distinct_keys, parse_int=float)
    except UnicodeDecodeError as error:  # in a field that the document type lacks, which `_decoded` skips
        raise InvalidProblemError(_why_malformed(data, str(error))) from error
    return document


def first_sign(data: bytes) -> bytes:
    """Return the first byte after white space and a byte order mark; empty for an empty text."""
    return _without_mark(data).lstrip()[:1]


def _without_mark(data: bytes) -> bytes:
    return data.removeprefix(codecs.BOM_UTF8)


def _decoded(data: bytes, document_type: type[DocumentT]) -> DocumentT:
    """Decode JSON without checking for duplicate fields."""
    try:
        return msgspec.json.decode(data, type=document_type)
    except msgspec.ValidationError as error:
        raise InvalidProblemError(_with_path(str(error)) + _choices(str(error), document_type)) from error
    except RecursionError as error:
        raise InvalidProblemError("document: is nested too deeply; check that the file is complete") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidProblemError(_why_malformed(data, str(error))) from error


def convert(data: Any, kind: Any, what: str = "solution") -> Any:
    """Convert plain values, such as those of a solution file, to a document type; errors begin with `what`.

    Raises
    ------
    InvalidProblemError
        If the values do not fit the type; the message contains the path of the wrong field.
    """
    try:
        return msgspec.convert(data, kind, strict=True)
    except msgspec.ValidationError as error:
        raise InvalidProblemError(f"{what}: {_in_words(_with_path(str(error)))}{_choices(str(error), kind)}") from error


_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "None",
}
"""Descriptions of the decoder's type names."""


def _in_words(text: str) -> str:
    """Replace type names in a decoder's message: ``horizon: expected a whole number of at least 1``."""
    text = re.sub(r"`(\w+)`", lambda match: _WORDS.get(match[1], f"`{match[1]}`"), text)
    return text.replace(" >= ", " of at least ").replace(" <= ", " of at most ")


def distinct(entries: Iterable[tuple[KeyT, ValueT]], kind: str) -> dict[KeyT, ValueT]:
    """Return a dictionary of the entries; `kind` is the type of the keys in errors.

    Raises
    ------
    InvalidProblemError
        If a key occurs twice, which is ambiguous.
    """
    by_key: dict[KeyT, ValueT] = {}
    for key, value in entries:
        if key in by_key:
            raise InvalidProblemError(f"solution lists {kind} {key!r} twice; remove one")
        by_key[key] = value
    return by_key


class Numbering:
    """Map the names in solution files to indices of the instance.

    Parameters
    ----------
    names
        Names in the order of their indices.
    kind
        Type of the named objects, for messages.
    """

    def __init__(self, names: Sequence[str], kind: str) -> None:
        self._number = {name: number for number, name in enumerate(names)}
        self._kind = kind

    def __len__(self) -> int:
        return len(self._number)

    def __getitem__(self, name: str) -> int:
        if name not in self._number:
            raise InvalidProblemError(
                f"solution refers to {self._kind} {name!r}, which the instance lacks; check that the solution belongs to this instance"
            )
        return self._number[name]


def encode(document: Any) -> bytes:
    """Encode a document as JSON with decimals as numbers and a final line feed."""
    return msgspec.json.format(_ENCODER.encode(document), indent=1) + b"\n"


def encode_line(record: Any) -> bytes:
    """Encode a record as one line of JSON; NaN and infinities become null."""
    return _ENCODER.encode(record)


def peek_schema(data: bytes) -> str:
    """Return the text of a document's field `schema`.

    Raises
    ------
    InvalidProblemError
        If the data are not JSON, or lack a schema.
    """

    class Header(msgspec.Struct):
        schema: str

    return _decoded(_without_mark(data), Header).schema


def json_schema(document_type: type[Any], schema: str) -> dict[str, Any]:
    """Return the JSON Schema of a file format; decimals are numbers, as in the files.

    The ``Parameters`` section in the docstring of a class gives the descriptions of its fields.
    """
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": schema}
    return {**head, **_with_descriptions(msgspec.json.schema(document_type))}


def _with_descriptions(schema: Any) -> Any:
    """Declare decimals as numbers, and move each field's text from the docstring of its class to the field."""
    if isinstance(schema, list):
        return [_with_descriptions(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("format") == "decimal":
        schema = {name: value for name, value in schema.items() if name != "format"} | {"type": "number"}
    schema = {name: _with_descriptions(value) for name, value in schema.items()}
    if "properties" in schema and isinstance(schema.get("description"), str):
        schema["description"], meanings = described_fields(schema["description"])
        for name, meaning in meanings.items():
            if name in schema["properties"]:
                schema["properties"][name]["description"] = meaning
    return schema


def _as_text(value: Any) -> str:
    """Return an instance of a subclass of `str`, such as `OptionText`, as a plain `str`."""
    if isinstance(value, str):
        return str(value)
    raise NotImplementedError


_ENCODER = msgspec.json.Encoder(decimal_format="number", enc_hook=_as_text)


def _distinct_keys(pairs: list[tuple[str, Any]]) -> None:
    """Raise if a key occurs twice in an object: decoders keep the last value, but a person may read the first."""
    if len(dict(pairs)) < len(pairs):
        keys = [key for key, _ in pairs]
        seen: set[str] = set()
        twice = next(key for key in keys if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise InvalidProblemError(f"the field {twice!r} is given twice in one object; remove one")


def _with_path(text: str) -> str:
    """Turn the decoder's message into ``path: cause``, with a correction for common causes."""
    match = _AT_PATH.match(text)
    cause, path = (match["cause"], match["path"].removeprefix("$.").removeprefix("$")) if match else (text, "document")
    path = "document" if path in ("$", "") else path
    if "unknown field" in cause:
        cause += "; remove it or correct its spelling"
    elif "missing required field" in cause:
        cause += "; add it"
    elif path == "document" and cause.startswith("Expected `object`"):
        cause += "; give a file of fields and values, '{...}'"
    return f"{path}: {cause[0].lower()}{cause[1:]}"


def _choices(text: str, kind: Any) -> str:
    """Return the allowed values if the decoder's message is about a wrong value of an enumeration."""
    match = _AT_PATH.match(text)
    if match is None or not match["cause"].startswith("Invalid enum value"):
        return ""
    kinds = [msgspec.inspect.type_info(kind)]
    for name, index in re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", match["path"]):
        kinds = [inner for each in kinds for inner in _inner_kinds(each, name, index)]
    choices: list[str] = []
    for each in _flat_kinds(kinds):
        if isinstance(each, EnumType | LiteralType):
            choices += map(str, each.values if isinstance(each, LiteralType) else [one.value for one in each.cls])
    return f"; must be one of {', '.join(choices)}" if choices else ""


def _inner_kinds(kind: Any, name: str, index: str) -> list[Any]:
    """Return the types that a field, or an entry of a list, may have."""
    inner: list[Any] = []
    for each in _flat_kinds([kind]):
        if name and isinstance(each, StructType):
            inner += [field.type for field in each.fields if field.encode_name == name]
        elif index and isinstance(each, TupleType):
            inner += [each.item_types[int(index)]] if index.isdigit() and int(index) < len(each.item_types) else []
        elif hasattr(each, "item_type") or hasattr(each, "value_type"):
            inner.append(getattr(each, "item_type", None) or each.value_type)
    return inner


def _flat_kinds(kinds: Iterable[Any]) -> list[Any]:
    """Return types with each union replaced by its members."""
    return [inner for kind in kinds for inner in (_flat_kinds(kind.types) if isinstance(kind, UnionType) else [kind])]


def _why_malformed(data: bytes, cause: str) -> str:
    """Describe why a text is not JSON; name the field of NaN, infinities and lone surrogates."""
    if not data.strip():
        return "the file is empty; write it again"
    try:
        parsed = json.loads(data, parse_constant=_NotANumber)
    except (ValueError, UnicodeDecodeError, RecursionError) as error:
        return f"not valid JSON: {error}; check that the file is complete"
    first = _first(parsed, lambda value: isinstance(value, _NotANumber))
    if first is not None:
        place, constant = first
        return (
            f"{place}: must be a finite number, got {constant.text}; JSON has no {' or '.join(_NOT_JSON_NUMBERS[:2])}"
        )
    first = _first(parsed, lambda value: isinstance(value, str) and _HALF.search(value) is not None)
    if first is not None:
        place, text = first
        half = ascii(_HALF.findall(text)[0])[1:-1]
        return f"{place}: has a lone surrogate, {half}; write the full character, or remove it"
    return f"not valid JSON: {cause}; check that the file is complete"


def _first(value: Any, is_wrong: Callable[[Any], bool], path: str = "") -> tuple[str, Any] | None:
    """Return path and value of the first wrong value or field name; a field name has the path of its object."""
    if is_wrong(value):
        return path or "document", value
    for child_path, child in _children(value, path):
        first = _first(child, is_wrong, child_path)
        if first is not None:
            return first
    return None


def _children(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield field names with the path of their object, and values of fields and lists with their own paths."""
    if isinstance(value, dict):
        for name, child in value.items():
            yield path, name
            yield f"{path}.{name}" if path else name, child
    elif isinstance(value, list):
        yield from ((f"{path}[{index}]", child) for index, child in enumerate(value))

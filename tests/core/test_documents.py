"""JSON input and output: errors give the place and the cause in one line."""

import gc
import json
from enum import Enum
from typing import Literal

import msgspec
import pytest

from optim.core.documents import (
    MAX_WHOLE,
    Numbering,
    Whole,
    collector_paused,
    convert,
    decode,
    distinct,
    encode,
    first_sign,
    json_schema,
    peek_schema,
)
from optim.core.errors import InvalidProblemError


class Toy(msgspec.Struct, forbid_unknown_fields=True):
    """A document."""

    schema: str
    number: Whole = 0
    parts: list[dict[str, float]] = []


def test_reading_back_gives_the_same() -> None:
    assert decode(encode(Toy(schema="toy", number=3)), Toy) == Toy(schema="toy", number=3)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"schema": "toy", "number": 1, "number": 2}', "the field 'number' is given twice"),
        ('{"schema": "toy", "parts": [{"a": 1}, {"a": 1, "b": 2, "a": 3}]}', "the field 'a' is given twice"),
        ('{"schema": "toy", "number": 9223372036854775808}', "number: expected `int` <="),
        ('{"schema": "toy", "number": -9223372036854775809}', "number: expected `int` >="),
        ('{"schema": "toy", "number": 1' + "0" * 5000 + "}", "number"),
        ('{"schema": "toy", "number": 1.5}', "number: expected `int`"),
        ('{"schema": "toy", "parts": ' + "[" * 100_000 + "]" * 100_000 + "}", ""),
        ("[" * 100_000, "document"),
        ('{"schema": "toy", "other": 1}', "remove it or correct its spelling"),
        ("{}", "add it"),
        ("[]", "give a file of fields and values"),
        ("", "the file is empty"),
        ('{"schema": "toy", "number": NaN}', "number: must be a finite number, got NaN"),
        ('{"schema": "toy", "parts": [{"a": Infinity}]}', "parts[0].a: must be a finite number"),
        ('{"schema": "toy"', "check that the file is complete"),
        ('{"schema": "\\ud800"}', "schema: has a lone surrogate, \\ud800; write the full character, or remove it"),
        ('{"schema": "toy", "parts": [{"a\\udc00b": 1}]}', "parts[0]: has a lone surrogate, \\udc00; write"),
        ('{"\\ud83dx": {"y": ["\\ud83d"]}, "schema": 1}', "document: has a lone surrogate, \\ud83d; write"),
        ('{"schema": "\\ud83d\\ude00 \\ud83d"}', "schema: has a lone surrogate, \\ud83d; write"),
    ],
)
def test_says_in_one_line_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(InvalidProblemError) as raised:
        decode(text.encode(), Toy)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 300


def test_deep_values_of_any_type_are_refused() -> None:
    with pytest.raises(InvalidProblemError, match="nested too deeply"):
        peek_schema(b'{"schema": "toy", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}")


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_mark_of_the_byte_order_is_no_part_of_a_document(mark: bytes) -> None:
    assert decode(mark + b'{"schema": "toy", "number": 3}', Toy) == Toy(schema="toy", number=3)
    assert peek_schema(mark + b'{"schema": "toy"}') == "toy"
    assert [first_sign(mark + text) for text in (b' \n{"', b"[", b"", b" ")] == [b"{", b"[", b"", b""]
    with pytest.raises(InvalidProblemError, match="the field 'number' is given twice"):
        decode(mark + b'{"schema": "toy", "number": 1, "number": 2}', Toy)
    with pytest.raises(InvalidProblemError, match="the file is empty"):
        decode(mark, Toy)


def test_whole_numbers_reach_as_far_as_doubles_tell_them_apart() -> None:
    for number in (MAX_WHOLE, -MAX_WHOLE):
        assert decode(encode(Toy(schema="toy", number=number)), Toy).number == number
        assert float(number) == number
    with pytest.raises(InvalidProblemError):
        decode(encode(Toy(schema="toy", number=MAX_WHOLE + 1)), Toy)


def test_a_schema_is_read_before_anything_else() -> None:
    assert peek_schema(b'{"number": "no number", "schema": "toy"}') == "toy"


def test_entries_of_one_key_are_refused() -> None:
    assert distinct([("a", 1), ("b", 2)], "job") == {"a": 1, "b": 2}
    with pytest.raises(InvalidProblemError, match="lists job 'a' twice"):
        distinct([("a", 1), ("a", 1)], "job")


def test_names_have_numbers_in_order() -> None:
    number = Numbering(("x", "y"), "app")
    assert (len(number), number["x"], number["y"]) == (2, 0, 1)
    with pytest.raises(InvalidProblemError, match="refers to app 'z', which the instance lacks"):
        number["z"]


def test_values_of_another_type_are_named_with_their_path() -> None:
    with pytest.raises(InvalidProblemError, match=r"solution: .*number"):
        convert({"schema": "toy", "number": "1"}, Toy)


def test_schemas_name_themselves() -> None:
    assert json_schema(Toy, "toy/1")["$id"] == "toy/1"


def test_bytes_that_are_no_text_are_told_also_in_fields_that_nobody_reads() -> None:
    with pytest.raises(InvalidProblemError, match="not valid JSON"):
        decode(b'{"number": 1, "more": "\xc4x"}', Loose)


class Loose(msgspec.Struct):
    """A document that may hold more than is read."""

    number: int


class _Colour(Enum):
    RED, GREEN = "red", "green"


class _Leaf(msgspec.Struct):
    colour: _Colour | None = None
    side: Literal["left", "right"] = "left"


class _Tree(msgspec.Struct):
    leaves: list[_Leaf] = []
    named: dict[str, _Leaf] = {}
    rows: list[tuple[int, _Colour]] = []


@pytest.mark.parametrize(
    ("data", "choices"),
    [
        ({"leaves": [{}, {"colour": "blue"}]}, "red, green"),
        ({"leaves": [{"side": "up"}]}, "left, right"),
        ({"named": {"a": {"side": "up"}}}, "left, right"),
        ({"rows": [[1, "red"], [2, "pink"]]}, "red, green"),
    ],
)
def test_a_value_outside_an_enumeration_is_answered_with_the_choices(data, choices):
    with pytest.raises(InvalidProblemError, match=f"must be one of {choices}$"):
        convert(data, _Tree)
    with pytest.raises(InvalidProblemError, match=f"must be one of {choices}$"):
        decode(json.dumps(data).encode(), _Tree)


def test_other_errors_name_no_choices():
    with pytest.raises(InvalidProblemError, match=r": expected a whole number, got a text$"):
        convert({"rows": [["x", "red"]]}, _Tree)


def test_the_collector_is_paused_while_a_document_is_read_and_then_is_as_before():
    def fails():
        with collector_paused():
            seen.append(gc.isenabled())
            raise ZeroDivisionError

    seen = [gc.isenabled()]
    with pytest.raises(ZeroDivisionError):
        fails()
    seen.append(gc.isenabled())
    gc.disable()
    with collector_paused():
        pass
    seen.append(gc.isenabled())
    gc.enable()
    assert seen == [True, False, True, False]

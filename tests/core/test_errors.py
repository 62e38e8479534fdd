"""Suggestions for misspelt names, and intervals as they are written: members, and messages for other values."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError, check_choices, check_in, did_you_mean


def test_names_the_nearest_first():
    assert did_you_mean("auction-tiny-1", ["tiny-1", "auction-tiny-0", "wide-0"]).startswith(
        "did you mean auction-tiny-0"
    )
    assert did_you_mean("themsi", ["admission", "themis", "themis-lies"]) == "did you mean themis? "


def test_asks_nothing_where_nothing_is_near():
    assert did_you_mean("nonsense", ["online", "search"]) == did_you_mean("", ["a"]) == did_you_mean("x", []) == ""
    assert did_you_mean("x" * 100_000, ["search"]) == ""


@pytest.mark.parametrize(
    ("interval", "inside", "outside", "words"),
    [
        ("[1, inf)", [1, 2, 1e300], [0, 0.999, math.inf], "at least 1"),
        ("(0, inf)", [1e-300], [0, -1.0, math.inf], "positive"),
        ("(2, inf)", [2.1], [2], "above 2"),
        ("[0, 1]", [0, 1], [-1e-9, 1 + 1e-9], "in [0, 1]"),
        ("(0, 1]", [1e-9, 1], [0, 1.1], "in (0, 1]"),
        ("[0, 0.5)", [0, 0.49], [0.5], "in [0, 0.5)"),
    ],
)
def test_the_ends_belong_to_an_interval_as_its_brackets_say(interval, inside, outside, words):
    for value in inside:
        check_in(interval, {"x": value})
    for value in (*outside, math.nan):
        with pytest.raises(InvalidOptionError) as caught:
            check_in(interval, {"x": value})
        assert str(caught.value) == f"x must be {words}, got {value}"


@pytest.mark.parametrize("value", ["5", [5], object])
def test_what_is_no_number_is_refused_in_the_same_words(value):
    with pytest.raises(InvalidOptionError) as caught:
        check_in("[1, inf)", {"x": value})
    assert str(caught.value) == f"x must be a number, at least 1, got {value!r}"


def test_only_what_is_named_is_looked_at_and_none_is_absent():
    options = SimpleNamespace(a=1, b=-1, c=None)
    check_in("[0, inf)", options, "a", "c")
    with pytest.raises(InvalidOptionError, match=r"^b must"):
        check_in("[0, inf)", options, "a", "b")


def test_a_text_is_one_of_those_known():
    check_choices({"kind": "b"}, {"kind": ("a", "b")})
    with pytest.raises(InvalidOptionError, match=r"^kind must be one of a, b, got 'c'$"):
        check_choices(SimpleNamespace(kind="c"), {"kind": ("a", "b")})


@pytest.mark.parametrize("type_", [float, np.float64])
@pytest.mark.parametrize(("low", "high"), [(0.5, math.nextafter(0.5, 1)), (1e-300, 1.5e-300), (3.0, 3.0), (0.1, 0.2)])
def test_a_narrow_range_refuses_the_next_number_beyond_either_end(low, high, type_):
    below, above = math.nextafter(low, -math.inf), math.nextafter(high, math.inf)
    for brackets, inside, outside in (
        ("[]", (low, high), (below, above)),
        ("()", (), (below, low, high, above)),
        ("[)", (low,) if low < high else (), (below, high, above)),
        ("(]", (high,) if low < high else (), (below, low, above)),
    ):
        interval = f"{brackets[0]}{low!r}, {high!r}{brackets[1]}"
        for value in inside:
            check_in(interval, {"x": type_(value)})
        for value in outside:
            with pytest.raises(InvalidOptionError, match=r"^x must be in "):
                check_in(interval, {"x": type_(value)})


@pytest.mark.parametrize(("low", "high"), [(1, 2), (0, 0), (2**53, 2**53 + 2), (1, 10**6)])
def test_a_range_of_whole_numbers_refuses_one_more_and_one_less(low, high):
    for value in {low, high}:
        check_in(f"[{low}, {high}]", {"x": value})
    for value in (low - 1, high + 1, low - 0.25 if low < 2**50 else low - 1, high + 0.25 if high < 2**50 else high + 1):
        with pytest.raises(InvalidOptionError, match=r"^x must be in "):
            check_in(f"[{low}, {high}]", {"x": value})

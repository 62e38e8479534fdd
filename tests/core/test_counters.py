"""What counters can be."""

import math

import pytest

from optim.core.claims import MOST, CountRange, check_ranges


@pytest.mark.parametrize("number", [0, 3.0, 7, 0.0])
def test_a_count_is_a_whole_number_in_its_range(number):
    assert check_ranges({"moves": number}, {"moves": CountRange.whole(7)}) == []


@pytest.mark.parametrize("number", [-1, 0.5, 8, 7.0000000001, 1e308])
def test_what_is_no_count_is_named_with_its_range(number):
    (found,) = check_ranges({"moves": number}, {"moves": CountRange.whole(7)})
    assert str(found) == f"counts [moves]: moves must be a whole number from 0 to 7, got {number!r}"


@pytest.mark.parametrize("number", [math.nan, math.inf, 10**400, "3", None, True])
def test_a_counter_that_nobody_knows_is_a_number_at_least(number):
    assert check_ranges({"own": -0.5}, {}) == []
    assert [found.row for found in check_ranges({"own": number}, {})] == ["counts [own]"]


def test_no_count_is_larger_than_a_double_can_count_to():
    assert check_ranges({"moves": MOST}, {"moves": CountRange.whole()}) == []
    assert check_ranges({"moves": 2 * MOST}, {"moves": CountRange.whole(math.inf)}) != []


def test_an_amount_may_leave_its_range_through_rounding_alone():
    share = {"share": CountRange(high=1.0)}
    assert check_ranges({"share": 1 + 1e-10}, share) == check_ranges({"share": -1e-10}, share) == []
    assert check_ranges({"share": 1 + 1e-8}, share) != []
    (found,) = check_ranges({"gap": -1e-8}, {"gap": CountRange()})
    assert found.message == "gap must be a number of at least 0, got -1e-08"

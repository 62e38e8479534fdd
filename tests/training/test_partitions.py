"""The owners of partitions, and the boundaries of shards."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.training.applications import MatrixFactorisation
from optim.training.stages import assign_balanced, bounds, row_width, shard_bounds
from tests.support.training.oracle import CountingApplication


class Rows(CountingApplication):
    """An application with rows of three parameters, whose row numbers must not be requested."""

    row_width = 3

    def rows(self, partition):
        raise AssertionError("no computation here")


@given(st.integers(0, 40), st.integers(1, 9))
def test_parts_cover_everything_once_and_differ_by_one_at_most(size, count):
    parts = [range(*bounds(size, count, index)) for index in range(count)]
    assert [number for part in parts for number in part] == list(range(size))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(st.integers(1, 12), st.integers(1, 15))
def test_shards_are_cut_between_rows_where_each_can_have_one(rows, shards):
    application = Rows(2, 3 * rows)
    cuts = shard_bounds(application, shards)
    assert [number for cut in cuts for number in range(*cut)] == list(range(3 * rows))
    assert row_width(application, shards) == (3 if rows >= shards else 1)
    if rows >= shards:
        assert all(start % 3 == 0 and stop > start for start, stop in cuts)


@pytest.mark.parametrize("shards", [1, 3])
def test_what_has_no_rows_is_cut_anywhere(shards):
    assert row_width(CountingApplication(2, 7), shards) == 1
    assert shard_bounds(CountingApplication(2, 7), 2) == ((0, 3), (3, 7))


def test_an_application_with_rows_is_cut_by_its_own():
    application = MatrixFactorisation(num_partitions=2)
    assert row_width(application, 2) == application.row_width > 1


@given(st.integers(1, 4), st.lists(st.sampled_from("abcdx"), min_size=1, max_size=9))
def test_shares_are_even_and_as_few_as_can_be_change_hands(number, previous):
    holders = "abcd"[:number]
    found = assign_balanced(len(previous), holders, previous)
    shares = [found.count(holder) for holder in holders]
    assert sum(shares) == len(previous)
    assert max(shares) - min(shares) <= 1
    share, extra = divmod(len(previous), number)
    most_kept = max(
        sum(min(previous.count(holder), share + (holder in larger)) for holder in holders)
        for larger in itertools.combinations(holders, extra)
    )
    assert sum(before == after for before, after in zip(previous, found, strict=True)) == most_kept
    assert assign_balanced(len(previous), holders, found) == found

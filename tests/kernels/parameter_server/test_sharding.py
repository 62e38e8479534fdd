"""Ranges of a vector are a partition of it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidOptionError
from optim.kernels.parameter_server import shard_ranges


@given(st.integers(0, 1000), st.integers(1, 40))
def test_ranges_cover_everything_once_and_are_even(size, shards):
    ranges = shard_ranges(size, shards)
    assert [index for part in ranges for index in range(*part)] == list(range(size))
    sizes = [part.size for part in ranges]
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(1, 1000), st.integers(1, 8), st.integers(1, 8))
def test_while_ranges_move_from_one_number_of_shards_to_another_each_element_has_one_owner(size, before, after):
    """The pieces that move are the cuts of both: at every instant old and moved pieces are a partition."""
    old, new = shard_ranges(size, before), shard_ranges(size, after)
    owner = np.concatenate([np.full(part.size, index) for index, part in enumerate(old)])
    for index, part in enumerate(new):
        owner[part.start : part.stop] = index
        assert owner.size == size
        assert np.array_equal(owner[: part.stop], np.repeat(np.arange(index + 1), [p.size for p in new[: index + 1]]))


@pytest.mark.parametrize(("size", "shards"), [(4, 0), (-1, 2)])
def test_refuses_ranges_that_cannot_be(size, shards):
    with pytest.raises(InvalidOptionError, match="at least one shard"):
        shard_ranges(size, shards)

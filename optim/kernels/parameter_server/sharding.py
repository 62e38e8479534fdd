"""One vector in pieces: ranges."""

import itertools
from typing import NamedTuple

from optim.core.errors import InvalidOptionError


class Range(NamedTuple):
    """Elements `start` to `stop` (exclusive) of the flat vector."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.stop - self.start


def shard_ranges(size: int, num_shards: int) -> tuple[Range, ...]:
    """Return contiguous ranges that cover ``0..size`` once each; their sizes differ by at most one.

    Raises
    ------
    InvalidOptionError
        If there is no shard, or a negative size.
    """
    if num_shards < 1 or size < 0:
        raise InvalidOptionError(f"need at least one shard and size >= 0, got {num_shards} shards of size {size}")
    cuts = [index * size // num_shards for index in range(num_shards + 1)]
    return tuple(Range(start, stop) for start, stop in itertools.pairwise(cuts))

"""The pushes since the copies that a failure goes back to: replayed, they bring back what was lost."""

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from optim.training.messages import Push, Replay

MEGABYTE = 1_000_000


class PushLog:
    """For each clock and partition what the servers got of it, as long as there is room.

    The controller keeps it, so machines that die take nothing of it with them; a controller that dies does.

    Parameters
    ----------
    num_partitions
        Pushes of a clock.
    most_bytes
        Where so many are full, the clocks that newer copies hold give way, and without these nothing more is kept: what pushes
        that aren't kept did is computed again after a failure. 0 keeps none.
    """

    def __init__(self, num_partitions: int, most_bytes: float) -> None:
        self._num_partitions, self._most_bytes = num_partitions, most_bytes
        self._clocks: dict[int, dict[int, list[Push]]] = {}
        self._bytes: dict[int, int] = {}
        self._safe = 0

    @property
    def num_bytes(self) -> int:
        """Bytes of the gradients kept."""
        return sum(self._bytes.values())

    def add(self, clock: int, partition: int, pushes: Sequence[Push]) -> None:
        """Keep copies of what goes to the servers: the memory that it lies in is written again a clock later."""
        size = sum(push.gradient.nbytes for push in pushes)
        if self.num_bytes + size > self._most_bytes:
            self.keep(self._safe, clock + 1)
        if self.num_bytes + size > self._most_bytes:
            return
        kept = [replace(push, gradient=np.array(push.gradient, copy=True)) for push in pushes]
        self._clocks.setdefault(clock, {})[partition] = kept
        self._bytes[clock] = self._bytes.get(clock, 0) + size

    def end(self, clock: int) -> int:
        """Return the clock that replaying leads to from another one."""
        while len(self._clocks.get(clock, ())) == self._num_partitions:
            clock += 1
        return clock

    def keep(self, first: int, end: int) -> None:
        """Forget all but the clocks from `first` to `end`, the latter left out."""
        self._clocks = {at: pushes for at, pushes in self._clocks.items() if first <= at < end}
        self._bytes = {at: size for at, size in self._bytes.items() if at in self._clocks}

    def trim(self, safe: int, stored: int) -> None:
        """Forget the clocks before `stored`, which nobody can take away; those before `safe` are first to give way.

        As long as copies of all shards as of `safe` are left, a failure goes back no further.
        """
        self._safe = safe
        self.keep(stored, max(self._clocks, default=stored) + 1)

    def orders(self, clock: int, generation: int, num_shards: int) -> Iterator[Replay]:
        """Yield for each shard what brings it from a clock to the log's end; nothing if it is there."""
        end = self.end(clock)
        for shard in range(num_shards if end > clock else 0):
            clocks = tuple(
                tuple(self._clocks[at][partition][shard] for partition in range(self._num_partitions))
                for at in range(clock, end)
            )
            yield Replay(generation=generation, shard=shard, from_clock=clock, clocks=clocks)

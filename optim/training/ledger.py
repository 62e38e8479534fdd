"""Who holds copies of what: the clock that a failure takes everybody back to follows from it."""

from collections.abc import Iterable

from optim.training.roles import STORAGE


class CopyLedger:
    """For each holder and shard the clocks of which it has confirmed a copy."""

    def __init__(self, num_shards: int) -> None:
        self._num_shards = num_shards
        self._clocks: dict[tuple[str, int], set[int]] = {}

    def confirm(self, holder: str, shard: int, clock: int) -> None:
        """Note a copy."""
        self._clocks.setdefault((holder, shard), set()).add(clock)

    def has(self, holder: str, shard: int, clock: int) -> bool:
        """Tell whether a holder has a copy."""
        return clock in self._clocks.get((holder, shard), set())

    def forget_holder(self, holder: str) -> None:
        """Note that a holder is gone with all its copies."""
        self._clocks = {key: clocks for key, clocks in self._clocks.items() if key[0] != holder}

    def keep_only(self, kept: Iterable[tuple[str, int]]) -> None:
        """Note that all other holders, the storage left out, have dropped their copies."""
        wanted = set(kept)
        self._clocks = {key: clocks for key, clocks in self._clocks.items() if key in wanted or key[0] == STORAGE}

    def rewind(self, clock: int) -> None:
        """Note that copies later than `clock` are forgotten."""
        left = {key: {at for at in clocks if at <= clock} for key, clocks in self._clocks.items()}
        self._clocks = {key: clocks for key, clocks in left.items() if clocks}

    def trim(self, holder: str, clock: int) -> bool:
        """Note that a holder's copies earlier than `clock` are forgotten; tell whether there were any."""
        is_needed = any(key[0] == holder and min(clocks) < clock for key, clocks in self._clocks.items())
        left = {
            key: {at for at in clocks if at >= clock} if key[0] == holder else clocks
            for key, clocks in self._clocks.items()
        }
        self._clocks = {key: clocks for key, clocks in left.items() if clocks}
        return is_needed

    def holders(self) -> tuple[str, ...]:
        """Return everybody with a copy, in order of name."""
        return tuple(sorted({holder for holder, _ in self._clocks}))

    def recovery_clock(self) -> int:
        """Return the last clock of which *every* shard has a copy somewhere; never a mix of clocks."""
        of_shard = [
            set().union(*(clocks for (_, shard), clocks in self._clocks.items() if shard == index))
            for index in range(self._num_shards)
        ]
        return max(set.intersection(*of_shard), default=-1)

    def storage_clock(self) -> int:
        """Return the last clock of which the storage has all shards."""
        of_shard = [self._clocks.get((STORAGE, shard), set()) for shard in range(self._num_shards)]
        return max(set.intersection(*of_shard), default=-1)

    def source(self, shard: int, clock: int) -> str:
        """Return who is asked for a copy: a machine rather than the storage, the first by name."""
        having = [holder for (holder, index), clocks in self._clocks.items() if index == shard and clock in clocks]
        return min(having, key=lambda holder: (holder == STORAGE, holder))

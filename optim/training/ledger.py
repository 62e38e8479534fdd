"""Who holds copies of what: the clock that a failure takes everybody back to follows from it."""

from collections.abc import Iterable

from optim.training.roles import STORAGE


class CopyLedger:
    """For each holder and shard the clocks of which it has confirmed a copy."""

    def __init__(self, num_shards: int) -> None:
        self._num_shards = num_shards
        self._clocks: dict[tuple[str, int], set[int]] = {}
        self._checkpoint_clock: int | None = None

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
        """Note that copies later than `clock` are forgotten, and with them a checkpoint that is being written."""
        self._checkpoint_clock = None
        left = {key: {at for at in clocks if at <= clock} for key, clocks in self._clocks.items()}
        self._clocks = {key: clocks for key, clocks in left.items() if clocks}

    def checkpoint_due(self, every: int) -> int | None:
        """Return the clock to write a checkpoint of, now that one is due and none is being written."""
        clock, stored = self.recovery_clock(), self.storage_clock()
        if self._checkpoint_clock is not None and stored >= self._checkpoint_clock:
            self._checkpoint_clock = None
        if self._checkpoint_clock is not None or clock < stored + every:
            return None
        self._checkpoint_clock = clock
        return clock

    def trim(self) -> list[tuple[str, int]]:
        """Forget the copies that nobody will go back to; return whose, and the clock before which they were."""
        clock, stored = self.recovery_clock(), self.storage_clock()
        trimmed = []
        for holder in self.holders():
            safe = stored if holder == STORAGE else clock
            own = {key: clocks for key, clocks in self._clocks.items() if key[0] == holder}
            if min(map(min, own.values())) < safe:
                trimmed.append((holder, safe))
                self._clocks |= {key: {at for at in clocks if at >= safe} for key, clocks in own.items()}
        self._clocks = {key: clocks for key, clocks in self._clocks.items() if clocks}
        return trimmed

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

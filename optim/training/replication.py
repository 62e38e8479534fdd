"""Copies of shards: past clocks, who holds which copy, and rebuilding after a change of layout."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from optim.training.messages import (
    BackupAck,
    Delta,
    Drop,
    Host,
    Message,
    Read,
    Rebase,
    ShardReady,
    ShardValues,
    State,
    StoreBackup,
    Vector,
)
from optim.training.stages import STORAGE, ClusterOptions, Roles

if TYPE_CHECKING:
    from optim.kernels.parameter_server import AbstractOptimiser


class ShardCopies:
    """The copies of one shard: from the last clock that everybody could return to, up to the newest delta.

    A shard's backups may be ahead of another's, and a failure takes all of them back to a common clock. So a delta
    doesn't overwrite the copy before it.
    """

    def __init__(self, message: StoreBackup) -> None:
        self.generation = message.generation
        self._newest = message.values
        self._at = {self._newest.clock: self._newest}

    @property
    def clocks(self) -> tuple[int, ...]:
        """Clocks of which there is a copy, ascending."""
        return tuple(sorted(self._at))

    def take(self, delta: Delta) -> bool:
        """Keep a delta that starts at the newest copy and leads further; return whether it does."""
        values, newest = delta.values, self._newest
        is_next = values.shard == newest.shard and newest.clock == delta.from_clock < values.clock
        if is_next:
            self._at[values.clock] = self._newest = values
        return is_next

    def add(self, message: StoreBackup) -> None:
        """Keep complete values of a clock, wherever the copies stand."""
        values = message.values
        self._at[values.clock] = values
        if values.clock >= self._newest.clock:
            self._newest = values

    def values(self, clock: int) -> ShardValues:
        """Return the copy at a clock."""
        return self._at[clock]

    def holds(self, clock: int) -> bool:
        """Return whether there is a copy at a clock."""
        return clock in self._at

    def rewind(self, generation: int, clock: int) -> bool:
        """Forget what came after `clock`: that future is not going to happen. Return whether anything is left."""
        self.generation = generation
        self._at = {at: copy for at, copy in self._at.items() if at <= clock}
        if self._at:
            self._newest = self._at[max(self._at)]
        return bool(self._at)

    def trim(self, clock: int) -> None:
        """Forget what came before `clock`."""
        self._at = {at: copy for at, copy in self._at.items() if at >= clock}


class ReplicaCatalog:
    """For each holder and shard the clocks of which it has confirmed a copy."""

    def __init__(self, num_shards: int) -> None:
        self._num_shards = num_shards
        self._clocks: dict[tuple[str, int], set[int]] = {}
        self._checkpoint_clock: int | None = None

    def confirm(self, holder: str, shard: int, clock: int) -> None:
        """Note a copy."""
        self._clocks.setdefault((holder, shard), set()).add(clock)

    def has(self, holder: str, shard: int, clock: int) -> bool:
        """Return whether a holder has a copy."""
        return clock in self._clocks.get((holder, shard), set())

    def forget_holder(self, holder: str) -> None:
        """Note that a holder is gone with all its copies."""
        self._clocks = {key: clocks for key, clocks in self._clocks.items() if key[0] != holder}

    def keep_only(self, copies: Iterable[tuple[str, int]]) -> None:
        """Note that all other holders, the storage left out, have dropped their copies."""
        keys = set(copies)
        self._clocks = {key: clocks for key, clocks in self._clocks.items() if key in keys or key[0] == STORAGE}

    def rewind(self, clock: int) -> None:
        """Note that copies later than `clock` are forgotten, and with them a checkpoint that is being written."""
        self._checkpoint_clock = None
        remaining = {key: {at for at in clocks if at <= clock} for key, clocks in self._clocks.items()}
        self._clocks = {key: clocks for key, clocks in remaining.items() if clocks}

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
            of_holder = {key: clocks for key, clocks in self._clocks.items() if key[0] == holder}
            if min(map(min, of_holder.values())) < safe:
                trimmed.append((holder, safe))
                self._clocks |= {key: {at for at in clocks if at >= safe} for key, clocks in of_holder.items()}
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


Order = tuple[str, Message]
"""Whom a message is for, and the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """A return to an earlier clock.

    Attributes
    ----------
    from_clock
        Clocks complete when it happened.
    to_clock
        Clocks of which copies were left.
    replayed_to
        Clocks after those whose pushes were kept have been applied again: what is beyond is computed again.
    """

    from_clock: int
    to_clock: int
    replayed_to: int


class Reconfiguration:
    """What is on its way, and what is still waited for.

    Parameters
    ----------
    roles, clock, generation
        The layout that is being built, the clock that all shards will stand at, and the rebuild's number.
    parts
        Each shard's parameters as known; those read from their holders take their place.

    Attributes
    ----------
    roles, clock, parts
        As above.
    """

    def __init__(self, roles: Roles, clock: int, generation: int, parts: list[Vector]) -> None:
        self.roles, self.clock, self.parts = roles, clock, parts
        self._generation = generation
        self._waiting: set[tuple[type[Message], int]] = set()
        self._moving: set[int] = set()

    @property
    def is_done(self) -> bool:
        """Whether everything is at its place."""
        return not self._waiting

    def begin(self, servers: Sequence[str], copies: ReplicaCatalog, options: ClusterOptions) -> Iterator[Order]:
        """Yield the orders that begin it.

        Parameters
        ----------
        servers
            Who serves each shard at that clock, so that it may stay or hand its shard on; empty after a failure, when
            shards come from copies.
        copies
            Who holds a copy of what.
        options
            How often a server sends its delta.
        """
        generation, clock, roles = self._generation, self.clock, self.roles
        for shard, backup in enumerate(roles.backups):
            old = servers[shard] if servers else None
            new = roles.servers[shard] if roles.servers else None
            has_copy = copies.has(backup, shard, clock)
            if new is not None:
                self._waiting.add((ShardReady, shard))
                if new == old:
                    every = options.sync_period(backup)
                    yield new, Rebase(generation=generation, shard=shard, clock=clock, sync_every=every)
                else:
                    self._moving.add(shard)
            if not has_copy:
                self._waiting.add((BackupAck, shard))
            if new is None or new != old or not has_copy:
                self._waiting.add((State, shard))
                source = old if old is not None else copies.source(shard, clock)
                yield source, Read(generation=generation, shard=shard, clock=clock)

    def place(
        self, values: ShardValues, optimiser: "AbstractOptimiser", num_partitions: int, options: ClusterOptions
    ) -> Iterator[Order]:
        """Yield what hands a shard's values to its new server and to who lacks a copy."""
        shard = values.shard
        if (State, shard) not in self._waiting:
            return
        self._waiting.discard((State, shard))
        self.parts[shard] = values.parameters
        backup = self.roles.backups[shard]
        if (BackupAck, shard) in self._waiting:
            yield backup, StoreBackup(generation=self._generation, values=values)
        if shard in self._moving:
            yield (
                self.roles.servers[shard],
                Host(
                    generation=self._generation,
                    values=values,
                    optimiser=optimiser,
                    num_partitions=num_partitions,
                    sync_every=options.sync_period(backup),
                    delay_strength=options.delay_compensation,
                    staleness=options.staleness,
                    pushes=options.pushes,
                    devices=options.devices,
                ),
            )

    def mark_ready(self, shard: int) -> None:
        """Note that a shard is served where it belongs."""
        self._waiting.discard((ShardReady, shard))

    def mark_stored(self, holder: str, shard: int, clock: int) -> None:
        """Note a copy, if it is the one that was waited for."""
        if clock == self.clock and holder == self.roles.backups[shard]:
            self._waiting.discard((BackupAck, shard))

    def drops(self, machines: Iterable[str]) -> Iterator[Order]:
        """Yield what makes machines forget what the new layout gives to others."""
        for machine in machines:
            served = tuple(shard for shard, server in enumerate(self.roles.servers) if server == machine)
            copies = tuple(shard for shard, backup in enumerate(self.roles.backups) if backup == machine)
            yield machine, Drop(generation=self._generation, shards=served, copies=copies)

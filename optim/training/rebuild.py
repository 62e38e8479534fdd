"""A rebuild: shards and copies move to the places of a new layout, as of one clock."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from optim.training.ledger import CopyLedger
from optim.training.messages import Drop, Host, Hosted, Install, Kept, Message, Read, Rebase, ShardValues, State, Vector
from optim.training.options import ClusterOptions
from optim.training.roles import Roles

if TYPE_CHECKING:
    from optim.kernels.parameter_server import AbstractOptimiser

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


class Rebuild:
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

    def begin(self, servers: Sequence[str], copies: CopyLedger, options: ClusterOptions) -> Iterator[Order]:
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
                self._waiting.add((Hosted, shard))
                if new == old:
                    every = options.sync_period(backup)
                    yield new, Rebase(generation=generation, shard=shard, clock=clock, sync_every=every)
                else:
                    self._moving.add(shard)
            if not has_copy:
                self._waiting.add((Kept, shard))
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
        if (Kept, shard) in self._waiting:
            yield backup, Install(generation=self._generation, values=values)
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

    def hosted(self, shard: int) -> None:
        """Note that a shard is served where it belongs."""
        self._waiting.discard((Hosted, shard))

    def kept(self, holder: str, shard: int, clock: int) -> None:
        """Note a copy, if it is the one that was waited for."""
        if clock == self.clock and holder == self.roles.backups[shard]:
            self._waiting.discard((Kept, shard))

    def drops(self, machines: Iterable[str]) -> Iterator[Order]:
        """Yield what makes machines forget what the new layout gives to others."""
        for machine in machines:
            served = tuple(shard for shard, server in enumerate(self.roles.servers) if server == machine)
            copies = tuple(shard for shard, backup in enumerate(self.roles.backups) if backup == machine)
            yield machine, Drop(generation=self._generation, shards=served, copies=copies)

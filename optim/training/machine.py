"""A machine: it computes, serves shards and keeps copies, as messages tell it to.

The same object runs inside the controller's process, inside a process of its own, and under a test that delivers
messages in any order it likes.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from optim.core.own_code import in_a_line
from optim.training.application import Application
from optim.training.messages import (
    Compute,
    Delta,
    Drop,
    Failed,
    Host,
    Hosted,
    Install,
    Kept,
    Message,
    Push,
    Pushed,
    Read,
    Rebase,
    Replay,
    Rewind,
    State,
    Sync,
    Trim,
    Vector,
)
from optim.training.pushing import compute

if TYPE_CHECKING:
    from optim.training.copies import ShardCopies
    from optim.training.server import ServedShard


class Machine:
    """One machine's state and its answers.

    Parameters
    ----------
    name
        Its name.
    application
        What its worker computes.
    """

    def __init__(self, name: str, application: Application) -> None:
        self.name = name
        self.generation = 0
        self.served: dict[int, ServedShard] = {}
        self.copies: dict[int, ShardCopies] = {}
        self._application = application
        self._left: dict[int, tuple[int, Vector]] = {}

    def handle(self, message: Message) -> list[Message]:
        """Return the replies to a message; one of an older generation has none."""
        if self._is_stale(message):
            return []
        self.generation = message.generation
        try:
            return _HANDLERS[type(message)](self, message)
        except (Exception, SystemExit) as error:  # an application's own, of which the controller tells the user
            return [Failed(generation=message.generation, machine=self.name, text=in_a_line(error))]

    def _is_stale(self, message: Message) -> bool:
        return message.generation < self.generation

    def _compute(self, message: Compute) -> list[Message]:
        before, left = self._left.pop(message.partition, (-1, None))
        # Of another clock it is of pushes that a failure has undone, or that others have followed.
        is_next = message.carries and before == message.clock
        with np.errstate(all="ignore"):  # what isn't finite is looked for and told; a warning a worker says less
            computed = compute(self._application, message, left if is_next else None)
        if computed.left is not None:
            self._left[message.partition] = message.clock + 1, computed.left
        return [
            Pushed(
                generation=message.generation,
                machine=self.name,
                is_finite=computed.is_finite,
                partition=message.partition,
                clock=message.clock,
                read_clock=message.read_clock,
                gradient=computed.gradient,
                rows=computed.rows,
                width=computed.width,
                drawn_to=computed.drawn_to,
                weight=self._application.weight(message.partition),
                loss=computed.loss,
            )
        ]

    def _push(self, message: Push) -> list[Message]:
        served = self.served.get(message.shard)
        return served.push(message) if served is not None else []

    def _replay(self, message: Replay) -> list[Message]:
        served = self.served.get(message.shard)
        return served.replay(message) if served is not None else []

    def _sync(self, message: Sync) -> list[Message]:
        served = self.served.get(message.shard)
        return served.sync(message) if served is not None else []

    def _host(self, message: Host) -> list[Message]:
        from optim.training.server import ServedShard  # a machine that only computes never loads JAX

        shard = message.values.shard
        served = self.served.get(shard)
        if served is None or served.generation < message.generation:
            self.served[shard] = ServedShard(message)
        return [Hosted(generation=message.generation, shard=shard)]

    def _rebase(self, message: Rebase) -> list[Message]:
        served = self.served.get(message.shard)
        if served is None or served.clock != message.clock:
            return []
        if served.generation < message.generation:
            served.rebase(message.generation, message.sync_every)
        return [Hosted(generation=message.generation, shard=message.shard)]

    def _install(self, message: Install) -> list[Message]:
        from optim.training.copies import ShardCopies

        copies = self.copies.get(message.values.shard)
        if copies is None or copies.generation < message.generation:
            self.copies[message.values.shard] = ShardCopies(message)
        elif not copies.holds(message.values.clock):
            copies.add(message)
        return [self._kept(message)]

    def _delta(self, message: Delta) -> list[Message]:
        copies = self.copies.get(message.values.shard)
        return [self._kept(message)] if copies is not None and copies.take(message) else []

    def _read(self, message: Read) -> list[Message]:
        copies, served = self.copies.get(message.shard), self.served.get(message.shard)
        if copies is not None and copies.holds(message.clock):
            return [State(generation=message.generation, values=copies.values(message.clock))]
        if served is not None and served.clock == message.clock:
            return [State(generation=message.generation, values=served.values())]
        return []

    def _rewind(self, message: Rewind) -> list[Message]:
        self.copies = {
            shard: copies
            for shard, copies in self.copies.items()
            if copies.generation == message.generation or copies.rewind(message.generation, message.clock)
        }
        return []

    def _trim(self, message: Trim) -> list[Message]:
        for copies in self.copies.values():
            copies.trim(message.clock)
        return []

    def _drop(self, message: Drop) -> list[Message]:
        self.served = {shard: served for shard, served in self.served.items() if shard in message.shards}
        self.copies = {shard: copies for shard, copies in self.copies.items() if shard in message.copies}
        return []

    def _kept(self, message: Install | Delta) -> Kept:
        values = message.values
        return Kept(generation=message.generation, shard=values.shard, clock=values.clock, holder=self.name)


_HANDLERS: dict[type[Message], Callable[[Any, Any], list[Message]]] = {
    Compute: Machine._compute,
    Push: Machine._push,
    Replay: Machine._replay,
    Sync: Machine._sync,
    Host: Machine._host,
    Rebase: Machine._rebase,
    Install: Machine._install,
    Delta: Machine._delta,
    Read: Machine._read,
    Rewind: Machine._rewind,
    Trim: Machine._trim,
    Drop: Machine._drop,
}

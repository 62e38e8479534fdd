"""A machine, which computes, serves shards and keeps copies, and the transport of messages.

The same object runs inside the controller's process, inside a process of its own, and under a test that delivers
messages in any order it likes.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from optim.core.errors import NotAllowedError
from optim.core.user_code import format_exception_line
from optim.training.application import Application
from optim.training.messages import (
    BackupAck,
    Compute,
    Delta,
    Drop,
    Failed,
    Host,
    Message,
    Push,
    Read,
    Ready,
    Rebase,
    Replay,
    Rewind,
    ShardReady,
    State,
    StoreBackup,
    Sync,
    Trim,
    Vector,
)
from optim.training.pushing import compute
from optim.training.stages import STORAGE

if TYPE_CHECKING:
    from optim.training.replication import ShardCopies
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
        self._residuals: dict[int, tuple[int, Vector]] = {}

    def handle(self, message: Message) -> list[Message]:
        """Return the replies to a message; one of an older generation has none."""
        if self._is_stale(message):
            return []
        self.generation = message.generation
        try:
            return _HANDLERS[type(message)](self, message)
        except (Exception, SystemExit) as error:  # an application's own, of which the controller tells the user
            return [Failed(generation=message.generation, machine=self.name, text=format_exception_line(error))]

    def _is_stale(self, message: Message) -> bool:
        return message.generation < self.generation

    def _compute(self, message: Compute) -> list[Message]:
        before, residual = self._residuals.pop(message.partition, (-1, None))
        # Of another clock it is of pushes that a failure has undone, or that others have followed.
        is_next = message.carries and before == message.clock
        with np.errstate(all="ignore"):  # values that aren't finite are looked for and reported; warnings say less
            pushed, residual = compute(self._application, message, residual if is_next else None, self.name)
        if residual is not None:
            self._residuals[message.partition] = message.clock + 1, residual
        return [pushed]

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
        return [ShardReady(generation=message.generation, shard=shard)]

    def _rebase(self, message: Rebase) -> list[Message]:
        served = self.served.get(message.shard)
        if served is None or served.clock != message.clock:
            return []
        if served.generation < message.generation:
            served.rebase(message.generation, message.sync_every)
        return [ShardReady(generation=message.generation, shard=message.shard)]

    def _store_backup(self, message: StoreBackup) -> list[Message]:
        from optim.training.replication import ShardCopies

        copies = self.copies.get(message.values.shard)
        if copies is None or copies.generation < message.generation:
            self.copies[message.values.shard] = ShardCopies(message)
        elif not copies.holds(message.values.clock):
            copies.add(message)
        return [self._acknowledge(message)]

    def _delta(self, message: Delta) -> list[Message]:
        copies = self.copies.get(message.values.shard)
        return [self._acknowledge(message)] if copies is not None and copies.take(message) else []

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

    def _acknowledge(self, message: StoreBackup | Delta) -> BackupAck:
        values = message.values
        return BackupAck(generation=message.generation, shard=values.shard, clock=values.clock, holder=self.name)


_HANDLERS: dict[type[Message], Callable[[Any, Any], list[Message]]] = {
    Compute: Machine._compute,
    Push: Machine._push,
    Replay: Machine._replay,
    Sync: Machine._sync,
    Host: Machine._host,
    Rebase: Machine._rebase,
    StoreBackup: Machine._store_backup,
    Delta: Machine._delta,
    Read: Machine._read,
    Rewind: Machine._rewind,
    Trim: Machine._trim,
    Drop: Machine._drop,
}


class Lost:
    """The news that a machine has gone without a word.

    Parameters
    ----------
    machine
        Its name.
    reason
        How it went, where that is known.
    """

    __slots__ = ("machine", "reason")

    def __init__(self, machine: str, reason: str = "it is gone") -> None:
        self.machine, self.reason = machine, reason


class Transport(Protocol):
    """Carry messages. Between the controller and one machine they arrive in the order sent, or not at all."""

    def start(self, machine: str) -> None:
        """Have a machine of that name; it says that it is ready when it is."""
        ...

    def stop(self, machine: str) -> None:
        """Give a machine back after it has done what it was sent."""
        ...

    def kill(self, machine: str) -> None:
        """Take a machine away at once, with all that it holds; `receive` brings the news."""
        ...

    def send(self, machine: str, message: Message) -> None:
        """Send a message; one to a machine that is gone is lost."""
        ...

    def receive(self, wait_s: float | None = None) -> Message | Lost | None:
        """Return the next message to the controller, or the news that a machine is lost; None if none can come.

        Parameters
        ----------
        wait_s
            Where machines are processes: None too if none has come for so many seconds.
        """
        ...

    def close(self) -> None:
        """Give back everything."""
        ...


class InProcess:
    """Machines as objects in this process, one message after the other in a fixed order.

    Parameters
    ----------
    application
        What the workers compute.
    """

    def __init__(self, application: Application) -> None:
        self._application = application
        self.machines: dict[str, Machine] = {}
        self.inboxes: dict[str, deque[Message]] = {}
        self.outboxes: dict[str, deque[Message | Lost]] = {}
        self._place(STORAGE)

    def start(self, machine: str) -> None:
        """Have a machine of that name."""
        self._place(machine)
        self.outboxes[machine].append(Ready(machine=machine))

    def _place(self, machine: str) -> None:
        if machine in self.machines:
            raise NotAllowedError(f"there is a machine {machine!r} already; give each machine a name of its own")
        self.machines[machine] = Machine(machine, self._application)
        self.inboxes[machine] = deque()
        self.outboxes.setdefault(machine, deque())

    def stop(self, machine: str) -> None:
        """Give a machine back after it has done what it was sent."""
        while self.inboxes.get(machine):
            self.run_machine(machine)
        self.machines.pop(machine, None)
        self.inboxes.pop(machine, None)

    def kill(self, machine: str) -> None:
        """Take a machine away; what it has sent already still arrives, and the news of its death after that."""
        if self.machines.pop(machine, None) is not None:
            self.inboxes.pop(machine)
            self.outboxes[machine].append(Lost(machine))

    def send(self, machine: str, message: Message) -> None:
        """Send a message; one to a machine that is gone is lost."""
        if machine in self.inboxes:
            self.inboxes[machine].append(message)

    def receive(self, wait_s: float | None = None) -> Message | Lost | None:
        """Return the next message to the controller; None if all is quiet."""
        del wait_s  # all messages are there already
        while True:
            for outbox in self.outboxes.values():
                if outbox:
                    return outbox.popleft()
            name = next((name for name, inbox in self.inboxes.items() if inbox), None)
            if name is None:
                return None
            self.run_machine(name)

    def run_machine(self, machine: str) -> None:
        """Let a machine take one message."""
        self.outboxes[machine].extend(self.machines[machine].handle(self.inboxes[machine].popleft()))

    def close(self) -> None:
        """Forget all machines."""
        self.machines.clear()
        self.inboxes.clear()
        self.outboxes.clear()

"""A machine: it computes gradients, serves shards and keeps copies of shards.

The same object runs inside the controller's process, inside a process of its own, and under a test that delivers
messages in any order it likes.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from optim.core.errors import InvalidProblemError
from optim.core.user_code import format_exception_line
from optim.training.application import Application, HasRows, is_on_device
from optim.training.arrays import descended, to_device, to_host
from optim.training.messages import (
    BackupAck,
    Compute,
    Delta,
    Drop,
    Failed,
    Host,
    Message,
    Push,
    Pushed,
    Read,
    Rebase,
    Replay,
    Rewind,
    RowNumbers,
    ShardReady,
    ShardValues,
    State,
    StoreBackup,
    Sync,
    Trim,
)

if TYPE_CHECKING:
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
        with np.errstate(all="ignore"):  # values that aren't finite are looked for and reported; warnings say less
            pushed = compute(self._application, message, self.name)
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


def compute(application: Application, order: Compute, machine: str = "") -> Pushed:
    """Return the gradient that an order asks for, as it is pushed.

    Parameters
    ----------
    application, order
        The job, and the partition and clock to compute.
    machine
        Name of the worker.

    Raises
    ------
    InvalidProblemError
        If the application returns something else than a gradient of its parameters.
    """
    parameters = descended(order.parameters, order.unapplied, order.rate)
    rows: RowNumbers | None = None
    width = 1
    if is_on_device(application):
        arguments = (to_device(parameters),), *application.on_device(order.partition, order.clock)
        if order.densest > 0 and isinstance(application, HasRows):
            rows, width = application.rows(order.partition), application.row_width
        if rows is not None and len(rows) * width <= order.densest * application.num_parameters:
            gradient, mean, finite = application.compiled_row_gradient(*arguments)
            gradient = gradient.ravel()
        else:
            rows, width = None, 1
            (gradient,), mean, finite = application.compiled_gradient(*arguments)
        mean, finite = to_host((mean, finite))
        loss, is_finite = float(mean) * application.weight(order.partition), bool(finite)
    else:
        gradient, loss = application.gradient(to_host(parameters), order.partition, order.clock)
        check_gradient(gradient, application.num_parameters)
        # In double precision no sum of finite floats overflows.
        is_finite = bool(np.isfinite(np.sum(gradient, dtype=np.float64)) and np.isfinite(loss))
    return Pushed(
        generation=order.generation,
        machine=machine,
        is_finite=is_finite,
        partition=order.partition,
        clock=order.clock,
        gradient=gradient,
        rows=rows,
        width=width,
        weight=application.weight(order.partition),
        loss=loss,
    )


def check_gradient(gradient: object, size: int) -> None:
    """Raise unless a gradient is a flat vector of floats as long as the parameters.

    Raises
    ------
    InvalidProblemError
        With what it is instead.
    """
    if not isinstance(gradient, np.ndarray) or gradient.shape != (size,) or gradient.dtype != np.float32:
        actual = f"{gradient.dtype} of shape {gradient.shape}" if isinstance(gradient, np.ndarray) else type(gradient)
        raise InvalidProblemError(
            f"gradient must be a NumPy array of float32 of shape ({size},), got {actual}; return it as "
            "`np.asarray(gradient, np.float32).ravel()`"
        )


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

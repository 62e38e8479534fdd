"""A machine: it computes gradients, serves shards and keeps copies of shards.

The same object runs inside the controller's process, inside a separate process, and under a test that delivers
messages in any order.
"""

from typing import TYPE_CHECKING

import numpy as np

from optim.core.errors import InvalidProblemError
from optim.core.user_code import format_exception_line
from optim.training.application import Application, HasRows, is_on_device
from optim.training.arrays import Parts, descended, to_device, to_host
from optim.training.messages import (
    Compute,
    Copy,
    Failed,
    Host,
    Keep,
    Kept,
    Message,
    Opened,
    Push,
    Pushed,
    Read,
    RowNumbers,
    ShardValues,
)

if TYPE_CHECKING:
    from optim.training.server import ServedShard


class Machine:
    """State of one machine, and its responses to messages.

    Parameters
    ----------
    name
        Name of the machine.
    application
        The application whose gradients the machine computes.

    Attributes
    ----------
    served, copies
        The shards that the machine serves, and its copies by shard and clock. A newer copy does not replace an older
        copy, since a failure takes all shards back to a common clock.
    """

    def __init__(self, name: str, application: Application) -> None:
        self.name = name
        self.generation = 0
        self.served: dict[int, ServedShard] = {}
        self.copies: dict[int, dict[int, ShardValues]] = {}
        self._application = application

    def handle(self, message: Message) -> list[Message]:
        """Return the replies to a message; messages of older generations are ignored."""
        if self._is_stale(message):
            return []
        is_new, self.generation = message.generation > self.generation, message.generation
        try:
            return self._replies(message, is_new)
        except (Exception, SystemExit) as error:  # raised by an application; the controller reports it
            return [Failed(generation=message.generation, machine=self.name, text=format_exception_line(error))]

    def _is_stale(self, message: Message) -> bool:
        return message.generation < self.generation

    def _replies(self, message: Message, is_new: bool) -> list[Message]:
        match message:
            case Compute():
                with np.errstate(all="ignore"):  # compute() reports values that aren't finite
                    return [compute(self._application, message, self.name)]
            case Push() if message.shard in self.served:
                return self.served[message.shard].push(message)
            case Host():
                return self._host(message)
            case Read():
                values = self._values(message.shard, message.clock)
                return [] if values is None else [Copy(generation=message.generation, values=values)]
            case Copy(generation=generation, values=values):
                self._add_copy(values)
                return [Kept(generation=generation, shard=values.shard, clock=values.clock, holder=self.name)]
            case Keep():
                self._keep(message, is_new)
                return [] if message.last is None else [Opened(generation=message.generation, machine=self.name)]
        return []

    def _host(self, message: Host) -> list[Message]:
        from optim.training.server import ServedShard  # a machine that only computes never loads JAX

        served = self.served.get(message.values.shard)
        if served is None or served.generation < message.generation:
            served = self.served[message.values.shard] = ServedShard(message)
        return [served.applied()]

    def _values(self, shard: int, clock: int) -> ShardValues | None:
        """Return a shard's values as of a clock: a copy, or the served values if the shard is at this clock."""
        copy, served = self.copies.get(shard, {}).get(clock), self.served.get(shard)
        if copy is None and served is not None and served.clock == clock:
            return served.values()
        return copy

    def _add_copy(self, values: ShardValues) -> None:
        self.copies.setdefault(values.shard, {})[values.clock] = values

    def _keep(self, message: Keep, is_new: bool) -> None:
        if message.last is not None and is_new:
            self._forget_after(message.last)
        if message.shards is not None:
            self.served = {shard: served for shard, served in self.served.items() if shard in message.shards}
        if message.copies is not None:
            self.copies = {shard: copies for shard, copies in self.copies.items() if shard in message.copies}
        first = message.first
        self.copies = {shard: {at: copy for at, copy in of.items() if at >= first} for shard, of in self.copies.items()}

    def _forget_after(self, clock: int) -> None:
        """Discard the copies of later clocks, which a rollback undoes."""
        self.copies = {shard: {at: copy for at, copy in of.items() if at <= clock} for shard, of in self.copies.items()}


def compute(application: Application, order: Compute, machine: str = "") -> Pushed:
    """Compute a requested gradient, in the form in which it is pushed.

    Parameters
    ----------
    application, order
        The job, and the message with the partition and clock to compute.
    machine
        Name of the worker.

    Raises
    ------
    InvalidProblemError
        If the application does not return a gradient of its parameters.
    """
    whole = order.parameters.whole if isinstance(order.parameters, Parts) else order.parameters
    parameters = descended(whole, order.unapplied, order.rate)
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
    """Raise InvalidProblemError unless a gradient is a flat vector of floats with one entry per parameter.

    Raises
    ------
    InvalidProblemError
        If the gradient has another type or shape; the message gives type, shape and remedy.
    """
    if not isinstance(gradient, np.ndarray) or gradient.shape != (size,) or gradient.dtype != np.float32:
        actual = f"{gradient.dtype} of shape {gradient.shape}" if isinstance(gradient, np.ndarray) else type(gradient)
        raise InvalidProblemError(
            f"gradient must be a NumPy array of float32 of shape ({size},), got {actual}; return it as "
            "`np.asarray(gradient, np.float32).ravel()`"
        )

"""Shards of a server on JAX's device: they receive pushes, apply clocks, and send copies to the backup.

A clock is one compiled step, which adds the pushes in partition order and applies their mean. The step reuses the
memory of the optimiser's state arrays (slots). Parameters get new memory, so that published parameters, which are
passed by reference, stay unchanged for the workers that read them.
"""

from collections.abc import Iterable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from optim.kernels.parameter_server import RowLayout, Rows, apply_pushes, copy_arrays, push_sparse
from optim.kernels.parameter_server.optimisers import OptState
from optim.kernels.parameter_server.sparse import add_rows
from optim.training.arrays import begin_transfer, contribution, to_device
from optim.training.messages import Applied, Copy, Host, Message, Push, Pushes, ShardValues


class ServedShard:
    """A shard that applies a clock, in partition order, as soon as all partitions have pushed their gradients.

    Attributes
    ----------
    generation
        Generation in which the machine received the shard.
    clock
        Number of applied clocks.
    """

    def __init__(self, message: Host) -> None:
        self.generation = message.generation
        self.shard = message.values.shard
        self.clock = message.values.clock
        self.sync_every = message.sync_every
        self._num_partitions, self._pushes = message.num_partitions, message.pushes
        self._optimiser = message.optimiser
        self._parameters, self._slots = copy_arrays(to_device((message.values.parameters, message.values.slots)))
        self._pending: dict[int, dict[int, Push]] = {}

    def push(self, push: Push) -> list[Message]:
        """Accept a partition's gradient if it is new; apply all complete clocks."""
        if not self._is_new(push):
            return []
        self._pending.setdefault(push.clock, {})[push.partition] = push
        replies: list[Message] = []
        while self._is_complete(self.clock):
            pushes = self._pending.pop(self.clock)
            self._apply([pushes[partition] for partition in self._order(pushes)])
            replies.append(self.applied())
            if self.clock % self.sync_every == 0:
                replies.append(Copy(generation=self.generation, values=self.values()))
        return replies

    def applied(self) -> Applied:
        """Return the message that publishes the shard's parameters."""
        return Applied(generation=self.generation, shard=self.shard, clock=self.clock, parameters=self._parameters)

    def values(self) -> ShardValues:
        """Return the shard's values and begin their transfer to the host.

        Slots are copied, since the next step reuses their memory.
        """
        values = ShardValues(self.shard, self.clock, self._parameters, copy_arrays(self._slots))
        begin_transfer(values)
        return values

    def _is_new(self, push: Push) -> bool:
        return push.clock >= self.clock and push.partition not in self._pending.get(push.clock, {})

    def _is_complete(self, clock: int) -> bool:
        return len(self._pending.get(clock, {})) == self._num_partitions

    def _order(self, pushes: Iterable[int]) -> list[int]:
        """Return the order in which gradients are added: by partition, since the order of arrival differs from run to run."""
        return sorted(pushes)

    def _apply(self, pushes: list[Push]) -> None:
        """Apply the mean of all pushes with a positive weight; if there are none, only advance the clock."""
        pushes = [push for push in pushes if push.weight > 0]
        if pushes:
            gradients, rows, weights, version = to_device(
                (
                    [push.gradient for push in pushes],
                    [push.rows for push in pushes],
                    np.array([push.weight for push in pushes], np.float32),
                    np.int32(self.clock),
                )
            )
            state = self._parameters, self._slots
            if self._takes_rows(pushes):
                layout = RowLayout(optimiser=self._optimiser, width=pushes[0].width)
                state = apply_row_pushes(*state, gradients, rows, weights, version, layout=layout)
            else:
                if any(push.rows is not None for push in pushes):
                    size = self._parameters.size
                    of_each = [(gradients[at], 1.0, rows[at], push.width, size) for at, push in enumerate(pushes)]
                    gradients = [contribution(*each) for each in of_each]
                state = apply_pushes(*state, gradients, weights, version, optimiser=self._optimiser, keep=True)
            self._parameters, self._slots = state
        self.clock += 1

    def _takes_rows(self, pushes: list[Push]) -> bool:
        """Return whether pushes are applied by rows."""
        is_asked = self._pushes is Pushes.ROWS and all(push.rows is not None for push in pushes)
        return is_asked or is_by_rows(pushes, self._optimiser.num_slots)


@partial(jax.jit, static_argnames="layout", donate_argnums=1)
def apply_row_pushes(
    parameters: jax.Array,
    slots: OptState,
    gradients: Sequence[jax.Array],
    rows: Sequence[jax.Array],
    weights: jax.Array,
    version: jax.Array,
    *,
    layout: RowLayout,
) -> tuple[jax.Array, OptState]:
    """Apply the weighted mean of pushes by rows to a shard; slots are donated.

    Parameters
    ----------
    parameters, slots
        Parameters and slots, shape (n,) each: tables of `layout.width` columns, row after row.
    gradients, rows
        Gradients of the k rows of each push, shape (k * width,), and their row numbers, shape (k,), int32.
    weights
        Shape (pushes,): weight of the data of each push.
    version
        Scalar int32: number of earlier updates.
    """
    width = layout.width
    pushed = [
        (numbers, gradient.reshape(-1, width), share)
        for numbers, gradient, share in zip(rows, gradients, weights / weights.sum(), strict=True)
    ]
    if layout.method == "loop" and slots:
        # On a CPU one pass over all rows costs less than finding the pushed rows; a gradient of zero has no effect.
        sums = jnp.zeros_like(parameters).reshape(-1, width)
        for each in pushed:
            sums = add_rows(sums, *each)
        return layout.optimiser.update(parameters, slots, sums.ravel(), version + 1)
    messages = [(numbers, share * values) for numbers, values, share in pushed]
    if layout.method == "sort":
        messages = [(jnp.concatenate(rows), jnp.concatenate([values for _, values in messages]))]
    table = Rows(parameters.reshape(-1, width), tuple(slot.reshape(-1, width) for slot in slots))
    for message in messages:
        table = push_sparse(table, *message, version, layout=layout)
    return table.parameters.ravel(), tuple(slot.ravel() for slot in table.slots)


ARRAY_NS, NUMBER_NS, ROW_NS = 0.42, 1.5, 4.0
"""Measured nanoseconds on a CPU: with full gradients, per parameter for each array that an update reads or writes; with
pushes by rows, additionally per pushed number and per pushed row."""


def is_by_rows(pushes: Sequence[Push], num_slots: int) -> bool:
    """Return whether applying a clock's pushes by rows is faster than as full vectors on the current platform.

    The decision uses the density of the full gradients, so that it is the same for all shards, and for any number of
    shards.

    Parameters
    ----------
    pushes
        Pushes of the clock, at least one.
    num_slots
        Number of state arrays of the optimiser.

    Notes
    -----
    On a CPU, which processes rows one after the other, the comparison uses measured times. An accelerator sorts the rows,
    and the comparison uses transferred bytes, where the bytes of rows count four times.
    """
    if any(push.rows is None or push.width != pushes[0].width for push in pushes):
        return False
    density, width = sum(push.density for push in pushes), pushes[0].width
    arrays = len(pushes) + 2 + 2 * num_slots
    if jax.default_backend() != "cpu":
        return 4 * density < arrays
    return 2 * ARRAY_NS + density * (NUMBER_NS + ROW_NS / width) < arrays * ARRAY_NS

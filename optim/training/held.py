"""The arrays of a shard as a server holds them: flat, or as a table of rows where gradients come by rows."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from optim.kernels.parameter_server import (
    AbstractOptimiser,
    Backup,
    GradientDelta,
    RowLayout,
    apply_pushes,
    initial_rows,
    push_sparse,
    replay_gradients,
    row_parameters,
    row_slots,
)
from optim.training.messages import Push, RowNumbers, Vector

if TYPE_CHECKING:
    from optim.training.host_rows import HostRows

LEAST_ROWS = 64
"""Pushed rows are padded to a multiple of an eighth of a power of two, and to so many: few functions are compiled."""

WHOLE_NS, NUMBER_NS, ROW_NS, COPY_NS = 0.42, 1.5, 4.0, 0.8
"""On a CPU, nanoseconds: of a parameter for each array that an update by whole gradients reads or writes; and by rows, beyond what
whole gradients cost for theirs, of a number pushed, of a row pushed, and of a parameter that is read out of its row."""


class AbstractHeld(ABC):
    """Parameters and slots of a shard."""

    @abstractmethod
    def parameters(self) -> jax.Array:
        """Return the parameters, shape (n,); the next update may take their memory."""

    @abstractmethod
    def slots(self) -> tuple[jax.Array, ...]:
        """Return the slots, shape (n,) each."""

    @abstractmethod
    def apply_whole(self, gradients: Sequence[jax.Array | Vector], weights: Sequence[float], clock: int) -> None:
        """Apply the mean of gradients of shape (n,), in their order."""

    @abstractmethod
    def apply_rows(self, pushes: Sequence[Push], clock: int) -> None:
        """Apply the mean of gradients that come by rows of one width."""

    @abstractmethod
    def replay(self, clocks: Sequence[Sequence[Push]], clock: int) -> None:
        """Apply the means of clocks of whole pushes, one after the other."""

    def whole(self, push: Push) -> Vector:
        """Return a push as a gradient of shape (n,)."""
        if push.rows is None:
            return push.gradient
        parameters = self.parameters()
        table = np.zeros((len(parameters) // push.width, push.width), dtype=np.float32)
        table[push.rows] = push.gradient.reshape(-1, push.width)
        if push.drawn_to is not None:
            table += np.asarray(parameters).reshape(table.shape) - np.float32(push.drawn_to)
        return table.ravel()


class HeldArrays(AbstractHeld):
    """Parameters and slots where JAX keeps them on one device.

    Parameters
    ----------
    parameters, slots
        Shape (n,) each.
    optimiser
        The rule.
    """

    def __init__(self, parameters: Vector, slots: Sequence[Vector], optimiser: AbstractOptimiser) -> None:
        self._optimiser = optimiser
        self._flat: tuple[jax.Array, tuple[jax.Array, ...]] | None = (_own(parameters), tuple(map(_own, slots)))
        self._table: _DeviceRows | HostRows | None = None

    def parameters(self) -> jax.Array:
        """Return the parameters, shape (n,); the next update may take their memory."""
        return self._as_flat()[0] if self._table is None else jnp.asarray(self._table.parameters()).ravel()

    def slots(self) -> tuple[jax.Array, ...]:
        """Return the slots, shape (n,) each."""
        if self._table is None:
            return self._as_flat()[1]
        return tuple(jnp.asarray(slot).ravel() for slot in self._table.slots())

    def apply_whole(self, gradients: Sequence[jax.Array | Vector], weights: Sequence[float], clock: int) -> None:
        """Apply the mean of gradients of shape (n,), in their order."""
        parameters, slots = self._as_flat()
        share = np.array(weights, dtype=np.float32)
        self._flat = apply_pushes(parameters, slots, gradients, share, np.int32(clock), optimiser=self._optimiser)

    def replay(self, clocks: Sequence[Sequence[Push]], clock: int) -> None:
        """Apply the means of clocks of whole pushes, one after the other, by the kernel that replays what was lost."""
        lost = GradientDelta(
            shard=0,
            from_clock=clock,
            pushes=tuple(tuple(push.gradient for push in pushes) for pushes in clocks),
            weights=tuple(np.array([push.weight for push in pushes], dtype=np.float32) for pushes in clocks),
        )
        caught_up, _ = replay_gradients(Backup(0, clock, *self._as_flat()), lost, optimiser=self._optimiser)
        self._flat = caught_up.parameters, caught_up.slots

    def apply_rows(self, pushes: Sequence[Push], clock: int) -> None:
        """Apply the mean of gradients that come by rows of one width; what is drawn somewhere, goes there first.

        For descent the order of the two says nothing: each takes the parameters as they were.
        """
        width, drawn_to = pushes[0].width, pushes[0].drawn_to
        if drawn_to is not None:
            parameters, slots = self._as_flat()
            self._flat = _draw(parameters, jnp.float32(drawn_to), jnp.float32(self._optimiser.learning_rate)), slots
        total = np.float32(sum(push.weight for push in pushes))
        rows = np.concatenate([push.rows for push in pushes if push.rows is not None])
        values = np.concatenate([push.gradient * (np.float32(push.weight) / total) for push in pushes])
        self._as_rows(width).push(rows, values.reshape(-1, width), clock)

    def _as_flat(self) -> tuple[jax.Array, tuple[jax.Array, ...]]:
        if self._flat is None:
            self._flat = self.parameters(), self.slots()
        self._table = None
        return self._flat

    def _as_rows(self, width: int) -> "_DeviceRows | HostRows":
        if self._table is None or self._table.width != width:
            from optim.training.host_rows import HostRows  # a server that applies nothing by rows never loads Numba

            parameters, slots = self._as_flat()
            shape = (-1, width)
            tables = parameters.reshape(shape), tuple(slot.reshape(shape) for slot in slots)
            if jax.default_backend() == "cpu" and HostRows.takes(self._optimiser):
                self._table = HostRows(np.asarray(tables[0]), tuple(map(np.asarray, tables[1])), self._optimiser)
            else:
                self._table = _DeviceRows(*tables, self._optimiser)
        self._flat = None
        return self._table


class _DeviceRows:
    """The table where JAX keeps it, and its update."""

    def __init__(self, parameters: jax.Array, slots: tuple[jax.Array, ...], optimiser: AbstractOptimiser) -> None:
        self.width = parameters.shape[1]
        self._layout = RowLayout(optimiser=optimiser, width=self.width)
        self._table = initial_rows(parameters, self._layout, slots)

    def push(self, rows: RowNumbers, values: Vector, clock: int) -> None:
        """Apply pushed rows, padded so that few functions are compiled."""
        padding = padded(len(rows)) - len(rows)
        rows = np.concatenate([rows, np.full(padding, np.iinfo(np.int32).max, dtype=np.int32)])
        values = np.concatenate([values, np.zeros((padding, self.width), dtype=np.float32)])
        self._table = push_sparse(self._table, rows, values, np.int32(clock), layout=self._layout)

    def parameters(self) -> jax.Array:
        """Return the parameters, shape (rows, width)."""
        return row_parameters(self._table, self._layout)

    def slots(self) -> tuple[jax.Array, ...]:
        """Return the slots, shape (rows, width) each."""
        return row_slots(self._table, self._layout)


def is_by_rows(pushes: Sequence[Push], num_slots: int) -> bool:
    """Tell whether a clock's pushes are applied by rows sooner than as whole vectors, on the platform at hand.

    The density that decides is that of the whole gradients: all shards decide alike, however many they are.

    Parameters
    ----------
    pushes
        At least one.
    num_slots
        Arrays of the rule.

    Notes
    -----
    On a CPU rows are visited one after the other: what that takes has been measured. An accelerator sorts them: there bytes
    are compared, of the rows four times and of whole pushes once.
    """
    if any(
        push.rows is None or (push.width, push.drawn_to) != (pushes[0].width, pushes[0].drawn_to) for push in pushes
    ):
        return False
    density, width = sum(push.density for push in pushes), pushes[0].width
    arrays = len(pushes) + 2 + 2 * num_slots
    if jax.default_backend() != "cpu":
        return 4 * density < arrays
    return COPY_NS + density * (NUMBER_NS + ROW_NS / width) < arrays * WHOLE_NS


def padded(count: int) -> int:
    """Return how many rows a push of so many is padded to."""
    step = max(LEAST_ROWS, 1 << max(0, count.bit_length() - 4))
    return max(1, -(-count // step)) * step


@partial(jax.jit, donate_argnums=0)
def _draw(parameters: jax.Array, goal: jax.Array, rate: jax.Array) -> jax.Array:
    return parameters - rate * (parameters - goal)


def _own(array: Vector) -> jax.Array:
    return jnp.array(array, dtype=jnp.float32, copy=True)

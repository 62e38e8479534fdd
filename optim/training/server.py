"""Shards as a server holds them: what it takes, when it applies, what it sends its backup, and the arrays.

XLA's loops over rows read and write each row of the table by itself and take what is pushed through a buffer: plain descent
takes half as long again as `HostRows`, Adagrad twice as long. Every thread owns a range of rows and goes through the numbers of
all pushed ones, so no two write to one place and the order of additions is that of the push, however many threads there are.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from optim.compiled import compiled
from optim.kernels.parameter_server import (
    AbstractOptimiser,
    Adagrad,
    Backup,
    GradientDelta,
    RowLayout,
    Sgd,
    apply_pushes,
    initial_rows,
    push_sparse,
    replay_gradients,
    row_parameters,
    row_slots,
)
from optim.training.messages import (
    Applied,
    Delta,
    Host,
    Message,
    Push,
    Pushes,
    Replay,
    RowNumbers,
    ShardValues,
    Sync,
    Vector,
)
from optim.training.stages import bounds


class ServedShard:
    """A shard that applies a clock as soon as all partitions have pushed it, in partition order.

    Attributes
    ----------
    clock
        Clocks applied.
    accepted, rejected
        Pushes taken, and pushes refused because they were there already: none is lost and none counts twice.
    """

    def __init__(self, message: Host) -> None:
        self.generation = message.generation
        self.shard = message.values.shard
        self.clock = message.values.clock
        self.sync_every = message.sync_every
        self.accepted = 0
        self.rejected = 0
        self._num_partitions, self._pushes = message.num_partitions, message.pushes
        self._arrays = ShardStore(message.values.parameters, message.values.slots, message.optimiser)
        self._num_slots = message.optimiser.num_slots
        self._pending: dict[int, dict[int, Push]] = {}
        self._sent_clock = message.values.clock

    def push(self, push: Push) -> list[Message]:
        """Take a partition's gradient; apply what is complete."""
        if not self._is_new(push):
            self.rejected += 1
            return []
        self.accepted += 1
        self._pending.setdefault(push.clock, {})[push.partition] = push
        replies: list[Message] = []
        while self._is_complete(self.clock):
            pushes = self._pending.pop(self.clock)
            self._apply([pushes[partition] for partition in self._order(pushes)])
            replies.append(self._applied())
            if self.clock % self.sync_every == 0:
                replies.append(self._delta())
        return replies

    def replay(self, message: Replay) -> list[Message]:
        """Apply clocks again whose pushes have been kept; those pushed whole by the kernel that replays gradients.

        The same function takes the same pushes in the same order: the shard has the bits that were lost.
        """
        if message.from_clock != self.clock:
            return []
        replies: list[Message] = []
        dense_clocks: list[Sequence[Push]] = []
        for pushes in message.clocks:
            if is_whole(pushes):
                dense_clocks.append([push for push in pushes if push.weight > 0])
            else:
                self._replay_whole(dense_clocks)
                self._apply(list(pushes))
            if (self.clock + len(dense_clocks)) % self.sync_every == 0:
                self._replay_whole(dense_clocks)
                replies.append(self._delta())
        self._replay_whole(dense_clocks)
        return [*replies, self._applied()]

    def _replay_whole(self, clocks: list[Sequence[Push]]) -> None:
        """Have clocks of whole pushes replayed, and the list empty."""
        if clocks:
            self._arrays.replay(clocks, self.clock)
            self.clock += len(clocks)
            clocks.clear()

    def sync(self, message: Sync) -> list[Message]:
        """Return the delta up to now, if there is one."""
        del message
        return [self._delta()] if self.clock > self._sent_clock else []

    def rebase(self, generation: int, sync_every: int) -> None:
        """Go on in a new generation; its copies stand at this clock."""
        self.generation, self.sync_every, self._sent_clock = generation, sync_every, self.clock
        self._pending.clear()

    def values(self) -> ShardValues:
        """Return the shard's values: copies, for a buffer that somebody views can't be donated to the next update."""
        arrays = self._arrays
        return ShardValues(self.shard, self.clock, _copy(arrays.parameters()), tuple(map(_copy, arrays.slots())))

    def _is_new(self, push: Push) -> bool:
        return push.clock >= self.clock and push.partition not in self._pending.get(push.clock, {})

    def _is_complete(self, clock: int) -> bool:
        return len(self._pending.get(clock, {})) == self._num_partitions

    def _order(self, pushes: Iterable[int]) -> list[int]:
        """Return the order of the sum: never that of arrival, which differs from run to run."""
        return sorted(pushes)

    def _apply(self, pushes: list[Push]) -> None:
        """Apply the mean of all pushes with weight; without any, the clock goes by."""
        pushes = [push for push in pushes if push.weight > 0]
        if pushes and self._takes_rows(pushes):
            self._arrays.apply_rows(pushes, self.clock)
        elif pushes:
            weights = [push.weight for push in pushes]
            self._arrays.apply_whole([self._arrays.whole(push) for push in pushes], weights, self.clock)
        self.clock += 1

    def _takes_rows(self, pushes: list[Push]) -> bool:
        """Return whether pushes are applied by rows."""
        if any(push.rows is None for push in pushes):
            return False
        return self._pushes is Pushes.ROWS or is_by_rows(pushes, self._num_slots)

    def _applied(self) -> Applied:
        parameters = _copy(self._arrays.parameters())
        return Applied(generation=self.generation, shard=self.shard, clock=self.clock, parameters=parameters)

    def _delta(self) -> Delta:
        sent, self._sent_clock = self._sent_clock, self.clock
        return Delta(generation=self.generation, from_clock=sent, values=self.values())


def is_whole(pushes: Iterable[Push]) -> bool:
    """Return whether some of a clock's pushes count, and those that do came as whole vectors."""
    counting = [push for push in pushes if push.weight > 0]
    return bool(counting) and all(push.rows is None for push in counting)


def _copy(array: jax.Array) -> Vector:
    return np.array(array, copy=True)


NO_PUSH = -1


class HostRows:
    """The rows, with the optimiser's slot next to each row's parameters: so a pushed row is one place in memory.

    Parameters
    ----------
    parameters, slots
        Shape (rows, width) each; copied.
    optimiser
        `Sgd` or `Adagrad`.
    threads
        At work in a push.
    """

    def __init__(
        self, parameters: Vector, slots: Sequence[Vector], optimiser: AbstractOptimiser, *, threads: int = 1
    ) -> None:
        self.width = parameters.shape[1]
        self._optimiser = optimiser
        self._table = np.stack([parameters, *slots], axis=1).astype(np.float32, copy=False)
        self._ranges = [bounds(len(parameters), threads, thread) for thread in range(threads)]
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self._first: RowNumbers = np.full(len(parameters) if slots else 0, NO_PUSH, dtype=np.int32)

    @staticmethod
    def takes(optimiser: AbstractOptimiser) -> bool:
        """Return whether there are loops for a rule."""
        return type(optimiser) in (Sgd, Adagrad)

    def push(self, rows: RowNumbers, values: Vector, clock: int = 0) -> None:
        """Apply pushed rows; equal ones add up first, in the order given. Numbers out of range change nothing.

        Parameters
        ----------
        rows
            Shape (N,), int32.
        values
            Shape (N, width), float32: gradients.
        clock
            Pushes before this one, of which these rules make nothing.
        """
        del clock
        rate, table = np.float32(self._optimiser.learning_rate), self._table
        if isinstance(self._optimiser, Adagrad):
            after, epsilon = np.empty(len(rows), dtype=np.int32), np.float32(self._optimiser.epsilon)
            self._spread(lambda low, high: _adagrad(table, rows, values, rate, epsilon, self._first, after, low, high))
        else:
            self._spread(lambda low, high: _descend(table, rows, values, rate, low, high))

    def parameters(self) -> Vector:
        """Return a copy of the parameters, shape (rows, width)."""
        return self._table[:, 0].copy()

    def slots(self) -> tuple[Vector, ...]:
        """Return copies of the optimiser's arrays."""
        return tuple(self._table[:, 1 + slot].copy() for slot in range(self._optimiser.num_slots))

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    def _spread(self, part: Callable[[int, int], None]) -> None:
        if self._pool is None:
            part(*self._ranges[0])
        else:
            list(self._pool.map(lambda bounds: part(*bounds), self._ranges))


# Elements are named one by one: a view of a row would be counted in and out by every thread. What a division by 0 gives is
# left to the processor, else the loop over a row couldn't be vectorised.
@compiled(error_model="numpy")
def _descend(table, rows, values, rate, low, high):  # type: ignore[no-untyped-def]
    """Step against each pushed row between `low` and `high`."""
    width = table.shape[2]
    for i in range(rows.shape[0]):
        row = rows[i]
        if low <= row < high:
            for j in range(width):
                table[row, 0, j] -= rate * values[i, j]


@compiled(error_model="numpy")
def _adagrad(table, rows, values, rate, epsilon, first, after, low, high):  # type: ignore[no-untyped-def]
    """Add up equal rows between `low` and `high`, each where it is pushed first, and apply the sum.

    `first` tells where a row is pushed first, `NO_PUSH` before and after; `after` where it is pushed next. Few rows are pushed
    twice: only these go through a sum.
    """
    count, width = rows.shape[0], table.shape[2]
    total = np.empty(width, np.float32)
    for i in range(count - 1, -1, -1):
        row = rows[i]
        if low <= row < high:
            after[i] = first[row]
            first[row] = i
    for i in range(count):
        row = rows[i]
        if row < low or row >= high or first[row] != i:
            continue
        first[row] = NO_PUSH
        following = after[i]
        if following == NO_PUSH:
            for j in range(width):
                g = values[i, j]
                square = table[row, 1, j] + g * g
                table[row, 1, j] = square
                table[row, 0, j] -= rate * g / (np.sqrt(square) + epsilon)
            continue
        for j in range(width):
            total[j] = values[i, j]
        while following != NO_PUSH:
            for j in range(width):
                total[j] += values[following, j]
            following = after[following]
        for j in range(width):
            g = total[j]
            square = table[row, 1, j] + g * g
            table[row, 1, j] = square
            table[row, 0, j] -= rate * g / (np.sqrt(square) + epsilon)


MIN_ROWS = 64
"""Pushed rows are padded to a multiple of an eighth of a power of two, and to so many: few functions are compiled."""


WHOLE_NS, NUMBER_NS, ROW_NS, COPY_NS = 0.42, 1.5, 4.0, 0.8
"""On a CPU, nanoseconds: of a parameter for each array that an update by whole gradients reads or writes; and by rows, beyond what
whole gradients cost for theirs, of a number pushed, of a row pushed, and of a parameter that is read out of its row."""


class ShardStore:
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
        self._flat: tuple[jax.Array, tuple[jax.Array, ...]] | None = (
            _owned_copy(parameters),
            tuple(map(_owned_copy, slots)),
        )
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

    def whole(self, push: Push) -> Vector:
        """Return a push as a gradient of shape (n,)."""
        if push.rows is None:
            return push.gradient
        parameters = self.parameters()
        table = np.zeros((len(parameters) // push.width, push.width), dtype=np.float32)
        table[push.rows] = push.gradient.reshape(-1, push.width)
        if push.weight_decay_center is not None:
            table += np.asarray(parameters).reshape(table.shape) - np.float32(push.weight_decay_center)
        return table.ravel()

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
        width, weight_decay_center = pushes[0].width, pushes[0].weight_decay_center
        if weight_decay_center is not None:
            parameters, slots = self._as_flat()
            self._flat = (
                _draw(parameters, jnp.float32(weight_decay_center), jnp.float32(self._optimiser.learning_rate)),
                slots,
            )
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
    """Return whether a clock's pushes are applied by rows sooner than as whole vectors, on the platform at hand.

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
        push.rows is None or (push.width, push.weight_decay_center) != (pushes[0].width, pushes[0].weight_decay_center)
        for push in pushes
    ):
        return False
    density, width = sum(push.density for push in pushes), pushes[0].width
    arrays = len(pushes) + 2 + 2 * num_slots
    if jax.default_backend() != "cpu":
        return 4 * density < arrays
    return COPY_NS + density * (NUMBER_NS + ROW_NS / width) < arrays * WHOLE_NS


def padded(count: int) -> int:
    """Return how many rows a push of so many is padded to."""
    step = max(MIN_ROWS, 1 << max(0, count.bit_length() - 4))
    return max(1, -(-count // step)) * step


@partial(jax.jit, donate_argnums=0)
def _draw(parameters: jax.Array, goal: jax.Array, rate: jax.Array) -> jax.Array:
    return parameters - rate * (parameters - goal)


def _owned_copy(array: Vector) -> jax.Array:
    return jnp.array(array, dtype=jnp.float32, copy=True)

"""State of the computation: clocks of partitions and shards, partitions that may start, and the log of pushes.

A *clock* is one update of the parameters by the gradients of all partitions.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from optim.training.application import Application, HasRows
from optim.training.arrays import Parts, contribution, cut
from optim.training.checkpoints import StartingPoint
from optim.training.messages import Applied, Compute, Push, Pushed, Pushes, RowNumbers, ShardValues, Vector
from optim.training.stages import ClusterOptions, row_width, shard_bounds

if TYPE_CHECKING:
    from optim.kernels.parameter_server import AbstractOptimiser

MEGABYTE = 1_000_000


class PushLog:
    """The pushes sent to the servers for each clock and partition, up to a size limit.

    The log is in the controller's memory, so that it survives the loss of machines, but not the loss of the controller.

    Parameters
    ----------
    num_partitions
        Number of pushes per clock.
    max_bytes
        Size limit in bytes. When it is reached, the log drops clocks before the newest complete copies, and then stops
        adding pushes. After a failure, machines compute the missing pushes again. 0 disables the log.
    """

    def __init__(self, num_partitions: int, max_bytes: float) -> None:
        self._num_partitions, self._max_bytes = num_partitions, max_bytes
        self._clocks: dict[int, dict[int, list[Push]]] = {}
        self._bytes: dict[int, int] = {}
        self._safe = 0

    @property
    def num_bytes(self) -> int:
        """Size in bytes of the gradients in the log."""
        return sum(self._bytes.values())

    def add(self, clock: int, partition: int, pushes: Sequence[Push]) -> None:
        """Log pushes; NumPy gradients are copied, since later clocks overwrite the shared memory in which they may be."""
        size = sum(push.gradient.nbytes for push in pushes)
        if self.num_bytes + size > self._max_bytes:
            self.keep(self._safe, clock + 1)
        if self.num_bytes + size > self._max_bytes:
            return
        is_numpy = isinstance(pushes[0].gradient, np.ndarray)
        copies = [replace(push, gradient=push.gradient.copy()) for push in pushes] if is_numpy else list(pushes)
        self._clocks.setdefault(clock, {})[partition] = copies
        self._bytes[clock] = self._bytes.get(clock, 0) + size

    def end(self, clock: int) -> int:
        """Return the clock reached by replaying the log from `clock`."""
        while len(self._clocks.get(clock, ())) == self._num_partitions:
            clock += 1
        return clock

    def keep(self, first: int, end: int) -> None:
        """Discard all clocks except those from `first` to `end` (exclusive)."""
        self._clocks = {at: pushes for at, pushes in self._clocks.items() if first <= at < end}
        self._bytes = {at: size for at, size in self._bytes.items() if at in self._clocks}

    def trim(self, safe: int, stored: int) -> None:
        """Discard the clocks before `stored`, the last clock for which the storage has all shards.

        At the size limit, `add` drops the clocks before `safe` first: while copies of all shards as of `safe` remain, no
        failure causes a rollback to an earlier clock.
        """
        self._safe = safe
        self.keep(stored, max(self._clocks, default=stored) + 1)

    def pushes(self, clock: int) -> Iterator[Push]:
        """Yield the logged pushes from `clock` on, clock by clock, up to the first incomplete clock."""
        for at in range(clock, self.end(clock)):
            for partition in range(self._num_partitions):
                yield from self._clocks[at][partition]


DENSEST = 0.5
"""Share of rows with a gradient above which a full vector is pushed: rows with their indices would be hardly shorter."""


def densest_rows(application: Application, optimiser: "AbstractOptimiser", options: ClusterOptions) -> float:
    """Return the largest share of rows with a gradient for which a worker pushes by rows; 0 if it never does."""
    if not isinstance(application, HasRows) or not optimiser.zero_grad_is_noop or options.pushes is Pushes.DENSE:
        return 0.0
    if row_width(application, options.num_shards) != application.row_width:
        return 0.0
    return 1.0 if options.pushes is Pushes.ROWS else DENSEST


class Dataflow:
    """Clocks of the partitions and of the shards, and the parameters that workers read.

    Attributes
    ----------
    completed
        Number of clocks for which each of the P partitions has pushed its gradient, shape (P,), int32.
    read_clock
        The last clock that all shards have applied.
    losses
        Mean loss at the start of each completed clock; a repeated clock replaces its loss.
    num_computed
        Number of received gradients, including repetitions.
    num_skipped
        Number of received gradients that were skipped because they weren't finite.
    log
        Log of the pushes to replay after a failure.
    """

    def __init__(self, application: Application, optimiser: "AbstractOptimiser", options: ClusterOptions) -> None:
        self.num_partitions = application.num_partitions
        self.ranges = tuple(slice(*part) for part in shard_bounds(application, options.num_shards))
        self.completed: NDArray[np.int32] = np.zeros(self.num_partitions, dtype=np.int32)
        self.read_clock = 0
        self._published = Parts([application.initial_parameters()])
        self.losses: list[float] = []
        self.num_computed = 0
        self.log = PushLog(self.num_partitions, options.replay_mb * MEGABYTE)
        self._staleness, self._densest = options.staleness, densest_rows(application, optimiser, options)
        # The rate is used only with staleness, which excludes schedules of the rate.
        self._rate = optimiser.learning_rate if isinstance(optimiser.learning_rate, float | int) else 0.0
        self.num_skipped = 0
        self._weights = [application.weight(partition) for partition in range(self.num_partitions)]
        self._total_weight = sum(self._weights)
        self._computing: dict[int, int] = {}
        self._applied = [0] * options.num_shards
        self._replayed_to = 0
        self._parts: dict[int, dict[int, Vector]] = {}
        self._contributions: dict[int, dict[int, Vector]] = {}
        self._loss_parts: dict[int, dict[int, float | None]] = {}

    @property
    def parameters(self) -> Vector:
        """The parameters after `read_clock` clocks, shape (n,)."""
        whole: Vector = self._published.whole
        return whole

    def startable(self, stop_at: int) -> list[int]:
        """Return the partitions that may start their next clock, if it is before `stop_at`."""
        if self.read_clock < self._replayed_to:
            return []  # pushes from the log are replayed first
        return [
            partition
            for partition, clock in enumerate(self.completed.tolist())
            if partition not in self._computing and clock < stop_at and self._sees_enough(clock)
        ]

    def _sees_enough(self, clock: int) -> bool:
        """Return whether the readable parameters are new enough for a clock: (K.4), which implies (K.3)."""
        return self.read_clock >= clock - self._staleness

    def compute(self, partition: int, generation: int) -> Compute:
        """Return the message that requests a partition's gradient for its next clock."""
        clock = int(self.completed[partition])
        self._computing[partition] = clock
        unapplied = self._contributions.get(partition, {})
        return Compute(
            generation=generation,
            partition=partition,
            clock=clock,
            read_clock=self.read_clock,
            parameters=self._published,
            unapplied=tuple(unapplied[at] for at in range(self.read_clock, clock)),
            rate=self._rate,
            densest=self._densest,
        )

    def pushed(self, message: Pushed) -> list[Push]:
        """Accept a gradient; return the push for each shard's server, or an empty list if the gradient arrived before.

        A gradient that isn't finite has weight 0, as if the partition had no data at this clock.
        """
        if not self.is_next(message):
            return []
        partition, clock = message.partition, message.clock
        weight = message.weight if message.is_finite else 0.0
        self.num_skipped += not message.is_finite
        self.num_computed += 1
        self._computing.pop(partition, None)
        self.completed[partition] += 1
        if self._staleness > 0:
            share, size = weight / self._total_weight, self.ranges[-1].stop
            scaled = contribution(message.gradient, share, message.rows, message.width, size)
            self._contributions.setdefault(partition, {})[clock] = scaled
        self._note_loss(message)
        pushes = [
            Push(
                generation=message.generation,
                shard=shard,
                partition=partition,
                clock=clock,
                gradient=cut(message.gradient, part),
                rows=rows,
                width=message.width,
                density=len(message.gradient) / self.ranges[-1].stop,
                weight=weight,
            )
            for shard, (part, rows) in enumerate(self._parts_of(message))
        ]
        self.log.add(clock, partition, pushes)
        return pushes

    def applied(self, message: Applied) -> None:
        """Store a shard's parameters; a clock becomes readable once all shards have applied it."""
        if message.clock <= self._applied[message.shard]:
            return
        self._applied[message.shard] = message.clock
        parts = self._parts.setdefault(message.clock, {})
        parts[message.shard] = message.parameters
        if len(parts) == len(self.ranges):
            self._publish(message.clock, [parts[shard] for shard in range(len(parts))])

    def reset(self, clock: int, parts: Sequence[Vector]) -> None:
        """Reset to a clock, without pending computations; `replays` then yields the logged pushes of later clocks."""
        self._replayed_to = self.log.end(clock)
        self.log.keep(0, self._replayed_to)
        self.completed[:] = self._replayed_to
        self._computing.clear()
        self._applied = [clock] * len(self.ranges)
        self._parts.clear()
        self._contributions.clear()
        self._loss_parts.clear()
        del self.losses[self._replayed_to :]
        self._publish(clock, parts)

    def replays(self, generation: int) -> Iterator[Push]:
        """Yield the logged pushes that advance the shards from `read_clock` to the end of the log.

        The same function applies the same pushes in the same order, so the shards have the same bits as before.
        """
        return (replace(push, generation=generation) for push in self.log.pushes(self.read_clock))

    def begin_at(self, start: StartingPoint) -> list[ShardValues]:
        """Set the state to a run's starting point, and return each shard's values at this point."""
        self.losses = list(start.losses)
        self.reset(start.clock, [start.parameters[part].copy() for part in self.ranges])
        return [
            ShardValues(
                shard, start.clock, start.parameters[part].copy(), tuple(slot[part].copy() for slot in start.slots)
            )
            for shard, part in enumerate(self.ranges)
        ]

    def compute_again(self, partitions: Iterable[int]) -> None:
        """Reset partitions whose worker is lost, so that they are computed again."""
        for partition in partitions:
            self._computing.pop(partition, None)

    @property
    def boundary(self) -> int:
        """The next clock at which all partitions can meet."""
        return max(int(self.completed.max()), max((clock + 1 for clock in self._computing.values()), default=0))

    def is_settled_at(self, clock: int) -> bool:
        """Return whether all partitions have pushed and all shards applied exactly this number of clocks."""
        return bool((self.completed == clock).all()) and self.read_clock == clock and not self._computing

    def is_next(self, message: Pushed) -> bool:
        """Return whether a gradient is for the clock that is expected next from its partition."""
        return message.clock == int(self.completed[message.partition])

    def _publish(self, clock: int, parts: Sequence[Vector]) -> None:
        self.read_clock, self._published = clock, Parts(parts)
        self._parts = {at: values for at, values in self._parts.items() if at > clock}
        for contributions in self._contributions.values():
            for at in [at for at in contributions if at < clock]:
                del contributions[at]

    def _parts_of(self, message: Pushed) -> Iterator[tuple[slice, RowNumbers | None]]:
        """Yield for each shard its range in a worker's vector, and its row numbers if the vector was pushed by rows."""
        for part in self.ranges:
            if message.rows is None:
                yield part, None
                continue
            first, last = part.start // message.width, part.stop // message.width
            low, high = np.searchsorted(message.rows, [first, last]).tolist()
            yield slice(low * message.width, high * message.width), message.rows[low:high] - np.int32(first)

    def _note_loss(self, message: Pushed) -> None:
        """Record a loss; once all losses of a clock have arrived, append their mean, summed in partition order."""
        parts = self._loss_parts.setdefault(message.clock, {})
        parts[message.partition] = message.loss if message.is_finite else None
        if len(parts) == self.num_partitions:
            del self._loss_parts[message.clock]
            weighted = [(parts[k], weight) for k, weight in enumerate(self._weights)]
            total = sum(loss for loss, _ in weighted if loss is not None)
            weights = sum(weight for loss, weight in weighted if loss is not None)
            self.losses.append(total / weights if weights else np.nan)

"""Messages between controller and machines.

Every message carries the *generation* in which it was sent. A rebuild of the shards opens a new generation, and
messages of older ones are worth nothing from then on: that is how a worker that slept through a failure is kept from
pushing what it computed from a state that no longer exists.
"""

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

if TYPE_CHECKING:
    from optim.kernels.parameter_server import AbstractOptimiser


class Pushes(StrEnum):
    """Whether gradients are pushed whole or by rows."""

    AUTO = "auto"
    """By rows where few aren't zero: as measured, gradient by gradient; a server applies them so where its platform is faster then."""
    DENSE = "dense"
    """Whole, always."""
    ROWS = "rows"
    """By rows wherever the application and the rule allow it."""


class NonFinite(StrEnum):
    """What becomes of a gradient or loss that is infinite or not a number."""

    STOP = "stop"
    """The run ends with a line that names machine, partition and clock."""
    SKIP = "skip"
    """The clock goes on without the partition, whose data counts for nothing in it."""
    REFUSE = "refuse"
    """It is computed once more, on another machine where there is one; if that is no better, the run ends."""


Vector = NDArray[np.float32]
"""A vector in the host's memory, or one of JAX on the device: `optim.training.arrays` takes both."""

RowNumbers = NDArray[np.int32]

OptState = tuple[Vector, ...]


class ShardValues(NamedTuple):
    """A shard as of `clock` applied clocks: its parameters and the optimiser's slots, each of the shard's length."""

    shard: int
    clock: int
    parameters: Vector
    slots: OptState


class Message(Struct, frozen=True, kw_only=True):
    """The part that all have."""

    generation: int


class Ready(Message, frozen=True, kw_only=True):
    """From a machine, its first word: it can be given something to do. It is of no generation yet."""

    machine: str
    generation: int = 0


class Compute(Message, frozen=True, kw_only=True):
    """To a worker: compute a partition's gradient for a clock.

    `parameters` is the whole vector as of `read_clock` applied clocks. `unapplied` are the partition's own gradients pushed
    since, scaled to their share of the data, and `rate` what they are multiplied by: the worker sees its own writes.
    `densest` is the share of its rows up to which the gradient is pushed by rows, 0 for never.
    """

    partition: int
    clock: int
    read_clock: int
    parameters: Vector
    unapplied: tuple[Vector, ...] = ()
    rate: float = 0.0
    densest: float = 0.0


class GradientMessage(Message, frozen=True, kw_only=True):
    """A partition's gradient for a clock, or a part of it, and the weight of the data behind it.

    A gradient pushed by `rows` has `width` numbers per row.
    """

    partition: int
    clock: int
    gradient: Vector
    rows: RowNumbers | None = None
    width: int = 1
    weight: float


class Pushed(GradientMessage, frozen=True, kw_only=True):
    """From a worker: the gradient, and the partition's summed loss before the update.

    `is_finite` says whether gradient and loss are; the worker checks it, while the gradient is in its caches.
    """

    machine: str = ""
    is_finite: bool = True
    loss: float


class Failed(Message, frozen=True, kw_only=True):
    """From a machine: it could not do what it was told; the last line of the traceback, and where it was raised."""

    machine: str
    text: str


class Push(GradientMessage, frozen=True, kw_only=True):
    """To a server: a shard's part of a gradient; one of weight 0 is counted, and left out of the sum.

    `rows` are numbers of the shard's rows; `start` is where its part begins in the worker's vector, and `density` the share of
    all shards' parameters that the gradient has numbers for.
    """

    shard: int
    start: int = 0
    density: float = 1.0


class Applied(Message, frozen=True, kw_only=True):
    """From a server: a shard has `clock` clocks applied, and its parameters are these."""

    shard: int
    clock: int
    parameters: Vector


class Sync(Message, frozen=True, kw_only=True):
    """To a server: send what the backup does not have yet."""

    shard: int


class Delta(Message, frozen=True, kw_only=True):
    """From a server, and on to the backup: newer values for a copy at `from_clock`."""

    from_clock: int
    values: ShardValues


class BackupAck(Message, frozen=True, kw_only=True):
    """From a backup: it holds the shard as of `clock`."""

    shard: int
    clock: int
    holder: str


class Read(Message, frozen=True, kw_only=True):
    """To a holder of the shard as of `clock`: send it."""

    shard: int
    clock: int


class State(Message, frozen=True, kw_only=True):
    """The answer to `Read`."""

    values: ShardValues


class Host(Message, frozen=True, kw_only=True):
    """To a machine: serve a shard from these values on, and send a delta at every clock that `sync_every` divides.

    `pushes` tells whether gradients that come by rows are applied by rows.
    """

    values: ShardValues
    optimiser: "AbstractOptimiser"
    num_partitions: int
    sync_every: int
    pushes: Pushes = Pushes.AUTO


class Replay(Message, frozen=True, kw_only=True):
    """To a server that stands at `from_clock`: apply these clocks again, each with its pushes in partition order."""

    shard: int
    from_clock: int
    clocks: tuple[tuple[Push, ...], ...]


class Rebase(Message, frozen=True, kw_only=True):
    """To a server that keeps its shard over a rebuild: go on in the new generation."""

    shard: int
    clock: int
    sync_every: int


class ShardReady(Message, frozen=True, kw_only=True):
    """From a server: it serves the shard where it was told to."""

    shard: int


class StoreBackup(Message, frozen=True, kw_only=True):
    """To a machine: keep a copy of these values, wherever its other copies stand."""

    values: ShardValues


class Rewind(Message, frozen=True, kw_only=True):
    """To a holder of copies: forget all that is later than `clock`."""

    clock: int


class Trim(Message, frozen=True, kw_only=True):
    """To a holder of copies: nobody will ask for anything before `clock` any more."""

    clock: int


class Drop(Message, frozen=True, kw_only=True):
    """To a machine: keep only these shards and these copies."""

    shards: tuple[int, ...]
    copies: tuple[int, ...]

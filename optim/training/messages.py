"""Messages between controller and machines.

Every message carries the *generation* in which it was sent. A rebuild of the shards opens a new generation, and
receivers ignore messages of older ones. So a worker that slept through a failure cannot push a gradient of parameters
that no longer exist.
"""

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

if TYPE_CHECKING:
    from optim.kernels.parameter_server import AbstractOptimiser
    from optim.training.arrays import Parts


class Pushes(StrEnum):
    """Whether gradients are pushed as full vectors or by rows."""

    AUTO = "auto"
    """By rows for each gradient with few nonzero rows; servers apply pushes by rows if their platform is then faster."""
    DENSE = "dense"
    """Always as full vectors."""
    ROWS = "rows"
    """By rows wherever the application and the rule allow it."""


class NonFinite(StrEnum):
    """Treatment of a gradient or loss that is infinite or not a number."""

    STOP = "stop"
    """The run ends with an error that names machine, partition and clock."""
    SKIP = "skip"
    """The clock continues without the partition, whose data gets weight 0."""
    REFUSE = "refuse"
    """The gradient is computed again, on another machine if there is one; if it still isn't finite, the run ends."""


Vector = NDArray[np.float32]
"""A NumPy vector on the host, or a JAX vector on the device; `optim.training.arrays` accepts both."""

RowNumbers = NDArray[np.int32]

OptState = tuple[Vector, ...]


class ShardValues(NamedTuple):
    """A shard after `clock` applied clocks: its parameters and the optimiser's state arrays (slots), all of one length."""

    shard: int
    clock: int
    parameters: Vector
    slots: OptState


class Message(Struct, frozen=True, kw_only=True):
    """Base class of messages."""

    generation: int


class Ready(Message, frozen=True, kw_only=True):
    """From a machine, as its first message: it is ready. It belongs to no generation yet."""

    machine: str
    generation: int = 0


class Compute(Message, frozen=True, kw_only=True):
    """To a worker: compute a partition's gradient for a clock.

    `parameters` is the vector after `read_clock` applied clocks. `unapplied` are the gradients that the partition has
    pushed since then, scaled by its share of the data. The worker subtracts them times `rate`, to see the effect of its
    own pushes. The gradient is pushed by rows if it concerns at most the share `densest` of all rows; 0 for never.
    """

    partition: int
    clock: int
    read_clock: int
    parameters: "Vector | Parts"
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

    `is_finite` states whether gradient and loss are finite; the worker checks this while the gradient is in its caches.
    """

    machine: str = ""
    is_finite: bool = True
    loss: float


class Failed(Message, frozen=True, kw_only=True):
    """From a machine: its task failed. `text` is the last line of the traceback, and the line of code that raised it."""

    machine: str
    text: str


class Push(GradientMessage, frozen=True, kw_only=True):
    """To a server: a shard's part of a gradient; a push of weight 0 is counted, but excluded from the sum.

    `rows` are row numbers within the shard, and `density` is the share of all parameters for which the worker pushed a
    number.
    """

    shard: int
    density: float = 1.0


class Applied(Message, frozen=True, kw_only=True):
    """From a server: a shard's parameters after `clock` applied clocks; also its first response to `Host`."""

    shard: int
    clock: int
    parameters: Vector


class Host(Message, frozen=True, kw_only=True):
    """To a machine: serve a shard from these values on, and send a copy at every clock that `sync_every` divides.

    `pushes` decides whether gradients that are pushed by rows are also applied by rows.
    """

    values: ShardValues
    optimiser: "AbstractOptimiser"
    num_partitions: int
    sync_every: int
    pushes: Pushes = Pushes.AUTO


class Read(Message, frozen=True, kw_only=True):
    """To a machine that keeps or serves the shard as of `clock`: send a copy."""

    shard: int
    clock: int


class Copy(Message, frozen=True, kw_only=True):
    """From a server or holder, and on to a holder: a shard's values, to be stored with the holder's other copies."""

    values: ShardValues


class Kept(Message, frozen=True, kw_only=True):
    """From a holder: it keeps a copy of the shard as of `clock`."""

    shard: int
    clock: int
    holder: str


class Keep(Message, frozen=True, kw_only=True):
    """To a machine: keep only the served shards in `shards`, and copies of the shards in `copies` from clock `first` on.

    None means all shards. The first message of a generation sets `last`: the machine also discards copies of later
    clocks, and answers `Opened`.
    """

    first: int = 0
    last: int | None = None
    shards: tuple[int, ...] | None = None
    copies: tuple[int, ...] | None = None


class Opened(Message, frozen=True, kw_only=True):
    """From a machine: it has left all older generations, and no longer writes their data."""

    machine: str

"""Messages between controller and machines.

Every message carries the *generation* in which it was sent. A rebuild of the shards opens a new generation, and
receivers ignore messages of older generations. So a worker that was suspended during a failure can't push a gradient of
parameters that no longer exist.
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
    """Form in which workers push gradients: as full vectors, or by rows (only the rows that have a gradient)."""

    AUTO = "auto"
    """By rows for each gradient with few nonzero rows; servers also apply these by rows if that is faster on their platform."""
    DENSE = "dense"
    """Always as full vectors."""
    ROWS = "rows"
    """By rows wherever the application and the optimiser allow it."""


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
    """From a machine, as its first message: the machine is ready. The message belongs to no generation."""

    machine: str
    generation: int = 0


class Compute(Message, frozen=True, kw_only=True):
    """To a worker: compute a partition's gradient for a clock.

    `parameters` is the vector after `read_clock` applied clocks. `unapplied` are the gradients that the partition has
    pushed since then, scaled by its share of the data. The worker subtracts `rate` times these gradients, so that its
    own pushes take effect. The gradient is pushed by rows if it has at most the share `densest` of all rows; 0 for
    never.
    """

    partition: int
    clock: int
    read_clock: int
    parameters: "Vector | Parts"
    unapplied: tuple[Vector, ...] = ()
    rate: float = 0.0
    densest: float = 0.0


class GradientMessage(Message, frozen=True, kw_only=True):
    """A partition's gradient for a clock, or a part of the gradient, and the weight of the partition's data.

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
    """To a server: a shard's part of a gradient. A push of weight 0 counts as received, but isn't added to the sum.

    `rows` are row numbers within the shard, and `density` is the share of all parameters for which the worker's
    gradient has a number.
    """

    shard: int
    density: float = 1.0


class Applied(Message, frozen=True, kw_only=True):
    """From a server: a shard's parameters after `clock` applied clocks; also its first response to `Host`."""

    shard: int
    clock: int
    parameters: Vector


class Host(Message, frozen=True, kw_only=True):
    """To a machine: serve a shard that begins with these values, and send a copy at every multiple of `sync_every` clocks.

    `pushes` decides whether gradients that are pushed by rows are also applied by rows.
    """

    values: ShardValues
    optimiser: "AbstractOptimiser"
    num_partitions: int
    sync_every: int
    pushes: Pushes = Pushes.AUTO


class Read(Message, frozen=True, kw_only=True):
    """To a machine that serves a shard or keeps a copy as of `clock`: send a copy."""

    shard: int
    clock: int


class Copy(Message, frozen=True, kw_only=True):
    """A shard's values: from a machine to the controller, and from the controller to a holder, which stores them as a copy."""

    values: ShardValues


class Kept(Message, frozen=True, kw_only=True):
    """From a holder of copies: it has stored a copy of the shard as of `clock`."""

    shard: int
    clock: int
    holder: str


class Keep(Message, frozen=True, kw_only=True):
    """To a machine: discard all served shards except `shards`, and all copies except those of `copies` since clock `first`.

    None means all shards. The first message of a generation sets `last`; then the machine also discards copies of clocks
    after `last`, and answers `Opened`.
    """

    first: int = 0
    last: int | None = None
    shards: tuple[int, ...] | None = None
    copies: tuple[int, ...] | None = None


class Opened(Message, frozen=True, kw_only=True):
    """From a machine: it has left all older generations, and no longer writes data of those."""

    machine: str

"""Vectors in memory that processes share, and how messages refer to them.

The memory is an anonymous file: it has no name that could be left behind, and goes with the last process that has it
open, however that process ends. Pages that nobody writes take no room, so every machine has its own rows.
"""

import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.reduction import DupFd
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from optim.core.errors import InvalidOptionError
from optim.training.messages import Applied, Compute, Message, Push, Pushed, Vector

FLOAT_BYTES, COUNT_BYTES, LINE_BYTES = 4, 8, 64

_ELSEWHERE: Vector = np.empty(0, dtype=np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """How the rows of shared memory are numbered.

    Parameters
    ----------
    num_parameters
        Length n of a row.
    num_partitions
        Gradients of a clock.
    depth
        Clocks that may be under way at once, and one more.
    max_machines
        Machines that may live at once.
    """

    num_parameters: int
    num_partitions: int
    depth: int
    max_machines: int

    @property
    def num_rows(self) -> int:
        """Rows of all machines, and those of the controller."""
        return self.depth + self.max_machines * self.depth * (self.num_partitions + 1)

    @property
    def num_bytes(self) -> int:
        """Length of the memory: signs of life, a count for each machine, then the rows."""
        return self.rows_at + self.num_rows * self.num_parameters * FLOAT_BYTES

    @property
    def rows_at(self) -> int:
        """Where the rows begin: on a cache line."""
        return -(-self.max_machines * COUNT_BYTES // LINE_BYTES) * LINE_BYTES

    def published(self, clock: int) -> int:
        """Return the row of the parameters that workers read."""
        return clock % self.depth

    def gradient(self, place: int, partition: int, clock: int) -> int:
        """Return the row that the machine at a place writes a partition's gradient to."""
        return self._first(place) + (clock % self.depth) * self.num_partitions + partition

    def applied(self, place: int, clock: int) -> int:
        """Return the row that the machine at a place writes its shards' parameters to."""
        return self._first(place) + self.depth * self.num_partitions + clock % self.depth

    def _first(self, place: int) -> int:
        return self.depth + place * self.depth * (self.num_partitions + 1)


class Row(NamedTuple):
    """Elements `start` to `stop` of a row: where a travelling message's vector lies."""

    number: int
    start: int
    stop: int


class WireMessage(NamedTuple):
    """A message on its way; its long vector, if it has one, stays in a row."""

    message: Message
    row: Row | None = None


class SharedMemory:
    """The rows.

    Parameters
    ----------
    plan
        Their numbers.
    descriptor
        An open file of the plan's length; a new one if not given.

    Attributes
    ----------
    beats
        Shape (max_machines,): what the machine at each place has counted up to, as a sign of life.

    Raises
    ------
    InvalidOptionError
        If the system gives no such memory.
    """

    def __init__(self, plan: MemoryPlan, descriptor: int | None = None) -> None:
        self.plan = plan
        self.descriptor = -1
        try:
            self.descriptor = os.memfd_create("optim-training") if descriptor is None else descriptor
            if descriptor is None:
                os.ftruncate(self.descriptor, plan.num_bytes)
            shared = mmap.mmap(self.descriptor, plan.num_bytes)
        except (OSError, OverflowError, ValueError) as error:
            if self.descriptor >= 0:
                os.close(self.descriptor)
            raise InvalidOptionError(
                f"no shared memory of {plan.num_bytes} bytes: {error}; ask for fewer machines or parameters, or a smaller staleness"
            ) from error
        self.beats: NDArray[np.int64] = np.frombuffer(shared, dtype=np.int64, count=plan.max_machines)
        rows: NDArray[np.float32] = np.frombuffer(shared, dtype=np.float32, offset=plan.rows_at)
        self._rows = rows.reshape(plan.num_rows, plan.num_parameters)

    def __reduce__(self) -> tuple[Callable[..., "SharedMemory"], tuple[MemoryPlan, Any]]:
        """Travel to a process that is being made, which opens the same memory."""
        return _opened, (self.plan, DupFd(self.descriptor))

    def write(self, row: Row, vector: Vector) -> None:
        """Copy a vector into a row."""
        self._rows[row.number, row.start : row.stop] = vector

    def read(self, row: Row) -> Vector:
        """Return a view of a row."""
        return self._rows[row.number, row.start : row.stop]

    def close(self) -> None:
        """Give the memory back once nobody looks at it any more."""
        del self._rows, self.beats
        os.close(self.descriptor)


def _opened(plan: MemoryPlan, duplicate: Any) -> SharedMemory:
    return SharedMemory(plan, duplicate.detach())


class Codec:
    """Put a message's long vectors into shared memory before it travels, and take them out at the other end.

    Values of whole shards (deltas, copies, moves) travel through the pipe itself: they are rare, and must not change
    while they are kept.

    Parameters
    ----------
    memory
        The rows.
    ranges
        Start and stop of each shard.
    """

    def __init__(self, memory: SharedMemory, ranges: tuple[tuple[int, int], ...]) -> None:
        self._memory, self._ranges = memory, ranges
        self._published: Vector | None = None
        self._sources: dict[tuple[int, int, int], int] = {}

    def to_machine(self, message: Message) -> WireMessage:
        """Return the controller's message as it travels."""
        plan = self._memory.plan
        if isinstance(message, Compute):
            row = Row(plan.published(message.read_clock), 0, plan.num_parameters)
            if self._published is not message.parameters:
                self._memory.write(row, message.parameters)
                self._published = message.parameters
            return WireMessage(replace(message, parameters=_ELSEWHERE), row)
        if isinstance(message, Push):
            source = self._sources[message.generation, message.partition, message.clock]
            start, stop = self._ranges[message.shard]
            if message.rows is not None:
                start, stop = message.start, message.start + len(message.gradient)
            return WireMessage(replace(message, gradient=_ELSEWHERE), Row(source, start, stop))
        return WireMessage(message)

    def at_machine(self, travelling: WireMessage) -> Message:
        """Return what a machine reads."""
        message, row = travelling
        if isinstance(message, Compute) and row is not None:
            return replace(message, parameters=self._memory.read(row))
        if isinstance(message, Push) and row is not None:
            return replace(message, gradient=self._memory.read(row))
        return message

    def from_machine(self, message: Message, place: int) -> WireMessage:
        """Return a machine's message as it travels."""
        plan = self._memory.plan
        if isinstance(message, Pushed):
            row = Row(plan.gradient(place, message.partition, message.clock), 0, len(message.gradient))
            self._memory.write(row, message.gradient)
            return WireMessage(replace(message, gradient=_ELSEWHERE), row)
        if isinstance(message, Applied):
            row = Row(plan.applied(place, message.clock), *self._ranges[message.shard])
            self._memory.write(row, message.parameters)
            return WireMessage(replace(message, parameters=_ELSEWHERE), row)
        return WireMessage(message)

    def at_controller(self, travelling: WireMessage) -> Message:
        """Return what the controller reads."""
        message, row = travelling
        if isinstance(message, Pushed) and row is not None:
            key = message.generation, message.partition, message.clock
            self._forget_before(message.clock - self._memory.plan.depth)
            # What is pushed on is the gradient that came last: one computed again may have been refused before.
            self._sources[key] = row.number
            return replace(message, gradient=self._memory.read(row))
        if isinstance(message, Applied) and row is not None:
            return replace(message, parameters=self._memory.read(row).copy())
        return message

    def _forget_before(self, clock: int) -> None:
        for key in [key for key in self._sources if key[2] < clock]:
            del self._sources[key]

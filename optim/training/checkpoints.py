"""Checkpoints on disk: what is in the storage survives the controller too.

A checkpoint is one file, written under another name and renamed, with a version of its format and a checksum of all that it
holds; plain arrays, no pickles. The two last whole ones are kept, so that a damaged one costs no more than going back once
more. What a run takes back, nobody finds there: clocks that are undone are written again.
"""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from optim.core.archives import Arrays, Field, check_fields, read_arrays, write_arrays
from optim.core.errors import InvalidProblemError
from optim.training.application import Application
from optim.training.arrays import to_host
from optim.training.messages import Copy, Keep, Message, ShardValues, Vector
from optim.training.stages import STORAGE
from optim.training.transport import Lost, Transport

if TYPE_CHECKING:
    from optim.kernels.parameter_server import AbstractOptimiser

VERSION = 2
"""1 was written by NumPy's gradients: a run that went on from there would have other losses than a whole one."""
NUM_KEPT = 2
"""Checkpoints that stay in the folder."""

WHAT, REMEDY = "a checkpoint", "remove it: a run goes on from the newest whole one, or begins anew"


class StartingPoint(NamedTuple):
    """Where a run begins: clocks applied, parameters and the optimiser's slots, and the losses so far."""

    clock: int
    parameters: Vector
    slots: tuple[Vector, ...]
    losses: tuple[float, ...] = ()


def initial_point(application: Application, optimiser: "AbstractOptimiser") -> StartingPoint:
    """Return the beginning of a run that nobody has begun."""
    parameters = application.initial_parameters()
    return StartingPoint(0, parameters, tuple(np.zeros_like(parameters) for _ in range(optimiser.num_slots)))


class DurableStorage:
    """A transport that writes what the storage is sent to a folder, once all shards of a clock are there.

    Parameters
    ----------
    transport
        Carries everything.
    folder
        Where checkpoints go; it is made if it isn't there.
    job
        Which run they are of: application, optimiser and options, as text. Another run's are refused.
    num_shards
        Pieces of the parameters.
    """

    def __init__(self, transport: Transport, folder: str | Path, *, job: str, num_shards: int) -> None:
        self._transport, self._folder, self._job, self._num_shards = transport, Path(folder), job, num_shards
        self._parts: dict[int, dict[int, ShardValues]] = {}
        self._written = -1
        self._damaged: set[Path] = set()
        self.losses: Callable[[], Sequence[float]] = list
        self._folder.mkdir(parents=True, exist_ok=True)

    def latest(self) -> StartingPoint | None:
        """Return the newest whole checkpoint, None if there is none.

        Raises
        ------
        InvalidProblemError
            If none is whole though there are some, or it is another job's.
        """
        error: InvalidProblemError | None = None
        for path in sorted(self._folder.glob("checkpoint-*.npz"), reverse=True):
            try:
                point = read_checkpoint(path, self._job)
            except InvalidProblemError as damage:
                error = error or damage
                self._damaged.add(path)
                continue
            self._written = point.clock
            return point
        if error is not None:
            raise error
        return None

    def send(self, machine: str, message: Message) -> None:
        """Send a message; write a checkpoint when it is the last that one needs."""
        self._transport.send(machine, message)
        if machine == STORAGE and isinstance(message, Copy):
            self._add(message.values)
        elif machine == STORAGE and isinstance(message, Keep) and message.last is not None:
            self._rewind(message.last)

    def start(self, machine: str) -> None:
        """Have a machine of that name."""
        self._transport.start(machine)

    def stop(self, machine: str) -> None:
        """Give a machine back."""
        self._transport.stop(machine)

    def kill(self, machine: str) -> None:
        """Take a machine away at once."""
        self._transport.kill(machine)

    def receive(self, wait_s: float | None = None) -> Message | Lost | None:
        """Return the next message."""
        return self._transport.receive(wait_s)

    def close(self) -> None:
        """Give back everything but the folder."""
        self._transport.close()

    def _rewind(self, clock: int) -> None:
        """Forget what is later than a clock that the run goes back to; files last, while there is an earlier one."""
        self._parts = {known: parts for known, parts in self._parts.items() if known <= clock}
        self._written = min(self._written, clock)
        intact = self._intact()
        target = self._path(clock)
        if any(path <= target for path in intact):
            for undone in (path for path in intact if path > target):
                undone.unlink(missing_ok=True)

    def _path(self, clock: int) -> Path:
        return self._folder / f"checkpoint-{clock:010d}.npz"

    def _intact(self) -> list[Path]:
        """Return the checkpoints that aren't known to be damaged, by clock."""
        return [path for path in sorted(self._folder.glob("checkpoint-*.npz")) if path not in self._damaged]

    def _add(self, values: ShardValues) -> None:
        if values.clock <= self._written:
            return
        parts = self._parts.setdefault(values.clock, {})
        parts[values.shard] = values
        if len(parts) < self._num_shards:
            return
        ordered = to_host([parts[shard] for shard in range(self._num_shards)])
        slots = zip(*(part.slots for part in ordered), strict=True)
        point = StartingPoint(
            clock=values.clock,
            parameters=np.concatenate([part.parameters for part in ordered]),
            slots=tuple(np.concatenate(slot) for slot in slots),
            losses=tuple(self.losses())[: values.clock],
        )
        write_checkpoint(self._path(values.clock), point, self._job)
        self._damaged.discard(self._path(values.clock))
        self._written = values.clock
        self._parts = {clock: parts for clock, parts in self._parts.items() if clock > values.clock}
        for old in self._intact()[:-NUM_KEPT]:
            old.unlink(missing_ok=True)


def write_checkpoint(path: Path, point: StartingPoint, job: str) -> None:
    """Write a checkpoint whole or not at all."""
    arrays: Arrays = {
        "version": np.array(VERSION),
        "job": np.array(job),
        "clock": np.array(point.clock),
        "parameters": point.parameters,
        "slots": np.array(point.slots, dtype=np.float32).reshape(len(point.slots), len(point.parameters)),
        "losses": np.array(point.losses, dtype=np.float64),
    }
    write_arrays(path, {**arrays, "checksum": np.array(_checksum(arrays))})


def read_checkpoint(path: Path, job: str) -> StartingPoint:
    """Read a checkpoint.

    Raises
    ------
    InvalidProblemError
        If it is damaged, of another version, or of another job.
    """
    arrays = read_arrays(path, WHAT, REMEDY)
    checksum = arrays.pop("checksum", None)
    names = {"version", "job", "clock", "parameters", "slots", "losses"}
    if checksum is None or set(arrays) != names or str(checksum) != _checksum(arrays):
        raise InvalidProblemError(f"{path}: not {WHAT} (its checksum isn't that of what it holds); {REMEDY}")
    size = arrays["parameters"].size
    fields = {
        "version": Field(shape=(), is_whole=True),
        "clock": Field(shape=(), least=0, is_whole=True),
        "parameters": Field(shape=(size,)),
        "slots": Field(shape=("slots", size)),
        "losses": Field(shape=("losses",), may_lack=True),
    }
    try:
        check_fields({name: array for name, array in arrays.items() if name != "job"}, fields)
    except ValueError as error:
        raise InvalidProblemError(f"{path}: not {WHAT} ({error}); {REMEDY}") from error
    if int(arrays["version"]) != VERSION:
        raise InvalidProblemError(f"{path}: version {arrays['version']} of the format, must be {VERSION}; {REMEDY}")
    if str(arrays["job"]) != job:
        raise InvalidProblemError(
            f"{path}: a checkpoint of another job, {str(arrays['job'])[:80]}; give another folder"
        )
    return StartingPoint(
        clock=int(arrays["clock"]),
        parameters=arrays["parameters"],
        slots=tuple(arrays["slots"]),
        losses=tuple(arrays["losses"].tolist()),
    )


def _checksum(arrays: Arrays) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()

"""Checkpoints on disk, which survive a failure of the controller.

A checkpoint is one file of plain arrays (no pickles) with a format version and a checksum of its contents. The file is
written under a temporary name and then renamed. The folder retains the last two intact checkpoints, so that the run can
resume from one if the other is damaged. A rollback removes the checkpoints of undone clocks; the run writes them again.
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
from optim.training.machine import Machine
from optim.training.messages import Copy, Keep, Message, Vector
from optim.training.stages import STORAGE

if TYPE_CHECKING:
    from optim.kernels.parameter_server import AbstractOptimiser

VERSION = 2
"""Version of the format. Version 1 is rejected: its runs computed gradients with NumPy, so a resumed run would have
other losses."""
NUM_KEPT = 2
"""Number of checkpoints that the folder retains."""

WHAT, REMEDY = "a checkpoint", "remove it: training resumes from the newest intact checkpoint, or starts again"


class StartingPoint(NamedTuple):
    """Starting point of a run: number of applied clocks, parameters, optimiser's state arrays (slots), and losses so far."""

    clock: int
    parameters: Vector
    slots: tuple[Vector, ...]
    losses: tuple[float, ...] = ()


def initial_point(application: Application, optimiser: "AbstractOptimiser") -> StartingPoint:
    """Return the starting point of a new run."""
    parameters = application.initial_parameters()
    return StartingPoint(0, parameters, tuple(np.zeros_like(parameters) for _ in range(optimiser.num_slots)))


class DurableStorage(Machine):
    """The storage, a machine that writes a checkpoint once it has copies of all shards as of one clock.

    Assign it to `transport.machines[STORAGE]`, where it replaces the transport's default storage.

    Parameters
    ----------
    application
        The application that is trained.
    folder
        Folder of the checkpoints; created if missing.
    job
        Description of the run's application, optimiser and options. Checkpoints with another description are rejected.
    num_shards
        Number of shards of the parameters.
    """

    def __init__(self, application: Application, folder: str | Path, *, job: str, num_shards: int) -> None:
        super().__init__(STORAGE, application)
        self._folder, self._job, self._num_shards = Path(folder), job, num_shards
        self._written = -1
        self._damaged: set[Path] = set()
        self.losses: Callable[[], Sequence[float]] = list
        self._folder.mkdir(parents=True, exist_ok=True)

    def latest(self) -> StartingPoint | None:
        """Return the newest intact checkpoint, or None if the folder has no checkpoints.

        Raises
        ------
        InvalidProblemError
            If all checkpoints are damaged, or the newest intact checkpoint is of another job.
        """
        error: InvalidProblemError | None = None
        for path in reversed(self._intact()):
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

    def handle(self, message: Message) -> list[Message]:
        """Return the replies to a message; write a checkpoint if it contains the last missing shard of a clock."""
        replies = super().handle(message)
        if isinstance(message, Copy):
            # Not in `_replies`, whose errors are attributed to the application.
            self._write(message.values.clock)
        elif isinstance(message, Keep) and message.last is not None:
            self._rewind(message.last)
        return replies

    def _rewind(self, clock: int) -> None:
        """Remove the checkpoints of clocks that a rollback undoes, if an earlier one exists."""
        self._written = min(self._written, clock)
        intact, target = self._intact(), self._path(clock)
        if any(path <= target for path in intact):
            for undone in (path for path in intact if path > target):
                undone.unlink(missing_ok=True)

    def _path(self, clock: int) -> Path:
        return self._folder / f"checkpoint-{clock:010d}.npz"

    def _intact(self) -> list[Path]:
        """Return the paths of the checkpoints that aren't known to be damaged, by clock."""
        return [path for path in sorted(self._folder.glob("checkpoint-*.npz")) if path not in self._damaged]

    def _write(self, clock: int) -> None:
        """Write a checkpoint of a clock, unless a shard is missing or the checkpoint of this or a later clock exists."""
        parts = [copies[clock] for _, copies in sorted(self.copies.items()) if clock in copies]
        if clock <= self._written or len(parts) < self._num_shards:
            return
        parts, path = to_host(parts), self._path(clock)
        point = StartingPoint(
            clock=clock,
            parameters=np.concatenate([part.parameters for part in parts]),
            slots=tuple(map(np.concatenate, zip(*(part.slots for part in parts), strict=True))),
            losses=tuple(self.losses())[:clock],
        )
        write_checkpoint(path, point, self._job)
        self._damaged.discard(path)
        self._written = clock
        for old in self._intact()[:-NUM_KEPT]:
            old.unlink(missing_ok=True)


def write_checkpoint(path: Path, point: StartingPoint, job: str) -> None:
    """Write a checkpoint atomically."""
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
        If the checkpoint is damaged, has another version, or is of another job.
    """
    arrays = read_arrays(path, WHAT, REMEDY)
    checksum = arrays.pop("checksum", None)
    names = {"version", "job", "clock", "parameters", "slots", "losses"}
    if checksum is None or set(arrays) != names or str(checksum) != _checksum(arrays):
        raise InvalidProblemError(f"{path}: not {WHAT} (its checksum is wrong); {REMEDY}")
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

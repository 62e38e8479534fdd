"""A job of an instance as a real process can play it: its mini-batches' seconds, its bytes, its speed by workers.

A worker computes for as many processor seconds as its share of a core gives it in the time that the job's mini-batches take,
and holds itself to that share: after each piece of work it sleeps until its mean is no higher. What it would wait for its
link it waits for. So a plan of many workers is played on few cores, and contention, barriers, transport and joining are real.
"""

import mmap
import struct
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from optim.training.application import Application
from optim.training.messages import Vector

PIECE = 4096
"""Numbers of a piece of work: some tens of microseconds, so that shares are held to finely."""

PACE = struct.Struct("d")


class Pace:
    """How many times as long a gradient takes as a lone worker's; the runner writes it, all workers read it.

    It is a file that is mapped into memory, so that a change is seen by workers in the midst of their work.
    """

    def __init__(self) -> None:
        with tempfile.NamedTemporaryFile(prefix="optim-pace-", delete=False) as file:
            file.write(PACE.pack(1.0))
        self.path = file.name
        self._map: mmap.mmap | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "_map": None}

    def write(self, value: float) -> None:
        """Set it."""
        self._memory()[: PACE.size] = PACE.pack(value)

    def read(self) -> float:
        """Return it."""
        return float(PACE.unpack(self._memory()[: PACE.size])[0])

    def close(self) -> None:
        """Remove the file; workers that have it mapped keep what they see."""
        Path(self.path).unlink(missing_ok=True)

    def _memory(self) -> mmap.mmap:
        if self._map is None:
            with open(self.path, "r+b") as file:
                self._map = mmap.mmap(file.fileno(), 0)
        return self._map


@dataclass(frozen=True, kw_only=True)
class OwnJob:
    """An application whose gradients take a job's time and have its size.

    Parameters
    ----------
    application
        What is really computed.
    compute_s, link_s
        Seconds of a gradient that a lone worker computes, and that it waits for its link.
    share
        Of a core, that a worker holds itself to.
    num_floats
        Length of the vectors that are carried; what the application needs at least, the rest is zeros.
    pace
        How many times as long a gradient takes; always 1 if not given.

    Notes
    -----
    What is printed of it tells what is computed and not how fast: checkpoints of one lease are those of the next.
    """

    application: Application
    compute_s: float = field(default=0.0, repr=False)
    link_s: float = field(default=0.0, repr=False)
    share: float = field(default=1.0, repr=False)
    num_floats: int = 0
    pace: Pace | None = field(default=None, compare=False, repr=False)

    @property
    def num_partitions(self) -> int:
        """Partitions of the application."""
        return self.application.num_partitions

    @property
    def num_parameters(self) -> int:
        """Length of the vectors."""
        return max(self.num_floats, self.application.num_parameters)

    def initial_parameters(self) -> Vector:
        """Return the application's, and zeros."""
        return self._padded(self.application.initial_parameters())

    def weight(self, partition: int) -> float:
        """Return the application's."""
        return self.application.weight(partition)

    def gradient(self, parameters: Vector, partition: int, clock: int) -> tuple[Vector, float]:
        """Return the application's, and zeros, when the job's time is over."""
        begun, spent = time.perf_counter(), time.thread_time()
        factor = 1.0 if self.pace is None else self.pace.read()
        gradient, loss = self.application.gradient(parameters[: self.application.num_parameters], partition, clock)
        hold_share(self.compute_s * self.share * factor, self.share, begun=begun, spent=spent)
        time.sleep(
            max(0.0, begun + (self.compute_s + self.link_s) * factor - time.perf_counter()) if self.link_s else 0.0
        )
        return self._padded(gradient), loss

    def _padded(self, vector: Vector) -> Vector:
        padded = np.zeros(self.num_parameters, dtype=np.float32)
        padded[: len(vector)] = vector
        return padded


def hold_share(processor_s: float, share: float, *, begun: float, spent: float) -> None:
    """Work until so many processor seconds are spent, never faster than a share of a core allows.

    Parameters
    ----------
    processor_s
        Of this thread, what is spent since `spent` included.
    share
        Of a core.
    begun, spent
        Wall clock and this thread's processor seconds when the work began.
    """
    numbers = np.linspace(0.0, 1.0, PIECE, dtype=np.float32)
    while (used := time.thread_time() - spent) < processor_s:
        ahead = used / share - (time.perf_counter() - begun)
        if ahead > 0:
            time.sleep(ahead)
        np.sqrt(numbers, out=numbers)
    time.sleep(max(0.0, processor_s / share - (time.perf_counter() - begun)))

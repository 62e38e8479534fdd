"""A job of an instance as a real process can play it: its mini-batches' seconds, its bytes, its speed by workers.

A worker computes for as many processor seconds as its share of a core gives it in the time that the job's mini-batches take,
and holds itself to that share: after each piece of work it sleeps until its mean is no higher. What it would wait for its
link it waits for. So a plan of many workers is played on few cores, and contention, barriers, transport and joining are real.
"""

import time
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from optim.simulation.live.shared_clock import Pace, SharedClock
from optim.training.application import Application
from optim.training.messages import Vector

PIECE = 1 << 15
"""Numbers that are worked on between two looks at the time: some ten microseconds."""

STINT_S = 0.001
"""Processor seconds that a worker works for before it sleeps: shorter ones would spend a core on falling asleep."""


class Timer(Protocol):
    """What tells the time and lets it pass: the module `time`, or a run's own clock."""

    def monotonic(self) -> float:
        """Return the seconds since some time."""
        ...

    def sleep(self, seconds: float, /) -> None:
        """Let so many of them pass."""
        ...


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
    clock
        The run's, by which all these seconds are; the world's if not given.

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
    clock: SharedClock | None = field(default=None, compare=False, repr=False)

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
        timer: Timer = time if self.clock is None else self.clock
        begun, spent = timer.monotonic(), time.thread_time()
        factor = 1.0 if self.pace is None else self.pace.read()
        gradient, loss = self.application.gradient(parameters[: self.application.num_parameters], partition, clock)
        hold_share(self.compute_s * self.share * factor, self.share, begun=begun, spent=spent, timer=timer)
        if self.link_s:
            timer.sleep(max(0.0, begun + (self.compute_s + self.link_s) * factor - timer.monotonic()))
        return self._padded(gradient), loss

    def _padded(self, vector: Vector) -> Vector:
        padded = np.zeros(self.num_parameters, dtype=np.float32)
        padded[: len(vector)] = vector
        return padded


def hold_share(processor_s: float, share: float, *, begun: float, spent: float, timer: Timer = time) -> None:
    """Work until so many processor seconds are spent, never faster than a share of a core allows.

    Parameters
    ----------
    processor_s
        Of this thread, what is spent since `spent` included.
    share
        Of a core.
    begun, spent
        The timer's time and this thread's processor seconds when the work began.
    timer
        By whose seconds shares are held to.
    """
    numbers = np.linspace(0.0, 1.0, PIECE, dtype=np.float32)
    while (used := time.thread_time() - spent) < processor_s:
        timer.sleep(max(0.0, used / share - (timer.monotonic() - begun)))
        until = min(processor_s, used + STINT_S)
        while time.thread_time() - spent < until:
            np.sqrt(numbers, out=numbers)
    timer.sleep(max(0.0, processor_s / share - (timer.monotonic() - begun)))

"""A plain model of elastic training that shares no code with it: a log of updates, and its consequences."""

from dataclasses import dataclass, field

import numpy as np


class CountingApplication:
    """Integral gradients that differ at every call, so that any two pushes are distinct."""

    def __init__(self, num_partitions, num_parameters, *, rng=None):
        self.num_partitions, self.num_parameters = num_partitions, num_parameters
        self.calls = 0
        self.views = []
        self._rng = rng

    def initial_parameters(self):
        return np.arange(self.num_parameters, dtype=np.float32)

    def weight(self, partition):
        return 1.0

    def gradient(self, parameters, partition, clock):
        self.calls += 1
        self.views.append((partition, clock, np.array(parameters)))
        if self._rng is not None:
            return self._rng.standard_normal(self.num_parameters).astype(np.float32), 1.0
        numbers = 1 + (self.calls * 37 + np.arange(self.num_parameters) * 11) % 97
        return (numbers * self.num_partitions).astype(np.float32), float(self.calls)


@dataclass
class Log:
    """The updates that count: for each clock, the pushes and their senders."""

    initial: np.ndarray
    num_partitions: int
    updates: dict = field(default_factory=dict)

    def push(self, partition, clock, gradient):
        self.updates.setdefault(clock, {}).setdefault(partition, gradient.copy())

    def roll_back(self, clock):
        self.updates = {at: pushes for at, pushes in self.updates.items() if at < clock}

    @property
    def complete(self):
        """Number of clocks that all partitions have pushed."""
        clock = 0
        while len(self.updates.get(clock, {})) == self.num_partitions:
            clock += 1
        return clock

    def pushed(self, partition):
        """Number of clocks that a partition has pushed."""
        clock = 0
        while partition in self.updates.get(clock, {}):
            clock += 1
        return clock

    def parameters(self, clock):
        """Return the parameters after a number of clocks, at learning rate 1."""
        result = self.initial.astype(np.float64)
        for at in range(clock):
            pushes = self.updates[at]
            assert len(pushes) == self.num_partitions, f"clock {at} was applied with {len(pushes)} pushes"
            result -= sum(pushes.values()) / self.num_partitions
        return result

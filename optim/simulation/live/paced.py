"""An application at a pace of its own, slower than the machine allows."""

import time
from dataclasses import dataclass

from optim.training.application import Application
from optim.training.messages import Vector


@dataclass(frozen=True, kw_only=True)
class Paced:
    """An application whose gradients take a least time each."""

    application: Application
    gradient_s: float

    @property
    def num_partitions(self) -> int:
        """Partitions of the application."""
        return self.application.num_partitions

    @property
    def num_parameters(self) -> int:
        """Parameters of the application."""
        return self.application.num_parameters

    def initial_parameters(self) -> Vector:
        """Return the application's."""
        return self.application.initial_parameters()

    def weight(self, partition: int) -> float:
        """Return the application's."""
        return self.application.weight(partition)

    def gradient(self, parameters: Vector, partition: int, clock: int) -> tuple[Vector, float]:
        """Return the application's, not before its time."""
        end = time.perf_counter() + self.gradient_s
        result = self.application.gradient(parameters, partition, clock)
        time.sleep(max(0.0, end - time.perf_counter()))
        return result

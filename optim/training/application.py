"""What can be trained: a loss over fixed data partitions, and its gradients."""

from typing import Protocol

from optim.training.messages import Vector


class Application(Protocol):
    """A training job.

    Everything is a pure function of its arguments and of the application's own seed, so that whichever machine computes
    a gradient, and however often, the bits are the same. Data is made where it is needed: an application travels to
    another process as a few numbers.
    """

    @property
    def num_partitions(self) -> int:
        """P, the number of data partitions; fixed."""
        ...

    @property
    def num_parameters(self) -> int:
        """Length n of the flat vector of parameters."""
        ...

    def initial_parameters(self) -> Vector:
        """Return the parameters before the first clock, shape (n,), float32."""
        ...

    def weight(self, partition: int) -> float:
        """Return how much data stands behind a partition's gradient."""
        ...

    def gradient(self, parameters: Vector, partition: int, clock: int) -> tuple[Vector, float]:
        """Return the mean gradient over the partition, shape (n,), and its summed loss at these parameters.

        `clock` is for applications that draw at random: they make their stream from seed, partition and clock.
        """
        ...

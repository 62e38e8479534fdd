"""Common code of applications that learn the classes of observations."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from optim.core.arrays import IntArray
from optim.training.application import Batch
from optim.training.applications.generated import GeneratedApplication, partitions_of, read_examples
from optim.training.messages import Vector

if TYPE_CHECKING:
    import jax

Examples = tuple[Vector, IntArray]
"""Observations, shape (size, features), and the class of each, shape (size,)."""


def cross_entropy(scores: "jax.Array", labels: "jax.Array") -> "jax.Array":
    """Return the mean cross-entropy of the examples' classes."""
    import optax

    return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()


@dataclass(frozen=True, kw_only=True)
class AbstractClassifier(GeneratedApplication[Examples]):
    """A model of the classes of observations; each clock uses a share of the observations.

    Parameters
    ----------
    num_observations, num_features, num_classes
        Numbers of observations, of features per observation, and of classes.
    batch
        Share of a partition's examples that one clock uses; successive clocks go through all examples, in a random order.
    """

    num_observations: int
    num_features: int
    num_classes: int = 10
    batch: float = 1.0

    @classmethod
    def from_file(cls, path: str, *, num_partitions: int | None = None, seed: int = 0) -> Self:
        """Return the application on custom examples, in the order of the file."""
        values, classes = read_examples(path)
        return cls(
            num_observations=len(values),
            num_features=values.shape[1],
            num_classes=max(2, int(classes.max()) + 1),
            num_partitions=partitions_of(len(values), num_partitions),
            seed=seed,
            source=path,
        )

    def _take(self, start: int, stop: int) -> Examples:
        values, classes = read_examples(self.source)
        return values[start:stop], classes[start:stop]

    @property
    def num_examples(self) -> int:
        """Number of observations."""
        return self.num_observations

    def arrays(self, partition: int) -> tuple[Vector, NDArray[np.int32]]:
        """Return observations, shape (size, features), and their classes, in random order."""
        observations, labels = self.data(partition)
        order = np.random.default_rng([self.seed, 3, partition]).permutation(self.size(partition))
        return observations[order], labels[order].astype(np.int32)

    def sample(self, batch: Batch, clock: "jax.Array") -> Batch:
        """Return the examples of a clock: those that follow the previous clock's, with the first again after the last."""
        import jax
        import jax.numpy as jnp

        size = batch[1].shape[0]
        count = max(1, round(min(self.batch, 1.0) * size))
        if count == size:
            return batch
        places = (clock % size * count + jnp.arange(count, dtype=jnp.int32)) % size
        return jax.tree.map(lambda array: array[places], batch)

"""Multinomial logistic regression."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from optim.training.application import Batch
from optim.training.applications.generated import (
    GeneratedApplication,
    cross_entropy,
    partitions_of,
    read_examples,
    window,
)
from optim.training.messages import Vector

if TYPE_CHECKING:
    import jax


@dataclass(frozen=True, kw_only=True)
class LogisticRegression(GeneratedApplication[tuple[Vector, "np.ndarray[tuple[int, ...], np.dtype[np.int64]]"]]):
    """Multinomial logistic regression with ridge regularisation.

    Minimise ``mean of log(sum_c exp(w_c . x)) - w_y . x + decay / 2 |w|^2``.

    Partitions are groups of observations, drawn around one centre for each class.

    Parameters
    ----------
    num_observations, num_features, num_classes
        Sizes; `at_scale` shrinks those of the published experiment.
    batch
        Share of a partition that a clock computes: the next examples in random order; 1 takes all of them.
    decay
        Weight of the regularisation.

    References
    ----------
    Harlap et al. (2017), Proteus, EuroSys: ImageNet features, 64 thousand observations of 21,504 features, 1000 classes.
    """

    num_observations: int = 640
    num_features: int = 32
    num_classes: int = 10
    batch: float = 1.0
    decay: float = 1e-3

    @classmethod
    def at_scale(cls, scale: float, *, num_partitions: int = 8, seed: int = 0) -> "LogisticRegression":
        """Return the published shape with all sizes multiplied by `scale`."""
        return cls(
            num_observations=max(num_partitions, round(64_000 * scale)),
            num_features=max(1, round(21_504 * scale)),
            num_classes=max(2, round(1000 * scale)),
            num_partitions=num_partitions,
            seed=seed,
        )

    @classmethod
    def from_file(cls, path: str, *, num_partitions: int | None = None, seed: int = 0) -> "LogisticRegression":
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

    def _take(self, start: int, stop: int) -> "tuple[Vector, np.ndarray[tuple[int, ...], np.dtype[np.int64]]]":
        values, classes = read_examples(self.source)
        return values[start:stop], classes[start:stop]

    @property
    def num_examples(self) -> int:
        """Number of observations."""
        return self.num_observations

    def init(self, key: "jax.Array") -> "jax.Array":
        """Return zeros, shape (features, classes): all classes alike."""
        import jax.numpy as jnp

        del key
        return jnp.zeros((self.num_features, self.num_classes), jnp.float32)

    def arrays(self, partition: int) -> "tuple[Vector, np.ndarray[tuple[int, ...], np.dtype[np.int32]]]":
        """Return observations, shape (size, features), and their classes, in random order."""
        observations, labels = self.data(partition)
        order = self.order(partition)
        return observations[order], labels[order].astype(np.int32)

    def sample(self, batch: Batch, clock: "jax.Array") -> Batch:
        """Return the clock's observations."""
        return window(batch, clock, self.batch)

    def loss(self, parameters: "jax.Array", batch: Batch) -> "jax.Array":
        """Return the mean cross-entropy, and the regularisation."""
        import jax.numpy as jnp

        observations, labels = batch
        return cross_entropy(observations @ parameters, labels) + jnp.float32(0.5 * self.decay) * (parameters**2).sum()

    def _make(
        self, partition: int, size: int, rng: np.random.Generator
    ) -> "tuple[Vector, np.ndarray[tuple[int, ...], np.dtype[np.int64]]]":
        del partition
        centres = self._model_rng().normal(0.0, 1.0, (self.num_classes, self.num_features))
        labels = rng.integers(0, self.num_classes, size)
        observations = centres[labels] + rng.normal(0.0, 2.0, (size, self.num_features))
        return (observations / np.sqrt(self.num_features)).astype(np.float32), labels

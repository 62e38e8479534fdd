"""Multinomial logistic regression."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from optim.training.application import Batch
from optim.training.applications.classification import AbstractClassifier, Examples, cross_entropy

if TYPE_CHECKING:
    import jax


@dataclass(frozen=True, kw_only=True)
class LogisticRegression(AbstractClassifier):
    """Multinomial logistic regression with ridge regularisation.

    Minimise ``mean of log(sum_c exp(w_c . x)) - w_y . x + decay / 2 |w|^2``.

    Partitions are groups of observations, drawn around one centre for each class.

    Parameters
    ----------
    num_observations, num_features, num_classes
        Numbers of observations, of features per observation, and of classes; `at_scale` scales those of the published
        experiment.
    batch
        Share of a partition's examples that one clock uses; successive clocks go through all examples, in a random order.
    decay
        Weight of the regularisation.

    References
    ----------
    Harlap et al. (2017), Proteus, EuroSys: ImageNet features, 64 thousand observations of 21,504 features, 1000 classes.
    """

    num_observations: int = 640
    num_features: int = 32
    decay: float = 1e-3

    @classmethod
    def at_scale(cls, scale: float, *, num_partitions: int = 8, seed: int = 0) -> "LogisticRegression":
        """Return the application with the sizes of the published experiment, all multiplied by `scale`."""
        return cls(
            num_observations=max(num_partitions, round(64_000 * scale)),
            num_features=max(1, round(21_504 * scale)),
            num_classes=max(2, round(1000 * scale)),
            num_partitions=num_partitions,
            seed=seed,
        )

    def init(self, key: "jax.Array") -> "jax.Array":
        """Return zeros, shape (features, classes), so that all classes have equal scores."""
        import jax.numpy as jnp

        del key
        return jnp.zeros((self.num_features, self.num_classes), jnp.float32)

    def loss(self, parameters: "jax.Array", batch: Batch) -> "jax.Array":
        """Return the mean cross-entropy plus the regularisation."""
        import jax.numpy as jnp

        observations, labels = batch
        return cross_entropy(observations @ parameters, labels) + jnp.float32(0.5 * self.decay) * (parameters**2).sum()

    def _make(self, partition: int, size: int, rng: np.random.Generator) -> Examples:
        del partition
        centres = self._model_rng().normal(0.0, 1.0, (self.num_classes, self.num_features))
        labels = rng.integers(0, self.num_classes, size)
        observations = centres[labels] + rng.normal(0.0, 2.0, (size, self.num_features))
        return (observations / np.sqrt(self.num_features)).astype(np.float32), labels

"""A multilayer perceptron that learns to classify random points, whose true classes come from another random network."""

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from optim.training.application import Batch, Parameters
from optim.training.applications.classification import AbstractClassifier, Examples, cross_entropy

if TYPE_CHECKING:
    import jax


@dataclass(frozen=True, kw_only=True)
class NeuralNetwork(AbstractClassifier):
    """Multilayer perceptron with rectified units; the loss is the cross-entropy of the points' classes.

    The generated points are normally distributed. Each class has a score, a random linear function of random rectified
    features, minus the score's mean over the partition. A point belongs to the class with the largest score.

    Parameters
    ----------
    num_observations, num_features, num_classes
        Numbers of observations, of features per observation, and of classes.
    num_layers, num_hidden
        Number of hidden layers, and number of units per layer.
    batch
        Share of a partition's examples that one clock uses; successive clocks go through all examples, in a random order.

    References
    ----------
    He, Zhang, Ren, Sun (2015), Delving deep into rectifiers, ICCV, arXiv 1502.01852: the scale of the first weights.
    """

    num_observations: int = 1024
    num_features: int = 64
    num_layers: int = 2
    num_hidden: int = 768
    batch: float = 0.25

    @classmethod
    def at_scale(cls, scale: float, *, num_partitions: int = 8, seed: int = 0) -> "NeuralNetwork":
        """Return the default network with observations and hidden units multiplied by ``100 * scale``."""
        return cls(
            num_observations=max(num_partitions, round(102_400 * scale)),
            num_hidden=max(2, round(76_800 * scale)),
            num_partitions=num_partitions,
            seed=seed,
        )

    def init(self, key: "jax.Array") -> Parameters:
        """Return for each layer its weights, shape (inputs, outputs), and its biases."""
        import jax
        import jax.numpy as jnp

        widths = [self.num_features, *[self.num_hidden] * self.num_layers, self.num_classes]
        layers = []
        for number, (inputs, outputs) in enumerate(pairwise(widths)):
            drawn = jax.random.normal(jax.random.fold_in(key, number), (inputs, outputs), jnp.float32)
            scale = jnp.float32(np.sqrt(2 / inputs))
            layers.append({"weights": scale * drawn, "biases": jnp.zeros((outputs,), jnp.float32)})
        return layers

    def loss(self, parameters: Parameters, batch: Batch) -> "jax.Array":
        """Return the mean cross-entropy."""
        import jax.numpy as jnp

        values, labels = batch
        *hidden, last = parameters
        for layer in hidden:
            values = jnp.maximum(values @ layer["weights"] + layer["biases"][None], jnp.float32(0))
        return cross_entropy(values @ last["weights"] + last["biases"][None], labels)

    def _make(self, partition: int, size: int, rng: np.random.Generator) -> Examples:
        del partition
        model = self._model_rng()
        inner = model.normal(0.0, 1.0, (self.num_features, self.num_classes))
        outer = model.normal(0.0, 1.0, (self.num_classes, self.num_classes))
        observations = rng.normal(0.0, 1.0, (size, self.num_features)).astype(np.float32)
        scores = np.maximum(observations @ inner, 0.0) @ outer
        return observations, (scores - scores.mean(axis=0)).argmax(axis=1)

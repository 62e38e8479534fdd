"""A small neural network: a multilayer perceptron that learns the classes that another one gives to random points."""

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from optim.training.application import Batch, Parameters
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
class NeuralNetwork(GeneratedApplication["tuple[Vector, np.ndarray[tuple[int, ...], np.dtype[np.int64]]]"]):
    """Multilayer perceptron with rectified units; the loss is the cross-entropy of its classes.

    The generated points are normal; the class of a point is the largest of the random linear scores of `num_classes`
    random rectified features.

    Parameters
    ----------
    num_observations, num_features, num_classes
        Sizes of the data.
    num_layers, num_hidden
        Hidden layers, and units of each.
    batch
        Share of a partition that a clock computes: the next examples in random order; 1 takes all of them.

    References
    ----------
    He, Zhang, Ren, Sun (2015), Delving deep into rectifiers, ICCV, arXiv 1502.01852: the scale of the first weights.
    """

    num_observations: int = 1024
    num_features: int = 64
    num_classes: int = 10
    num_layers: int = 2
    num_hidden: int = 768
    batch: float = 0.25

    @classmethod
    def at_scale(cls, scale: float, *, num_partitions: int = 8, seed: int = 0) -> "NeuralNetwork":
        """Return the default network with observations and hidden units times `100 scale`: a hundredth is the default."""
        return cls(
            num_observations=max(num_partitions, round(102_400 * scale)),
            num_hidden=max(2, round(76_800 * scale)),
            num_partitions=num_partitions,
            seed=seed,
        )

    @classmethod
    def from_file(cls, path: str, *, num_partitions: int | None = None, seed: int = 0) -> "NeuralNetwork":
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

    @property
    def num_examples(self) -> int:
        """Number of observations."""
        return self.num_observations

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

    def arrays(self, partition: int) -> "tuple[Vector, np.ndarray[tuple[int, ...], np.dtype[np.int32]]]":
        """Return observations, shape (size, features), and their classes, in random order."""
        observations, labels = self.data(partition)
        order = self.order(partition)
        return observations[order], labels[order].astype(np.int32)

    def sample(self, batch: Batch, clock: "jax.Array") -> Batch:
        """Return the clock's observations."""
        return window(batch, clock, self.batch)

    def loss(self, parameters: Parameters, batch: Batch) -> "jax.Array":
        """Return the mean cross-entropy."""
        import jax.numpy as jnp

        values, labels = batch
        *hidden, last = parameters
        for layer in hidden:
            values = jnp.maximum(values @ layer["weights"] + layer["biases"][None], jnp.float32(0))
        return cross_entropy(values @ last["weights"] + last["biases"][None], labels)

    def _take(self, start: int, stop: int) -> "tuple[Vector, np.ndarray[tuple[int, ...], np.dtype[np.int64]]]":
        values, classes = read_examples(self.source)
        return values[start:stop], classes[start:stop]

    def _make(
        self, partition: int, size: int, rng: np.random.Generator
    ) -> "tuple[Vector, np.ndarray[tuple[int, ...], np.dtype[np.int64]]]":
        del partition
        model = self._model_rng()
        inner = model.normal(0.0, 1.0, (self.num_features, self.num_classes))
        outer = model.normal(0.0, 1.0, (self.num_classes, self.num_classes))
        observations = rng.normal(0.0, 1.0, (size, self.num_features)).astype(np.float32)
        scores = np.maximum(observations @ inner, 0.0) @ outer
        return observations, (scores - scores.mean(axis=0)).argmax(axis=1)

"""Multinomial logistic regression."""

from dataclasses import dataclass

import numpy as np

from optim.training.applications.generated import GeneratedApplication, partitions_of, read_examples
from optim.training.messages import Vector


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
        Share of a partition that a clock draws at random; 1 takes all of it.
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

    @property
    def num_parameters(self) -> int:
        """Features times classes."""
        return self.num_features * self.num_classes

    def initial_parameters(self) -> Vector:
        """Return zeros: all classes alike."""
        return np.zeros(self.num_parameters, dtype=np.float32)

    def gradient(self, parameters: Vector, partition: int, clock: int) -> tuple[Vector, float]:
        """Return the mean gradient over what is drawn, and the loss scaled to the whole partition."""
        observations, labels = self.data(partition)
        if self.batch < 1:
            rng = np.random.default_rng([self.seed, 3, partition, clock])
            batch = rng.choice(len(labels), max(1, round(self.batch * len(labels))), replace=False)
            observations, labels = observations[batch], labels[batch]
        weights = parameters.reshape(self.num_features, self.num_classes)
        scores = observations @ weights
        scores -= scores.max(axis=1, keepdims=True)
        shares = np.exp(scores)
        totals = shares.sum(axis=1, keepdims=True)
        each = np.arange(len(labels))
        mean_loss = float(np.mean(np.log(totals[:, 0]) - scores[each, labels]))
        mean_loss += 0.5 * self.decay * float(np.dot(parameters, parameters))
        shares /= totals
        shares[each, labels] -= 1.0
        gradient = observations.T @ shares / np.float32(len(labels)) + np.float32(self.decay) * weights
        return gradient.ravel().astype(np.float32), mean_loss * self.size(partition)

    def _make(
        self, partition: int, size: int, rng: np.random.Generator
    ) -> "tuple[Vector, np.ndarray[tuple[int, ...], np.dtype[np.int64]]]":
        del partition
        centres = self._model_rng().normal(0.0, 1.0, (self.num_classes, self.num_features))
        labels = rng.integers(0, self.num_classes, size)
        observations = centres[labels] + rng.normal(0.0, 2.0, (size, self.num_features))
        return (observations / np.sqrt(self.num_features)).astype(np.float32), labels

"""Topics of documents, by online variational inference.

The update of the topics, ``lambda <- (1 - rate) lambda + rate lambda_hat``, is a step of gradient descent along the
natural gradient ``lambda - lambda_hat``; so the parameter server needs no rule of its own for it. Unlike Gibbs sampling
it leaves nothing behind at a worker that could be lost with it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma

from optim.training.applications.generated import GeneratedApplication, partitions_of, read_bags
from optim.training.messages import RowGradient, Vector

Counts = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class TopicModel(GeneratedApplication[Counts]):
    """Latent Dirichlet allocation; the loss is the negative logarithm of the documents' likelihood.

    Parameters
    ----------
    num_documents, num_words, num_topics, num_tokens
        Sizes, tokens for each document; `at_scale` shrinks those of the published experiment.
    alpha, eta
        Priors of a document's topics and of a topic's words.
    num_passes
        Rounds of the inner fixed-point iteration for a document.

    References
    ----------
    Hoffman, Blei, Bach (2010), Online learning for latent Dirichlet allocation, NIPS, algorithm 2.
    Harlap et al. (2017), Proteus, EuroSys: New York Times, 300 thousand documents of 100 million tokens, 100 thousand
    words, 1000 topics.
    """

    num_documents: int = 160
    num_words: int = 120
    num_topics: int = 6
    num_tokens: int = 80
    alpha: float = 0.2
    eta: float = 0.1
    num_passes: int = 12

    @classmethod
    def at_scale(cls, scale: float, *, num_partitions: int = 8, seed: int = 0) -> "TopicModel":
        """Return the published shape with documents, words and topics multiplied by `scale`."""
        return cls(
            num_documents=max(num_partitions, round(300_000 * scale)),
            num_words=max(2, round(100_000 * scale)),
            num_topics=max(2, round(1000 * scale)),
            num_tokens=333,
            num_partitions=num_partitions,
            seed=seed,
        )

    @classmethod
    def from_file(cls, path: str, *, num_partitions: int | None = None, seed: int = 0) -> "TopicModel":
        """Return the application on custom documents, in the order of the file."""
        documents, words = read_bags(path).shape
        return cls(
            num_documents=documents,
            num_words=words,
            num_partitions=partitions_of(documents, num_partitions),
            seed=seed,
            source=path,
        )

    def _take(self, start: int, stop: int) -> Counts:
        return read_bags(self.source)[start:stop]

    @property
    def num_examples(self) -> int:
        """Number of documents."""
        return self.num_documents

    @property
    def num_parameters(self) -> int:
        """Words times topics, word after word."""
        return self.num_words * self.num_topics

    @property
    def row_width(self) -> int:
        """Topics: a word has a row of weights."""
        return self.num_topics

    @property
    def weight_decay_center(self) -> float:
        """The prior: without a word's tokens its weights fall to it."""
        return self.eta

    def initial_parameters(self) -> Vector:
        """Return random positive weights of words."""
        rng = np.random.default_rng([self.seed, 2])
        return rng.gamma(100.0, 0.01, self.num_parameters).astype(np.float32)

    def gradient(self, parameters: Vector, partition: int, clock: int) -> tuple[Vector, float]:
        """Return the natural gradient of the partition's documents, and their negative log-likelihood."""
        gradient, loss = self.row_gradient(parameters, partition, clock)
        return gradient.dense(self.num_parameters) + (parameters - np.float32(self.eta)), loss

    def row_gradient(self, parameters: Vector, partition: int, clock: int) -> tuple[RowGradient, float]:
        """Return what the documents' tokens add to the natural gradient, by the rows of their words."""
        del clock
        counts = self.data(partition)
        topics = np.maximum(parameters.reshape(self.num_words, self.num_topics).T.astype(np.float64), 1e-10)
        totals = topics.sum(axis=1, keepdims=True)
        used = np.flatnonzero(counts.any(axis=0))
        topics, counts = topics[:, used], counts[:, used]
        words = np.exp(digamma(topics) - digamma(totals))
        gamma = np.ones((len(counts), self.num_topics))
        for _ in range(self.num_passes):
            theta = np.exp(digamma(gamma) - digamma(gamma.sum(axis=1, keepdims=True)))
            gamma = self.alpha + theta * ((counts / (theta @ words + 1e-100)) @ words.T)
        theta = np.exp(digamma(gamma) - digamma(gamma.sum(axis=1, keepdims=True)))
        statistics = words * (theta.T @ (counts / (theta @ words + 1e-100)))
        shares = gamma / gamma.sum(axis=1, keepdims=True)
        loss = -float(np.sum(counts * np.log(shares @ (topics / totals))))
        values = np.float32(-self.num_documents / len(counts)) * statistics.T.astype(np.float32)
        return RowGradient(used.astype(np.int32), np.ascontiguousarray(values)), loss

    def _make(self, partition: int, size: int, rng: np.random.Generator) -> Counts:
        del partition
        topics = self._model_rng().dirichlet(np.full(self.num_words, 0.05), self.num_topics)
        shares = rng.dirichlet(np.full(self.num_topics, self.alpha), size)
        words = shares @ topics
        words /= words.sum(axis=1, keepdims=True)
        return rng.multinomial(self.num_tokens, words).astype(np.float64)

"""Topics of documents, by online variational inference.

The update of the topics, ``lambda <- (1 - rate) lambda + rate lambda_hat``, is a step of gradient descent along the
natural gradient ``lambda - lambda_hat``, so that the parameter server needs no special rule for it. Unlike Gibbs
sampling, the method has no state at a worker that would be lost with the worker.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from optim.training.application import Batch
from optim.training.applications.generated import GeneratedApplication, partitions_of, read_bags

if TYPE_CHECKING:
    import jax

Counts = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class TopicModel(GeneratedApplication[Counts]):
    """Latent Dirichlet allocation; the loss is the negative logarithm of the documents' likelihood.

    Parameters
    ----------
    num_documents, num_words, num_topics, num_tokens
        Numbers of documents, of distinct words, of topics, and of tokens per document; `at_scale` scales those of the
        published experiment.
    alpha, eta
        Parameters of the Dirichlet priors of a document's topics and of a topic's words.
    num_passes
        Number of iterations of the fixed-point inference for a document.

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
        """Return the application with the published numbers of documents, words and topics times `scale`."""
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

    def init(self, key: "jax.Array") -> "jax.Array":
        """Return random positive weights, shape (words, topics)."""
        import jax
        import jax.numpy as jnp

        return jnp.float32(0.01) * jax.random.gamma(key, 100.0, (self.num_words, self.num_topics), jnp.float32)

    def arrays(self, partition: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the words that occur in the partition, and their counts, shape (documents, occurring words)."""
        counts = self.data(partition)
        used = np.flatnonzero(counts.any(axis=0))
        return used.astype(np.int32), counts[:, used].astype(np.float32)

    def loss(self, parameters: "jax.Array", batch: Batch) -> "jax.Array":
        """Return the mean negative log-likelihood of the documents; its derivative is the natural gradient.

        The inference of the documents' topics isn't differentiated. Instead the loss contains a term of value 0 whose
        derivative is the natural gradient.
        """
        import jax
        import jax.numpy as jnp
        from jax.scipy.special import digamma

        def expected_log(weights: jax.Array) -> jax.Array:
            """Return the mean of the logarithm of a Dirichlet vector in each row."""
            return digamma(weights) - digamma(weights.sum(axis=1, keepdims=True))

        used, counts = batch
        fixed = jax.lax.stop_gradient(parameters)
        topics = jnp.maximum(fixed.T, jnp.float32(1e-10))
        totals = topics.sum(axis=1, keepdims=True)
        words = jnp.exp(digamma(topics[:, used]) - digamma(totals))
        tiny = jnp.float32(1e-30)

        def infer(_: Any, gamma: jax.Array) -> jax.Array:
            theta = jnp.exp(expected_log(gamma))
            return jnp.float32(self.alpha) + theta * ((counts / (theta @ words + tiny)) @ words.T)

        gamma = jax.lax.fori_loop(0, self.num_passes, infer, jnp.ones((len(counts), self.num_topics), jnp.float32))
        theta = jnp.exp(expected_log(gamma))
        statistics = words * (theta.T @ (counts / (theta @ words + tiny)))
        shares = gamma / gamma.sum(axis=1, keepdims=True)
        loss = -(counts * jnp.log(shares @ (topics[:, used] / totals))).sum() / jnp.float32(len(counts))
        target = jnp.full_like(fixed, self.eta)
        target = target.at[used].add(jnp.float32(self.num_documents / len(counts)) * statistics.T)
        return loss + ((parameters - fixed) * (fixed - target)).sum()

    def _make(self, partition: int, size: int, rng: np.random.Generator) -> Counts:
        del partition
        topics = self._model_rng().dirichlet(np.full(self.num_words, 0.05), self.num_topics)
        shares = rng.dirichlet(np.full(self.num_topics, self.alpha), size)
        words = shares @ topics
        words /= words.sum(axis=1, keepdims=True)
        return rng.multinomial(self.num_tokens, words).astype(np.float64)

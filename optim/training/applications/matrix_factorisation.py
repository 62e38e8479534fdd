"""Matrix factorisation: the known ratings are approximated by products of short vectors, one per user and one per item."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from optim.training.application import Batch
from optim.training.applications.generated import GeneratedApplication, partitions_of, read_ratings
from optim.training.messages import Vector
from optim.training.stages import bounds

if TYPE_CHECKING:
    import jax

Ratings = tuple[NDArray[np.int32], NDArray[np.int32], Vector]
"""Users, items and ratings, sorted by user, then item."""


@dataclass(frozen=True, kw_only=True)
class MatrixFactorisation(GeneratedApplication[Ratings]):
    """Factorisation of a matrix x of ratings by users u of items i, of which only some entries are known.

    Minimise ``sum over known (u, i) of (x_ui - l_u . r_i)^2 / 2 + decay / 2 (|l_u|^2 + |r_i|^2)``.

    l_u and r_i are the vectors (factors) of user u and item i. Partitions are ranges of users. The generated ratings
    are products of random factors of the same length, plus noise.

    Parameters
    ----------
    num_users, num_items, num_ratings, num_factors
        Numbers of users, of items, of known ratings, and of entries of a factor; `at_scale` scales those of the Netflix
        data.
    noise, decay
        Standard deviation of the noise, and weight of the regularisation.

    References
    ----------
    Harlap et al. (2017), Proteus, EuroSys: ratings of 480 thousand users for 18 thousand films, 100 million known.
    """

    num_users: int = 480
    num_items: int = 180
    num_ratings: int = 10_000
    num_factors: int = 8
    noise: float = 0.1
    decay: float = 0.01

    @classmethod
    def at_scale(cls, scale: float, *, num_partitions: int = 8, seed: int = 0) -> "MatrixFactorisation":
        """Return the application with the published sizes times `scale`, and the number of ratings times ``scale^2``."""
        return cls(
            num_users=max(num_partitions, round(480_000 * scale)),
            num_items=max(1, round(18_000 * scale)),
            num_ratings=max(num_partitions, round(100e6 * scale**2)),
            num_factors=max(1, round(1000 * scale)),
            num_partitions=num_partitions,
            seed=seed,
        )

    @classmethod
    def from_file(cls, path: str, *, num_partitions: int | None = None, seed: int = 0) -> "MatrixFactorisation":
        """Return the application on custom ratings; partitions are ranges of the ratings, sorted by user."""
        users, items, values = read_ratings(path)
        return cls(
            num_users=int(users.max()) + 1,
            num_items=int(items.max()) + 1,
            num_ratings=len(values),
            num_partitions=partitions_of(len(values), num_partitions),
            seed=seed,
            source=path,
        )

    def _take(self, start: int, stop: int) -> Ratings:
        (users, items, values), part = read_ratings(self.source), slice(start, stop)
        return users[part].astype(np.int32), items[part].astype(np.int32), values[part]

    @property
    def num_examples(self) -> int:
        """Number of known ratings."""
        return self.num_ratings

    def init(self, key: "jax.Array") -> "jax.Array":
        """Return small random factors, shape (users and items, factors): users' rows come first."""
        import jax
        import jax.numpy as jnp

        shape = (self.num_users + self.num_items, self.num_factors)
        return jnp.float32(0.3) * jax.random.normal(key, shape, jnp.float32)

    @property
    def row_width(self) -> int:
        """Number of factors per user or item."""
        return self.num_factors

    def rows(self, partition: int) -> NDArray[np.int32]:
        """Return the table's rows of all users and items for which the partition has ratings."""
        return self.once("rows", partition, lambda: np.unique(np.concatenate(self._pairs(partition))))

    def arrays(self, partition: int) -> Ratings:
        """Return for each rating the user's and the item's index among the partition's rows, and the rating."""
        users, items = (np.searchsorted(self.rows(partition), rows) for rows in self._pairs(partition))
        return users.astype(np.int32), items.astype(np.int32), self.data(partition)[2]

    def loss(self, parameters: "jax.Array", batch: Batch) -> "jax.Array":
        """Return the mean over ratings of half the squared error plus the regularisation of both factors."""
        import jax.numpy as jnp

        rated_by, rated, ratings = batch
        users, items = parameters[rated_by], parameters[rated]
        errors = (users * items).sum(axis=1) - ratings
        decay = jnp.float32(self.decay)
        return jnp.float32(0.5) * (errors**2 + decay * ((users**2).sum(axis=1) + (items**2).sum(axis=1))).mean()

    def _pairs(self, partition: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return, for each rating, the table's row of the user and the table's row of the item."""
        users, items, _ = self.data(partition)
        return users, self.num_users + items

    def _make(self, partition: int, size: int, rng: np.random.Generator) -> Ratings:
        """Draw random entries of the partition's users; a rating is the product of the true factors, plus noise."""
        model = self._model_rng()
        users = model.normal(0.0, 1.0, (self.num_users, self.num_factors))
        items = model.normal(0.0, 1.0, (self.num_items, self.num_factors)) / np.sqrt(self.num_factors)
        first, last = bounds(self.num_users, self.num_partitions, partition)
        rows = rng.integers(first, max(last, first + 1), size)
        columns = rng.integers(0, self.num_items, size)
        values = np.einsum("ij,ij->i", users[rows], items[columns]) + rng.normal(0.0, self.noise, size)
        # An entry that is drawn twice counts as two ratings, so that there are as many ratings as requested.
        order = np.lexsort((columns, rows))
        return rows[order].astype(np.int32), columns[order].astype(np.int32), values[order].astype(np.float32)

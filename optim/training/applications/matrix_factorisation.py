"""Matrix factorisation: known entries of a ratings matrix are explained by short vectors of users and items."""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from optim.training.applications.generated import GeneratedApplication, partitions_of, read_ratings
from optim.training.messages import RowGradient, Vector
from optim.training.stages import bounds


@dataclass(frozen=True, kw_only=True)
class MatrixFactorisation(GeneratedApplication[sparse.csr_array]):
    """Factorisation of a matrix of which some entries are known.

    Minimise ``sum over known (u, i) of (x_ui - l_u . r_i)^2 / 2 + decay / 2 (|l_u|^2 + |r_i|^2)``.

    Partitions are ranges of users. The data is a product of random factors of the same rank, plus noise.

    Parameters
    ----------
    num_users, num_items, num_ratings, num_factors
        Sizes; `at_scale` shrinks those of the Netflix data.
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
        """Return the published shape with all sizes multiplied by `scale`, ratings by its square."""
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
        """Return the application on custom ratings; partitions are ranges of them, sorted by user."""
        users, items, values = read_ratings(path)
        return cls(
            num_users=int(users.max()) + 1,
            num_items=int(items.max()) + 1,
            num_ratings=len(values),
            num_partitions=partitions_of(len(values), num_partitions),
            seed=seed,
            source=path,
        )

    def _take(self, start: int, stop: int) -> sparse.csr_array:
        users, items, values = (column[start:stop] for column in read_ratings(self.source))
        pointers = np.concatenate([[0], np.cumsum(np.bincount(users, minlength=self.num_users))]).astype(np.int32)
        return sparse.csr_array((values, items.astype(np.int32), pointers), shape=(self.num_users, self.num_items))

    @property
    def num_examples(self) -> int:
        """Number of known ratings."""
        return self.num_ratings

    @property
    def num_parameters(self) -> int:
        """Users and items times factors."""
        return (self.num_users + self.num_items) * self.num_factors

    def initial_parameters(self) -> Vector:
        """Return small random factors."""
        rng = np.random.default_rng([self.seed, 2])
        return rng.normal(0.0, 0.3, self.num_parameters).astype(np.float32)

    @property
    def row_width(self) -> int:
        """Factors: users' rows come first, then items'."""
        return self.num_factors

    @property
    def weight_decay_center(self) -> None:
        """Nothing: the decay is of what is rated."""
        return

    def gradient(self, parameters: Vector, partition: int, clock: int) -> tuple[Vector, float]:
        """Return the mean gradient over the partition's ratings, and the summed loss."""
        gradient, loss = self.row_gradient(parameters, partition, clock)
        return gradient.dense(self.num_parameters), loss

    def row_gradient(self, parameters: Vector, partition: int, clock: int) -> tuple[RowGradient, float]:
        """Return the mean gradient over the partition's ratings by the rows of their users and items."""
        del clock
        ratings = self.data(partition)
        users, items = self._factors(parameters)
        counts = np.diff(ratings.indptr), np.bincount(ratings.indices, minlength=self.num_items)
        local_users, local_items = (np.flatnonzero(count) for count in counts)
        place = np.zeros(self.num_items, dtype=np.int32)
        place[local_items] = np.arange(len(local_items), dtype=np.int32)
        pointers = np.concatenate([[0], np.cumsum(counts[0][local_users])]).astype(np.int32)
        users, items = users[local_users], items[local_items]
        columns = place[ratings.indices]
        rows = np.repeat(np.arange(len(local_users)), np.diff(pointers))
        errors = np.einsum("ij,ij->i", users[rows], items[columns]) - ratings.data
        residuals = sparse.csr_array((errors, columns, pointers), shape=(len(local_users), len(local_items)))
        seen_users, seen_items = counts[0][local_users, None], counts[1][local_items, None]
        decay = np.float32(self.decay)
        of_users = residuals @ items + decay * seen_users.astype(np.float32) * users
        of_items = residuals.T @ users + decay * seen_items.astype(np.float32) * items
        loss = 0.5 * float(np.dot(errors, errors))
        loss += 0.5 * self.decay * float((seen_users * users**2).sum() + (seen_items * items**2).sum())
        values = np.concatenate([of_users, of_items]) / np.float32(len(errors))
        numbers = np.concatenate([local_users, self.num_users + local_items]).astype(np.int32)
        return RowGradient(numbers, values.astype(np.float32)), loss

    def _factors(self, parameters: Vector) -> tuple[Vector, Vector]:
        cut = self.num_users * self.num_factors
        shape = (-1, self.num_factors)
        return parameters[:cut].reshape(shape), parameters[cut:].reshape(shape)

    def _make(self, partition: int, size: int, rng: np.random.Generator) -> sparse.csr_array:
        """Draw distinct entries of the partition's users; their values are the true ones and noise."""
        model = self._model_rng()
        users = model.normal(0.0, 1.0, (self.num_users, self.num_factors))
        items = model.normal(0.0, 1.0, (self.num_items, self.num_factors)) / np.sqrt(self.num_factors)
        first, last = bounds(self.num_users, self.num_partitions, partition)
        rows = rng.integers(first, max(last, first + 1), size)
        columns = rng.integers(0, self.num_items, size)
        values = np.einsum("ij,ij->i", users[rows], items[columns]) + rng.normal(0.0, self.noise, size)
        # Entries drawn twice stay two observations: the number of ratings is what was asked for.
        order = np.lexsort((columns, rows))
        counts = np.bincount(rows, minlength=self.num_users)
        pointers = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        entries = (values[order].astype(np.float32), columns[order].astype(np.int32), pointers)
        return sparse.csr_array(entries, shape=(self.num_users, self.num_items))

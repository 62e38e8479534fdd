"""A table of rows in this process's memory that pushes change in place, by compiled loops: the fastest way on a CPU.

XLA's loops over rows read and write each row of the table by itself and take what is pushed through a buffer: plain descent
takes half as long again as here, Adagrad twice as long. Every thread owns a range of rows and goes through the numbers of all
pushed ones, so no two write to one place and the order of additions is that of the push, however many threads there are.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from optim.core.compile_cache import compiled
from optim.kernels.parameter_server import AbstractOptimiser, Adagrad, Sgd
from optim.training.messages import RowNumbers, Vector
from optim.training.partitions import bounds

NOBODY = -1


class HostRows:
    """The rows, with the optimiser's slot beside each row's parameters: so a pushed row is one place in memory.

    Parameters
    ----------
    parameters, slots
        Shape (rows, width) each; copied.
    optimiser
        `Sgd` or `Adagrad`.
    threads
        At work in a push.
    """

    def __init__(
        self, parameters: Vector, slots: Sequence[Vector], optimiser: AbstractOptimiser, *, threads: int = 1
    ) -> None:
        self.width = parameters.shape[1]
        self._optimiser = optimiser
        self._table = np.stack([parameters, *slots], axis=1).astype(np.float32, copy=False)
        self._ranges = [bounds(len(parameters), threads, thread) for thread in range(threads)]
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self._first: RowNumbers = np.full(len(parameters) if slots else 0, NOBODY, dtype=np.int32)

    @staticmethod
    def takes(optimiser: AbstractOptimiser) -> bool:
        """Tell whether there are loops for a rule."""
        return type(optimiser) in (Sgd, Adagrad)

    def push(self, rows: RowNumbers, values: Vector, clock: int = 0) -> None:
        """Apply pushed rows; equal ones add up first, in the order given. Numbers out of range change nothing.

        Parameters
        ----------
        rows
            Shape (N,), int32.
        values
            Shape (N, width), float32: gradients.
        clock
            Pushes before this one, of which these rules make nothing.
        """
        del clock
        rate, table = np.float32(self._optimiser.learning_rate), self._table
        if isinstance(self._optimiser, Adagrad):
            after, epsilon = np.empty(len(rows), dtype=np.int32), np.float32(self._optimiser.epsilon)
            self._spread(lambda low, high: _adagrad(table, rows, values, rate, epsilon, self._first, after, low, high))
        else:
            self._spread(lambda low, high: _descend(table, rows, values, rate, low, high))

    def parameters(self) -> Vector:
        """Return a copy of the parameters, shape (rows, width)."""
        return self._table[:, 0].copy()

    def slots(self) -> tuple[Vector, ...]:
        """Return copies of the optimiser's arrays."""
        return tuple(self._table[:, 1 + slot].copy() for slot in range(self._optimiser.num_slots))

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    def _spread(self, part: Callable[[int, int], None]) -> None:
        if self._pool is None:
            part(*self._ranges[0])
        else:
            list(self._pool.map(lambda own: part(*own), self._ranges))


# Elements are named one by one: a view of a row would be counted in and out by every thread. What a division by 0 gives is
# left to the processor, else the loop over a row couldn't be vectorised.
@compiled(error_model="numpy")
def _descend(table, rows, values, rate, low, high):  # type: ignore[no-untyped-def]
    """Step against each pushed row between `low` and `high`."""
    width = table.shape[2]
    for i in range(rows.shape[0]):
        row = rows[i]
        if low <= row < high:
            for j in range(width):
                table[row, 0, j] -= rate * values[i, j]


@compiled(error_model="numpy")
def _adagrad(table, rows, values, rate, epsilon, first, after, low, high):  # type: ignore[no-untyped-def]
    """Add up equal rows between `low` and `high`, each where it is pushed first, and apply the sum.

    `first` tells where a row is pushed first, `NOBODY` before and after; `after` where it is pushed next. Few rows are pushed
    twice: only these go through a sum.
    """
    count, width = rows.shape[0], table.shape[2]
    total = np.empty(width, np.float32)
    for i in range(count - 1, -1, -1):
        row = rows[i]
        if low <= row < high:
            after[i] = first[row]
            first[row] = i
    for i in range(count):
        row = rows[i]
        if row < low or row >= high or first[row] != i:
            continue
        first[row] = NOBODY
        following = after[i]
        if following == NOBODY:
            for j in range(width):
                g = values[i, j]
                square = table[row, 1, j] + g * g
                table[row, 1, j] = square
                table[row, 0, j] -= rate * g / (np.sqrt(square) + epsilon)
            continue
        for j in range(width):
            total[j] = values[i, j]
        while following != NOBODY:
            for j in range(width):
                total[j] += values[following, j]
            following = after[following]
        for j in range(width):
            g = total[j]
            square = table[row, 1, j] + g * g
            table[row, 1, j] = square
            table[row, 0, j] -= rate * g / (np.sqrt(square) + epsilon)

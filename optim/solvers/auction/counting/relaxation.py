"""The relaxation in which only the number of GPUs counts: its optimum with all apps, and without each of them."""

from functools import cached_property

import numpy as np

from optim.models.auction.instance import FloatArray, IntArray
from optim.solvers.auction.counting.knapsacks import best_choice, best_without, count_tables
from optim.solvers.auction.tables import Tables


class CountRelaxation:
    """Tables from both ends, each made when it is first asked for; all optima follow from them.

    Parameters
    ----------
    offset
        Shape (apps + 1,): the rows of app i are ``offset[i]:offset[i+1]``.
    size, weight
        Shape (rows,): GPUs of each row, and what it is worth.
    room
        GPUs there are.

    Notes
    -----
    O(apps x GPUs x rows an app) for the tables, O(GPUs) for each leave-one-out optimum.
    """

    def __init__(self, offset: IntArray, size: IntArray, weight: FloatArray, room: int) -> None:
        self._rows, self._room = (offset, size, weight), max(0, room)
        self._num_apps = len(offset) - 1

    @classmethod
    def of(cls, tables: Tables) -> "CountRelaxation":
        """Return the relaxation of an auction."""
        return cls(tables.offset, tables.size, tables.weight, tables.instance.cluster.num_free)

    @cached_property
    def _head(self) -> FloatArray:
        return self._table(np.arange(self._num_apps))

    @cached_property
    def _tail(self) -> FloatArray:
        return self._table(np.arange(self._num_apps)[::-1].copy())

    def _table(self, order: IntArray) -> FloatArray:
        table: FloatArray = count_tables(order, *self._rows, self._room)
        return table

    @property
    def bound(self) -> float:
        """The optimum of all apps."""
        return float(self._head[-1, -1])

    def choice(self) -> IntArray:
        """Return rows that attain it, by app, -1 for none."""
        chosen: IntArray = best_choice(self._head, *self._rows)
        return chosen

    def bound_without(self, app: int) -> float:
        """Return the optimum of the others."""
        return float((self._head[app] + self._tail[self._num_apps - 1 - app][::-1]).max())

    def without(self, app: int) -> tuple[float, IntArray]:
        """Return the optimum of the others and rows that attain it."""
        choice = np.full(self._num_apps, -1, dtype=np.int64)
        return float(best_without(self._head, self._tail, *self._rows, app, choice)), choice

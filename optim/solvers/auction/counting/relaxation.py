"""The relaxation in which only the number of GPUs counts: its optimum with all apps, and without each of them."""

import numpy as np

from optim.models.auction.instance import IntArray
from optim.solvers.auction.counting.knapsacks import best_choice, best_without, count_tables
from optim.solvers.auction.tables import Tables


class CountRelaxation:
    """Tables from both ends; all optima follow from them.

    Notes
    -----
    O(apps x GPUs x rows an app) for the tables, O(GPUs) for each leave-one-out optimum.
    """

    def __init__(self, tables: Tables) -> None:
        self._rows = (tables.offset, tables.size, tables.weight)
        room, order = tables.instance.cluster.num_free, np.arange(tables.num_apps)
        self._head = count_tables(order, *self._rows, room)
        self._tail = count_tables(order[::-1].copy(), *self._rows, room)
        self._num_apps = tables.num_apps

    @property
    def bound(self) -> float:
        """The optimum of all apps."""
        return float(self._head[-1, -1])

    def choice(self) -> IntArray:
        """Return kept rows that attain it, by app."""
        chosen: IntArray = best_choice(self._head, *self._rows)
        return chosen

    def without(self, app: int) -> tuple[float, IntArray]:
        """Return the optimum of the others and kept rows that attain it."""
        choice = np.full(self._num_apps, -1, dtype=np.int64)
        return float(best_without(self._head, self._tail, *self._rows, app, choice)), choice

"""The count relaxation: knapsacks that only count GPUs, for all apps and without each app.

Keeping only ``sum of GPUs <= free GPUs`` leaves a multiple-choice knapsack. The knapsack's optimum is always an upper
bound, and exact if its solution can be placed. On empty machines it can always be placed if the bundles' sizes divide
one another and the sizes of machine and rack.
"""

from functools import cached_property

import numpy as np

from optim.compiled import compiled, copy_first
from optim.core.arrays import FloatArray, IntArray
from optim.solvers.auction.tables import Tables


@compiled
def count_tables(order, offset, size, weight, num_free):
    """Return T with T[k, u] the maximal welfare of the first k apps in an order with at most u GPUs."""
    table = np.zeros((len(order) + 1, num_free + 1))
    for k in range(len(order)):
        before, after = table[k], table[k + 1]
        copy_first(num_free + 1, before, after)
        for b in range(offset[order[k]], offset[order[k] + 1]):
            w = weight[b]
            for u in range(size[b], num_free + 1):
                value = before[u - size[b]] + w
                if value > after[u]:
                    after[u] = value
    return table


@compiled
def trace(table, order, offset, size, weight, apps, num_free, choice):
    """Choose rows of the first `apps` apps in an order that attain table[apps, num_free]; ties keep the first row."""
    u = num_free
    for k in range(apps - 1, -1, -1):
        i, value = order[k], table[k + 1, u]
        choice[i] = -1
        if value == table[k, u]:
            continue
        for b in range(offset[i], offset[i + 1]):
            if size[b] <= u and table[k, u - size[b]] + weight[b] == value:
                choice[i] = b
                u -= size[b]
                break


@compiled
def best_choice(table, offset, size, weight):
    """Return a choice of rows that attains the optimum with all apps."""
    num_apps = len(offset) - 1
    choice, order = np.empty(num_apps, dtype=np.int64), np.empty(num_apps, dtype=np.int64)
    for i in range(num_apps):
        order[i] = i
    trace(table, order, offset, size, weight, num_apps, table.shape[1] - 1, choice)
    return choice


@compiled
def best_without(head, tail, offset, size, weight, app, choice):
    """Write a choice that attains the optimum without `app`; return that optimum.

    `head` and `tail` are the tables of `count_tables` for the apps in ascending and in descending order.
    """
    num_apps, num_free = len(offset) - 1, head.shape[1] - 1
    after = num_apps - 1 - app
    order, backwards = np.empty(num_apps, dtype=np.int64), np.empty(num_apps, dtype=np.int64)
    for i in range(num_apps):
        order[i], backwards[i] = i, num_apps - 1 - i
    split, best = 0, head[app, 0] + tail[after, num_free]
    for gpus in range(1, num_free + 1):
        value = head[app, gpus] + tail[after, num_free - gpus]
        if value > best:
            split, best = gpus, value
    trace(head, order, offset, size, weight, app, split, choice)
    choice[app] = -1
    trace(tail, backwards, offset, size, weight, after, num_free - split, choice)
    return best


class CountRelaxation:
    """The knapsack tables of the apps in ascending and in descending order, from which all optima follow.

    Parameters
    ----------
    offset
        Shape (apps + 1,): the rows of app i are ``offset[i]:offset[i+1]``.
    size, weight
        Shape (rows,): GPUs of each row, and its value.
    num_free
        Number of free GPUs.

    Notes
    -----
    A table is computed on first use, in O(apps x GPUs x rows per app); each optimum without an app takes O(GPUs).
    """

    def __init__(self, offset: IntArray, size: IntArray, weight: FloatArray, num_free: int) -> None:
        self._rows, self._num_free = (offset, size, weight), max(0, num_free)
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
        table: FloatArray = count_tables(order, *self._rows, self._num_free)
        return table

    @property
    def bound(self) -> float:
        """The optimum of all apps."""
        return float(self._head[-1, -1])

    def choice(self) -> IntArray:
        """Return the rows that attain the optimum, by app, -1 for none."""
        chosen: IntArray = best_choice(self._head, *self._rows)
        return chosen

    def bound_without(self, app: int) -> float:
        """Return the optimum without an app."""
        return float((self._head[app] + self._tail[self._num_apps - 1 - app][::-1]).max())

    def without(self, app: int) -> tuple[float, IntArray]:
        """Return the optimum without an app, and rows that attain it."""
        choice = np.full(self._num_apps, -1, dtype=np.int64)
        return float(best_without(self._head, self._tail, *self._rows, app, choice)), choice

"""The relaxation in which only the number of GPUs counts, solved for all apps and without each of them."""

from functools import cached_property

import numpy as np

from optim.models.auction.check.facts import Facts
from optim.models.auction.instance import FloatArray


class CountBound:
    """Multiple-choice knapsacks over the GPUs on offer: tables from both ends meet at each app."""

    def __init__(self, facts: Facts, weight: FloatArray | None = None, room: int | None = None) -> None:
        self._facts = facts
        self._room = facts.num_free if room is None else max(0, room)
        weight = facts.weight if weight is None else weight
        best: list[dict[int, float]] = [{} for _ in range(facts.num_apps)]
        bids = facts.instance.bids
        rows = zip(bids.app.tolist(), bids.gpus.tolist(), weight.tolist(), facts.useful.tolist(), strict=True)
        for app, gpus, gain, is_useful in rows:
            if is_useful and gpus <= self._room and gain > best[app].get(gpus, 0.0):
                best[app][gpus] = gain
        self._best = best

    @cached_property
    def _heads(self) -> list[FloatArray]:
        """Table i: the most welfare of apps 0, ..., i-1 with u GPUs."""
        return self._tables(self._best)

    @cached_property
    def _tails(self) -> list[FloatArray]:
        """Table i: the most welfare of the last i apps with u GPUs."""
        return self._tables(self._best[::-1])

    def _tables(self, best: list[dict[int, float]]) -> list[FloatArray]:
        tables = [np.zeros(self._room + 1)]
        for rows in best:
            table = tables[-1].copy()
            for gpus, weight in rows.items():
                np.maximum(table[gpus:], tables[-1][: len(table) - gpus] + weight, out=table[gpus:])
            tables.append(table)
        return tables

    def welfare(self, without: int | None = None) -> float:
        """Return the bound of all apps, or of all but one where no other one is asked for."""
        if without is not None:
            return float(self._tables(self._best[:without] + self._best[without + 1 :])[-1][-1])
        return float(self._heads[-1][-1])

    def without(self, app: int) -> float:
        """Return the bound of the others."""
        tail = self._tails[self._facts.num_apps - 1 - app]
        return float((self._heads[app] + tail[::-1]).max())

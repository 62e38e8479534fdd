"""An auction's bids as the solvers use them: positive weights by app, without dominated rows."""

from dataclasses import dataclass

import numpy as np

from optim.compiled import compiled
from optim.core.arrays import FloatArray, IntArray
from optim.models.auction.data import Locality
from optim.models.auction.instance import AuctionInstance


@compiled
def mark_better(app, level, rho, num_levels, marked):
    """Mark rows that are better than every earlier row of the same app with at least as wide a locality.

    Rows that name their machines, whose locality is `num_levels`, are always marked.
    """
    best = np.full(num_levels, np.inf)
    for k in range(len(app)):
        if k == 0 or app[k] != app[k - 1]:
            best[:] = np.inf
        if level[k] == num_levels:
            marked[k] = True
        elif rho[k] < best[level[k] :].min():
            marked[k] = True
            best[level[k]] = rho[k]


@dataclass(frozen=True, kw_only=True, eq=False)
class Tables:
    """The instance's rows that can be part of an optimal allocation.

    Parameters
    ----------
    row
        Shape (rows,): index of each table row in the instance.
    app, size, level, weight
        Shape (rows,): app, GPUs, `Locality`, and log welfare relative to the empty row.
    offset
        Shape (apps + 1,): the table rows of app i are ``offset[i]:offset[i+1]``.
    kind
        Shape (rows,): position of (level, size) in `kinds`, -1 for rows that name their machines.
    kinds
        Shape (kinds, 2): level and size, sorted.
    """

    instance: AuctionInstance
    row: IntArray
    app: IntArray
    size: IntArray
    level: IntArray
    weight: FloatArray
    offset: IntArray
    kind: IntArray
    kinds: IntArray

    @property
    def num_apps(self) -> int:
        """Number of apps."""
        return self.instance.num_apps

    @property
    def has_named(self) -> bool:
        """Whether any table row names its machines."""
        return bool((self.level == Locality.NAMED).any())

    @classmethod
    def build(cls, instance: AuctionInstance) -> "Tables":
        """Return the tables of an instance, without rows that fit nowhere or are dominated.

        A row is dominated by a row of the same app with at most as many GPUs, a locality at least as wide, and a rho at most
        as large. That row fits wherever the dominated row fits. Rows that name machines stay.
        """
        bids, cluster = instance.bids, instance.cluster
        max_gpus = np.array(
            [
                cluster.slot_free.max(initial=0),
                cluster.machine_free.max(initial=0),
                cluster.rack_free.max(initial=0),
                cluster.num_free,
                cluster.num_free,
            ]
        )
        fits = bids.gpus <= max_gpus[bids.locality]
        is_oversized = bids.named_gpus > cluster.machine_free[bids.named_machine]
        fits[bids.named_row[is_oversized]] = False
        keep = np.flatnonzero(fits)
        # By app, fewest GPUs first, widest locality first, best first: a row stays if it is better than all rows
        # before it with at least as wide a locality.
        level = bids.locality[keep]
        order = np.lexsort((keep, bids.rho[keep], -level, bids.gpus[keep], bids.app[keep]))
        keep = keep[order]
        is_best = np.zeros(len(keep), dtype=bool)
        mark_better(bids.app[keep], bids.locality[keep], bids.rho[keep], int(Locality.NAMED), is_best)
        keep = np.sort(keep[is_best])
        level, size = bids.locality[keep], bids.gpus[keep]
        is_named = level == Locality.NAMED
        key = level * (cluster.num_free + 1) + size
        kind_keys = np.unique(key[~is_named])
        kind = np.where(is_named, -1, np.searchsorted(kind_keys, key))
        kinds = np.stack(np.divmod(kind_keys, cluster.num_free + 1), axis=1)
        return cls(
            instance=instance,
            row=keep,
            app=bids.app[keep],
            size=size,
            level=level,
            weight=instance.weight[keep],
            offset=np.searchsorted(bids.app[keep], np.arange(instance.num_apps + 1)).astype(np.int64),
            kind=kind.astype(np.int64),
            kinds=kinds.astype(np.int64),
        )

    def chosen_rows(self, choice: IntArray) -> IntArray:
        """Return the instance rows of a choice of table rows, -1 for none."""
        return np.append(self.row, -1)[choice]

    def welfare(self, choice: IntArray) -> float:
        """Return the log welfare of a choice of table rows."""
        return float(self.weight[choice[choice >= 0]].sum())

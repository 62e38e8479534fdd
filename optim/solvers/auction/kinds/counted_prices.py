"""Prices beyond those of GPUs, with the GPUs themselves counted: closes what a price a GPU leaves open."""

from dataclasses import dataclass

import numpy as np

from optim.models.auction.instance import FloatArray, IntArray, Locality
from optim.models.auction.proof import PriceProof
from optim.solvers.auction.counting.relaxation import CountRelaxation
from optim.solvers.auction.kinds.kind_lp import MOST, Bounds, KindLP, LpPoint
from optim.solvers.auction.tables import Tables


@dataclass(frozen=True, kw_only=True, eq=False)
class PricedCounts:
    """A knapsack over the GPUs on offer at the prices of kinds, with what is added to it.

    Parameters
    ----------
    proof
        The prices: with counted GPUs they prove `bound`, and `bound_without` of any app.
    fixed
        What the supply earns, what restricted numbers cost, and what fixed rows gain.
    """

    proof: PriceProof
    fixed: float
    _relaxed: CountRelaxation
    _kept: IntArray

    @property
    def bound(self) -> float:
        """No allocation is worth more."""
        return self._relaxed.bound + self.fixed

    @property
    def choice(self) -> IntArray:
        """The kept rows that attain the bound before anything is placed."""
        chosen: IntArray = np.append(self._kept, -1)[self._relaxed.choice()]
        return chosen

    def bound_without(self, app: int) -> float:
        """No allocation of the others is worth more, where the prices are of no tree."""
        return self._relaxed.bound_without(app) + self.fixed


def count_with_prices(lp: KindLP, point: LpPoint, bounds: Bounds, absent: int) -> PricedCounts:
    """Return a knapsack over the GPUs on offer, at the point's prices less those of GPUs.

    The programme prices each GPU by itself, so that a knapsack's last GPUs may be sold in parts. Here the
    prices of kinds keep only their premium, and a dynamic programme sells whole bundles within the GPUs on offer.
    """
    tables = lp.tables
    count = len(tables.kinds)
    proof, row_price, supply, named_price = _premium_prices(tables, point)
    gain = tables.weight - np.append(row_price, 0.0)[tables.kind]
    if tables.has_named:
        gain = gain - _named_cost(tables, proof)
    forced, room = 0.0, tables.instance.cluster.num_free
    for k, (low, high) in bounds.items():
        if k < 0 and low == 1:
            forced += float(gain[-1 - k])
            room -= int(tables.size[-1 - k])
            gain[tables.app == tables.app[-1 - k]] = 0.0
        elif k < 0 and high == 0:
            gain[-1 - k] = 0.0
    kept = np.flatnonzero((gain > 0) & (tables.app != absent) & (tables.size <= room))
    kept = kept[_gain_by_size(tables.app[kept], tables.size[kept], gain[kept])]
    restricted = sum(
        (row_price[k] - supply[k]) * (high if row_price[k] > supply[k] else low)
        for k, (low, high) in bounds.items()
        if k >= 0 and row_price[k] != supply[k] and (high < MOST or row_price[k] < supply[k])
    )
    machines = point.proof.kinds[count:, 2].tolist()
    worth = lp.supply_worth(supply, dict(zip(machines, named_price.tolist(), strict=True)))
    offset = np.searchsorted(tables.app[kept], np.arange(tables.num_apps + 1)).astype(np.int64)
    return PricedCounts(
        proof=proof,
        fixed=worth + float(restricted) + forced,
        _relaxed=CountRelaxation(offset, tables.size[kept], gain[kept], room),
        _kept=kept,
    )


def _premium_prices(tables: Tables, point: LpPoint) -> tuple[PriceProof, FloatArray, FloatArray, FloatArray]:
    """Return prices beyond those of GPUs: as a proof, to rows and to the supply by kind, and of named machines' GPUs."""
    kinds, count = tables.kinds, len(tables.kinds)
    by_gpu = point.gpu_price * np.where(kinds[:, 0] >= 0, kinds[:, 1], 0)
    named_price = np.maximum(0.0, point.proof.row_price[count:] - point.gpu_price)
    supply = np.maximum(0.0, point.proof.supply_price[:count] - by_gpu)
    # Restricted kinds keep the difference between what rows pay and what the supply earns.
    row_price = supply + (point.proof.row_price - point.proof.supply_price)[:count]
    proof = PriceProof(
        kinds=point.proof.kinds,
        row_price=np.concatenate([row_price, named_price]),
        supply_price=np.concatenate([supply, named_price]),
        is_counted=True,
    )
    return proof, row_price, supply, named_price


def _gain_by_size(app: IntArray, size: IntArray, gain: FloatArray) -> IntArray:
    """Return the positions, ascending, of rows that gain more than every row of the same app with no more GPUs."""
    order = np.lexsort((-gain, size, app))
    _, rank = np.unique(gain, return_inverse=True)
    key = (app * (len(app) + 1) + rank.ravel())[order]  # whole numbers: apps apart, then gains
    before = np.maximum.accumulate(np.concatenate([[-1], key[:-1]])) if len(key) else key
    is_first = np.concatenate([[True], np.diff(app[order]) > 0]) if len(key) else key.astype(bool)
    return np.sort(order[(key > before) | is_first])


def _named_cost(tables: Tables, proof: PriceProof) -> np.ndarray:
    """Return what the named machines of each kept row cost."""
    instance = tables.instance
    unit = np.zeros(instance.cluster.num_machines)
    is_named = proof.kinds[:, 0] == Locality.NAMED
    unit[proof.kinds[is_named, 2]] = proof.row_price[is_named]
    cost = np.zeros(len(instance.bids))
    np.add.at(cost, instance.bids.named_row, instance.bids.named_gpus * unit[instance.bids.named_machine])
    found: np.ndarray = cost[tables.row]
    return found

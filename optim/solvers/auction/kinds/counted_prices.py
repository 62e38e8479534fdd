"""Prices beyond those of GPUs, with the GPUs themselves counted: closes what a price a GPU leaves open."""

from dataclasses import dataclass

import numpy as np

from optim.models.auction.instance import IntArray, Locality
from optim.models.auction.proof import PriceProof
from optim.solvers.auction.counting.knapsacks import best_choice, count_tables
from optim.solvers.auction.kinds.kind_lp import MOST, Bounds, KindLP, LpPoint
from optim.solvers.auction.tables import Tables


@dataclass(frozen=True, kw_only=True, eq=False)
class Counted:
    """A bound with its proof, and the kept rows that attain it before anything is placed."""

    bound: float
    proof: PriceProof
    choice: IntArray


def count_with_prices(lp: KindLP, point: LpPoint, bounds: Bounds, absent: int) -> Counted:
    """Return the bound of a knapsack over the GPUs on offer, at the point's prices less those of GPUs.

    The programme prices each GPU by itself, so that a knapsack's last GPUs may be sold in parts. Here the
    prices of kinds keep only their premium, and a dynamic programme sells whole bundles within the GPUs on offer.
    """
    tables = lp.tables
    kinds = tables.kinds
    count = len(kinds)
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
    keep = (gain > 0) & (tables.app != absent) & (tables.size <= room)
    offset = np.searchsorted(tables.app[keep], np.arange(tables.num_apps + 1)).astype(np.int64)
    rows = (offset, tables.size[keep], gain[keep])
    head = count_tables(np.arange(tables.num_apps), *rows, max(0, room))
    chosen = best_choice(head, *rows)
    kept = np.flatnonzero(keep)
    choice = np.append(kept, -1)[chosen]
    restricted = sum(
        (row_price[k] - supply[k]) * (high if row_price[k] > supply[k] else low)
        for k, (low, high) in bounds.items()
        if k >= 0 and row_price[k] != supply[k] and (high < MOST or row_price[k] < supply[k])
    )
    machines = point.proof.kinds[count:, 2].tolist()
    worth = lp.supply_worth(supply, dict(zip(machines, named_price.tolist(), strict=True)))
    return Counted(bound=float(head[-1, -1]) + worth + float(restricted) + forced, proof=proof, choice=choice)


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

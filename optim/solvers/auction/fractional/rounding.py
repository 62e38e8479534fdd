"""From fractional shares of GPUs to bundles: largest remainders, then what the bids allow, then repair."""

import numpy as np

from optim.models.auction.instance import FloatArray, IntArray, Locality
from optim.models.auction.market import FractionalMarket
from optim.solvers.auction.allocation.allocator import Allocation, Allocator
from optim.solvers.auction.tables import Tables


def whole_shares(market: FractionalMarket, share: FloatArray) -> IntArray:
    """Return whole GPUs by app and good: the floors, then one more to the largest remainders of each good."""
    floor = np.floor(share + 1e-9)
    for m in range(len(market.supply)):
        left = round(float(market.supply[m] - floor[:, m].sum()))
        remainder = share[:, m] - floor[:, m]
        order = np.lexsort((np.arange(len(remainder)), -remainder))
        order = order[remainder[order] > 1e-9][: max(0, left)]
        floor[order, m] += 1
    return floor.astype(np.int64)


def rounded(tables: Tables, allocator: Allocator, market: FractionalMarket, share: FloatArray) -> Allocation:
    """Return an allocation near fractional shares.

    Each app wants its best bid of no more GPUs than its whole share (of no more of each named machine's good).
    What can't be placed is replaced, and GPUs that stay free are given out by the largest gain a GPU.
    """
    whole = whole_shares(market, share)
    wanted = np.full(tables.num_apps, -1, dtype=np.int64)
    instance = tables.instance
    for position, i in enumerate(market.app.tolist()):
        total, best = int(whole[position].sum()), 0.0
        for b in range(int(tables.offset[i]), int(tables.offset[i + 1])):
            if tables.size[b] > total or tables.weight[b] <= best:
                continue
            if tables.level[b] == Locality.NAMED:
                row = int(tables.row[b])
                part = slice(int(instance.named_offset[row]), int(instance.named_offset[row + 1]))
                goods = market.machine_good[instance.bids.named_machine[part]]
                if (whole[position, goods] < instance.bids.named_gpus[part]).any():
                    continue
            wanted[i], best = b, float(tables.weight[b])
    return allocator.repaired(wanted)


def envy_ratio(market: FractionalMarket, share: FloatArray) -> float:
    """Return the largest factor by which an app would value another one's shares above its own; 1 without envy."""
    own = market.log_values(np.minimum((market.speed * share).sum(axis=1), market.cap))
    others = np.minimum(market.speed @ share.T, market.cap[:, None])
    with np.errstate(divide="ignore"):
        value = np.log(market.ideal_min)[:, None] - np.log(
            market.elapsed_min[:, None] + market.work_min[:, None] / others
        )
    return float(np.exp((value - own[:, None]).max(initial=0.0)))

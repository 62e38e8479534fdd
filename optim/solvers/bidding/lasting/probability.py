"""The distribution of what lasts of a holding, in a compiled loop: docs/mathematics/bidding.md, (B.14)."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from optim.core.compile_cache import compiled, inner
from optim.models.bidding.common_shocks import CommonShocks
from optim.models.bidding.instance import BiddingInstance, FloatArray, IntArray
from optim.models.bidding.lasting import LASTING_TOL, LastingCapacity


class Stays(NamedTuple):
    """Places, and probabilities that no shock of a cause comes: of markets, zones and regions."""

    zone: IntArray
    region: IntArray
    own: FloatArray
    by_zone: FloatArray
    by_region: FloatArray


def stays_of(shocks: CommonShocks) -> Stays:
    """Return the probabilities that nothing strikes."""
    own, by_zone, by_region = (np.exp(-values) for values in (shocks.own, shocks.by_zone, shocks.by_region))
    return Stays(
        zone=shocks.zone.astype(np.int64),
        region=shocks.region.astype(np.int64),
        own=own,
        by_zone=by_zone,
        by_region=by_region,
    )


@lru_cache(maxsize=8)
def _stays(lasting: LastingCapacity) -> Stays:
    """Return the probabilities of an instance's causes, once for all footprints."""
    return stays_of(lasting.shocks)


@inner
def what_lasts(size: IntArray, stays: Stays, most: int) -> FloatArray:
    """Return the probability of each amount that lasts of a holding by market; more than `most` counts as that."""
    total, inside = np.zeros(most + 1), np.zeros(most + 1)
    here, spare = np.zeros(most + 1), np.zeros(most + 1)
    total[0] = 1.0
    top = 0
    for region in range(len(stays.by_region)):
        inside[:] = 0.0
        inside[0] = 1.0
        top_inside = 0
        for zone in range(len(stays.by_zone)):
            if stays.region[zone] != region:
                continue
            here[:] = 0.0
            here[0] = 1.0
            top_here = 0
            for market in range(len(size)):
                amount = min(size[market], most)
                if amount <= 0 or stays.zone[market] != zone:
                    continue
                stay = stays.own[market]
                for have in range(top_here, -1, -1):
                    chance = here[have]
                    here[have] = chance * (1.0 - stay)
                    here[min(have + amount, most)] += chance * stay
                top_here = min(top_here + amount, most)
            if top_here > 0:
                top_inside = _add(inside, top_inside, here, top_here, stays.by_zone[zone], spare)
        if top_inside > 0:
            top = _add(total, top, inside, top_inside, stays.by_region[region], spare)
    return total


@inner
def _add(total: FloatArray, top: int, part: FloatArray, part_top: int, stay: float, spare: FloatArray) -> int:
    """Add, in place, what lasts of a part unless a shock takes all of it; return the largest amount."""
    most = len(total) - 1
    spare[:] = 0.0
    for one in range(top + 1):
        if total[one] == 0.0:
            continue
        spare[one] += total[one] * (1.0 - stay)
        for other in range(part_top + 1):
            spare[min(one + other, most)] += total[one] * part[other] * stay
    for amount in range(most + 1):  # copying it as a slice takes seconds to compile
        total[amount] = spare[amount]
    return min(top + part_top, most)


@compiled
def _figures(sizes: IntArray, stays: Stays, most: int) -> FloatArray:
    """Return, for each holding, the probability that `most` lasts and the expected share of it, shape (holdings, 2)."""
    found = np.empty((len(sizes), 2))
    for row in range(len(sizes)):
        lasts = what_lasts(sizes[row], stays, most)
        expected = 0.0
        for amount in range(1, most + 1):
            expected += amount * lasts[amount]
        found[row, 0], found[row, 1] = lasts[most], expected / most
    return found


def kept(instance: BiddingInstance, lasting: LastingCapacity, table: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return of each footprint, table of shape (footprints, bids), the probability to keep enough, and the expected share.

    The share is of what is asked for, where more than that counts as that.
    """
    sizes = np.zeros((len(table), len(instance.markets)), dtype=np.int64)
    np.add.at(sizes.T, instance.bids.market, (lasting.capacity * table).T)
    found = _figures(sizes, _stays(lasting), lasting.least)
    return found[:, 0], found[:, 1]


def shortfall(instance: BiddingInstance, table: IntArray) -> FloatArray:
    """Return by how much footprints fall short, shape (footprints,): 0 for those that keep enough.

    Else the probability that lacks and the expected share that does: more instances always lower it.
    """
    lasting = instance.lasting
    if lasting is None:
        return np.zeros(len(table))
    probability, share = kept(instance, lasting, table)
    lack = lasting.probability - probability
    return np.where(lack <= LASTING_TOL, 0.0, lack + 1.0 - share)

"""What must last the hour: whether a footprint keeps enough, and the rows that covers prove of all that do: (B.17)."""

from dataclasses import dataclass, replace

import numpy as np

from optim.core.verification import Violation, violation
from optim.models.bidding.instance import BiddingInstance, FloatArray, IntArray
from optim.models.bidding.lasting import LASTING_TOL, LastingCapacity
from optim.models.bidding.proof import Cover

MOST_SHORT = 10**4
"""Largest amount in a cover: probabilities are sums over every amount up to it."""

OUTWARD = 1e-12
"""Sums of a few thousand products of probabilities are off by less."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CheckedCovers:
    """Rows ``gain @ counts >= need``, shapes (covers, bids) and (covers,); every footprint that keeps enough fulfils them."""

    gain: FloatArray
    need: FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class _Causes:
    """Probabilities that no shock comes, of markets, zones and regions; and where these are."""

    zone: IntArray
    region: IntArray
    own: FloatArray
    by_zone: FloatArray
    by_region: FloatArray

    @classmethod
    def of(cls, lasting: LastingCapacity) -> "_Causes":
        """Read an instance's."""
        shocks = lasting.shocks
        own, by_zone, by_region = (np.exp(-hours) for hours in (shocks.own, shocks.by_zone, shocks.by_region))
        return cls(zone=shocks.zone, region=shocks.region, own=own, by_zone=by_zone, by_region=by_region)

    def spared(self, zone: int, market: int | None = None) -> "_Causes":
        """Return the probabilities given that a zone's causes don't strike, nor a market's own."""
        own, by_zone, by_region = self.own.copy(), self.by_zone.copy(), self.by_region.copy()
        by_zone[zone] = by_region[self.region[zone]] = 1.0
        if market is not None:
            own[market] = 1.0
        return replace(self, own=own, by_zone=by_zone, by_region=by_region)

    def falls_short(self, held: IntArray, least: int) -> float:
        """Return the probability that less than `least` lasts of a holding by market."""
        if least <= 0:
            return 0.0
        total = np.ones(1)
        for region, stays in enumerate(self.by_region.tolist()):
            inside = np.ones(1)
            for zone in np.flatnonzero(self.region == region).tolist():
                here = np.ones(1)
                for market in np.flatnonzero((self.zone == zone) & (held > 0)).tolist():
                    amount = np.zeros(min(int(held[market]), least) + 1)
                    amount[-1] = 1.0
                    here = _sum(here, _unless_struck(amount, float(self.own[market])), least)
                inside = _sum(inside, _unless_struck(here, float(self.by_zone[zone])), least)
            total = _sum(total, _unless_struck(inside, stays), least)
        return float(total[:least].sum())


def kept(instance: BiddingInstance, lasting: LastingCapacity, counts: IntArray) -> float:
    """Return the probability that a footprint keeps enough."""
    held = np.zeros(len(instance.markets), dtype=np.int64)
    np.add.at(held, instance.bids.market, lasting.capacity * np.maximum(counts, 0))
    return 1.0 - _Causes.of(lasting).falls_short(held, lasting.least)


def keeps_enough(instance: BiddingInstance, counts: IntArray) -> bool:
    """Tell whether a footprint keeps enough; no smaller one does where it doesn't."""
    lasting = instance.lasting
    return lasting is None or kept(instance, lasting, counts) >= lasting.probability - LASTING_TOL


def checked_covers(instance: BiddingInstance, covers: tuple[Cover, ...]) -> CheckedCovers | Violation:
    """Return the rows that covers stand for, recomputed, or what is wrong with their form."""
    lasting, size = instance.lasting, instance.num_bids
    gain, need = np.zeros((len(covers), size)), np.zeros(len(covers))
    for i, cover in enumerate(covers):
        if lasting is None:
            return violation("certificate", "covers are for instances that ask for capacity that lasts")
        is_whole = np.issubdtype(cover.weight.dtype, np.integer) and cover.weight.shape == (len(instance.markets),)
        if not is_whole or (cover.weight < 0).any() or not 0 <= cover.short_of <= MOST_SHORT:
            text = f"a cover has {len(instance.markets)} whole weights and falls short of at most {MOST_SHORT}"
            return violation("certificate", text)
        gain[i], need[i] = _row(instance, lasting, cover)
    return CheckedCovers(gain=gain, need=need)


def _row(instance: BiddingInstance, lasting: LastingCapacity, cover: Cover) -> tuple[FloatArray, float]:
    """Return a cover's row, rounded outward."""
    weight, causes = cover.weight, _Causes.of(lasting)
    survival = causes.own * causes.by_zone[causes.zone] * causes.by_region[causes.region[causes.zone]]
    by_zone = {z: causes.spared(z).falls_short(weight, cover.short_of) for z in np.unique(causes.zone).tolist()}
    hard = np.zeros(len(weight))
    for m, zone in enumerate(causes.zone.tolist()):
        # Its own cause decides on a market's hours only if the holding has something of it.
        share = causes.spared(zone, m).falls_short(weight, cover.short_of) if weight[m] else by_zone[zone]
        hard[m] = survival[m] * share + OUTWARD
    need = causes.falls_short(weight, cover.short_of) - (1.0 - lasting.probability) - LASTING_TOL - OUTWARD
    return lasting.capacity * hard[instance.bids.market], lasting.least * need


def _unless_struck(chances: FloatArray, stays: float) -> FloatArray:
    """Return a distribution of amounts, or nothing where the shock comes."""
    found = chances * stays
    found[0] += 1.0 - stays
    return found


def _sum(one: FloatArray, other: FloatArray, most: int) -> FloatArray:
    """Return the chances that two independent amounts add up to each sum below `most`."""
    return np.convolve(one, other)[:most]

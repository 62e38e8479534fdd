"""The survival constraint: the distribution of the capacity that survives an hour, and cover rows."""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from optim.compiled import compiled
from optim.core.arrays import BoolArray, FloatArray, IntArray
from optim.models.bidding.data import SURVIVAL_TOL, SurvivalConstraint
from optim.models.bidding.decision import Cover
from optim.models.bidding.instance import BiddingInstance
from optim.models.bidding.market.lifetimes import CommonShocks


class Stays(NamedTuple):
    """Zone of each market, region of each zone, and probabilities of no shock to each market, zone and region."""

    zone: IntArray
    region: IntArray
    by_market: FloatArray
    by_zone: FloatArray
    by_region: FloatArray


def stays_of(shocks: CommonShocks) -> Stays:
    """Return the probabilities of no shock."""
    by_market, by_zone, by_region = (np.exp(-values) for values in (shocks.own, shocks.by_zone, shocks.by_region))
    return Stays(
        zone=shocks.zone.astype(np.int64),
        region=shocks.region.astype(np.int64),
        by_market=by_market,
        by_zone=by_zone,
        by_region=by_region,
    )


@lru_cache(maxsize=8)
def _stays(survival: SurvivalConstraint) -> Stays:
    """Return the probabilities of no shock, computed once for all footprints of an instance."""
    return stays_of(survival.shocks)


@compiled
def surviving_capacity(size: IntArray, stays: Stays, most: int) -> FloatArray:
    """Return the probability of each surviving amount from 0 to `most`; higher amounts count as `most`.

    `size` is the capacity in each market.
    """
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
                stay = stays.by_market[market]
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


@compiled
def _add(total: FloatArray, top: int, part: FloatArray, part_top: int, stay: float, spare: FloatArray) -> int:
    """Add a part's surviving amount (0 after a shock) to the amount with distribution `total`; return the largest sum."""
    most = len(total) - 1
    spare[:] = 0.0
    for one in range(top + 1):
        if total[one] == 0.0:
            continue
        spare[one] += total[one] * (1.0 - stay)
        for other in range(part_top + 1):
            spare[min(one + other, most)] += total[one] * part[other] * stay
    for amount in range(most + 1):  # a slice assignment takes seconds to compile
        total[amount] = spare[amount]
    return min(top + part_top, most)


@compiled
def _figures(sizes: IntArray, stays: Stays, most: int) -> FloatArray:
    """Return, for each vector of capacities, the probability that `most` survives, and the expected surviving share of `most`."""
    figures = np.empty((len(sizes), 2))
    for row in range(len(sizes)):
        lasts = surviving_capacity(sizes[row], stays, most)
        expected = 0.0
        for amount in range(1, most + 1):
            expected += amount * lasts[amount]
        figures[row, 0], figures[row, 1] = lasts[most], expected / most
    return figures


def survival_figures(
    instance: BiddingInstance, survival: SurvivalConstraint, table: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Return the survival probability and the expected surviving share of each footprint.

    `table` has shape (footprints, bids). The share is relative to the required capacity, and at most 1.
    """
    sizes = np.zeros((len(table), len(instance.markets)), dtype=np.int64)
    np.add.at(sizes.T, instance.bids.market, (survival.capacity * table).T)
    figures = _figures(sizes, _stays(survival), survival.min_capacity)
    return figures[:, 0], figures[:, 1]


def shortfall(instance: BiddingInstance, table: IntArray) -> FloatArray:
    """Return the footprints' shortfalls, shape (footprints,): 0 for footprints that satisfy the survival constraint.

    Any other shortfall is the missing probability plus the expected missing share; additional instances lower it.
    """
    survival = instance.survival
    if survival is None:
        return np.zeros(len(table))
    probability, share = survival_figures(instance, survival, table)
    lack = survival.probability - probability
    return np.where(lack <= SURVIVAL_TOL, 0.0, lack + 1.0 - share)


RESOLUTION = 128
"""Covers count capacities in integral units of about the required capacity divided by RESOLUTION."""

INTEGRAL_TOL = 1e-6

KNOWN = 0.02
"""An existing row is used if the counts violate it by more than this share of the required capacity."""

VIOLATED = 1e-4
"""A new row is added if the counts violate it by more than this share of the required capacity."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """Rows ``gain @ counts >= need``; `gain` has shape (rows, bids), and `need` shape (rows,)."""

    gain: FloatArray
    need: FloatArray


@compiled
def _hard_hours(weight: IntArray, stays: Stays, short_of: int) -> FloatArray:
    """Return the probability that an hour is hard and the market survives, for each market; then that of a hard hour.

    In a hard hour, less than `short_of` of the capacities `weight` survives.
    """
    probability = np.zeros(len(weight) + 1)
    by_market, by_zone, by_region = stays.by_market.copy(), stays.by_zone.copy(), stays.by_region.copy()
    sure = Stays(stays.zone, stays.region, by_market, by_zone, by_region)
    for zone in range(len(by_zone)):
        region = stays.region[zone]
        by_zone[zone] = by_region[region] = 1.0
        idle = -1.0  # the same probability for all markets of the zone without capacity; negative: not computed yet
        for market in range(len(weight)):
            if stays.zone[market] != zone:
                continue
            if weight[market] > 0 or idle < 0:
                by_market[market] = 1.0
                hard = 1.0 - surviving_capacity(weight, sure, short_of)[short_of]
                by_market[market] = stays.by_market[market]
                if weight[market] == 0:
                    idle = hard
            else:
                hard = idle
            probability[market] = hard * stays.by_market[market] * stays.by_zone[zone] * stays.by_region[region]
        by_zone[zone], by_region[region] = stays.by_zone[zone], stays.by_region[region]
    probability[-1] = 1.0 - surviving_capacity(weight, stays, short_of)[short_of]
    return probability


class CoverPool:
    """The cover rows of an instance's survival constraint that were added so far; none without a constraint.

    Parameters
    ----------
    instance
        The instance.
    """

    def __init__(self, instance: BiddingInstance) -> None:
        self.instance, self.survival = instance, instance.survival
        self.covers: list[Cover] = []
        self.rows = Rows(gain=np.zeros((0, instance.num_bids)), need=np.zeros(0))
        self._stays = None if self.survival is None else stays_of(self.survival.shocks)

    def keeps(self, table: IntArray) -> BoolArray:
        """Return which of many footprints satisfy the constraint, shape (footprints,)."""
        if self.survival is None:
            return np.ones(len(table), dtype=bool)
        return np.asarray(
            survival_figures(self.instance, self.survival, table)[0] >= self.survival.probability - SURVIVAL_TOL
        )

    def rows_of(self, numbers: list[int]) -> Rows:
        """Return the rows with these numbers."""
        return Rows(gain=self.rows.gain[numbers], need=self.rows.need[numbers])

    def missed(self, counts: FloatArray) -> int | None:
        """Return the number of a row that the counts, integral or not, violate: the worst known row, or a new row.

        The new row comes from the hours that are hard for these counts. None if the counts satisfy that row as well.
        """
        if self.survival is None or self._stays is None:
            return None
        lack = self.rows.need - self.rows.gain @ counts
        if lack.max(initial=0.0) > KNOWN * self.survival.min_capacity:
            return int(lack.argmax())
        cover, gain, need = _row(self.instance, self.survival, self._stays, counts)
        if need <= 0 or gain @ counts >= need - VIOLATED * self.survival.min_capacity:
            return None
        self.covers.append(cover)
        self.rows = Rows(gain=np.vstack([self.rows.gain, gain]), need=np.append(self.rows.need, need))
        return len(self.covers) - 1

    def min_counts(self, low: IntArray, high: IntArray) -> list[tuple[int, int]]:
        """Return the bids whose lower bound in a box can be raised, and for each the least count that can be feasible."""
        free = np.flatnonzero(low < high)
        if self.survival is None or not len(free):
            return []
        table = np.repeat(high[None], len(free), axis=0)
        table[np.arange(len(free)), free] = low[free]
        min_counts = []
        for bid in free[~self.keeps(table)].tolist():
            tried = np.repeat(high[None], high[bid] - low[bid], axis=0)
            tried[:, bid] = np.arange(low[bid] + 1, high[bid] + 1)
            min_counts.append((bid, int(low[bid]) + 1 + int(self.keeps(tried).argmax())))
        return min_counts

    def choose(self, counts: FloatArray, low: IntArray, high: IntArray) -> tuple[int, int] | None:
        """Return a bid to split and its maximum in the low child: the split that lowers that child's survival probability most.

        Bids with fractional counts come first. None if all counts are integral and feasible, or no count can grow.
        """
        if self.survival is None:
            return None
        rounded = np.clip(np.floor(counts + INTEGRAL_TOL), low, high).astype(np.int64)
        is_broken = np.abs(counts - np.rint(counts)) > INTEGRAL_TOL
        if not is_broken.any() and self.keeps(rounded[None])[0]:
            return None
        free = np.flatnonzero((rounded < high) & (is_broken | ~is_broken.any()))
        if not len(free):
            return None
        table = np.repeat(high[None], len(free), axis=0)
        table[np.arange(len(free)), free] = rounded[free]
        bid = int(free[int(survival_figures(self.instance, self.survival, table)[0].argmin())])
        return bid, int(rounded[bid])


def _row(
    instance: BiddingInstance, survival: SurvivalConstraint, stays: Stays, counts: FloatArray
) -> tuple[Cover, FloatArray, float]:
    """Return the cover of the hours that are hard for the counts, and its row: gain and need."""
    unit = max(1.0, RESOLUTION // survival.min_capacity)
    unit = unit if survival.min_capacity <= RESOLUTION else RESOLUTION / survival.min_capacity
    capacity = np.bincount(instance.bids.market, survival.capacity * counts, len(instance.markets))
    cover = Cover(weight=np.rint(unit * capacity).astype(np.int64), short_of=round(unit * survival.min_capacity))
    hard = _hard_hours(cover.weight, stays, cover.short_of)
    gain = survival.capacity * (hard[:-1] + 1e-12)[instance.bids.market]
    need = survival.min_capacity * (float(hard[-1]) - (1.0 - survival.probability) - 2 * SURVIVAL_TOL)
    return cover, gain, need

"""A footprint of bids, and proofs of lower bounds on the cost per work.

A proof states a ratio `q` and a tree whose leaves cover all footprints. Each leaf has multipliers that bound
``cost - q work`` from below over its footprints. If the bounds of all leaves are at least 0, no footprint has a
ratio below `q`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from optim.core.arrays import ComparesByValue, FloatArray, IntArray, freeze_arrays, own_whole_rows, whole_numbers
from optim.core.frames import Columns
from optim.models.bidding.instance import BiddingInstance
from optim.models.bidding.market.prices import MICRO


@dataclass(frozen=True, kw_only=True, eq=False)
class FootprintPlan(ComparesByValue):
    """The decision of a bidding instance.

    Parameters
    ----------
    counts
        Shape (bids,): number of instances taken at each bid.

    Examples
    --------
    >>> import optim
    >>> optim.FootprintPlan.of([0, 2, 1]).counts.sum()
    np.int64(3)
    """

    counts: IntArray

    def __post_init__(self) -> None:
        own_whole_rows(self, {"counts": None}, "a footprint's")

    @classmethod
    def of(cls, counts: Sequence[float] | IntArray | FloatArray) -> "FootprintPlan":
        """Return a plan with a copy of the counts; numbers within 1e-6 of an integer are rounded.

        Raises
        ------
        InvalidProblemError
            If a count is not an integer.
        """
        return cls(counts=whole_numbers(counts, "a footprint's counts"))

    def columns(self, instance: BiddingInstance | None = None) -> Columns:
        """Return the taken bids as columns bid and count; given the instance, also market and delta_usd."""
        bids = np.flatnonzero(self.counts)
        columns: Columns = {"bid": bids, "count": self.counts[bids]}
        if instance is None:
            return columns
        markets = [instance.markets[m] for m in instance.bids.market[bids].tolist()]
        return {**columns, "market": markets, "delta_usd": instance.bids.delta_micro[bids] / MICRO}

    def picture(self) -> str:
        """Return a chart as an ``<svg>`` element: one row per taken bid, one cell per instance."""
        from optim.core.text import Cell, grid

        bids = np.flatnonzero(self.counts).tolist()
        counts = self.counts[bids].tolist()
        cells = [
            Cell(row, k, 0.8, f"bid {bid}: instances {count}")
            for row, (bid, count) in enumerate(zip(bids, counts, strict=True))
            for k in range(count)
        ]
        return grid([f"bid {bid}" for bid in bids], cells, "instances", f"Footprint of {sum(counts)} instances")


CHANGE = -1
"""Code in place of a bid's number for the split by whether any new instance is taken."""

THETA, RATE = -2, -3
"""Codes in place of a bid's number for splits by theta and by the sum of all rates.

Theta is minus the logarithm of the probability of no eviction. Splits by theta or by the sum of rates occur only in
the one-hour form with losses that all instances share."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Multipliers(ComparesByValue):
    """Multipliers that bound ``cost - q work`` from below over a box of counts; the bound is valid for any values.

    A cell is a slot of a scenario, in order of scenarios and then slots; the one-hour form has a single cell.

    Parameters
    ----------
    point
        Shape (cells,): rate whose tangent replaces the scalability curve.
    eviction
        Shape (cells,): share, 0 to 1, of the loss by an eviction that the bound counts in cells in which the box leaves
        open whether an eviction happens.
    attribution_cell, attribution_bid, attribution
        Cell, bid and share of each entry, shape (entries,) each: the share of a cell's loss by evictions that is charged
        to the bid if it is taken. The shares of a cell add up to at most 1.
    cap
        Shape (caps,): prices of the joint limits, at least 0.
    work
        Price of the instance's `min_work`, at least 0.
    cover
        Shape (n,): prices of the proof's first n covers, at least 0; the remaining covers have price 0.
    lost_by_rate, lost_by_theta
        Slopes, at least 0, of a plane below the rate lost by evictions, ``lambda (1 - exp(-theta)) K``. K is
        the sum of all rates, theta is described at `THETA`. The plane is lowered until it lies below the loss at the
        corners of the box's ranges. It then lies below the loss in the entire box, because the loss is linear in K
        and concave in theta.
    theta, rate
        Prices of theta and of K. A positive price applies to the upper limit in the box, a negative price to the lower limit.
    """

    point: FloatArray
    eviction: FloatArray
    attribution_cell: IntArray
    attribution_bid: IntArray
    attribution: FloatArray
    cap: FloatArray
    work: float = 0.0
    cover: FloatArray = field(default_factory=lambda: np.zeros(0))
    lost_by_rate: float = 0.0
    lost_by_theta: float = 0.0
    theta: float = 0.0
    rate: float = 0.0

    def __post_init__(self) -> None:
        freeze_arrays(self)


@dataclass(frozen=True, kw_only=True, eq=False)
class Cover(ComparesByValue):
    """A set of hours, called hard, that implies a linear row for all footprints that satisfy the survival constraint.

    Suppose that each market has the capacity `weight`. An hour is hard if shocks leave less than `short_of` of the total.
    With probability at least ``P(hard) - (1 - probability)`` an hour is hard and the footprint's surviving
    capacity is still sufficient. The expected capacity that survives hard hours is therefore at least
    `min_capacity` times this probability: docs/mathematics/bidding.md, (B.17). This row is valid for all values of
    `weight` and `short_of`.

    Parameters
    ----------
    weight
        Shape (markets,): capacities, in any unit, at least 0.
    short_of
        An hour is hard if a smaller sum of capacities survives.
    """

    weight: IntArray
    short_of: int

    def __post_init__(self) -> None:
        freeze_arrays(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeNode:
    """A node of the tree.

    Parameters
    ----------
    bid
        The bid that splits the node: the low child takes at most `value` instances, the high child more. `CHANGE` stands
        for the split by change: the low child takes no new instance. `THETA` and `RATE` stand for splits by these
        sums: at most `value` in the low child, at least `value` in the high child. None at a leaf.
    value
        Threshold of the split: an integer number of instances, or any number for a sum.
    low, high
        Numbers of the children.
    multipliers
        At a leaf the index of its entry in `RatioProof.multipliers`.
    """

    bid: int | None = None
    value: float = 0
    low: int = 0
    high: int = 0
    multipliers: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class RatioProof(ComparesByValue):
    """A ratio, and a tree that bounds ``cost - ratio * work``; node 0 is its root.

    The proven bound is ``ratio + min(0, smallest bound of a leaf) / W``. Footprints with less than W work cost more
    than `ratio` per unit. W is the larger of the instance's `min_work` and ``c / ratio``. Here c is `fixed_usd` or, if
    `fixed_rate` is 0, `fixed_usd` plus the cost of the cheapest working instance. A box of a single footprint is
    evaluated exactly.

    Parameters
    ----------
    ratio
        Dollars per unit of work.
    nodes
        The tree.
    multipliers
        Multipliers to which leaves refer by index.
    covers
        Covers; their rows follow from the survival constraint.
    """

    ratio: float
    nodes: tuple[TreeNode, ...]
    multipliers: tuple[Multipliers, ...]
    covers: tuple[Cover, ...] = ()

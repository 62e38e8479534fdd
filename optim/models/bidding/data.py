"""The data of a bidding decision: bids, the outlook of the next hour, the scalability curve.

Notation (Harlap et al., EuroSys 2017): candidate ``j`` is a market with a bid delta, and has ``k_j`` instances.

- beta: probability of an eviction within the hour
- omega: expected usable hours
- nu: work rate
- phi: scalability
- lambda: hours that all instances lose by an eviction
- sigma: hours that all instances lose by a change of the footprint
"""

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from optim.core.arrays import BoolArray, ComparesByValue, FloatArray, IntArray, derived, freeze_arrays
from optim.core.errors import InvalidProblemError
from optim.models.bidding.market.lifetimes import CommonShocks
from optim.models.bidding.market.prices import MICRO


class CurveKind(StrEnum):
    """Form of a scalability curve."""

    LINEAR = "linear"
    SATURATING = "saturating"
    USL = "usl"
    POINTS = "points"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalability:
    """Useful rate `G` of machines whose rates add up to `V`: concave, rising, 0 at 0.

    ``linear``: ``G = V``; ``saturating``: ``G = V / (base + serial V)``; ``usl``: ``G = V / (1 + serial (V - 1) +
    crosstalk V (V - 1))`` up to its peak and constant beyond; ``points``: linear between points (0, 0), (V, G), ...,
    constant beyond the last.

    Parameters
    ----------
    kind
        Form.
    serial, base, crosstalk
        Coefficients of the form. Amdahl's law with serial share a is ``saturating`` with serial a and base 1 - a.
    points
        Points in order of V, without the origin.
    """

    kind: CurveKind = CurveKind.LINEAR
    serial: float = 0.0
    base: float = 1.0
    crosstalk: float = 0.0
    points: tuple[tuple[float, float], ...] = ()

    @classmethod
    def amdahl(cls, serial: float) -> "Scalability":
        """Return Amdahl's law: ``phi(V) = 1 / (1 + serial (V - 1))``."""
        return cls(kind=CurveKind.SATURATING, serial=serial, base=1.0 - serial)

    @property
    def peak(self) -> float:
        """Rate V from which on G is constant; infinity if there is none."""
        if self.kind is CurveKind.USL and self.crosstalk > 0:
            return float(np.sqrt((1.0 - self.serial) / self.crosstalk))
        if self.kind is CurveKind.POINTS:
            return self.points[-1][0]
        return float("inf")

    def value(self, rate: FloatArray) -> FloatArray:
        """Return G at each rate of at least 0."""
        if self.kind is CurveKind.LINEAR:
            return np.asarray(rate, dtype=np.float64)
        if self.kind is CurveKind.POINTS:
            return np.interp(rate, [0.0, *(v for v, _ in self.points)], [0.0, *(g for _, g in self.points)])
        v = np.minimum(rate, self.peak)
        if self.kind is CurveKind.SATURATING:
            return np.asarray(v / (self.base + self.serial * v))
        return np.asarray(v / (1.0 + self.serial * (v - 1.0) + self.crosstalk * v * (v - 1.0)))

    def slope(self, rate: FloatArray) -> FloatArray:
        """Return a supergradient of G at each rate: the slope to the right."""
        v = np.asarray(rate, dtype=np.float64)
        if self.kind is CurveKind.LINEAR:
            return np.ones_like(v)
        if self.kind is CurveKind.POINTS:
            knots = np.array([0.0, *(x for x, _ in self.points)])
            heights = np.array([0.0, *(y for _, y in self.points)])
            steps = np.append(np.diff(heights) / np.diff(knots), 0.0)
            return np.asarray(steps[np.searchsorted(knots, v, side="right") - 1])
        if self.kind is CurveKind.SATURATING:
            return np.asarray(self.base / (self.base + self.serial * v) ** 2)
        below = 1.0 + self.serial * (v - 1.0) + self.crosstalk * v * (v - 1.0)
        return np.where(v < self.peak, (1.0 - self.serial - self.crosstalk * v * v) / below**2, 0.0)


class EvictionTerm(StrEnum):
    """Which instances lose lambda when a bid is outbid (the bid's instances, or all), and how evictions are correlated."""

    PER_BID = "per-bid"
    ANY_BID = "any-bid"
    PER_MARKET = "per-market"


@dataclass(frozen=True, kw_only=True, eq=False)
class Bids(ComparesByValue):
    """Candidate bids, one array per field, sorted by market and within a market by delta.

    Parameters
    ----------
    market
        Shape (bids,): index of the market, ascending.
    delta_micro
        Shape (bids,): bid minus present price in micro-dollars.
    rate
        Shape (bids,): nu, work of one instance in an hour.
    max_count
        Shape (bids,): maximum number of instances.
    is_new
        Shape (bids,): whether instances taken at the bid change the footprint.
    """

    market: IntArray
    delta_micro: IntArray
    rate: FloatArray
    max_count: IntArray
    is_new: BoolArray

    def __post_init__(self) -> None:
        freeze_arrays(self)

    def __len__(self) -> int:
        return len(self.market)


@dataclass(frozen=True, kw_only=True, eq=False)
class HourOutlook(ComparesByValue):
    """The next hour in expectation: cost and usable time of each bid.

    Parameters
    ----------
    price_usd
        Shape (bids,): dollars per hour of an instance that survives its hour.
    evicted
        Shape (bids,): beta, the probability of an eviction within the hour.
    usable_h
        Shape (bids,): omega, the expected usable hours.
    hours
        Shape (bids,): hours to the end of the billing hour; the charge is prorated to them.
    term
        Rule for the instances that lose lambda at an eviction.
    """

    price_usd: FloatArray
    evicted: FloatArray
    usable_h: FloatArray
    hours: FloatArray
    term: EvictionTerm = EvictionTerm.PER_MARKET

    def __post_init__(self) -> None:
        freeze_arrays(self)


@dataclass(frozen=True, kw_only=True, eq=False)
class ScenarioOutlook(ComparesByValue):
    """The next hour as windows of history, in slots: cost and eviction time of each bid.

    Parameters
    ----------
    weight
        Shape (scenarios,): probabilities; they add up to 1.
    slot_s, num_slots
        Length and number of the slots.
    ready_s
        Seconds of each window before instances begin to work.
    charge_micro
        Shape (bids, scenarios): micro-dollars per instance, 0 where the hour is free.
    evicted_s
        Shape (bids, scenarios): seconds until the bid is outbid, -1 if it is not outbid.
    """

    weight: FloatArray
    slot_s: int
    num_slots: int
    ready_s: int
    charge_micro: IntArray
    evicted_s: IntArray

    def __post_init__(self) -> None:
        freeze_arrays(self)

    @property
    def num_scenarios(self) -> int:
        """Number of windows."""
        return len(self.weight)

    @derived
    def alive(self) -> FloatArray:
        """Share of each slot in which an instance works, shape (bids, scenarios, slots)."""
        begin = self.slot_s * np.arange(self.num_slots, dtype=np.float64)
        last = np.where(self.evicted_s < 0, self.slot_s * self.num_slots, self.evicted_s)[:, :, None]
        work = np.minimum(last, begin + self.slot_s) - np.maximum(self.ready_s, begin)
        return np.asarray(np.clip(work, 0, self.slot_s) / self.slot_s)

    @derived
    def eviction_mask(self) -> BoolArray:
        """Whether a bid is outbid in a slot, shape (bids, scenarios, slots)."""
        slot = np.where(self.evicted_s < 0, -1, self.evicted_s // self.slot_s)
        return np.asarray(slot[:, :, None] == np.arange(self.num_slots))


Outlook = HourOutlook | ScenarioOutlook


@dataclass(frozen=True, kw_only=True, eq=False)
class Caps(ComparesByValue):
    """Joint limits on footprints: ``sum_j weight[r, j] k_j <= limit[r]``.

    Parameters
    ----------
    names
        Names of the limits.
    weight
        Shape (caps, bids): weight of one instance of each bid, at least 0.
    limit
        Shape (caps,): largest weighted sum of the counts k_j.
    """

    names: tuple[str, ...]
    weight: FloatArray
    limit: FloatArray

    def __post_init__(self) -> None:
        freeze_arrays(self)


@dataclass(frozen=True, kw_only=True, eq=False)
class BiddingData(ComparesByValue):
    """The fields of a `BiddingInstance` (documented and checked there) and the arrays derived from them."""

    name: str
    markets: tuple[str, ...]
    bids: Bids
    outlook: Outlook
    caps: Caps
    one_bid_per_market: bool = False
    fixed_usd: float = 0.0
    fixed_rate: float = 0.0
    scalability: Scalability = field(default_factory=Scalability)
    eviction_loss_h: float = 0.0
    change_loss_h: float = 0.0
    min_work: float = 0.0
    survival: "SurvivalConstraint | None" = None

    @property
    def num_bids(self) -> int:
        """Number of candidates."""
        return len(self.bids)

    @derived
    def unit_cost(self) -> FloatArray:
        """Expected cost of one instance in the hour in dollars, shape (bids,)."""
        outlook = self.outlook
        if isinstance(outlook, HourOutlook):
            return (1.0 - outlook.evicted) * outlook.price_usd * outlook.hours
        return np.asarray(outlook.charge_micro @ outlook.weight / MICRO)


SURVIVAL_TOL = 1e-9
"""Tolerated shortfall of a probability, for rounding."""

MAX_CAPACITY = 4096
"""Largest capacity of an instance, and largest required capacity: probabilities are sums over all amounts up to it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SurvivalConstraint(ComparesByValue):
    """Constraint ``P(capacity that lasts the hour >= min_capacity) >= probability``.

    The instances of a market are lost together at any bid, by a shock to the market, its zone or its region:
    docs/mathematics/bidding.md, (B.14) and (B.17).

    Parameters
    ----------
    shocks
        Expected shocks within the hour; the kinds of machines in it are the instance's markets.
    capacity
        Shape (bids,): integer capacity (for example GPUs) of one instance.
    min_capacity
        Minimum surviving capacity, at least 1.
    probability
        Required probability, above 0 and at most 1.

    Raises
    ------
    InvalidProblemError
        If a number is out of its range.
    """

    shocks: CommonShocks
    capacity: IntArray
    min_capacity: int
    probability: float

    def __post_init__(self) -> None:
        freeze_arrays(self)
        if not 1 <= self.min_capacity <= MAX_CAPACITY:
            raise InvalidProblemError(
                f"survival.min_capacity must be between 1 and {MAX_CAPACITY}, got {self.min_capacity}"
            )
        if not 0 < self.probability <= 1:
            raise InvalidProblemError(f"survival.probability must be above 0 and at most 1, got {self.probability}")
        for j in np.flatnonzero((self.capacity < 0) | (self.capacity > MAX_CAPACITY))[:1]:
            raise InvalidProblemError(
                f"survival.capacity[{j}] must be between 0 and {MAX_CAPACITY}, got {self.capacity[j]}"
            )

    def capacity_by_market(self, market: IntArray, counts: IntArray) -> FloatArray:
        """Return the capacity of a footprint in each market, shape (markets,)."""
        return np.bincount(market, self.capacity * counts, len(self.shocks.zone)).astype(np.float64)


def survival_probability(instance: BiddingData, counts: IntArray) -> float:
    """Return the exact probability that a footprint keeps `min_capacity`; 1 without a survival constraint."""
    survival = instance.survival
    if survival is None:
        return 1.0
    return survival.shocks.probability(survival.capacity_by_market(instance.bids.market, counts), survival.min_capacity)

"""The data of a bidding decision: bids, the next hour, a curve of scalability, and what makes them valid.

Notation (Harlap et al., EuroSys 2017): candidate ``j`` = (market, bid delta) with ``k_j`` instances; beta the
probability of an eviction within the hour, omega the expected usable hours, nu the work rate, phi the scalability,
lambda and sigma the hours that everybody loses by an eviction and by a change of the footprint.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from optim.core.arrays import BoolArray, ComparesByValue, FloatArray, IntArray, derived, freeze_arrays
from optim.core.errors import InvalidProblemError
from optim.core.frames import Rows, frame_of
from optim.models.bidding.market.lifetimes import CommonShocks

if TYPE_CHECKING:
    from pandas import DataFrame


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
        Coefficients. Amdahl's law with serial share a is ``saturating`` with serial a and base 1 - a.
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
        """V from which on more machines are of no use, infinity where they always are."""
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


HOUR_S = 3600

MICRO = 1_000_000


class EvictionTerm(StrEnum):
    """Who loses lambda when bids are outbid: their own instances, or everybody; and how evictions go together."""

    OWN = "own"
    ANY = "any"
    MARKET = "market"


@dataclass(frozen=True, kw_only=True, eq=False)
class Bids(ComparesByValue):
    """Candidate bids, one array a field, by market and within it by delta.

    Parameters
    ----------
    market
        Shape (bids,): index of the market, ascending.
    delta_micro
        Shape (bids,): bid minus present price in micro-dollars.
    rate
        Shape (bids,): nu, work of one instance in an hour.
    max_count
        Shape (bids,): most instances.
    is_new
        Shape (bids,): whether taking any of them changes the footprint.
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
        Shape (bids,): charge for an instance that survives its hour.
    evicted
        Shape (bids,): beta.
    usable_h
        Shape (bids,): omega.
    hours
        Shape (bids,): time to the end of the billing hour; the charge is prorated by it.
    term
        Who loses lambda.
    """

    price_usd: FloatArray
    evicted: FloatArray
    usable_h: FloatArray
    hours: FloatArray
    term: EvictionTerm = EvictionTerm.MARKET

    def __post_init__(self) -> None:
        freeze_arrays(self)


@dataclass(frozen=True, kw_only=True, eq=False)
class ScenarioOutlook(ComparesByValue):
    """The next hour as windows of history, in slots: what each bid would have cost, and when it was outbid.

    Parameters
    ----------
    weight
        Shape (scenarios,): probabilities; they add up to 1.
    slot_s, num_slots
        Length and number of the slots.
    ready_s
        Seconds until instances work.
    charge_micro
        Shape (bids, scenarios): micro-dollars an instance, 0 where the hour is free.
    evicted_s
        Shape (bids, scenarios): seconds until the bid is outbid, -1 where it lasts.
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
    def marks(self) -> BoolArray:
        """Whether a bid is outbid in a slot, shape (bids, scenarios, slots)."""
        slot = np.where(self.evicted_s < 0, -1, self.evicted_s // self.slot_s)
        return np.asarray(slot[:, :, None] == np.arange(self.num_slots))


Outlook = HourOutlook | ScenarioOutlook


@dataclass(frozen=True, kw_only=True, eq=False)
class Caps(ComparesByValue):
    """Joint limits: ``sum_j weight[r, j] k_j <= limit[r]``.

    Parameters
    ----------
    names
        One a limit.
    weight
        Shape (caps, bids), at least 0.
    limit
        Shape (caps,).
    """

    names: tuple[str, ...]
    weight: FloatArray
    limit: FloatArray

    def __post_init__(self) -> None:
        freeze_arrays(self)


@dataclass(frozen=True, kw_only=True, eq=False)
class BiddingInstance(ComparesByValue):
    """Choose how many instances to take at each bid, so that expected cost over expected work is lowest.

    Parameters
    ----------
    name
        Name.
    markets
        Names of the markets.
    bids, outlook, caps
        What may be bid, what is known of the hour, and joint limits.
    one_bid_a_market
        Whether each market may be bid on with one delta only.
    fixed_usd, fixed_rate
        Cost of the hour, and rate, of the machines that are there anyway.
    scalability
        Curve G.
    eviction_loss_h, change_loss_h
        lambda and sigma in hours.
    min_work
        Least work that counts as an answer.
    lasting
        Capacity that must last the hour with a probability; None where nothing is asked.

    Raises
    ------
    InvalidProblemError
        If a field contradicts the definition; the text names it.
    """

    name: str
    markets: tuple[str, ...]
    bids: Bids
    outlook: Outlook
    caps: Caps
    one_bid_a_market: bool = False
    fixed_usd: float = 0.0
    fixed_rate: float = 0.0
    scalability: Scalability = field(default_factory=Scalability)
    eviction_loss_h: float = 0.0
    change_loss_h: float = 0.0
    min_work: float = 0.0
    lasting: "LastingCapacity | None" = None

    def __post_init__(self) -> None:

        validate(self)

    @classmethod
    def from_bids(
        cls,
        bids: Rows,
        *,
        caps: Mapping[str, float] | Rows = (),
        markets: Sequence[str] | None = None,
        name: str = "bids",
        **fields: Any,
    ) -> "BiddingInstance":
        """Build an instance from plain Python, or from a pandas frame with a column a field.

        Parameters
        ----------
        bids
            A mapping a bid (or a frame): ``market``, ``max_count``, ``delta_usd`` above the present price (0), ``rate`` of
            one instance (1), and of the hour ``price_usd``, ``evicted`` (probability), ``usable_h`` and ``hours`` (1); or with
            `scenarios` ``charges_usd`` and ``evicted_s``, one entry each.
        caps
            Limits by name on all instances together, or mappings with ``name``, ``limit`` and ``weights`` by bid.
        markets
            Names in order; as they come in `bids` unless given.
        name, fields
            As in the instance, or in a file of the schema ``optim/bidding/1``: ``eviction_term``, ``fixed_usd``,
            ``fixed_rate``, ``scalability``, ``eviction_loss_h``, ``change_loss_h``, ``min_work``, ``one_bid_a_market``,
            ``scenarios``, ``lasting``.

        Raises
        ------
        InvalidProblemError
            If a field is unknown, missing, or contradicts the definitions; the text names it.

        Examples
        --------
        >>> bids = [
        ...     {"market": "a", "max_count": 4, "price_usd": 0.1, "evicted": 0.2, "usable_h": 0.9},
        ...     {"market": "b", "max_count": 4, "price_usd": 0.3, "evicted": 0.0, "usable_h": 1.0},
        ... ]
        >>> BiddingInstance.from_bids(bids, caps={"machines": 6}).unit_cost.tolist()
        [0.08000000000000002, 0.3]
        """
        from optim.models.bidding.codec import bidding_document, instance_from_document

        return instance_from_document(bidding_document(bids, caps=caps, markets=markets, name=name, **fields))

    def to_frame(self) -> "DataFrame":
        """Return the bids as a pandas frame, a row a bid, a column a field; `from_bids` reads it.

        Raises
        ------
        MissingDependencyError
            If pandas isn't installed.
        """
        from optim.models.bidding.codec import bid_columns

        return frame_of(bid_columns(self))

    @property
    def num_bids(self) -> int:
        """Number of candidates."""
        return len(self.bids)

    @derived
    def unit_cost(self) -> FloatArray:
        """Expected dollars an instance costs in the hour, shape (bids,)."""
        outlook = self.outlook
        if isinstance(outlook, HourOutlook):
            return (1.0 - outlook.evicted) * outlook.price_usd * outlook.hours
        return np.asarray(outlook.charge_micro @ outlook.weight / MICRO)


LASTING_TOL = 1e-9

"""Probabilities may fall short by this through rounding alone."""

MAX_CAPACITY = 4096

"""Largest capacity, of one instance or asked for: probabilities are sums over every amount up to it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LastingCapacity(ComparesByValue):
    """``P(capacity that lasts the hour >= least) >= probability``: docs/mathematics/bidding.md, (B.14) and (B.17).

    A market's instances are lost together, whatever was bid, by a cause of their own, of their zone, or of their region.

    Parameters
    ----------
    shocks
        Expected shocks within the hour; its kinds are the instance's markets.
    capacity
        Shape (bids,): whole capacity (GPUs, say) of one instance.
    least
        Capacity that must last, at least 1.
    probability
        How surely, above 0 and at most 1.

    Raises
    ------
    InvalidProblemError
        If a number is out of its range.
    """

    shocks: CommonShocks
    capacity: IntArray
    least: int
    probability: float

    def __post_init__(self) -> None:
        freeze_arrays(self)
        if not 1 <= self.least <= MAX_CAPACITY:
            raise InvalidProblemError(f"lasting.least must be between 1 and {MAX_CAPACITY}, got {self.least}")
        if not 0 < self.probability <= 1:
            raise InvalidProblemError(f"lasting.probability must be above 0 and at most 1, got {self.probability}")
        for j in np.flatnonzero((self.capacity < 0) | (self.capacity > MAX_CAPACITY))[:1]:
            raise InvalidProblemError(
                f"lasting.capacity[{j}] must be between 0 and {MAX_CAPACITY}, got {self.capacity[j]}"
            )

    def held(self, market: IntArray, counts: IntArray) -> FloatArray:
        """Return what a footprint holds of each market, shape (markets,)."""
        return np.bincount(market, self.capacity * counts, len(self.shocks.zone)).astype(np.float64)


def kept_probability(instance: BiddingInstance, counts: IntArray) -> float:
    """Return the exact probability that a footprint keeps what the instance asks for; 1 where it asks for nothing."""
    lasting = instance.lasting
    if lasting is None:
        return 1.0
    return lasting.shocks.probability(lasting.held(instance.bids.market, counts), lasting.least)


MAX_COUNT = 10**6

"""Largest number of instances of a bid."""

LARGEST = 1e14

"""Largest number of an instance: sums over instances, and products of two numbers, stay within what proofs hold (1e100)."""

WEIGHT_TOL = 1e-9

"""Probabilities add up to 1 to this."""


def validate(instance: BiddingInstance) -> None:
    """Raise if the instance contradicts its own definition.

    Raises
    ------
    InvalidProblemError
        With the path of the first bad field, its value, and what to do.
    """
    for name in ("fixed_usd", "fixed_rate", "eviction_loss_h", "change_loss_h", "min_work"):
        value = getattr(instance, name)
        if not 0 <= value <= LARGEST:
            raise InvalidProblemError(f"{name} must be between 0 and {LARGEST:g}, got {value}")
    if len(set(instance.markets)) != len(instance.markets):
        raise InvalidProblemError("markets must have different names; rename one of those that come twice")
    _validate_bids(instance)
    _validate_curve(instance.scalability)
    _validate_caps(instance)
    _validate_outlook(instance.outlook, instance)
    _validate_lasting(instance)


def _validate_bids(instance: BiddingInstance) -> None:
    bids, size = instance.bids, len(instance.bids)
    for name in ("delta_micro", "rate", "max_count", "is_new"):
        if getattr(bids, name).shape != (size,):
            raise InvalidProblemError(f"bids.{name} must hold one value a bid, got shape {getattr(bids, name).shape}")
    if size and (bids.market.min() < 0 or bids.market.max() >= len(instance.markets)):
        raise InvalidProblemError(
            f"bids[].market must be between 0 and {len(instance.markets) - 1}, got {bids.market.tolist()}"
        )
    order = np.lexsort((bids.delta_micro, bids.market))
    if not np.array_equal(order, np.arange(size)):
        raise InvalidProblemError("bids must be listed by market, and within a market by delta; sort them")
    for j in np.flatnonzero(~((bids.rate >= 0) & (bids.rate <= LARGEST)))[:1]:
        raise InvalidProblemError(f"bids[{j}].rate must be between 0 and {LARGEST:g}, got {bids.rate[j]}")
    for j in np.flatnonzero((bids.max_count < 0) | (bids.max_count > MAX_COUNT))[:1]:
        raise InvalidProblemError(f"bids[{j}].max_count must be between 0 and {MAX_COUNT}, got {bids.max_count[j]}")


def _validate_curve(curve: Scalability) -> None:
    if not 0 <= curve.serial < 1:
        raise InvalidProblemError(f"scalability.serial must be in [0, 1), got {curve.serial}")
    if not 0 < curve.base <= LARGEST:
        raise InvalidProblemError(f"scalability.base must be positive and at most {LARGEST:g}, got {curve.base}")
    if curve.base < 1 / LARGEST:
        raise InvalidProblemError(f"scalability.base must be at least {1 / LARGEST:g}, got {curve.base}")
    if not 0 <= curve.crosstalk <= 1 - curve.serial:
        raise InvalidProblemError(
            f"scalability.crosstalk must be between 0 and {1 - curve.serial:g} (1 - serial), got {curve.crosstalk}"
        )
    if curve.kind is CurveKind.USL:
        # Between 0 and the peak the law is concave if it is at 0, as its second derivative rises from there.
        bend = -2.0 * (curve.serial - curve.crosstalk) * (1.0 - curve.serial)
        if bend > 0:
            raise InvalidProblemError(
                f"scalability.crosstalk must be at most serial {curve.serial} for a concave curve, got {curve.crosstalk}"
            )
    if curve.kind is CurveKind.POINTS:
        points = np.array([(0.0, 0.0), *curve.points])
        if len(points) < 2 or (np.diff(points[:, 0]) <= 0).any():
            raise InvalidProblemError("scalability.points must be ascending in V and start beyond 0")
        if not (points <= LARGEST).all():
            raise InvalidProblemError(f"scalability.points must be at most {LARGEST:g}, got {points.max()}")
        slopes = np.diff(points[:, 1]) / np.diff(points[:, 0])
        if (slopes < 0).any() or (np.diff(slopes) > 1e-12 * abs(slopes).max()).any():
            raise InvalidProblemError("scalability.points must rise ever more slowly; take their concave envelope")


def _validate_caps(instance: BiddingInstance) -> None:
    caps = instance.caps
    if caps.weight.shape != (len(caps.names), len(instance.bids)) or caps.limit.shape != (len(caps.names),):
        raise InvalidProblemError(f"caps must hold one weight a bid and one limit a cap, got shape {caps.weight.shape}")
    for r in np.flatnonzero(~((caps.limit >= 0) & np.isfinite(caps.limit)))[:1]:
        raise InvalidProblemError(f"caps[{r}].limit must be at least 0 and finite, got {caps.limit[r]}")
    if not ((caps.weight >= 0) & (caps.weight <= LARGEST)).all():
        raise InvalidProblemError(f"caps[].weights must be between 0 and {LARGEST:g}; correct those that aren't")


def _validate_lasting(instance: BiddingInstance) -> None:
    lasting = instance.lasting
    if lasting is None:
        return
    if lasting.capacity.shape != (len(instance.bids),):
        raise InvalidProblemError(
            f"lasting.capacity must hold one value a bid, {len(instance.bids)}, got shape {lasting.capacity.shape}"
        )
    if len(lasting.shocks.zone) != len(instance.markets):
        raise InvalidProblemError(
            f"lasting.zone and lasting.own must hold one value a market, {len(instance.markets)}, "
            f"got {len(lasting.shocks.zone)}"
        )


def _validate_outlook(outlook: Outlook, instance: BiddingInstance) -> None:
    size = len(instance.bids)
    if isinstance(outlook, HourOutlook):
        for name, most in (("price_usd", LARGEST), ("evicted", 1.0), ("usable_h", 1.0), ("hours", 1.0)):
            values = getattr(outlook, name)
            if values.shape != (size,):
                raise InvalidProblemError(f"bids[].{name} must be given for every bid, got shape {values.shape}")
            for j in np.flatnonzero(~((values >= 0) & (values <= most)))[:1]:
                raise InvalidProblemError(f"bids[{j}].{name} must be between 0 and {most:g}, got {values[j]}")
        same = np.diff(instance.bids.market) == 0
        for j in np.flatnonzero(same & (np.diff(outlook.evicted) > 0))[:1]:
            raise InvalidProblemError(
                f"bids[{j + 1}].evicted must not rise with the delta, got {outlook.evicted[j + 1]} after "
                f"{outlook.evicted[j]}: a higher bid of a market lasts longer"
            )
        return
    _validate_scenarios(outlook, instance)


def _validate_scenarios(outlook: ScenarioOutlook, instance: BiddingInstance) -> None:
    shape = (len(instance.bids), outlook.num_scenarios)
    if outlook.num_scenarios == 0 or (outlook.weight < 0).any() or abs(outlook.weight.sum() - 1) > WEIGHT_TOL:
        raise InvalidProblemError("scenarios.weights must be at least 0 and add up to 1; divide them by their sum")
    if outlook.slot_s < 1 or outlook.num_slots < 1 or outlook.ready_s < 0:
        raise InvalidProblemError(
            f"scenarios need slots of at least 1 second and ready_s of at least 0, got {outlook.num_slots} slots of "
            f"{outlook.slot_s} s, ready after {outlook.ready_s} s"
        )
    if outlook.charge_micro.shape != shape or outlook.evicted_s.shape != shape:
        raise InvalidProblemError(f"bids[].charges and bids[].evicted_s must have one entry a scenario, {shape[1]}")
    length = outlook.slot_s * outlook.num_slots
    if (outlook.charge_micro < 0).any() or (outlook.evicted_s < -1).any() or (outlook.evicted_s >= length).any():
        raise InvalidProblemError(
            f"bids[].charges must be at least 0, and evicted_s between 0 and {length - 1}, or -1 for a bid that lasts"
        )
    later = np.where(outlook.evicted_s < 0, length, outlook.evicted_s)
    same = np.diff(instance.bids.market) == 0
    if (np.diff(later, axis=0)[same] < 0).any():
        raise InvalidProblemError(
            "bids[].evicted_s must not fall with the delta: a higher bid of a market lasts longer"
        )
    if instance.eviction_loss_h + instance.change_loss_h > outlook.slot_s / 3600:
        raise InvalidProblemError(
            f"eviction_loss_h + change_loss_h must be at most a slot of {outlook.slot_s} s; take longer slots"
        )

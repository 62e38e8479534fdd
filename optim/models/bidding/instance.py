"""A bidding instance: its data, their validation, and the construction from plain Python."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from optim.core.errors import InvalidProblemError
from optim.core.frames import Rows, frame_of
from optim.models.bidding.codec import bid_columns, bidding_document, instance_from_document
from optim.models.bidding.data import BiddingData, CurveKind, HourOutlook, Outlook, Scalability, ScenarioOutlook

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, kw_only=True, eq=False)
class BiddingInstance(BiddingData):
    """Choose the number of instances at each bid to minimise expected cost divided by expected work.

    Parameters
    ----------
    name
        Name of the instance.
    markets
        Names of the markets.
    bids, outlook, caps
        The candidate bids, the outlook of the next hour, and joint limits.
    one_bid_per_market
        Whether at most one bid per market may be taken.
    fixed_usd
        Dollars per hour of machines that always run.
    fixed_rate
        Rate of machines that always run.
    scalability
        The scalability curve G.
    eviction_loss_h
        lambda: hours lost by an eviction.
    change_loss_h
        sigma: hours lost by a change of the footprint.
    min_work
        Minimum work of a footprint.
    survival
        Capacity that must survive the hour with a given probability; None without this constraint.

    Raises
    ------
    InvalidProblemError
        If a field is invalid; the message names it.
    """

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
    ) -> Self:
        """Build an instance from plain Python, or from a pandas frame with one column per field.

        Parameters
        ----------
        bids
            One mapping per bid, or a frame. Fields: ``market``, ``max_count``, ``delta_usd`` above the
            present price (default 0), ``rate`` of one instance (default 1). In the one-hour form also
            ``price_usd``, ``evicted`` (probability), ``usable_h`` and ``hours`` (default 1). With `scenarios`
            also ``charges_usd`` and ``evicted_s``, one entry per scenario.
        caps
            Limits by name on all instances together, or mappings with ``name``, ``limit`` and ``weights`` by bid.
        markets
            Names in order (default: the order in `bids`).
        name, fields
            As in the instance, or in a file of the schema ``optim/bidding/2``: ``eviction_term``, ``fixed_usd``,
            ``fixed_rate``, ``scalability``, ``eviction_loss_h``, ``change_loss_h``, ``min_work``, ``one_bid_per_market``,
            ``scenarios``, ``survival``.

        Raises
        ------
        InvalidProblemError
            If a field is unknown, missing or invalid; the message names it.

        Examples
        --------
        >>> bids = [
        ...     {"market": "a", "max_count": 4, "price_usd": 0.1, "evicted": 0.2, "usable_h": 0.9},
        ...     {"market": "b", "max_count": 4, "price_usd": 0.3, "evicted": 0.0, "usable_h": 1.0},
        ... ]
        >>> BiddingInstance.from_bids(bids, caps={"machines": 6}).unit_cost.tolist()
        [0.08000000000000002, 0.3]
        """
        return instance_from_document(bidding_document(bids, caps=caps, markets=markets, name=name, **fields), cls)

    def to_frame(self) -> "DataFrame":
        """Return the bids as a pandas frame, one row per bid, one column per field; `from_bids` reads it.

        Raises
        ------
        MissingDependencyError
            If pandas is not installed.
        """
        return frame_of(bid_columns(self))


MAX_COUNT = 10**6
"""Largest number of instances of a bid."""

LARGEST = 1e14
"""Largest number in an instance, so that sums and products stay below the limit of proofs (1e100)."""

WEIGHT_TOL = 1e-9
"""Largest allowed deviation of the sum of probabilities from 1."""


def validate(instance: BiddingData) -> None:
    """Raise an error if the instance violates the definitions of the problem.

    Raises
    ------
    InvalidProblemError
        If a field is invalid; the message names the path of the first such field, its value and the remedy.
    """
    for name in ("fixed_usd", "fixed_rate", "eviction_loss_h", "change_loss_h", "min_work"):
        value = getattr(instance, name)
        if not 0 <= value <= LARGEST:
            raise InvalidProblemError(f"{name} must be between 0 and {LARGEST:g}, got {value}")
    if len(set(instance.markets)) != len(instance.markets):
        raise InvalidProblemError("markets must have different names; rename duplicates")
    _validate_bids(instance)
    _validate_curve(instance.scalability)
    _validate_caps(instance)
    _validate_outlook(instance.outlook, instance)
    _validate_survival(instance)


def _validate_bids(instance: BiddingData) -> None:
    bids, size = instance.bids, len(instance.bids)
    for name in ("delta_micro", "rate", "max_count", "is_new"):
        if getattr(bids, name).shape != (size,):
            raise InvalidProblemError(f"bids.{name} must hold one value per bid, got shape {getattr(bids, name).shape}")
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
        # Up to its peak the law is concave if it is concave at 0, since the numerator of its second derivative decreases.
        bend = -2.0 * (curve.serial - curve.crosstalk) * (1.0 - curve.serial)
        if bend > 0:
            raise InvalidProblemError(
                f"scalability.crosstalk must be at most serial {curve.serial} for a concave curve, got {curve.crosstalk}"
            )
    if curve.kind is CurveKind.POINTS:
        points = np.array([(0.0, 0.0), *curve.points])
        if len(points) < 2 or (np.diff(points[:, 0]) <= 0).any():
            raise InvalidProblemError("scalability.points must have ascending values of V, all above 0")
        if not (points <= LARGEST).all():
            raise InvalidProblemError(f"scalability.points must be at most {LARGEST:g}, got {points.max()}")
        slopes = np.diff(points[:, 1]) / np.diff(points[:, 0])
        if (slopes < 0).any() or (np.diff(slopes) > 1e-12 * abs(slopes).max()).any():
            raise InvalidProblemError("scalability.points must be concave; take their concave envelope")


def _validate_caps(instance: BiddingData) -> None:
    caps = instance.caps
    if caps.weight.shape != (len(caps.names), len(instance.bids)) or caps.limit.shape != (len(caps.names),):
        raise InvalidProblemError(
            f"caps must hold one weight per bid and one limit per cap, got shape {caps.weight.shape}"
        )
    for r in np.flatnonzero(~((caps.limit >= 0) & np.isfinite(caps.limit)))[:1]:
        raise InvalidProblemError(f"caps[{r}].limit must be at least 0 and finite, got {caps.limit[r]}")
    if not ((caps.weight >= 0) & (caps.weight <= LARGEST)).all():
        raise InvalidProblemError(
            f"caps[].weights must be between 0 and {LARGEST:g}; correct weights outside this range"
        )


def _validate_survival(instance: BiddingData) -> None:
    survival = instance.survival
    if survival is None:
        return
    if survival.capacity.shape != (len(instance.bids),):
        raise InvalidProblemError(
            f"survival.capacity must hold one value for each of the {len(instance.bids)} bids, got shape {survival.capacity.shape}"
        )
    if len(survival.shocks.zone) != len(instance.markets):
        raise InvalidProblemError(
            f"survival.zone and survival.by_market must have one value for each of the {len(instance.markets)} markets, "
            f"got {len(survival.shocks.zone)}"
        )


def _validate_outlook(outlook: Outlook, instance: BiddingData) -> None:
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
                f"bids[{j + 1}].evicted must not increase with the delta, got {outlook.evicted[j + 1]} after "
                f"{outlook.evicted[j]}: a higher bid of a market lasts longer"
            )
        return
    _validate_scenarios(outlook, instance)


def _validate_scenarios(outlook: ScenarioOutlook, instance: BiddingData) -> None:
    shape = (len(instance.bids), outlook.num_scenarios)
    if outlook.num_scenarios == 0 or (outlook.weight < 0).any() or abs(outlook.weight.sum() - 1) > WEIGHT_TOL:
        raise InvalidProblemError("scenarios.weights must be at least 0 and add up to 1; divide them by their sum")
    if outlook.slot_s < 1 or outlook.num_slots < 1 or outlook.ready_s < 0:
        raise InvalidProblemError(
            f"scenarios need slots of at least 1 second and ready_s of at least 0, got {outlook.num_slots} slots of "
            f"{outlook.slot_s} s, ready after {outlook.ready_s} s"
        )
    if outlook.charge_micro.shape != shape or outlook.evicted_s.shape != shape:
        raise InvalidProblemError(
            f"bids[].charges_usd and bids[].evicted_s must have one entry for each of the {shape[1]} scenarios"
        )
    length = outlook.slot_s * outlook.num_slots
    if (outlook.charge_micro < 0).any() or (outlook.evicted_s < -1).any() or (outlook.evicted_s >= length).any():
        raise InvalidProblemError(
            f"bids[].charges_usd must be at least 0, and evicted_s 0 to {length - 1}, or -1 for a bid that is not outbid"
        )
    later = np.where(outlook.evicted_s < 0, length, outlook.evicted_s)
    same = np.diff(instance.bids.market) == 0
    if (np.diff(later, axis=0)[same] < 0).any():
        raise InvalidProblemError(
            "bids[].evicted_s must not decrease as the delta increases: a higher bid of a market lasts longer"
        )
    if instance.eviction_loss_h + instance.change_loss_h > outlook.slot_s / 3600:
        raise InvalidProblemError(
            f"eviction_loss_h + change_loss_h must be at most a slot of {outlook.slot_s} s; take longer slots"
        )

"""The data of a bidding decision: bids that may be placed, what is known of the next hour, and how work scales.

Notation (Harlap et al., EuroSys 2017): candidate ``j`` = (market, bid delta) with ``k_j`` instances; beta the
probability of an eviction within the hour, omega the expected usable hours, nu the work rate, phi the scalability,
lambda and sigma the hours that everybody loses by an eviction and by a change of the footprint.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from optim.core.arrays import ComparesByValue, derived, freeze_arrays
from optim.core.frames import Rows, frame_of
from optim.models.bidding.scalability import Scalability

if TYPE_CHECKING:
    from pandas import DataFrame

    from optim.models.bidding.lasting import LastingCapacity

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

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
        from optim.models.bidding.validation import validate

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
        from optim.models.bidding.building import bidding_document
        from optim.models.bidding.reading import instance_from_document

        return instance_from_document(bidding_document(bids, caps=caps, markets=markets, name=name, **fields))

    def to_frame(self) -> "DataFrame":
        """Return the bids as a pandas frame, a row a bid, a column a field; `from_bids` reads it.

        Raises
        ------
        MissingDependencyError
            If pandas isn't installed.
        """
        from optim.models.bidding.building import bid_columns

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

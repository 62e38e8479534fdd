"""The file format ``optim/bidding/1``: what a JSON document may hold."""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType, field

from optim.core.documents import Count, Name, PositiveInt, Whole

SCHEMA = "optim/bidding/1"


class BidDocument(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A candidate bid: market, delta, rate, most instances; then the hour's figures, or one entry a scenario."""

    market: Name
    delta_usd: float
    rate: float
    max_count: Count
    new: bool = True
    price_usd: float | UnsetType = UNSET
    evicted: float | UnsetType = UNSET
    usable_h: float | UnsetType = UNSET
    hours: float = 1.0
    charges_usd: list[float] | UnsetType = UNSET
    evicted_s: list[Whole] | UnsetType = UNSET


class CapDocument(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A joint limit; weights are one a bid, 1 each unless given."""

    name: Name
    limit: float
    weights: list[float] | UnsetType = UNSET


class ScalabilityDocument(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The curve G."""

    kind: Literal["linear", "saturating", "usl", "points"] = "linear"
    serial: float = 0.0
    base: float = 1.0
    crosstalk: float = 0.0
    points: list[tuple[float, float]] = []


class ScenariosDocument(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Windows of history: their weights, and the slots of each."""

    weights: list[float]
    slot_s: PositiveInt
    num_slots: PositiveInt
    ready_s: Count = 0


class LastingDocument(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Capacity that must last the hour: how much, how surely, of one instance of each bid; expected shocks by cause."""

    least: PositiveInt
    probability: float
    own: list[float]
    capacity: list[Count] | UnsetType = UNSET
    zone: list[Count] | UnsetType = UNSET
    by_zone: list[float] | UnsetType = UNSET
    region: list[Count] | UnsetType = UNSET
    by_region: list[float] | UnsetType = UNSET


class BiddingDocument(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A bidding instance; with `scenarios` the bids hold charges and evictions by scenario."""

    schema: str
    name: Name
    markets: list[Name]
    bids: list[BidDocument]
    caps: list[CapDocument] = []
    scenarios: ScenariosDocument | UnsetType = UNSET
    eviction_term: Literal["own", "any", "market"] = "market"
    one_bid_a_market: bool = False
    fixed_usd: float = 0.0
    fixed_rate: float = 0.0
    scalability: ScalabilityDocument = field(default_factory=ScalabilityDocument)
    eviction_loss_h: float = 0.0
    change_loss_h: float = 0.0
    min_work: float = 0.0
    lasting: LastingDocument | UnsetType = UNSET

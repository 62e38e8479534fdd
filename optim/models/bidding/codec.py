"""Bidding instances from and to documents of format ``optim/bidding/2``, plain Python and frames."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np
from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import asdict as fields_of

from optim.core.arrays import FloatArray, IntArray
from optim.core.documents import Count, Name, PositiveInt, Whole, convert
from optim.core.errors import InvalidProblemError
from optim.core.frames import Rows, rows_of
from optim.models.bidding.data import (
    BiddingData,
    Bids,
    Caps,
    CurveKind,
    EvictionTerm,
    HourOutlook,
    Outlook,
    Scalability,
    ScenarioOutlook,
    SurvivalConstraint,
)
from optim.models.bidding.market.lifetimes import CommonShocks
from optim.models.bidding.market.prices import MICRO

SCHEMA = "optim/bidding/2"

Instance = TypeVar("Instance", bound=BiddingData)


class BidDocument(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A candidate bid.

    With scenarios it has `charges_usd` and `evicted_s`, otherwise `price_usd`, `evicted`, `usable_h` and `hours`.

    Parameters
    ----------
    market
        Name of the market.
    delta_usd
        Bid minus the present price, in dollars per hour.
    rate
        Work per hour of one machine.
    max_count
        Maximum number of machines.
    new
        Whether machines taken at the bid change the footprint.
    price_usd
        Dollars per hour of a machine that survives its hour.
    evicted
        Probability of an eviction within the hour.
    usable_h
        Expected usable hours within the hour.
    hours
        Hours to the end of the billing hour, for which a machine is charged.
    charges_usd
        Dollars per machine in each scenario.
    evicted_s
        Seconds until the eviction in each scenario, -1 without eviction.
    """

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
    """A joint limit on the counts of the bids.

    Parameters
    ----------
    name
        Name of the limit.
    limit
        Maximum weighted sum of counts.
    weights
        One weight per bid (default: 1).
    """

    name: Name
    limit: float
    weights: list[float] | UnsetType = UNSET


class ScalabilityDocument(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The scalability curve: useful rate G of machines whose rates add up to V.

    Parameters
    ----------
    kind
        `linear`: V; `saturating`: V / (base + serial V), which is Amdahl's law of the serial share a if serial is a
        and base is 1 - a; `usl`: universal scalability law; `points`: linear between the given points.
    serial, base, crosstalk
        Coefficients of the laws.
    points
        `[V, G]` in order of V, without the origin.
    """

    kind: Literal["linear", "saturating", "usl", "points"] = "linear"
    serial: float = 0.0
    base: float = 1.0
    crosstalk: float = 0.0
    points: list[tuple[float, float]] = []


class ScenariosDocument(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Windows of price history that serve as scenarios of the next hour.

    Parameters
    ----------
    weights
        Weight of each window.
    slot_s, num_slots
        Seconds per slot, and slots per window.
    ready_s
        Seconds of each window before machines begin to work.
    """

    weights: list[float]
    slot_s: PositiveInt
    num_slots: PositiveInt
    ready_s: Count = 0


class SurvivalDocument(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Constraint on the capacity that survives the hour.

    Parameters
    ----------
    min_capacity
        Minimum surviving capacity.
    probability
        Minimum probability that this capacity survives.
    by_market, by_zone, by_region
        Expected shocks per hour to each market, zone and region; a shock takes all machines in it.
    capacity
        Capacity of one machine of each bid (default: 1).
    zone
        Zone of each market.
    region
        Region of each zone.
    """

    min_capacity: PositiveInt
    probability: float
    by_market: list[float]
    capacity: list[Count] | UnsetType = UNSET
    zone: list[Count] | UnsetType = UNSET
    by_zone: list[float] | UnsetType = UNSET
    region: list[Count] | UnsetType = UNSET
    by_region: list[float] | UnsetType = UNSET


class BiddingDocument(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A bidding instance; with `scenarios` the bids hold charges and evictions by scenario.

    Parameters
    ----------
    schema
        `optim/bidding/2`.
    name
        Name of the instance.
    markets
        Names, `type@zone`.
    bids
        Candidate bids.
    caps
        Joint limits.
    scenarios
        Windows of price history; without them, the bids describe one hour.
    eviction_term
        Machines that lose time by an eviction: only those of the evicted bid (`per-bid`), or all machines (`any-bid`,
        `per-market`). Evictions of bids are independent, except that under `per-market` the eviction of a bid implies
        the eviction of all lower bids of its market.
    one_bid_per_market
        Whether at most one bid per market may be taken.
    fixed_usd
        Dollars per hour of machines that always run.
    fixed_rate
        Rate of machines that always run.
    scalability
        Scalability curve.
    eviction_loss_h, change_loss_h
        Hours lost per eviction and per footprint change.
    min_work
        Minimum work of a footprint.
    survival
        Chance constraint on capacity.
    """

    schema: str
    name: Name
    markets: list[Name]
    bids: list[BidDocument]
    caps: list[CapDocument] = []
    scenarios: ScenariosDocument | UnsetType = UNSET
    eviction_term: Literal["per-bid", "any-bid", "per-market"] = "per-market"
    one_bid_per_market: bool = False
    fixed_usd: float = 0.0
    fixed_rate: float = 0.0
    scalability: ScalabilityDocument = field(default_factory=ScalabilityDocument)
    eviction_loss_h: float = 0.0
    change_loss_h: float = 0.0
    min_work: float = 0.0
    survival: SurvivalDocument | UnsetType = UNSET


HOUR_FIELDS = ("price_usd", "evicted", "usable_h")

SCENARIO_FIELDS = ("charges_usd", "evicted_s")

PLAIN = ("name", "one_bid_per_market", "fixed_usd", "fixed_rate", "eviction_loss_h", "change_loss_h", "min_work")
"""Fields with equal names and values in documents and instances."""

WHOLE_TOL = 1e-3
"""Largest allowed distance of an amount from whole micro-dollars, in micro-dollars."""


def instance_from_document(document: BiddingDocument, instance_type: type[Instance]) -> Instance:
    """Build a validated instance.

    Raises
    ------
    InvalidProblemError
        If a field contradicts the format; the message names its path, value and remedy.
    """
    number = {name: m for m, name in enumerate(document.markets)}
    if len(number) < len(document.markets):
        raise InvalidProblemError("markets must have different names; rename duplicates")
    for j, bid in enumerate(document.bids):
        if bid.market not in number:
            raise InvalidProblemError(f"bids[{j}].market must be one of markets, got {bid.market!r}")
        _require_fields(bid, j, is_scenario=not isinstance(document.scenarios, UnsetType))
    bids = Bids(
        market=np.array([number[bid.market] for bid in document.bids], dtype=np.int64),
        delta_micro=np.array(
            [_micro(bid.delta_usd, f"bids[{j}].delta_usd") for j, bid in enumerate(document.bids)], dtype=np.int64
        ),
        rate=np.array([bid.rate for bid in document.bids], dtype=np.float64),
        max_count=np.array([bid.max_count for bid in document.bids], dtype=np.int64),
        is_new=np.array([bid.new for bid in document.bids], dtype=bool),
    )
    curve = fields_of(document.scalability)
    points = tuple((float(v), float(g)) for v, g in document.scalability.points)
    return instance_type(
        **{name: getattr(document, name) for name in PLAIN},
        markets=tuple(document.markets),
        bids=bids,
        outlook=_outlook(document),
        caps=_caps(document.caps, len(bids)),
        scalability=Scalability(**curve | {"kind": CurveKind(curve["kind"]), "points": points}),
        survival=_survival(document),
    )


def document_from_instance(instance: BiddingData) -> BiddingDocument:
    """Return the document of an instance; reading it back gives equal data."""
    outlook = instance.outlook
    documents = []
    for j in range(instance.num_bids):
        bids = instance.bids
        hour: dict[str, Any]
        if isinstance(outlook, HourOutlook):
            hour = {name: float(getattr(outlook, name)[j]) for name in (*HOUR_FIELDS, "hours")}
        else:
            hour = {
                "charges_usd": (outlook.charge_micro[j] / MICRO).tolist(),
                "evicted_s": outlook.evicted_s[j].tolist(),
            }
        documents.append(
            BidDocument(
                market=instance.markets[int(bids.market[j])],
                delta_usd=int(bids.delta_micro[j]) / MICRO,
                rate=float(bids.rate[j]),
                max_count=int(bids.max_count[j]),
                new=bool(bids.is_new[j]),
                **hour,
            )
        )
    caps = instance.caps
    return BiddingDocument(
        schema=SCHEMA,
        **{name: getattr(instance, name) for name in PLAIN},
        markets=list(instance.markets),
        bids=documents,
        caps=[
            CapDocument(name=name, limit=float(limit), weights=UNSET if (weight == 1).all() else weight.tolist())
            for name, limit, weight in zip(caps.names, caps.limit, caps.weight, strict=True)
        ],
        scenarios=UNSET if isinstance(outlook, HourOutlook) else _scenarios_document(outlook),
        eviction_term=outlook.term.value if isinstance(outlook, HourOutlook) else "per-market",
        # A list, because files omit empty lists, but not empty tuples.
        scalability=ScalabilityDocument(**asdict(instance.scalability) | {"points": list(instance.scalability.points)}),
        survival=UNSET if instance.survival is None else _survival_document(instance.survival),
    )


def _survival_document(survival: SurvivalConstraint) -> SurvivalDocument:
    shocks = survival.shocks
    return SurvivalDocument(
        min_capacity=survival.min_capacity,
        probability=survival.probability,
        capacity=survival.capacity.tolist(),
        by_market=shocks.own.tolist(),
        **{name: getattr(shocks, name).tolist() for name in ("zone", "by_zone", "region", "by_region")},
    )


def _survival(document: BiddingDocument) -> SurvivalConstraint | None:
    """Read the survival constraint; by default every market is a separate zone, and every zone a separate region."""
    data = document.survival
    if isinstance(data, UnsetType):
        return None
    zone = np.arange(len(data.by_market)) if isinstance(data.zone, UnsetType) else np.array(data.zone, dtype=np.int64)
    num_zones = int(zone.max(initial=-1)) + 1
    by_zone = np.zeros(num_zones) if isinstance(data.by_zone, UnsetType) else _floats(data.by_zone)
    region = np.arange(len(by_zone)) if isinstance(data.region, UnsetType) else np.array(data.region, dtype=np.int64)
    num_regions = int(region.max(initial=-1)) + 1
    by_region = np.zeros(num_regions) if isinstance(data.by_region, UnsetType) else _floats(data.by_region)
    capacity = [1] * len(document.bids) if isinstance(data.capacity, UnsetType) else data.capacity
    return SurvivalConstraint(
        shocks=CommonShocks(
            zone=zone, region=region, own=_floats(data.by_market), by_zone=by_zone, by_region=by_region
        ),
        capacity=np.array(capacity, dtype=np.int64),
        min_capacity=data.min_capacity,
        probability=data.probability,
    )


def _scenarios_document(outlook: ScenarioOutlook) -> ScenariosDocument:
    return ScenariosDocument(
        weights=outlook.weight.tolist(),
        slot_s=outlook.slot_s,
        num_slots=outlook.num_slots,
        ready_s=outlook.ready_s,
    )


def _require_fields(bid: BidDocument, j: int, *, is_scenario: bool) -> None:
    wanted, others = (SCENARIO_FIELDS, HOUR_FIELDS) if is_scenario else (HOUR_FIELDS, SCENARIO_FIELDS)
    for name in wanted:
        if isinstance(getattr(bid, name), UnsetType):
            raise InvalidProblemError(f"bids[{j}].{name} is missing; add it ({_form(is_scenario=is_scenario)})")
    for name in others:
        if not isinstance(getattr(bid, name), UnsetType):
            raise InvalidProblemError(
                f"bids[{j}].{name} is not allowed here; remove it ({_form(is_scenario=is_scenario)})"
            )


def _form(*, is_scenario: bool) -> str:
    return "the instance has scenarios" if is_scenario else "the instance has no scenarios"


def _outlook(document: BiddingDocument) -> Outlook:
    bids, scenarios = document.bids, document.scenarios
    if isinstance(scenarios, UnsetType):
        return HourOutlook(
            price_usd=_floats([bid.price_usd for bid in bids]),
            evicted=_floats([bid.evicted for bid in bids]),
            usable_h=_floats([bid.usable_h for bid in bids]),
            hours=_floats([bid.hours for bid in bids]),
            term=EvictionTerm(document.eviction_term),
        )
    size = len(scenarios.weights)
    for j, bid in enumerate(bids):
        for name in SCENARIO_FIELDS:
            entries = getattr(bid, name)
            if len(entries) != size:
                raise InvalidProblemError(
                    f"bids[{j}].{name} must have one entry for each of the {size} scenarios, got {len(entries)}"
                )
    charges = [
        [_micro(usd, f"bids[{j}].charges_usd") for usd in list(bid.charges_usd or ())] for j, bid in enumerate(bids)
    ]
    return ScenarioOutlook(
        weight=np.array(scenarios.weights, dtype=np.float64),
        slot_s=scenarios.slot_s,
        num_slots=scenarios.num_slots,
        ready_s=scenarios.ready_s,
        charge_micro=_table(charges, size),
        evicted_s=_table([list(bid.evicted_s or ()) for bid in bids], size),
    )


def _caps(documents: Sequence[CapDocument], size: int) -> Caps:
    weights = []
    for r, cap in enumerate(documents):
        weight = [1.0] * size if isinstance(cap.weights, UnsetType) else cap.weights
        if len(weight) != size:
            raise InvalidProblemError(
                f"caps[{r}].weights must have one entry for each of the {size} bids, got {len(weight)}"
            )
        weights.append(weight)
    return Caps(
        names=tuple(cap.name for cap in documents),
        weight=np.array(weights, dtype=np.float64).reshape(len(documents), size),
        limit=_floats([cap.limit for cap in documents]),
    )


def _micro(usd: float, path: str) -> int:
    """Return dollars as whole micro-dollars."""
    micro = round(usd * MICRO)
    if abs(usd * MICRO - micro) > WHOLE_TOL:
        raise InvalidProblemError(f"{path} must be whole micro-dollars, got {usd}; round it to six digits")
    return micro


def _floats(values: Sequence[Any]) -> FloatArray:
    return np.array(values, dtype=np.float64).reshape(len(values))


def _table(rows: Sequence[Sequence[int]], size: int) -> IntArray:
    return np.array(rows, dtype=np.int64).reshape(len(rows), size)


USUAL: Mapping[str, Any] = {"delta_usd": 0.0, "rate": 1.0}
"""Defaults of a bid: at the present price, with rate 1."""


def bidding_document(
    bids: Rows,
    *,
    caps: Mapping[str, float] | Rows,
    markets: Sequence[str] | None,
    name: str,
    **fields: Any,
) -> BiddingDocument:
    """Return the document of an instance given as rows; `BiddingInstance.from_bids` describes the arguments."""
    rows = [{**USUAL, **row} for row in rows_of(bids, "bids")]
    limits = [{"name": cap, "limit": limit} for cap, limit in caps.items()] if isinstance(caps, Mapping) else caps
    named = dict.fromkeys(row["market"] for row in rows if "market" in row)
    converted: BiddingDocument = convert(
        {
            "schema": SCHEMA,
            "name": name,
            "markets": list(named) if markets is None else list(markets),
            "bids": rows,
            "caps": rows_of(limits, "caps"),
            **{field: value for field, value in fields.items() if value is not None},
        },
        BiddingDocument,
        "instance",
    )
    return converted


def bid_columns(instance: BiddingData) -> dict[str, list[Any]]:
    """Return one column per field of the bids; fields that the form of the instance lacks are omitted."""
    rows = msgspec.to_builtins(document_from_instance(instance).bids)
    names = list(dict.fromkeys(name for row in rows for name in row))
    defaults = {"new": True, "hours": 1.0}  # documents omit these values
    return {name: [row.get(name, defaults.get(name)) for row in rows] for name in names}

"""Bidding instances from plain Python or frames, and their bids as a frame."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from optim.core.documents import convert
from optim.core.frames import Rows, rows_of
from optim.models.bidding.document import SCHEMA, BiddingDocument
from optim.models.bidding.instance import BiddingInstance
from optim.models.bidding.reading import document_from_instance

USUAL: Mapping[str, Any] = {"delta_usd": 0.0, "rate": 1.0}
"""Of a bid that doesn't say: at the present price, and of the usual speed."""


def bidding_document(
    bids: Rows,
    *,
    caps: Mapping[str, float] | Rows,
    markets: Sequence[str] | None,
    name: str,
    **fields: Any,
) -> BiddingDocument:
    """Return the document that rows stand for; `BiddingInstance.from_bids` tells what they are."""
    rows = [{**USUAL, **row} for row in rows_of(bids, "bids")]
    limits = [{"name": cap, "limit": limit} for cap, limit in caps.items()] if isinstance(caps, Mapping) else caps
    named = dict.fromkeys(row["market"] for row in rows if "market" in row)
    found: BiddingDocument = convert(
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
    return found


def bid_columns(instance: BiddingInstance) -> dict[str, list[Any]]:
    """Return a column a field of the bids; what a form of instance doesn't have is left out."""
    rows = msgspec.to_builtins(document_from_instance(instance).bids)
    names = list(dict.fromkeys(name for row in rows for name in row))
    defaults = {"new": True, "hours": 1.0}  # which documents leave out
    return {name: [row.get(name, defaults.get(name)) for row in rows] for name in names}

"""Auctions from Python lists: machines by their GPUs, bids as tuples."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from optim.core.documents import convert
from optim.core.errors import InvalidProblemError
from optim.core.frames import is_frame, rows_of
from optim.models.auction.document import SCHEMA, AuctionDocument
from optim.models.auction.instance import AuctionInstance, Locality

if TYPE_CHECKING:
    from pandas import DataFrame

MachineSlots = int | Sequence[int]
"""GPUs of a machine, or of each of its slots."""

PlainBid = tuple[int, str, float] | tuple[Mapping[int, int], float]
"""(GPUs, locality, rho), or ({machine: GPUs}, rho)."""


def auction_document(
    machines: Sequence[MachineSlots],
    bids: "Mapping[str, Sequence[PlainBid]] | DataFrame",
    *,
    empty_rho: float | Mapping[str, float],
    free: Sequence[MachineSlots] | None,
    racks: Sequence[int] | None,
    gangs: Mapping[str, int],
    name: str,
    lease_min: float,
    empty_value: str,
) -> AuctionDocument:
    """Return the document that lists stand for; `AuctionInstance.from_bids` tells what they are."""
    tables: Mapping[str, Sequence[PlainBid]] = _of_frame(bids) if is_frame(bids) else bids
    offer = machines if free is None else free
    rack = [0] * len(machines) if racks is None else list(racks)
    for field, values in (("free", offer), ("racks", rack)):
        if len(values) != len(machines):
            raise InvalidProblemError(
                f"{field} must have one entry a machine, got {len(values)} for {len(machines)} machines"
            )
    for field, named in (("gangs", gangs), ("empty_rho", empty_rho)):
        unknown = sorted(set(named) - set(tables)) if isinstance(named, Mapping) else []
        if unknown:
            raise InvalidProblemError(
                f"{field} names {unknown[0]!r}, which has no bids; give it a list, if an empty one"
            )
    if isinstance(empty_rho, Mapping) and len(empty_rho) < len(tables):
        raise InvalidProblemError("empty_rho must have one number an app, or be one for all")
    document = {
        "schema": SCHEMA,
        "name": name,
        "machines": [
            {"rack": r, "slots": _slots(gpus), "free": _slots(left)}
            for r, gpus, left in zip(rack, machines, offer, strict=True)
        ],
        "apps": [
            {
                "id": app,
                "gang": gangs.get(app, 1),
                "bids": {
                    "empty_rho": empty_rho[app] if isinstance(empty_rho, Mapping) else empty_rho,
                    "rows": [list(row) for row in rows if len(row) != 2],
                    "named": [[[*map(list, row[0].items())], row[1]] for row in rows if len(row) == 2],
                },
            }
            for app, rows in tables.items()
        ],
        "lease_min": lease_min,
        "empty_value": empty_value,
    }
    found: AuctionDocument = convert(document, AuctionDocument, "instance")
    return found


def _slots(gpus: MachineSlots) -> list[int]:
    return [gpus] if isinstance(gpus, int) else list(gpus)


def bid_columns(instance: AuctionInstance) -> dict[str, list[Any]]:
    """Return the bids by column; `machines` is None where a bid names none."""
    bids = instance.bids
    machines: list[dict[int, int] | None] = [
        {} if level == Locality.NAMED else None for level in bids.locality.tolist()
    ]
    entries = (bids.named_row.tolist(), bids.named_machine.tolist(), bids.named_gpus.tolist())
    for row, machine, gpus in zip(*entries, strict=True):
        named = machines[row]
        if named is not None:
            named[machine] = gpus
    return {
        "app": [instance.apps.ids[app] for app in bids.app.tolist()],
        "gpus": bids.gpus.tolist(),
        "locality": [Locality(level).name.lower() for level in bids.locality.tolist()],
        "rho": bids.rho.tolist(),
        "machines": machines,
    }


def _of_frame(frame: Any) -> dict[str, list[PlainBid]]:
    """Return the bids of a frame by app."""
    bids: dict[str, list[PlainBid]] = {}
    for number, row in enumerate(rows_of(frame, "bids")):
        wanted = ("app", "rho") if "machines" in row else ("app", "gpus", "locality", "rho")
        missing = [name for name in wanted if name not in row]
        if missing:
            raise InvalidProblemError(f"bids[{number}].{missing[0]} is missing; add the column")
        bid = (row["machines"], row["rho"]) if "machines" in row else (row["gpus"], row["locality"], row["rho"])
        bids.setdefault(str(row["app"]), []).append(bid)
    return bids

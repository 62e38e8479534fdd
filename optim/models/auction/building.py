"""Auctions from Python lists: machines by their GPUs, bids as tuples."""

from collections.abc import Mapping, Sequence

from optim.core.documents import convert
from optim.core.errors import InvalidProblemError
from optim.models.auction.document import SCHEMA, AuctionDocument

MachineSlots = int | Sequence[int]
"""GPUs of a machine, or of each of its slots."""

PlainBid = tuple[int, str, float] | tuple[Mapping[int, int], float]
"""(GPUs, locality, rho), or ({machine: GPUs}, rho)."""


def auction_document(
    machines: Sequence[MachineSlots],
    bids: Mapping[str, Sequence[PlainBid]],
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
    offer = machines if free is None else free
    rack = [0] * len(machines) if racks is None else list(racks)
    for field, values in (("free", offer), ("racks", rack)):
        if len(values) != len(machines):
            raise InvalidProblemError(
                f"{field} must have one entry a machine, got {len(values)} for {len(machines)} machines"
            )
    for field, named in (("gangs", gangs), ("empty_rho", empty_rho)):
        unknown = sorted(set(named) - set(bids)) if isinstance(named, Mapping) else []
        if unknown:
            raise InvalidProblemError(
                f"{field} names {unknown[0]!r}, which has no bids; give it a list, if an empty one"
            )
    if isinstance(empty_rho, Mapping) and len(empty_rho) < len(bids):
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
            for app, rows in bids.items()
        ],
        "lease_min": lease_min,
        "empty_value": empty_value,
    }
    found: AuctionDocument = convert(document, AuctionDocument)
    return found


def _slots(gpus: MachineSlots) -> list[int]:
    return [gpus] if isinstance(gpus, int) else list(gpus)

"""Small auctions written out: clusters by their free GPUs, bids as (GPUs, locality, value)."""

from optim.models.auction.codec import (
    AppDocument,
    AuctionDocument,
    BidsDocument,
    MachineDocument,
)
from optim.models.auction.instance import AuctionInstance
from optim.models.auction.problem import PROBLEM

EMPTY_RHO = 1.0
"""rho of every app's empty row; a bid of value v has rho 1 / v."""


def auction(machines, *apps, gangs=None, name="by-hand", **fields) -> AuctionInstance:
    """Build an auction.

    `machines` are GPUs by machine, or (rack, [free by slot]); `apps` are lists of (GPUs, locality, value) or
    ({machine: GPUs}, value), values relative to the empty row's 1.
    """
    places = [m if isinstance(m, tuple) else (0, [m]) for m in machines]
    return PROBLEM.instance_from_document(
        AuctionDocument(
            schema="optim/auction/1",
            name=name,
            machines=[
                MachineDocument(rack=rack, slots=[max(1, free) for free in slots], free=list(slots))
                for rack, slots in places
            ],
            apps=[
                AppDocument(
                    id=f"a{i}",
                    gang=1 if gangs is None else gangs[i],
                    bids=BidsDocument(
                        empty_rho=EMPTY_RHO,
                        rows=[(row[0], row[1], EMPTY_RHO / row[2]) for row in rows if len(row) == 3],
                        named=[(sorted(row[0].items()), EMPTY_RHO / row[1]) for row in rows if len(row) == 2],
                    ),
                )
                for i, rows in enumerate(apps)
            ],
            **fields,
        )
    )


def linear(most, value_of_all, locality="cluster"):
    """Return bids for 1, ..., most GPUs whose value is proportional to them."""
    return [(k, locality, value_of_all * k / most) for k in range(1, most + 1)]


def fractional() -> AuctionInstance:
    """Return machines of 5, 4 and 6 GPUs that a linear programme covers by parts of patterns: 19 programmes decide."""
    bids = [
        [(3, 4.14), (5, 3.21)], [(2, 5.0), (5, 1.93)], [(3, 4.88), (4, 4.6)], [(4, 4.61), (5, 4.63)],
        [(4, 4.39), (5, 3.57)], [(5, 4.57), (4, 3.32)],
    ]  # fmt: skip
    return auction([5, 4, 6], *[[(k, "machine", v) for k, v in rows] for rows in bids])

"""The shipped instances' names as types, so that type checkers know what each of them is."""

from typing import Literal

AdmissionName = Literal[
    "adversary-exponential-strict-small",
    "adversary-paper-small",
    "adversary-zero-start-coarse",
    "adversary-zero-start-small",
    "adversary-zero-start-strict-small",
    "heavy-0",
    "heavy-1",
    "heavy-2",
    "large-0",
    "light-0",
    "light-1",
    "light-2",
    "medium-0",
    "medium-1",
    "medium-2",
    "shared-0",
    "shared-1",
    "shared-2",
    "small-0",
    "small-1",
    "small-2",
    "tiny-0",
    "tiny-1",
    "tiny-2",
    "wide-0",
]
"""Of the problem ``admission``."""

AuctionName = Literal[
    "auction-held-0",
    "auction-named-0",
    "auction-slots-0",
    "auction-tiny-0",
    "auction-zero-0",
]
"""Of the problem ``auction``."""

BiddingName = Literal[
    "spot-hour-0",
    "spot-hour-1",
    "spot-hour-2",
    "spot-market-0",
    "spot-tiny-any",
    "spot-tiny-market",
    "spot-tiny-own",
    "spot-tiny-windows",
    "spot-vector",
    "spot-windows-0",
    "spot-windows-1",
]
"""Of the problem ``bidding``."""

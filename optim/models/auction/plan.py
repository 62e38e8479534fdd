"""The decision of an auction: who is awarded which bid, where, at what hidden payment, and what is granted."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

import numpy as np

from optim.models.auction.instance import AuctionInstance, FloatArray, IntArray

APP, SLOT, COUNT = range(3)
"""Columns of placements and grants."""


class PaymentRule(StrEnum):
    """How the share c of a bundle becomes whole GPUs."""

    FLOOR = "floor"
    NEAREST = "nearest"
    CEIL = "ceil"
    LOTTERY = "lottery"
    """The whole bundle with probability c, otherwise nothing."""
    NONE = "none"
    """No payment: the whole bundle."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Witness:
    """What the other apps could have without one app: proves how good they could be, at least.

    Parameters
    ----------
    row
        Shape (apps,): the row of each app, -1 for none.
    placement
        Shape (entries, 3): where it fits, as in a plan. None where largest-first best fit finds it.
    """

    row: IntArray
    placement: IntArray | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class AuctionPlan:
    """An allocation with its payments.

    Parameters
    ----------
    row
        Shape (apps,): the bid that each app is awarded, -1 for the empty one.
    placement
        Shape (entries, 3): app, slot, count of the whole bundles, sorted.
    share_low, share_high
        Shape (apps,): an interval that holds c, the share of its bundle that the app keeps: the others'
        welfare beside it over their welfare without it.
    rule
        How shares became whole GPUs.
    grants
        Shape (entries, 3): app, slot, count of what the apps receive, within the placement. What is left of the
        placement is the leftover.
    witnesses
        By app, an allocation of the others without it; it proves `share_high`.
    """

    row: IntArray
    placement: IntArray
    share_low: FloatArray
    share_high: FloatArray
    rule: PaymentRule
    grants: IntArray
    witnesses: Mapping[int, Witness] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def num_winners(self) -> int:
        """Apps that are awarded a bid."""
        return int((self.row >= 0).sum())

    def welfare(self, instance: AuctionInstance) -> float:
        """Return the log welfare above that of granting nothing."""
        return float(instance.weight[self.row[self.row >= 0]].sum())

    def awarded_gpus(self, num_apps: int) -> IntArray:
        """Return the GPUs of each app's bundle."""
        return np.bincount(self.placement[:, APP], self.placement[:, COUNT], num_apps).astype(np.int64)

    def granted_gpus(self, num_apps: int) -> IntArray:
        """Return the GPUs that each app receives."""
        return np.bincount(self.grants[:, APP], self.grants[:, COUNT], num_apps).astype(np.int64)


def sorted_entries(entries: Iterable[Iterable[int]] | IntArray) -> IntArray:
    """Return (app, slot, count) entries sorted by app and slot, without zeros, read-only."""
    array = np.asarray(
        entries if isinstance(entries, np.ndarray) else [tuple(entry) for entry in entries], dtype=np.int64
    ).reshape(-1, 3)
    array = array[array[:, COUNT] != 0]
    array = np.ascontiguousarray(array[np.lexsort((array[:, SLOT], array[:, APP]))], dtype=np.int64)
    array.setflags(write=False)
    return array

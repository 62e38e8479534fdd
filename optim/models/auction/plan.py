"""The decision of an auction: who is awarded which bid, where, at what hidden payment, and what is granted."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

import numpy as np

from optim.core.arrays import ComparesByValue, freeze_arrays, own_whole_rows, whole_numbers
from optim.core.frames import Columns
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
class Witness(ComparesByValue):
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

    def __post_init__(self) -> None:
        freeze_arrays(self)


@dataclass(frozen=True, kw_only=True, eq=False)
class AuctionPlan(ComparesByValue):
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

    Examples
    --------
    >>> import optim
    >>> plan = optim.solve(optim.reference_instance("auction-tiny-0"), "exact").decision
    >>> bool((plan.granted_gpus(6) <= plan.awarded_gpus(6)).all())
    True
    """

    row: IntArray
    placement: IntArray
    share_low: FloatArray
    share_high: FloatArray
    rule: PaymentRule
    grants: IntArray
    witnesses: Mapping[int, Witness] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        own_whole_rows(self, {"row": None, "placement": 3, "grants": 3}, "a plan's")
        for name in ("share_low", "share_high"):
            object.__setattr__(self, name, np.array(getattr(self, name), dtype=np.float64))
        freeze_arrays(self)

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

    def columns(self, instance: AuctionInstance | None = None) -> Columns:
        """Return columns app, slot, awarded and granted; with the instance, apps by their names."""
        kept = {(app, slot): count for app, slot, count in self.grants.tolist()}
        rows = self.placement.tolist()
        return {
            "app": [app if instance is None else instance.apps.ids[app] for app, _, _ in rows],
            "slot": [slot for _, slot, _ in rows],
            "awarded": [count for _, _, count in rows],
            "granted": [kept.get((app, slot), 0) for app, slot, _ in rows],
        }

    def picture(self) -> str:
        """Return a chart as an ``<svg>`` element: a row an app, a cell a GPU awarded, faint where the payment takes it."""
        from optim.core.svg import Cell, grid

        n = len(self.row)
        awarded, granted = self.awarded_gpus(n).tolist(), self.granted_gpus(n).tolist()
        cells = [
            Cell(
                app, gpu, 0.9 if gpu < granted[app] else 0.25, f"app {app}: awarded {awarded[app]}, kept {granted[app]}"
            )
            for app in range(n)
            for gpu in range(awarded[app])
        ]
        return grid([f"app {app}" for app in range(n)], cells, "GPUs", f"Allocation of GPUs to {n} apps")


def sorted_entries(entries: Iterable[Iterable[int]] | IntArray) -> IntArray:
    """Return (app, slot, count) entries sorted by app and slot, without zeros, read-only."""
    given = entries if isinstance(entries, np.ndarray) else [tuple(entry) for entry in entries]
    array = whole_numbers(given, "a plan's entries").reshape(-1, 3)
    array = array[array[:, COUNT] != 0]
    array = np.ascontiguousarray(array[np.lexsort((array[:, SLOT], array[:, APP]))])
    array.setflags(write=False)
    return array

"""The decision of an auction, and proofs of upper bounds on its welfare."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

import numpy as np

from optim.core.arrays import ComparesByValue, FloatArray, IntArray, freeze_arrays, own_whole_rows, whole_numbers
from optim.core.frames import Columns
from optim.models.auction.instance import AuctionInstance

APP, SLOT, COUNT = range(3)
"""Columns of placements and grants."""


class PaymentRule(StrEnum):
    """Rule that rounds c G to whole GPUs: of a bundle of G GPUs the app keeps the share c."""

    FLOOR = "floor"
    NEAREST = "nearest"
    CEIL = "ceil"
    LOTTERY = "lottery"
    """The app keeps the complete bundle with probability c, otherwise no GPU."""
    NONE = "none"
    """No payment: the app keeps the complete bundle."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Witness(ComparesByValue):
    """An allocation to all apps but one; its welfare is a lower bound on the largest welfare without that app.

    Parameters
    ----------
    row
        Shape (apps,): the awarded row of each app, -1 for the empty row.
    placement
        Shape (entries, 3): placement, as in a plan; None if best fit in order of decreasing size finds one.
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
        Shape (apps,): the awarded bid of each app, -1 for the empty row.
    placement
        Shape (entries, 3): app, slot and number of GPUs of the complete bundles, sorted.
    share_low, share_high
        Shape (apps,): an interval that contains c, the share of its bundle that the app keeps. The share c is
        the product of the other apps' values with the app, divided by their product without it.
    rule
        Rule that rounds shares to whole GPUs.
    grants
        Shape (entries, 3): app, slot and number of GPUs that the app receives, a part of the placement. The
        rest of the placement is the leftover.
    witnesses
        By app, an allocation to the other apps if this app is absent; the allocation proves the app's `share_high`.

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
        """Number of apps that are awarded a bid."""
        return int((self.row >= 0).sum())

    def welfare(self, instance: AuctionInstance) -> float:
        """Return the log welfare relative to the empty allocation."""
        return float(instance.weight[self.row[self.row >= 0]].sum())

    def awarded_gpus(self, num_apps: int) -> IntArray:
        """Return the number of GPUs in each app's bundle, shape (apps,)."""
        return np.bincount(self.placement[:, APP], self.placement[:, COUNT], num_apps).astype(np.int64)

    def granted_gpus(self, num_apps: int) -> IntArray:
        """Return the number of GPUs that each app receives, shape (apps,)."""
        return np.bincount(self.grants[:, APP], self.grants[:, COUNT], num_apps).astype(np.int64)

    def columns(self, instance: AuctionInstance | None = None) -> Columns:
        """Return columns app, slot, awarded and granted; given the instance, apps appear by name."""
        granted = {(app, slot): count for app, slot, count in self.grants.tolist()}
        rows = self.placement.tolist()
        return {
            "app": [app if instance is None else instance.apps.ids[app] for app, _, _ in rows],
            "slot": [slot for _, slot, _ in rows],
            "awarded": [count for _, _, count in rows],
            "granted": [granted.get((app, slot), 0) for app, slot, _ in rows],
        }

    def picture(self) -> str:
        """Return a chart as an ``<svg>`` element: one row per app, one cell per awarded GPU, faint if forfeited."""
        from optim.core.text import Cell, grid

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
    rows = entries if isinstance(entries, np.ndarray) else [tuple(entry) for entry in entries]
    array = whole_numbers(rows, "a plan's entries").reshape(-1, 3)
    array = array[array[:, COUNT] != 0]
    array = np.ascontiguousarray(array[np.lexsort((array[:, SLOT], array[:, APP]))])
    array.setflags(write=False)
    return array


LEVEL, SIZE, MACHINE = range(3)
"""Columns of a table of bundle types."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountProof:
    """The relaxation to the number of GPUs, without placement; the checker solves it by dynamic programming."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PriceProof(ComparesByValue):
    """Prices of bundle types, which prove a bound; the bound is valid for any prices.

    A bundle type is a locality with a size, or one GPU of one machine for rows that name machines. Let `n` be
    the number of awarded bundles of each type, i an app and b one of its rows. The bound is

    ``sum_i max(0, max_b weight_b - row_price of b) + max of (row_price - supply_price) n over n's bounds
    + largest total supply_price of bundles that the cluster can supply``.

    Parameters
    ----------
    kinds
        Shape (types, 3): locality, size (1 for named machines), machine (-1 unless named). Unlisted types
        have price 0.
    row_price, supply_price
        Shape (types,): log units per bundle. They differ only if a tree bounds `n`.
    is_counted
        Whether the apps' rows must together fit the number of free GPUs. The sum over apps is then a
        knapsack, and prices cover only the cost of a bundle beyond its GPUs.
    """

    kinds: IntArray
    row_price: FloatArray
    supply_price: FloatArray
    is_counted: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class TreeNode(ComparesByValue):
    """A node of a branching tree: a leaf, or split by the number of bundles of one type or by one row.

    Parameters
    ----------
    level, size
        The bundle type that splits the node: the low child awards at most `value` bundles of it, the high
        child more.
    value
        Number of bundles at which the node is split.
    row
        If not -1, the row that splits the node: the low child does not award it, the high child does.
    low, high
        Numbers of the children, -1 at a leaf.
    proof
        The prices that bound a leaf.
    is_full
        Whether a leaf without prices claims infeasibility: the bundles required by the splits above do not
        fit together. The checker enumerates all placements.
    """

    level: int = -1
    size: int = -1
    value: int = 0
    row: int = -1
    low: int = -1
    high: int = -1
    proof: PriceProof | None = None
    is_full: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class TreeProof(ComparesByValue):
    """A branching tree; node 0 is the root. The proven bound is the largest bound of the leaves."""

    nodes: tuple[TreeNode, ...]


BoundProof = CountProof | PriceProof | TreeProof


@dataclass(frozen=True, kw_only=True, eq=False)
class AuctionProof(ComparesByValue):
    """Proofs of bounds on the welfare of all apps and, for each app, on the welfare of the other apps without it.

    Parameters
    ----------
    welfare
        Proof for all apps.
    without
        By absent app, the proof for the other apps, which proves the plan's `share_low` of the absent app.
    others
        Shared prices that bound the other apps' welfare for every app not listed in `without`.
    counts_others
        Whether the count relaxation is the bound for every app not listed in `without`, if `others` is None.
    """

    welfare: BoundProof
    without: Mapping[int, BoundProof] = field(default_factory=lambda: MappingProxyType({}))
    others: PriceProof | None = None
    counts_others: bool = False

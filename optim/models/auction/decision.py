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
        granted = {(app, slot): count for app, slot, count in self.grants.tolist()}
        rows = self.placement.tolist()
        return {
            "app": [app if instance is None else instance.apps.ids[app] for app, _, _ in rows],
            "slot": [slot for _, slot, _ in rows],
            "awarded": [count for _, _, count in rows],
            "granted": [granted.get((app, slot), 0) for app, slot, _ in rows],
        }

    def picture(self) -> str:
        """Return a chart as an ``<svg>`` element: a row an app, a cell a GPU awarded, faint where the payment takes it."""
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
"""Columns of a table of kinds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountProof:
    """The relaxation in which only the number of GPUs counts: the checker solves it by dynamic programming."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PriceProof(ComparesByValue):
    """Prices of kinds of bundles; they prove a bound whatever they are.

    A kind is a locality with a size, or for rows that name machines one GPU of one machine. With `n` the number
    of bundles of each kind that are awarded, the bound is

    ``sum_i max(0, max_b weight_b - row_price of b) + max of (row_price - supply_price) n over n's bounds
    + most that the cluster can supply at supply_price``.

    Parameters
    ----------
    kinds
        Shape (kinds, 3): locality, size (1 for named machines), machine (-1 unless named). Kinds that aren't
        listed cost nothing.
    row_price, supply_price
        Shape (kinds,): log units a bundle. They differ only where `n` is bounded by a tree.
    is_counted
        Whether the apps choose their rows within the GPUs on offer, instead of each for itself: the sum over apps
        becomes a knapsack, and prices only what a bundle costs beyond its GPUs.
    """

    kinds: IntArray
    row_price: FloatArray
    supply_price: FloatArray
    is_counted: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class TreeNode(ComparesByValue):
    """A node of a branching tree: split by the number of bundles of one kind, by a row that names machines, or a leaf.

    Parameters
    ----------
    level, size
        The kind that splits the node: the low child awards at most `value` bundles of it, the high child more.
    value
        Where it is split.
    row
        If not -1 the row that splits the node: the low child doesn't award it, the high child does.
    low, high
        Numbers of the children, -1 at a leaf.
    proof
        At a leaf the prices that bound it.
    is_full
        Whether a leaf without prices claims that the bundles awarded at least, by all splits above, find no room
        together: the checker goes through all ways to place them.
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
    """A branching tree; node 0 is the root. It proves the largest bound of its leaves."""

    nodes: tuple[TreeNode, ...]


BoundProof = CountProof | PriceProof | TreeProof


@dataclass(frozen=True, kw_only=True, eq=False)
class AuctionProof(ComparesByValue):
    """What bounds the welfare, and by app what bounds the others' welfare without it.

    Parameters
    ----------
    welfare
        Of all apps.
    without
        By app, of the others; it proves the plan's `share_low`.
    others
        What bounds the others' welfare without each app not listed: the same prices for all of them.
    counts_others
        Whether, without such prices, it is bounded by each one's own count relaxation.
    """

    welfare: BoundProof
    without: Mapping[int, BoundProof] = field(default_factory=lambda: MappingProxyType({}))
    others: PriceProof | None = None
    counts_others: bool = False

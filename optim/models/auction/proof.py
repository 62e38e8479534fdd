"""Proofs of upper bounds on the welfare of an auction. They are data: the checker recomputes what they prove."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from optim.core.arrays import ComparesByValue
from optim.models.auction.instance import FloatArray, IntArray

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

"""Proofs of lower bounds on the cost per work. They are data: the checker recomputes what they prove.

A proof states a ratio `q` and a tree whose leaves cover all footprints; each leaf has multipliers that bound
``cost - q work`` from below over its footprints. If no leaf falls below 0, no footprint has a ratio below `q`.
"""

from dataclasses import dataclass

from optim.models.bidding.instance import FloatArray, IntArray

CHANGE = -1
"""In place of a bid's number: the split by whether any new instance is taken."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Multipliers:
    """What bounds ``cost - q work`` over a box of counts. They prove a bound whatever they are.

    A cell is a slot of a scenario, in order of scenarios and then slots; the one-hour form has a single cell.

    Parameters
    ----------
    point
        Shape (cells,): rate at which the scalability curve is replaced by its tangent.
    eviction
        Shape (cells,): share, 0 to 1, to which the loss by evictions counts in cells where the box leaves it open.
    blame_cell, blame_bid, blame
        Shape (entries,): by which share a bid's eviction stands for all evictions of a cell. The shares of a cell add
        up to at most 1.
    cap
        Shape (caps,): prices of the joint limits, at least 0.
    """

    point: FloatArray
    eviction: FloatArray
    blame_cell: IntArray
    blame_bid: IntArray
    blame: FloatArray
    cap: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeNode:
    """A node of the tree.

    Parameters
    ----------
    bid
        The bid that splits it: the low child takes at most `value` instances, the high child more. `CHANGE` stands
        for the split by change: the low child takes no new instance. At a leaf it is None.
    value
        Where it is split.
    low, high
        Numbers of the children.
    multipliers
        At a leaf the number of its multipliers.
    """

    bid: int | None = None
    value: int = 0
    low: int = 0
    high: int = 0
    multipliers: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class RatioProof:
    """A ratio, and a tree that bounds ``cost - ratio * work``; node 0 is its root.

    The proven bound is ``ratio + min(0, least leaf) / W``: footprints of less than W work cost more than `ratio` a
    unit, so that W is the larger of the instance's `min_work` and ``fixed_usd / ratio``.

    Parameters
    ----------
    ratio
        Dollars a unit of work.
    nodes
        The tree.
    multipliers
        Those that leaves refer to.
    """

    ratio: float
    nodes: tuple[TreeNode, ...]
    multipliers: tuple[Multipliers, ...]

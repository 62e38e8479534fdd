"""The branching tree: its leaves cover all plans, each with a dual point that bounds its part."""

import heapq
from dataclasses import dataclass

from optim.models.admission.proof import Branch, TreeNode, TreeProof
from optim.solvers.admission.pricing.capacity_rows import CapacityRows
from optim.solvers.admission.tree.node_bound import NodePoint
from optim.solvers.admission.tree.node_master import MasterBasis
from optim.solvers.admission.tree.node_pricing import NodeLimits


@dataclass(slots=True, kw_only=True)
class _Node:
    """A node; `point` is None where its restrictions leave no plan. `branch` is set once it is split."""

    point: NodePoint | None
    branch: Branch | None = None
    low: int = -1
    high: int = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpenNode:
    """A leaf that waits to be worked on."""

    number: int
    limits: NodeLimits
    point: NodePoint
    basis: MasterBasis | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Child:
    """One side of a split: what it leaves, a valid point (None where it leaves no plan), and a basis to start from."""

    limits: NodeLimits
    point: NodePoint | None
    basis: MasterBasis | None = None


class SearchTree:
    """All nodes, and the open ones by bound, ties by number.

    Parameters
    ----------
    limits, point
        The root.
    """

    def __init__(self, limits: NodeLimits, point: NodePoint) -> None:
        self._nodes = [_Node(point=point)]
        self._open: list[tuple[float, int, NodeLimits, MasterBasis | None]] = [(-point.bound, 0, limits, None)]
        self._closed_bound = -float("inf")
        self._taken: tuple[int, float] | None = None
        """The leaf that is worked on, and what is proven of it: it covers plans like any other leaf."""

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def num_open(self) -> int:
        """How many leaves wait."""
        return len(self._open)

    @property
    def bound(self) -> float:
        """The largest bound of all leaves: those closed, those that wait, and the one that was taken."""
        first = -self._open[0][0] if self._open else -float("inf")
        return max(self._closed_bound, first, -float("inf") if self._taken is None else self._taken[1])

    def take(self) -> OpenNode:
        """Take the open node of the largest bound; close, split or return it."""
        _, number, limits, basis = heapq.heappop(self._open)
        point = self._nodes[number].point
        assert point is not None
        self._taken = (number, point.bound)
        return OpenNode(number=number, limits=limits, point=point, basis=basis)

    def lower(self, bound: float) -> None:
        """Note what is proven by now of the node that was taken."""
        if self._taken is not None:
            self._taken = (self._taken[0], min(self._taken[1], bound))

    def _release(self, node: OpenNode) -> None:
        """Note that a node has its place again; children that are put back were never taken."""
        if self._taken is not None and self._taken[0] == node.number:
            self._taken = None

    def put_back(self, node: OpenNode, point: NodePoint) -> None:
        """Return a node that was taken, with the better of its points."""
        self._release(node)
        self._nodes[node.number].point = point
        heapq.heappush(self._open, (-point.bound, node.number, node.limits, node.basis))

    def close(self, node: OpenNode, point: NodePoint) -> None:
        """Leave a node as a leaf for good."""
        self._release(node)
        self._nodes[node.number].point = point
        self._closed_bound = max(self._closed_bound, point.bound)

    def close_as_empty(self, node: OpenNode) -> None:
        """Leave a node as a leaf whose restrictions leave no plan."""
        self._release(node)
        self._nodes[node.number].point = None

    def split(self, node: OpenNode, branch: Branch, low: Child, high: Child) -> tuple[OpenNode | None, ...]:
        """Split a node that was taken; return its children, None for one that leaves no plan.

        The children are not open yet: they are to be put back or closed.
        """
        self._release(node)
        parent = self._nodes[node.number]
        parent.branch, parent.point = branch, None
        parent.low, parent.high = len(self._nodes), len(self._nodes) + 1
        children: list[OpenNode | None] = []
        for child in (low, high):
            number = len(self._nodes)
            self._nodes.append(_Node(point=child.point))
            children.append(
                None
                if child.point is None
                else OpenNode(number=number, limits=child.limits, point=child.point, basis=child.basis)
            )
        return tuple(children)

    def proof(self, rows: CapacityRows) -> TreeProof:
        """Return the tree as a checker reads it."""
        known: dict[int, object] = {}
        nodes = []
        for node in self._nodes:
            point = node.point
            if point is not None and id(point) not in known:
                known[id(point)] = point.proof(rows)
            nodes.append(
                TreeNode(
                    branch=node.branch,
                    low=node.low,
                    high=node.high,
                    proof=None if point is None else known[id(point)],  # type: ignore[arg-type]
                )
            )
        return TreeProof(nodes=tuple(nodes))

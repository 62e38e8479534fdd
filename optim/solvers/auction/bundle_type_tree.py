"""Branch and bound on the numbers of bundles of each type, with a tree that the checker verifies."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from optim.core.arrays import IntArray
from optim.core.driver import AbstractIteration, SolverState
from optim.core.solution import Termination
from optim.models.auction.data import Locality
from optim.models.auction.decision import PriceProof, TreeNode, TreeProof, Witness
from optim.solvers.auction.bundle_type_lp import MOST, BundleTypeLP, LpPoint, count_with_prices
from optim.solvers.auction.packing import Items, Packer
from optim.solvers.auction.settlement import Interval

WHOLE_TOL = 1e-6
"""Numbers of bundles within this distance of an integer count as integral."""

CLOSING_TOL = 1e-8
"""A node is closed once its bound exceeds the best value by at most this, in log units."""


@dataclass(slots=True)
class _Node:
    bounds: dict[int, tuple[int, int]]
    kind: int | None = None
    split: int = 0
    low: int = -1
    high: int = -1
    bound: float = np.inf
    proof: PriceProof | None = None
    is_tight: bool = False
    is_full: bool = False


class Tree(AbstractIteration[Interval]):
    """Branch and bound for one auction, with all apps or without one.

    Nodes are processed depth first; of two children, the child nearer to the fractional number comes first. With
    `is_enough`, the open node whose parent has the largest bound is processed first. If a limit ends the search, open
    nodes keep their parents' bounds. `solved` is the number of linear programmes, `unplaced` the number of leaves with
    integral numbers but no placement, which stay open.

    Parameters
    ----------
    lp
        The programme, shared by all trees of an auction so that each is warm-started.
    packer
        Places integral numbers of bundles.
    known, proven
        Log welfare of a known allocation, and an upper bound from another proof.
    absent
        The excluded app, -1 for none.
    node_limit
        Maximal number of linear programmes; may be raised when a tree continues.
    is_enough
        Returns whether a lower and an upper bound of the optimum suffice to end the search.
    """

    def __init__(
        self,
        lp: BundleTypeLP,
        packer: Packer,
        known: float,
        *,
        proven: float = np.inf,
        absent: int = -1,
        node_limit: int = 200,
        is_enough: Callable[[float, float], bool] | None = None,
    ) -> None:
        self._lp, self._packer, self._placement_search = lp, packer, packer.placement_search
        self._absent, self.node_limit, self._is_enough = absent, node_limit, is_enough
        self._best, self._proven = known, proven
        self._witness: Witness | None = None
        self.solved = self.unplaced = 0
        self.earlier = 0
        """Number of programmes that the run has solved elsewhere."""
        self._nodes, self._stack = [_Node({})], [0]

    def init(self) -> None:
        """Process the root, regardless of limits."""
        self.step()

    def is_done(self) -> bool:
        """Return whether no node is open, the limit of programmes is reached, or the known bounds suffice."""
        if not self._stack or self.solved >= self.node_limit:
            return True
        return self._is_enough is not None and self._is_enough(self._best, self._bound())

    @property
    def is_exhausted(self) -> bool:
        """Whether no node is open."""
        return not self._stack

    def _bound(self) -> float:
        return max(self._best, *(node.bound for node in self._nodes if node.kind is None))

    def step(self) -> None:
        """Process the next node."""
        at = len(self._stack) - 1
        if self._is_enough is not None:  # only the bound matters
            at = max(range(len(self._stack)), key=lambda k: (self._nodes[self._stack[k]].bound, k))
        self._stack += self._treat(self._nodes[self._stack.pop(at)])

    def standing(self) -> SolverState:
        """Return the number of solved programmes and, if no app is excluded, the best value and the bound.

        With an excluded app, these two concern a payment and don't affect the run's gap.
        """
        solved = self.earlier + self.solved
        if self._absent >= 0:
            return SolverState(iterations=solved)
        return SolverState(iterations=solved, objective=self._best, bound=min(self._bound(), self._proven))

    def finish(self, reason: Termination | None) -> Interval:
        """Return the best allocation if it is better than the known one, and the bound with its tree."""
        return Interval(reached=self._best, bound=self._bound(), witness=self._witness, proof=self._proof())

    def _treat(self, node: _Node) -> list[int]:
        """Bound a node and search for an allocation; return the children if it stays open."""
        if node.is_tight and self._placement_search.fits(self._awarded_at_least(node.bounds)) is False:
            node.bound, node.proof, node.is_full = -np.inf, None, True
            return []
        point = self._lp.solve(node.bounds, self._absent)
        self.solved += 1
        if point.value <= node.bound:
            node.bound, node.proof = point.value, point.proof
        if node.bound <= self._best + CLOSING_TOL:
            return []
        fraction = np.abs(point.number - np.round(point.number))
        if self._lp.tables.has_named and fraction.max(initial=0.0) <= WHOLE_TOL:
            # No type counts rows that name machines, so these are branched on one by one.
            by_row = np.abs(point.chosen - np.round(point.chosen)) * (self._lp.tables.kind < 0)
            if by_row.max(initial=0.0) > WHOLE_TOL:
                self._count(node, point)
                row = int(np.argmax(np.round(by_row, 9)))
                is_open = node.bound > self._best + CLOSING_TOL
                return self._split(node, -1 - row, float(point.chosen[row])) if is_open else []
        is_whole = fraction.max(initial=0.0) <= WHOLE_TOL
        if is_whole:
            self._keep(self._integral_rows(point, node.bounds), is_thorough=True)
        else:
            self._count(node, point)
        if node.bound <= self._best + CLOSING_TOL:
            return []
        if is_whole:
            return self._split_off(node, point)
        # Split at the fraction nearest to a half; among equal ones, the largest bundles.
        kind = int(np.lexsort((-self._lp.tables.kinds[:, 1], -np.round(fraction, 9)))[0])
        return self._split(node, kind, float(point.number[kind]))

    def _split_off(self, node: _Node, point: LpPoint) -> list[int]:
        """Split at integral numbers without a placement: fewer bundles of one type than its number, or at least as many.

        Second children require more and more bundles, until a search proves one infeasible. If the search can't, the
        last leaf stays open: a failed placement is no proof.
        """
        tables = self._lp.tables
        numbers = {k: int(n) for k, n in enumerate(np.round(point.number).astype(int).tolist())}
        numbers |= {-1 - int(b): 1 for b in np.flatnonzero((tables.kind < 0) & (point.chosen > 0.5))}
        # The largest bundles first: they are the hardest to place, and few may suffice to prove infeasibility.
        for k in sorted(numbers, key=lambda k: (-self._size(k), k)):
            low, _ = node.bounds.get(k, (0, MOST) if k >= 0 else (0, 1))
            is_inner = k < 0 or tables.kinds[k, 0] != Locality.CLUSTER
            if is_inner and low < numbers[k]:
                children = self._split(node, k, numbers[k] - 0.5)
                self._nodes[node.high].is_tight = True
                return children
        self.unplaced += 1
        return []

    def _size(self, k: int) -> int:
        """Return the size of a type, or of a table row given as -1 - b."""
        tables = self._lp.tables
        return int(tables.kinds[k, 1] if k >= 0 else tables.size[-1 - k])

    def _awarded_at_least(self, bounds: dict[int, tuple[int, int]]) -> Items:
        """Return the bundles that the bounds require."""
        tables, items = self._lp.tables, []
        bids, first = tables.instance.bids, tables.instance.named_offset
        for k, (low, _) in bounds.items():
            if k >= 0:
                items += [(int(tables.kinds[k, 0]), int(tables.kinds[k, 1]), -1)] * low
            elif low == 1:
                b = int(tables.row[-1 - k])
                part = slice(int(first[b]), int(first[b + 1]))
                pairs = zip(bids.named_machine[part].tolist(), bids.named_gpus[part].tolist(), strict=True)
                items += [(int(Locality.NAMED), count, machine) for machine, count in pairs]
        return tuple(sorted(items))

    def _count(self, node: _Node, point: LpPoint) -> None:
        """Tighten a node's bound by counting GPUs, and try the knapsack's solution as an allocation."""
        counted = count_with_prices(self._lp, point, node.bounds, self._absent)
        if counted.bound < node.bound:
            node.bound, node.proof = counted.bound, counted.proof
        self._keep(counted.choice)

    def _split(self, node: _Node, kind: int, number: float) -> list[int]:
        """Split a node; return its children, the more promising one last."""
        node.kind, node.split = kind, int(np.floor(number))
        low, high = node.bounds.get(kind, (0, MOST) if kind >= 0 else (0, 1))
        # The bound of a child that is never solved is its parent's.
        ranges = ((low, node.split), (node.split + 1, high))
        self._nodes.extend(
            _Node({**node.bounds, kind: bounds}, bound=node.bound, proof=node.proof) for bounds in ranges
        )
        node.low, node.high = len(self._nodes) - 2, len(self._nodes) - 1
        return [node.low, node.high] if number - node.split > 0.5 else [node.high, node.low]

    def _integral_rows(self, point: LpPoint, bounds: dict[int, tuple[int, int]]) -> IntArray:
        """Return table rows for integral numbers of bundles, by app; all -1 if they stay fractional."""
        tables, chosen = self._lp.tables, point.chosen
        choice = np.full(tables.num_apps, -1, dtype=np.int64)
        if np.abs(chosen - np.round(chosen)).max(initial=0.0) > WHOLE_TOL:
            # If the numbers are fixed, all vertices are integral.
            fixed = {k: (n, n) for k, n in enumerate(np.round(point.number).astype(int).tolist())}
            rows = {k: pair for k, pair in bounds.items() if k < 0}
            chosen = self._lp.solve({**fixed, **rows}, self._absent).chosen
            self.solved += 1
            if not len(chosen) or np.abs(chosen - np.round(chosen)).max(initial=0.0) > WHOLE_TOL:
                return choice
        columns = np.flatnonzero(chosen > 0.5)
        choice[tables.app[columns]] = columns
        return choice

    def _keep(self, choice: IntArray, *, is_thorough: bool = False) -> None:
        """Store a choice of table rows if it is the best one so far and can be placed."""
        tables = self._lp.tables
        value = tables.welfare(choice)
        if value <= self._best:
            return
        witness = self._packer.witness(tables, choice, is_thorough=is_thorough)
        if witness is not None:
            self._best, self._witness = value, witness

    def _proof(self) -> TreeProof | PriceProof:
        if len(self._nodes) == 1:
            assert self._nodes[0].proof is not None
            return self._nodes[0].proof
        kinds: IntArray = self._lp.tables.kinds
        return TreeProof(
            nodes=tuple(
                TreeNode(proof=node.proof, is_full=node.is_full)
                if node.kind is None
                else TreeNode(row=int(self._lp.tables.row[-1 - node.kind]), low=node.low, high=node.high)
                if node.kind < 0
                else TreeNode(
                    level=int(kinds[node.kind, 0]),
                    size=int(kinds[node.kind, 1]),
                    value=node.split,
                    low=node.low,
                    high=node.high,
                )
                for node in self._nodes
            )
        )

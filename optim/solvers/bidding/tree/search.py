"""Branch and bound for ``min cost - q work``: linear relaxations, reduced-cost fixing, splits."""

import heapq
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypedDict

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.driver import AbstractIteration, SolverState
from optim.core.solution import Termination
from optim.models.bidding.cost_per_work import evaluate, evaluate_many
from optim.models.bidding.data import HourOutlook
from optim.models.bidding.decision import CHANGE, RATE, THETA, Cover, Multipliers, RatioProof, TreeNode
from optim.models.bidding.instance import BiddingInstance
from optim.solvers.bidding.steps import is_feasible
from optim.solvers.bidding.survival import CoverPool
from optim.solvers.bidding.tree.box import CAP_TOL, Box, Relaxation, relax
from optim.solvers.bidding.tree.lagrangian import CellMultipliers, LagrangianBound, expand
from optim.solvers.bidding.tree.node_lp import CURVE_TOL, LpPoint, solve_node


@dataclass(frozen=True, kw_only=True, eq=False)
class TreeResult:
    """Result of the search.

    Parameters
    ----------
    counts, value
        The best footprint with its ``cost - q work``; None and the cutoff if no footprint is below the cutoff.
    bound
        Lower bound of ``cost - q work`` over all relevant footprints.
    nodes, multipliers, covers
        Nodes, multipliers and cover rows of the tree that proves the bound.
    """

    counts: IntArray | None
    value: float
    bound: float
    nodes: tuple[TreeNode, ...]
    multipliers: tuple[Multipliers, ...]
    covers: tuple[Cover, ...] = ()

    def proof(self, ratio: float) -> RatioProof:
        """Return the tree as the proof of a ratio."""
        return RatioProof(ratio=ratio, nodes=self.nodes, multipliers=self.multipliers, covers=self.covers)


INTEGRAL_TOL = 1e-6

STAKE = 0.02
"""A box is split by an indicator, or by a sum, only if the indicator, or the envelope, causes this share of its gap."""


@dataclass(frozen=True, kw_only=True, eq=False)
class OpenBox:
    """A box that may contain a better footprint, its relaxation's solution, and its node in the tree."""

    box: Box
    node: int
    multipliers: int
    bound: float
    relaxation: Relaxation
    point: LpPoint
    charge: FloatArray


def choose_sum(instance: BiddingInstance, ratio: float, missing: float, entry: OpenBox) -> tuple[int, float] | None:
    """Return which sum to split (`THETA` or `RATE`), and where; None unless the envelope causes much of the gap."""
    e = entry.relaxation.envelope
    if e is None or not e.is_curved:
        return None
    theta, total, lost = entry.point.sums
    (low, high), (first, last) = e.theta, e.loss
    share = -instance.eviction_loss_h * float(np.expm1(-theta))
    overlooked = share * total - lost
    slope = float(instance.scalability.slope(np.maximum(entry.point.rates, 0.0))[0])
    if ratio * slope * overlooked <= STAKE * missing:
        return None
    by_chord = (share - first - (theta - low) * (last - first) / (high - low)) * total
    by = THETA if by_chord > 0.5 * overlooked else RATE
    at, (low, high) = (theta, e.theta) if by == THETA else (total, e.rate)
    return by, float(np.clip(at, 0.9 * low + 0.1 * high, 0.1 * low + 0.9 * high))


def choose_bid(missing: float, entry: OpenBox) -> tuple[int | None, int]:
    """Return the bid to split by, None if all counts are fixed, and the largest count of the lower part.

    In order of preference: an undecided bid whose indicator causes much of the gap, a fractional count, another
    undecided bid, and any bid.
    """
    relaxation, counts = entry.relaxation, entry.point.counts
    low, high = entry.box.low[relaxation.active], entry.box.high[relaxation.active]
    counts = np.clip(counts, low, high)
    share = counts / np.maximum(high, 1)
    undecided = (low == 0) & (counts > INTEGRAL_TOL) & (share < 1.0 - INTEGRAL_TOL)
    stake = np.where(undecided, entry.charge * (1.0 - share), 0.0)
    if relaxation.has_indicators and stake.max(initial=0.0) > STAKE * missing:
        return int(relaxation.active[int(stake.argmax())]), 0
    broken = np.abs(counts - np.rint(counts))
    if broken.max(initial=0.0) > INTEGRAL_TOL:
        j = int((broken * (1.0 + np.abs(relaxation.cost))).argmax())
        return int(relaxation.active[j]), int(np.floor(counts[j]))
    if undecided.any():
        j = int(np.where(undecided, 1.0 - share, 0.0).argmax())
        return int(relaxation.active[j]), 0
    free = np.flatnonzero(low < high)
    if not len(free):
        return None, 0
    j = int(free[int((high - low)[free].argmax())])
    rounded = int(np.rint(counts[j]))
    return int(relaxation.active[j]), rounded if rounded < high[j] else rounded - 1


def rounded(instance: BiddingInstance, relaxation: Relaxation, point: LpPoint) -> IntArray:
    """Return the relaxation's counts rounded in three ways and reduced to the caps, shape (3, bids)."""
    caps, active = instance.caps, relaxation.active
    rounded_counts = []
    for counts in (np.floor(point.counts + INTEGRAL_TOL), np.rint(point.counts), np.ceil(point.counts - 1e-3)):
        full = np.zeros(instance.num_bids, dtype=np.int64)
        full[active] = np.clip(counts, relaxation.low, relaxation.high)
        for j in active[np.argsort(point.counts, kind="stable")]:
            excess = caps.weight @ full - caps.limit
            too_much = excess > CAP_TOL * caps.limit
            if not too_much.any():
                break
            weight = caps.weight[:, j]
            drop = np.where(too_much & (weight > 0), np.ceil(excess / np.where(weight > 0, weight, 1.0)), 0)
            full[j] -= min(int(full[j]), int(drop.max()))
        rounded_counts.append(full)
    return np.array(rounded_counts)


FIXING_ROUNDS = 8
"""Maximal number of times that one box is solved; bids are fixed after each time."""

WORTHWHILE = 0.15
"""Share of the active bids that fixing must remove before the box is solved again."""

ROOT_COVERS, COVERS = 20, 2
"""Maximal number of cover rows added at the root, and at any other box."""

ROUNDING = 1e-10
"""Relative margin by which stated bounds are weaker than computed ones."""

PATIENCE = 25
"""Boxes that a hasty search solves after an improvement before it ends, so that the next search starts at the better ratio."""

LEAP = 0.003
"""Relative improvement of the ratio at which a hasty search ends at once."""


class TreeLimits(TypedDict, total=False):
    """Parameters of `RatioTree` that determine when it ends."""

    cutoff: float
    gap: float
    all_of_interest: bool
    is_hasty: bool
    begun: int
    curve_tol: float


class RatioTree(AbstractIteration[TreeResult]):
    """A search by branch and bound for the footprint with the least ``cost - q work``.

    Parameters
    ----------
    instance
        The instance.
    ratio
        The price of work q.
    cutoff
        Only footprints with ``cost - q work`` below this are searched.
    gap
        A box is closed if its bound is at most this far below the best value; 0 to prove the cutoff exactly.
    min_rate
        Footprints with a lower sum of rates may be ignored.
    start
        A footprint at whose rates the first tangents are placed.
    all_of_interest
        Whether to include footprints with too little work for an answer.
    is_hasty
        Whether to end soon after a footprint below the cutoff is found.
    begun
        Number of boxes that earlier trees have solved.
    curve_tol
        Relative distance to the scalability curve to which relaxations are solved.
    """

    def __init__(
        self,
        instance: BiddingInstance,
        ratio: float,
        *,
        cutoff: float = 0.0,
        gap: float = 0.0,
        min_rate: float = 0.0,
        start: IntArray | None = None,
        all_of_interest: bool = False,
        is_hasty: bool = False,
        begun: int = 0,
        curve_tol: float = CURVE_TOL,
    ) -> None:
        self.instance, self.ratio, self.gap, self.min_rate = instance, ratio, gap, min_rate
        self.value = cutoff
        self.counts: IntArray | None = None
        self._cost, self._start = 0.0, start
        self._nodes: list[TreeNode] = []
        self._multipliers: list[Multipliers] = []
        self._leaf_bounds: dict[int, float] = {}
        self._heap: list[tuple[float, int, OpenBox]] = []
        self._order = 0
        self._is_all_of_interest = all_of_interest
        self._min_work = 0.0 if all_of_interest else instance.min_work
        outlook = instance.outlook
        self._num_cells = 1 if isinstance(outlook, HourOutlook) else outlook.num_scenarios * outlook.num_slots
        self._is_hasty, self._begun, self._curve_tol = is_hasty, begun, curve_tol
        self._improved_at: int | None = None
        self._pool = CoverPool(instance)
        self.num_solved = 0

    def init(self) -> None:
        """Solve the root box, or its two parts without and with new instances."""
        root, box = self._add(TreeNode()), Box.root(self.instance)
        parts = [(root, box)] if box.has_change is False else self._split(root, box, CHANGE, 0)
        for node, part in parts:
            self._open(part, node)

    def is_done(self) -> bool:
        """Return whether no open box can contain a better footprint, or a hasty search has found enough."""
        since = 0 if self._improved_at is None else self.num_solved - self._improved_at
        is_enough = since >= PATIENCE or (self.counts is not None and self.value <= -LEAP * self._cost)
        return (self._is_hasty and is_enough) or not self._heap or self._heap[0][0] >= self.value - self.gap

    def step(self) -> None:
        """Split the open box with the lowest bound."""
        if self.counts is not None and self._improved_at is None:
            self._improved_at = self.num_solved
        self._branch(heapq.heappop(self._heap)[2])

    def standing(self) -> SolverState:
        """Return the number of solved boxes, and the ratio."""
        return SolverState(iterations=self._begun + self.num_solved, objective=self.ratio or None)

    def finish(self, reason: Termination | None) -> TreeResult:
        """Return the tree, with its open boxes as leaves."""
        for _, _, entry in self._heap:
            self._leaf(entry.node, entry.multipliers, entry.bound)
        return TreeResult(
            counts=self.counts,
            value=self.value,
            bound=min(self._leaf_bounds.values()),
            nodes=tuple(self._nodes),
            multipliers=tuple(self._multipliers),
            covers=tuple(self._pool.covers),
        )

    def _open(self, box: Box, node: int, parent: OpenBox | None = None) -> None:
        """Solve a box, fix bids, and store the box if it may contain a better footprint."""
        is_root, tangents = parent is None, self._tangents
        used = [] if parent is None else np.flatnonzero(parent.point.multipliers.cover).tolist()
        for _ in range(FIXING_ROUNDS):
            box, node = self._raise(box, node)
            relaxation = relax(self.instance, box, self.min_rate)
            value = self._plain_value(box, relaxation)
            if value is not None:
                self._leaf(node, self._nothing, value)
                return
            point = self._solve(relaxation, tangents, used, ROOT_COVERS if is_root else COVERS)
            bound = LagrangianBound(self.instance, relaxation, point.multipliers, self.ratio, self._pool.rows)
            number = self._store(expand(relaxation, point.multipliers))
            self._try(relaxation, point)
            if bound.value >= self.value - self.gap:
                self._leaf(node, number, bound.value)
                return
            before = int((box.high > 0).sum())
            box, node = self._fix(box, node, number, bound)
            is_fixed = bool((box.low == box.high).all()) and not bool((relaxation.low == relaxation.high).all())
            if not is_fixed and int((box.high > 0).sum()) >= (1 - WORTHWHILE) * before:
                break
            tangents = (*tangents, point.rates[relaxation.cell_of]) if is_root else tangents
        self._order += 1
        entry = OpenBox(
            box=box,
            node=node,
            multipliers=number,
            bound=bound.value,
            relaxation=relaxation,
            point=point,
            charge=bound.charge,
        )
        heapq.heappush(self._heap, (bound.value, self._order, entry))

    def _solve(
        self, relaxation: Relaxation, tangents: tuple[FloatArray, ...], used: list[int], max_covers: int
    ) -> LpPoint:
        """Solve a box's relaxation, again after each violated cover row that is added; `used` receives the rows' numbers."""
        first, pool = self._onto(relaxation, tangents), self._pool
        while True:
            rows, tol = pool.rows_of(used), self._curve_tol
            solved = solve_node(self.instance, relaxation, self.ratio, first, self._min_work, rows, tol)
            self.num_solved += 1
            if solved is None:
                return _nowhere(self.instance, relaxation)
            missed = pool.missed(_full(self.instance, relaxation, solved)) if max_covers > 0 else None
            if missed is None or missed in used:
                break
            used.append(missed)
            max_covers -= 1
        prices = np.zeros(len(pool.covers))
        prices[used] = solved.multipliers.cover
        return replace(solved, multipliers=replace(solved.multipliers, cover=prices))

    def _raise(self, box: Box, node: int) -> tuple[Box, int]:
        """Cut off counts that are too small for any feasible footprint of a box."""
        for bid, least in self._pool.min_counts(box.low, box.high):
            (leaf, _), (node, box) = self._split(node, box, bid, least - 1)
            self._leaf(leaf, self._nothing, float("inf"))
        return box, node

    def _plain_value(self, box: Box, relaxation: Relaxation) -> float | None:
        """Return the value of a box with one footprint, infinity for a box without answers, None for any other box."""
        envelope = relaxation.envelope
        if box.exceeds_a_cap(self.instance) or (envelope is not None and envelope.is_empty):
            return float("inf")
        if not self._pool.keeps(box.high[None])[0]:
            return float("inf")
        if not box.is_single:
            return None
        value = evaluate(self.instance, box.low)
        if box.has_change and not box.low[self.instance.bids.is_new].any():
            return float("inf")  # this footprint belongs to the box without new instances
        is_answer = value.work > 0 and value.work >= self._min_work * (1 - CAP_TOL)
        if not is_feasible(self.instance, box.low[None])[0] or not (is_answer or self._is_all_of_interest):
            return float("inf")
        parametric_value = value.cost - self.ratio * value.work
        if parametric_value < self.value:
            self._keep(box.low, value.cost, parametric_value)
        return parametric_value

    def _keep(self, counts: IntArray, cost: float, value: float) -> None:
        self.counts, self._cost, self.value = counts, cost, value

    def _fix(self, box: Box, node: int, number: int, bound: LagrangianBound) -> tuple[Box, int]:
        """Cut off counts that the multipliers prove too costly; each cut is a split with a leaf."""
        relaxation, cutoff = bound.relaxation, self.value - self.gap
        lows, highs = box.low.copy(), box.high.copy()
        missing = cutoff - bound.value  # NaN for values near the largest float: then no count is cut off
        for position, bid in enumerate(relaxation.active.tolist()):
            low, high, reduced = int(lows[bid]), int(highs[bid]), float(bound.reduced[position])
            most = low + int(min(high - low, missing / reduced)) if reduced > 0 else high
            if most < high and bound.with_bounds(position, most + 1, high) < cutoff:
                most = high
            if most >= high and low == 0 and bound.with_bounds(position, 1, high) >= cutoff:
                most = 0
            if most < high:
                node, leaf = self._cut(node, bid, most)
                self._leaf(leaf, number, bound.with_bounds(position, most + 1, high))
                high = highs[bid] = most
            if reduced < 0 and low < high:
                least = high - int(min(high - low, missing / -reduced))
                if least > low and bound.with_bounds(position, low, least - 1) >= cutoff:
                    leaf, node = self._cut(node, bid, least - 1)
                    self._leaf(leaf, number, bound.with_bounds(position, low, least - 1))
                    lows[bid] = least
        return replace(box, low=lows, high=highs), node

    def _branch(self, entry: OpenBox) -> None:
        missing = self.value - entry.bound
        split = choose_sum(self.instance, self.ratio, missing, entry)
        if split is None and self._pool.survival is not None:
            counts = _full(self.instance, entry.relaxation, entry.point)
            split = self._pool.choose(counts, entry.box.low, entry.box.high)
        by, at = split or choose_bid(missing, entry)
        if by is None:  # the box is one footprint whose bound is its value: no split is possible
            self._leaf(entry.node, entry.multipliers, entry.bound)
            return
        for node, part in self._split(entry.node, entry.box, by, at):
            self._open(part, node, entry)

    def _try(self, relaxation: Relaxation, point: LpPoint) -> None:
        """Round the relaxation's counts in three ways, and store the best footprint."""
        table = rounded(self.instance, relaxation, point)
        fits = is_feasible(self.instance, table) & self._pool.keeps(table)
        cost, work = evaluate_many(self.instance, table)
        value = np.where(fits & (work >= self._min_work * (1 - CAP_TOL)), cost - self.ratio * work, np.inf)
        best = int(value.argmin())
        if value[best] < self.value:
            self._keep(table[best], float(cost[best]), float(value[best]))

    @cached_property
    def _tangents(self) -> tuple[FloatArray, ...]:
        """Return rates of the original cells at which the first tangents are placed."""
        outlook = self.instance.outlook
        rates = [np.zeros(self._num_cells)]
        if self._start is not None:
            rate = self.instance.bids.rate * self._start
            if isinstance(outlook, HourOutlook):
                full = np.array([float((rate * outlook.usable_h).sum())])
            else:
                full = rate @ outlook.alive.reshape(self.instance.num_bids, -1)
            rates += [self.instance.fixed_rate + share * full for share in (0.5, 0.9, 1.1)]
        return tuple(rates)

    def _onto(self, relaxation: Relaxation, tangents: tuple[FloatArray, ...]) -> tuple[FloatArray, ...]:
        """Return the tangents' rates for the merged cells of a relaxation."""
        result = []
        for rates in tangents:
            merged = np.zeros(len(relaxation.weight))
            merged[relaxation.cell_of] = rates
            result.append(np.minimum(merged, self.instance.scalability.peak))
        return tuple(result)

    def _add(self, node: TreeNode) -> int:
        self._nodes.append(node)
        return len(self._nodes) - 1

    def _cut(self, node: int, by: int, at: float) -> tuple[int, int]:
        """Split a node; return both children."""
        low, high = self._add(TreeNode()), self._add(TreeNode())
        self._nodes[node] = TreeNode(bid=by, value=at, low=low, high=high)
        return low, high

    def _split(self, node: int, box: Box, by: int, at: float) -> tuple[tuple[int, Box], tuple[int, Box]]:
        """Split a node and its box; return both children."""
        (low, high), parts = self._cut(node, by, at), box.split(self.instance, by, at)
        return (low, parts[0]), (high, parts[1])

    def _leaf(self, node: int, multipliers: int, bound: float) -> None:
        self._nodes[node] = TreeNode(multipliers=multipliers)
        self._leaf_bounds[node] = bound

    def _store(self, multipliers: Multipliers) -> int:
        self._multipliers.append(multipliers)
        return len(self._multipliers) - 1

    @cached_property
    def _nothing(self) -> int:
        """Index, in the proof, of multipliers that are all 0."""
        cells, none = np.zeros(self._num_cells), np.zeros(0, dtype=np.int64)
        cap = np.zeros(len(self.instance.caps.limit))
        nothing = Multipliers(
            point=cells, eviction=cells, attribution_cell=none, attribution_bid=none, attribution=np.zeros(0), cap=cap
        )
        return self._store(nothing)


def _full(instance: BiddingInstance, relaxation: Relaxation, point: LpPoint) -> FloatArray:
    """Return a point's counts for all bids, shape (bids,)."""
    counts = np.zeros(instance.num_bids)
    counts[relaxation.active] = point.counts
    return counts


def _nowhere(instance: BiddingInstance, relaxation: Relaxation) -> LpPoint:
    """Return a point with zero prices, for a box that HiGHS finds empty or can't solve: its bound is weak but valid."""
    return LpPoint(
        counts=relaxation.low.astype(np.float64),
        multipliers=CellMultipliers.none(instance, relaxation),
        rates=np.zeros(len(relaxation.weight)),
    )

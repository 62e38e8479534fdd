"""The linear relaxation of a box, solved by HiGHS: tangents are added until the curve is met, and the duals returned."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.models.bidding.instance import BiddingInstance
from optim.solvers.bidding.survival import Rows
from optim.solvers.bidding.tree.box import Envelope, Relaxation
from optim.solvers.bidding.tree.lagrangian import CellMultipliers, point_of_slope
from optim.solvers.lp.highs import run_in_place, silent_highs

MAX_ROUNDS = 12
"""Maximal number of rounds that add tangents; each round squares the relative distance to the curve."""

CURVE_TOL = 1e-9
"""Relative distance to the curve at which no more tangents are added, unless the tree's tolerance is wider."""

FEASIBILITY_TOL = 1e-9
"""HiGHS' tolerances, so that bounds are accurate to 1e-6."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LpPoint:
    """Solution of the relaxation: counts of the active bids, multipliers, and rates of the cells.

    `sums` contains theta, the sum of rates K, and the lost rate.
    """

    counts: FloatArray
    multipliers: CellMultipliers
    rates: FloatArray
    sums: tuple[float, float, float] = (0.0, 0.0, 0.0)


SHORTAGE = 1e3
"""Price of missing work, in units of the ratio: the programme stays feasible, and its bound shows the shortage."""

MAX_RATE = 1e9
"""Largest rate at which a tangent is placed."""


class _Rows:
    """Rows of a programme, collected and passed to HiGHS at once."""

    def __init__(self) -> None:
        self.lower: list[float] = []
        self.upper: list[float] = []
        self.start: list[int] = [0]
        self.index: list[int] = []
        self.value: list[float] = []

    def add(self, lower: float, upper: float, index: Any, value: Any) -> int:
        """Add a row and return its number."""
        self.lower.append(lower)
        self.upper.append(upper)
        self.index.extend(index)
        self.value.extend(value)
        self.start.append(len(self.index))
        return len(self.lower) - 1

    def add_pairs(self, lower: FloatArray, upper: FloatArray, index: IntArray, value: FloatArray) -> int:
        """Add rows with two entries, `index` and `value` of shape (rows, 2), and return the number of the first row."""
        first, begin = len(self.lower), len(self.index)
        self.lower.extend(lower.tolist())
        self.upper.extend(upper.tolist())
        self.index.extend(index.ravel().tolist())
        self.value.extend(value.ravel().tolist())
        self.start.extend(range(begin + 2, len(self.index) + 1, 2))
        return first

    def pass_to(self, highs: Any) -> None:
        """Add the rows to a programme."""
        highs.addRows(
            len(self.lower),
            np.array(self.lower),
            np.array(self.upper),
            len(self.index),
            np.array(self.start[:-1], dtype=np.int32),
            np.array(self.index, dtype=np.int32),
            np.array(self.value, dtype=np.float64),
        )


def solve_node(
    instance: BiddingInstance,
    relaxation: Relaxation,
    ratio: float,
    tangents: tuple[FloatArray, ...],
    min_work: float,
    covers: Rows | None = None,
    curve_tol: float = CURVE_TOL,
) -> LpPoint | None:
    """Solve the linear relaxation; None if the box is empty.

    Parameters
    ----------
    instance, relaxation
        The instance and its relaxation.
    ratio
        The price of work q.
    tangents
        Rates at which the initial tangents are placed; each array has shape (cells,).
    min_work
        Least work required.
    covers
        Further rows ``gain @ counts >= need``.
    curve_tol
        Relative distance to the curve at which no more tangents are added.
    """
    return _NodeLp(instance, relaxation, ratio, min_work, covers).solve(tangents, curve_tol)


class _NodeLp:
    """The linear programme of a box.

    Its columns are the counts, indicators Z, rates V, useful rates y, lost rates p and evictions e of open cells, the
    missing work s, and t, the largest share missing in a cover. With an envelope, theta, the sum of rates K and the
    lost rate follow.
    """

    def __init__(
        self, instance: BiddingInstance, relaxation: Relaxation, ratio: float, min_work: float, covers: Rows | None
    ) -> None:
        self.instance, self.r, self.ratio, self.min_work, self.covers = instance, relaxation, ratio, min_work, covers
        size, cells = len(relaxation.active), len(relaxation.weight)
        self.open = np.flatnonzero(relaxation.is_open)
        self.has_z = relaxation.has_indicators or instance.one_bid_per_market
        self.z = size
        self.v = 2 * size if self.has_z else size
        self.y = self.v + cells
        self.p = self.y + cells
        self.e = self.p + len(self.open)
        self.s = self.e + len(self.open)
        self.envelope = relaxation.envelope
        self.num_columns = self.s + 2 + 3 * (self.envelope is not None)
        self.sums = slice(self.s + 2, self.num_columns)

    def solve(self, tangents: tuple[FloatArray, ...], curve_tol: float) -> LpPoint | None:
        """Solve with more and more tangents until the curve is met; None if HiGHS finds no optimum."""
        import highspy

        highs = silent_highs(
            presolve="off",
            primal_feasibility_tolerance=FEASIBILITY_TOL,
            dual_feasibility_tolerance=FEASIBILITY_TOL,
        )
        self._add_columns(highs, highspy.kHighsInf)
        rows = _Rows()
        self._add_rows(rows, highspy.kHighsInf)
        self.tangents: list[tuple[int, int, float]] = []
        for point in tangents:
            self._add_tangents(rows, np.arange(len(point)), point)
        rows.pass_to(highs)
        for _ in range(MAX_ROUNDS):
            if run_in_place(highs) != highspy.HighsModelStatus.kOptimal:
                return None
            x = np.array(highs.getSolution().col_value)
            rate, useful = x[self.v : self.y], x[self.y : self.p]
            height = self.instance.scalability.value(np.maximum(rate, 0.0))
            above = np.flatnonzero(useful - height > curve_tol * np.maximum(1.0, height))
            if not len(above):
                break
            more = _Rows()
            self._add_tangents(more, above, np.maximum(rate[above], 0.0), offset=highs.getNumRow())
            more.pass_to(highs)
        solution = highs.getSolution()
        duals, reduced = np.abs(np.array(solution.row_dual)), np.array(solution.col_dual)
        return LpPoint(
            counts=x[: len(self.r.active)],
            multipliers=self._multipliers(duals, reduced, rate),
            rates=rate,
            sums=(0.0, 0.0, 0.0) if self.envelope is None else tuple(x[self.sums].tolist()),
        )

    def _add_columns(self, highs: Any, inf: float) -> None:
        r, n = self.r, self.num_columns
        lower, upper, cost = np.zeros(n), np.full(n, inf), np.zeros(n)
        size = len(r.active)
        lower[:size], upper[:size], cost[:size] = r.low, r.high, r.cost
        if self.has_z:
            lower[self.z : self.v] = r.low > 0
            upper[self.z : self.v] = 1.0
        lower[self.v : self.y] = -inf
        lower[self.y : self.p] = -inf
        cost[self.y : self.p] = -self.ratio * r.weight * r.hours
        cost[self.p : self.e] = self.ratio * r.weight[self.open] * r.loss_h
        upper[self.e : self.s] = 1.0
        cost[self.s] = SHORTAGE * self.ratio
        cost[self.s + 1] = SHORTAGE * (self.ratio + r.cost.max(initial=0.0))
        if self.envelope is not None:
            (lower[-3], upper[-3]), (lower[-2], upper[-2]) = self.envelope.theta, self.envelope.rate
            upper[-3:-1] = np.maximum(upper[-3:-1], lower[-3:-1])
        highs.addVars(n, lower, upper)
        highs.changeColsCost(n, np.arange(n, dtype=np.int32), cost)

    def _add_rows(self, rows: _Rows, inf: float) -> None:
        r, caps = self.r, self.instance.caps
        size = len(r.active)
        self.cap_rows = [
            rows.add(-inf, float(limit), range(size), weight)
            for weight, limit in zip(caps.weight[:, r.active], caps.limit, strict=True)
        ]
        if self.has_z:
            self._add_indicators(rows, inf)
        lost = [self.num_columns - 1] if self.envelope is not None and self.envelope.is_curved else []
        for c in range(len(r.weight)):
            worked = np.flatnonzero(r.rate[c])
            rows.add(
                r.base[c], r.base[c], [*worked, self.v + c, *lost], [*(-r.rate[c, worked]), 1.0, *[1.0] * len(lost)]
            )
        self.work_row = None
        if self.min_work > 0:
            index = [*range(self.y, self.p), *range(self.p, self.e), self.s]
            values = [*(r.weight * r.hours), *(-r.loss_h * r.weight[self.open]), 1.0]
            self.work_row = rows.add(self.min_work, inf, index, values)
        self.cover_rows = []
        if self.covers is not None:
            self.cover_rows = [
                rows.add(need, inf, [*range(size), self.s + 1], [*gain, need])
                for gain, need in zip(self.covers.gain[:, r.active], self.covers.need.tolist(), strict=True)
            ]
        if self.envelope is not None:
            self._add_envelope(rows, self.envelope, inf)
        self.loss_rows, self.blame_rows = [], []
        for i, c in enumerate(self.open.tolist()):
            most = float(r.most[c])
            self.loss_rows.append(rows.add(-most, inf, [self.p + i, self.y + c, self.e + i], [1.0, -1.0, -most]))
            for j in np.flatnonzero(r.hit[c]).tolist():
                row = rows.add(0.0, inf, [self.e + i, self.z + j], [1.0, -1.0])
                self.blame_rows.append((row, c, j))

    def _add_indicators(self, rows: _Rows, inf: float) -> None:
        """Add the rows that link the indicators Z to the counts."""
        r = self.r
        is_single = self.instance.one_bid_per_market
        for j, high in enumerate(r.high.tolist()):
            is_first = j == 0 or r.market[j] != r.market[j - 1]
            if r.is_nested and not is_first:
                rows.add(0.0, inf, [self.z + j, self.z + j - 1], [1.0, -1.0])
                if is_single:
                    rows.add(0.0, inf, [self.z + j, self.z + j - 1, j], [1.0, -1.0, -1.0 / high])
                    continue
            rows.add(0.0, inf, [self.z + j, j], [1.0, -1.0 / high])
        if is_single and not r.is_nested:
            for m in np.unique(r.market):
                mine = np.flatnonzero(r.market == m)
                rows.add(-inf, 1.0, self.z + mine, np.ones(len(mine)))

    def _add_envelope(self, rows: _Rows, e: Envelope, inf: float) -> None:
        """Add the rows that define theta and the sum of rates, and bound the lost rate from below."""
        theta, total, lost = range(self.num_columns - 3, self.num_columns)
        size = len(self.r.active)
        steps = np.flatnonzero(e.step)
        rows.add(e.sure, e.sure, [theta, *(self.z + steps)], [1.0, *(-e.step[steps])])
        rows.add(e.fixed, e.fixed, [total, *range(size)], [1.0, *(-e.unit)])
        if e.theta[0] > e.sure:  # theta must exceed `sure`: only a bid with instances may set its indicator to 1
            for j in range(size):
                is_first = not self.r.is_nested or j == 0 or self.r.market[j] != self.r.market[j - 1]
                if is_first:
                    rows.add(-inf, 0.0, [self.z + j, j], [1.0, -1.0])
                else:
                    rows.add(-inf, 0.0, [self.z + j, self.z + j - 1, j], [1.0, -1.0, -1.0])
        self.plane_rows = []
        for mix in (0.0, 1.0) if e.is_curved else ():
            in_rate, in_theta = e.plane(mix)
            self.plane_rows.append(
                rows.add(e.height(in_rate, in_theta), inf, [lost, total, theta], [1.0, -in_rate, -in_theta])
            )

    def _add_tangents(self, rows: _Rows, cells: IntArray, points: FloatArray, offset: int = 0) -> None:
        curve = self.instance.scalability
        slopes, heights = curve.slope(points), curve.value(points)
        index = np.stack([self.y + cells, self.v + cells], axis=1)
        value = np.stack([np.ones(len(cells)), -slopes], axis=1)
        first = rows.add_pairs(np.full(len(cells), -np.inf), heights - slopes * points, index, value)
        numbers = range(offset + first, offset + first + len(cells))
        self.tangents.extend(zip(numbers, cells.tolist(), slopes.tolist(), strict=True))

    def _multipliers(self, duals: FloatArray, reduced: FloatArray, rate: FloatArray) -> CellMultipliers:
        """Return multipliers from the rows' duals, clipped to the ranges in which they are valid."""
        r, cells = self.r, len(self.r.weight)
        row, cell, slope = (np.array(column) for column in zip(*self.tangents, strict=True))
        weight = np.bincount(cell.astype(np.int64), duals[row.astype(np.int64)], cells)
        mixed = np.bincount(cell.astype(np.int64), duals[row.astype(np.int64)] * slope, cells)
        tangent = self.instance.scalability.slope(np.maximum(rate, 0.0))
        slopes = np.where(weight > 0, mixed / np.where(weight > 0, weight, 1.0), tangent)
        point = point_of_slope(self.instance.scalability, slopes, min(self.instance.scalability.peak, MAX_RATE))
        work = 0.0 if self.work_row is None else float(duals[self.work_row])
        full = (self.ratio + work) * r.weight * r.loss_h
        eviction, attribution = np.zeros(cells), np.zeros(r.hit.shape)
        if len(self.open):
            eviction[self.open] = np.clip(duals[self.loss_rows] / np.maximum(full[self.open], 1e-300), 0.0, 1.0)
        scale = np.maximum(full * eviction * r.most, 1e-300)
        for number, c, j in self.blame_rows:
            attribution[c, j] = duals[number] / scale[c] if eviction[c] > 0 else 0.0
        attribution /= np.maximum(attribution.sum(axis=1, keepdims=True), 1.0)
        theta = total = 0.0
        plane = 0.0, 0.0
        if self.envelope is not None:
            theta, total = -float(reduced[-3]), -float(reduced[-2])
            below, above = duals[self.plane_rows].tolist() if self.envelope.is_curved else (1.0, 0.0)
            plane = self.envelope.plane(above / (below + above) if above > 0 else 0.0)
        return CellMultipliers(
            point=point,
            eviction=eviction,
            attribution=attribution,
            cap=duals[self.cap_rows],
            cover=duals[self.cover_rows] if self.cover_rows else np.zeros(0),
            work=work,
            lost_by_rate=plane[0],
            lost_by_theta=plane[1],
            theta=theta,
            rate=total,
        )

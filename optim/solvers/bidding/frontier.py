"""The frontier of cost against work: every footprint that is best at some price of work, and bounds between them."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from optim.core.arrays import IntArray
from optim.core.driver import AbstractIteration, Monitor, Outcome, SolverState, run_iteration
from optim.core.errors import check_in
from optim.core.registry import register
from optim.core.solution import Termination
from optim.models.bidding.cost_per_work import evaluate
from optim.models.bidding.instance import BiddingInstance
from optim.solvers.bidding.dinkelbach import BestRatio, DinkelbachOptions
from optim.solvers.bidding.outcome import AbstractBiddingSolver, make_tree

SAME_TOL = 1e-9
"""Footprints whose costs and works differ by at most this are one point; for works above 1 the difference is relative."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierOptions:
    """Options of `frontier`.

    Parameters
    ----------
    tol
        Relative gap to which the best cost per work is proven.
    steepest
        Maximal marginal cost of work on the frontier, as a multiple of the best ratio.
    max_points
        Maximal number of footprints to search, including both ends of the curve but not the decision.
    point_tol
        Gap to which each point's ``cost - ratio * work`` is minimised, as a share of the starting footprint's cost.
    """

    tol: float = 1e-6
    steepest: float = 8.0
    max_points: int = 40
    point_tol: float = 1e-4

    def __post_init__(self) -> None:
        check_in("[1e-9, 1)", self, "tol")
        check_in("(1, inf)", self, "steepest")
        check_in("[1, inf)", self, "max_points")
        check_in("(0, 1)", self, "point_tol")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FrontierPoint:
    """A footprint that is best at a price of work.

    Parameters
    ----------
    ratio
        The price of work, in dollars per unit, at which the footprint was found.
    counts
        Shape (bids,): the footprint.
    cost, work
        Expected dollars and work of the footprint.
    bound
        Lower bound of ``cost - ratio * work`` over all footprints: work w costs at least ``bound + ratio w``.
    """

    ratio: float
    counts: IntArray
    cost: float
    work: float
    bound: float


@dataclass(frozen=True, slots=True)
class Frontier:
    """The points of the frontier, in increasing order of work."""

    points: tuple[FrontierPoint, ...]

    def least_cost(self, work: float) -> float:
        """Return a lower bound on the cost of every footprint with at least this work."""
        return max((point.bound + point.ratio * work for point in self.points), default=0.0)

    def corners(self, footprint: IntArray, instance: BiddingInstance) -> list[tuple[float, float]]:
        """Return cost and work of the points and the given footprint, without dominated ones, in order of work."""
        value = evaluate(instance, footprint)
        corners: list[tuple[float, float]] = []
        points = {(point.cost, point.work) for point in self.points} | {(value.cost, value.work)}
        for cost, work in sorted(points, key=lambda point: (-point[1], point[0])):
            if not corners or cost < corners[-1][0]:
                corners.append((cost, work))
        return corners[::-1]


class Trace(AbstractIteration[Frontier]):
    """The frontier around a footprint, point by point: `trace_frontier` as an iteration.

    `solved` is the number of boxes solved in all trees; it starts at `begun`, the number solved before.
    """

    def __init__(
        self, instance: BiddingInstance, best: IntArray, options: FrontierOptions, monitor: Monitor, begun: int = 0
    ) -> None:
        self.instance, self.options, self.monitor, self.solved = instance, options, monitor, begun
        self._best = best
        self._points: list[FrontierPoint] = []
        self._pending: list[tuple[FrontierPoint, FrontierPoint]] = []

    def init(self) -> None:
        """Find both ends of the frontier: the empty footprint, and the best footprint at a high price of work."""
        nothing = np.zeros(self.instance.num_bids, dtype=np.int64)
        idle = evaluate(self.instance, nothing)
        bound = self.instance.fixed_usd
        low = FrontierPoint(ratio=0.0, counts=nothing, cost=idle.cost, work=idle.work, bound=bound)
        if self.instance.survival is not None:  # the empty footprint is infeasible: take the cheapest feasible one
            low = self._solve_at(0.0, self._best)
        high = self._solve_at(self.options.steepest * evaluate(self.instance, self._best).ratio, self._best)
        self._points, self._pending = [low, high], [(low, high)]

    def is_done(self) -> bool:
        """Return whether no pair of neighbours is left to try, or the maximal number of points is reached."""
        return not self._pending or len(self._points) >= self.options.max_points

    def step(self) -> None:
        """Try the price at which two neighbouring points have the same value."""
        one, other = self._pending.pop(0)
        if other.work - one.work <= SAME_TOL * max(1.0, other.work) or other.cost <= one.cost:
            return
        ratio = (other.cost - one.cost) / (other.work - one.work)
        start = min((one, other, *self._points), key=lambda point: point.cost - ratio * point.work).counts
        point = self._solve_at(ratio, start)
        is_new = all(
            abs(point.work - old.work) > SAME_TOL * max(1.0, old.work) or abs(point.cost - old.cost) > SAME_TOL
            for old in (one, other)
        )
        self._points.append(point)
        if is_new and one.work < point.work < other.work:
            self._pending += [(one, point), (point, other)]

    def standing(self) -> SolverState:
        """Return the number of solved boxes."""
        return SolverState(iterations=self.solved)

    def finish(self, reason: Termination | None) -> Frontier:
        """Return the points in order of work."""
        return Frontier(points=tuple(sorted(self._points, key=lambda point: (point.work, point.cost, point.ratio))))

    def _solve_at(self, ratio: float, start: IntArray) -> FrontierPoint:
        value = evaluate(self.instance, start)
        gap, cutoff = self.options.point_tol * max(value.cost, SAME_TOL), value.cost - ratio * value.work
        tree = make_tree(self.instance, ratio, start, cutoff=cutoff, gap=gap, all_of_interest=True, begun=self.solved)
        result = run_iteration(tree, self.monitor)
        self.solved += tree.num_solved
        counts = start if result.counts is None else result.counts
        best = evaluate(self.instance, counts)
        return FrontierPoint(ratio=ratio, counts=counts, cost=best.cost, work=best.work, bound=result.bound)


def trace_frontier(
    instance: BiddingInstance, best: IntArray, options: FrontierOptions, monitor: Monitor | None = None
) -> Frontier:
    """Return the frontier around the footprint of the best ratio.

    For two neighbouring points, the method tries the price of work at which ``cost - price * work`` is the same for
    both. A footprint that is better at this price is a point between them.

    References
    ----------
    Eisner, Severance, "Mathematical Techniques for Efficient Record Segmentation in Large Shared Databases", Journal
    of the ACM 23 (1976), DOI 10.1145/321978.321982.
    """
    monitor = monitor or Monitor()
    return run_iteration(Trace(instance, best, options, monitor), monitor)


@register("frontier", problem="bidding")
class FrontierSolver(AbstractBiddingSolver[FrontierOptions]):
    """The full curve of cost against work; its tangent from the origin is the best cost per work.

    The decision is the footprint of the best ratio, with the same proof as `dinkelbach`. The statistics' counts list the
    curve's points, including the decision, as `cost_0`, `work_0` and so on, in order of work; more work always costs
    more. Iterations are solved boxes.
    """

    summary: ClassVar[str] = "cost against work: the full curve, and the best ratio with a proof"
    options_type: ClassVar[type[FrontierOptions]] = FrontierOptions

    def run(self, instance: BiddingInstance, options: FrontierOptions, monitor: Monitor, seed: int) -> Outcome:
        """Find the best ratio, then the curve on both sides of it."""
        best = run_iteration(BestRatio(instance, DinkelbachOptions(tol=options.tol), monitor), monitor, task=self.name)
        frontier = Frontier(points=())
        if monitor.reason is None and np.isfinite(evaluate(instance, best.counts).ratio):
            trace = Trace(instance, best.counts, options, monitor, begun=best.solved)
            with monitor.clock.phase("curve"):
                frontier = run_iteration(trace, monitor, task="curve")
            best.solved = trace.solved
        corners = frontier.corners(best.counts, instance) if frontier.points else []
        curve = {
            f"{name}_{i}": figure
            for i, point in enumerate(corners)
            for name, figure in zip(("cost", "work"), point, strict=True)
        }
        return best.outcome(points=float(len(corners)), **curve)

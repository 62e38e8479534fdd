"""The frontier of cost against work: every footprint that is best at some price of work, and bounds in between."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from optim.core.clock import PhaseClock
from optim.core.errors import InvalidOptionError
from optim.core.progress import Progress
from optim.core.registry import SUPPORTED, Support, register
from optim.core.solution import Solution
from optim.core.status import Termination
from optim.core.stopping import SolveState, StoppingCriterion
from optim.models.bidding.cost_per_work import evaluate
from optim.models.bidding.instance import BiddingInstance, IntArray
from optim.solvers.bidding.dinkelbach import BestRatio, DinkelbachOptions
from optim.solvers.bidding.outcome import can_work, finish, make_tree

SAME_TOL = 1e-9
"""Footprints whose cost and work differ by less, relatively, are one point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierOptions:
    """Options of `frontier`.

    Parameters
    ----------
    tol
        Relative gap of the best ratio.
    steepest
        The frontier ends where more work costs so many times the best ratio.
    max_points
        Most footprints.
    point_tol
        Absolute gap of each point's programme, as a share of its cost.
    """

    tol: float = 1e-6
    steepest: float = 8.0
    max_points: int = 40
    point_tol: float = 1e-4

    def __post_init__(self) -> None:
        if not self.steepest > 1:
            raise InvalidOptionError(f"steepest must be above 1, got {self.steepest}")
        if self.max_points < 1:
            raise InvalidOptionError(f"max_points must be at least 1, got {self.max_points}")
        if not 0 < self.point_tol < 1:
            raise InvalidOptionError(f"point_tol must be in (0, 1), got {self.point_tol}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierPoint:
    """A footprint that is best at a price of work.

    Parameters
    ----------
    ratio
        The price of work q at which it was found.
    counts
        The footprint.
    cost, work
        Its expected dollars and work.
    bound
        Lower bound of ``cost - ratio * work`` over all footprints: any of work w costs at least ``bound + ratio w``.
    """

    ratio: float
    counts: IntArray
    cost: float
    work: float
    bound: float


@dataclass(frozen=True, slots=True)
class Frontier:
    """The points in order of work."""

    points: tuple[FrontierPoint, ...]

    def least_cost(self, work: float) -> float:
        """Return a lower bound of the cost of every footprint that does so much work."""
        return max((point.bound + point.ratio * work for point in self.points), default=0.0)


def trace_frontier(
    instance: BiddingInstance,
    best: IntArray,
    options: FrontierOptions,
    ask: Callable[[int, float], bool] = lambda solved, bound: False,
) -> Frontier:
    """Return the frontier around the footprint of the best ratio.

    Between two neighbouring points the price at which both are worth the same is tried; what is better there is a
    point between them.

    References
    ----------
    Eisner, Severance, "Mathematical Techniques for Efficient Record Segmentation in Large Shared Databases", Journal
    of the ACM 23 (1976), DOI 10.1145/321978.321982.
    """

    def solve_at(ratio: float, start: IntArray) -> FrontierPoint:
        value = evaluate(instance, start)
        gap = options.point_tol * max(value.cost, SAME_TOL)
        tree = make_tree(instance, ratio, start, cutoff=value.cost - ratio * value.work, gap=gap, all_of_interest=True)
        result = tree.run(ask)
        counts = start if result.counts is None else result.counts
        found = evaluate(instance, counts)
        return FrontierPoint(ratio=ratio, counts=counts, cost=found.cost, work=found.work, bound=result.bound)

    top_ratio = evaluate(instance, best).ratio
    nothing = np.zeros(instance.num_bids, dtype=np.int64)
    idle = evaluate(instance, nothing)
    low = FrontierPoint(ratio=0.0, counts=nothing, cost=idle.cost, work=idle.work, bound=instance.fixed_usd)
    points = [low, solve_at(options.steepest * top_ratio, best)]
    pending = [(points[0], points[1])]
    while pending and len(points) < options.max_points and not ask(0, 0.0):
        one, other = pending.pop(0)
        if other.work - one.work <= SAME_TOL * max(1.0, other.work) or other.cost <= one.cost:
            continue
        ratio = (other.cost - one.cost) / (other.work - one.work)
        start = min((one, other, *points), key=lambda point: point.cost - ratio * point.work).counts
        point = solve_at(ratio, start)
        is_new = all(
            abs(point.work - old.work) > SAME_TOL * max(1.0, old.work) or abs(point.cost - old.cost) > SAME_TOL
            for old in (one, other)
        )
        points.append(point)
        if is_new and one.work < point.work < other.work:
            pending += [(one, point), (point, other)]
    return Frontier(points=tuple(sorted(points, key=lambda point: (point.work, point.cost, point.ratio))))


@register("frontier", problem="bidding")
class FrontierSolver:
    """The whole curve of cost against work; its tangent from the origin is the best cost per work.

    The decision is the footprint of the best ratio, with the same proof as `dinkelbach`. The points of the curve are
    among the counts of the statistics: `cost_0`, `work_0` and so on, in order of work. Iterations are boxes solved.
    """

    name: str
    problem: str
    summary = "cost against work: the whole curve, and the best ratio with a proof"
    options_type = FrontierOptions

    def supports(self, instance: BiddingInstance) -> Support:
        """Every instance is supported."""
        del instance
        return SUPPORTED

    def solve(
        self,
        instance: BiddingInstance,
        *,
        options: FrontierOptions,
        stop: StoppingCriterion,
        seed: int,
        progress: Progress,
    ) -> Solution:
        """Find the best ratio, then the curve on both sides of it."""
        clock = PhaseClock()
        progress.start(self.name)
        run = BestRatio(instance, DinkelbachOptions(tol=options.tol), stop, progress, clock)
        reason: list[Termination] = []
        solved = [0]

        def ask(boxes: int, bound: float) -> bool:
            solved[0] += boxes > 0
            found = stop(SolveState(elapsed_s=clock.elapsed_s, iterations=run.solved + solved[0]))
            if found is not None:
                reason.append(found)
            return found is not None

        frontier = Frontier(points=())
        if can_work(instance):
            run.execute()
            if run.reason is None and np.isfinite(evaluate(instance, run.counts).ratio):
                with clock.phase("curve"):
                    frontier = trace_frontier(instance, run.counts, options, ask)
        progress.finish()
        ended = run.reason or (reason[0] if reason else None)
        curve = {
            f"{name}_{i}": getattr(point, name) for i, point in enumerate(frontier.points) for name in ("cost", "work")
        }
        return finish(
            self,
            instance,
            options,
            counts=run.counts,
            proven=run.proven,
            termination=ended or (Termination.GAP_LIMIT if run.proven is not None else Termination.COMPLETED),
            seed=seed,
            clock=clock,
            iterations=run.solved + solved[0],
            extra={"points": float(len(frontier.points)), **curve},
        )

"""Dinkelbach's method: the minimal cost per work by a sequence of programmes that are linear in cost and work."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from optim.core.arrays import IntArray
from optim.core.driver import AbstractIteration, Monitor, Outcome, SolverState, run_iteration
from optim.core.errors import check_in
from optim.core.registry import register
from optim.core.solution import Termination
from optim.models.bidding.cost_per_work import CostWork, evaluate
from optim.models.bidding.decision import RatioProof
from optim.models.bidding.instance import BiddingInstance
from optim.solvers.bidding.greedy import exchanged
from optim.solvers.bidding.outcome import (
    AbstractBiddingSolver,
    bound_of,
    can_work,
    is_answer,
    make_tree,
    outcome_of,
    root_bound,
)
from optim.solvers.bidding.steps import LocalSearch
from optim.solvers.bidding.tree.search import TreeLimits, TreeResult

CURVE_SHARE = 0.1
"""Distance to the curve to which relaxations are solved, as a share of the required gap; a smaller one wastes time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DinkelbachOptions:
    """Options of `dinkelbach`.

    Parameters
    ----------
    tol
        Relative gap to prove.
    heuristic
        Whether to start with the footprint of `exchange`, and improve the trees' footprints by exchange. By default
        the search starts with the best single bid: a better start takes as much time as it saves.
    """

    tol: float = 1e-6
    heuristic: bool = False

    def __post_init__(self) -> None:
        check_in("[1e-9, 1)", self, "tol")


@register("dinkelbach", problem="bidding")
class DinkelbachSolver(AbstractBiddingSolver[DinkelbachOptions]):
    """The exact solver: branch and bound on ``cost - q work`` with q just below the best cost per work known.

    A footprint with a negative ``cost - q work`` is better by more than half the tolerance, and the search restarts at its
    ratio.
    Otherwise the tree closes, and proves that no footprint is better.

    Notes
    -----
    For fixed ratio, tangents of the curve and prices of the caps, the programme separates into the markets, and a box is
    bounded by one small minimum per market. These multipliers come from the linear relaxation of the box, and are in
    the certificate. Counts that they prove too costly are cut off before the box is solved again. Iterations are solved
    boxes. The bound is unknown until a tree has closed, so a gap in a stopping rule has no effect before that: use a
    wider `tol` instead.

    References
    ----------
    Dinkelbach, "On Nonlinear Fractional Programming", Management Science 13 (1967), DOI 10.1287/mnsc.13.7.492.
    """

    summary: ClassVar[str] = "exact: Dinkelbach's method by branch and bound, with a proof"
    options_type: ClassVar[type[DinkelbachOptions]] = DinkelbachOptions

    def is_default_for(self, instance: BiddingInstance) -> bool:
        """Return True: it proves the optimum."""
        return True

    def run(self, instance: BiddingInstance, options: DinkelbachOptions, monitor: Monitor, seed: int) -> Outcome:
        """Run Dinkelbach's method."""
        return run_iteration(BestRatio(instance, options, monitor), monitor, task=self.name).outcome()


class BestRatio(AbstractIteration["BestRatio"]):
    """Dinkelbach's method: a heuristic, then decreasing ratios until a tree closes. The object is its own result.

    `counts` is the best footprint so far, `proven` a bound with its proof, `solved` the number of boxes solved.
    """

    def __init__(self, instance: BiddingInstance, options: DinkelbachOptions, monitor: Monitor) -> None:
        self.instance, self.options, self.monitor = instance, options, monitor
        self.counts: IntArray = np.zeros(instance.num_bids, dtype=np.int64)
        self.proven: tuple[float, RatioProof] | None = None
        self.solved = self.ratios = self.leaves = 0
        self._ratio: float | None = None
        # With a survival constraint few footprints are feasible: rounding a relaxation seldom finds one.
        self._is_searching = options.heuristic or instance.survival is not None
        self._is_done = not can_work(instance)

    def init(self) -> None:
        """Start with the best single bid, or with a heuristic."""
        with self.monitor.clock.phase("heuristic"):
            if self._is_searching:
                self.counts = exchanged(self.instance, self.monitor.part()).counts
            elif not self._is_done:
                first = LocalSearch(self.instance, self.counts)
                first.step()
                self.counts = first.counts

    def is_done(self) -> bool:
        """Return whether a tree has closed, or no bid does any work."""
        return self._is_done

    def standing(self) -> SolverState:
        """Return the number of solved boxes and the last ratio."""
        return SolverState(iterations=self.solved, objective=self._ratio)

    def step(self) -> None:
        """Search at a ratio just below the best."""
        with self.monitor.clock.phase("solve"):
            self._is_done = not self._improve()

    def finish(self, reason: Termination | None) -> "BestRatio":
        """Return this object."""
        return self

    def outcome(self, **figures: float) -> Outcome:
        """Return the footprint with its proven bound."""
        has_proof = self.proven is not None and self.monitor.reason is None
        figures = {"ratios": float(self.ratios), "leaves": float(self.leaves)} | figures
        return outcome_of(
            self.instance,
            self.counts,
            self.proven,
            iterations=self.solved,
            figures=figures,
            termination=Termination.GAP_LIMIT if has_proof else None,
        )

    def _improve(self) -> bool:
        """Search at a ratio just below the best; return whether a better footprint was found."""
        value = evaluate(self.instance, self.counts)
        if not is_answer(self.instance, self.counts, value):
            return self._find_any(value)
        ratio = self._ratio = value.ratio * (1.0 - 0.5 * self.options.tol)
        if ratio <= 0:
            self.proven = 0.0, RatioProof(ratio=0.0, nodes=(), multipliers=())
            return False
        result = self._search(ratio)
        if result.counts is None or self.monitor.reason is not None:
            bound = min(bound_of(self.instance, ratio, result), evaluate(self.instance, self.counts).ratio)
            self.leaves = sum(node.bid is None for node in result.nodes)
            self.proven = bound, result.proof(ratio)
            if self.monitor.reason is not None and result.bound < 0:
                # Bounds of open boxes are far below 0 at this ratio; the relaxation may prove a better bound.
                lowered = root_bound(self.instance, self.counts)
                self.proven = max(self.proven, lowered or self.proven, key=lambda proven: proven[0])
        return result.counts is not None

    def _find_any(self, value: CostWork) -> bool:
        """Search for any footprint with enough work; return whether one was found."""
        bids = self.instance.bids
        most = self.instance.fixed_usd + float(bids.max_count @ self.instance.unit_cost) + 1.0
        return self._search(value.ratio if value.work > 0 else most, cutoff=most).counts is not None

    def _search(self, ratio: float, cutoff: float = 0.0) -> TreeResult:
        """Search at a ratio, and store the best footprint."""
        limits = TreeLimits(cutoff=cutoff, is_hasty=True, begun=self.solved, curve_tol=CURVE_SHARE * self.options.tol)
        tree = make_tree(self.instance, ratio, self.counts, **limits)
        result = run_iteration(tree, self.monitor)
        self.solved += tree.num_solved
        self.ratios += 1
        if result.counts is not None:
            self.counts = result.counts
            if self._is_searching:
                self.counts = run_iteration(LocalSearch(self.instance, self.counts), self.monitor.part())
        return result

"""Dinkelbach's method: the least cost per work by a sequence of programmes that are linear in cost and work."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from optim.core.clock import PhaseClock
from optim.core.errors import InvalidOptionError
from optim.core.progress import Progress
from optim.core.registry import SUPPORTED, Support, register
from optim.core.solution import Solution
from optim.core.status import Sense, Termination
from optim.core.stopping import SolveState, StoppingCriterion
from optim.models.bidding.cost_per_work import evaluate
from optim.models.bidding.instance import BiddingInstance, IntArray
from optim.models.bidding.proof import RatioProof
from optim.solvers.bidding.local_search.steps import exchange_counts, greedy_counts
from optim.solvers.bidding.outcome import bound_of, can_work, finish, make_tree
from optim.solvers.bidding.tree.search import TreeResult

PATIENCE = 25
"""Boxes solved after an improvement before the search starts again at the better ratio."""

MOST_STEPS = 100
"""Steps of the method; it takes a handful, as it converges faster than linearly."""

STEP_GAP = 1e-9
"""Absolute gap of a step's programme, relative to the cost of the footprint it begins with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DinkelbachOptions:
    """Options of `dinkelbach`.

    Parameters
    ----------
    tol
        Relative gap to prove.
    heuristic
        Begin with the footprint of `exchange`, otherwise with that of `greedy`.
    """

    tol: float = 1e-6
    heuristic: bool = True

    def __post_init__(self) -> None:
        if not 1e-9 <= self.tol < 1:
            raise InvalidOptionError(f"tol must be in [1e-9, 1), got {self.tol}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step: the ratio it was solved at, the best footprint and its ``cost - ratio * work``."""

    ratio: float
    counts: IntArray
    value: float


def dinkelbach_steps(instance: BiddingInstance, start_ratio: float) -> Iterator[Step]:
    """Yield the steps of the plain method from a ratio on, each programme solved to its end.

    The last step's value is 0 to rounding: its footprint has the ratio that the programme was solved at.

    References
    ----------
    Dinkelbach, "On Nonlinear Fractional Programming", Management Science 13 (1967), DOI 10.1287/mnsc.13.7.492.
    """
    ratio, counts = start_ratio, None
    for _ in range(MOST_STEPS):
        gap = STEP_GAP * max(instance.fixed_usd, ratio * 1e-3)
        result = make_tree(instance, ratio, counts, cutoff=np.inf, gap=gap).run(lambda solved, bound: False)
        if result.counts is None:
            return
        counts = result.counts
        yield Step(ratio=ratio, counts=counts, value=result.value)
        value = evaluate(instance, counts)
        if result.value >= -10 * gap or value.work <= 0:
            return
        ratio = value.ratio


@register("dinkelbach", problem="bidding")
class DinkelbachSolver:
    """The exact solver: branch and bound on ``cost - q work`` with q just below the best cost per work known.

    A footprint with a negative value is better by more than half the tolerance, and the search begins again with its
    ratio. Otherwise the closed tree proves that nothing is better.

    Notes
    -----
    With the ratio, the curve's tangents and the prices of the caps fixed, the programme falls apart into the markets,
    and a box is bounded by one small minimum a market. These multipliers come from the linear relaxation of the box,
    and stand in the certificate. Bids that they prove too costly are fixed before the box is solved again. Iterations
    are boxes solved.

    References
    ----------
    Dinkelbach, "On Nonlinear Fractional Programming", Management Science 13 (1967), DOI 10.1287/mnsc.13.7.492.
    """

    name: str
    problem: str
    summary = "exact: Dinkelbach's method by branch and bound, with a proof"
    options_type = DinkelbachOptions

    def supports(self, instance: BiddingInstance) -> Support:
        """Every instance is supported."""
        del instance
        return SUPPORTED

    def solve(
        self,
        instance: BiddingInstance,
        *,
        options: DinkelbachOptions,
        stop: StoppingCriterion,
        seed: int,
        progress: Progress,
    ) -> Solution:
        """Search, improve, prove."""
        clock = PhaseClock()
        progress.start(self.name)
        run = BestRatio(instance, options, stop, progress, clock)
        if can_work(instance):
            run.execute()
        progress.finish()
        return finish(
            self,
            instance,
            options,
            counts=run.counts,
            proven=run.proven,
            termination=run.reason or (Termination.GAP_LIMIT if run.proven is not None else Termination.COMPLETED),
            seed=seed,
            clock=clock,
            iterations=run.solved,
            extra={"ratios": float(run.ratios), "leaves": float(run.leaves)},
        )


class BestRatio:
    """One run of the solver: the best footprint so far, and what is proven."""

    def __init__(
        self,
        instance: BiddingInstance,
        options: DinkelbachOptions,
        stop: StoppingCriterion,
        progress: Progress,
        clock: PhaseClock,
    ) -> None:
        self.instance, self.options, self.clock = instance, options, clock
        self._stop, self._progress = stop, progress
        self.counts: IntArray = np.zeros(instance.num_bids, dtype=np.int64)
        self.proven: tuple[float, RatioProof] | None = None
        self.reason: Termination | None = None
        self.solved = self.ratios = self.leaves = 0

    def execute(self) -> None:
        """Begin with a heuristic, then lower the ratio until the tree closes."""
        with self.clock.phase("heuristic"):
            self.counts, _ = greedy_counts(self.instance, lambda steps: self._asks(0.0))
            if self.options.heuristic:
                self.counts, _ = exchange_counts(self.instance, self.counts, lambda steps: self._asks(0.0))
        with self.clock.phase("solve"):
            while self.reason is None and self._improve():
                pass

    def _improve(self) -> bool:
        """Search at a ratio just below the best; return whether there is something better."""
        value = evaluate(self.instance, self.counts)
        if value.work <= 0:
            return False
        ratio = value.ratio * (1.0 - 0.5 * self.options.tol)
        if ratio <= 0:
            self.proven = 0.0, RatioProof(ratio=0.0, nodes=(), multipliers=())
            return False
        tree = make_tree(self.instance, ratio, self.counts)
        found_at: list[int] = []

        def ask(solved: int, bound: float) -> bool:
            if tree.counts is not None and not found_at:
                found_at.append(solved)
            is_enough = bool(found_at) and solved - found_at[0] >= PATIENCE
            return self._asks(ratio, self.solved + solved) or is_enough

        result = tree.run(ask)
        self.solved += result.num_solved
        self.ratios += 1
        if result.counts is None:
            self._note(ratio, result)
            return False
        self.counts = result.counts
        if self.options.heuristic:
            self.counts, _ = exchange_counts(self.instance, self.counts, lambda steps: self._asks(ratio))
        if self.reason is not None:
            self._note(ratio, result)
        return True

    def _note(self, ratio: float, result: TreeResult) -> None:
        """Keep a tree as the proof."""
        bound = min(bound_of(self.instance, ratio, result), evaluate(self.instance, self.counts).ratio)
        self.leaves = sum(node.bid is None for node in result.nodes)
        self.proven = bound, RatioProof(ratio=ratio, nodes=result.nodes, multipliers=result.multipliers)

    def _asks(self, ratio: float, solved: int = 0) -> bool:
        """Ask the stopping rule."""
        state = SolveState(
            elapsed_s=self.clock.elapsed_s,
            iterations=solved,
            objective=ratio or None,
            sense=Sense.MINIMISE,
        )
        self._progress.update(solved, {"objective": ratio or None})
        reason = self._stop(state)
        if reason is not None and self.reason is None:
            self.reason = reason
        return reason is not None

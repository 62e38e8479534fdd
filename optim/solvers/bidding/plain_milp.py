"""The plain programme by HiGHS in Dinkelbach's method: a cross-check on small instances."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from optim.core.arrays import IntArray
from optim.core.driver import AbstractIteration, Monitor, Outcome, SolverState, run_iteration
from optim.core.errors import SolverError, check_in
from optim.core.registry import SUPPORTED, Support, register
from optim.core.solution import Termination
from optim.models.bidding.cost_per_work import evaluate
from optim.models.bidding.instance import BiddingInstance
from optim.solvers.bidding.outcome import AbstractBiddingSolver, can_work, is_answer, outcome_of, root_bound
from optim.solvers.bidding.steps import GreedySearch, LocalSearch
from optim.solvers.lp.highs import CompiledModel, HighsState, solve_with_highs

MAX_STEPS = 30
STEP_TOL = 1e-9
"""A step that lowers the ratio by less, relatively, is the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainMilpOptions:
    """Options of `plain-milp`.

    Parameters
    ----------
    pieces
        Tangents of a smooth scalability curve, at most 10,000.
    mip_gap
        Absolute gap of each step's programme, relative to the fixed cost; to the cost of the footprint it begins with, up to
        a tenth of a cent, where that is more.
    """

    pieces: int = 48
    mip_gap: float = 1e-6

    def __post_init__(self) -> None:
        check_in("[1, 10000]", self, "pieces")
        check_in("(0, 1)", self, "mip_gap")


@register("plain-milp", problem="bidding")
class PlainMilpSolver(AbstractBiddingSolver[PlainMilpOptions]):
    """Dinkelbach's method on the plain mixed-integer programme, each step by HiGHS on one thread.

    HiGHS' own bounds come without a proof that could be checked: the stated bound is the relaxation's. Iterations are
    steps of the method.
    """

    summary: ClassVar[str] = "the plain mixed-integer programme by HiGHS, in Dinkelbach's method (cross-check)"
    options_type: ClassVar[type[PlainMilpOptions]] = PlainMilpOptions

    def supports(self, instance: BiddingInstance) -> Support:
        """Refuse instances without a linear form."""
        from optim.models.bidding.programme import supports_programme

        reason = supports_programme(instance)
        return SUPPORTED if reason is None else Support(is_supported=False, reason=reason)

    def run(self, instance: BiddingInstance, options: PlainMilpOptions, monitor: Monitor, seed: int) -> Outcome:
        """Step from the greedy footprint until the ratio stays."""
        with monitor.clock.phase("solve"):
            counts = run_iteration(GreedySearch(instance), monitor.part())
            if not is_answer(instance, counts, evaluate(instance, counts)):
                counts = run_iteration(LocalSearch(instance, counts), monitor.part())
        steps = run_iteration(PlainSteps(instance, counts, options, monitor, seed), monitor, task=self.name)
        proven = None
        if monitor.reason is None and steps.reason is None:
            with monitor.clock.phase("bound"):
                proven = root_bound(instance, steps.counts)
        return outcome_of(
            instance,
            steps.counts,
            proven,
            iterations=steps.number,
            figures={"nodes": float(steps.nodes)},
            termination=steps.reason,
        )


class PlainSteps(AbstractIteration["PlainSteps"]):
    """Dinkelbach's method on programmes that HiGHS solves. It is its own result.

    Its `counts` are the best footprint, `number` the steps, `nodes` HiGHS' nodes, `reason` why HiGHS ended early.
    """

    def __init__(
        self, instance: BiddingInstance, counts: IntArray, options: PlainMilpOptions, monitor: Monitor, seed: int
    ) -> None:
        self.instance, self.counts, self._options, self._monitor, self._seed = instance, counts, options, monitor, seed
        self.number = self.nodes = 0
        self.reason: Termination | None = None
        self._value = evaluate(instance, counts)
        self._is_done = not (can_work(instance) and self._value.work > 0)

    def is_done(self) -> bool:
        """Tell whether the ratio stays, or HiGHS can't go on."""
        return self._is_done or self.number >= MAX_STEPS

    def standing(self) -> SolverState:
        """Return the steps and the ratio."""
        ratio = self._value.ratio
        return SolverState(iterations=self.number, objective=ratio if np.isfinite(ratio) else None)

    def finish(self, reason: Termination | None) -> "PlainSteps":
        """Return itself."""
        return self

    def step(self) -> None:
        """Minimise ``cost - ratio * work`` at the present ratio."""
        from optim.models.bidding.programme import counts_of, parametric_model

        clock = self._monitor.clock
        with clock.phase("build"):
            model = parametric_model(self.instance, self._value.ratio, pieces=self._options.pieces)
            compiled = CompiledModel(model)
        with clock.phase("solve"):
            outcome = solve_with_highs(
                compiled,
                time_limit_s=self._monitor.remaining_s,
                seed=self._seed,
                options={
                    "mip_abs_gap": self._options.mip_gap * max(self.instance.fixed_usd, min(self._value.cost, 1e-3)),
                    "mip_rel_gap": 0.0,
                },
                watch=self._watch,
            )
        self.number, self.nodes = self.number + 1, self.nodes + outcome.nodes
        self.reason = None if outcome.termination is Termination.OPTIMAL else outcome.termination
        if self.reason is Termination.NUMERICAL_ERROR:
            raise SolverError(
                f"HiGHS failed on the programme at the ratio {self._value.ratio:.9g}; try another solver, or another highspy"
            )
        self._is_done = True
        if outcome.has_values:
            found = counts_of(model, self.instance)
            value = evaluate(self.instance, found)
            is_first = is_answer(self.instance, found, value) > is_answer(self.instance, self.counts, self._value)
            if is_first or value.ratio < self._value.ratio * (1 - STEP_TOL):
                self.counts, self._value, self._is_done = found, value, self.reason is not None

    def _watch(self, state: HighsState) -> Termination | None:
        self._monitor.is_over()
        return self._monitor.reason

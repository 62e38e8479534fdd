"""The plain programme by HiGHS in Dinkelbach's method: a cross-check on small instances."""

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
from optim.solvers.bidding.local_search.steps import greedy_counts
from optim.solvers.bidding.outcome import can_work, finish, root_bound
from optim.solvers.lp.highs_model import CompiledModel, HighsState, solve_with_highs

MOST_STEPS = 30
STEP_TOL = 1e-9
"""A step that lowers the ratio by less, relatively, is the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainMilpOptions:
    """Options of `plain-milp`.

    Parameters
    ----------
    pieces
        Tangents of a smooth scalability curve.
    mip_gap
        Absolute gap of each step's programme, relative to the cost of the footprint it begins with.
    """

    pieces: int = 48
    mip_gap: float = 1e-6

    def __post_init__(self) -> None:
        if self.pieces < 1:
            raise InvalidOptionError(f"pieces must be at least 1, got {self.pieces}")
        if not 0 < self.mip_gap < 1:
            raise InvalidOptionError(f"mip_gap must be in (0, 1), got {self.mip_gap}")


@register("plain-milp", problem="bidding")
class PlainMilpSolver:
    """Dinkelbach's method on the plain mixed-integer programme, each step by HiGHS on one thread.

    HiGHS' own bounds come without a proof that could be checked: the stated bound is the relaxation's. Iterations are
    steps of the method.
    """

    name: str
    problem: str
    summary = "the plain mixed-integer programme by HiGHS, in Dinkelbach's method (cross-check)"
    options_type = PlainMilpOptions

    def supports(self, instance: BiddingInstance) -> Support:
        """Refuse instances without a linear form."""
        from optim.models.bidding.programme import supports_programme

        reason = supports_programme(instance)
        return SUPPORTED if reason is None else Support(is_supported=False, reason=reason)

    def solve(
        self,
        instance: BiddingInstance,
        *,
        options: PlainMilpOptions,
        stop: StoppingCriterion,
        seed: int,
        progress: Progress,
    ) -> Solution:
        """Step from the greedy footprint until the ratio stays."""
        clock = PhaseClock()
        progress.start(self.name)
        with clock.phase("solve"):
            counts, _ = greedy_counts(instance)
        reason, steps, nodes = None, 0, 0
        while can_work(instance) and steps < MOST_STEPS and reason is None:
            reason = stop(SolveState(elapsed_s=clock.elapsed_s, iterations=steps, sense=Sense.MINIMISE))
            before = evaluate(instance, counts).ratio
            if reason is not None or not np.isfinite(before):
                break
            found, reason, more = _step(instance, before, options, stop, seed, clock)
            steps, nodes = steps + 1, nodes + more
            progress.update(steps, {"objective": before})
            if found is None or evaluate(instance, found).ratio >= before * (1 - STEP_TOL):
                break
            counts = found
        proven = None
        if reason is None:
            with clock.phase("bound"):
                proven = root_bound(instance, counts)
        progress.finish()
        return finish(
            self,
            instance,
            options,
            counts=counts,
            proven=proven,
            termination=reason or Termination.COMPLETED,
            seed=seed,
            clock=clock,
            iterations=steps,
            extra={"nodes": float(nodes)},
        )


def _step(
    instance: BiddingInstance,
    ratio: float,
    options: PlainMilpOptions,
    stop: StoppingCriterion,
    seed: int,
    clock: PhaseClock,
) -> tuple[IntArray | None, Termination | None, int]:
    """Minimise ``cost - ratio * work``; return the footprint, a reason to stop, and HiGHS' nodes."""
    from optim.models.bidding.programme import counts_of, parametric_model

    with clock.phase("build"):
        model = parametric_model(instance, ratio, pieces=options.pieces)
        compiled = CompiledModel(model)

    def watch(state: HighsState) -> Termination | None:
        return stop(SolveState(elapsed_s=clock.elapsed_s, iterations=0, sense=Sense.MINIMISE))

    with clock.phase("solve"):
        outcome = solve_with_highs(
            compiled,
            time_limit_s=stop.remaining_s(clock.elapsed_s),
            seed=seed,
            options={"mip_abs_gap": options.mip_gap * max(instance.fixed_usd, 1e-3), "mip_rel_gap": 0.0},
            watch=watch,
        )
    reason = None if outcome.termination is Termination.OPTIMAL else outcome.termination
    return (counts_of(model, instance) if outcome.has_values else None), reason, outcome.nodes

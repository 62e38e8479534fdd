"""What the solvers without a proof of their own share: search, then a bound by the relaxation alone."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from optim.core.clock import PhaseClock
from optim.core.progress import Progress
from optim.core.registry import SUPPORTED, Support
from optim.core.solution import Solution
from optim.core.status import Termination
from optim.core.stopping import SolveState, StoppingCriterion
from optim.models.bidding.instance import BiddingInstance, IntArray
from optim.solvers.bidding.local_search.steps import Halt
from optim.solvers.bidding.outcome import finish, root_bound


@dataclass(frozen=True, slots=True, kw_only=True)
class HeuristicOptions:
    """Options of `greedy` and `exchange`.

    Parameters
    ----------
    bound
        Bound the optimum by the relaxation afterwards.
    """

    bound: bool = True


class AbstractHeuristic:
    """A search for a footprint; iterations are its steps."""

    name: str
    problem: str
    summary: str
    options_type: type[Any] = HeuristicOptions

    def supports(self, instance: BiddingInstance) -> Support:
        """Every instance is supported."""
        del instance
        return SUPPORTED

    @abstractmethod
    def search(self, instance: BiddingInstance, halt: Halt) -> tuple[IntArray, int]:
        """Return a footprint and the number of steps."""

    def solve(
        self,
        instance: BiddingInstance,
        *,
        options: HeuristicOptions,
        stop: StoppingCriterion,
        seed: int,
        progress: Progress,
    ) -> Solution:
        """Search until nothing improves, then bound."""
        clock = PhaseClock()
        reasons: list[Termination] = []
        progress.start(self.name)

        def halt(steps: int) -> bool:
            reason = stop(SolveState(elapsed_s=clock.elapsed_s, iterations=steps))
            progress.update(steps)
            if reason is not None:
                reasons.append(reason)
            return reason is not None

        with clock.phase("solve"):
            counts, steps = self.search(instance, halt)
        proven = None
        if options.bound and not reasons:
            with clock.phase("bound"):
                proven = root_bound(instance, counts)
        progress.finish()
        return finish(
            self,
            instance,
            options,
            counts=counts,
            proven=proven,
            termination=reasons[0] if reasons else Termination.COMPLETED,
            seed=seed,
            clock=clock,
            iterations=steps,
        )

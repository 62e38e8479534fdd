"""What the solvers without a proof of their own share: search, then a bound by the relaxation alone."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from optim.core.driver import Monitor, Outcome, drive
from optim.models.bidding.instance import BiddingInstance, IntArray
from optim.solvers.bidding.local_search.steps import GreedySearch, LocalSearch
from optim.solvers.bidding.outcome import AbstractBiddingSolver, outcome_of, root_bound


@dataclass(frozen=True, slots=True, kw_only=True)
class HeuristicOptions:
    """Options of all heuristics.

    Parameters
    ----------
    bound
        Bound the optimum by the relaxation afterwards.
    """

    bound: bool = True


HeuristicOptionsT = TypeVar("HeuristicOptionsT", bound=HeuristicOptions)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Found:
    """A footprint, the steps to it, and figures of the search."""

    counts: IntArray
    steps: int
    figures: Mapping[str, float]


class AbstractHeuristic(AbstractBiddingSolver[HeuristicOptionsT], Generic[HeuristicOptionsT]):
    """A search for a footprint; iterations are its steps."""

    @abstractmethod
    def search(self, instance: BiddingInstance, options: HeuristicOptionsT, monitor: Monitor) -> Found:
        """Return a footprint."""

    def run(self, instance: BiddingInstance, options: HeuristicOptionsT, monitor: Monitor, seed: int) -> Outcome:
        """Search until nothing improves, then bound."""
        with monitor.clock.phase("solve"):
            found = self.search(instance, options, monitor)
        proven = None
        if options.bound and monitor.reason is None:
            with monitor.clock.phase("bound"):
                proven = root_bound(instance, found.counts)
        return outcome_of(instance, found.counts, proven, iterations=found.steps, figures=found.figures)


def exchanged(instance: BiddingInstance, monitor: Monitor, task: str | None = None) -> Found:
    """Return the footprint that exchanges lead to from the greedy one."""
    greedy = GreedySearch(instance)
    search = LocalSearch(instance, drive(greedy, monitor, task=task), begun=greedy.steps)
    return Found(counts=drive(search, monitor, task=task), steps=search.steps, figures={})

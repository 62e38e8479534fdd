"""The online primal-dual algorithm with exchangeable parts.

Jobs are decided one by one in order of arrival, then as listed. The algorithm finds the job's best schedule at the
present prices and admits the job if the payoff is positive. It then allocates the schedule's resources and updates the
prices of the affected rows. A decision is never revised.

A random tie order (`TieOrder`) shuffles the jobs that arrive in one slot. It also breaks ties between equally good
schedules at random: it raises every price in the search by an amount far too small to change the set of best schedules.

Source: Bao, Peng, Wu, Li, INFOCOM 2018, Algorithm 1.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from optim.core.arrays import FloatArray
from optim.core.driver import AbstractIteration, Monitor, SolverState, run_iteration
from optim.core.solution import Termination
from optim.models.admission.data import MICRO
from optim.models.admission.decision import AdmissionPlan
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.posted_prices.price_functions import JobValueStats, PriceFunction, PriceRanges, SeenRanges
from optim.solvers.admission.pricing.servers import (
    ClusterState,
    FoundSchedule,
    ResidualSearch,
    ScheduleFinder,
    plan_of,
    uses,
)

TIE_SHARE = 1e-10
"""Payoffs that differ by less than this share of the job's value count as equal. The share is well above the rounding
error of a cost of thousands of worker-slots, and well below differences between schedules that matter."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TieOrder:
    """A random order of the jobs of each slot, and of equally good schedules.

    Parameters
    ----------
    jobs
        All jobs in order of decision: by arrival, then at random.
    worker_perturbation, ps_perturbation
        Shape (slots, resources, servers), in [0, 1): rise of each row's price, as a fraction of the job's largest rise.
    """

    jobs: tuple[int, ...]
    worker_perturbation: FloatArray
    ps_perturbation: FloatArray


def draw_tie_order(instance: AdmissionInstance, rng: np.random.Generator) -> TieOrder:
    """Draw an order; every order of the jobs of a slot is equally likely."""
    shape = (instance.horizon, instance.num_resources)
    worker = rng.random((*shape, instance.worker_servers.num_servers))
    is_shared = instance.has_shared_servers
    return TieOrder(
        jobs=tuple(np.lexsort((rng.random(instance.num_jobs), instance.jobs.arrival)).tolist()),
        worker_perturbation=worker,
        ps_perturbation=worker if is_shared else rng.random((*shape, instance.ps_servers.num_servers)),
    )


class TiedSearch:
    """The exact best schedule within residual capacity, with ties broken by a random order.

    Parameters
    ----------
    instance
        The jobs and the cluster.
    search
        Finds best schedules at given prices.
    order
        The tie order.
    stats
        Values and sizes of the jobs that can complete alone.

    Notes
    -----
    The payoff is at the true prices. It may be below the best payoff by `TIE_SHARE` of the job's value. A job whose best
    payoff is not above that amount may be rejected.
    """

    def __init__(
        self, instance: AdmissionInstance, search: ResidualSearch, order: TieOrder, stats: JobValueStats
    ) -> None:
        self._instance, self._search, self._order = instance, search, order
        units = stats.worker_slots * (stats.max_worker.sum(axis=1) + stats.max_ps.sum(axis=1))
        self._rise = np.zeros(instance.num_jobs)
        self._rise[stats.jobs] = TIE_SHARE * stats.most / np.where(units > 0, units, 1.0)

    def find(self, job: int, state: ClusterState, floor: float) -> FoundSchedule | None:
        """Return a schedule of the largest payoff above `floor`, None if there is none."""
        rise, order = self._rise[job], self._order
        worker = state.worker.price + rise * order.worker_perturbation
        ps = worker if state.is_shared else state.ps.price + rise * order.ps_perturbation
        schedule = self._search.find_at(job, state, floor, worker, ps)
        return None if schedule is None else replace(schedule, payoff=schedule.value - self._cost(schedule, state))

    def _cost(self, schedule: FoundSchedule, state: ClusterState) -> float:
        """Return a schedule's cost at the state's unperturbed prices."""
        cost = 0.0
        for side, use in zip(state.sides, uses(self._instance, schedule), strict=True):
            cost += float(np.sum(side.price[use.slot, :, use.server] * use.amount)) / MICRO
        return cost


PAYOFF_TOL = 1e-12
"""A payoff above this share of the schedule's value counts as positive; smaller ones may be rounding errors."""


class AcceptanceRule(Protocol):
    """Decide on a job's best schedule."""

    @property
    def floor(self) -> float:
        """Payoff up to which a schedule is never accepted, so that the search may omit it."""
        ...

    def accepts(self, schedule: FoundSchedule) -> bool:
        """Return whether the job is admitted with this schedule."""
        ...


@dataclass(frozen=True, slots=True)
class PositivePayoff:
    """Admit a job if its schedule's value exceeds its cost."""

    floor: float = 0.0

    def accepts(self, schedule: FoundSchedule) -> bool:
        """Return whether the payoff is positive beyond rounding."""
        return schedule.payoff > PAYOFF_TOL * schedule.value


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobDecision:
    """The decision on one job.

    Parameters
    ----------
    job
        Index of the job.
    is_accepted
        Whether the job was admitted.
    schedule
        Best schedule of the job at the prices at its arrival; None if none has a payoff above the floor.
    seconds
        Wall-clock time of the decision, price updates included.
    dual_step, primal_step
        Increase of the dual and of the primal objective.
    worker_price, ps_price
        Shape (servers, slots, resources): prices at the job's arrival; None unless recorded.
    """

    job: int
    is_accepted: bool
    schedule: FoundSchedule | None
    seconds: float
    dual_step: float
    primal_step: float
    worker_price: FloatArray | None = None
    ps_price: FloatArray | None = None

    @property
    def payoff(self) -> float:
        """mu: the payoff of the best schedule, 0 if it isn't positive."""
        return max(0.0, self.schedule.payoff) if self.schedule is not None else 0.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OnlineRun:
    """All decisions of a run, in order.

    Parameters
    ----------
    plan
        Schedules of the admitted jobs.
    decisions
        The decision on each job, in the order in which they were made.
    initial_dual
        Value of the empty cluster at the first prices, D_0.
    state
        The cluster after the last decision.
    """

    plan: AdmissionPlan
    decisions: tuple[JobDecision, ...]
    initial_dual: float
    state: ClusterState

    @property
    def objective(self) -> float:
        """Summed value of the admitted jobs."""
        return float(sum(decision.primal_step for decision in self.decisions))

    @property
    def final_dual(self) -> float:
        """Payoffs at arrival plus the value of the capacity at the final prices: a bound only where the theorems hold."""
        return sum(decision.payoff for decision in self.decisions) + self.state.capacity_value()

    @property
    def largest_step_ratio(self) -> float:
        """Largest ratio of dual to primal increase in one decision: the measured A."""
        return max(
            (decision.dual_step / decision.primal_step for decision in self.decisions if decision.is_accepted),
            default=0.0,
        )


class OnlineAlgorithm(AbstractIteration[OnlineRun]):
    """The algorithm with one decision per step; `run_online` makes all decisions.

    Parameters
    ----------
    instance
        The cluster and the jobs; a decision never reads later jobs.
    bounds
        Range of each row's price.
    function
        Price function.
    finder
        Finds best schedules; the exact search within residual capacities by default.
    acceptance
        Default: admit jobs with a positive payoff.
    keeps_prices
        Whether each decision records its prices: memory of servers x slots x resources per decision.
    order
        Jobs in order of decision. Default: by arrival, then as listed.
    seen
        Extends the bounds by each job before its decision; without it `bounds` are fixed for the run.
    """

    def __init__(
        self,
        instance: AdmissionInstance,
        *,
        bounds: PriceRanges,
        function: PriceFunction,
        finder: ScheduleFinder | None = None,
        acceptance: AcceptanceRule | None = None,
        keeps_prices: bool = False,
        order: Sequence[int] | None = None,
        seen: SeenRanges | None = None,
    ) -> None:
        self._instance = instance
        self._seen = seen
        self._finder = ResidualSearch(instance) if finder is None else finder
        self._acceptance = PositivePayoff() if acceptance is None else acceptance
        self._keeps_prices = keeps_prices
        self.state = ClusterState(instance, bounds, function)
        by_arrival = np.argsort(instance.jobs.arrival, kind="stable") if order is None else order
        self.order: list[int] = [int(job) for job in by_arrival]
        self.decisions: list[JobDecision] = []
        self._initial_dual = self.state.capacity_value()
        self._earned = 0.0

    def is_done(self) -> bool:
        """Return whether every job is decided."""
        return len(self.decisions) == len(self.order)

    def step(self) -> None:
        """Decide on the next job."""
        self.decisions.append(self.decide(self.order[len(self.decisions)]))
        self._earned += self.decisions[-1].primal_step

    def standing(self) -> SolverState:
        """Return the number of decided jobs and the objective."""
        return SolverState(iterations=len(self.decisions), objective=self._earned)

    def finish(self, reason: Termination | None) -> OnlineRun:
        """Return the run; jobs that were not yet decided are rejected."""
        admitted = [made.schedule for made in self.decisions if made.is_accepted and made.schedule is not None]
        return OnlineRun(
            plan=plan_of(admitted),
            decisions=tuple(self.decisions),
            initial_dual=self._initial_dual,
            state=self.state,
        )

    def decide(self, job: int) -> JobDecision:
        """Decide on a job, and allocate its resources if it is admitted."""
        begun = time.perf_counter()
        if self._seen is not None and self._seen.see(job):
            self.state.reprice(self._seen.ranges)
        server_prices = (
            (self.state.worker.prices_by_server(), self.state.ps.prices_by_server())
            if self._keeps_prices
            else (None, None)
        )
        schedule = self._finder.find(job, self.state, self._acceptance.floor)
        is_accepted = schedule is not None and self._acceptance.accepts(schedule)
        primal = dual = 0.0
        if schedule is not None and is_accepted:
            primal = schedule.value
            dual = max(0.0, schedule.payoff) + self._take(schedule)
        return JobDecision(
            job=job,
            is_accepted=is_accepted,
            schedule=schedule,
            seconds=time.perf_counter() - begun,
            dual_step=dual,
            primal_step=primal,
            worker_price=server_prices[0],
            ps_price=server_prices[1],
        )

    def _take(self, schedule: FoundSchedule) -> float:
        """Allocate a schedule's resources; return the increase of the capacity's value at the prices."""
        growth = 0.0
        for side, use in zip(self.state.sides, uses(self._instance, schedule), strict=True):
            before, after = side.take(use)
            growth += float(np.sum((after - before) * side.capacity[use.slot, :, use.server])) / MICRO
        return growth


def run_online(
    instance: AdmissionInstance,
    *,
    bounds: PriceRanges,
    function: PriceFunction,
    finder: ScheduleFinder | None = None,
    acceptance: AcceptanceRule | None = None,
    keeps_prices: bool = False,
    order: Sequence[int] | None = None,
    seen: SeenRanges | None = None,
) -> OnlineRun:
    """Decide on all jobs of an instance, online.

    The parameters are those of `OnlineAlgorithm`.

    Examples
    --------
    >>> from optim.models.admission.instance import AdmissionInstance
    >>> from optim.solvers.admission.posted_prices.price_functions import PriceFloorRule, price_ranges
    >>> from optim.solvers.admission.posted_prices.price_functions import ZeroStartPrice
    >>> def admit(instance: AdmissionInstance) -> OnlineRun:
    ...     bounds = price_ranges(instance, PriceFloorRule.UNIT_FREE_LAMBDA)
    ...     return run_online(instance, bounds=bounds, function=ZeroStartPrice())
    """
    return run_iteration(
        OnlineAlgorithm(
            instance,
            bounds=bounds,
            function=function,
            finder=finder,
            acceptance=acceptance,
            keeps_prices=keeps_prices,
            order=order,
            seen=seen,
        ),
        Monitor(),
    )

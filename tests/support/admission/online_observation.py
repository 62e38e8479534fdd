"""A run of the online algorithm, recorded row by row so that its theorems can be checked.

All numbers are recomputed from the instance, the decisions and the prices at each decision; the algorithm's own sums
are not used.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from optim.core.arrays import FloatArray
from optim.core.driver import Monitor, run_iteration
from optim.models.admission.data import MICRO
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.online import OnlineOptions, PriceKind, make_bounds, make_function
from optim.solvers.admission.posted_prices.online_run import AcceptanceRule, JobDecision, OnlineAlgorithm, OnlineRun
from optim.solvers.admission.posted_prices.price_functions import (
    JobValueStats,
    PriceFunction,
    PriceRanges,
    SideRanges,
    job_value_stats,
)
from optim.solvers.admission.pricing.servers import ClusterState, FoundSchedule, ResidualSearch, ScheduleFinder
from tests.support.admission.oracle import Layout, Packing, best_payoff, held_pairs, job_key, lp_optimum, packing

STRICT_OPTIONS = tuple(
    OnlineOptions(price=price, strict=True, unit_free=is_unit_free)
    for price in PriceKind
    for is_unit_free in (True, False)
)
"""The variants for which a theorem holds."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The parts that a mutant exchanges; None and the identity leave the original."""

    bounds: Callable[[PriceRanges], PriceRanges] = lambda bounds: bounds
    function: Callable[[PriceFunction], PriceFunction] = lambda function: function
    finder: Callable[[AdmissionInstance], ScheduleFinder] | None = None
    acceptance: AcceptanceRule | None = None
    state: Callable[[AdmissionInstance, PriceRanges, PriceFunction], ClusterState] = ClusterState


TRUE_PARTS = Parts()


class WatchingFinder:
    """Pass on the results of a finder, and record its results for empty servers."""

    def __init__(self, finder: ScheduleFinder, unrestricted: ScheduleFinder) -> None:
        self._finder = finder
        self._unrestricted = unrestricted
        self.unrestricted: list[FoundSchedule | None] = []

    def find(self, job: int, state: ClusterState, floor: float) -> FoundSchedule | None:
        """Return the inner finder's schedule."""
        self.unrestricted.append(self._unrestricted.find(job, state, 0.0))
        return self._finder.find(job, state, floor)


@dataclass(frozen=True, kw_only=True, eq=False)
class Ground:
    """Facts about an instance that do not depend on decisions; shared by several runs."""

    instance: AdmissionInstance

    @cached_property
    def layout(self) -> Layout:
        """Rows of single servers."""
        return Layout(instance=self.instance)

    @cached_property
    def worth(self) -> JobValueStats:
        """The quantities from which the bounds of the prices are computed."""
        return job_value_stats(self.instance)

    @cached_property
    def finders(self) -> tuple[ScheduleFinder, ScheduleFinder]:
        """The search within the residual capacity, and the search on empty servers."""
        return ResidualSearch(self.instance), ResidualSearch(self.instance, is_residual_checked=False)

    @cached_property
    def problem(self) -> Packing:
        """The packing programme over server classes, all schedules listed."""
        return packing(self.instance, is_by_class=True)

    @cached_property
    def lp(self) -> float:
        """OPT_LP."""
        return lp_optimum(self.problem)

    @cached_property
    def _known_payoffs(self) -> dict[tuple[object, ...], float]:
        return {}

    def best_payoff(self, job: int, prices: FloatArray) -> float:
        """Return the best payoff at row prices on empty servers; equal jobs at equal prices are asked once."""
        key = (*job_key(self.instance, job), prices.tobytes())
        if key not in self._known_payoffs:
            self._known_payoffs[key] = best_payoff(self.layout, job, prices)
        return self._known_payoffs[key]

    @cached_property
    def density(self) -> FloatArray:
        """The most that any job may pay for a unit of a row: its largest value over its smallest use."""
        return self._row_limits[0]

    @cached_property
    def eps(self) -> float:
        """The largest share of a row that one job can take: all its workers on one server in one slot."""
        return float(self._row_limits[1].max(initial=0.0))

    @cached_property
    def _row_limits(self) -> tuple[FloatArray, FloatArray]:
        """Density and largest share of each row, over the jobs that can finish and the slots they may use."""
        instance, layout = self.instance, self.layout
        density, share = np.zeros(len(layout.capacity)), np.zeros(len(layout.capacity))
        free = np.zeros(len(layout.capacity))
        jobs = {job_key(instance, job): job for job in range(instance.num_jobs)}.values()
        for job in jobs:
            worth = best_payoff(layout, job, free)
            window = range(int(instance.jobs.arrival[job]), int(instance.deadline[job]) + 1) if worth > 0 else ()
            segments = range(*instance.jobs.segment_offset[job : job + 2].tolist())
            for demand, units, places, is_worker in (
                (instance.jobs.worker_demand, instance.workers_per_server, layout.worker_places, True),
                (instance.jobs.ps_demand, instance.ps_per_server, layout.ps_places, False),
            ):
                for segment, slot, (place, (c, _)) in product(segments, window, enumerate(places)):
                    most = int(units[segment, c, slot])
                    if most == 0:
                        continue
                    rows = layout.rows(place, slot, is_worker=is_worker)
                    need, room = demand[segment] / MICRO, layout.capacity[rows]
                    pays = np.divide(worth, need, out=np.zeros_like(need), where=need > 0)
                    density[rows] = np.maximum(density[rows], pays)
                    used = self._largest_use(job, segment, place, slot) if instance.has_shared_servers else most * need
                    taken = np.divide(used, room, out=np.zeros_like(need), where=room > 0)
                    share[rows] = np.maximum(share[rows], taken)
        return density, share

    def _largest_use(self, job: int, segment: int, place: int, slot: int) -> FloatArray:
        """Return the most that a job may use of each resource of a shared server."""
        jobs, needed = self.instance.jobs, self.instance.ps_needed[job]
        pairs = np.array([*held_pairs(self.layout, segment, place, slot, (len(needed) - 1, int(needed[-1])))])
        use: FloatArray = (pairs[:, :1] * jobs.worker_demand[segment] + pairs[:, 1:] * jobs.ps_demand[segment]) / MICRO
        return use.max(axis=0)

    def by_class(self, rows: FloatArray) -> FloatArray:
        """Return values of single servers' rows, equal within a class, for the rows of `problem`."""
        classes = Layout(instance=self.instance, is_by_class=True)
        result = np.zeros(len(classes.capacity))
        for slot in range(self.instance.horizon):
            for is_worker, places in ((True, self.layout.worker_places), (False, self.layout.ps_places)):
                for place, (c, _) in enumerate(places):
                    target = classes.rows(c, slot, is_worker=is_worker)
                    result[target] = rows[self.layout.rows(place, slot, is_worker=is_worker)]
        return result


@dataclass(frozen=True, kw_only=True, eq=False)
class Observation:
    """A finished run with the quantities of its theorem; arrays are over the rows of `layout`.

    Parameters
    ----------
    prices
        Shape (decisions + 1, rows): prices at each decision, then the final prices.
    usage
        Shape (decisions, rows): usage of each decision, in units of the resource.
    lower, upper
        Logarithms of L (or lambda) and of U.
    """

    ground: Ground
    options: OnlineOptions
    run: OnlineRun
    unrestricted: tuple[FoundSchedule | None, ...]
    prices: FloatArray
    usage: FloatArray
    lower: FloatArray
    upper: FloatArray

    @property
    def instance(self) -> AdmissionInstance:
        """The instance."""
        return self.ground.instance

    @property
    def layout(self) -> Layout:
        """Its rows."""
        return self.ground.layout

    @property
    def lp(self) -> float:
        """OPT_LP."""
        return self.ground.lp

    @property
    def eps(self) -> float:
        """The largest share of a row that one job can take."""
        return self.ground.eps

    @property
    def is_zero_start(self) -> bool:
        """Whether Theorem B is meant, with prices from 0, and not Theorem A."""
        return self.options.price is PriceKind.ZERO_START

    @property
    def decisions(self) -> tuple[JobDecision, ...]:
        """The decisions, in order."""
        return self.run.decisions

    @cached_property
    def used_before(self) -> FloatArray:
        """Shape (decisions + 1, rows): usage before each decision, and at the end."""
        return np.vstack([np.zeros(len(self.layout.capacity)), np.cumsum(self.usage, axis=0)])

    @cached_property
    def payoff(self) -> FloatArray:
        """mu: payoff of each decision's best schedule, at least 0."""
        return np.array([0.0 if d.schedule is None else max(0.0, d.schedule.payoff) for d in self.decisions])

    @cached_property
    def value(self) -> FloatArray:
        """The earnings of each decision: the job's value at its last slot with workers, 0 if rejected."""
        return np.array(
            [
                float(self.instance.value[d.job, d.schedule.workers[:, 0].max()])
                if d.is_accepted and d.schedule
                else 0.0
                for d in self.decisions
            ]
        )

    @property
    def objective(self) -> float:
        """ALG."""
        return float(self.value.sum())

    @cached_property
    def start_scale(self) -> FloatArray:
        """lambda of each row in Theorem B, 0 in Theorem A."""
        return np.exp(self.lower) if self.is_zero_start else np.zeros(len(self.lower))

    @cached_property
    def growth(self) -> float:
        """A of the theorem, which bounds c dphi by A a (phi + lambda) on every row."""
        finite = np.isfinite(self.lower)
        if not finite.any():
            return 0.0 if self.is_zero_start else 1.0
        spread = (self.upper - self.lower)[finite]
        rise = np.logaddexp(0.0, spread) if self.is_zero_start else spread
        with np.errstate(over="ignore"):
            steep = np.expm1(rise * self.eps / (1 - self.eps)) / self.eps if self.eps > 0 else rise
        return float(steep.max()) if self.is_zero_start else max(1.0, float(steep.max()))

    @property
    def factor(self) -> float:
        """By how much the dual grows at most when the primal grows by 1."""
        return self.growth + max(1.0, self.growth) if self.is_zero_start else self.growth

    @cached_property
    def initial_dual(self) -> float:
        """D_0, the dual value of the empty cluster."""
        return float(self.prices[0] @ self.layout.capacity)

    @cached_property
    def final_dual(self) -> float:
        """Payoffs at arrival plus the capacity at final prices."""
        return float(self.payoff.sum() + self.prices[-1] @ self.layout.capacity)


def observe(ground: Ground, options: OnlineOptions, parts: Parts = TRUE_PARTS) -> Observation:
    """Run the online algorithm, and record its prices, usage and payoffs."""
    instance, layout = ground.instance, ground.layout
    rng = np.random.default_rng(0)
    bounds = parts.bounds(make_bounds(instance, options, rng, ground.worth))
    function = parts.function(make_function(instance, options))
    finder = WatchingFinder(ground.finders[0] if parts.finder is None else parts.finder(instance), ground.finders[1])
    algorithm = OnlineAlgorithm(
        instance,
        bounds=bounds,
        function=function,
        finder=finder,
        acceptance=parts.acceptance,
        keeps_prices=True,
    )
    algorithm.state = parts.state(instance, bounds, function)
    run = run_iteration(algorithm, Monitor())
    decisions = run.decisions
    sides = [(bounds.worker, instance.worker_servers)]
    if not instance.has_shared_servers:
        sides.append((bounds.ps, instance.ps_servers))

    def by_server(of: Callable[[SideRanges], FloatArray]) -> FloatArray:
        return np.concatenate([of(side)[servers.class_of_server].ravel() for side, servers in sides])

    final = [side.prices_by_server() for side in run.state.sides]
    met = [_flat([d.worker_price, d.ps_price], instance) for d in decisions]
    return Observation(
        ground=ground,
        options=options,
        run=run,
        unrestricted=tuple(finder.unrestricted),
        prices=np.array([*met, np.concatenate([price.ravel() for price in final])]),
        usage=np.array([_usage(layout, d) for d in decisions]).reshape(len(decisions), len(layout.capacity)),
        lower=by_server(lambda side: side.log_lower),
        upper=by_server(lambda side: side.log_upper),
    )


def _flat(prices: list[FloatArray | None], instance: AdmissionInstance) -> FloatArray:
    kept = prices[:1] if instance.has_shared_servers else prices
    return np.concatenate([price.ravel() for price in kept if price is not None])


def _usage(layout: Layout, decision: JobDecision) -> FloatArray:
    """Return the usage of each row by a decision, by the rows of its schedule."""
    usage = np.zeros(len(layout.capacity))
    if decision.is_accepted and decision.schedule is not None:
        jobs = layout.instance.jobs
        for rows, demand, is_worker in (
            (decision.schedule.workers, jobs.worker_demand, True),
            (decision.schedule.ps, jobs.ps_demand, False),
        ):
            for slot, server, count, segment in rows.tolist():
                usage[layout.rows(server, slot, is_worker=is_worker)] += count * demand[segment] / MICRO
    return usage

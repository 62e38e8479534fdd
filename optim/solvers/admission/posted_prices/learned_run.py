"""A day at learned prices, slot by slot: posted prices, plan repair, and a guard against wrong forecasts.

Of the m_c servers of each class c, the guard gets m'_c = ceil(a m_c). The paper's rule R decides on every job of the day
for these servers, as if it ran alone on them. The learned rule uses the other servers. A job that R admits at value v
runs as R scheduled it, unless the learned rule offers it a value of at least v. In that case R still counts its
reservation as used, and the learned rule may use the idle capacity.

**Theorem.** For any forecast,

1. the plan earns at least the objective of R alone on its share of the servers, job by job;
2. if conditions C1 to C6 of R's price function hold with ratio kappa (`posted_prices.theorems`), then
   ``optimum <= kappa / rho * objective + wide``. Here rho = min over classes of m'_c / m_c (>= a). A job is
   wide if it may use more of a class in a slot than the guard's servers of that class provide; `wide` is the total
   best value of these jobs.

Proof. 1: A reservation of R is used by R's job, by jobs of the learned rule, or not at all; R's next decision takes only
capacity that R counts as free. So R's decisions don't depend on the forecast, and each job that it admits at v earns at
least v. 2: take an optimal point x of the packing LP over the classes of the full cluster, without the schedules of wide
jobs: its value is at least optimum - wide. By the definition of wide, each of its schedules fits into m'_c servers of each
class. Also rho x uses at most rho m_c c <= m'_c c of each row. So the LP of R's share has a value of at least
rho (optimum - wide). That value is at most kappa times R's objective, which is at most kappa times the objective.

Rounding the share up to full servers can only make rho larger than a; a class with one server belongs to the guard.
Splitting the servers is the construction of docs/mathematics/learned-prices.md, section 5. The guard costs little with a good
forecast, because the learned rule uses R's idle reservations.

Without a history, U and the lower scale come from the jobs that have arrived, including the present one. After the share
`warm_up` of the slots, the jobs seen so far represent the rest of the day: they are repeated block by block, and prices are
learned from them. Prices are learned again each time the elapsed time has doubled.

References
----------
Jasin, Kumar, "A re-solving heuristic with bounded revenue loss for network revenue management with customer choice",
2012, DOI 10.1287/moor.1120.0537. Vera, Banerjee, "The Bayesian prophet: a low-regret framework for online decision
making", 2021, DOI 10.1287/mnsc.2020.3624. Agrawal, Wang, Ye, "A dynamic near-optimal algorithm for online linear
programming", 2014, DOI 10.1287/opre.2014.1289 (the one-time and the dynamic learning algorithm, without a history).
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.driver import AbstractIteration, Monitor, SolverState
from optim.core.solution import Termination
from optim.core.stopping import IterationLimit
from optim.models.admission.data import Jobs, ServerClasses, as_int_array
from optim.models.admission.decision import AdmissionPlan
from optim.models.admission.instance import AdmissionInstance, merge_days, take_jobs
from optim.solvers.admission.packing.capacity_rows import CapacityRows
from optim.solvers.admission.packing.packing_lp import PackingLP
from optim.solvers.admission.packing.subgradient import SubgradientOptions
from optim.solvers.admission.posted_prices.forecast import FILL, smoothed
from optim.solvers.admission.posted_prices.online_run import PAYOFF_TOL, OnlineAlgorithm
from optim.solvers.admission.posted_prices.price_functions import (
    JobValueStats,
    PriceFloorRule,
    PriceRanges,
    SeenRanges,
    SideRanges,
    ZeroStartPrice,
    job_value_stats,
    price_ranges,
)
from optim.solvers.admission.posted_prices.reservations import (
    PATIENCE,
    BestEffortQueue,
    Reservations,
    improve,
    left_by_class,
)
from optim.solvers.admission.posted_prices.theorems import RatioClaim, ratio_claim
from optim.solvers.admission.pricing.classes import JobTables, Prices
from optim.solvers.admission.pricing.servers import SERVER, ClusterState, FoundSchedule, Use, uses

FREE = 1e-12
"""Price of one unit of uncontested capacity, in utility units: negligible, but it breaks ties for the smaller schedule."""


@dataclass(frozen=True, slots=True)
class PostedPrice:
    """A constant price function: both ends of each range are the posted price."""

    def price(self, share: FloatArray, log_lower: FloatArray, log_upper: FloatArray) -> FloatArray:
        """Return the posted prices."""
        del share, log_lower
        return np.asarray(np.exp(log_upper))


def posted_state(instance: AdmissionInstance, prices: Prices) -> ClusterState:
    """Return the empty cluster at posted prices by server class."""
    worker = _constant(prices.worker)
    ps = worker if instance.has_shared_servers else _constant(prices.ps)
    return ClusterState(instance, PriceRanges(worker=worker, ps=ps), PostedPrice())


def post(state: ClusterState, prices: Prices) -> None:
    """Replace the posted prices; allocations don't change."""
    for side, array in zip(state.sides, (prices.worker, prices.ps), strict=False):
        side.price[:] = array.transpose(1, 2, 0)[:, :, side.servers.class_of_server]


@contextmanager
def discounted(state: ClusterState, slot: int, *, ahead: float) -> Iterator[list[FloatArray]]:
    """Multiply the prices of each slot by the share of its capacity that jobs arriving after `slot` are expected to take.

    The share is 0 in `slot` itself: only jobs that have arrived can still use its capacity. In the k-th slot after it, the
    share is 1 - exp(-k / ahead), or 1 if `ahead` is 0. Yields the posted prices of the
    workers' and of the PSs' servers, shape (slots, resources, servers) each, and restores them afterwards.
    """
    posted = [side.price for side in state.sides]
    for side, usual in zip(state.sides, posted, strict=True):
        later = np.maximum(np.arange(len(usual)) - slot, 0)
        wanted = 1 - np.exp(-later / ahead) if ahead > 0 else np.minimum(later, 1)
        side.price = np.asarray(usual * wanted[:, None, None] + FREE)
    try:
        yield posted
    finally:
        for side, usual in zip(state.sides, posted, strict=True):
            side.price = usual


def _constant(prices: FloatArray) -> SideRanges:
    with np.errstate(divide="ignore"):
        logarithm = np.log(prices)
    return SideRanges(log_lower=logarithm, log_upper=logarithm)


WHOLE_TOL = 1e-9
"""A share of a class within this distance of an integer number of servers is rounded to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardClaim:
    """The second part of the theorem for one instance.

    Parameters
    ----------
    rule
        Claim of the paper's rule, computed on the full cluster: its conditions concern jobs and single servers.
    rho
        Smallest share of a class that belongs to the guard.
    wide
        Summed best value of the wide jobs.
    """

    rule: RatioClaim
    rho: float
    wide: float

    @property
    def ratio(self) -> float:
        """Kappa / rho."""
        return self.rule.ratio / self.rho

    @property
    def statement(self) -> str:
        """The claim in one sentence."""
        if self.rule.holds:
            return f"competitive ratio {self.ratio:.6g} plus {self.wide:.6g} on the guard's servers {self.rule.reason}"
        return self.rule.statement


class Guard:
    """The paper's rule on its share of the servers.

    Parameters
    ----------
    instance
        Cluster and jobs.
    share
        Share a of each class' servers, in (0, 1].
    stats
        The jobs that U and the lower scale are derived from, taken from the history.
    function
        Price function of the paper's rule.
    """

    def __init__(
        self, instance: AdmissionInstance, share: float, stats: JobValueStats, function: ZeroStartPrice
    ) -> None:
        self._instance, self._function = instance, function
        self.alone = on_share(instance, share)
        self._bounds: PriceRanges = price_ranges(self.alone, PriceFloorRule.UNIT_FREE_LAMBDA, stats=stats)
        self._rule = OnlineAlgorithm(self.alone, bounds=self._bounds, function=function)
        self._servers = tuple(
            _first_of_classes(all_servers, part)
            for all_servers, part in (
                (instance.worker_servers, self.alone.worker_servers),
                (instance.ps_servers, self.alone.ps_servers),
            )
        )
        self.earned = 0.0
        """Summed value of the jobs that R admits."""

    def reserve(self, state: ClusterState) -> None:
        """Take the guard's servers out of the learned rule's cluster."""
        for side, servers in zip(state.sides, self._servers, strict=False):
            side.residual[:, :, servers] = 0.0

    def decide(self, job: int) -> FoundSchedule | None:
        """Let R decide on a job; return its schedule on the full cluster's servers, or None if R rejects it."""
        decision = self._rule.decide(job)
        if not decision.is_accepted or decision.schedule is None:
            return None
        self.earned += decision.schedule.value
        rows = []
        for part, servers in zip((decision.schedule.workers, decision.schedule.ps), self._servers, strict=True):
            moved = part.copy()
            moved[:, SERVER] = servers[part[:, SERVER]]
            rows.append(moved)
        return replace(decision.schedule, workers=rows[0], ps=rows[1])

    def claim(self, stats: JobValueStats) -> GuardClaim:
        """Return the theorem's claim for this instance; `stats` describes the instance's jobs."""
        # The conditions concern jobs and single servers' rows, which are the same in the full cluster.
        rule = ratio_claim(self._instance, self._bounds, self._function, stats=stats)
        rho, wide = least_share(self._instance, self.alone), wide_value(self._instance, self.alone)
        return GuardClaim(rule=rule, rho=rho, wide=wide)


def on_share(instance: AdmissionInstance, share: float) -> AdmissionInstance:
    """Return the instance restricted to the guard's servers."""

    def part(servers: ServerClasses) -> ServerClasses:
        count = np.ceil(share * servers.count - WHOLE_TOL).astype(np.int64)
        return replace(servers, count=as_int_array(np.maximum(1, count).tolist()))

    workers = part(instance.worker_servers)
    ps = workers if instance.has_shared_servers else part(instance.ps_servers)
    return replace(instance, worker_servers=workers, ps_servers=ps)


def least_share(instance: AdmissionInstance, alone: AdmissionInstance) -> float:
    """Return rho, the smallest share of a class' servers that belongs to the guard."""
    pairs = ((instance.worker_servers, alone.worker_servers), (instance.ps_servers, alone.ps_servers))
    return float(min((part.count / all_servers.count).min(initial=1.0) for all_servers, part in pairs))


def wide_value(instance: AdmissionInstance, alone: AdmissionInstance) -> float:
    """Return the summed best value of jobs that may use more of a class per slot than the guard's servers hold."""
    max_ps = np.array([table[-1] for table in instance.ps_needed], dtype=np.int64)
    sides = (
        (instance.workers_per_server, instance.max_workers, instance.worker_servers, alone.worker_servers),
        (instance.ps_per_server, max_ps, instance.ps_servers, alone.ps_servers),
    )
    needed = [
        _servers_needed(units_per_server, most[instance.segment_job], all_servers)
        for units_per_server, most, all_servers, _ in sides
    ]
    if instance.has_shared_servers:
        needed = [needed[0] + needed[1]]
    is_wide = np.zeros(instance.num_jobs, dtype=np.bool_)
    for servers, (_, _, all_servers, part) in zip(needed, sides, strict=False):
        exceeds = np.minimum(servers, all_servers.count[None, :, None]) > part.count[None, :, None]
        np.logical_or.at(is_wide, instance.segment_job, exceeds.any(axis=(1, 2)))
    return float(instance.value.max(axis=1, initial=0.0)[is_wide].sum())


def _servers_needed(units_per_server: IntArray, most: IntArray, servers: ServerClasses) -> IntArray:
    """Return the number of servers that a job's largest use of a class in a slot fills, shape (segments, classes, slots)."""
    wanted = np.minimum(most[:, None, None], units_per_server * servers.count[None, :, None])
    return np.asarray(-(-wanted // np.maximum(units_per_server, 1)))


def _first_of_classes(all_servers: ServerClasses, part: ServerClasses) -> IntArray:
    """Return the indices of each class' first servers in the full cluster."""
    first = np.concatenate([[0], np.cumsum(all_servers.count)[:-1]])
    ranges = [np.arange(start, start + count) for start, count in zip(first.tolist(), part.count.tolist(), strict=True)]
    return np.concatenate(ranges).astype(np.int64)


TOL, MAX_ROUNDS = 1e-2, 6
"""Relative gap at which the LP for the rest of a day counts as solved, and its maximal number of masters."""

STEPS, STEPS_BETWEEN = 20, 6
"""Polyak steps before the first master, and after each."""

MIN_LEFT = 1e-2
"""Minimal share of its capacity that each row keeps in the LP: a row without capacity would get no price."""


def prices_for_the_rest(
    cluster: AdmissionInstance, expected: Jobs, state: ClusterState, slot: int, start: Prices, fill: float
) -> Prices:
    """Return the LP's prices for the slots from `slot` on, given free capacity and expected jobs.

    Past slots keep the prices of `start`. If no job is expected, all slots keep these prices.

    Parameters
    ----------
    cluster
        Today's cluster.
    expected
        The jobs expected during the day; jobs that arrive before `slot` don't count.
    state
        The servers' free capacity.
    start
        Prices of all slots, from which the LP starts.
    fill
        Share of the capacities available to the LP.
    """
    tables = JobTables.build(merge_days([expected], cluster))
    rows = CapacityRows.of(tables)
    is_expected = tables.arrival >= slot
    if not is_expected.any():
        return start
    residual = np.concatenate([side.ravel() for side in left_by_class(state)])
    shapes = (rows.worker_shape, rows.ps_shape)
    is_ahead = [np.broadcast_to((np.arange(shape[1]) >= slot)[None, :, None], shape).ravel() for shape in shapes]
    capacity = fill * np.maximum(residual, MIN_LEFT * rows.capacity) * np.concatenate(is_ahead)
    now, last = replace(rows, capacity=capacity), rows.flat(start)
    rest = replace(tables, value=np.where(is_expected[:, None], tables.value, 0.0))
    solution = PackingLP(rest, now).run(
        Monitor().part(IterationLimit(MAX_ROUNDS)),
        tol=TOL,
        first=SubgradientOptions(num_steps=STEPS, add_every=2),
        between=SubgradientOptions(num_steps=STEPS_BETWEEN),
        start=np.where(capacity > 0, last, 0.0),
    )
    return rows.prices(np.where(capacity > 0, solution.point.row_prices, last))


class RisingPrices:
    """Zero-start prices of a run's cluster, with constants from the jobs seen so far."""

    def __init__(self, instance: AdmissionInstance, state: ClusterState) -> None:
        self._state = state
        self._seen = SeenRanges(instance, PriceFloorRule.UNIT_FREE_LAMBDA, job_value_stats(instance))
        state.reprice(self._seen.ranges, ZeroStartPrice())

    def meet(self, job: int) -> None:
        """Include a job's value; if it changes the constants, recompute all prices."""
        if self._seen.see(job):
            self._state.reprice(self._seen.ranges)

    def reprice_used(self, uses: tuple[Use, ...]) -> None:
        """Recompute the prices of the cells that a schedule uses."""
        for side, use in zip(self._state.sides, uses, strict=True):
            side.reprice_cells(use)


def repeated(instance: AdmissionInstance, slot: int) -> Jobs:
    """Return the jobs that arrived before `slot`, repeated block by block over the rest of the day."""
    seen = np.flatnonzero(instance.jobs.arrival < slot)
    block = take_jobs(instance.jobs, seen)
    shifts = range(slot, instance.horizon, slot)
    return merge_days([replace(block, arrival=block.arrival + shift) for shift in shifts], instance).jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Settings of a day's run.

    Parameters
    ----------
    smoothing, price_scale
        Number of slots over which prices are averaged before posting, and the factor that multiplies the averages.
    replan
        Repair moves per slot (0: admitted schedules never change).
    promised_share
        Share of a schedule's value at admission that the promised completion slot has to earn.
    standby
        Maximal number of rejected jobs that wait for unreserved capacity (0: rejected jobs leave).
    """

    smoothing: int
    price_scale: float
    replan: int
    promised_share: float
    standby: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DayResult:
    """The outcome of a day.

    Parameters
    ----------
    plan
        Executed schedules of all completed jobs.
    unfinished
        Executed work of rejected jobs that didn't complete; it earns 0 and isn't a plan of the problem.
    decisions
        Whether each arrived job was admitted.
    promised
        Promised completion slot of each admitted job.
    completed_on_standby
        Completion slot of each rejected job that completed.
    prices
        Prices at the end of the day.
    decision_s, resolve_s
        Seconds of each decision and of each solve for new prices.
    guard_earned
        Value that the guard's rule earns alone.
    """

    plan: AdmissionPlan
    unfinished: AdmissionPlan
    decisions: dict[int, bool]
    promised: dict[int, int]
    completed_on_standby: dict[int, int]
    prices: Prices
    decision_s: list[float] = field(default_factory=list)
    resolve_s: list[float] = field(default_factory=list)
    guard_earned: float = 0.0


class LearnedDay(AbstractIteration[DayResult]):
    """One day; each step is one slot.

    Parameters
    ----------
    instance, tables
        The cluster and the day's jobs; each job is unknown before its arrival.
    run_config
        Options of the day's run.
    prices
        The forecast's prices; None without a history.
    fill
        Share of the capacities available when prices are computed again.
    warm_up
        Without a history: share of the slots after which prices are learned.
    guard
        The paper's rule on its share of the servers, or None.
    seed
        Seed of the repair moves.
    should_stop
        Called before each move; returns whether the run should end.
    """

    def __init__(
        self,
        instance: AdmissionInstance,
        tables: JobTables,
        run_config: RunConfig,
        *,
        prices: Prices | None,
        fill: float = FILL,
        warm_up: float = 0.1,
        guard: Guard | None = None,
        seed: int = 0,
        should_stop: Callable[[], bool] | None = None,
    ) -> None:
        self._instance, self._tables, self._run_config, self._seed = instance, tables, run_config, seed
        self._guard, self._fill, self._is_over = guard, fill, should_stop
        self._prices = _no_prices(instance) if prices is None else prices
        state = posted_state(instance, self._prices)
        self._reservations = Reservations(instance, state, tables)
        self._standby = BestEffortQueue(self._reservations, run_config.standby)
        if guard is not None:
            guard.reserve(state)
        self._rising = RisingPrices(instance, state) if prices is None else None
        self._learn_at = max(1, int(np.ceil(warm_up * instance.horizon))) if prices is None else instance.horizon
        self._by_slot: list[list[int]] = [[] for _ in range(instance.horizon)]
        for job in np.argsort(instance.jobs.arrival, kind="stable").tolist():
            self._by_slot[instance.jobs.arrival[job]].append(job)
        self._slot, self._earned = 0, 0.0
        self.decisions: dict[int, bool] = {}
        self._decision_s: list[float] = []
        self._resolve_s: list[float] = []
        if prices is not None:
            self._post()

    def is_done(self) -> bool:
        """Return whether the day is over."""
        return self._slot == self._instance.horizon

    def step(self) -> None:
        """Run one slot: update prices if due, decide on arrivals, repair reservations, run admitted and waiting jobs."""
        slot = self._slot
        if slot > 0:
            self._prepare(slot)
        for job in self._by_slot[slot]:
            begun = time.perf_counter()
            self.decisions[job] = self._decide(job)
            self._decision_s.append(time.perf_counter() - begun)
            if self._run_config.standby and not self.decisions[job]:
                self._standby.add(job)
        # All arrivals of this slot are decided, so its free capacity is useful only to jobs that have arrived.
        state = self._reservations.state
        if self._run_config.replan and self._rising is None:
            with discounted(state, slot, ahead=0.0):
                rng = np.random.default_rng((self._seed, slot))
                improve(self._reservations, self._run_config.replan, rng, self._is_over)
        with discounted(state, slot, ahead=PATIENCE * self._instance.horizon) as posted:
            self._earned += self._standby.run_slot(slot, posted)
        self._reservations.run_slot(slot)
        self._slot += 1

    def standing(self) -> SolverState:
        """Return the number of decided jobs, and their summed value at admission and on standby."""
        return SolverState(iterations=len(self.decisions), objective=self._earned)

    def finish(self, reason: Termination | None) -> DayResult:
        """Return the day; a day that was cut short admits no further job and keeps its promises."""
        for slot in range(self._slot, self._instance.horizon):
            self._reservations.run_slot(slot)
        return DayResult(
            plan=self._reservations.plan(),
            unfinished=self._standby.unfinished(),
            decisions=self.decisions,
            promised=self._reservations.promised,
            completed_on_standby=self._standby.completed,
            prices=self._prices,
            decision_s=self._decision_s,
            resolve_s=self._resolve_s,
            guard_earned=0.0 if self._guard is None else self._guard.earned,
        )

    def _prepare(self, slot: int) -> None:
        """Learn prices for the rest of the day if they are due in `slot`."""
        if slot == self._learn_at:
            self._learn_at *= 2
            self._rising = None
            begun = time.perf_counter()
            instance, state = self._instance, self._reservations.state
            expected = repeated(instance, slot)
            self._prices = prices_for_the_rest(instance, expected, state, slot, self._prices, self._fill)
            self._post()
            self._resolve_s.append(time.perf_counter() - begun)

    def _post(self) -> None:
        even, scale = smoothed(self._prices, self._run_config.smoothing), self._run_config.price_scale
        post(self._reservations.state, Prices(worker=scale * even.worker, ps=scale * even.ps))

    def _decide(self, job: int) -> bool:
        """Decide on a job by the learned rule and the guard; return whether it is admitted."""
        if self._rising is not None:
            self._rising.meet(job)
        offered = self._reservations.find(job)
        if offered is not None and offered.payoff <= PAYOFF_TOL * offered.value:
            offered = None
        guarded = None if self._guard is None else self._guard.decide(job)
        if guarded is not None and (offered is None or offered.value < guarded.value):
            self._reservations.fix(guarded)
            self._earned += guarded.value
            return True
        if offered is None:
            return False
        if guarded is not None:
            self._reservations.free(guarded)
        self._admit(offered, 0.0 if guarded is None else guarded.value)
        return True

    def _admit(self, schedule: FoundSchedule, least: float) -> None:
        share = self._run_config.promised_share if self._run_config.replan else 1.0
        self._reservations.promise(schedule, max(least, share * schedule.value))
        self._earned += schedule.value
        if self._rising is not None:
            self._rising.reprice_used(uses(self._instance, schedule))


def _no_prices(instance: AdmissionInstance) -> Prices:
    shape = (instance.horizon, instance.num_resources)
    ps_classes = 0 if instance.has_shared_servers else instance.ps_servers.num_classes
    return Prices(worker=np.zeros((instance.worker_servers.num_classes, *shape)), ps=np.zeros((ps_classes, *shape)))

"""A day at learned prices, slot by slot: posted prices, plan repair, and a guard against wrong forecasts.

Of each class of m_c servers m'_c = ceil(a m_c) are the guard's. There the paper's rule R keeps its books: every job of the
day is offered to it, and its decisions are those that it would make alone on these servers. The learned rule decides on
the other servers. A job that R admits at value v runs as R has it, unless the learned rule offers it a value of at least v;
then R's reservation stays in its books, and the room, which nobody uses, is open to the learned rule.

**Theorem.** Whatever the forecast,

1. the plan earns at least what R earns alone on its share of the servers, job by job;
2. if conditions C1 to C6 of R's price function hold with ratio kappa (`posted_prices.theorems`), then
   ``optimum <= kappa / rho * objective + wide``, where rho = min over classes of m'_c / m_c (>= a), and `wide` is the
   summed best value of the jobs that may use more of some class in a slot than the guard's servers of it hold.

Proof. 1: R's books hold rooms of which each is run by R's job, by jobs of the learned rule that were let in, or by none;
R's next decision takes only what its books show as free. So R's decisions don't depend on the forecast, and each job that
it admits at v earns at least v. 2: take an optimal point x of the packing LP over classes of the whole cluster, without the
schedules of wide jobs: its value is at least optimum - wide. Each of its schedules fits into m'_c servers of each class by
the definition of wide, and rho x uses at most rho m_c c <= m'_c c of each row. So the LP of R's share is worth at least
rho (optimum - wide), and at most kappa times what R earns, which is at most kappa times the objective.

The share's whole servers make rho larger than a, never smaller; a class of one server is all the guard's. Splitting the
servers is the construction of docs/mathematics/learned-prices.md, section 3; letting the learned rule use R's idle books is
what makes the guard cheap where the forecast is good.

References
----------
Jasin, Kumar, "A re-solving heuristic with bounded revenue loss for network revenue management with customer choice",
2012, DOI 10.1287/moor.1120.0537. Vera, Banerjee, "The Bayesian prophet: a low-regret framework for online decision
making", 2021, DOI 10.1287/mnsc.2020.3624.

The rule's U and lower scale come from the jobs that have arrived, the present one included. After the first share of the
slots the jobs seen so far stand for the rest of the day: they are expected again and again, block by block, and prices are
learned from that; and again each time that the day has doubled.

Source: Agrawal, Wang, Ye, "A dynamic near-optimal algorithm for online linear programming", 2014,
DOI 10.1287/opre.2014.1289 (the one-time and the dynamic learning algorithm).
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
"""Price of a unit of room that nobody else can want, in utility units: little beside anything, and of two ways the smaller one."""


@dataclass(frozen=True, slots=True)
class PostedPrice:
    """A price function without a slope: both ends of each range are the posted price."""

    def price(self, share: FloatArray, log_lower: FloatArray, log_upper: FloatArray) -> FloatArray:
        """Return the posted prices."""
        del share, log_lower
        return np.asarray(np.exp(log_upper))


def posted_state(instance: AdmissionInstance, prices: Prices) -> ClusterState:
    """Return the empty cluster at posted prices, shape (classes, slots, resources) a side."""
    worker = _constant(prices.worker)
    ps = worker if instance.has_shared_servers else _constant(prices.ps)
    return ClusterState(instance, PriceRanges(worker=worker, ps=ps), PostedPrice())


def post(state: ClusterState, prices: Prices) -> None:
    """Post other prices; what is taken stays taken."""
    for side, array in zip(state.sides, (prices.worker, prices.ps), strict=False):
        side.price[:] = array.transpose(1, 2, 0)[:, :, side.servers.class_of_server]


@contextmanager
def discounted(state: ClusterState, slot: int, *, ahead: float) -> Iterator[list[FloatArray]]:
    """Count prices only for the part of the room that jobs arriving after `slot` will take.

    What is left of the slot itself is lost unless those who have arrived use it. Of the slot k later a part
    1 - exp(-k / ahead) is still wanted: all of it for `ahead` 0. Gives the posted prices, shape (slots, resources, servers)
    a side, which are back in force afterwards.
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
"""A share of a class this close to a whole number of servers is that number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardClaim:
    """The second part of the theorem on one instance.

    Parameters
    ----------
    rule
        The paper's rule's claim, on the whole cluster's rows (its conditions are about single servers).
    rho
        Least share of a class that is the guard's.
    wide
        Summed best value of wide jobs.
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
            return (
                f"no plan is worth more than {self.ratio:.6g} times this one plus {self.wide:.6g} "
                f"({self.rule.theorem} price on the guard's servers, C1 to C6 hold)"
            )
        return self.rule.statement


class Guard:
    """The paper's rule on its share of the servers.

    Parameters
    ----------
    instance
        Cluster and jobs.
    share
        a, in (0, 1].
    stats
        The jobs that U and the lower scale come from: the history's.
    function
        Its price function.
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
        """What R earns alone."""

    def reserve(self, state: ClusterState) -> None:
        """Take the guard's servers out of the learned rule's cluster."""
        for side, servers in zip(state.sides, self._servers, strict=False):
            side.residual[:, :, servers] = 0.0

    def decide(self, job: int) -> FoundSchedule | None:
        """Let R decide on a job; return its schedule on the whole cluster's servers, None if it refuses."""
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
        """Return what the theorem says of this instance; `stats` is its own jobs'."""
        # The conditions are about jobs and single servers' rows, which are the same in the whole cluster.
        rule = ratio_claim(self._instance, self._bounds, self._function, stats=stats)
        rho, wide = least_share(self._instance, self.alone), wide_value(self._instance, self.alone)
        return GuardClaim(rule=rule, rho=rho, wide=wide)


def on_share(instance: AdmissionInstance, share: float) -> AdmissionInstance:
    """Return the instance on the guard's servers only."""

    def part(servers: ServerClasses) -> ServerClasses:
        count = np.ceil(share * servers.count - WHOLE_TOL).astype(np.int64)
        return replace(servers, count=as_int_array(np.maximum(1, count).tolist()))

    workers = part(instance.worker_servers)
    ps = workers if instance.has_shared_servers else part(instance.ps_servers)
    return replace(instance, worker_servers=workers, ps_servers=ps)


def least_share(instance: AdmissionInstance, alone: AdmissionInstance) -> float:
    """Return rho, the least share of a class' servers that is the guard's."""
    pairs = ((instance.worker_servers, alone.worker_servers), (instance.ps_servers, alone.ps_servers))
    return float(min((part.count / all_servers.count).min(initial=1.0) for all_servers, part in pairs))


def wide_value(instance: AdmissionInstance, alone: AdmissionInstance) -> float:
    """Return the summed best value of jobs that may use more of a class in a slot than the guard's servers hold."""
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
    """Return the servers of each class that the most a schedule may use there fills, shape (segments, classes, slots)."""
    wanted = np.minimum(most[:, None, None], units_per_server * servers.count[None, :, None])
    return np.asarray(-(-wanted // np.maximum(units_per_server, 1)))


def _first_of_classes(all_servers: ServerClasses, part: ServerClasses) -> IntArray:
    """Return the numbers that the first servers of each class have in the whole cluster."""
    first = np.concatenate([[0], np.cumsum(all_servers.count)[:-1]])
    ranges = [np.arange(start, start + count) for start, count in zip(first.tolist(), part.count.tolist(), strict=True)]
    return np.concatenate(ranges).astype(np.int64)


TOL, MAX_ROUNDS = 1e-2, 6
"""Relative gap at which the LP for the rest of a day counts as solved, and its most masters."""

STEPS, STEPS_BETWEEN = 20, 6
"""Polyak steps before the first master, and after each."""

MIN_LEFT = 1e-2
"""Share of its capacity that a row counts on at least: what has no capacity has no price, and a full slot is expensive."""


def prices_for_the_rest(
    cluster: AdmissionInstance, expected: Jobs, state: ClusterState, slot: int, start: Prices, fill: float
) -> Prices:
    """Return prices for the slots from `slot` on: those of the LP over what is left and the jobs expected there.

    Past slots keep the prices of `start`, and all do where no job is expected.

    Parameters
    ----------
    cluster
        Today's cluster.
    expected
        The jobs that the day is expected to bring; those that arrive before `slot` don't count.
    state
        What is left of the servers.
    start
        Prices that the search begins at.
    fill
        Share of the capacities that the LP counts on.
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
    """Zero-start prices whose constants come from the jobs seen so far, on a cluster that others change."""

    def __init__(self, instance: AdmissionInstance, state: ClusterState) -> None:
        self._state = state
        self._seen = SeenRanges(instance, PriceFloorRule.UNIT_FREE_LAMBDA, job_value_stats(instance))
        state.reprice(self._seen.ranges, ZeroStartPrice())

    def meet(self, job: int) -> None:
        """Take a job's value into account; if it changes the constants, all prices follow."""
        if self._seen.see(job):
            self._state.reprice(self._seen.ranges)

    def reprice_used(self, uses: tuple[Use, ...]) -> None:
        """Price the cells again that a schedule has taken from."""
        for side, use in zip(self._state.sides, uses, strict=True):
            side.reprice_cells(use)


def repeated(instance: AdmissionInstance, slot: int) -> Jobs:
    """Return the jobs that arrived before `slot`, expected again block by block in the rest of the day."""
    seen = np.flatnonzero(instance.jobs.arrival < slot)
    block = take_jobs(instance.jobs, seen)
    shifts = range(slot, instance.horizon, slot)
    return merge_days([replace(block, arrival=block.arrival + shift) for shift in shifts], instance).jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """How a day is run.

    Parameters
    ----------
    smoothing, price_scale
        Slots over which prices are averaged before they are posted, and the factor that they are multiplied by.
    replan
        Moves in each slot (0: schedules stay as they were admitted).
    promised_share
        Share of a schedule's value at admission that the promised completion slot has to earn.
    standby
        Most refused jobs that wait for room that nobody holds (0: a refused job is gone).
    """

    smoothing: int
    price_scale: float
    replan: int
    promised_share: float
    standby: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DayResult:
    """What came of a day.

    Parameters
    ----------
    plan
        What ran of all jobs that are complete.
    unfinished
        What ran of refused jobs that didn't get to their end; it earns nothing, and is no plan of the problem.
    decisions, promised
        Whether each job that arrived was admitted, and the completion slots promised to those that were.
    completed_on_standby
        Completion slots of the others.
    prices
        The last prices.
    decision_s, resolve_s
        Seconds of each decision and of each solve for new prices.
    guard_earned
        What the guard's rule earns alone.
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
    """One day; a step is a slot.

    Parameters
    ----------
    instance, tables
        The cluster and the day's jobs, of which each is looked at from its arrival on.
    run_config
        How the day is run.
    prices
        The forecast's prices; None without a history.
    fill
        Share of the capacities that prices found again count on.
    warm_up
        Without a history: share of the slots after which prices are learned.
    guard
        The paper's rule on its share of the servers, or None.
    seed
        Of the moves.
    is_over
        Asked before each move whether the run is to end.
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
        """Tell whether the day is over."""
        return self._slot == self._instance.horizon

    def step(self) -> None:
        """Run one slot: prices, plans, arrivals, work."""
        slot = self._slot
        if slot > 0:
            self._prepare(slot)
        for job in self._by_slot[slot]:
            begun = time.perf_counter()
            self.decisions[job] = self._decide(job)
            self._decision_s.append(time.perf_counter() - begun)
            if self._run_config.standby and not self.decisions[job]:
                self._standby.add(job)
        # All who arrive in this slot are decided on: its room is for those who are here.
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
        """Tell how many jobs are decided, and what they were admitted at."""
        return SolverState(iterations=len(self.decisions), objective=self._earned)

    def finish(self, reason: Termination | None) -> DayResult:
        """Return the day; one that was cut short admits nobody else and keeps what it promised."""
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
        """Find prices again, where it is time to."""
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
        """Decide on a job; what it is promised is kept whatever comes."""
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

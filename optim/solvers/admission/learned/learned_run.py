"""A day at learned prices, slot by slot: prices and plans change between slots, jobs are decided on at their arrival."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from optim.core.driver import AbstractIteration, Standing
from optim.core.status import Termination
from optim.models.admission.instance import AdmissionInstance
from optim.models.admission.plan import AdmissionPlan
from optim.solvers.admission.learned.forecast import FILL, smoothed
from optim.solvers.admission.learned.guard import Guard
from optim.solvers.admission.learned.posted import discounted, post, posted_state
from optim.solvers.admission.learned.replan import improve
from optim.solvers.admission.learned.reservations import Reservations
from optim.solvers.admission.learned.resolving import Resolver
from optim.solvers.admission.learned.standby import PATIENCE, Standby
from optim.solvers.admission.learned.warm_up import RisingPrices, repeated
from optim.solvers.admission.posted_prices.online_run import PAYOFF_TOL
from optim.solvers.admission.pricing.class_pricing import Prices
from optim.solvers.admission.pricing.job_tables import JobTables
from optim.solvers.admission.pricing.server_search import FoundSchedule, uses


@dataclass(frozen=True, slots=True, kw_only=True)
class Conduct:
    """How a day is run.

    Parameters
    ----------
    smoothing, price_scale
        Slots over which prices are averaged before they are posted, and the factor that they are multiplied by.
    resolve_every, resolve_drift, resolve_rounds
        Slots between two solves (0: never), the drift from the expected path that also asks for one (0: none does),
        and the most masters of one solve.
    replan
        Moves in each slot (0: schedules stay as they were admitted).
    promised_share
        Share of a schedule's value at admission that the promised completion slot has to earn.
    standby
        Most refused jobs that wait for room that nobody holds (0: a refused job is gone).
    """

    smoothing: int
    price_scale: float
    resolve_every: int
    resolve_drift: float
    resolve_rounds: int
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
    decided, promised
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
    decided: dict[int, bool]
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
    conduct
        How the day is run.
    prices
        The forecast's prices; None without a history.
    resolver
        Who solves anew for the jobs that the forecast expects; None where prices stay.
    fill
        Share of the capacities that prices found anew count on.
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
        conduct: Conduct,
        *,
        prices: Prices | None,
        resolver: Resolver | None = None,
        fill: float = FILL,
        warm_up: float = 0.1,
        guard: Guard | None = None,
        seed: int = 0,
        is_over: Callable[[], bool] | None = None,
    ) -> None:
        self._instance, self._tables, self._conduct, self._seed = instance, tables, conduct, seed
        self._guard, self._fill, self._is_over = guard, fill, is_over
        self._prices = _no_prices(instance) if prices is None else prices
        state = posted_state(instance, self._prices)
        self._reservations = Reservations(instance, state, tables)
        self._standby = Standby(self._reservations, conduct.standby)
        if guard is not None:
            guard.reserve(state)
        self._rising = RisingPrices(instance, state) if prices is None else None
        self._learn_at = max(1, int(np.ceil(warm_up * instance.horizon))) if prices is None else instance.horizon
        self._resolver = resolver
        self._by_slot: list[list[int]] = [[] for _ in range(instance.horizon)]
        for job in np.argsort(instance.jobs.arrival, kind="stable").tolist():
            self._by_slot[instance.jobs.arrival[job]].append(job)
        self._slot, self._earned = 0, 0.0
        self.decided: dict[int, bool] = {}
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
            self.decided[job] = self._decide(job)
            self._decision_s.append(time.perf_counter() - begun)
            if self._conduct.standby and not self.decided[job]:
                self._standby.add(job)
        # All who arrive in this slot are decided on: its room is for those who are here.
        state = self._reservations.state
        if self._conduct.replan and self._rising is None:
            with discounted(state, slot, ahead=0.0):
                rng = np.random.default_rng((self._seed, slot))
                improve(self._reservations, self._conduct.replan, rng, self._is_over)
        with discounted(state, slot, ahead=PATIENCE * self._instance.horizon) as posted:
            self._earned += self._standby.run_slot(slot, posted)
        self._reservations.run_slot(slot)
        self._slot += 1

    def standing(self) -> Standing:
        """Tell how many jobs are decided, and what they were admitted at."""
        return Standing(iterations=len(self.decided), objective=self._earned)

    def finish(self, reason: Termination | None) -> DayResult:
        """Return the day; one that was cut short admits nobody else and keeps what it promised."""
        for slot in range(self._slot, self._instance.horizon):
            self._reservations.run_slot(slot)
        return DayResult(
            plan=self._reservations.plan(),
            unfinished=self._standby.unfinished(),
            decided=self.decided,
            promised=self._reservations.promised,
            completed_on_standby=self._standby.completed,
            prices=self._prices,
            decision_s=self._decision_s,
            resolve_s=self._resolve_s,
            guard_earned=0.0 if self._guard is None else self._guard.earned,
        )

    def _prepare(self, slot: int) -> None:
        """Find prices anew, where it is time to."""
        if slot == self._learn_at:
            self._learn_at *= 2
            self._resolver = Resolver(
                self._instance, [repeated(self._instance, slot)], self._conduct.resolve_rounds, self._fill
            )
            self._rising = None
            self._resolve(slot)
        elif self._resolver is not None and self._is_due(slot, self._resolver):
            self._resolve(slot)

    def _is_due(self, slot: int, resolver: Resolver) -> bool:
        every, drift = self._conduct.resolve_every, self._conduct.resolve_drift
        if every and slot % every == 0:
            return True
        return drift > 0 and resolver.drift(self._reservations.state, slot, self._prices) > drift

    def _resolve(self, slot: int) -> None:
        assert self._resolver is not None, "only called with something expected"
        begun = time.perf_counter()
        self._prices = self._resolver.solve(self._reservations.state, slot, self._prices)
        self._post()
        self._resolve_s.append(time.perf_counter() - begun)

    def _post(self) -> None:
        even, scale = smoothed(self._prices, self._conduct.smoothing), self._conduct.price_scale
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
        share = self._conduct.promised_share if self._conduct.replan else 1.0
        self._reservations.promise(schedule, max(least, share * schedule.value))
        self._earned += schedule.value
        if self._rising is not None:
            self._rising.taken(uses(self._instance, schedule))


def _no_prices(instance: AdmissionInstance) -> Prices:
    shape = (instance.horizon, instance.num_resources)
    ps_classes = 0 if instance.has_shared_servers else instance.ps_servers.num_classes
    return Prices(worker=np.zeros((instance.worker_servers.num_classes, *shape)), ps=np.zeros((ps_classes, *shape)))

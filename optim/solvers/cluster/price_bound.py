"""Prices of GPU-seconds that bound the mean completion time of any schedule from below, and how much better prices could be."""

from dataclasses import dataclass

import numpy as np

from optim.core.errors import InvalidOptionError
from optim.core.progress import Progress, SilentProgress
from optim.core.stopping import Interruption
from optim.models.cluster.proof import DivisibleSchedule, PriceProof
from optim.models.cluster.workload import US, Workload
from optim.models.cluster.world import Cluster, FloatArray, IntArray
from optim.solvers.cluster.gpu_pools import GpuPools, choose_pools, gpu_pools

NOTABLE, CLOSER, PATIENCE = 0.05, 0.7, 8
"""A gain of less than a twentieth of the way to the level is none; after eight steps without one the level comes closer."""

KEPT_STEPS, PARTS = 40, 4
"""Of the last steps' purchases parts of jobs are made, which are scheduled anew."""

MOST_PARTS = 100_000

MOST_CELLS, MOST_ROUNDS, CLOSE = 8_000, 60, 2e-4
"""Kinds of jobs times slots up to which a programme finds the best prices, in how many rounds, and when it is over."""

MOST_CALLS = 20_000
"""Of compiled loops over a class of jobs: of many classes there are fewer steps."""

DEAREST = 3.0
"""Time that there isn't can be had in the programme, at so many times the highest of the best prices."""

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceBoundOptions:
    """How prices are looked for.

    Parameters
    ----------
    slots
        How many slots of constant price there are at most.
    steps
        Steps of the search, half of them before slots are refined; fewer where jobs differ in their types of GPU a lot.

    Raises
    ------
    InvalidOptionError
        If a value is outside its range.
    """

    slots: int = 1_000
    steps: int = 100

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not (1 <= self.slots <= 10**6 and 0 <= self.steps <= 10**5):
            raise InvalidOptionError(f"slots must lie in 1..1e6 and steps in 0..1e5, got {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceBound:
    """What prices prove.

    Parameters
    ----------
    least_s
        Mean completion time in seconds that no schedule beats, by `proof`.
    dual_most_s
        What no prices prove more than: the mean completion time of `schedule`.
    proof
        The prices.
    schedule
        A schedule in which gangs are divisible.
    """

    least_s: float
    dual_most_s: float
    proof: PriceProof
    schedule: DivisibleSchedule


def bound_mean_completion(
    jobs: Workload,
    cluster: Cluster,
    options: PriceBoundOptions | None = None,
    stop: Interruption | None = None,
    progress: Progress | None = None,
) -> PriceBound:
    """Return a lower bound on the mean job completion time, the prices that prove it, and what no prices prove more than.

    Ascent on (D.1) of docs/mathematics/cluster.md from the prices of a schedule of divisible gangs; see `_Search`. A stop
    that is requested ends it with the best prices so far.
    """
    options = options or PriceBoundOptions()
    count, pools = len(jobs), gpu_pools(jobs, cluster)
    fluid = _Fluid(jobs, pools)
    alone_us = jobs.submit_us + pools.duration_us
    for end_us in (fluid.end_us, np.concatenate([fluid.end_us, alone_us])):
        edge = _slots(jobs.submit_us, end_us, max(1, options.slots // 2))
        search = _Search(jobs, pools, edge, fluid)
        steps = min(options.steps, max(1, MOST_CALLS // len(search.classes)))
        if progress is not None:
            search.progress = progress
        search.progress.start("finding the bound", 1 + steps + 2 * min(MOST_ROUNDS, steps))
        if steps:
            search.look_at(fluid.prices(edge))
        search.climb(steps // 2, stop)
        if search.best_price.any():  # else all prices over these slots may be worth nothing
            break
    search.refine(options.slots)
    search.climb(steps - steps // 2, stop)
    search.polish(min(MOST_ROUNDS, steps), stop)
    search.schedule_parts()
    search.progress.finish()
    least = search.best / count
    return PriceBound(
        least_s=least,
        dual_most_s=max(search.most_by_schedule / count * (1 + ROUNDING), least),
        proof=PriceProof(end_us=search.edge[1:], price=pools.by_type(search.best_price)),
        schedule=search.schedule,
    )


class _Fluid:
    """A schedule of divisible gangs by least work left, each job on one pool."""

    def __init__(self, jobs: Workload, pools: GpuPools) -> None:
        from optim.solvers.cluster.fluid_schedule import fluid_flows

        self.pool, self._parts = choose_pools(jobs, pools), []
        self.flow = np.zeros(len(jobs))
        factor = pools.ratio[pools.class_of, self.pool]
        for pool, gpus in enumerate(pools.gpus.tolist()):
            who = np.flatnonzero(self.pool == pool)
            width, duration = (
                jobs.gpus[who].astype(float),
                np.ceil(pools.duration_us[who] * factor[who]).astype(np.int64),
            )
            mark, marginal = np.zeros(2 * len(who), np.int64), np.zeros(2 * len(who), np.int64)
            facts = (jobs.submit_us[who], duration, width, float(gpus))
            self.flow[who], spells = fluid_flows(*facts, width, True, mark, marginal)
            end = int((jobs.submit_us[who] + self.flow[who].astype(np.int64)).max(initial=0))
            self._parts.append((mark[:spells], marginal[:spells], end, width, duration))
        self.end_us = jobs.submit_us + self.flow.astype(np.int64)
        everyone, by_work = np.arange(len(jobs)), np.zeros(0, np.int64)
        types = pools.type_of(self.pool)
        self.schedule = DivisibleSchedule(job=everyone, weight=np.ones(len(jobs)), gpu_type=types, start_us=by_work)

    def prices(self, edge: IntArray) -> FloatArray:
        """Return the prices at which nobody would change much in it; shape (pools, slots)."""
        from optim.solvers.cluster.fluid_schedule import prices_of_fluid

        return np.stack([prices_of_fluid(*part, edge) for part in self._parts])


def _slots(submit: IntArray, end: IntArray, most: int) -> IntArray:
    """Return ends of slots after a 0: all submissions and ends of jobs, or as many of them as there may be."""
    times = np.unique(np.concatenate([submit, end]))
    times = times[times > 0]
    if len(times) > most:
        half = max(1, most // 2)
        by_rank = times[(np.arange(1, half + 1) * len(times)) // half - 1]
        by_time = (np.arange(1, most - half + 1) * (int(times[-1]) / (most - half))).astype(np.int64)
        times = np.unique(np.concatenate([by_rank, by_time[by_time > 0]]))
    return np.concatenate([[0], times]).astype(np.int64)


def _dot(one: FloatArray, other: FloatArray | IntArray) -> float:
    """Return a sum of products, the same on every processor, which BLAS' is not."""
    return float((one * other).sum())


class _Search:
    """Prices over slots, the best so far, and steps from there.

    A step goes along the subgradient, the GPU-seconds that the minimisers buy a second of each slot less those that there
    are, as far as a level above the best value would be reached (Polyak); the level begins at the value of a schedule of
    divisible gangs, above which no prices come.

    Parameters
    ----------
    jobs, pools
        What is bounded.
    edge
        Ends of the slots in microseconds, after a 0.
    fluid
        A schedule whose total flow time no prices prove more than.
    """

    def __init__(self, jobs: Workload, pools: GpuPools, edge: IntArray, fluid: _Fluid) -> None:
        rows = np.column_stack([pools.class_of, jobs.submit_us, pools.duration_us, jobs.gpus])
        kinds, self.job, counts = np.unique(rows, axis=0, return_index=True, return_counts=True)
        self.own, self.release, self.duration = (np.ascontiguousarray(column) for column in kinds.T[:3])
        self.width, self.count = kinds[:, 3].astype(float), counts.astype(float)
        first = np.searchsorted(self.own, np.arange(len(pools.factor_ppm) + 1))
        self.classes = [slice(*each) for each in zip(first[:-1].tolist(), first[1:].tolist(), strict=True)]
        self.pools, self.usable, self.ratio = pools, pools.usable, pools.ratio
        self.some_pool = np.array([usable[0] for usable in pools.usable])[self.own]
        self.most = self.most_by_schedule = float(fluid.flow.sum()) / US
        self.schedule = fluid.schedule
        self.value, self.flow = np.empty(len(kinds)), np.empty(len(kinds))
        self.kept: list[tuple[float, FloatArray, IntArray]] = []
        self._use_slots(edge)
        self.best_price: FloatArray = np.zeros((len(pools.gpus), len(self.length)))
        self.best = _dot(self.count, self.duration) / US  # by prices of 0
        self.way = 1.0
        self.progress: Progress = SilentProgress()
        self.looks = 0

    def _use_slots(self, edge: IntArray) -> None:
        self.edge = edge
        self.first = np.searchsorted(edge, self.release, side="right") - 1
        self.length = np.diff(edge) / US
        self.slots = np.arange(len(self.length))

    def _cheapest(self, own: int, price: FloatArray) -> tuple[FloatArray, IntArray]:
        """Return what a class pays for time on its fastest pool's scale in each slot, and on which pool that is."""
        usable = self.usable[own]
        if len(usable) == 1:
            return price[usable[0]], np.full(len(self.length), usable[0])
        offers = price[usable] * self.ratio[own, usable][:, None]
        best = offers.argmin(axis=0)
        return offers[best, self.slots], usable[best]

    def look_at(self, price: FloatArray) -> float:
        """Return what prices prove of all jobs, and remember them if they are the best."""
        from optim.solvers.cluster.cheapest_time import best_ends

        for own, at in enumerate(self.classes):
            facts = (self.release[at], self.duration[at], self.width[at], self.edge, self.first[at])
            best_ends(*facts, self._cheapest(own, price)[0], self.value[at], self.flow[at])
        income = float(sum(gpus * _dot(self.length, row) for gpus, row in zip(self.pools.gpus, price, strict=True)))
        total = _dot(self.count, self.value) - income
        if total > self.best:
            self.best, self.best_price = total, price
        self.looks += 1
        self.progress.update(self.looks)
        return total

    def _gradient(self, price: FloatArray) -> tuple[FloatArray, IntArray]:
        """Return the GPU-seconds that the jobs would buy less those that there are, and the pool where each would end."""
        from optim.solvers.cluster.cheapest_time import use_of_slots

        gradient: FloatArray = -self.pools.gpus[:, None] * self.length
        pool, last = np.empty(len(self.release), np.int64), len(self.length) - 1
        for own, at in enumerate(self.classes):
            paid, source = self._cheapest(own, price)
            use = np.zeros(len(self.length)) if len(self.usable[own]) > 1 else gradient[self.usable[own][0]]
            facts = (self.release[at], self.duration[at], self.width[at] * self.count[at], self.edge, self.first[at])
            use_of_slots(*facts, paid, self.flow[at], use)
            if len(self.usable[own]) > 1:
                gradient[source, self.slots] += use * self.ratio[own, source]
            end = self.release[at] + self.flow[at] * US
            pool[at] = source[np.minimum(np.searchsorted(self.edge, end) - 1, last)]
        return gradient, pool

    def climb(self, steps: int, stop: Interruption | None) -> None:
        """Take so many steps from the best prices."""
        price, fruitless, self.way = self.best_price, 0, 1.0 if steps else self.way
        for _ in range(steps):
            before = self.best
            total = self.look_at(price)
            fruitless = 0 if self.best > before + NOTABLE * self.way * (self.most - before) else fruitless + 1
            if fruitless > PATIENCE:
                self.way, fruitless = CLOSER * self.way, 0
            gradient, pool = self._gradient(price)
            gradient[(price <= 0) & (gradient < 0)] = 0.0
            rate = gradient / self.length
            norm = _dot(gradient, rate)
            if norm == 0 or (stop is not None and stop.is_requested):
                break
            step = (self.best + self.way * (self.most - self.best) - total) / norm
            self.kept = [*self.kept[-KEPT_STEPS + 1 :], (step, self.flow.copy(), pool)]
            price = np.maximum(0.0, price + step * rate)

    def refine(self, most: int) -> None:
        """Halve the slots in which prices bend most, until there are so many."""
        fewer = MOST_CELLS // len(self.release)
        most = min(most, fewer) if len(self.length) <= fewer else most
        bend = np.zeros(len(self.length))
        for row in self.best_price:
            around = np.concatenate([row[:1], row, [0.0]])
            bend += np.maximum(abs(np.diff(around[:-1])), abs(np.diff(around[1:]))) * self.length
        bend[np.diff(self.edge) < 2] = 0.0
        chosen = np.argsort(-bend, kind="stable")[: max(0, most - len(bend))]
        chosen = np.sort(chosen[bend[chosen] > 0])
        middle = (self.edge[chosen] + self.edge[chosen + 1]) // 2
        price = np.insert(self.best_price, chosen + 1, self.best_price[:, chosen], axis=1)
        self._use_slots(np.insert(self.edge, chosen + 1, middle))
        self.best_price = price

    def _purchases(self, price: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
        """Return what one job of each kind buys: kinds, pools times slots, and GPU-seconds, sorted by kind."""
        from optim.solvers.cluster.cheapest_time import purchases

        found = []
        for own, at in enumerate(self.classes):
            paid, source = self._cheapest(own, price)
            facts = (self.release[at], self.duration[at], self.width[at], self.edge, self.first[at])
            kind, slot, seconds = purchases(*facts, paid, self.flow[at])
            pool = source[slot]
            found.append((kind + at.start, pool * len(self.length) + slot, seconds * self.ratio[own, pool]))
        kind, cell, seconds = (np.concatenate(column) for column in zip(*found, strict=True))
        return kind, cell, seconds

    def polish(self, rounds: int, stop: Interruption | None) -> None:
        """Find the best prices over these slots by column generation, where jobs and slots are few."""
        from optim.solvers.cluster.price_master import Master

        few = len(self.release) * len(self.length) * len(self.pools.gpus) <= MOST_CELLS
        if not few or self.best_price.max(initial=0.0) <= 0:
            return
        supply = np.ravel(self.pools.gpus[:, None] * self.length)
        master = Master(supply, self.count, DEAREST * float(self.best_price.max()))
        price = self.best_price
        for _ in range(rounds):
            new = 0
            for asked in (price, 0.5 * (price + self.best_price)):
                self.look_at(asked)
                new += master.add(*self._purchases(asked), self.flow)
            solved = master.solve()
            if solved is not None:
                who, flow, cell, weight = master.mixture()
                pool = np.where(cell >= 0, cell // len(self.length), self.some_pool[who])
                self.try_schedule(who, flow, weight, pool)
            if not new or solved is None or solved[0] <= self.best * (1 + CLOSE) or (stop and stop.is_requested):
                break
            price = solved[1].reshape(price.shape)

    def schedule_parts(self) -> None:
        """Try a schedule of parts of jobs, which are to end when the jobs did in the last steps."""
        if not sum(step for step, _, _ in self.kept) > 0 or len(self.release) * PARTS > MOST_PARTS:
            return
        steps, flows, pools = (np.array(column) for column in zip(*self.kept, strict=True))
        order = np.argsort(flows, axis=0, kind="stable")
        share = np.cumsum(steps[order], axis=0) / steps.sum()
        picked = np.stack([(share < (part + 0.5) / PARTS).sum(axis=0) for part in range(PARTS)])
        picked = np.take_along_axis(order, np.minimum(picked, len(flows) - 1), 0)
        chosen, pool = (np.take_along_axis(each, picked, 0).T.ravel() for each in (flows, pools))
        who = np.repeat(np.arange(len(self.release)), PARTS)
        self.try_schedule(who, chosen, np.repeat(self.count, PARTS) / PARTS, pool)

    def try_schedule(self, who: IntArray, flow: FloatArray, weight: FloatArray, pool: IntArray) -> None:
        """Find the total flow time of parts of jobs, with the weights' parts of their gangs, that are to end when said."""
        from optim.solvers.cluster.fluid_schedule import fluid_flows

        nothing = np.zeros(0, np.int64)
        duration = np.ceil(self.duration[who] * self.ratio[self.own[who], pool]).astype(np.int64)
        start = np.maximum(0.0, self.release[who] / US + flow - duration / US)
        total = 0.0
        for each, gpus in enumerate(self.pools.gpus.tolist()):
            at = np.flatnonzero(pool == each)
            at = at[np.argsort(self.release[who[at]], kind="stable")]
            facts = (self.release[who[at]], duration[at], self.width[who[at]] * weight[at], float(gpus))
            found, _ = fluid_flows(*facts, start[at], False, nothing, nothing)
            total += _dot(weight[at], found) / US
        if total < self.most_by_schedule:
            self.most_by_schedule = total
            self.schedule = DivisibleSchedule(
                job=self.job[who],
                weight=weight,
                gpu_type=self.pools.type_of(pool),
                start_us=np.rint(start * US).astype(np.int64),
            )

"""Prices of GPU-seconds that bound the mean completion time of any schedule from below, and how much better prices could be."""

from dataclasses import dataclass

import numpy as np

from optim.core.errors import InvalidOptionError
from optim.core.stopping import Interruption
from optim.models.cluster.proof import PriceProof
from optim.models.cluster.workload import US, Workload
from optim.models.cluster.world import Cluster, FloatArray, IntArray

NOTABLE, CLOSER, PATIENCE = 0.05, 0.7, 8
"""A gain of less than a twentieth of the way to the level is none; after eight steps without one the level comes closer."""

KEPT_STEPS, PARTS = 40, 4
"""Of the last steps' purchases parts of jobs are made, which are scheduled anew."""

MOST_PARTS = 100_000

MOST_CELLS, MOST_ROUNDS, CLOSE = 8_000, 60, 2e-4
"""Kinds of jobs times slots up to which a programme finds the best prices, in how many rounds, and when it is over."""

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
        Steps of the search, half of them before slots are refined.

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
        What no prices prove more than: the mean completion time of a schedule in which gangs are divisible.
    proof
        The prices.
    """

    least_s: float
    dual_most_s: float
    proof: PriceProof


def bound_mean_completion(
    jobs: Workload,
    cluster: Cluster,
    options: PriceBoundOptions | None = None,
    stop: Interruption | None = None,
) -> PriceBound:
    """Return a lower bound on the mean job completion time, the prices that prove it, and what no prices prove more than.

    Ascent on (D.1) of docs/mathematics/cluster.md from the prices of a schedule of divisible gangs; see `_Search`. A stop
    that is requested ends it with the best prices so far.
    """
    from optim.solvers.cluster.fluid_schedule import fluid_flows, prices_of_fluid

    options = options or PriceBoundOptions()
    count, width = len(jobs), jobs.gpus.astype(float)
    mark, marginal = np.zeros(2 * count, np.int64), np.zeros(2 * count, np.int64)
    facts = (jobs.submit_us, jobs.duration_us, width, float(cluster.num_gpus))
    flow, spells = fluid_flows(*facts, width, True, mark, marginal)
    end = jobs.submit_us + flow.astype(np.int64)
    search = _Search(jobs, cluster, _slots(jobs.submit_us, end, max(1, options.slots // 2)), float(flow.sum()) / US)
    told = (mark[:spells], marginal[:spells], int(end.max()), width, jobs.duration_us)
    if options.steps:
        search.look_at(prices_of_fluid(*told, search.edge))
    search.climb(options.steps // 2, stop)
    search.refine(options.slots)
    search.climb(options.steps - options.steps // 2, stop)
    search.polish(min(MOST_ROUNDS, options.steps), stop)
    most = min(search.most_by_mix, search.flow_of_parts())
    proof = PriceProof(end_us=search.edge[1:], price=search.best_price)
    return PriceBound(
        least_s=search.best / count, dual_most_s=max(most / count * (1 + ROUNDING), search.best / count), proof=proof
    )


def _slots(submit: IntArray, end: IntArray, most: int) -> IntArray:
    """Return ends of slots after a 0: all submissions and ends of a schedule, or as many of them as there may be."""
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
    jobs, cluster
        What is bounded.
    edge
        Ends of the slots in microseconds, after a 0.
    most
        What no prices reach more than, in seconds for all jobs.
    """

    def __init__(self, jobs: Workload, cluster: Cluster, edge: IntArray, most: float) -> None:
        rows = np.column_stack([jobs.submit_us, jobs.duration_us, jobs.gpus])
        kinds, counts = np.unique(rows, axis=0, return_counts=True)
        self.release, self.duration = (np.ascontiguousarray(column) for column in kinds.T[:2])
        self.width, self.count = kinds[:, 2].astype(float), counts.astype(float)
        self.gpus, self.most = cluster.num_gpus, most
        self.value, self.flow = np.empty(len(kinds)), np.empty(len(kinds))
        self.kept: list[tuple[float, FloatArray]] = []
        self._use_slots(edge)
        self.best_price: FloatArray = np.zeros(len(self.length))
        self.best = _dot(self.count, self.duration) / US  # by prices of 0
        self.way = 1.0
        self.most_by_mix = most

    def _use_slots(self, edge: IntArray) -> None:
        self.edge = edge
        self.first = np.searchsorted(edge, self.release, side="right") - 1
        self.length = np.diff(edge) / US

    def look_at(self, price: FloatArray) -> float:
        """Return what prices prove of all jobs, and remember them if they are the best."""
        from optim.solvers.cluster.cheapest_time import best_ends

        best_ends(self.release, self.duration, self.width, self.edge, self.first, price, self.value, self.flow)
        total = _dot(self.count, self.value) - self.gpus * _dot(self.length, price)
        if total > self.best:
            self.best, self.best_price = total, price
        return total

    def climb(self, steps: int, stop: Interruption | None) -> None:
        """Take so many steps from the best prices."""
        from optim.solvers.cluster.cheapest_time import use_of_slots

        price, fruitless, self.way = self.best_price, 0, 1.0 if steps else self.way
        for _ in range(steps):
            before = self.best
            total = self.look_at(price)
            fruitless = 0 if self.best > before + NOTABLE * self.way * (self.most - before) else fruitless + 1
            if fruitless > PATIENCE:
                self.way, fruitless = CLOSER * self.way, 0
            gradient: FloatArray = -self.gpus * self.length
            use_of_slots(
                self.release, self.duration, self.width * self.count, self.edge, self.first, price, self.flow, gradient
            )
            gradient[(price <= 0) & (gradient < 0)] = 0.0
            rate = gradient / self.length
            norm = _dot(gradient, rate)
            if norm == 0 or (stop is not None and stop.is_requested):
                break
            step = (self.best + self.way * (self.most - self.best) - total) / norm
            self.kept = [*self.kept[-KEPT_STEPS + 1 :], (step, self.flow.copy())]
            price = np.maximum(0.0, price + step * rate)

    def refine(self, most: int) -> None:
        """Halve the slots in which prices bend most, until there are so many."""
        fewer = MOST_CELLS // len(self.release)
        most = min(most, fewer) if len(self.length) <= fewer else most
        around = np.concatenate([self.best_price[:1], self.best_price, [0.0]])
        bend = np.maximum(abs(np.diff(around[:-1])), abs(np.diff(around[1:]))) * self.length
        bend[np.diff(self.edge) < 2] = 0.0
        chosen = np.argsort(-bend, kind="stable")[: max(0, most - len(bend))]
        chosen = np.sort(chosen[bend[chosen] > 0])
        middle = (self.edge[chosen] + self.edge[chosen + 1]) // 2
        price = np.insert(self.best_price, chosen + 1, self.best_price[chosen])
        self._use_slots(np.insert(self.edge, chosen + 1, middle))
        self.best_price = price

    def polish(self, rounds: int, stop: Interruption | None) -> None:
        """Find the best prices over these slots by column generation, where jobs and slots are few."""
        from optim.solvers.cluster.cheapest_time import purchases
        from optim.solvers.cluster.price_master import Master

        facts = (self.release, self.duration, self.width, self.edge, self.first)
        if len(self.release) * len(self.length) > MOST_CELLS or self.best_price.max(initial=0.0) <= 0:
            return
        master = Master(self.gpus * self.length, self.count, DEAREST * float(self.best_price.max()))
        price = self.best_price
        for _ in range(rounds):
            new = 0
            for asked in (price, 0.5 * (price + self.best_price)):
                self.look_at(asked)
                kind, slot, seconds = purchases(*facts, asked, self.flow)
                new += master.add(kind, slot, seconds, self.flow)
            solved = master.solve()
            if solved is not None:
                self.most_by_mix = min(self.most_by_mix, self.schedule(*master.mixture()))
            if not new or solved is None or solved[0] <= self.best * (1 + CLOSE) or (stop and stop.is_requested):
                break
            price = solved[1]

    def flow_of_parts(self) -> float:
        """Return the total flow time of a schedule of parts of jobs, which are to end when the jobs did in the last steps."""
        if not sum(step for step, _ in self.kept) > 0 or len(self.release) * PARTS > MOST_PARTS:
            return self.most
        steps = np.array([step for step, _ in self.kept])
        flows = np.stack([flow for _, flow in self.kept])
        order = np.argsort(flows, axis=0, kind="stable")
        share = np.cumsum(steps[order], axis=0) / steps.sum()
        picked = np.stack([(share < (part + 0.5) / PARTS).sum(axis=0) for part in range(PARTS)])
        picked = np.minimum(picked, len(flows) - 1)
        chosen = np.take_along_axis(np.take_along_axis(flows, order, 0), picked, 0).T.ravel()
        return self.schedule(
            np.repeat(np.arange(len(self.release)), PARTS), chosen, np.repeat(self.count, PARTS) / PARTS
        )

    def schedule(self, who: IntArray, flow: FloatArray, weight: FloatArray) -> float:
        """Return the total flow time of parts of jobs, with the weights' parts of their gangs, that are to end when said."""
        from optim.solvers.cluster.fluid_schedule import fluid_flows

        release, duration = self.release[who], self.duration[who]
        nothing = np.zeros(0, np.int64)
        latest_start = np.maximum(0.0, release / US + flow - duration / US)
        found, _ = fluid_flows(
            release, duration, self.width[who] * weight, float(self.gpus), latest_start, False, nothing, nothing
        )
        return _dot(weight, found) / US

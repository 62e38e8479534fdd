"""Prices of GPU-seconds that prove a lower bound of the mean completion time.

Times are integer microseconds and are subtracted before conversion, so that no precision is lost over years of submissions.

Here a job may run on any part of its gang, at proportional speed. If its rates x(t) <= 1 add up to its run time by its
end, the job's schedule is a mixture of schedules of the full gang that end no later. So (D.1) of
docs/mathematics/cluster.md holds for it.
"""

import heapq
from dataclasses import dataclass

import numpy as np

from optim.compiled import compiled
from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidOptionError
from optim.core.progress import Progress, SilentProgress
from optim.core.stopping import Interruption
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.proof import DivisibleSchedule, PriceProof
from optim.models.cluster.workload import PPM, US, Workload
from optim.solvers.lp.highs import PRIMAL_SIMPLEX, run_in_place, silent_highs


@dataclass(frozen=True, kw_only=True, eq=False)
class GpuPools:
    """Pools of equivalent GPUs, and slowdowns of classes of jobs on them.

    Parameters
    ----------
    gpus
        GPUs of each pool; shape (pools,).
    pool_of
        Pool of each type of GPU, -1 if no job can use it; shape (types,).
    factor_ppm
        Slowdown of each class on each pool in parts per million, 0 if it can't run there; shape (classes, pools).
    class_of
        Class of each job; shape (jobs,).
    duration_us
        Run time of each job on its fastest pool, rounded down; shape (jobs,).
    """

    gpus: IntArray
    pool_of: IntArray
    factor_ppm: IntArray
    class_of: IntArray
    duration_us: IntArray

    @property
    def usable(self) -> list[IntArray]:
        """The usable pools of each class."""
        return [np.flatnonzero(row) for row in self.factor_ppm]

    @property
    def ratio(self) -> FloatArray:
        """Slowdown of each class on each pool relative to the class' fastest pool, 0 if the class can't run there."""
        fastest = np.where(self.factor_ppm > 0, self.factor_ppm, self.factor_ppm.max()).min(axis=1, keepdims=True)
        return np.asarray(self.factor_ppm / fastest)

    def bound_together(self) -> list[tuple[IntArray, int]]:
        """Return, for each distinct set of usable pools, the jobs restricted to these pools, and their number of GPUs."""
        masks = np.unique(np.vstack([self.factor_ppm > 0, np.ones(len(self.gpus), bool)]), axis=0)
        bounds = []
        for mask in masks:
            goes_elsewhere = np.asarray((self.factor_ppm[:, ~mask] > 0).any(axis=1))
            who = np.flatnonzero(~goes_elsewhere[self.class_of])
            bounds.append((who, int(self.gpus[mask].sum())))
        return bounds

    def by_type(self, price: FloatArray) -> FloatArray:
        """Return prices by type from prices by pool; one row if all types are in one pool."""
        if len(self.gpus) == 1 and (self.pool_of == 0).all():
            return np.asarray(price[0])
        return np.where((self.pool_of >= 0)[:, None], price[self.pool_of], 0.0)

    def type_of(self, pool: IntArray) -> IntArray:
        """Return a type of GPU for each pool index."""
        first = np.array([np.flatnonzero(self.pool_of == each)[0] for each in range(len(self.gpus))])
        return np.asarray(first[pool])


def gpu_pools(jobs: Workload, cluster: Cluster) -> GpuPools:
    """Return the pools of a cluster; a job that can't run on any type is treated as able to run on all types."""
    types = jobs.gpu_type_slowdown_ppm.shape[1]
    table = jobs.gpu_type_slowdown_ppm if types else np.full((len(jobs), 1), PPM)
    gpus = np.bincount(cluster.kind, cluster.gpus, types).astype(np.int64) if types else np.array([cluster.num_gpus])
    table = np.where(gpus > 0, table, 0)
    table[~table.any(axis=1)] = np.where(gpus > 0, PPM, 0)
    rows, class_of = np.unique(table, axis=0, return_inverse=True)
    used = np.flatnonzero(rows.any(axis=0))
    factor, pool_of_used = np.unique(rows[:, used], axis=1, return_inverse=True)
    pool_of = np.full(len(gpus), -1)
    pool_of[used] = pool_of_used.ravel()
    fastest = np.where(rows > 0, rows, rows.max()).min(axis=1)[class_of.ravel()]
    return GpuPools(
        gpus=np.bincount(pool_of[used], gpus[used]).astype(np.int64),
        pool_of=pool_of,
        factor_ppm=factor,
        class_of=class_of.ravel(),
        duration_us=jobs.duration_us // PPM * fastest + jobs.duration_us % PPM * fastest // PPM,
    )


def choose_pools(jobs: Workload, pools: GpuPools) -> IntArray:
    """Return for each job the pool where it would end first if earlier work were spread evenly over the pool's GPUs."""
    usable = pools.usable
    chosen = np.array([each[0] for each in usable])[pools.class_of]
    if all(len(each) == 1 for each in usable):
        return chosen
    ready, ratio, gpus = [0.0] * len(pools.gpus), pools.ratio.tolist(), pools.gpus.tolist()
    lists = [each.tolist() for each in usable]
    rows = zip(
        pools.class_of.tolist(), jobs.submit_us.tolist(), pools.duration_us.tolist(), jobs.gpus.tolist(), strict=True
    )
    for job, (job_class, submit, duration, width) in enumerate(rows):
        begins = {pool: max(ready[pool], float(submit)) for pool in lists[job_class]}
        best = min(lists[job_class], key=lambda pool: begins[pool] + duration * ratio[job_class][pool])
        ready[best] = begins[best] + duration * ratio[job_class][best] * width / gpus[best]
        chosen[job] = best
    return chosen


SECOND = 1e6

SPARE = 1e-9
"""Excess of a job's flow time over its run time that counts as rounding, as a share of the flow time."""


@compiled
def _push(prices, seconds, count, price, amount):
    """Push time at a price onto a max-heap of `count` entries."""
    at = count
    while at > 0:
        above = (at - 1) // 2
        if prices[above] >= price:
            break
        prices[at], seconds[at] = prices[above], seconds[above]
        at = above
    prices[at], seconds[at] = price, amount


@compiled
def _pop(prices, seconds, count):
    """Remove the entry with the highest price from a max-heap of `count` entries."""
    price, amount, at = prices[count - 1], seconds[count - 1], 0
    while 2 * at + 1 < count - 1:
        below = 2 * at + 1
        if below + 1 < count - 1 and prices[below + 1] > prices[below]:
            below += 1
        if prices[below] <= price:
            break
        prices[at], seconds[at] = prices[below], seconds[below]
        at = below
    prices[at], seconds[at] = price, amount


@compiled
def best_ends(release, duration, width, edge, first, price, best, flow):
    """Find for each job the flow time F that minimises ``F + w x cost of the cheapest d seconds in [r, r + F]``.

    r, d and w are the job's release, duration and width. The search proceeds slot by slot, and replaces the most expensive
    time bought so far by cheaper time of the slot. The value is convex in F within a slot. `edge` contains 0 and the slots'
    ends, `first` each job's first slot; values and flow times are in seconds.
    """
    last = len(price)
    # A heap with one entry per slot, and two for the slot of the first end.
    prices, seconds = np.empty(last + 1), np.empty(last + 1)
    for job in range(len(release)):
        r, gpus = release[job], width[job]
        remaining_s = duration[job] / SECOND
        at, now, cost, count = first[job], 0.0, 0.0, 0
        while remaining_s > 0:
            now_price = price[at] if at < last else 0.0
            upto = (edge[at + 1] - r) / SECOND if at < last else np.inf  # the last slot has no end
            x = min(remaining_s, upto - now)
            _push(prices, seconds, count, now_price, x)
            count += 1
            cost += x * now_price
            remaining_s -= x
            now += x
            if now >= upto:
                at += 1
        value, when = now + gpus * cost, now
        while at < last and now < value and prices[0] > 0:
            upto, now_price, new = (edge[at + 1] - r) / SECOND, price[at], 0.0
            while count > 0 and now < upto and prices[0] > now_price:
                x = min(seconds[0], upto - now)
                cost -= x * (prices[0] - now_price)
                now += x
                new += x
                if seconds[0] > x:
                    seconds[0] -= x
                else:
                    _pop(prices, seconds, count)
                    count -= 1
                if now + gpus * cost < value:
                    value, when = now + gpus * cost, now
            if new > 0:
                _push(prices, seconds, count, now_price, new)
                count += 1
            now = upto
            at += 1
        if at >= last and prices[0] > 0:  # free time after the last slot replaces time with positive prices
            now = max(now, (edge[last] - r) / SECOND)
            while count > 0 and prices[0] > 0:
                cost -= seconds[0] * prices[0]
                now += seconds[0]
                _pop(prices, seconds, count)
                count -= 1
                if now + gpus * cost < value:
                    value, when = now + gpus * cost, now
        best[job], flow[job] = value, when


@compiled
def use_of_slots(release, duration, width, edge, first, price, flow, use):
    """Add to `use` the GPU-seconds that jobs buy in each slot: the cheapest seconds within each flow time, at ties the earliest."""
    last = len(price)
    for job in range(len(release)):
        r, end = release[job], flow[job]
        spare = end - duration[job] / SECOND
        is_spare = spare > SPARE * end
        left_out = [(0.0, 0, 0.0)]
        left_out.pop()
        at, now = first[job], 0.0
        while at < last and now < end:
            x = min((edge[at + 1] - r) / SECOND, end) - now
            use[at] += width[job] * x
            if is_spare:
                heapq.heappush(left_out, (-price[at], -at, x))
            now += x
            at += 1
        while is_spare and spare > 0 and left_out:
            _, minus_at, x = heapq.heappop(left_out)
            x = min(x, spare)
            use[-minus_at] -= width[job] * x
            spare -= x


@compiled
def purchases(release, duration, width, edge, first, price, flow):
    """Return the purchases of one job of each class: class, slot and GPU-seconds, sorted by class."""
    max_entries = 0
    for job in range(len(release)):
        at = first[job]
        while at < len(price) and (edge[at] - release[job]) / SECOND < flow[job]:
            at += 1
        max_entries += at - first[job]
    kind, slot, amount = np.empty(max_entries, np.int64), np.empty(max_entries, np.int64), np.empty(max_entries)
    use, filled = np.zeros(len(price)), 0
    for job in range(len(release)):
        one = slice(job, job + 1)
        use_of_slots(release[one], duration[one], width[one], edge, first[one], price, flow[one], use)
        at = first[job]
        while at < len(price) and (edge[at] - release[job]) / SECOND < flow[job]:
            if use[at] > 0:
                kind[filled], slot[filled], amount[filled] = job, at, use[at]
                filled += 1
            use[at] = 0.0
            at += 1
    return kind[:filled], slot[:filled], amount[:filled]


NONE_FREE, NEARLY_DONE = 1e-9, 1e-6
"""Number of GPUs, and microseconds of work, that count as rounding if no more than this remains."""


@compiled
def _fill(waiting, free, width, run, rate, count):
    """Start waiting jobs, most urgent first; the last job runs on the GPUs that remain.

    Returns the free GPUs and the number of running jobs.
    """
    while len(waiting) > 0 and free > NONE_FREE:
        job = heapq.heappop(waiting)[1]
        run[count], rate[count] = job, min(width[job], free)
        free -= rate[count]
        count += 1
    return free, count


@compiled
def _worst(run, rate, count, key, remaining_us, is_by_work):
    """Return the position and key of the least urgent running job."""
    at, most = -1, -1.0
    for place in range(count):
        job = run[place]
        urgency = key[job] * remaining_us[job] if is_by_work else key[job]
        if urgency > most:
            at, most = place, urgency
    return at, most


@compiled
def fluid_flows(release, duration, width, gpus, key, is_by_work, mark, marginal):
    """Return each job's flow time in microseconds, rounded up, and the number of spells of the schedule.

    Parameters
    ----------
    release, duration
        Submission and run time of each job in integer microseconds, in order of submission.
    width
        Size of each job's gang, possibly below 1.
    gpus
        Total number of GPUs.
    key, is_by_work
        Priority of each job, smaller is more urgent; multiplied by the remaining run time if `is_by_work`.
    mark, marginal
        Output arrays with two entries per job: the beginning of each spell, and the least urgent job that runs in the
        spell, -1 if a GPU is free.
    """
    count, remaining_us = len(release), duration.astype(np.float64)
    flow, run, rate = np.zeros(count), np.empty(count, np.int64), np.empty(count)
    waiting = [(0.0, 0)]
    waiting.pop()
    now, upcoming, done, running, spells, free = 0, 0, 0, 0, 0, gpus
    while done < count:
        while upcoming < count and release[upcoming] <= now:
            heapq.heappush(waiting, (key[upcoming] * (remaining_us[upcoming] if is_by_work else 1.0), upcoming))
            upcoming += 1
        for place in range(running - 1, -1, -1):  # a job that runs on a part of its gang competes again for more GPUs
            job = run[place]
            if rate[place] < width[job]:
                heapq.heappush(waiting, (key[job] * (remaining_us[job] if is_by_work else 1.0), job))
                free += rate[place]
                running -= 1
                run[place], rate[place] = run[running], rate[running]
        free, running = _fill(waiting, free, width, run, rate, running)
        while len(waiting) > 0:
            place, most = _worst(run, rate, running, key, remaining_us, is_by_work)
            if waiting[0][0] >= most:
                break
            heapq.heappush(waiting, (most, run[place]))
            free += rate[place]
            running -= 1
            run[place], rate[place] = run[running], rate[running]
            free, running = _fill(waiting, free, width, run, rate, running)
        if spells < len(mark):
            place = _worst(run, rate, running, key, remaining_us, is_by_work)[0]
            mark[spells], marginal[spells] = now, run[place] if place >= 0 and free <= NONE_FREE else -1
            spells += 1
        step = release[upcoming] - now if upcoming < count else 2**62
        for place in range(running):
            job = run[place]
            until_done = np.ceil(remaining_us[job] * width[job] / rate[place] - NEARLY_DONE)
            step = max(1, int(until_done)) if until_done < step else step
        now += step
        for place in range(running - 1, -1, -1):
            job = run[place]
            remaining_us[job] -= step * rate[place] / width[job]
            if remaining_us[job] <= NEARLY_DONE:
                flow[job] = now - release[job]
                done, free, running = done + 1, free + rate[place], running - 1
                run[place], rate[place] = run[running], rate[running]
    return flow, spells


@compiled
def prices_of_fluid(mark, marginal, end, width, duration, edge):
    """Return mean prices by slot, in seconds per GPU-second, at which the schedule is nearly optimal for each job.

    While a job is the least urgent job with GPUs, the price falls by ``1 / (w d)`` per second, so that the job's end doesn't
    affect its cost. If another job is the least urgent one in between, the first job's price line continues afterwards. The
    price is 0 whenever a GPU is free.
    """
    price = np.zeros(len(edge) - 1)
    line, round_of = np.zeros(len(width)), np.full(len(width), -1)
    height, busy, slot = 0.0, 0, len(price) - 1
    for spell in range(len(mark) - 1, -1, -1):
        begin, job = mark[spell], marginal[spell]
        if job < 0:
            height, busy, end = 0.0, busy + 1, begin
            continue
        slope = 1.0 / (width[job] * duration[job])
        if round_of[job] != busy:
            line[job], round_of[job] = height + slope * end, busy
        while end > begin:
            while slot > 0 and edge[slot] >= end:
                slot -= 1
            start = max(begin, edge[slot])
            middle = line[job] - slope * (0.5 * (start + end))
            price[slot] += max(0.0, middle) * (end - start)
            height, end = max(0.0, line[job] - slope * start), start
    for slot in range(len(price)):
        price[slot] /= edge[slot + 1] - edge[slot]
    return price


AS_ONE = 1e-9


class Master:
    """A linear programme that mixes purchases so that no slot is sold beyond its supply.

    Parameters
    ----------
    supply
        GPU-seconds of each slot.
    count
        Number of jobs of each class.
    dearest
        Penalty per GPU-second above the supply.
    """

    def __init__(self, supply: FloatArray, count: FloatArray, dearest: float) -> None:
        import highspy

        self.slots, self.kinds, self.count = len(supply), len(count), count
        self.seen: set[bytes] = set()
        self.who: list[int] = []
        self.flow: list[float] = []
        self.main: list[int] = []
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = self.slots, self.slots + self.kinds
        lp.col_cost_ = np.full(self.slots, dearest)
        lp.col_lower_, lp.col_upper_ = np.zeros(self.slots), np.full(self.slots, highspy.kHighsInf)
        lp.row_lower_ = np.concatenate([np.full(self.slots, -highspy.kHighsInf), count])
        lp.row_upper_ = np.concatenate([supply, count])
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_ = np.arange(self.slots + 1, dtype=np.int32)
        lp.a_matrix_.index_ = np.arange(self.slots, dtype=np.int32)
        lp.a_matrix_.value_ = np.full(self.slots, -1.0)
        # New columns keep the basis primal feasible, so the primal simplex method continues where the dual one would restart.
        self.highs = silent_highs(lp, presolve="off", simplex_strategy=PRIMAL_SIMPLEX)

    def add(self, kind: IntArray, slot: IntArray, seconds: FloatArray, flow: FloatArray) -> int:
        """Add purchases, sorted by class, unless they are known; return the number of new columns."""
        first = np.searchsorted(kind, np.arange(self.kinds + 1))
        new = 0
        for each in range(self.kinds):
            at = slice(first[each], first[each + 1])
            name = np.concatenate([[each, flow[each]], slot[at], seconds[at]]).tobytes()
            if name not in self.seen:
                self.seen.add(name)
                new += 1
                self.who.append(each)
                self.flow.append(float(flow[each]))
                self.main.append(int(slot[at][np.argmax(seconds[at])]) if first[each] < first[each + 1] else -1)
                rows = np.append(slot[at], self.slots + each).astype(np.int32)
                self.highs.addCol(flow[each], 0.0, np.inf, len(rows), rows, np.append(seconds[at], 1.0))
        return new

    def solve(self) -> tuple[float, FloatArray] | None:
        """Return the least total flow time of a mixture of purchases, penalties included, and each slot's dual price.

        None if HiGHS finds no optimum.
        """
        import highspy

        if run_in_place(self.highs) != highspy.HighsModelStatus.kOptimal:
            return None
        dual = np.asarray(self.highs.getSolution().row_dual)[: self.slots]
        return float(self.highs.getInfo().objective_function_value), np.maximum(0.0, -dual)

    def mixture(self) -> tuple[IntArray, FloatArray, IntArray, FloatArray]:
        """Return the purchases of the last mixture: class, flow time, main slot (-1 if none), and number of jobs."""
        weight = np.asarray(self.highs.getSolution().col_value)[self.slots :]
        used = np.flatnonzero(weight > AS_ONE)
        who = np.array(self.who)[used]
        order = np.argsort(who, kind="stable")
        who, weight = who[order], weight[used][order]
        weight *= (self.count / np.bincount(who, weight, self.kinds))[who]
        return who, np.array(self.flow)[used][order], np.array(self.main)[used][order], weight


NOTABLE, CLOSER, PATIENCE = 0.05, 0.7, 8
"""A step's gain counts if it exceeds the level's distance from the best bound times NOTABLE. After more than PATIENCE steps
without such a gain, this distance is multiplied by CLOSER."""

KEPT_STEPS, PARTS = 40, 4
"""Number of last steps whose flow times define the parts of jobs to schedule, and number of parts per job."""

MAX_PARTS = 100_000

MAX_CELLS, MAX_ROUNDS, CLOSE = 8_000, 60, 2e-4
"""Column generation: largest product of job classes and slots, maximal number of rounds, and relative gap."""

MAX_CALLS = 20_000
"""Maximal number of calls of compiled loops, one per job class and step: with many classes there are fewer steps."""

DEAREST = 3.0
"""Price of time beyond the supply in the programme, relative to the highest of the best prices."""

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceBoundOptions:
    """Options of the search for prices.

    Parameters
    ----------
    slots
        Maximum number of slots of constant price.
    steps
        Steps of the search, half of them before slots are refined; fewer if the jobs' slowdowns by type form many classes.

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
            raise InvalidOptionError(
                f"slots must lie in [1, 1e6] and steps in [0, 1e5], got {self.slots} and {self.steps}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceBound:
    """Bound proven by prices.

    Parameters
    ----------
    least_s
        Lower bound of the mean completion time in seconds, proven by `proof`.
    dual_max_s
        Upper bound of all price bounds: the mean completion time of `schedule`.
    proof
        The prices.
    schedule
        A schedule in which gangs are divisible.
    """

    least_s: float
    dual_max_s: float
    proof: PriceProof
    schedule: DivisibleSchedule


def bound_mean_completion(
    jobs: Workload,
    cluster: Cluster,
    options: PriceBoundOptions | None = None,
    stop: Interruption | None = None,
    progress: Progress | None = None,
) -> PriceBound:
    """Return a lower bound of the mean completion time, the prices that prove it, and an upper bound of all price bounds.

    The search ascends (D.1) of docs/mathematics/cluster.md from the prices of a schedule of divisible gangs; see `_Search`.
    A requested stop ends the search with the best prices so far.
    """
    options = options or PriceBoundOptions()
    count, pools = len(jobs), gpu_pools(jobs, cluster)
    fluid = _Fluid(jobs, pools)
    alone_us = jobs.submit_us + pools.duration_us
    for end_us in (fluid.end_us, np.concatenate([fluid.end_us, alone_us])):
        edge = _slots(jobs.submit_us, end_us, max(1, options.slots // 2))
        search = _Search(jobs, pools, edge, fluid)
        steps = min(options.steps, max(1, MAX_CALLS // len(search.classes)))
        if progress is not None:
            search.progress = progress
        search.progress.start("finding the bound", 1 + steps + 2 * min(MAX_ROUNDS, steps))
        if steps:
            search.look_at(fluid.prices(edge))
        search.climb(steps // 2, stop)
        if search.best_price.any():  # otherwise prices over these slots may be unable to raise the bound
            break
    search.refine(options.slots)
    search.climb(steps - steps // 2, stop)
    search.polish(min(MAX_ROUNDS, steps), stop)
    search.schedule_parts()
    search.progress.finish()
    least = search.best / count
    return PriceBound(
        least_s=least,
        dual_max_s=max(search.max_by_schedule / count * (1 + ROUNDING), least),
        proof=PriceProof(end_us=search.edge[1:], price=pools.by_type(search.best_price)),
        schedule=search.schedule,
    )


class _Fluid:
    """A schedule of divisible gangs by least remaining work, each job on one pool."""

    def __init__(self, jobs: Workload, pools: GpuPools) -> None:

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
        """Return prices at which the schedule is nearly optimal for each job; shape (pools, slots)."""
        return np.stack([prices_of_fluid(*part, edge) for part in self._parts])


def _slots(submit: IntArray, end: IntArray, most: int) -> IntArray:
    """Return 0 and the ends of slots: all submissions and ends of jobs, thinned to the allowed number."""
    times = np.unique(np.concatenate([submit, end]))
    times = times[times > 0]
    if len(times) > most:
        half = max(1, most // 2)
        by_rank = times[(np.arange(1, half + 1) * len(times)) // half - 1]
        by_time = (np.arange(1, most - half + 1) * (int(times[-1]) / (most - half))).astype(np.int64)
        times = np.unique(np.concatenate([by_rank, by_time[by_time > 0]]))
    return np.concatenate([[0], times]).astype(np.int64)


def _dot(one: FloatArray, other: FloatArray | IntArray) -> float:
    """Return a dot product that is equal on every processor, unlike BLAS'."""
    return float((one * other).sum())


class _Search:
    """A search for the best prices over slots, by subgradient steps and then column generation.

    The subgradient is the GPU-seconds that the minimisers buy in each slot, minus the supply. Steps have Polyak's length for
    a level above the best value. The first level is the value of a schedule of divisible gangs, an upper bound of all prices'
    values.

    Parameters
    ----------
    jobs, pools
        Jobs and pools of the bound.
    edge
        0 and the ends of the slots in microseconds.
    fluid
        A schedule whose total flow time is an upper bound of all price bounds.
    """

    def __init__(self, jobs: Workload, pools: GpuPools, edge: IntArray, fluid: _Fluid) -> None:
        rows = np.column_stack([pools.class_of, jobs.submit_us, pools.duration_us, jobs.gpus])
        kinds, self.job, counts = np.unique(rows, axis=0, return_index=True, return_counts=True)
        self.class_of, self.release, self.duration = (np.ascontiguousarray(column) for column in kinds.T[:3])
        self.width, self.count = kinds[:, 3].astype(float), counts.astype(float)
        first = np.searchsorted(self.class_of, np.arange(len(pools.factor_ppm) + 1))
        self.classes = [slice(*each) for each in zip(first[:-1].tolist(), first[1:].tolist(), strict=True)]
        self.pools, self.usable, self.ratio = pools, pools.usable, pools.ratio
        self.some_pool = np.array([usable[0] for usable in pools.usable])[self.class_of]
        self.most = self.max_by_schedule = float(fluid.flow.sum()) / US
        self.schedule = fluid.schedule
        self.value, self.flow = np.empty(len(kinds)), np.empty(len(kinds))
        self.step_flows: list[tuple[float, FloatArray, IntArray]] = []
        self._use_slots(edge)
        self.best_price: FloatArray = np.zeros((len(pools.gpus), len(self.length)))
        self.best = _dot(self.count, self.duration) / US  # the bound for prices of 0
        self.way = 1.0
        self.progress: Progress = SilentProgress()
        self.looks = 0

    def _use_slots(self, edge: IntArray) -> None:
        self.edge = edge
        self.first = np.searchsorted(edge, self.release, side="right") - 1
        self.length = np.diff(edge) / US
        self.slots = np.arange(len(self.length))

    def _cheapest(self, job_class: int, price: FloatArray) -> tuple[FloatArray, IntArray]:
        """Return the lowest price per slot for a class, on the scale of its fastest pool, and the pool with that price."""
        usable = self.usable[job_class]
        if len(usable) == 1:
            return price[usable[0]], np.full(len(self.length), usable[0])
        offers = price[usable] * self.ratio[job_class, usable][:, None]
        best = offers.argmin(axis=0)
        return offers[best, self.slots], usable[best]

    def look_at(self, price: FloatArray) -> float:
        """Return the bound that prices prove, and store the prices if they are the best so far."""
        for job_class, at in enumerate(self.classes):
            facts = (self.release[at], self.duration[at], self.width[at], self.edge, self.first[at])
            best_ends(*facts, self._cheapest(job_class, price)[0], self.value[at], self.flow[at])
        income = float(sum(gpus * _dot(self.length, row) for gpus, row in zip(self.pools.gpus, price, strict=True)))
        total = _dot(self.count, self.value) - income
        if total > self.best:
            self.best, self.best_price = total, price
        self.looks += 1
        self.progress.update(self.looks)
        return total

    def _gradient(self, price: FloatArray) -> tuple[FloatArray, IntArray]:
        """Return the purchased GPU-seconds minus the supply, and the pool where each job would end."""
        gradient: FloatArray = -self.pools.gpus[:, None] * self.length
        pool, last = np.empty(len(self.release), np.int64), len(self.length) - 1
        for job_class, at in enumerate(self.classes):
            paid, source = self._cheapest(job_class, price)
            use = np.zeros(len(self.length)) if len(self.usable[job_class]) > 1 else gradient[self.usable[job_class][0]]
            facts = (self.release[at], self.duration[at], self.width[at] * self.count[at], self.edge, self.first[at])
            use_of_slots(*facts, paid, self.flow[at], use)
            if len(self.usable[job_class]) > 1:
                gradient[source, self.slots] += use * self.ratio[job_class, source]
            end = self.release[at] + self.flow[at] * US
            pool[at] = source[np.minimum(np.searchsorted(self.edge, end) - 1, last)]
        return gradient, pool

    def climb(self, steps: int, stop: Interruption | None) -> None:
        """Take `steps` subgradient steps from the best prices."""
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
            self.step_flows = [*self.step_flows[-KEPT_STEPS + 1 :], (step, self.flow.copy(), pool)]
            price = np.maximum(0.0, price + step * rate)

    def refine(self, most: int) -> None:
        """Halve the slots with the largest change of price, up to the given number of slots."""
        fewer = MAX_CELLS // len(self.release)
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
        """Return the purchases of one job of each class: class, index of pool and slot, and GPU-seconds, sorted by class."""
        columns = []
        for job_class, at in enumerate(self.classes):
            paid, source = self._cheapest(job_class, price)
            facts = (self.release[at], self.duration[at], self.width[at], self.edge, self.first[at])
            kind, slot, seconds = purchases(*facts, paid, self.flow[at])
            pool = source[slot]
            columns.append((kind + at.start, pool * len(self.length) + slot, seconds * self.ratio[job_class, pool]))
        kind, cell, seconds = (np.concatenate(column) for column in zip(*columns, strict=True))
        return kind, cell, seconds

    def polish(self, rounds: int, stop: Interruption | None) -> None:
        """Find the best prices over these slots by column generation, if there are few jobs and slots."""
        few = len(self.release) * len(self.length) * len(self.pools.gpus) <= MAX_CELLS
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
        """Try a schedule of parts of jobs, whose target ends are the jobs' ends in the last steps."""
        if not sum(step for step, _, _ in self.step_flows) > 0 or len(self.release) * PARTS > MAX_PARTS:
            return
        steps, flows, pools = (np.array(column) for column in zip(*self.step_flows, strict=True))
        order = np.argsort(flows, axis=0, kind="stable")
        share = np.cumsum(steps[order], axis=0) / steps.sum()
        picked = np.stack([(share < (part + 0.5) / PARTS).sum(axis=0) for part in range(PARTS)])
        picked = np.take_along_axis(order, np.minimum(picked, len(flows) - 1), 0)
        chosen, pool = (np.take_along_axis(each, picked, 0).T.ravel() for each in (flows, pools))
        who = np.repeat(np.arange(len(self.release)), PARTS)
        self.try_schedule(who, chosen, np.repeat(self.count, PARTS) / PARTS, pool)

    def try_schedule(self, who: IntArray, flow: FloatArray, weight: FloatArray, pool: IntArray) -> None:
        """Schedule parts of jobs by target flow times, and store the schedule if its total flow time is the least so far.

        A part has `weight` times the gang of its job.
        """
        nothing = np.zeros(0, np.int64)
        duration = np.ceil(self.duration[who] * self.ratio[self.class_of[who], pool]).astype(np.int64)
        start = np.maximum(0.0, self.release[who] / US + flow - duration / US)
        total = 0.0
        for each, gpus in enumerate(self.pools.gpus.tolist()):
            at = np.flatnonzero(pool == each)
            at = at[np.argsort(self.release[who[at]], kind="stable")]
            facts = (self.release[who[at]], duration[at], self.width[who[at]] * weight[at], float(gpus))
            job_flow, _ = fluid_flows(*facts, start[at], False, nothing, nothing)
            total += _dot(weight[at], job_flow) / US
        if total < self.max_by_schedule:
            self.max_by_schedule = total
            self.schedule = DivisibleSchedule(
                job=self.job[who],
                weight=weight,
                gpu_type=self.pools.type_of(pool),
                start_us=np.rint(start * US).astype(np.int64),
            )

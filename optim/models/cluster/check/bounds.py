"""Evaluate the bounds that prices, loads and intervals prove for all schedules of rigid jobs.

Times are integer microseconds; a job's submission is subtracted before conversion to seconds, to avoid cancellation.
"""

import heapq
import math
from dataclasses import dataclass

import numpy as np

from optim.compiled import compiled
from optim.core.arrays import IntArray
from optim.core.errors import InvalidProblemError
from optim.core.limits import check_limit, current_limits
from optim.models.cluster.check.replay import PPM
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.proof import DivisibleSchedule, IntervalProof, LoadProof, PriceProof
from optim.models.cluster.workload import US, Workload

SECOND = 1e6


@compiled
def _keep_cheapest(prices, seconds, count, price, amount, most):
    """Insert `amount` seconds at a price into a table sorted by price, and keep its cheapest `most` seconds.

    Returns the number of entries of the table.
    """
    at = count
    while at > 0 and prices[at - 1] > price:
        prices[at], seconds[at] = prices[at - 1], seconds[at - 1]
        at -= 1
    prices[at], seconds[at] = price, amount
    total, kept = 0.0, 0
    while kept < count + 1 and total < most:
        seconds[kept] = min(seconds[kept], most - total)
        total += seconds[kept]
        kept += 1
    return kept


@compiled
def _sums(prices, seconds, count):
    """Return the total cost and the total time of a table."""
    cost, taken = 0.0, 0.0
    for entry in range(count):
        cost += seconds[entry] * prices[entry]
        taken += seconds[entry]
    return cost, taken


@compiled
def _min_within(prices, seconds, count, cost, taken, need, w, begin, room, rate):
    """Return the smallest sum of end and weighted cost if the job ends within a slot with price `rate`, infinity if it can't.

    `cost` and `taken` are the total cost and the total time of the table of earlier seconds. The rest of the needed time must
    come from the slot, which has `room` seconds. Then seconds of the table whose extra price exceeds the value of a second of
    delay are replaced by seconds of the slot, highest price first.
    """
    x = max(0.0, need - taken)
    if x > room:
        return np.inf
    bill = cost + x * rate
    least = begin + x + w * bill
    entry = count - 1
    while entry >= 0 and x < room and w * (prices[entry] - rate) > 1.0:
        y = min(seconds[entry], room - x)
        bill -= y * (prices[entry] - rate)
        x += y
        least = min(least, begin + x + w * bill)
        entry -= 1
    return least


SHIFTED = 6
"""Number of steps charged per entry when a table changes: an entry may be moved, is summed twice and may be read again."""


@compiled
def min_cost(release, duration, width, end, price, most):
    """Return ``min_C (C - r + w x cost of the cheapest d seconds in [r, C])`` of each job, in seconds, and the number of steps.

    The computation stops after `most` steps. `release`, `duration` and `end` are in microseconds; the price is 0 after the last
    slot.
    """
    last = len(price)
    result = np.empty(len(release))
    prices, seconds = np.empty(last + 1), np.empty(last + 1)
    steps = 0
    for job in range(len(release)):
        r, need, w = release[job], duration[job] / SECOND, width[job]
        at, count, begin, least = np.searchsorted(end, r, side="right"), 0, 0.0, np.inf
        cost, taken = 0.0, 0.0
        while at < last and begin < least:
            is_dearer = (
                taken >= need and price[at] >= prices[count - 1]
            )  # the table already holds `need` cheaper seconds
            steps += 1 if is_dearer else SHIFTED * count + 1
            if steps > most:
                return result, steps
            stop = (end[at] - r) / SECOND
            least = min(
                least, _min_within(prices, seconds, count, cost, taken, need, w, begin, stop - begin, price[at])
            )
            if not is_dearer:
                count = _keep_cheapest(prices, seconds, count, price[at], stop - begin, need)
                cost, taken = _sums(prices, seconds, count)
            begin = stop
            at += 1
        if begin < least:
            least = min(least, _min_within(prices, seconds, count, cost, taken, need, w, begin, need, 0.0))
        result[job] = least
    return result, steps


COSTLY = 50
"""Number of steps that `flow_times` charges per job at every release and end."""


@compiled
def flow_times(release, duration, width, gpus, start, most):
    """Return each job's flow time in microseconds, rounded up, and the number of steps.

    At every release and end, GPUs are assigned to jobs in order of priority, up to each job's width. A job progresses in
    proportion to its GPUs. The computation stops after `most` steps.

    Parameters
    ----------
    release, duration, width
        Jobs sorted by release in microseconds; widths may be fractions.
    start
        Priorities, smaller first; if empty, the job with the least remaining work has priority.
    """
    count, is_by_work = len(release), len(start) == 0
    left, flow = duration.astype(np.float64), np.zeros(count)
    key, rate = np.empty(count), np.empty(count)
    run, chosen = np.empty(count, np.int64), np.empty(count, np.int64)
    waiting = [(0.0, 0)]
    waiting.pop()
    now, upcoming, running, steps = 0, 0, 0, 0
    while (upcoming < count or running > 0 or len(waiting) > 0) and steps <= most:
        if running == 0 and len(waiting) == 0:
            now = max(now, release[upcoming])
        for place in range(1, running):  # restore the order: running jobs have less work left now
            job, at = run[place], place
            while at > 0 and key[run[at - 1]] > key[job] and steps <= most:
                run[at] = run[at - 1]
                at -= 1
                steps += COSTLY
            run[at] = job
        while upcoming < count and release[upcoming] <= now:
            key[upcoming] = width[upcoming] * left[upcoming] if is_by_work else float(start[upcoming])
            heapq.heappush(waiting, (key[upcoming], upcoming))
            upcoming += 1
        free, place, taken = gpus, 0, 0
        step = release[upcoming] - now if upcoming < count else 2**62
        while free > 0.0 and (place < running or len(waiting) > 0):
            if place < running and (len(waiting) == 0 or key[run[place]] <= waiting[0][0]):
                job = run[place]
                place += 1
            else:
                job = heapq.heappop(waiting)[1]
            rate[job] = min(width[job], free)
            free -= rate[job]
            until_done = np.ceil(left[job] * (width[job] / rate[job]))
            step = max(1, int(until_done)) if until_done < step else step
            chosen[taken] = job
            taken += 1
        for rest in range(place, running):
            heapq.heappush(waiting, (key[run[rest]], run[rest]))
        now += step
        steps += COSTLY * (running + taken + 1)
        running = 0
        for at in range(taken):
            job = chosen[at]
            left[job] -= step * (rate[job] / width[job])
            key[job] = width[job] * left[job] if is_by_work else key[job]
            if left[job] <= 0.0:
                flow[job] = now - release[job]
            else:
                run[running] = job
                running += 1
    return flow, steps


COMPILED = 100
"""Number of steps of a compiled loop that take as long as one step of Python."""

ROUNDING = 1e-9
"""Allowance for rounding, relative to the sum of absolute terms; far above the rounding error of any sum here."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Types:
    """GPUs of each type, slowdowns by class of jobs and type in parts per million (0: unusable type), and class of each job."""

    gpus: list[int]
    rows: IntArray
    of_job: IntArray

    def members(self) -> list[IntArray]:
        """Return the jobs of each class."""
        order = np.argsort(self.of_job, kind="stable")
        return np.split(order, np.cumsum(np.bincount(self.of_job, minlength=len(self.rows)))[:-1])

    def sets(self) -> list[tuple[IntArray, int]]:
        """Return, for each distinct set of usable types, the jobs restricted to it, and its number of GPUs."""
        masks = np.unique(np.vstack([self.rows > 0, self.rows.any(axis=0)]), axis=0)
        check_limit("steps", masks.size * len(self.of_job), "jobs times sets of types of GPU that jobs can use")
        inside = [~((self.rows > 0) & ~mask).any(axis=1) for mask in masks]
        gpus = [sum(count for count, is_in in zip(self.gpus, mask.tolist(), strict=True) if is_in) for mask in masks]
        return [(np.flatnonzero(each[self.of_job]), count) for each, count in zip(inside, gpus, strict=True)]

    def min_us(self, jobs: Workload) -> IntArray:
        """Return each job's run time on its fastest type, rounded down."""
        fastest = np.where(self.rows > 0, self.rows, self.rows.max()).min(axis=1)[self.of_job]
        return np.asarray(jobs.duration_us // PPM * fastest + jobs.duration_us % PPM * fastest // PPM)


def _types(jobs: Workload, cluster: Cluster) -> _Types:
    types = jobs.gpu_type_slowdown_ppm.shape[1]
    if not types:
        return _Types(gpus=[cluster.num_gpus], rows=np.full((1, 1), PPM), of_job=np.zeros(len(jobs), np.int64))
    gpus = np.array([int(cluster.gpus[cluster.kind == kind].sum()) for kind in range(types)])
    rows, of_job = np.unique(np.where(gpus > 0, jobs.gpu_type_slowdown_ppm, 0), axis=0, return_inverse=True)
    rows[~rows.any(axis=1)] = np.where(
        gpus > 0, PPM, 0
    )  # a job that can't run is bounded as if it could use every type
    return _Types(gpus=gpus.tolist(), rows=rows, of_job=of_job.ravel())


def min_mean_completion(jobs: Workload, cluster: Cluster, proof: PriceProof) -> float:
    """Return a lower bound of the mean completion time in seconds, rounded down ((D.1), (D.1b) of docs/mathematics/cluster.md).

    Raises
    ------
    InvalidProblemError
        If the check takes more steps than the limits allow, or the number of types of GPU doesn't match.
    """
    types, prices, most = _types(jobs, cluster), np.atleast_2d(proof.price), COMPILED * current_limits().steps
    if len(prices) not in (1, len(types.gpus)):
        raise InvalidProblemError(
            f"prices have {len(prices)} rows for {len(types.gpus)} types of GPU; give one per type, or one for all"
        )
    min_us, steps, bills = types.min_us(jobs), len(types.rows) * prices.size, np.zeros(len(jobs))
    check_limit(
        "steps", steps // COMPILED, f"steps to check {prices.size} prices for {len(types.rows)} classes of jobs"
    )
    for row, who in zip(types.rows.tolist(), types.members(), strict=True):
        fastest = min(ppm for ppm in row if ppm)
        of_types = (
            [prices[kind] * (ppm / fastest) for kind, ppm in enumerate(row) if ppm] if len(prices) > 1 else prices
        )
        price = np.ascontiguousarray(np.min(of_types, axis=0))
        width, facts = jobs.gpus[who].astype(float), (jobs.submit_us[who], min_us[who])
        bills[who], taken = min_cost(*facts, width, proof.end_us, price, most - steps)
        steps += taken
        check_limit("steps", steps // COMPILED, f"steps to check {prices.size} prices for {len(jobs)} jobs")
    lengths = np.diff(proof.end_us, prepend=0).tolist()
    gpus = types.gpus if len(prices) > 1 else [cluster.num_gpus]
    income = math.fsum(
        count * p * length
        for count, of_type in zip(gpus, prices.tolist(), strict=True)
        for p, length in zip(of_type, lengths, strict=True)
    )
    total = math.fsum(bills.tolist()) - income / US
    total -= ROUNDING * (math.fsum(np.abs(bills).tolist()) + income / US)
    return float(total) / len(jobs)


def max_by_prices(jobs: Workload, cluster: Cluster, schedule: DivisibleSchedule) -> float:
    """Return an upper bound, in seconds, of all price bounds: the mean completion time of a schedule of divisible gangs.

    Raises
    ------
    InvalidProblemError
        If the schedule lacks a job, names an unknown job or an unusable type of GPU, or takes too many steps.
    """
    types, job, kind = _types(jobs, cluster), schedule.job, schedule.gpu_type
    if not len(job) or job.min() < 0 or job.max() >= len(jobs) or kind.min() < 0 or kind.max() >= len(types.gpus):
        raise InvalidProblemError("a part of the divisible schedule names an unknown job or type of GPU")
    factor = types.rows[types.of_job[job], kind]
    if not factor.all():
        raise InvalidProblemError("a part of the divisible schedule uses a type of GPU on which its job can't run")
    rows = np.column_stack([jobs.submit_us, jobs.duration_us, jobs.gpus, types.of_job])
    _, equal, count = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
    equal = equal.ravel()
    weights = np.bincount(equal[job], schedule.weight, len(count))
    if not weights.all():
        raise InvalidProblemError("the divisible schedule lacks a job")
    share = schedule.weight * (count / weights)[equal[job]]
    taken_us = jobs.duration_us[job] // PPM * factor - -(jobs.duration_us[job] % PPM) * factor // PPM
    _, alike = np.unique(
        types.rows, axis=1, return_inverse=True
    )  # types with equal slowdowns for all jobs form one pool
    alike, flow, steps, most = alike.ravel(), np.zeros(len(job)), 0, COMPILED * current_limits().steps
    for group in np.unique(alike[kind]).tolist():
        who = np.flatnonzero(alike[kind] == group)
        who = who[np.argsort(jobs.submit_us[job[who]], kind="stable")]
        gpus = float(sum(each for each, own in zip(types.gpus, alike.tolist(), strict=True) if own == group))
        start = schedule.start_us[who] if len(schedule.start_us) else schedule.start_us
        facts = (jobs.submit_us[job[who]], taken_us[who], jobs.gpus[job[who]] * share[who])
        flow[who], taken = flow_times(*facts, gpus, start, most - steps)
        steps += taken
        check_limit("steps", steps // COMPILED, f"steps to check a schedule of {len(job)} parts of jobs")
    return math.fsum((share * flow).tolist()) / US / len(jobs) * (1 + ROUNDING)


def min_makespan(jobs: Workload, cluster: Cluster, proof: LoadProof) -> float:
    """Return a lower bound of the makespan in seconds after the first submission, rounded down ((D.2))."""
    types = _types(jobs, cluster)
    min_us = types.min_us(jobs)
    makespan_us = max(r + d for r, d in zip(jobs.submit_us.tolist(), min_us.tolist(), strict=True))
    for who, gpus in types.sets():
        later = who[jobs.submit_us[who] >= proof.from_us]
        work = sum(w * d for w, d in zip(jobs.gpus[later].tolist(), min_us[later].tolist(), strict=True))
        makespan_us = max(makespan_us, proof.from_us + work // gpus if work else 0)
    return int(makespan_us) / US * (1 - ROUNDING)


def min_slowdown(jobs: Workload, cluster: Cluster, proof: IntervalProof) -> float:
    """Return a lower bound of the largest slowdown, rounded down: 1 if the interval isn't overloaded ((D.3))."""
    types = _types(jobs, cluster)
    min_us = types.min_us(jobs)
    inside = jobs.submit_us >= proof.from_us
    times, parts = float(proof.slowdown).as_integer_ratio()
    room = (proof.to_us - jobs.submit_us).tolist()
    inside &= [times * d <= parts * left for d, left in zip(jobs.duration_us.tolist(), room, strict=True)]
    for who, gpus in types.sets():
        due = who[inside[who]]
        work = sum(w * d for w, d in zip(jobs.gpus[due].tolist(), min_us[due].tolist(), strict=True))
        if proof.to_us > proof.from_us and work > gpus * (proof.to_us - proof.from_us):
            return proof.slowdown * (1 - ROUNDING)
    return 1.0

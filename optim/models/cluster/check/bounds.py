"""What prices, loads and intervals prove about any schedule of rigid jobs, and what no prices prove more than."""

import math
from dataclasses import dataclass

import numpy as np

from optim.core.errors import InvalidProblemError
from optim.core.limits import check_limit, current_limits
from optim.models.cluster.check.event_rules import PPM
from optim.models.cluster.proof import DivisibleSchedule, IntervalProof, LoadProof, PriceProof
from optim.models.cluster.workload import US, Workload
from optim.models.cluster.world import Cluster, IntArray

COMPILED = 100
"""Steps of a compiled loop that take the time of one other."""

ROUNDING = 1e-9
"""Relative to the sum of absolute terms: far above the rounding of any sum here."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Types:
    """GPUs of each type, and by class of jobs how much longer each type takes, in parts per million, 0 where it can't run."""

    gpus: list[int]
    rows: IntArray
    of_job: IntArray

    def members(self) -> list[IntArray]:
        """Return the jobs of each class."""
        order = np.argsort(self.of_job, kind="stable")
        return np.split(order, np.cumsum(np.bincount(self.of_job, minlength=len(self.rows)))[:-1])

    def sets(self) -> list[tuple[IntArray, int]]:
        """Return for each set of types that is all that some jobs can use: the jobs that can use no other, and its GPUs."""
        masks = np.unique(np.vstack([self.rows > 0, self.rows.any(axis=0)]), axis=0)
        check_limit("steps", masks.size * len(self.of_job), "jobs times sets of types of GPU that jobs can use")
        inside = [~((self.rows > 0) & ~mask).any(axis=1) for mask in masks]
        gpus = [sum(count for count, is_in in zip(self.gpus, mask.tolist(), strict=True) if is_in) for mask in masks]
        return [(np.flatnonzero(each[self.of_job]), count) for each, count in zip(inside, gpus, strict=True)]

    def least_us(self, jobs: Workload) -> IntArray:
        """Return each job's run time on the type on which it is fastest, rounded down."""
        fastest = np.where(self.rows > 0, self.rows, self.rows.max()).min(axis=1)[self.of_job]
        return np.asarray(jobs.duration_us // PPM * fastest + jobs.duration_us % PPM * fastest // PPM)


def _types(jobs: Workload, cluster: Cluster) -> _Types:
    types = jobs.kind_ppm.shape[1]
    if not types:
        return _Types(gpus=[cluster.num_gpus], rows=np.full((1, 1), PPM), of_job=np.zeros(len(jobs), np.int64))
    gpus = np.array([int(cluster.gpus[cluster.kind == kind].sum()) for kind in range(types)])
    rows, of_job = np.unique(np.where(gpus > 0, jobs.kind_ppm, 0), axis=0, return_inverse=True)
    rows[~rows.any(axis=1)] = np.where(
        gpus > 0, PPM, 0
    )  # a job that can't run at all is bounded as if it could anywhere
    return _Types(gpus=gpus.tolist(), rows=rows, of_job=of_job.ravel())


def least_mean_completion(jobs: Workload, cluster: Cluster, proof: PriceProof) -> float:
    """Return the mean completion time in seconds that no schedule beats, rounded down ((D.1), (D.1b) of docs/mathematics/cluster.md).

    Raises
    ------
    InvalidProblemError
        If the prices take more steps than the limits allow, or are those of another number of types of GPU.
    """
    from optim.models.cluster.check.dearest_time import least_bills

    types, prices, most = _types(jobs, cluster), np.atleast_2d(proof.price), COMPILED * current_limits().steps
    if len(prices) not in (1, len(types.gpus)):
        raise InvalidProblemError(
            f"prices are of {len(prices)} types of GPU; give those of {len(types.gpus)}, or of all"
        )
    least_us, steps, bills = types.least_us(jobs), len(types.rows) * prices.size, np.zeros(len(jobs))
    check_limit(
        "steps", steps // COMPILED, f"steps to check {prices.size} prices for {len(types.rows)} classes of jobs"
    )
    for row, who in zip(types.rows.tolist(), types.members(), strict=True):
        fastest = min(ppm for ppm in row if ppm)
        of_types = (
            [prices[kind] * (ppm / fastest) for kind, ppm in enumerate(row) if ppm] if len(prices) > 1 else prices
        )
        price = np.ascontiguousarray(np.min(of_types, axis=0))
        width, facts = jobs.gpus[who].astype(float), (jobs.submit_us[who], least_us[who])
        bills[who], taken = least_bills(*facts, width, proof.end_us, price, most - steps)
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


def most_by_prices(jobs: Workload, cluster: Cluster, schedule: DivisibleSchedule) -> float:
    """Return the mean completion time in seconds that no prices prove more than: that of a schedule of divisible gangs.

    Raises
    ------
    InvalidProblemError
        If the schedule lacks a job, names one or a type of GPU that isn't there or can't be used, or takes too many steps.
    """
    from optim.models.cluster.check.divisible_schedule import flow_times

    types, job, kind = _types(jobs, cluster), schedule.job, schedule.gpu_type
    if not len(job) or job.min() < 0 or job.max() >= len(jobs) or kind.min() < 0 or kind.max() >= len(types.gpus):
        raise InvalidProblemError("a part of the divisible schedule is of no job, or on no type of GPU")
    factor = types.rows[types.of_job[job], kind]
    if not factor.all():
        raise InvalidProblemError("a part of the divisible schedule is on a type of GPU that its job can't use")
    rows = np.column_stack([jobs.submit_us, jobs.duration_us, jobs.gpus, types.of_job])
    _, equal, count = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
    equal = equal.ravel()
    weights = np.bincount(equal[job], schedule.weight, len(count))
    if not weights.all():
        raise InvalidProblemError("the divisible schedule lacks a job")
    share = schedule.weight * (count / weights)[equal[job]]
    taken_us = jobs.duration_us[job] // PPM * factor - -(jobs.duration_us[job] % PPM) * factor // PPM
    _, alike = np.unique(types.rows, axis=1, return_inverse=True)  # types that are the same to all jobs serve as one
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


def least_makespan(jobs: Workload, cluster: Cluster, proof: LoadProof) -> float:
    """Return the seconds from the first submission that no schedule of all jobs beats, rounded down ((D.2))."""
    types = _types(jobs, cluster)
    least_us = types.least_us(jobs)
    makespan_us = max(r + d for r, d in zip(jobs.submit_us.tolist(), least_us.tolist(), strict=True))
    for who, gpus in types.sets():
        later = who[jobs.submit_us[who] >= proof.from_us]
        work = sum(w * d for w, d in zip(jobs.gpus[later].tolist(), least_us[later].tolist(), strict=True))
        makespan_us = max(makespan_us, proof.from_us + work // gpus if work else 0)
    return int(makespan_us) / US * (1 - ROUNDING)


def least_slowdown(jobs: Workload, cluster: Cluster, proof: IntervalProof) -> float:
    """Return the largest slowdown that every schedule has at least, rounded down: 1 if the interval isn't overloaded ((D.3))."""
    types = _types(jobs, cluster)
    least_us = types.least_us(jobs)
    inside = jobs.submit_us >= proof.from_us
    times, parts = float(proof.slowdown).as_integer_ratio()
    room = (proof.to_us - jobs.submit_us).tolist()
    inside &= [times * d <= parts * left for d, left in zip(jobs.duration_us.tolist(), room, strict=True)]
    for who, gpus in types.sets():
        due = who[inside[who]]
        work = sum(w * d for w, d in zip(jobs.gpus[due].tolist(), least_us[due].tolist(), strict=True))
        if proof.to_us > proof.from_us and work > gpus * (proof.to_us - proof.from_us):
            return proof.slowdown * (1 - ROUNDING)
    return 1.0

"""Generator of jobs like Philly's, and of their outcomes."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidProblemError, check_in
from optim.models.cluster.philly import BUCKETS, FAILURES, STATUS_SHARES, STATUSES, FailureReason, bucket_of
from optim.workloads.traces.formats import read_jobs
from optim.workloads.traces.job_table import JobTable, ReadOptions

PASSED, KILLED, UNSUCCESSFUL = range(3)

REASONS = tuple(reason for reason in FAILURES.values() if reason.log_normal is not None)
"""Failure reasons with published run times to failure."""

REASON_NAMES = tuple(reason.name for reason in REASONS)

NONE = -1


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcomes:
    """Statuses of jobs, with the reasons and times of failures.

    Parameters
    ----------
    status
        Index into `STATUSES`; shape (jobs,).
    reason
        Index into `REASONS`, -1 for jobs that didn't fail; shape (jobs,).
    tries
        Number of attempts; the run time includes all of them, and all failed if the job failed; shape (jobs,).
    fails_us
        Run time after which each attempt failed, -1 for jobs that didn't fail; shape (jobs,).
    """

    status: IntArray
    reason: IntArray
    tries: IntArray
    fails_us: IntArray


def draw_outcomes(gpus: IntArray, duration_us: IntArray, seed: int) -> Outcomes:
    """Draw the outcomes of jobs, from tables 6 and 7 of the Philly study.

    A job's status depends on its GPU-time by a multinomial logit whose coefficients give the published shares of jobs and of
    GPU-time in expectation. The weight of a failure reason is the number of jobs with it, times the likelihood of the job's run
    time under the reason's run times to failure (log-normal through the published median and ninth decile). A run time includes
    all attempts. Their number is geometric; its mean is the published number of attempts per job with the failure reason.

    Parameters
    ----------
    gpus, duration_us
        Gang sizes and run times; shape (jobs,).
    seed
        Equal jobs and seeds give equal outcomes.

    References
    ----------
    Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", USENIX ATC 2019.
    """
    status_rng, reason_rng, try_rng = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(3))
    time: FloatArray = gpus.astype(np.float64) * duration_us
    chance = np.cumsum(status_chances(time), axis=1)
    status = (status_rng.random(len(time))[:, None] > chance[:, :-1]).sum(axis=1)
    failed = np.flatnonzero(status == UNSUCCESSFUL)
    reason, tries = np.full(len(time), NONE), np.ones(len(time), np.int64)
    fails = np.full(len(time), NONE)
    if len(failed):
        chosen = _reasons(gpus[failed], duration_us[failed], reason_rng)
        mean = np.array([each.trials / each.jobs for each in REASONS])[chosen]
        reason[failed] = chosen
        tries[failed] = np.minimum(try_rng.geometric(1 / mean), duration_us[failed])
        fails[failed] = duration_us[failed] // tries[failed]
    return Outcomes(status=status.astype(np.int64), reason=reason, tries=tries, fails_us=fails)


def status_chances(time: FloatArray) -> FloatArray:
    """Return the probability of each status for jobs with this GPU-time; shape (jobs, statuses).

    The expected shares of jobs are exact, those of GPU-time as close as a logit allows.

    Raises
    ------
    InvalidProblemError
        If no job has GPU-time.
    """
    if not len(time) or time.max() <= 0:
        raise InvalidProblemError("drawing outcomes needs jobs with GPU-time; give at least one")
    size = np.log(np.maximum(time, 1.0))
    size = (size - size.mean()) / max(float(size.std()), 1e-9)
    weight = time / time.sum()
    wanted = np.array([STATUS_SHARES[name] for name in STATUSES[1:]])

    def chances(free: FloatArray) -> FloatArray:
        score = np.concatenate([np.zeros((len(size), 1)), free[:2] + size[:, None] * free[2:]], axis=1)
        score = np.exp(score - score.max(axis=1, keepdims=True))
        return np.asarray(score / score.sum(axis=1, keepdims=True))

    def miss(free: FloatArray) -> FloatArray:
        share = chances(free)[:, 1:]
        return np.concatenate([share.mean(axis=0) - wanted[:, 0], weight @ share - wanted[:, 1]])

    start = np.concatenate([np.log(wanted[:, 0] / STATUS_SHARES[STATUSES[0]][0]), np.zeros(2)])
    found = least_squares(miss, start, bounds=([-60] * 2 + [-8] * 2, [60] * 2 + [8] * 2), xtol=1e-10, ftol=1e-12)
    return chances(found.x)


def _reasons(gpus: IntArray, duration_us: IntArray, rng: np.random.Generator) -> IntArray:
    """Draw a failure reason per job, with the weights that `draw_outcomes` describes."""
    prior = np.array([[_jobs_of_size(reason, size) for reason in REASONS] for size in range(3)])
    fits = np.array([reason.log_normal for reason in REASONS], dtype=float)
    tries = np.array([reason.trials / reason.jobs for reason in REASONS])
    minutes = np.log(duration_us / 6e7)[:, None] - np.log(tries)
    score = np.log(prior[np.searchsorted([1, BUCKETS[1][1]], gpus)])
    score = score - 0.5 * ((minutes - fits[:, 0]) / fits[:, 1]) ** 2 - np.log(fits[:, 1])
    chance = np.exp(score - score.max(axis=1, keepdims=True))
    chance = np.cumsum(chance, axis=1) / chance.sum(axis=1, keepdims=True)
    chosen: IntArray = (rng.random(len(gpus))[:, None] > chance[:, :-1]).sum(axis=1)
    return chosen


def _jobs_of_size(reason: FailureReason, size: int) -> float:
    """Return a reason's number of jobs of 1, 2 to 4, or more GPUs, split like its trials, else like those of all reasons."""
    split = reason.by_size or tuple(math.fsum(c) for c in zip(*(r.by_size for r in REASONS if r.by_size), strict=True))
    return reason.jobs * split[size] / math.fsum(split)


BURST_GAP_S = 60.0
"""Submissions at most this many seconds apart belong to one burst."""

GAP_SHARE, GAP_S = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0), (0.3, 0.5, 2.0, 5.0, 12.0, 27.0, 56.0, 60.0)

PAUSE_SHARE = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.995, 0.999, 1.0)

PAUSE_S = (61.0, 77.0, 109.0, 189.0, 355.0, 599.0, 600.0, 601.0, 602.0, 1021.0, 22753.0)

SIZE_SHARE = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1.0)

SIZE = (1.0, 1.0, 2.0, 2.0, 4.0, 7.0, 22.0, 85.0, 159.0, 481.0, 1169.0)
"""Quantiles of gaps within bursts (s), of pauses between bursts (s) and of burst sizes (jobs), in Philly's merged list.
Each array of shares (`..._SHARE`) has the quantiles' levels."""

BIG_BURST, BIG_SINGLE_SHARE = 20, 0.972
"""Minimum number of jobs of a big burst, and the share of big bursts whose jobs ask for one GPU each."""

GANGS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)

GANG_WEIGHTS = (16848, 1114, 2035, 2449, 5, 378, 15, 70, 2, 1)
"""Weights of the gang sizes of bursts' first jobs."""

LIKE_THE_BURST = 0.9
"""Share of a burst's jobs with the gang size of its first job."""

LIKENESS = 0.55
"""Correlation of the run times' logarithms within a burst."""

RUN_SHARE = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)

LONGEST_S = 60 * 86400.0

RUN_S = (
    (1.0, 58.0, 128.0, 1198.0, 3955.0, 15586.0, 48124.0, 538052.0, LONGEST_S),
    (1.0, 19.0, 92.0, 1948.0, 65645.0, 218073.0, 429817.0, 1465560.0, LONGEST_S),
    (1.0, 85.0, 877.0, 12567.0, 112913.0, 365273.0, 655638.0, 1941748.0, LONGEST_S),
    (9.0, 51.0, 556.0, 8440.0, 55944.0, 184152.0, 379621.0, 1370566.0, LONGEST_S),
)
"""Quantiles of run times in seconds, one row per size class of the Philly study; log-normal fits have too heavy upper tails."""

QUOTAS = (64, 64, 64, 32, 32, 32, 16, 16, 16, 8, 8)
"""Machines per virtual cluster, as Helios' authors assign them; a burst's virtual cluster is drawn with these weights."""

TILT = 2.0
"""Strength of the preference of some virtual clusters for small gangs and of others for large ones."""

USERS_A_CLUSTER = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class PhillyOptions:
    """Size and shape of the workload.

    Parameters
    ----------
    jobs
        Number of jobs.
    bursts_from
        File of Philly's jobs (the merged list or that of Pollux), whose bursts are resampled with their gangs and run times;
        None to draw bursts from the quantiles in this module.
    load
        Factor on the arrival rate.
    cap_s
        Maximum run time in seconds; longer ones are cut to it.

    Raises
    ------
    InvalidOptionError
        If an option is out of its range.
    """

    jobs: int = 5000
    bursts_from: Path | None = None
    load: float = 1.0
    cap_s: float = LONGEST_S

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_in("[1, 10000000]", self, "jobs")
        check_in("(0, 1e6]", self, "load")
        check_in("[1, 1e9]", self, "cap_s")


def draw_jobs(options: PhillyOptions, seed: int) -> JobTable:
    """Draw jobs in bursts.

    A burst's jobs share the user, the virtual cluster and mostly the gang size, and have correlated run times. Users
    follow a Zipf law within a virtual cluster; this is an assumption, since the source has no users.

    Parameters
    ----------
    options
        Size and shape.
    seed
        Equal options and seeds give equal jobs.

    Raises
    ------
    InvalidProblemError
        If the list of jobs is invalid, or has only one burst.

    References
    ----------
    Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", USENIX ATC 2019.

    Examples
    --------
    >>> len(draw_jobs(PhillyOptions(jobs=7), seed=0))
    7
    """
    rngs = [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(3)]
    if options.bursts_from is None:
        submit, gpus, duration, burst = _from_quantiles(options.jobs, rngs[0])
        note = "jobs are drawn from quantiles of Philly's list"
    else:
        submit, gpus, duration, burst = _resampled(options.bursts_from, options.jobs, rngs[0])
        note = f"bursts are resampled from {options.bursts_from.name}"
    first = np.flatnonzero(np.diff(burst, prepend=-1))
    cluster = _clusters(gpus[first], rngs[1])[np.cumsum(np.isin(np.arange(len(burst)), first)) - 1]
    user = np.minimum(rngs[2].zipf(1.5, len(first)), USERS_A_CLUSTER)[
        np.searchsorted(first, np.arange(len(burst)), "right") - 1
    ]
    return JobTable(
        ids=tuple(f"p{row}" for row in range(len(gpus))),
        submit_s=(submit - submit[0]) / options.load,
        workers=gpus,
        duration_s=np.minimum(duration, options.cap_s),
        clock=np.zeros(len(gpus), np.int64),
        virtual_cluster=np.array([f"vc{number}" for number in cluster.tolist()], dtype=object),
        user=np.array([f"vc{a}-u{b}" for a, b in zip(cluster.tolist(), user.tolist(), strict=True)], dtype=object),
        rows_read=len(gpus),
        notes=(note,),
    )


def _from_quantiles(jobs: int, rng: np.random.Generator) -> tuple[FloatArray, IntArray, FloatArray, IntArray]:
    """Return submission, gang size, run time and burst index of each job."""
    sizes: list[int] = []
    total = 0
    while total < jobs:
        sizes.append(int(np.exp(np.interp(rng.random(), SIZE_SHARE, np.log(np.array(SIZE) + 0.999)))))
        total += sizes[-1]
    size = np.array(sizes)
    burst = np.repeat(np.arange(len(size)), size)[:jobs]
    is_first = np.diff(burst, prepend=-1) > 0
    gaps = np.exp(np.interp(rng.random(jobs), GAP_SHARE, np.log(GAP_S)))
    pauses = np.exp(np.interp(rng.random(jobs), PAUSE_SHARE, np.log(PAUSE_S)))
    submit = np.cumsum(np.where(is_first, pauses, gaps))
    lead = rng.choice(GANGS, size=len(size), p=np.array(GANG_WEIGHTS) / sum(GANG_WEIGHTS))
    lead = np.where((size >= BIG_BURST) & (rng.random(len(size)) < BIG_SINGLE_SHARE), 1, lead)
    other = rng.choice(GANGS, size=jobs, p=np.array(GANG_WEIGHTS) / sum(GANG_WEIGHTS))
    gpus = np.where(is_first | (size[burst] >= BIG_BURST) | (rng.random(jobs) < LIKE_THE_BURST), lead[burst], other)
    common, own = rng.standard_normal(len(size)), rng.standard_normal(jobs)
    rank = _normal_rank(np.sqrt(LIKENESS) * common[burst] + np.sqrt(1 - LIKENESS) * own)
    bucket = np.array([bucket_of(number) for number in range(max(GANGS) + 1)[1:]])[gpus - 1]
    duration = np.empty(jobs)
    for number, quantiles in enumerate(RUN_S):
        mine = bucket == number
        duration[mine] = np.exp(np.interp(rank[mine], RUN_SHARE, np.log(quantiles)))
    return submit, gpus.astype(np.int64), duration, burst


def _resampled(path: Path, jobs: int, rng: np.random.Generator) -> tuple[FloatArray, IntArray, FloatArray, IntArray]:
    """Sample bursts of a list with replacement, each with the pause before it; return the same as `_from_quantiles`."""
    table = read_jobs(path, "philly", ReadOptions())
    order = np.argsort(table.submit_s, kind="stable")
    times = table.submit_s[order]
    gaps = np.diff(times, prepend=times[0] - BURST_GAP_S)
    first = np.flatnonzero(np.concatenate([[True], gaps[1:] > BURST_GAP_S]))
    if len(first) < 2:
        raise InvalidProblemError(f"{path}: all jobs are one burst; give a list with pauses")
    size = np.diff(np.append(first, len(times)))
    rows: list[IntArray] = []
    burst: list[IntArray] = []
    total = 0
    while total < jobs:
        chosen = rng.integers(1, len(first), size=max(16, jobs // 4))  # the pause before the first burst is unknown
        rows.extend(np.arange(first[b], first[b] + size[b]) for b in chosen.tolist())
        burst.extend(np.full(size[b], len(burst) + n) for n, b in enumerate(chosen.tolist()))
        total += int(size[chosen].sum())
    taken = np.concatenate(rows)[:jobs]
    submit = np.cumsum(gaps[taken])
    return submit, table.workers[order][taken], table.duration_s[order][taken], np.concatenate(burst)[:jobs]


def _clusters(gang: IntArray, rng: np.random.Generator) -> IntArray:
    """Draw the virtual cluster of each burst, by the clusters' shares and their preferences for the burst's gang size."""
    share = np.array(QUOTAS, float) / sum(QUOTAS)
    lean = np.linspace(-TILT, TILT, len(QUOTAS))[np.random.default_rng(len(QUOTAS)).permutation(len(QUOTAS))]
    size = np.log2(np.minimum(gang, 16))
    weight = share * np.exp(lean * size[:, None])
    chance = np.cumsum(weight, axis=1) / weight.sum(axis=1, keepdims=True)
    chosen: IntArray = (rng.random(len(gang))[:, None] > chance[:, :-1]).sum(axis=1)
    return chosen


def _normal_rank(score: FloatArray) -> FloatArray:
    """Return the standard normal distribution function at each score."""
    from scipy.special import ndtr

    return np.asarray(ndtr(score))

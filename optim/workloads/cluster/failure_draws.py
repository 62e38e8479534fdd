"""Draw what lists of jobs don't tell: how each ended, and why and when those failed that did."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from optim.core.errors import InvalidProblemError
from optim.models.cluster.philly_tables import BUCKETS, FAILURES, STATUS_SHARES, STATUSES, FailureReason
from optim.models.cluster.world import FloatArray, IntArray

PASSED, KILLED, UNSUCCESSFUL = range(3)
REASONS = tuple(reason for reason in FAILURES.values() if reason.log_normal is not None)
"""Those whose run times to failure are published."""
REASON_NAMES = tuple(reason.name for reason in REASONS)
NONE = -1


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcomes:
    """How jobs ended.

    Parameters
    ----------
    status
        Number into `STATUSES`; shape (jobs,).
    reason
        Number into `REASONS`, -1 for jobs that didn't fail; shape (jobs,).
    tries
        How often the job was tried, all of them in its run time, and none of them well if it failed; shape (jobs,).
    fails_us
        After how much run time each try failed, -1 for jobs that didn't fail; shape (jobs,).
    """

    status: IntArray
    reason: IntArray
    tries: IntArray
    fails_us: IntArray


def draw_outcomes(gpus: IntArray, duration_us: IntArray, seed: int) -> Outcomes:
    """Draw how jobs ended, from tables 6 and 7 of the Philly study.

    A job's status depends on its GPU-time by a multinomial logit whose coefficients give the published shares of jobs and of
    GPU-time in expectation. The reason of a failure is drawn by the number of jobs that had it, times how likely its run
    times to failure (log-normal through the published median and ninth decile) make the job's own: a run time holds all of
    its tries, whose number is geometric with the mean of the reason.

    Parameters
    ----------
    gpus, duration_us
        Gangs and run times; shape (jobs,).
    seed
        Same jobs and seed, same outcomes.

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
    """Return how likely each status is for jobs of some GPU-time; shape (jobs, statuses).

    Shares of the jobs are met exactly in expectation, those of GPU-time as far as a logit can.

    Raises
    ------
    InvalidProblemError
        If no job has GPU-time.
    """
    if not len(time) or time.max() <= 0:
        raise InvalidProblemError("outcomes are drawn for jobs with GPU-time; there is none")
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
    """Draw a reason each: jobs of its size that had it, times the density of its run times to failure."""
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
    """Return how many jobs of 1, 2 to 4 or more GPUs had a reason; as its trials are split, where that is known."""
    split = reason.by_size or tuple(math.fsum(c) for c in zip(*(r.by_size for r in REASONS if r.by_size), strict=True))
    return reason.jobs * split[size] / math.fsum(split)

"""Rules of a run: permissions of the policy, costs of starts, and attempts of failing jobs."""

import math
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from optim.core.arrays import IntArray
from optim.core.errors import InvalidProblemError
from optim.models.cluster.philly import FAILURES
from optim.models.cluster.workload import LATEST_US, PPM, Workload


class Retries(IntEnum):
    """How failed attempts of jobs are handled."""

    AS_RUN = 0
    """Failures are ignored: the run time, which includes all attempts, is simulated in one piece."""
    BLIND = 1
    """Every failed attempt is queued again."""
    BY_CLASS = 2
    """A failed attempt is repeated, up to `max_retries` times, if its reason is unknown or transient.

    Table 7 of the Philly study lists the transient reasons.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Rules of one run.

    Parameters
    ----------
    restart_us, move_us
        Time without progress at each start of a job after its first: on the same GPUs as before (`restart_us`), and on
        other GPUs (`move_us`).
    startup_us
        Time without progress at a job's first start.
    is_elastic
        Whether jobs may run on any number of GPUs from `min_gpus` to `max_gpus`; otherwise they run on exactly their gang.
    is_shared
        Whether jobs take only a share of a GPU; the shares on a GPU add up to at most 1.
    jobs_a_gpu
        Largest number of jobs per GPU if GPUs aren't divided into shares; jobs on one GPU slow each other down.
    neighbour_ppm
        Slowdown, in parts per million, of a multi-GPU job while another multi-GPU job uses one of its machines.
    may_refuse
        Whether the policy may reject jobs before their work is done.
    checkpoint_us
        Work between two checkpoints; a job keeps its work up to the last one if a machine fails. 0 if machines don't fail.
    preempt_checkpoint_us
        Work between two checkpoints for preemption: a preempted job loses its work since the last checkpoint, or since its last
        stop if that was later. 0 if it keeps all work.
    kills_at_limit
        Whether a job is killed once a run of it has lasted for its stated estimate.
    retries
        Handling of failed attempts (`Retries`).
    max_retries
        Largest number of retries under `Retries.BY_CLASS`.
    retry_wait_us
        Waiting time of a job after a failed attempt.
    may_spread
        Whether the engine may spread a gang over arbitrary machines if there is no better placement.
    knows_quotas
        Whether the policy respects quotas of the virtual clusters, so that jobs may wait for quota.
    reservation_depth
        Number of waiting jobs with reserved starts, in the order of submission; 0 if the policy makes no reservations.
    quotas
        Quota in GPUs of each virtual cluster, in the order of their names; empty if the policy uses none, and in logs of
        earlier versions, which lack them.

    Raises
    ------
    InvalidProblemError
        If a value is outside its range.
    """

    restart_us: int = 0
    move_us: int = 0
    startup_us: int = 0
    is_elastic: bool = False
    is_shared: bool = False
    jobs_a_gpu: int = 1
    neighbour_ppm: int = PPM
    may_refuse: bool = False
    checkpoint_us: int = 0
    retries: int = 0
    max_retries: int = 0
    retry_wait_us: int = 0
    preempt_checkpoint_us: int = 0
    may_spread: bool = False
    knows_quotas: bool = False
    kills_at_limit: bool = False
    reservation_depth: int = 0
    quotas: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not all(math.isfinite(gpus) and gpus >= 0 for gpus in self.quotas) or (
            self.quotas and not self.knows_quotas
        ):
            raise InvalidProblemError(
                f"quotas must be numbers of at least 0, and empty unless knows_quotas is true, got {self.quotas!r}"[
                    :200
                ]
            )
        for field in fields(self):
            if field.name == "quotas":
                continue
            value = getattr(self, field.name)
            is_kind = type(value) is (bool if isinstance(field.default, bool) else int)
            least, most = RANGES.get(field.name, (0, 1))
            if not is_kind or not least <= value <= most:
                raise InvalidProblemError(f"{field.name} of a run's rules must lie in {least}..{most}, got {value!r}")


RANGES = {
    "restart_us": (0, LATEST_US),
    "move_us": (0, LATEST_US),
    "startup_us": (0, LATEST_US),
    "checkpoint_us": (0, LATEST_US),
    "retries": (0, max(Retries)),
    "max_retries": (0, 1_000),
    "retry_wait_us": (0, LATEST_US),
    "preempt_checkpoint_us": (0, LATEST_US),
    "jobs_a_gpu": (1, 64),
    "reservation_depth": (0, 2**40),
    "neighbour_ppm": (PPM, 1_000 * PPM),
}
"""Smallest and largest value of each numeric rule."""

ENDLESS = 2**62


class Tries(NamedTuple):
    """Attempts of failing jobs, one entry per job.

    Attempts follow each other in the job's total run time: attempt k (from 0) begins at k x `fails`, the successful attempt
    at `good`.

    Parameters
    ----------
    failing
        Number of failing attempts; 0 if none fails, or if run times are simulated in one piece.
    fails
        Run time of a failing attempt in microseconds, at least 1.
    good
        Position in the run time where the successful attempt begins.
    last
        Number, from 1, of the failing attempt after which the job is given up; `ENDLESS` if the job reaches its successful
        attempt.
    """

    failing: IntArray
    fails: IntArray
    good: IntArray
    last: IntArray


def tries_of(jobs: Workload, rules: Rules) -> Tries:
    """Return the attempts of each job under a run's rules."""
    failing = np.where((jobs.fails_us >= 0) & (rules.retries != Retries.AS_RUN), jobs.tries, 0)
    fails = np.maximum(1, jobs.fails_us)
    left = np.where(jobs.good_us >= 0, jobs.good_us, np.maximum(0, jobs.duration_us - failing * fails))
    last = np.where((failing > 0) & (left == 0), failing, ENDLESS)
    if rules.retries == Retries.BY_CLASS:
        known = [FAILURES.get(name) for name in jobs.reasons]
        helps = np.array([reason is None or reason.is_transient for reason in known])[jobs.reason]
        last = np.minimum(last, np.where(helps, rules.max_retries, 0) + 1)
    return Tries(failing=failing, fails=fails, good=jobs.duration_us - left, last=np.where(failing > 0, last, ENDLESS))


def checkpoint_steps(jobs: Workload, rule_us: int) -> IntArray:
    """Return the work between two checkpoints of each job; shape (jobs,).

    Parameters
    ----------
    jobs
        Jobs. A job's `checkpoint_us` has precedence over `rule_us`; for a job without checkpoints the result is
        `LATEST_US`, more than any job's work.
    rule_us
        `Rules.checkpoint_us` or `Rules.preempt_checkpoint_us`. If it is 0, jobs keep all work, and all results are 0.
    """
    if not rule_us:
        return np.zeros(len(jobs), np.int64)
    own = jobs.checkpoint_us
    return np.where(own < 0, rule_us, np.where(own == 0, LATEST_US, own))


def useful_us(jobs: Workload, rules: Rules) -> IntArray:
    """Return the work of each job's successful attempt."""
    tries = tries_of(jobs, rules)
    return np.where(tries.failing > 0, jobs.duration_us - tries.good, jobs.duration_us)

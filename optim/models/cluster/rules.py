"""Rules of a run: what a policy may do, what starts cost, and attempts of failing jobs."""

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
    """What becomes of jobs whose tries fail."""

    AS_RUN = 0
    """Nothing: their run time is played in one piece, as it holds all of their tries."""
    BLIND = 1
    """Each failed try is queued again, whatever its reason."""
    BY_CLASS = 2
    """Only where a retry helps (table 7 of the Philly study) or nobody knows the reason, and so often at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What one run is played by.

    Parameters
    ----------
    restart_us, move_us
        GPU-time without progress at each start of a job but its first: on the GPUs that it held last, and on others.
    startup_us
        The same at its first start.
    is_elastic
        Whether jobs run on anything from their `min_gpus` to their `max_gpus`; otherwise on whole gangs.
    is_shared
        Whether jobs take only their share of a GPU, and GPUs hold jobs whose shares add up to at most a whole.
    jobs_a_gpu
        How many jobs a GPU holds at most where it isn't shared by shares; jobs on one GPU slow each other down.
    neighbour_ppm
        Slowdown, in parts per million, of a job of several GPUs while another such job has GPUs in one of its machines.
    may_refuse
        Whether jobs may be sent away before their work is done.
    checkpoint_us
        Work between two checkpoints: what a job keeps when a machine fails. 0 where machines don't fail.
    preempt_checkpoint_us
        Work between two checkpoints of a job that is preempted: it loses what it did since the last one, or since its last stop if
        that was later. 0 where it keeps all.
    kills_at_limit
        Whether a job is sent away once a run of it has lasted for the estimate that it states.
    retries, max_retries, retry_wait_us
        What becomes of failed tries (`Retries`); how often one is repeated at most where that goes by its class; and how long
        a job waits after one before it may start again.
    may_spread
        Whether the engine's placement rule gives a gang that finds no other place GPUs anywhere.
    knows_quotas
        Whether the policy goes by quotas of the virtual clusters, so that jobs may wait for theirs.
    reservation_depth
        How many waiting jobs have reserved starts, the first in the order of submission; 0 where the policy reserves none.
    quotas
        GPUs of each virtual cluster by which it goes, in the order of their names; empty where it goes by none, and in logs of
        earlier versions, which don't tell them.

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
                f"quotas of a run's rules must be numbers of at least 0 of a policy that goes by quotas, got {self.quotas!r}"[
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
"""Least and most of each number."""

ENDLESS = 2**62


class Tries(NamedTuple):
    """What becomes of jobs whose tries fail; one entry a job.

    Work is a place in the job's whole run time: try number k (from 0) begins at k x `fails`, the one that ends well at `good`.

    Parameters
    ----------
    failing
        How many tries fail; 0 where none does, or run times are played in one piece.
    fails
        Run time after which such a try fails, microseconds, at least 1.
    good
        Where in the run time the try begins that ends well.
    last
        Number of the failing try, from 1, that is the last one; `ENDLESS` if the job goes on to its good try.
    """

    failing: IntArray
    fails: IntArray
    good: IntArray
    last: IntArray


def tries_of(jobs: Workload, rules: Rules) -> Tries:
    """Return what becomes of each job by a run's rules."""
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
    """Return the work between two checkpoints of each job, shape (jobs,): its own, else the rule's; 0 where the rule is that all is kept.

    Parameters
    ----------
    jobs
        A job without checkpoints has `LATEST_US`: more work than any job has.
    rule_us
        `Rules.checkpoint_us` or `Rules.preempt_checkpoint_us`.
    """
    if not rule_us:
        return np.zeros(len(jobs), np.int64)
    own = jobs.checkpoint_us
    return np.where(own < 0, rule_us, np.where(own == 0, LATEST_US, own))


def useful_us(jobs: Workload, rules: Rules) -> IntArray:
    """Return the work of each job that isn't done in vain when it ends well."""
    tries = tries_of(jobs, rules)
    return np.where(tries.failing > 0, jobs.duration_us - tries.good, jobs.duration_us)

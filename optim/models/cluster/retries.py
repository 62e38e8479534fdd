"""Tries of jobs that fail: how many there are, what each starts from, and after which one a job is over."""

from typing import NamedTuple

import numpy as np

from optim.models.cluster.philly_tables import FAILURES
from optim.models.cluster.rules import Retries, Rules
from optim.models.cluster.workload import Workload
from optim.models.cluster.world import IntArray

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
        last = np.minimum(last, np.where(helps, rules.most_retries, 0) + 1)
    return Tries(failing=failing, fails=fails, good=jobs.duration_us - left, last=np.where(failing > 0, last, ENDLESS))


def useful_us(jobs: Workload, rules: Rules) -> IntArray:
    """Return the work of each job that isn't done in vain when it ends well."""
    tries = tries_of(jobs, rules)
    return np.where(tries.failing > 0, jobs.duration_us - tries.good, jobs.duration_us)

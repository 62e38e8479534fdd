"""Whether runs of one record met the same failures by the same rules, so that their figures may be set side by side."""

from collections.abc import Sequence

import numpy as np

from optim.core.verification import Violation, violation
from optim.models.cluster.check.event_rules import FAIL, REPAIR
from optim.models.cluster.log import EventLog
from optim.models.cluster.run_file import LoggedRun
from optim.models.cluster.world import IntArray

OF_FAILURES = ("checkpoint_us", "retries", "most_retries", "retry_wait_us", "preempt_checkpoint_us")
"""Rules that say what failures of machines and tries, and stops, undo: one each for all runs of a record, whatever the policy."""


def not_the_same_world(run: LoggedRun, runs: Sequence[LoggedRun]) -> list[Violation]:
    """Return where a run's failures aren't those of the longest run, as far as both go on."""
    longest = max(runs, key=lambda each: _end_us(each.log))
    problems = []
    for name in OF_FAILURES:
        own, other = getattr(run.rules, name), getattr(longest.rules, name)
        if own != other:
            said = f"{name} is {own} here, and {other} for {longest.policy[:40]}"
            problems.append(violation("rules", said, where=run.policy))
    until = min(_end_us(run.log), _end_us(longest.log))
    if run is not longest and not np.array_equal(_outages(run.log, until), _outages(longest.log, until)):
        said = f"other failures and repairs of machines than {longest.policy[:40]} met"
        problems.append(violation("log", said, where=run.policy))
    return problems


def _end_us(log: EventLog) -> int:
    return int(log.time_us[-1]) if len(log) else 0


def _outages(log: EventLog, until_us: int) -> IntArray:
    """Return time, kind and machine of failures and repairs before a time: at that very instant a run may end first."""
    is_outage = np.isin(log.kind, (FAIL, REPAIR)) & (np.diff(log.first) == 1) & (log.time_us < until_us)
    at = np.flatnonzero(is_outage)
    return np.stack([log.time_us[at], log.kind[at].astype(np.int64), log.machine[log.first[at]]])

"""Tries of jobs that fail, as a log must show them: after their very run time, as often as the rules say, and no other way."""

from dataclasses import dataclass

from optim.models.cluster.check.event_rules import END, FAULT, GIVE_UP, BrokenEventError
from optim.models.cluster.philly_tables import FAILURES
from optim.models.cluster.rules import Rules
from optim.models.cluster.workload import Workload

AS_RUN, BLIND, BY_CLASS = range(3)


@dataclass(slots=True)
class Fate:
    """One job's tries while a log is read; `left` of them fail still, of which `allowed` may follow on the first."""

    left: int = 0
    allowed: int = 0
    fails: int = 0
    good: int = 0
    is_doomed: bool = False
    wait: int = 0
    made: int = 0
    spent: int = 0
    ready: int = 0

    @property
    def base(self) -> int:
        """Where in the job's run time its present try begins."""
        return min(self.made * self.fails, self.good) if self.left else self.good if self.made else 0

    def start(self, time: int) -> None:
        """Check that the job isn't held back."""
        if time < self.ready:
            raise BrokenEventError(f"starts a job that is held back until {self.ready} us")

    def check(self, run: int, kind: int) -> None:
        """Check what stops a try after some more run time."""
        spent = self.spent + run
        if kind in (FAULT, GIVE_UP):
            if not self.left or spent != self.fails:
                when = f"after {self.fails} us" if self.left else "at no time"
                raise BrokenEventError(f"lets a try fail after {spent} us, which fails {when}")
            is_last = not self.allowed or (self.left == 1 and self.is_doomed)
            if is_last != (kind == GIVE_UP):
                raise BrokenEventError(
                    "repeats a try that was the last" if is_last else "gives a job up that has a try left"
                )
        elif self.left and (kind == END or spent >= self.fails):
            raise BrokenEventError("goes on from a try that fails")

    def fail(self, time: int) -> None:
        """Go on to the next try."""
        self.left, self.allowed, self.made = self.left - 1, self.allowed - 1, self.made + 1
        self.spent, self.ready = 0, time + self.wait


def fates(jobs: Workload, rules: Rules) -> list[Fate]:
    """Return each job's tries before the first."""
    found = []
    columns = (jobs.fails_us, jobs.tries, jobs.good_us, jobs.duration_us, jobs.reason)
    for fails, tries, good, duration, reason in zip(*(column.tolist() for column in columns), strict=True):
        if fails < 0 or rules.retries == AS_RUN:
            found.append(Fate())
            continue
        known = FAILURES.get(jobs.reasons[reason])
        is_useless = rules.retries == BY_CLASS and known is not None and not known.is_transient
        allowed = 0 if is_useless else rules.most_retries if rules.retries == BY_CLASS else tries
        step = max(fails, 1)
        rest = good if good >= 0 else max(duration - tries * step, 0)
        fate = Fate(left=tries, allowed=allowed, fails=step, good=duration - rest, is_doomed=not rest)
        fate.wait = rules.retry_wait_us
        found.append(fate)
    return found

"""Jobs with a deadline on today's spot instances: availability instead of bids, seconds instead of hours.

One cluster in one zone. It works on a spot instance while there is capacity, on an instance on demand at any time, or
waits. Every launch costs a changeover without progress, which is paid for.
"""

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np

from optim.core.errors import InvalidOptionError
from optim.core.ranges import check_in
from optim.models.bidding.availability import AvailabilityTrace
from optim.models.bidding.billing import EC2_TODAY, ON_DEMAND_TODAY, End, FixedPrice, Lease, LedgerLine, Prices
from optim.models.bidding.price_history import HOUR_S
from optim.simulation.spot.policies import check_policies
from optim.simulation.spot.result import RunResult

WORK_TOL = 1e-9


class State(StrEnum):
    """What the job runs on."""

    IDLE = "idle"
    SPOT = "spot"
    ON_DEMAND = "on-demand"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineJob:
    """A job with a deadline, in hours.

    Parameters
    ----------
    work_h, deadline_h
        Hours of work on one cluster, and until when it must be done.
    changeover_h
        Hours without progress after every launch.
    """

    work_h: float
    deadline_h: float
    changeover_h: float = 0.1

    def __post_init__(self) -> None:
        check_in("(0, inf)", {"job hours": self.work_h})
        if not self.deadline_h >= self.work_h:
            raise InvalidOptionError(
                f"deadline hours must be at least the job's {self.work_h:g} hours, got {self.deadline_h:g}"
            )
        check_in("[0, inf)", {"changeover hours": self.changeover_h})


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineView:
    """What a policy sees at a tick.

    Parameters
    ----------
    elapsed_h, work_left_h
        Time since the start, and work that is left.
    state
        What the job runs on; a spot instance that was taken away leaves it idle.
    has_spot
        Whether a spot instance can be had now.
    step_h
        Longest time between two ticks.
    """

    elapsed_h: float
    work_left_h: float
    state: State
    has_spot: bool
    step_h: float


class DeadlinePolicy(Protocol):
    """Choose what to run on at every tick."""

    name: str

    def decide(self, view: DeadlineView, job: DeadlineJob) -> State:
        """Return what to run on until the next tick."""
        ...


class SafetyNet(DeadlinePolicy):
    """Whatever a policy chooses, once a launch on demand could be put off no longer, it is made, and kept to the end.

    Tested after the policy's own rules it would come too late now and then.
    """

    def __init__(self) -> None:
        self._is_locked = False

    def decide(self, view: DeadlineView, job: DeadlineJob) -> State:
        """Return what to run on."""
        self._is_locked = self._is_locked or must_lock(view, job)
        return State.ON_DEMAND if self._is_locked else self.choose(view, job)

    @abstractmethod
    def choose(self, view: DeadlineView, job: DeadlineJob) -> State:
        """Return what to run on while there is time."""


class UniformProgress(SafetyNet):
    """Keep up with a straight line of progress; spot where there is any, on demand where behind.

    On a spot instance the job stays until it is taken away; on demand it stays until it is ahead by two changeovers
    and there is spot.

    References
    ----------
    Wu, Chiang, Mao, Yang, Friedman, Shenker, Stoica, "Can't Be Late: Optimizing Spot Instance Savings under
    Deadlines", NSDI 2024.
    """

    name = "uniform-progress"

    def choose(self, view: DeadlineView, job: DeadlineJob) -> State:
        """Return what to run on while there is time."""
        if view.state is State.SPOT:
            return State.SPOT
        done = job.work_h - view.work_left_h
        if view.state is State.ON_DEMAND:
            ahead = min(view.elapsed_h + 2 * job.changeover_h, job.deadline_h)
            must_stay = done < ahead * job.work_h / job.deadline_h
            return State.SPOT if view.has_spot and not must_stay else State.ON_DEMAND
        if view.has_spot:
            return State.SPOT
        is_behind = done < view.elapsed_h * job.work_h / job.deadline_h
        return State.ON_DEMAND if is_behind else State.IDLE


class GreedySpot(SafetyNet):
    """Wait for spot instances until the safety net asks for one on demand."""

    name = "greedy-spot"

    def choose(self, view: DeadlineView, job: DeadlineJob) -> State:
        """Return spot, or nothing."""
        del job
        return State.SPOT if view.state is State.SPOT or view.has_spot else State.IDLE


class AlwaysOnDemand(DeadlinePolicy):
    """Run on demand throughout."""

    name = "on-demand"

    def decide(self, view: DeadlineView, job: DeadlineJob) -> State:
        """Return on demand."""
        del view, job
        return State.ON_DEMAND


DEADLINE_POLICIES: dict[str, type[DeadlinePolicy]] = {
    policy.name: policy for policy in (UniformProgress, GreedySpot, AlwaysOnDemand)
}
"""Policies under a deadline, by name; each run gets a new one."""


def check_deadline_policies(names: Iterable[str]) -> None:
    """Raise `InvalidOptionError` if a policy under a deadline is unknown."""
    check_policies(names, DEADLINE_POLICIES, " under a deadline")


def must_lock(view: DeadlineView, job: DeadlineJob) -> bool:
    """Tell whether an instance on demand must be launched now to be sure of the deadline."""
    left_h = job.deadline_h - view.elapsed_h
    return view.state is not State.SPOT and left_h < view.work_left_h + 2 * job.changeover_h + view.step_h


class DeadlineRun:
    """One policy on one trace from one tick."""

    def __init__(self, trace: AvailabilityTrace, job: DeadlineJob, policy: DeadlinePolicy, first_tick: int) -> None:
        self._trace, self._job, self._policy = trace, job, policy
        self._first = first_tick
        self._start = int(trace.time_s[first_tick])
        self._state, self._launched_s = State.IDLE, self._start
        self._left = job.work_h
        self._evictions = 0
        self._done_h = float("inf")
        self._ledger: list[LedgerLine] = []
        self._hours = dict.fromkeys(("free", *State), 0.0)

    def execute(self) -> RunResult:
        """Run until the job is done, or the trace ends."""
        trace, job = self._trace, self._job
        step_h = trace.longest_tick_s / HOUR_S
        ends = np.append(trace.time_s[1:], trace.end_s)
        end_s = self._start
        for tick in range(self._first, len(trace)):
            now, until = int(trace.time_s[tick]), int(ends[tick])
            has_spot = bool(trace.is_available[tick])
            if self._state is State.SPOT and not has_spot:
                self._evictions += 1
                self._leave(now, End.EVICTED)
            view = DeadlineView(
                elapsed_h=(now - self._start) / HOUR_S,
                work_left_h=self._left,
                state=self._state,
                has_spot=has_spot,
                step_h=step_h,
            )
            self._move(self._policy.decide(view, job), now, has_spot=has_spot)
            end_s = self._work(now, until)
            if self._left <= WORK_TOL or end_s - self._start > 2 * HOUR_S * job.deadline_h:
                break
        return self._finish(end_s)

    def _move(self, state: State, now: int, *, has_spot: bool) -> None:
        if state is State.SPOT and not has_spot:
            state = State.IDLE
        if state is self._state:
            return
        self._leave(now, End.RETURNED)
        self._state, self._launched_s = state, now

    def _leave(self, now: int, end: End) -> None:
        state, self._state = self._state, State.IDLE
        if state is State.IDLE or now <= self._launched_s:
            return
        market = f"{self._trace.zone} {state.value}"
        lease = Lease(market=market, count=1, granted_s=self._launched_s, ended_s=now, end=end)
        is_spot = state is State.SPOT
        prices: Prices = self._trace if is_spot else FixedPrice(self._trace.on_demand_micro)
        bill = (EC2_TODAY if is_spot else ON_DEMAND_TODAY).lines(lease, prices)
        self._ledger += bill
        is_free = all(line.amount_micro == 0 for line in bill)
        self._hours["free" if is_free else state] += (now - self._launched_s) / HOUR_S

    def _work(self, now: int, until: int) -> int:
        """Work through a tick; return when it, or the job, ends."""
        if self._state is State.IDLE:
            return until
        ready = self._launched_s + self._job.changeover_h * HOUR_S
        worked = max(0.0, until - max(float(now), ready)) / HOUR_S
        if worked >= self._left - WORK_TOL:
            end = max(float(now), ready) + self._left * HOUR_S
            self._left, self._done_h = 0.0, (end - self._start) / HOUR_S
            return int(np.ceil(end - 1e-6))
        self._left -= worked
        return until

    def _finish(self, end_s: int) -> RunResult:
        self._leave(end_s, End.RETURNED)
        is_met = self._done_h <= self._job.deadline_h + WORK_TOL
        return RunResult(
            policy=self._policy.name,
            start_s=self._start,
            cost_micro=sum(line.amount_micro for line in self._ledger),
            hours=(end_s - self._start) / HOUR_S,
            work_done=self._job.work_h - self._left,
            is_done=is_met,
            evictions=self._evictions,
            on_demand_hours=self._hours[State.ON_DEMAND],
            paid_hours=self._hours[State.SPOT],
            free_hours=self._hours["free"],
            end_s=end_s,
            ledger=tuple(self._ledger),
            deadline_met=is_met,
        )


def run_deadline(trace: AvailabilityTrace, job: DeadlineJob, policy: str, first_tick: int) -> RunResult:
    """Run a policy from a tick of a trace.

    Raises
    ------
    InvalidOptionError
        If there is no policy of that name.
    """
    check_deadline_policies([policy])
    return DeadlineRun(trace, job, DEADLINE_POLICIES[policy](), first_tick).execute()

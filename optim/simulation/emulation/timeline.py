"""Leases, work and bill of a policy over time, for one start time of a simulation."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cached_property

from optim.core.errors import unknown_name
from optim.core.policies import causal_names
from optim.models.bidding.market.billing import Reason, to_usd
from optim.models.bidding.market.prices import HOUR_S
from optim.simulation.spot.backtest import Backtest
from optim.simulation.spot.engine import RunResult, Snapshot, SpotRun
from optim.simulation.spot.policies import make_policy
from optim.simulation.spot.policy import LiveLease, Recovery, World

WORK_TOL = 1e-9
"""Relative tolerance of work, which is added up interval by interval."""


class Change(StrEnum):
    """Type of a change of a lease or of the job."""

    GRANTED = "granted"
    WORKING = "working"
    """The start-up of the machines is over."""
    WARNED = "warned"
    """The price has exceeded the bid: the machines stay for two minutes, and the started hour is free."""
    LOST = "lost"
    """The lease was evicted."""
    RETURNED = "returned"
    """The policy returned the machines."""
    SAVED = "saved"
    """A checkpoint is complete."""
    RESTARTED = "restarted"
    """A job that isn't elastic lost working machines, and restarts from the last checkpoint or from zero."""
    DONE = "done"
    GIVEN_UP = "given up"
    """The horizon was reached before the job was complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseFacts:
    """A lease of a timeline.

    Parameters
    ----------
    number
        Position in the order in which leases were granted.
    market, count
        The market that leases the machines, and their number.
    rate
        Work of one machine per hour.
    is_spot
        Whether the machines can be evicted.
    """

    number: int
    market: str
    count: int
    rate: float
    is_spot: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A time at which something changes.

    Parameters
    ----------
    time_s
        Time in seconds since 1970.
    changes
        Changes in order, each with the number of the lease that changes, or None if the change concerns the job.
    held
        Numbers of the leases active after the step; a lease under warning counts until its machines are gone.
    work_done, work_saved, rate, resumes_s
        See `Snapshot`.
    """

    time_s: int
    changes: tuple[tuple[Change, int | None], ...]
    held: tuple[int, ...]
    work_done: float
    work_saved: float
    rate: float
    resumes_s: int

    def work_until(self, time_s: float) -> float:
        """Return the work done by a later time, provided that nothing changes before that time."""
        return self.work_done + self.rate * max(0.0, time_s - self.resumes_s) / HOUR_S


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """One simulated start of one policy.

    Parameters
    ----------
    policy, recovery
        Name of the policy, and how its job recovers from an eviction.
    job_work
        Work of the job.
    leases
        The leases, by number.
    steps
        The steps in order of time; the last one ends the job.
    result
        Results of the simulation, including the ledger.
    """

    policy: str
    recovery: Recovery
    job_work: float
    leases: tuple[LeaseFacts, ...]
    steps: tuple[Step, ...]
    result: RunResult

    @property
    def start_s(self) -> int:
        """Time at which the job begins."""
        return self.result.start_s

    @cached_property
    def over_s(self) -> int:
        """Time at which the last lease has ended and the bill is complete; later than the job's end if leases outlast it."""
        ends = [line.end_s for line in self.result.ledger if line.reason is Reason.EVICTED_FREE]
        return max([self.steps[-1].time_s, self.result.end_s, *ends])

    def bill_usd(self, time_s: float) -> float:
        """Return the bill at a time: each hour is charged when it begins, except an hour cut short by an eviction."""
        return to_usd(sum(line.amount_micro for line in self.result.ledger if line.begin_s <= time_s))

    def free_hours(self, time_s: float) -> float:
        """Return the machine-hours that evictions have made free by a time."""
        lines = self.result.ledger
        free = [line for line in lines if line.reason is Reason.EVICTED_FREE and line.end_s <= time_s]
        return sum((line.machine_hours for line in free), 0.0)

    def num_machines(self, step: Step) -> int:
        """Return the number of leased instances after a step."""
        return sum(self.leases[number].count for number in step.held)

    def clock_times(self, clocks: int, index: int) -> Iterator[tuple[int, float]]:
        """Yield the clocks completed between a step and the next, with their times of completion.

        Parameters
        ----------
        clocks
            Number of equal clocks into which the job is divided.
        index
            Index of the step.
        """
        if index + 1 == len(self.steps):
            return
        step, end_s = self.steps[index], self.steps[index + 1].time_s
        a_clock = self.job_work / clocks
        last = self.clock_of(step.work_until(end_s), clocks)
        for clock in range(self.clock_of(step.work_done, clocks) + 1, last + 1):
            yield clock, min(end_s, step.resumes_s + max(0.0, clock * a_clock - step.work_done) / step.rate * HOUR_S)

    def clock_of(self, work: float, clocks: int) -> int:
        """Return how many of the job's clocks an amount of work completes."""
        return min(clocks, int(clocks * (work / self.job_work + WORK_TOL)))


def record_timeline(world: World, policy: str, start_s: int) -> Timeline:
    """Simulate a policy from a start time, and record its leases.

    Parameters
    ----------
    world
        Prices during the run, estimates of evictions from earlier prices, and the job.
    policy
        Name of the policy.
    start_s
        Time at which the job begins, in seconds since 1970.
    """
    maker = make_policy(policy, world)
    recorder = _Recorder(world, maker.recovery)
    result = SpotRun(world, maker, start_s, recorder.watch).execute()
    end = Change.DONE if result.is_done else Change.GIVEN_UP
    return Timeline(
        policy=policy,
        recovery=maker.recovery,
        job_work=world.job_work,
        leases=tuple(recorder.leases),
        steps=tuple(recorder.steps_until(end)),
        result=result,
    )


def record_start(world: World, policies: Sequence[str], seed: int, index: int) -> tuple[Timeline, ...]:
    """Simulate policies from one start time of a back-test, with the same bills as the back-test.

    Parameters
    ----------
    world
        Prices during the run, estimates of evictions from earlier prices, and the job.
    policies
        Names of the policies.
    seed, index
        Seed of the back-test, and number of the start in the back-test.

    Raises
    ------
    InvalidOptionError
        If a policy is unknown, or the prices allow no start of the job.
    """
    known = causal_names("spot")
    for name in policies:
        if name not in known:
            raise unknown_name("policy to train by", name, known)
    start = Backtest(world, policies, seed).run_start(index).rows[0].start
    start_s = int(datetime.fromisoformat(start).timestamp())
    return tuple(record_timeline(world, name, start_s) for name in policies)


class _Recorder:
    """Recorder of the changes between successive snapshots."""

    def __init__(self, world: World, recovery: Recovery) -> None:
        self.leases: list[LeaseFacts] = []
        self._world, self._recovery = world, recovery
        self._steps: list[Step] = []
        self._numbers: dict[int, int] = {}
        self._before: dict[int, tuple[bool, bool]] = {}
        self._saved = 0.0
        self._last: Snapshot | None = None

    def watch(self, moment: Snapshot) -> None:
        """Record the changes since the last snapshot."""
        states = {self._number(holding.lease): (holding.is_working, holding.is_warned) for holding in moment.holdings}
        changes = list(self._changes(states, moment))
        is_smooth = self._last is not None and (moment.rate, moment.resumes_s) == (
            self._last.rate,
            max(moment.time_s, self._last.resumes_s),
        )
        self._before, self._saved, self._last = states, moment.work_saved, moment
        if changes or not is_smooth:
            self._steps.append(_step(moment, changes, tuple(states)))

    def steps_until(self, end: Change) -> list[Step]:
        """Return all steps, with the job's end as the last."""
        assert self._last is not None
        return [*self._steps, _step(self._last, [(end, None)], ())]

    def _number(self, lease: LiveLease) -> int:
        if lease.number in self._numbers:
            return self._numbers[lease.number]
        market = self._world.history.markets[lease.market]
        facts = LeaseFacts(
            number=len(self.leases),
            market=market.name if lease.bid_micro is not None else f"{market.instance_type} on demand",
            count=lease.count,
            rate=market.rate,
            is_spot=lease.bid_micro is not None,
        )
        self.leases.append(facts)
        self._numbers[lease.number] = facts.number
        return facts.number

    def _changes(self, states: dict[int, tuple[bool, bool]], moment: Snapshot) -> Iterator[tuple[Change, int | None]]:
        """Yield the changes since the last snapshot, lost leases before granted ones."""
        is_hurt = False
        if moment.work_saved > self._saved:
            yield Change.SAVED, None
        for number, (was_working, was_warned) in self._before.items():
            if number not in states:
                yield Change.LOST if was_warned else Change.RETURNED, number
                is_hurt = is_hurt or (was_warned and was_working)
        if is_hurt and self._recovery is not Recovery.ELASTIC:
            yield Change.RESTARTED, None
        for number, (is_working, is_warned) in states.items():
            was_working, was_warned = self._before.get(number, (False, False))
            if number not in self._before:
                yield Change.GRANTED, number
            if is_working and not was_working:
                yield Change.WORKING, number
            if is_warned and not was_warned:
                yield Change.WARNED, number


def _step(moment: Snapshot, changes: list[tuple[Change, int | None]], held: tuple[int, ...]) -> Step:
    return Step(
        time_s=moment.time_s,
        changes=tuple(changes),
        held=held,
        work_done=moment.work_done,
        work_saved=moment.work_saved,
        rate=moment.rate,
        resumes_s=moment.resumes_s,
    )

"""Replay of a simulated start on the spot market with real processes.

The simulation determines when machines are granted and lost, and the job's progress over time. In the replay, each
group of machines is a process of the elastic trainer. The processes compute a training clock when the simulated job
reaches the same share of its work. So clocks, losses and bill are the same in every run with the same seed, on any
computer; only the elapsed times differ.
"""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from optim.core.errors import UnsupportedProblemError, check_in
from optim.execution import sigint_blocked
from optim.models.bidding.market.prices import HOUR_S
from optim.simulation.emulation.timeline import Change, LeaseFacts, Step, Timeline
from optim.simulation.spot.policy import Recovery
from optim.training.applications import LogisticRegression
from optim.training.controller import Phase
from optim.training.processes import Processes
from optim.training.stages import NEVER, ClusterOptions, Fixed, Stage
from optim.training.trainer import Action, Event, Trainer, TrainingRecord, run_alone

if TYPE_CHECKING:
    from optim.kernels.parameter_server import AbstractOptimiser
    from optim.training.application import Application
    from optim.training.transport import Transport


def processes_of(lease: LeaseFacts, work_per_process: int) -> int:
    """Return the number of processes of a lease: its work per hour divided by that of one process, rounded up."""
    return -(-round(1000 * lease.count * lease.rate) // (1000 * work_per_process))


def peak(timeline: Timeline, work_per_process: int) -> int:
    """Return the maximum number of simultaneous processes."""
    sizes = [processes_of(lease, work_per_process) for lease in timeline.leases]
    return max(sum(sizes[number] for number in held) for held in _held(timeline))


def _held(timeline: Timeline) -> Iterator[list[int]]:
    """Yield the leases that have processes in each step; the processes of an elastic job end at the warning."""
    gone: set[int | None] = set()
    for step in timeline.steps:
        if timeline.recovery is Recovery.ELASTIC:
            gone |= {number for change, number in step.changes if change is Change.WARNED}
        yield [number for number in step.held if number not in gone]


def fit_scale(timelines: Sequence[Timeline], max_processes: int) -> int:
    """Return the minimum work per hour that a process must represent so that no policy has more than `max_processes` processes.

    One unit of work per hour is a c3.xlarge. Every lease has at least one process, so that a replay shows each eviction.

    Raises
    ------
    UnsupportedProblemError
        If there are more leases than processes allowed.
    """

    def most(scale: int) -> int:
        return max(peak(timeline, scale) for timeline in timelines)

    leases = max(len(held) for timeline in timelines for held in _held(timeline))
    if leases > max_processes:
        raise UnsupportedProblemError(
            f"a policy holds {leases} leases at once, more than max_processes {max_processes}; raise max_processes"
        )
    low, high = 0, 1  # low leads to too many processes, high does not
    while most(high) > max_processes:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if most(middle) > max_processes else (low, middle)
    return high


CLOCK = "clock"
"""Event that a replay adds to the simulation's changes: a training clock is complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRow:
    """An event of a replay.

    Attributes
    ----------
    policy, event
        Name of the policy, and type of the event: a `Change` of the simulation, or ``clock`` for a completed training clock.
    hours
        Simulated hours since the start.
    machines, processes
        Instances held by the simulated job, and the processes that represent them.
    clock, loss
        Number of completed clocks that were not undone, and mean loss at the beginning of the last of them; the loss is
        None before the first.
    bill_usd, free_hours
        Bill so far in dollars, and machine-hours that are free of charge because of evictions.
    lost_clocks
        Number of clocks that this event has undone.
    seconds
        Real seconds since the beginning of the replay.
    """

    policy: str
    event: str
    hours: float
    machines: int
    processes: int
    clock: int
    loss: float | None
    bill_usd: float
    free_hours: float
    lost_clocks: int = 0
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSummary:
    """Summary of a replay.

    Attributes
    ----------
    policy
        Name of the policy.
    hours, is_done
        Simulated time of the job, and whether it was finished within the horizon.
    bill_usd, free_hours, evictions
        Bill, free machine-hours and number of evictions, as in the simulation.
    clocks, lost_clocks, gradients
        Number of clocks completed at the end, number of clocks that were undone, and number of gradients computed for
        all these clocks.
    processes_started
        Number of processes started.
    last_loss
        Loss at the end.
    is_exact
        Whether losses and parameters equal those of an undisturbed run on one machine, bit for bit; None if the replay was
        stopped.
    seconds
        Duration of the replay.
    late_median, late_p90, late_end
        Delays of the clocks relative to their simulated times, as shares of the job's simulated duration. In order:
        median of the absolute values, their 90 % quantile, and delay of the last clock (negative if it was early). None
        if `hour_s` is 0.
    bill_if_late_usd
        The bill with the delay of the last clock added to the job's time, at the same mean dollars per hour.
    """

    policy: str
    summary: bool = True
    hours: float
    is_done: bool
    bill_usd: float
    free_hours: float
    evictions: int
    clocks: int
    lost_clocks: int
    gradients: int
    processes_started: int
    last_loss: float | None
    is_exact: bool | None
    seconds: float
    late_median: float | None = None
    late_p90: float | None = None
    late_end: float | None = None
    bill_if_late_usd: float | None = None


def with_lateness(summary: TrainingSummary, rows: Sequence[TrainingRow], hour_s: float) -> TrainingSummary:
    """Return a summary with the replay's delays relative to the simulation's times.

    Parameters
    ----------
    summary, rows
        Summary and rows of one policy's replay.
    hour_s
        Minimum real seconds per simulated hour; with 0, the summary is returned unchanged.
    """
    clocks = [row for row in rows if row.event == CLOCK and row.policy == summary.policy]
    whole = hour_s * max((row.hours for row in clocks), default=0.0)
    if not whole:
        return summary
    late = np.array([row.seconds - hour_s * row.hours for row in clocks]) / whole
    return replace(
        summary,
        late_median=float(np.median(np.abs(late))),
        late_p90=float(np.quantile(np.abs(late), 0.9)),
        late_end=float(late[-1]),
        bill_if_late_usd=summary.bill_usd * (1.0 + max(0.0, float(late[-1]))),
    )


NAP_S = 0.02
"""Seconds between two checks of the time while a replay waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """Options of a replay.

    Parameters
    ----------
    clocks
        Number of training clocks into which the job is divided, equal in work.
    hour_s
        Minimum real seconds per simulated hour. If this computer is too slow, the replay takes longer, and the summary
        states the delay.
    max_processes
        Maximum number of simultaneous processes; each represents as many machines as this limit requires.
    is_warned
        Whether the processes of an elastic job are warned before an eviction; otherwise they are killed while they
        work.
    seed
        Seed of the training data.
    """

    clocks: int = 120
    hour_s: float = 1.0
    max_processes: int = 8
    is_warned: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        check_in("[1, inf)", self, "clocks", "max_processes")
        check_in("[0, inf)", self, "hour_s", "seed")


class _StoppedError(Exception):
    """The replay was asked to stop."""


@dataclass
class Replay:
    """Replay of one policy's start with real processes; iterate over `rows`, then call `summary`.

    Parameters
    ----------
    timeline
        Events of the simulated start.
    work_per_process
        Work per hour that one process represents.
    options
        Options of the replay.
    is_stopped
        Function called regularly; once it returns true, the rows end and all processes are ended.
    connect
        Function that returns a context manager, which starts and ends the transport to the machines; local processes by
        default.
    """

    timeline: Timeline
    work_per_process: int
    options: ReplayOptions
    is_stopped: Callable[[], bool] = lambda: False
    connect: "Callable[[Application, ClusterOptions], AbstractContextManager[Transport]] | None" = None
    _names: dict[int, tuple[str, ...]] = field(default_factory=dict)
    _working: set[int] = field(default_factory=set)
    _pending_kills: list[str] = field(default_factory=list)
    _clock: int = 0
    _started: int = 0
    _lost: int = 0
    _begun: float = 0.0
    _seconds: float = 0.0
    _record: TrainingRecord | None = None
    _is_whole: bool = False
    _trainer: Trainer = field(init=False)

    def rows(self) -> Generator[TrainingRow]:
        """Train along the timeline, and yield a row for each clock and each change; close the generator to end early."""
        application, optimiser = make_job(self.options)
        cluster = self._cluster()
        self._begun = time.perf_counter()
        connect = self.connect or self._processes
        with connect(application, cluster) as transport:
            self._trainer = Trainer(application, optimiser, cluster, transport)
            self._trainer.controller.resume(0)
            try:
                for index, step in enumerate(self.timeline.steps):
                    yield from self._play(index, step)
                self._is_whole = True
            except _StoppedError:
                return
            finally:
                self._record = self._trainer.record()
                self._seconds = time.perf_counter() - self._begun

    def summary(self) -> TrainingSummary:
        """Return the summary of the replay."""
        result, record, losses = self.timeline.result, self._record, self.losses
        return TrainingSummary(
            policy=self.timeline.policy,
            hours=result.hours,
            is_done=result.is_done,
            bill_usd=result.cost_usd,
            free_hours=result.free_hours,
            evictions=result.evictions,
            clocks=len(losses),
            lost_clocks=self._lost,
            gradients=record.num_computed if record is not None else 0,
            processes_started=self._started,
            last_loss=losses[-1] if losses else None,
            is_exact=record.equals(reference_run(self.options, len(losses))) if record and self._is_whole else None,
            seconds=self._seconds,
        )

    @property
    def losses(self) -> tuple[float, ...]:
        """Loss at the start of each clock. A clock that a rollback undid and that ran again is listed once."""
        return self._record.losses if self._record is not None else ()

    def _processes(self, application: "Application", cluster: ClusterOptions) -> Processes:
        # Processes that leave may still be ending while new processes start.
        return Processes(application, cluster, max_machines=2 * self.options.max_processes)

    def _cluster(self) -> ClusterOptions:
        """Return options with AgileML's tiers for an elastic job, and options with checkpoints for any other job."""
        if self.timeline.recovery is Recovery.ELASTIC:
            return ClusterOptions(num_shards=2, max_actives=2)
        # The parameters are one shard that moves only when its machine leaves, so that only checkpoints reach the
        # storage.
        policy = Fixed(fixed=Stage.TRADITIONAL)
        return ClusterOptions(num_shards=1, checkpoint_every=NEVER, policy=policy)

    # -- one step -----------------------------------------------------------------------------------------------------

    def _play(self, index: int, step: Step) -> Iterator[TrainingRow]:
        """Apply the changes of a step, then train until the next."""
        self._wait_until(step.time_s)
        for change, number in step.changes:
            undone = self._apply(change, number, step)
            self._lost += undone
            yield self._row(step, change.value, step.time_s, undone)
        for clock, time_s in self.timeline.clock_times(self.options.clocks, index):
            self._train_to(clock)
            self._wait_until(time_s)
            yield self._row(step, CLOCK, time_s)

    def _apply(self, change: Change, number: int | None, step: Step) -> int:
        """Apply a change of machines to their processes; return the number of clocks undone."""
        is_elastic = self.timeline.recovery is Recovery.ELASTIC
        match change:
            case Change.GRANTED if number is not None:
                self._start(number)
            case Change.WORKING if number is not None:
                self._working.add(number)
                self._settle(self._names[number])
            case Change.WARNED if number is not None and is_elastic:
                return self._evict(number) if self.options.is_warned else self._kill(number)
            case Change.LOST if number in self._working and not is_elastic:
                self._pending_kills += self._names.pop(number, ())
            case Change.LOST | Change.RETURNED if number is not None:
                return self._evict(number)
            case Change.SAVED:
                self._save()
            case Change.RESTARTED:
                return self._restart(step)
            case Change.DONE | Change.GIVEN_UP:
                for held in list(self._names):
                    self._evict(held)
        return 0

    def _start(self, number: int) -> None:
        """Start a lease's processes; they join once they have started, and the other processes don't wait for them."""
        lease = self.timeline.leases[number]
        count, kind = processes_of(lease, self.work_per_process), "spot" if lease.is_spot else "reliable"
        names = tuple(f"{kind}-{number}-{self._started + k}" for k in range(count))
        action = Action.ADD_TRANSIENT if lease.is_spot else Action.ADD_RELIABLE
        with sigint_blocked():
            self._trainer.apply(Event(clock=0, action=action, machines=names))
        self._started += count
        self._names[number] = names

    def _evict(self, number: int) -> int:
        """Evict a lease's processes with a warning, without undoing any clock."""
        names = self._names.pop(number, ())
        if names:
            self._trainer.apply(Event(clock=0, action=Action.EVICT, machines=names))
            self._settle()
        return 0

    def _kill(self, number: int) -> int:
        """Kill a lease's processes while they work; the other processes repeat the lost work at once."""
        controller, names = self._trainer.controller, self._names.pop(number, ())
        seen = len(controller.rollbacks)
        self._begin_clock()
        self._trainer.apply(Event(clock=0, action=Action.KILL, machines=names))
        self._await_losses(names)
        self._settle()
        return sum(max(0, self._clock - rollback.to_clock) for rollback in controller.rollbacks[seen:])

    def _restart(self, step: Step) -> int:
        """Kill all working or on-demand processes, and restart those whose machines remain.

        Processes of spot machines that are still starting up stay, because they have done no work.
        """
        controller, before = self._trainer.controller, self._clock
        ended = [
            number for number in self._names if number in self._working or not self.timeline.leases[number].is_spot
        ]
        names = [*self._pending_kills, *(name for number in ended for name in self._names.pop(number))]
        self._pending_kills.clear()
        self._begin_clock()
        self._trainer.apply(Event(clock=0, action=Action.KILL, machines=tuple(names)))
        controller.resume(controller.saved_clock)  # before the losses are reported, so that no other machine continues
        self._await_losses(names)
        for number in ended:
            self._start(number)
        self._settle([name for number in ended for name in self._names[number]])
        self._clock = self._trainer.clock
        return before - self._clock

    def _begin_clock(self) -> None:
        """Begin the next clock, so that processes are killed in the middle of it."""
        controller, clock = self._trainer.controller, self._trainer.clock
        if controller.phase is Phase.RUNNING and controller.stop_at == clock < self.options.clocks:
            controller.resume(clock + 1)

    def _await_losses(self, names: Sequence[str]) -> None:
        controller = self._trainer.controller
        while {*controller.machines.staying, *controller.machines.leaving, *controller.machines.joining} & set(names):
            self._step()

    def _save(self) -> None:
        """Write a checkpoint of the current clock if it has none."""
        controller = self._trainer.controller
        if controller.saved_clock < self._trainer.clock:
            controller.save()
        while controller.saved_clock < self._trainer.clock:
            self._step()

    def _train_to(self, clock: int) -> None:
        """Train up to a clock, unless it is done already."""
        if clock > self._trainer.controller.stop_at:
            self._trainer.controller.resume(clock)
        self._settle()
        self._clock = clock

    # -- waiting ------------------------------------------------------------------------------------------------------

    def _settle(self, joining: Sequence[str] = ()) -> None:
        """Process messages until the requested clock is complete, no machine is leaving, and all of `joining` have joined."""
        while not self._is_at_rest(joining):
            self._step()

    def _is_at_rest(self, joining: Sequence[str]) -> bool:
        controller = self._trainer.controller
        if controller.machines.leaving or any(name in controller.machines.joining for name in joining):
            return False
        if not controller.machines.staying:
            return controller.phase is Phase.STOPPED
        return controller.phase is Phase.RUNNING and controller.flow.is_settled_at(controller.stop_at)

    def _step(self) -> None:
        self._check()
        self._trainer.step()

    def _wait_until(self, time_s: float) -> None:
        """Wait until a time of the simulation is due in real time, unless the replay is late."""
        due = self._begun + self._hours(time_s) * self.options.hour_s
        self._check()
        while time.perf_counter() < due:
            time.sleep(min(NAP_S, max(0.0, due - time.perf_counter())))
            self._check()

    def _check(self) -> None:
        if self.is_stopped():
            raise _StoppedError

    # -- results ------------------------------------------------------------------------------------------------------

    def _hours(self, time_s: float) -> float:
        return (time_s - self.timeline.start_s) / HOUR_S

    def _row(self, step: Step, event: str, time_s: float, lost_clocks: int = 0) -> TrainingRow:
        timeline, clock = self.timeline, self._clock
        # The last row has the complete bill, with the leases that outlast the job.
        billed_s = timeline.over_s if step is timeline.steps[-1] else time_s
        losses = self._trainer.controller.flow.losses
        return TrainingRow(
            policy=timeline.policy,
            event=event,
            hours=self._hours(time_s),
            machines=timeline.num_machines(step),
            processes=sum(len(names) for names in self._names.values()),
            clock=clock,
            loss=losses[clock - 1] if clock else None,
            bill_usd=timeline.bill_usd(billed_s),
            free_hours=timeline.free_hours(billed_s),
            lost_clocks=lost_clocks,
            seconds=time.perf_counter() - self._begun,
        )


def make_job(options: ReplayOptions) -> "tuple[LogisticRegression, AbstractOptimiser]":
    """Return the application and its optimiser; the data has at least one partition per allowed process."""
    from optim.kernels.parameter_server import Adagrad

    partitions = max(8, options.max_processes)
    application = LogisticRegression(
        num_observations=200 * partitions, num_features=64, num_classes=10, num_partitions=partitions, seed=options.seed
    )
    return application, Adagrad(learning_rate=0.05)


def reference_run(options: ReplayOptions, clocks: int) -> TrainingRecord:
    """Return the run of the same job on one machine without interruptions."""
    return run_alone(*make_job(options), clocks)

"""Training of a job while machines are added, removed and killed, and a record of its clocks."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from optim.core.errors import InvalidOptionError, NotAllowedError, check_in
from optim.training.application import Application, HasRows, check_application, name_of
from optim.training.arrays import to_host
from optim.training.checkpoints import DurableStorage, StartingPoint
from optim.training.controller import Controller, Phase, Rollback
from optim.training.messages import Message, Vector
from optim.training.stages import STORAGE, ClusterOptions, Stage
from optim.training.transport import InProcess, Lost, Transport

if TYPE_CHECKING:
    from optim.kernels.parameter_server import AbstractOptimiser


class Action(StrEnum):
    """Type of a change of machines."""

    ADD_RELIABLE = "add-reliable"
    ADD_TRANSIENT = "add-transient"
    EVICT = "evict"
    """Remove machines after a warning."""
    KILL = "kill"
    """Remove machines without a warning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A change of machines at a clock.

    Parameters
    ----------
    clock
        Number of applied clocks at which the event happens.
    action, machines
        Type of change, and names of the machines.
    after_messages
        Number of messages that the controller receives after `clock` before the event; allows failures within a clock.
    """

    clock: int
    action: Action
    machines: tuple[str, ...]
    after_messages: int = 0

    def __post_init__(self) -> None:
        check_in("[0, inf)", self, "clock", "after_messages")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockRow:
    """A completed clock; if a failure undoes the clock, its repetition has another row.

    Attributes
    ----------
    clock
        Number of applied clocks.
    loss
        Mean loss before the clock's update.
    stage, reliable, transient
        Stage of the layout, and numbers of machines that computed the clock.
    elapsed_s
        Seconds since the beginning of the run.
    """

    clock: int
    loss: float
    stage: Stage
    reliable: int
    transient: int
    elapsed_s: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainingRecord:
    """Result of a run.

    Attributes
    ----------
    losses
        Mean loss before each clock's update, without repeated clocks.
    parameters
        Shape (n,): final parameters.
    rows
        All clocks in order of time, including those that were undone.
    rollbacks
        Rollbacks after failures.
    num_computed
        Number of computed gradients, including repetitions.
    num_skipped
        Number of gradients skipped because they weren't finite.
    """

    losses: tuple[float, ...]
    parameters: Vector
    rows: tuple[ClockRow, ...]
    rollbacks: tuple[Rollback, ...]
    num_computed: int
    num_skipped: int = 0

    def equals(self, other: "TrainingRecord") -> bool:
        """Return whether losses and parameters equal those of another run in every bit."""
        return self.losses == other.losses and np.array_equal(self.parameters, other.parameters)


def _check_optimiser(optimiser: "AbstractOptimiser") -> None:
    from optim.kernels.parameter_server import AbstractOptimiser

    if not isinstance(optimiser, AbstractOptimiser):
        raise InvalidOptionError(
            "optimiser must be one of optim.kernels.parameter_server (Sgd, Momentum, Adagrad, Adam, AdamW), "
            f"got {type(optimiser).__name__}"
        )


class Trainer:
    """A job, its controller and its transport.

    Parameters
    ----------
    application, optimiser, options
        Application to train, its optimiser, and options of the training.
    transport
        Transport to the machines; by default they are objects of this process.
    start
        Starting point; by default the application's initial parameters at clock 0.
    """

    def __init__(
        self,
        application: Application,
        optimiser: "AbstractOptimiser",
        options: ClusterOptions | None = None,
        transport: Transport | None = None,
        start: StartingPoint | None = None,
    ) -> None:
        check_application(application)
        _check_optimiser(optimiser)
        self.transport: Transport = InProcess(application) if transport is None else transport
        self.controller = Controller(self.transport, application, optimiser, options or ClusterOptions(), start)
        self.rows: list[ClockRow] = []
        self._started = time.perf_counter()
        self._seen_clock = 0 if start is None else start.clock
        self._last_lost = ""

    @property
    def clock(self) -> int:
        """Number of clocks applied by all shards."""
        return self.controller.flow.read_clock

    def run(self, clocks: int, events: Sequence[Event] = ()) -> TrainingRecord:
        """Train up to a clock.

        Parameters
        ----------
        clocks
            Total number of clocks, including earlier runs.
        events
            Changes of machines during the run. Each happens once, even if its clock is repeated.

        Raises
        ------
        NotAllowedError
            If no machine is left and no event will add one.
        """
        from threadpoolctl import threadpool_limits

        self.controller.resume(clocks)
        events = sorted(events, key=lambda event: event.clock)
        waiting = {number: event.after_messages for number, event in enumerate(events)}
        # Use one thread: libraries split sums by cores, so that the rounding would depend on the number of cores.
        with threadpool_limits(limits=1):
            while True:
                due = [number for number in waiting if events[number].clock <= self.clock and waiting[number] <= 0]
                for number in due:
                    self.apply(events[number])
                    del waiting[number]
                if self.is_done:
                    return self.record()
                self.step(has_more=bool(waiting))
                for number in waiting:
                    waiting[number] -= self.clock >= events[number].clock

    @property
    def is_done(self) -> bool:
        """Whether the target clock is applied and no change of machines is in progress."""
        flow, stop_at = self.controller.flow, self.controller.stop_at
        return (
            not self.controller.machines.joining
            and self.controller.phase is Phase.RUNNING
            and flow.is_settled_at(stop_at)
        )

    def record(self) -> TrainingRecord:
        """Return the results so far."""
        flow = self.controller.flow
        return TrainingRecord(
            losses=tuple(flow.losses),
            parameters=np.array(to_host(flow.parameters)),
            rows=tuple(self.rows),
            rollbacks=tuple(self.controller.rollbacks),
            num_computed=flow.num_computed,
            num_skipped=flow.num_skipped,
        )

    def apply(self, event: Event) -> None:
        """Apply an event now."""
        match event.action:
            case Action.ADD_RELIABLE:
                self.controller.add(reliable=event.machines)
            case Action.ADD_TRANSIENT:
                self.controller.add(transient=event.machines)
            case Action.EVICT:
                self.controller.evict(event.machines)
            case Action.KILL:
                for machine in event.machines:
                    self.transport.kill(machine)  # the transport notifies the controller, as after any failure

    def step(self, *, has_more: bool = False) -> None:
        """Process one message.

        Raises
        ------
        NotAllowedError
            If no message can arrive any more; `has_more` states whether events are waiting.
        """
        message = self.transport.receive()
        if message is None:
            hint = "an event waits for a clock that cannot be reached" if has_more else "add a machine"
            hint = f"{self._last_lost}; {hint}" if self._last_lost else hint
            raise NotAllowedError(
                f"training can't continue at clock {self.clock} with machines "
                f"{', '.join(self.controller.machines.staying) or 'none'}: {hint}"
            )
        self.take(message)

    def take(self, message: Message | Lost) -> None:
        """Pass a message to the controller and record the result."""
        if isinstance(message, Lost):
            self._last_lost = f"machine {message.machine} was the last to leave, {message.reason}"
        self.controller.receive(message)
        self._note()

    def _note(self) -> None:
        """Record a row for each newly completed clock; a clock that is repeated after a rollback gets another row."""
        controller = self.controller
        for clock in range(self._seen_clock, self.clock):
            row = ClockRow(
                clock=clock + 1,
                loss=controller.flow.losses[clock],
                stage=controller.roles.stage,
                reliable=len(controller.machines.reliable),
                transient=len(controller.machines.transient),
                elapsed_s=time.perf_counter() - self._started,
            )
            self.rows.append(row)
        self._seen_clock = self.clock


def run_alone(application: Application, optimiser: "AbstractOptimiser", clocks: int) -> TrainingRecord:
    """Return the record of an undisturbed run on one machine in this process."""
    alone = Event(clock=0, action=Action.ADD_RELIABLE, machines=("alone",))
    return Trainer(application, optimiser).run(clocks, [alone])


def resumable(
    application: Application,
    optimiser: "AbstractOptimiser",
    options: ClusterOptions,
    transport: Transport,
    folder: str | Path,
) -> Trainer:
    """Return a trainer that writes checkpoints to a folder, and resumes from the folder's newest intact checkpoint.

    With staleness 0, a resumed run ends with the losses and parameters of an undisturbed run, bit for bit.

    Raises
    ------
    InvalidProblemError
        If the folder's checkpoints are all damaged, or of another job.
    """
    check_application(application)
    job = f"{name_of(application)} {optimiser!r} partitions {application.num_partitions} staleness {options.staleness}"
    if isinstance(application, HasRows):
        job += f" rows of {application.row_width} pushed {options.pushes}"
    storage = DurableStorage(application, folder, job=job, num_shards=options.num_shards)
    transport.machines[STORAGE] = storage
    trainer = Trainer(application, optimiser, options, transport, storage.latest())
    storage.losses = lambda: trainer.controller.flow.losses
    return trainer

"""One job of an admission plan as real processes, on a clock that all processes share.

A worker limits itself to a share of a core: after each piece of work it sleeps until its mean use is within the share. So the
processor seconds that it spends are this share of the time that the job's mini-batches take. A worker also waits for the time
that transfers over its link would take. So a plan with many workers runs on few cores, with real contention, barriers,
transport and joining of processes.
"""

import math
import mmap
import os
import struct
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from optim.core.errors import InvalidOptionError, NotAllowedError, check_in, unknown_name
from optim.models.admission.data import MEGABITS_THERE_AND_BACK, MICRO, TWENTIETHS, curve_of, progress_by_workers
from optim.models.admission.decision import COUNT, JOB, SLOT, AdmissionPlan
from optim.models.admission.instance import AdmissionInstance
from optim.training.application import Application
from optim.training.applications import APPLICATIONS
from optim.training.controller import Phase
from optim.training.messages import Message, Ready, Vector
from optim.training.processes import Processes
from optim.training.stages import ClusterOptions, Fixed, Stage
from optim.training.trainer import Action, Event, Trainer, TrainingRecord, run_alone
from optim.training.transport import Lost

if TYPE_CHECKING:
    from optim.kernels.parameter_server import AbstractOptimiser

NUMBER = struct.Struct("d")

RUNNING = -1.0
"""Value stored while the clock runs, in place of the time at which it was paused."""

LOOK_S = 0.002
"""Interval in seconds at which a sleeping process checks whether a paused clock has resumed."""


class Shared:
    """Numbers in a memory-mapped file, so that all processes see each change at once.

    The file is anonymous: it takes no disk space, and disappears with its owner, however the owner ends.

    Parameters
    ----------
    values
        Initial values.
    """

    def __init__(self, *values: float) -> None:
        descriptor = os.memfd_create("optim-shared")
        os.write(descriptor, b"".join(map(NUMBER.pack, values)))
        self.path = f"/proc/{os.getpid()}/fd/{descriptor}"
        self._map: mmap.mmap | None = None
        self._finalizer = weakref.finalize(self, os.close, descriptor)

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "_map": None}  # a copy doesn't close the owner's file

    def close(self) -> None:
        """Close the file, if the finaliser has not done so; processes that have mapped it can still read it."""
        self._finalizer()

    def _get(self, place: int) -> float:
        return float(NUMBER.unpack_from(self._memory(), place * NUMBER.size)[0])

    def _set(self, place: int, value: float) -> None:
        NUMBER.pack_into(self._memory(), place * NUMBER.size, value)

    def _memory(self) -> mmap.mmap:
        if self._map is None:
            with open(self.path, "r+b") as file:
                self._map = mmap.mmap(file.fileno(), 0)
        return self._map


class SharedSlowdown(Shared):
    """Time of a gradient relative to its time on a lone worker; the runner writes this factor, all workers read it."""

    def __init__(self) -> None:
        super().__init__(1.0)

    def write(self, value: float) -> None:
        """Set the factor."""
        self._set(0, value)

    def read(self) -> float:
        """Return the factor."""
        return self._get(0)


class SharedClock(Shared):
    """Clock shared by the processes of a run. The runner may pause it; it starts paused at 0.

    The clock's methods `monotonic` and `sleep` replace those of the module `time`.

    Attributes
    ----------
    paused_s
        Seconds for which the owner has paused the clock so far.
    """

    def __init__(self) -> None:
        super().__init__(0.0, 0.0)
        self.paused_s = 0.0
        self._since = time.monotonic()

    def monotonic(self) -> float:
        """Return the seconds for which the clock has run."""
        held = self._get(1)
        return time.monotonic() - self._get(0) if held == RUNNING else held

    def sleep(self, seconds: float) -> None:
        """Sleep for the given seconds of this clock."""
        end = self.monotonic() + seconds
        while (left := end - self.monotonic()) > 0:
            time.sleep(left if self._get(1) == RUNNING else LOOK_S)

    def pause(self) -> None:
        """Stop the clock until `resume`."""
        self._set(1, self.monotonic())
        self._since = time.monotonic()

    def resume(self) -> None:
        """Resume from the time at which the clock was paused."""
        now = time.monotonic()
        self.paused_s += now - self._since
        # Set the origin first, so that every process that sees the clock running also sees its origin.
        self._set(0, now - self._get(1))
        self._set(1, RUNNING)


PIECE = 1 << 15
"""Numbers processed between two checks of the time, which takes about ten microseconds."""

STINT_S = 0.001
"""Processor seconds of work between two sleeps; with shorter periods the sleeps themselves would use a core."""


class Timer(Protocol):
    """Interface of a source of time: the module `time`, or the clock of a run."""

    def monotonic(self) -> float:
        """Return the seconds since some time."""
        ...

    def sleep(self, seconds: float, /) -> None:
        """Sleep for the given seconds."""
        ...


@dataclass(frozen=True, kw_only=True)
class EmulatedJob:
    """An application whose gradients take as long as a job's gradients, and have their length.

    Parameters
    ----------
    application
        The application that is computed.
    compute_s, link_s
        Seconds per gradient that a lone worker computes, and seconds per gradient that it waits for its link.
    share
        Share of a core to which a worker limits itself.
    num_floats
        Minimum length of the vectors sent; the application's vectors are padded with zeros.
    slowdown
        Factor by which the time of a gradient is multiplied; 1 if not given.
    clock
        Clock of the run, which measures all these seconds; wall-clock time if not given.

    Notes
    -----
    The repr omits times, so that checkpoints of one lease are valid in the next.
    """

    application: Application
    compute_s: float = field(default=0.0, repr=False)
    link_s: float = field(default=0.0, repr=False)
    share: float = field(default=1.0, repr=False)
    num_floats: int = 0
    slowdown: SharedSlowdown | None = field(default=None, compare=False, repr=False)
    clock: SharedClock | None = field(default=None, compare=False, repr=False)

    @property
    def num_partitions(self) -> int:
        """Number of partitions of the application."""
        return self.application.num_partitions

    @property
    def num_parameters(self) -> int:
        """Length of the vectors."""
        return max(self.num_floats, self.application.num_parameters)

    def initial_parameters(self) -> Vector:
        """Return the application's initial parameters, padded with zeros."""
        return self._padded(self.application.initial_parameters())

    def weight(self, partition: int) -> float:
        """Return the application's weight of a partition."""
        return self.application.weight(partition)

    def gradient(self, parameters: Vector, partition: int, clock: int) -> tuple[Vector, float]:
        """Return the application's gradient, padded with zeros, and its loss, once the gradient's emulated time is over."""
        timer: Timer = time if self.clock is None else self.clock
        begun, spent = timer.monotonic(), time.thread_time()
        factor = 1.0 if self.slowdown is None else self.slowdown.read()
        gradient, loss = self.application.gradient(parameters[: self.application.num_parameters], partition, clock)
        hold_share(self.compute_s * self.share * factor, self.share, begun=begun, spent=spent, timer=timer)
        if self.link_s:
            timer.sleep(max(0.0, begun + (self.compute_s + self.link_s) * factor - timer.monotonic()))
        return self._padded(gradient), loss

    def timed(
        self,
        gradient_s: float,
        link_share: float,
        *,
        share: float,
        slowdown: SharedSlowdown,
        clock: SharedClock | None = None,
    ) -> "EmulatedJob":
        """Return a job whose gradients take `gradient_s` on a lone worker, the share `link_share` of it for its link."""
        return replace(
            self,
            compute_s=gradient_s * (1 - link_share),
            link_s=gradient_s * link_share,
            share=share,
            slowdown=slowdown,
            clock=clock,
        )

    def _padded(self, vector: Vector) -> Vector:
        padded = np.zeros(self.num_parameters, dtype=np.float32)
        padded[: len(vector)] = vector
        return padded


def hold_share(processor_s: float, share: float, *, begun: float, spent: float, timer: Timer = time) -> None:
    """Work until the given processor seconds are spent, within a share of a core.

    Parameters
    ----------
    processor_s
        Processor seconds of this thread to spend, counted from `spent`.
    share
        Maximum share of a core, in (0, 1].
    begun, spent
        The timer's time and this thread's processor seconds when the work began.
    timer
        Timer that measures the share.
    """
    numbers = np.linspace(0.0, 1.0, PIECE, dtype=np.float32)
    while (used := time.thread_time() - spent) < processor_s:
        timer.sleep(max(0.0, used / share - (timer.monotonic() - begun)))
        until = min(processor_s, used + STINT_S)
        while time.thread_time() - spent < until:
            np.sqrt(numbers, out=numbers)
    timer.sleep(max(0.0, processor_s / share - (timer.monotonic() - begun)))


FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """Options for running a plan.

    Parameters
    ----------
    slot_s
        Seconds per slot of the plan.
    gradient_s
        Minimum seconds that a lone worker computes between two pushes; a push covers as many mini-batches as this requires.
    cores
        Maximum number of cores that all workers of the busiest slot use together.
    max_floats
        Maximum length of the vectors sent. Gradients are scaled down with time, and then cut to this length.
    max_processes
        Largest number of simultaneous processes.
    overrun
        Number of slots after the plan's last slot that a late job may still use, with the machines of its last slot.
    seed
        Seed of the training data.
    application
        Name of the application that all jobs train; by default the jobs train three small applications in turn.
    """

    slot_s: float = 4.0
    gradient_s: float = 0.05
    cores: float = 1.6
    max_floats: int = 1 << 18
    max_processes: int = 64
    overrun: int = 20
    seed: int = 0
    application: str | None = None

    def __post_init__(self) -> None:
        if self.application is not None and self.application not in APPLICATIONS:
            raise unknown_name("application", self.application, APPLICATIONS)
        if not (self.slot_s > 0 and 0 <= self.gradient_s < self.slot_s):
            raise InvalidOptionError(
                f"need slot_s > 0 and 0 <= gradient_s < slot_s, got {self.slot_s} and {self.gradient_s}"
            )
        check_in("[1, inf)", self, "max_processes", "max_floats")
        check_in("(0, inf)", self, "cores")
        check_in("[0, inf)", self, "overrun", "seed")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """The part of a plan that concerns one job.

    Attributes
    ----------
    job, name
        Number and name of the job.
    machines
        Numbers of workers and of servers by slot, without slots in which the job does not run.
    work
        Slots that one worker would need for the complete job, from the number of mini-batches and their time.
    speeds
        Speedups of 1, 2, ... workers in the instance.
    link_share
        Share of a mini-batch's time during which gradients are transferred.
    gradient_floats
        Length of the job's gradients at full size.
    """

    job: int
    name: str
    machines: dict[int, tuple[int, int]]
    work: float
    speeds: tuple[float, ...]
    link_share: float = 0.0
    gradient_floats: int = 0

    @property
    def last_slot(self) -> int:
        """Slot in which the plan completes the job."""
        return max(self.machines)

    def speed(self, workers: int) -> float:
        """Return the speedup of a number of workers over one."""
        return self.speeds[min(workers, len(self.speeds)) - 1] if workers else 0.0

    @property
    def planned_slots(self) -> float:
        """Planned completion time at the instance's speeds, in slots from the beginning."""
        left = self.work
        for slot, (workers, _) in sorted(self.machines.items()):
            speed = self.speed(workers)
            if left <= speed:
                return slot + left / speed
            left -= speed
        return float(self.last_slot + 1)

    @property
    def most(self) -> tuple[int, int]:
        """Maximum number of workers, and maximum number of servers, over the slots."""
        return max(pair[0] for pair in self.machines.values()), max(pair[1] for pair in self.machines.values())


def read_plan(instance: AdmissionInstance, plan: AdmissionPlan) -> tuple[JobPlan, ...]:
    """Return the plan of each admitted job, slot by slot."""
    jobs = []
    for job in plan.admitted.tolist():
        machines: dict[int, list[int]] = {}
        for side, rows in enumerate((plan.workers, plan.ps)):
            for row in rows[rows[:, JOB] == job]:
                machines.setdefault(int(row[SLOT]), [0, 0])[side] += int(row[COUNT])
        pairs = {slot: (workers, max(1, servers)) for slot, (workers, servers) in machines.items() if workers > 0}
        jobs.append(_job_plan(instance, job, pairs))
    return tuple(jobs)


def _job_plan(instance: AdmissionInstance, job: int, machines: dict[int, tuple[int, int]]) -> JobPlan:
    """Return a job's plan with its work, speeds and sizes."""
    jobs = instance.jobs
    most = max(workers for workers, _ in machines.values())
    curve = curve_of(jobs, job)
    table = progress_by_workers(curve, most)[1:] / TWENTIETHS if curve else np.arange(1.0, most + 1)
    gradient_mb = int(jobs.gradient_micro_mb[job]) / MICRO
    carried_s = MEGABITS_THERE_AND_BACK * gradient_mb / (int(jobs.worker_micro_mbps[job]) / MICRO)
    minibatch_s = int(jobs.minibatch_micro_s[job]) / MICRO + carried_s
    return JobPlan(
        job=job,
        name=jobs.ids[job],
        machines=machines,
        work=float(int(jobs.epochs[job]) * int(jobs.chunks[job]) * instance.chunk_slots[job]),
        speeds=tuple(table.tolist()),
        link_share=carried_s / minibatch_s if minibatch_s > 0 else 0.0,
        gradient_floats=round(gradient_mb * 1e6 / FLOAT_BYTES),
    )


MAX_PARTITIONS, PARTITIONS_PER_WORKER = 24, 4
"""The number of partitions is a common multiple of the plan's numbers of workers, so that their loads are equal. If that
exceeds MAX_PARTITIONS, it is PARTITIONS_PER_WORKER times the largest number of workers."""

MIN_S, MAX_CLOCKS = 0.01, 1_000
"""Minimum seconds per push, and maximum number of training clocks of a job."""

MAX_FAILED = 5
"""Number of consecutive processes that end while starting after which a job fails."""

IDLE_S = 0.01
"""Seconds between two checks of the time by a job without machines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """Planned and realised results of a job.

    Attributes
    ----------
    job, application
        Name of the job, and the application that it trained.
    planned_slots, realised_slots
        Planned and realised completion time in slots from the beginning (the end of slot 2 is 3). The planned time uses
        the instance's speeds; the realised time is None if the job was not completed.
    error
        Realised over planned time since the job's first slot, minus 1.
    planned_utility, realised_utility
        Utility of the planned completion time, and of the realised completion time.
    clocks, gradients
        Number of training clocks, and number of gradients computed for them.
    changes
        Number of times that machines were added or evicted.
    first_loss, last_loss
        Loss before the first clock, and loss before the last clock.
    is_exact
        Whether losses and parameters equal those of an undisturbed run, bit for bit; None if the job is not complete.
    """

    job: str
    application: str
    planned_slots: float
    realised_slots: float | None
    error: float | None
    planned_utility: float
    realised_utility: float
    clocks: int
    gradients: int
    changes: int
    first_loss: float | None
    last_loss: float | None
    is_exact: bool | None


@dataclass
class JobRun:
    """The run of one job, in a thread.

    Attributes
    ----------
    plan, options
        Plan of the job, and options of the run.
    record
        Record of the training; None until it has ended.
    finished_s
        Seconds from the start of slot 0 to the job's completion; None if it was not completed.
    changes
        Number of times that machines were added or evicted.
    error
        Exception of the job's thread, which the main thread raises.
    application, optimiser
        Application that the job trains, and its optimiser.
    clocks
        Number of training clocks that make up the job's work.
    share
        Share of a core to which each worker limits itself.
    scale
        Seconds of the run per second of the job; the length of the gradients is scaled by the same factor.
    clock
        Clock of the run, which all processes read; wall-clock time if not given.
    settled_slot
        Last slot whose machines have all started; infinite once the run need not wait for this job's machines.
    """

    plan: JobPlan
    options: PlanOptions
    share: float = 1.0
    scale: float = 1.0
    record: TrainingRecord | None = None
    finished_s: float | None = None
    changes: int = 0
    error: BaseException | None = None
    clock: SharedClock | None = None
    settled_slot: float = -1
    _count: int = 0
    _num_failed: int = 0
    application: EmulatedJob = field(init=False)
    _played: EmulatedJob = field(init=False)
    optimiser: "AbstractOptimiser" = field(init=False)
    clocks: int = field(init=False)

    def __post_init__(self) -> None:
        plan, options = self.plan, self.options
        application, self.optimiser = make_job(plan.job, num_partitions(plan), options)
        # Divide the seconds that one worker needs for the job into equal pushes, each at least as long as the options
        # require.
        whole_s, partitions = plan.work * options.slot_s, application.num_partitions
        self.clocks = int(np.clip(whole_s / partitions / max(options.gradient_s, MIN_S), 1, MAX_CLOCKS))
        gradient_s = whole_s / partitions / self.clocks
        self.application = EmulatedJob(
            application=application,
            num_floats=min(round(plan.gradient_floats * self.scale), options.max_floats),
        )
        self._played = self.application.timed(
            gradient_s, plan.link_share, share=self.share, slowdown=SharedSlowdown(), clock=self.clock
        )

    def play(self, slot_now: Callable[[], int], last_slot: int, is_stopped: Callable[[], bool]) -> None:
        """Train until the work is done, the last slot is over, or `is_stopped` returns true.

        Parameters
        ----------
        slot_now
            Function that returns the current slot, whose machines may still be starting.
        last_slot
            Last slot of the run.
        is_stopped
            Function that returns whether to stop.
        """
        try:
            self._play(slot_now, last_slot, is_stopped)
        except Exception as error:  # handed to the main thread, which raises it
            self.error = error
        finally:
            self.settled_slot = math.inf
            if self._played.slowdown is not None:
                self._played.slowdown.close()

    def _play(self, slot_now: Callable[[], int], last_slot: int, is_stopped: Callable[[], bool]) -> None:
        _, max_servers = self.plan.most
        cluster = ClusterOptions(num_shards=max_servers, policy=Fixed(fixed=Stage.SEPARATE))
        with Processes(self._played, cluster, max_machines=2 * self.options.max_processes) as transport:
            trainer = Trainer(self._played, self.optimiser, cluster, transport)
            try:
                self._train(trainer, transport, slot_now, last_slot, is_stopped)
            finally:
                self.settled_slot = math.inf  # otherwise a paused clock would prevent workers from ending
            self.record = trainer.record()

    def _train(
        self,
        trainer: Trainer,
        transport: Processes,
        slot_now: Callable[[], int],
        last_slot: int,
        is_stopped: Callable[[], bool],
    ) -> None:
        timer: Timer = time if self.clock is None else self.clock
        while not is_stopped() and (slot := slot_now()) <= last_slot:
            if trainer.clock == self.clocks:
                self.finished_s = timer.monotonic()
                return
            self._fit(trainer, slot)
            if _is_up(trainer):
                self.settled_slot = slot
                if trainer.controller.stop_at != self.clocks:
                    trainer.controller.resume(self.clocks)
            if not _has_company(trainer):
                time.sleep(IDLE_S)
            elif (message := transport.receive(IDLE_S)) is not None:
                self._count_failed(trainer, message)
                trainer.take(message)

    def _count_failed(self, trainer: Trainer, message: Message | Lost) -> None:
        """Raise an error once MAX_FAILED processes in a row have ended while starting."""
        if isinstance(message, Ready):
            self._num_failed = 0
        elif isinstance(message, Lost) and message.machine in trainer.controller.machines.joining:
            self._num_failed += 1
            if self._num_failed >= MAX_FAILED:
                raise NotAllowedError(
                    f"{MAX_FAILED} processes of job {self.plan.name} in a row ended while starting, the last "
                    f"{message.reason}; fix the errors printed above, and run the same command again"
                )

    def _wanted(self, slot: int) -> tuple[int, int]:
        """Return the planned numbers of workers and servers in a slot; late jobs keep the numbers of their last slot."""
        return self.plan.machines.get(min(slot, self.plan.last_slot), (0, 0))

    def _fit(self, trainer: Trainer, slot: int) -> None:
        """Add and evict machines until the job has, or will have, its planned machines of a slot."""
        wanted = self._wanted(slot)
        workers = max(1, len(trainer.controller.roles.workers))
        assert self._played.slowdown is not None, "made with one"
        self._played.slowdown.write(workers / self.plan.speed(workers))
        controller = trainer.controller
        if not controller.machines.staying:
            controller.resume(trainer.clock)  # training begins when all machines are up, not when the first one is
        tiers = (
            ("worker", wanted[0], controller.machines.transient, Action.ADD_TRANSIENT),
            ("server", wanted[1], controller.machines.reliable, Action.ADD_RELIABLE),
        )
        for kind, number, tier, action in tiers:
            coming = [name for name, future in controller.machines.joining.items() if future is tier]
            have = [*tier, *coming]
            if number > len(have):
                names = tuple(f"{kind}-{self._count + k}" for k in range(number - len(have)))
                self._count += len(names)
                trainer.apply(Event(clock=0, action=action, machines=names))
            elif number < len(have):
                trainer.apply(Event(clock=0, action=Action.EVICT, machines=tuple(have[number:])))
            self.changes += number != len(have)

    def row(self, planned_utility: float, utility_at: Callable[[float], float]) -> JobRow:
        """Return the row of the job.

        Parameters
        ----------
        planned_utility
            Utility of the job in the plan.
        utility_at
            Utility as a function of the completion time, in slots from the beginning.
        """
        record, plan = self.record, self.plan
        losses = record.losses if record else ()
        realised = self.finished_s / self.options.slot_s if self.finished_s is not None else None
        first = min(plan.machines)
        return JobRow(
            job=plan.name,
            application=type(self.application.application).__name__,
            planned_slots=plan.planned_slots,
            realised_slots=realised,
            error=None if realised is None else (realised - first) / (plan.planned_slots - first) - 1.0,
            planned_utility=planned_utility,
            realised_utility=0.0 if realised is None else utility_at(realised),
            clocks=len(losses),
            gradients=record.num_computed if record else 0,
            changes=self.changes,
            first_loss=losses[0] if losses else None,
            last_loss=losses[-1] if losses else None,
            is_exact=record.equals(run_alone(self.application, self.optimiser, self.clocks))
            if record and realised is not None
            else None,
        )


def _is_up(trainer: Trainer) -> bool:
    """Return whether all requested machines have joined and have their initial state."""
    controller = trainer.controller
    return not controller.machines.joining and controller.phase is not Phase.REBUILDING


def _has_company(trainer: Trainer) -> bool:
    """Return whether there is a machine that may send a message soon."""
    controller = trainer.controller
    is_at_rest = (
        controller.phase is Phase.STOPPED and not controller.machines.staying and not controller.machines.leaving
    )
    return bool(controller.machines.joining) or not is_at_rest


def num_partitions(plan: JobPlan) -> int:
    """Return the number of partitions of a job's data."""
    common = math.lcm(*{workers for workers, _ in plan.machines.values()})
    return common if common <= MAX_PARTITIONS else PARTITIONS_PER_WORKER * plan.most[0]


NETWORK_SCALE = 0.002
"""Scale of the network's data, at which the network has a fifth of its default hidden units and 35,000 parameters."""

IN_TURN = ("matrix-factorisation", "logistic-regression", "topic-model")
"""Small applications, assigned in turn to jobs without a given application."""


def make_job(job: int, num_partitions: int, options: PlanOptions) -> "tuple[Application, AbstractOptimiser]":
    """Return a job's application, and an optimiser that suits it."""
    from optim.kernels.parameter_server import Adagrad, Sgd

    name = IN_TURN[job % len(IN_TURN)] if options.application is None else options.application
    job_seed = 1000 * options.seed + job
    if name == "neural-network":  # the scaled time of a gradient is too short for the full network
        network = APPLICATIONS[name].at_scale(NETWORK_SCALE, num_partitions=num_partitions, seed=job_seed)
        return network, Adagrad(learning_rate=0.01)
    application = APPLICATIONS[name](num_partitions=num_partitions, seed=job_seed)
    return application, Sgd(learning_rate=0.5) if name == "topic-model" else Adagrad(learning_rate=0.1)

"""Several jobs at once on this machine, with the workers and servers of an admission plan, slot by slot.

The plan says for each job and slot how many workers and parameter servers it has. Here every one of them is a process.
A job trains until it has done the work that the plan allots to it; whether that is when the plan says is the question.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from optim.core.errors import InvalidOptionError, UnsupportedProblemError
from optim.models.admission.instance import AdmissionInstance
from optim.models.admission.plan import COUNT, JOB, SLOT, AdmissionPlan
from optim.training.application import Application
from optim.training.applications import LogisticRegression, MatrixFactorisation, TopicModel
from optim.training.elasticity import Phase
from optim.training.messages import Vector
from optim.training.options import ClusterOptions
from optim.training.processes import Processes
from optim.training.stages import Fixed, Stage
from optim.training.trainer import Action, Event, Trainer, TrainingRecord

if TYPE_CHECKING:
    from optim.kernels.parameter_server import AbstractOptimiser

PARTITIONS_PER_WORKER = 4
"""Partitions a worker has at the most workers: the fewer, the more of them wait for the last."""

IDLE_S = 0.01
"""How often a job without machines looks at the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JointOptions:
    """How a plan is played.

    Parameters
    ----------
    slot_s
        Seconds that a slot of the plan lasts here.
    gradient_s
        Least seconds that a worker takes for a gradient. It waits for the rest, so a plan with more workers than this
        machine has cores can be played; 0 trains as fast as the cores do, and the plan's pace is measured beforehand.
    max_processes
        Most processes at once.
    overrun
        Slots after the plan's last one that a late job may still use, with its last machines.
    seed
        Of the data.
    """

    slot_s: float = 4.0
    gradient_s: float = 0.05
    max_processes: int = 64
    overrun: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        if not (self.slot_s > 0 and 0 <= self.gradient_s < self.slot_s):
            raise InvalidOptionError(
                f"need slot_s > 0 and 0 <= gradient_s < slot_s, got {self.slot_s} and {self.gradient_s}"
            )
        if self.max_processes < 1 or self.overrun < 0 or self.seed < 0:
            raise InvalidOptionError(
                "max_processes must be at least 1, overrun and seed at least 0, got "
                f"{self.max_processes}, {self.overrun} and {self.seed}"
            )


@dataclass(frozen=True, kw_only=True)
class Paced:
    """An application whose gradients take a least time each."""

    application: Application
    gradient_s: float

    @property
    def num_partitions(self) -> int:
        """Partitions of the application."""
        return self.application.num_partitions

    @property
    def num_parameters(self) -> int:
        """Parameters of the application."""
        return self.application.num_parameters

    def initial_parameters(self) -> Vector:
        """Return the application's."""
        return self.application.initial_parameters()

    def weight(self, partition: int) -> float:
        """Return the application's."""
        return self.application.weight(partition)

    def gradient(self, parameters: Vector, partition: int, clock: int) -> tuple[Vector, float]:
        """Return the application's, not before its time."""
        end = time.perf_counter() + self.gradient_s
        result = self.application.gradient(parameters, partition, clock)
        time.sleep(max(0.0, end - time.perf_counter()))
        return result


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """What the plan gives one job.

    Attributes
    ----------
    job, name
        Its number and its name.
    machines
        By slot: number of workers and of servers; slots without any are absent.
    work
        Worker-slots that complete it.
    """

    job: int
    name: str
    machines: dict[int, tuple[int, int]]
    work: int

    @property
    def last_slot(self) -> int:
        """The slot in which the plan completes it."""
        return max(self.machines)

    @property
    def most(self) -> tuple[int, int]:
        """Most workers, and most servers, in any slot."""
        return max(pair[0] for pair in self.machines.values()), max(pair[1] for pair in self.machines.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A job as planned and as it went.

    Attributes
    ----------
    job, application
        Its name, and what it trained.
    planned_slots, realised_slots
        When it is complete, in slots from the beginning (the end of slot 2 is 3); None if it was not.
    planned_utility, realised_utility
        What that earns.
    clocks, gradients
        Clocks of training, and gradients computed for them.
    changes
        How often machines were added or evicted.
    first_loss, last_loss
        Before the first clock and before the last.
    is_exact
        Whether losses and parameters are those of an undisturbed run, bit for bit; None if the job is not complete.
    """

    job: str
    application: str
    planned_slots: int
    realised_slots: float | None
    planned_utility: float
    realised_utility: float
    clocks: int
    gradients: int
    changes: int
    first_loss: float | None
    last_loss: float | None
    is_exact: bool | None


def read_plan(instance: AdmissionInstance, plan: AdmissionPlan) -> tuple[JobPlan, ...]:
    """Return what each admitted job is given, slot by slot."""
    jobs = []
    for job in plan.admitted.tolist():
        machines: dict[int, list[int]] = {}
        for side, rows in enumerate((plan.workers, plan.ps)):
            for row in rows[rows[:, JOB] == job]:
                machines.setdefault(int(row[SLOT]), [0, 0])[side] += int(row[COUNT])
        pairs = {slot: (workers, max(1, servers)) for slot, (workers, servers) in machines.items() if workers > 0}
        allotted = sum(workers for workers, _ in pairs.values())
        work = allotted if instance.chunk_integral else min(allotted, int(instance.work[job]))
        jobs.append(JobPlan(job=job, name=instance.jobs.ids[job], machines=pairs, work=work))
    return tuple(jobs)


def run_plan(
    instance: AdmissionInstance,
    plan: AdmissionPlan,
    options: JointOptions,
    *,
    is_stopped: Callable[[], bool] = lambda: False,
    on_slot: Callable[[int], None] = lambda slot: None,
) -> tuple[JobRow, ...]:
    """Train all admitted jobs at once, and return a row for each.

    Parameters
    ----------
    instance, plan
        The problem and its decision.
    options
        How it is played.
    is_stopped
        Asked again and again; once true, all jobs end where they are.
    on_slot
        Told each slot that begins.

    Raises
    ------
    UnsupportedProblemError
        If the plan has more processes at once than allowed.
    """
    jobs = read_plan(instance, plan)
    _check_processes(jobs, options)
    runs = [_JobRun(job, options) for job in jobs]
    last = max((job.last_slot for job in jobs), default=-1) + options.overrun
    start = threading.Barrier(len(runs) + 1)
    threads = [threading.Thread(target=run.play, args=(start, last, is_stopped), daemon=True) for run in runs]
    for thread in threads:
        thread.start()
    with contextlib.suppress(threading.BrokenBarrierError):  # the run that broke it says why
        start.wait()
    begun = time.perf_counter()
    seen = -1
    while any(thread.is_alive() for thread in threads):
        slot = int((time.perf_counter() - begun) / options.slot_s)
        if slot > seen:
            seen = slot
            on_slot(slot)
        time.sleep(IDLE_S)
    for run in runs:
        if run.error is not None:
            raise run.error
    return tuple(run.row(instance) for run in runs)


def _check_processes(jobs: Sequence[JobPlan], options: JointOptions) -> None:
    slots = {slot for job in jobs for slot in job.machines}
    at_once = max((sum(sum(job.machines.get(slot, (0, 0))) for job in jobs) for slot in slots), default=0)
    if at_once > options.max_processes:
        raise UnsupportedProblemError(
            f"the plan has {at_once} workers and servers in one slot, more than max_processes {options.max_processes}; "
            "raise it, or choose a smaller instance"
        )


@dataclass
class _JobRun:
    """One job in its thread."""

    plan: JobPlan
    options: JointOptions
    record: TrainingRecord | None = None
    finished_s: float | None = None
    changes: int = 0
    error: BaseException | None = None
    _count: int = 0
    application: Application = field(init=False)
    optimiser: "AbstractOptimiser" = field(init=False)
    clocks: int = field(init=False)

    def __post_init__(self) -> None:
        most_workers, _ = self.plan.most
        self.application, self.optimiser = _make_job(
            self.plan.job, PARTITIONS_PER_WORKER * most_workers, self.options.seed
        )
        gradient_s = self.options.gradient_s or _measure_gradient_s(self.application)
        gradients = self.plan.work * self.options.slot_s / gradient_s
        self.clocks = max(1, int(gradients / self.application.num_partitions))

    def play(self, start: threading.Barrier, last_slot: int, is_stopped: Callable[[], bool]) -> None:
        """Train until the work is done, the time is over, or somebody asks to stop."""
        try:
            self._play(start, last_slot, is_stopped)
        except threading.BrokenBarrierError:
            return  # another job's run has failed
        except Exception as error:  # handed to the main thread, which raises it
            self.error = error
            start.abort()

    def _play(self, start: threading.Barrier, last_slot: int, is_stopped: Callable[[], bool]) -> None:
        _, most_servers = self.plan.most
        cluster = ClusterOptions(num_shards=most_servers, policy=Fixed(fixed=Stage.SEPARATE))
        paced = Paced(application=self.application, gradient_s=self.options.gradient_s)
        with Processes(paced, cluster, max_machines=2 * self.options.max_processes) as transport:
            trainer = Trainer(paced, self.optimiser, cluster, transport)
            trainer.controller.resume(0)
            self._fit(trainer, 0)
            while trainer.controller.joining and not is_stopped():
                message = transport.receive()
                if message is not None:
                    trainer.controller.receive(message)
            start.wait()  # slot 0 begins when its machines are up, everywhere
            begun = time.perf_counter()
            trainer.controller.resume(self.clocks)
            while not is_stopped():
                elapsed = time.perf_counter() - begun
                slot = int(elapsed / self.options.slot_s)
                if slot > last_slot:
                    break
                if trainer.clock == self.clocks:
                    self.finished_s = elapsed
                    break
                self._fit(trainer, slot)
                message = transport.receive() if _has_company(trainer) else None
                if message is None:
                    time.sleep(IDLE_S)
                else:
                    trainer.take(message)
            self.record = trainer.record()

    def _fit(self, trainer: Trainer, slot: int) -> None:
        """Add and evict until the job has, or will have, what the plan gives it in a slot; late jobs keep their last."""
        wanted = self.plan.machines.get(min(slot, self.plan.last_slot), (0, 0))
        controller = trainer.controller
        tiers = (
            ("worker", wanted[0], controller.transient, Action.ADD_TRANSIENT),
            ("server", wanted[1], controller.reliable, Action.ADD_RELIABLE),
        )
        for kind, number, tier, action in tiers:
            coming = [name for name, future in controller.joining.items() if future is tier]
            have = [*tier, *coming]
            if number > len(have):
                names = tuple(f"{kind}-{self._count + k}" for k in range(number - len(have)))
                self._count += len(names)
                trainer.apply(Event(clock=0, action=action, machines=names))
            elif number < len(have):
                trainer.apply(Event(clock=0, action=Action.EVICT, machines=tuple(have[number:])))
            self.changes += number != len(have)

    def row(self, instance: AdmissionInstance) -> JobRow:
        """Return what came of it."""
        record, plan = self.record, self.plan
        realised = self.finished_s / self.options.slot_s if self.finished_s is not None else None
        earned = 0.0
        if realised is not None and realised < instance.horizon:
            earned = float(instance.value[plan.job, int(realised)])
        return JobRow(
            job=plan.name,
            application=type(self.application).__name__,
            planned_slots=plan.last_slot + 1,
            realised_slots=realised,
            planned_utility=float(instance.value[plan.job, plan.last_slot]),
            realised_utility=earned,
            clocks=len(record.losses) if record is not None else 0,
            gradients=record.num_computed if record is not None else 0,
            changes=self.changes,
            first_loss=record.losses[0] if record is not None and record.losses else None,
            last_loss=record.losses[-1] if record is not None and record.losses else None,
            is_exact=self._is_exact() if realised is not None else None,
        )

    def _is_exact(self) -> bool:
        """Tell whether one machine in this process comes to the same bits."""
        alone = Trainer(self.application, self.optimiser)
        expected = alone.run(self.clocks, [Event(clock=0, action=Action.ADD_RELIABLE, machines=("alone",))])
        record = self.record
        return (
            record is not None
            and record.losses == expected.losses
            and np.array_equal(record.parameters, expected.parameters)
        )


def _has_company(trainer: Trainer) -> bool:
    """Tell whether anybody can send a message soon."""
    controller = trainer.controller
    is_at_rest = controller.phase is Phase.STOPPED and not controller.machines and not controller.leaving
    return bool(controller.joining) or not is_at_rest


def _make_job(job: int, num_partitions: int, seed: int) -> "tuple[Application, AbstractOptimiser]":
    """Return one of three small applications in turn, and a rule that suits it."""
    from optim.kernels.parameter_server import Adagrad, Sgd

    kind, own_seed = job % 3, 1000 * seed + job
    if kind == 0:
        return MatrixFactorisation(num_partitions=num_partitions, seed=own_seed), Adagrad(learning_rate=0.1)
    if kind == 1:
        return LogisticRegression(num_partitions=num_partitions, seed=own_seed), Adagrad(learning_rate=0.1)
    return TopicModel(num_partitions=num_partitions, seed=own_seed), Sgd(learning_rate=0.5)


def _measure_gradient_s(application: Application, repeats: int = 5) -> float:
    """Return the median seconds of a gradient here and now, the first one with its data left out."""
    parameters = application.initial_parameters()
    seconds = []
    for clock in range(repeats + 1):
        begun = time.perf_counter()
        application.gradient(parameters, 0, clock)
        seconds.append(time.perf_counter() - begun)
    return float(np.median(seconds[1:]))

"""One job of a plan in a thread of its own: it trains with what each slot gives it, until its work is done."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from optim.models.admission.instance import AdmissionInstance
from optim.simulation.live.job_plan import JobPlan, PlanOptions
from optim.simulation.live.paced import Paced
from optim.training.application import Application
from optim.training.applications import LogisticRegression, MatrixFactorisation, TopicModel
from optim.training.options import ClusterOptions
from optim.training.phase import Phase
from optim.training.processes import Processes
from optim.training.stages import Fixed, Stage
from optim.training.trainer import Action, Event, Trainer, TrainingRecord, run_alone

if TYPE_CHECKING:
    from optim.kernels.parameter_server import AbstractOptimiser

PARTITIONS_PER_WORKER = 4
"""Partitions a worker has at the most workers: the fewer, the more of them wait for the last."""

IDLE_S = 0.01
"""How often a job without machines looks at the time."""


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


@dataclass
class JobRun:
    """One job in its thread.

    Attributes
    ----------
    plan, options
        What it is given, and how it is played.
    record
        What training came to; None until it has ended.
    finished_s
        Seconds from slot 0 until its work was done; None if it was not.
    changes
        How often machines were added or evicted.
    error
        What it failed with, for the main thread to raise.
    application, optimiser
        What it trains.
    clocks
        Clocks of training that the plan's work comes to.
    """

    plan: JobPlan
    options: PlanOptions
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
            while trainer.controller.machines.joining and not is_stopped():
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

    def row(self, instance: AdmissionInstance) -> JobRow:
        """Return what came of it."""
        record, plan = self.record, self.plan
        losses = record.losses if record else ()
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
            clocks=len(losses),
            gradients=record.num_computed if record else 0,
            changes=self.changes,
            first_loss=losses[0] if losses else None,
            last_loss=losses[-1] if losses else None,
            is_exact=record.equals(run_alone(self.application, self.optimiser, self.clocks))
            if record and realised is not None
            else None,
        )


def _has_company(trainer: Trainer) -> bool:
    """Tell whether anybody can send a message soon."""
    controller = trainer.controller
    is_at_rest = (
        controller.phase is Phase.STOPPED and not controller.machines.staying and not controller.machines.leaving
    )
    return bool(controller.machines.joining) or not is_at_rest


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

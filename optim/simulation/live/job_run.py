"""One job of a plan in a thread of its own: it trains with what each slot gives it, until its work is done."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from optim.core.errors import NotAllowedError
from optim.simulation.live.job_plan import JobPlan, PlanOptions
from optim.simulation.live.own_job import OwnJob, Timer
from optim.simulation.live.shared_clock import Pace, SharedClock
from optim.training.application import Application
from optim.training.applications import LogisticRegression, MatrixFactorisation, TopicModel
from optim.training.messages import Message, Ready
from optim.training.options import ClusterOptions
from optim.training.phase import Phase
from optim.training.processes import Processes
from optim.training.stages import Fixed, Stage
from optim.training.trainer import Action, Event, Trainer, TrainingRecord, run_alone
from optim.training.transport import Lost

if TYPE_CHECKING:
    from optim.kernels.parameter_server import AbstractOptimiser

MOST_PARTITIONS, PARTITIONS_PER_WORKER = 24, 4
"""Partitions are a common multiple of all the plan's numbers of workers, so that nobody waits for the last; where that is
more than the first of these, so many for each of the most workers."""

LEAST_S, MOST_CLOCKS = 0.01, 1_000
"""Least seconds of a push, and most clocks of a job."""

MOST_FAILED = 5
"""So many processes may end in a row before they are up."""

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
        When its work is done, in slots from the beginning (the end of slot 2 is 3): by the instance's own seconds of a
        mini-batch and speeds, and here; None if it was not.
    error
        Realised over planned time since its first slot, less 1.
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
        Clocks of training that the job's work comes to.
    share
        Of a core, that each worker holds itself to.
    clock
        The run's, which all its processes read; the world's if not given.
    settled_slot
        The last slot whose machines are up, all of them; infinite once none will be waited for.
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
    application: OwnJob = field(init=False)
    _played: OwnJob = field(init=False)
    optimiser: "AbstractOptimiser" = field(init=False)
    clocks: int = field(init=False)

    def __post_init__(self) -> None:
        plan, options = self.plan, self.options
        application, self.optimiser = make_job(plan.job, num_partitions(plan), options.seed)
        # One worker's seconds of the whole job, dealt out in equal pushes that are no shorter than asked for.
        whole_s, partitions = plan.work * options.slot_s, application.num_partitions
        self.clocks = int(np.clip(whole_s / partitions / max(options.gradient_s, LEAST_S), 1, MOST_CLOCKS))
        gradient_s = whole_s / partitions / self.clocks
        self.application = OwnJob(
            application=application,
            num_floats=min(round(plan.gradient_floats * self.scale), options.most_floats),
        )
        self._played = replace(
            self.application,
            compute_s=gradient_s * (1 - plan.link_share),
            link_s=gradient_s * plan.link_share,
            share=self.share,
            pace=Pace(),
            clock=self.clock,
        )

    def play(self, slot_now: Callable[[], int], last_slot: int, is_stopped: Callable[[], bool]) -> None:
        """Train until the work is done, the time is over, or somebody asks to stop.

        Parameters
        ----------
        slot_now
            Tells the slot that has begun, or whose machines are waited for.
        last_slot
            The last one that is played.
        is_stopped
            Tells whether to stop.
        """
        try:
            self._play(slot_now, last_slot, is_stopped)
        except Exception as error:  # handed to the main thread, which raises it
            self.error = error
        finally:
            self.settled_slot = math.inf
            if self._played.pace is not None:
                self._played.pace.close()

    def _play(self, slot_now: Callable[[], int], last_slot: int, is_stopped: Callable[[], bool]) -> None:
        _, most_servers = self.plan.most
        cluster = ClusterOptions(num_shards=most_servers, policy=Fixed(fixed=Stage.SEPARATE))
        with Processes(self._played, cluster, max_machines=2 * self.options.max_processes) as transport:
            trainer = Trainer(self._played, self.optimiser, cluster, transport)
            try:
                self._train(trainer, transport, slot_now, last_slot, is_stopped)
            finally:
                self.settled_slot = math.inf  # or a clock that is held would keep workers from ending
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
        """Give up once so many processes in a row have ended as they started: those that follow would, too."""
        if isinstance(message, Ready):
            self._num_failed = 0
        elif isinstance(message, Lost) and message.machine in trainer.controller.machines.joining:
            self._num_failed += 1
            if self._num_failed >= MOST_FAILED:
                raise NotAllowedError(
                    f"{MOST_FAILED} processes of job {self.plan.name} in a row ended as they started, the last "
                    f"{message.reason}; what they said stands above: mend that, and give the same command again"
                )

    def _wanted(self, slot: int) -> tuple[int, int]:
        """Return the machines that the plan gives in a slot; late jobs keep their last."""
        return self.plan.machines.get(min(slot, self.plan.last_slot), (0, 0))

    def _fit(self, trainer: Trainer, slot: int) -> None:
        """Add and evict until the job has, or will have, what the plan gives it in a slot."""
        wanted = self._wanted(slot)
        workers = max(1, len(trainer.controller.roles.workers))
        assert self._played.pace is not None, "made with one"
        self._played.pace.write(workers / self.plan.speed(workers))
        controller = trainer.controller
        if not controller.machines.staying:
            controller.resume(trainer.clock)  # it begins when all are up, not with the first who is
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
        """Return what came of it.

        Parameters
        ----------
        planned_utility
            What the plan earns.
        utility_at
            What completing after so many slots from the beginning earns.
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
    """Tell whether all that were ordered are here, and have what they start from."""
    controller = trainer.controller
    return not controller.machines.joining and controller.phase is not Phase.REBUILDING


def _has_company(trainer: Trainer) -> bool:
    """Tell whether anybody can send a message soon."""
    controller = trainer.controller
    is_at_rest = (
        controller.phase is Phase.STOPPED and not controller.machines.staying and not controller.machines.leaving
    )
    return bool(controller.machines.joining) or not is_at_rest


def num_partitions(plan: JobPlan) -> int:
    """Return into how many partitions a job's data is cut."""
    common = math.lcm(*{workers for workers, _ in plan.machines.values()})
    return common if common <= MOST_PARTITIONS else PARTITIONS_PER_WORKER * plan.most[0]


def make_job(job: int, num_partitions: int, seed: int) -> "tuple[Application, AbstractOptimiser]":
    """Return one of three small applications in turn, and a rule that suits it."""
    from optim.kernels.parameter_server import Adagrad, Sgd

    kind, own_seed = job % 3, 1000 * seed + job
    if kind == 0:
        return MatrixFactorisation(num_partitions=num_partitions, seed=own_seed), Adagrad(learning_rate=0.1)
    if kind == 1:
        return LogisticRegression(num_partitions=num_partitions, seed=own_seed), Adagrad(learning_rate=0.1)
    return TopicModel(num_partitions=num_partitions, seed=own_seed), Sgd(learning_rate=0.5)

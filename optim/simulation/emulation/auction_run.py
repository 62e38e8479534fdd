"""The leases of an auction on real processes.

The planned work of a lease follows from the app's profile: its remaining serial minutes, its GPUs, and the slowdown that their
placement causes. In the emulation a GPU is a process, and the slowdown is time that a worker waits for its link. The run
measures whether the planned work is done when the lease ends, and how delays affect finish-time fairness.

A lease's processes start from the app's last checkpoint and write the next one when the lease ends. An app starts no clock of
training that would not end within its lease; the rest of the lease is lost.
"""

import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from optim.core.errors import UnsupportedProblemError
from optim.models.auction.bids import with_allocation
from optim.models.auction.decision import APP, COUNT, SLOT, AuctionPlan
from optim.models.auction.fairness import AppProfile, remaining_minutes, whole_minutes
from optim.models.auction.instance import AuctionInstance
from optim.simulation.emulation.job_run import (
    MIN_S,
    PARTITIONS_PER_WORKER,
    EmulatedJob,
    JobPlan,
    JobRow,
    PlanOptions,
    SharedSlowdown,
    make_job,
)
from optim.simulation.emulation.plan_run import play_jobs
from optim.training.controller import Phase
from optim.training.processes import Processes
from optim.training.stages import NEVER, ClusterOptions, Fixed, Stage
from optim.training.trainer import Action, Event, Trainer, TrainingRecord, resumable, run_alone

if TYPE_CHECKING:
    from optim.kernels.parameter_server import AbstractOptimiser


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRow(JobRow):
    """Planned and realised results of an app's lease; in the fields of `JobRow`, the lease is a slot, and utility is 1 / rho.

    Attributes
    ----------
    gpus, placement
        Number of GPUs, including those held before the auction, and the smallest subtree that contains them.
    planned_min, realised_min
        Serial GPU minutes of work within the lease: planned by the app's profile, and realised.
    planned_rho, realised_rho
        Finish-time fairness at the planned and at the realised speed. As `realised_min`, `realised_rho` is None if the
        run ended before the planned work was done.
    """

    gpus: int
    placement: str
    planned_min: float
    realised_min: float | None
    planned_rho: float
    realised_rho: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AppLease:
    """An app's grant, with its profile.

    Attributes
    ----------
    app, name
        Number and name of the app.
    profile
        Profile of the app; the granted GPUs count as held.
    left_min
        Minutes that the remaining work takes on these GPUs.
    """

    app: int
    name: str
    profile: AppProfile
    left_min: float

    @property
    def gpus(self) -> int:
        """Number of GPUs of the lease."""
        return self.profile.held_gpus

    @property
    def placement(self) -> str:
        """The smallest subtree that contains the GPUs."""
        return ("slot", "machine", "rack", "cluster")[self.profile.held_locality]

    @property
    def speed(self) -> float:
        """Serial GPU minutes of work per minute."""
        return self.profile.work_min / self.left_min

    def work_min(self, lease_min: float) -> float:
        """Return the serial GPU minutes of work within a lease."""
        return min(self.profile.work_min, self.speed * lease_min)

    def rho(self, instance: AuctionInstance, stretch: float = 1.0) -> float:
        """Return the finish-time fairness if all work takes `stretch` times as long."""
        left = np.array(self.left_min * stretch)
        lease, gpus = instance.lease_min, instance.cluster.num_gpus
        whole = float(whole_minutes(self.profile, left, instance.horizon, lease, gpus))
        return whole / float(instance.apps.ideal_min[self.app])

    def job_plan(self, lease_min: float) -> JobPlan:
        """Return the lease as a plan of one slot."""
        profile = self.profile
        slowdown = profile.slowdown.at(profile.held_locality)
        minutes = [remaining_minutes(profile, gpus, slowdown) for gpus in range(1, self.gpus + 1)]
        return JobPlan(
            job=self.app,
            name=self.name,
            machines={0: (self.gpus, 1)},
            work=self.work_min(lease_min) / lease_min,
            speeds=tuple(profile.work_min / each for each in minutes),
            link_share=1.0 - 1.0 / slowdown,
        )


def read_leases(instance: AuctionInstance, plan: AuctionPlan) -> tuple[AppLease, ...]:
    """Return the leases of the apps with grants.

    Raises
    ------
    UnsupportedProblemError
        If the instance has bids without profiles.
    """
    if not instance.profiles:
        raise UnsupportedProblemError(
            f"{instance.name} has bids without profiles, so the work per lease is unknown; give its apps profiles"
        )
    leases = []
    for app in np.unique(plan.grants[:, APP]).tolist():
        own = instance.profiles[app]
        assert isinstance(own, AppProfile), "codec reads profiles as AppProfile"
        granted = plan.grants[plan.grants[:, APP] == app]
        leases.append(lease_of(instance, app, own, granted[:, [SLOT, COUNT]].tolist()))
    return tuple(leases)


def lease_of(instance: AuctionInstance, app: int, profile: AppProfile, entries: Iterable[tuple[int, int]]) -> AppLease:
    """Return the lease of an app that is granted GPUs, as (slot, GPUs) entries, in addition to the GPUs that it holds.

    Raises
    ------
    UnsupportedProblemError
        If it is unknown in which slots the app holds GPUs.
    """
    if profile.held_gpus and not profile.held_places:
        raise UnsupportedProblemError(
            f"the slots of the GPUs that app {instance.apps.ids[app]} holds are unknown; list them in held.places"
        )
    counts = dict(profile.held_places)
    for slot, count in entries:
        counts[slot] = counts.get(slot, 0) + count
    held = with_allocation(profile, instance.cluster, counts.items())
    left = remaining_minutes(held, held.held_gpus, held.slowdown.at(held.held_locality))
    return AppLease(app=app, name=instance.apps.ids[app], profile=held, left_min=left)


def run_leases(
    instance: AuctionInstance,
    plan: AuctionPlan,
    options: PlanOptions,
    *,
    is_stopped: Callable[[], bool] = lambda: False,
    on_slot: Callable[[int], None] = lambda slot: None,
    on_paused: Callable[[float], None] = lambda seconds: None,
) -> tuple[LeaseRow, ...]:
    """Train all apps with grants, and return one row per app.

    Parameters
    ----------
    instance, plan
        Auction and its solution.
    options
        Options of the run; a slot is the lease.
    is_stopped, on_slot, on_paused
        As in `run_plan`.

    Raises
    ------
    UnsupportedProblemError
        If the instance has bids without profiles, or the leases have more workers and servers than allowed.
    """
    leases = read_leases(instance, plan)
    scale = options.slot_s / (60.0 * instance.lease_min)
    jobs = [lease.job_plan(instance.lease_min) for lease in leases]
    runs = play_jobs(jobs, options, scale=scale, is_stopped=is_stopped, on_slot=on_slot, on_paused=on_paused)
    rows = []
    for lease, run in zip(leases, runs, strict=True):
        value = partial(_value, instance, lease, run.plan.planned_slots)
        rows.append(lease_row(instance, lease, run.row(value(run.plan.planned_slots), value)))
    return tuple(rows)


def _value(instance: AuctionInstance, lease: AppLease, planned_slots: float, slots: float) -> float:
    """Return 1 / rho of an app that took `slots` slots for the planned work of its lease."""
    return 1.0 / lease.rho(instance, slots / planned_slots)


def lease_row(instance: AuctionInstance, lease: AppLease, row: JobRow) -> LeaseRow:
    """Return an app's row with the realised work and fairness of its lease."""
    work = lease.work_min(instance.lease_min)
    realised = row.realised_slots
    # The lease ends after one slot; assume that the work progressed at a constant rate.
    done = None if realised is None else work * min(1.0, 1.0 / realised)
    own = {field.name: getattr(row, field.name) for field in fields(JobRow)}
    return LeaseRow(
        **own,
        gpus=lease.gpus,
        placement=lease.placement,
        planned_min=work,
        realised_min=done,
        planned_rho=1.0 / row.planned_utility,
        realised_rho=None if realised is None else 1.0 / row.realised_utility,
    )


def log_welfare(rows: Sequence[LeaseRow]) -> tuple[float, float] | None:
    """Return the sums of log(1 / rho) over the apps, planned and realised; None if a realised rho is None."""
    if any(row.realised_rho is None for row in rows):
        return None
    planned = -math.fsum(math.log(row.planned_rho) for row in rows)
    return planned, -math.fsum(math.log(row.realised_rho) for row in rows if row.realised_rho is not None)


MAX_COMMON = 48
"""Maximum number of partitions that is chosen as a common multiple of all numbers of GPUs that an app may lease."""


@dataclass
class LeasedApp:
    """Training of an app over all its leases.

    Parameters
    ----------
    app
        Number of the app.
    profile
        Profile before the first round.
    options
        Options of the run; a slot is a lease.
    lease_min
        Minutes of a lease.
    max_gpus
        Number of GPUs of the cluster.
    folder
        Folder of the app's checkpoints.

    Attributes
    ----------
    clocks, done
        Number of clocks of the complete training, and number of clocks completed at the last checkpoint.
    gradient_s
        Seconds per gradient on a GPU without slowdown.
    record
        Record of the training so far.
    """

    app: int
    profile: AppProfile
    options: PlanOptions
    lease_min: float
    max_gpus: int
    folder: Path
    done: int = 0
    record: TrainingRecord | None = None
    clocks: int = field(init=False)
    gradient_s: float = field(init=False)
    job: EmulatedJob = field(init=False)
    optimiser: "AbstractOptimiser" = field(init=False)

    def __post_init__(self) -> None:
        partitions = num_partitions(self.profile, self.max_gpus)
        application, self.optimiser = make_job(self.app, partitions, self.options)
        self.job = EmulatedJob(application=application)
        whole_s = self.profile.work_min / self.lease_min * self.options.slot_s
        self.clocks = max(1, round(whole_s / partitions / max(self.options.gradient_s, MIN_S)))
        self.gradient_s = whole_s / partitions / self.clocks

    @property
    def left(self) -> float:
        """Remaining fraction of the app's work."""
        return 1.0 - self.done / self.clocks

    def is_exact(self) -> bool:
        """Return whether losses and parameters after all leases are those of an uninterrupted run, bit for bit."""
        alone = run_alone(self.job, self.optimiser, self.done)
        return self.record is None or self.record.equals(alone)


def num_partitions(profile: AppProfile, max_gpus: int) -> int:
    """Return the number of partitions of an app's data; if possible, the workers of any lease get equal numbers."""
    most = max(1, min(profile.demand, max_gpus))
    gang = min(profile.gang, most)
    common = math.lcm(*range(gang, most + 1, gang))
    return common if common <= MAX_COMMON else PARTITIONS_PER_WORKER * most


@dataclass
class LeaseRun:
    """One lease of an app, in a separate thread.

    Parameters
    ----------
    job, lease
        App and its lease.
    share
        Fraction of a core that each worker limits itself to.

    Attributes
    ----------
    clocks
        Completed clocks.
    spent_s
        Seconds from the lease's beginning to the end of the last clock.
    start_s
        Start-up time of the processes in seconds.
    error
        Error of the lease, which the main thread raises.
    """

    job: LeasedApp
    lease: AppLease
    share: float
    clocks: int = 0
    spent_s: float = 0.0
    start_s: float = 0.0
    error: BaseException | None = None

    def play(self, start: threading.Barrier, is_stopped: Callable[[], bool]) -> None:
        """Train until the lease ends or the work is done."""
        slowdown = SharedSlowdown()
        try:
            self._play(slowdown, start, is_stopped)
        except threading.BrokenBarrierError:
            return  # another app's lease has failed
        except Exception as error:  # the main thread raises it
            self.error = error
            start.abort()
        finally:
            slowdown.close()

    def _play(self, slowdown: SharedSlowdown, start: threading.Barrier, is_stopped: Callable[[], bool]) -> None:
        job, plan, gpus = self.job, self.lease.job_plan(self.job.lease_min), self.lease.gpus
        # The time per gradient, which includes waiting, is such that all workers together are as fast as in the app's
        # profile.
        slowdown.write(gpus / plan.speed(gpus))
        played = job.job.timed(job.gradient_s, plan.link_share, share=self.share, slowdown=slowdown)
        # The parameters are one shard that moves only at the end of a lease, so that only checkpoints reach the
        # storage.
        cluster = ClusterOptions(num_shards=1, checkpoint_every=NEVER, policy=Fixed(fixed=Stage.SEPARATE))
        begun = time.perf_counter()
        with Processes(played, cluster, max_machines=gpus + 1) as transport:
            trainer = resumable(played, job.optimiser, cluster, transport, job.folder)
            trainer.controller.resume(trainer.clock)
            workers = tuple(f"worker-{k}" for k in range(gpus))
            trainer.apply(Event(clock=0, action=Action.ADD_RELIABLE, machines=("server",)))
            trainer.apply(Event(clock=0, action=Action.ADD_TRANSIENT, machines=workers))
            while not _is_up(trainer, workers) and not is_stopped():
                trainer.step()
            self.start_s = time.perf_counter() - begun
            start.wait()  # the leases of a round begin when the processes of all apps are up
            self._train(trainer, is_stopped)
            if self.clocks:
                trainer.controller.save()
            while trainer.controller.saved_clock < trainer.clock:
                trainer.step()
            job.done, job.record = trainer.clock, trainer.record()

    def _train(self, trainer: Trainer, is_stopped: Callable[[], bool]) -> None:
        """Train clock by clock, as long as another clock of the last clock's duration would end within the lease."""
        begun, last_s = time.perf_counter(), 0.0
        while trainer.clock < self.job.clocks and not is_stopped():
            before = time.perf_counter() - begun
            if before + last_s > self.job.options.slot_s:
                return
            clock = trainer.clock + 1
            trainer.controller.resume(clock)
            while not trainer.is_done:
                trainer.step()
            self.clocks += 1
            self.spent_s = time.perf_counter() - begun
            last_s = self.spent_s - before


def _is_up(trainer: Trainer, workers: tuple[str, ...]) -> bool:
    """Return whether all processes have joined, and no reconfiguration is in progress."""
    controller = trainer.controller
    return (
        not controller.machines.joining
        and set(controller.roles.workers) == set(workers)
        and controller.phase is Phase.RUNNING
    )


def run_together(turns: list[LeaseRun], is_stopped: Callable[[], bool]) -> None:
    """Run the leases of a round concurrently, with a common start.

    Raises
    ------
    BaseException
        The error of a lease that failed.
    """
    start = threading.Barrier(len(turns))
    threads = [threading.Thread(target=turn.play, args=(start, is_stopped), daemon=True) for turn in turns]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for turn in turns:
        if turn.error is not None:
            raise turn.error

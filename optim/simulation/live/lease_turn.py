"""An app that leases GPUs round after round: what it trains, and one of its leases on real processes.

A lease's processes begin from the app's last checkpoint and write the next one when the lease is over. An app begins no
clock of training that wouldn't end within its lease: what is left of the lease then is lost.
"""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from optim.models.auction.fairness import AppProfile
from optim.simulation.live.auction_run import AppLease
from optim.simulation.live.job_plan import PlanOptions
from optim.simulation.live.job_run import LEAST_S, PARTITIONS_PER_WORKER, make_job
from optim.simulation.live.own_job import OwnJob
from optim.simulation.live.shared_clock import Pace
from optim.training.options import NEVER, ClusterOptions
from optim.training.phase import Phase
from optim.training.processes import Processes
from optim.training.stages import Fixed, Stage
from optim.training.trainer import Action, Event, Trainer, TrainingRecord, resumable, run_alone

if TYPE_CHECKING:
    from optim.kernels.parameter_server import AbstractOptimiser

MOST_COMMON = 48
"""Most partitions that are a common multiple of all the numbers of GPUs that an app may lease."""


@dataclass
class LeasedApp:
    """What an app trains over all its leases.

    Parameters
    ----------
    app
        Its number.
    profile
        What it knows of itself before the first round.
    options
        How leases are played; a slot is a lease.
    lease_min
        Minutes of a lease.
    most_gpus
        Of the cluster.
    folder
        Where its checkpoints go.

    Attributes
    ----------
    clocks, done
        Clocks of training that its work comes to, and those that its checkpoints hold.
    gradient_s
        Seconds of a gradient on a GPU that nothing slows down.
    record
        What training came to so far.
    """

    app: int
    profile: AppProfile
    options: PlanOptions
    lease_min: float
    most_gpus: int
    folder: Path
    done: int = 0
    record: TrainingRecord | None = None
    clocks: int = field(init=False)
    gradient_s: float = field(init=False)
    job: OwnJob = field(init=False)
    optimiser: "AbstractOptimiser" = field(init=False)

    def __post_init__(self) -> None:
        partitions = num_partitions(self.profile, self.most_gpus)
        application, self.optimiser = make_job(self.app, partitions, self.options.seed)
        self.job = OwnJob(application=application)
        whole_s = self.profile.work_min / self.lease_min * self.options.slot_s
        self.clocks = max(1, round(whole_s / partitions / max(self.options.gradient_s, LEAST_S)))
        self.gradient_s = whole_s / partitions / self.clocks

    @property
    def left(self) -> float:
        """The share of its work that is left."""
        return 1.0 - self.done / self.clocks

    def is_exact(self) -> bool:
        """Tell whether losses and parameters after all leases are those of a run that nobody stopped, bit for bit."""
        alone = run_alone(self.job, self.optimiser, self.done)
        return self.record is None or self.record.equals(alone)


def num_partitions(profile: AppProfile, most_gpus: int) -> int:
    """Return into how many partitions an app's data is cut: all its workers then have as many, whatever it leases."""
    most = max(1, min(profile.demand, most_gpus))
    gang = min(profile.gang, most)
    common = math.lcm(*range(gang, most + 1, gang))
    return common if common <= MOST_COMMON else PARTITIONS_PER_WORKER * most


@dataclass
class LeaseTurn:
    """One lease of an app, in a thread of its own.

    Parameters
    ----------
    job, lease
        The app, and what it is granted.
    share
        Of a core, that each worker holds itself to.

    Attributes
    ----------
    clocks
        Clocks that it has done.
    spent_s
        Seconds from the lease's beginning to the end of the last of them.
    start_s
        Seconds that its processes took to be up.
    error
        What it failed with, for the main thread to raise.
    """

    job: LeasedApp
    lease: AppLease
    share: float
    clocks: int = 0
    spent_s: float = 0.0
    start_s: float = 0.0
    error: BaseException | None = None

    def play(self, start: threading.Barrier, is_stopped: Callable[[], bool]) -> None:
        """Train until the lease is over, or the work is."""
        pace = Pace()
        try:
            self._play(pace, start, is_stopped)
        except threading.BrokenBarrierError:
            return  # another app's lease has failed
        except Exception as error:  # handed to the main thread, which raises it
            self.error = error
            start.abort()
        finally:
            pace.close()

    def _play(self, pace: Pace, start: threading.Barrier, is_stopped: Callable[[], bool]) -> None:
        job, plan, gpus = self.job, self.lease.job_plan(self.job.lease_min), self.lease.gpus
        # A gradient takes as long as makes all workers together as fast as the app says; part of that is waiting.
        pace.write(gpus / plan.speed(gpus))
        played = replace(
            job.job,
            compute_s=job.gradient_s * (1 - plan.link_share),
            link_s=job.gradient_s * plan.link_share,
            share=self.share,
            pace=pace,
        )
        # One shard that moves only at the ends of leases: nothing but their checkpoints reaches the storage.
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
            start.wait()  # a lease begins when all its apps' processes are up
            self._train(trainer, is_stopped)
            if self.clocks:
                trainer.controller.save()
            while trainer.controller.saved_clock < trainer.clock:
                trainer.step()
            job.done, job.record = trainer.clock, trainer.record()

    def _train(self, trainer: Trainer, is_stopped: Callable[[], bool]) -> None:
        """Train clock by clock as long as one more ends within the lease, by the time that the last one took."""
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
    """Tell whether all processes have joined, and nothing is under way."""
    controller = trainer.controller
    return (
        not controller.machines.joining
        and set(controller.roles.workers) == set(workers)
        and controller.phase is Phase.RUNNING
    )


def play_turns(turns: list[LeaseTurn], is_stopped: Callable[[], bool]) -> None:
    """Play the leases of a round at once; they begin together.

    Raises
    ------
    BaseException
        What one of them failed with.
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

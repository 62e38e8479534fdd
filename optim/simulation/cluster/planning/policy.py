"""Interface of planning policies: views and plans.

The engine calls `plan` after each instant with an event (such as a submission or an end), and at times that the policy
requested. The engine passes a `View`, which contains the information that a real scheduler has, and receives a `Plan`: the jobs
to run from now on, and their GPUs. A running job that is absent from the plan is stopped. A job whose GPUs change is stopped
and started; a job whose GPUs are unchanged continues. A plan that breaks a rule ends the run with a `BrokenRuleError`, which
names event, job and rule.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from optim.core.arrays import BoolArray, FloatArray, IntArray
from optim.core.errors import InvalidProblemError, NotAllowedError, did_you_mean
from optim.core.registry import SUPPORTED, Support
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import Event
from optim.models.cluster.proof import Worth
from optim.models.cluster.rules import Rules
from optim.models.cluster.workload import Workload
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.planning.free_gpus import FreeGpus, Gpus

if TYPE_CHECKING:
    from optim.simulation.cluster.planning.state import ClusterState


class Oracle(StrEnum):
    """Information about jobs that a real scheduler lacks.

    A policy must declare the information that it uses; otherwise the engine withholds it. The declaration is printed.
    """

    RUN_TIMES = "the run times"


class BrokenRuleError(InvalidProblemError):
    """A policy's plan breaks a rule; the message names event, job and rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Decision of a policy.

    Parameters
    ----------
    gpus
        GPUs of every job that runs from now on, by job number; jobs start in this order.
    again_us
        Time of the next call, after now, unless an event causes an earlier call; None to wait for the next event.
    leave
        Jobs to remove permanently, running or waiting: rejected, or given up.
    steps
        Stops (`Event.PREEMPT`) and starts (`Event.START`) in order, for policies to which the order matters. A job that
        is stopped and started on the same GPUs restarts. Stops that are not listed here happen before these steps,
        starts that are not listed happen after them.
    """

    gpus: Mapping[int, Gpus]
    again_us: int | None = None
    leave: Sequence[int] = field(default=())
    steps: Sequence[tuple[Event, int]] = field(default=())


class PlanningPolicy(ABC):
    """A planning policy. One object serves several runs in succession: `begin` clears all its state.

    Parameters
    ----------
    name, source, assumptions
        Name, publication, and how gaps in the publication are filled here. The decorator `policy` sets the first two.
    oracle_inputs
        Declared information that a real scheduler lacks; empty if none.
    reads_losses
        Whether the policy uses the losses that jobs report, and so requires loss curves.
    places_itself
        Whether the policy has its own placement rule, so that the engine's rule and placement wrappers do not apply.
    may_spread
        Whether the policy lets gangs spread over machines in cases in which the engine's rule does not.
    knows_quotas
        Whether the policy enforces quotas of virtual clusters, for which jobs may wait.
    quota
        GPUs of each virtual cluster, set by `begin` if the policy has quotas; metrics and checker use them as well.
    notes
        Remarks on the files that the policy read, one line each: fields without effect here.
    plans_at_events
        Whether the policy is called at submissions and ends of jobs, and not only at times that it requested. A policy
        with rounds sets this to False, so that the GPUs of an ended job stay idle until the next round. If it has
        requested no time, the next event causes the call.
    """

    name: ClassVar[str] = ""
    source: ClassVar[str] = ""
    assumptions: ClassVar[str] = ""
    oracle_inputs: ClassVar[tuple[Oracle, ...]] = ()
    reads_losses: ClassVar[bool] = False
    places_itself: ClassVar[bool] = False
    may_spread: ClassVar[bool] = False
    knows_quotas: ClassVar[bool] = False
    quota: "Sequence[float] | FloatArray" = ()
    notes: Sequence[str] = ()
    plans_at_events: bool = True

    @property
    def needs(self) -> str:
        """Description of the declared information that a real scheduler lacks; empty if none."""
        return ", ".join(self.oracle_inputs)

    def rules(self, options: EngineOptions) -> Rules:
        """Return the rules of the policy's runs: by default complete gangs, one job per GPU, and the engine's start costs.

        Quotas are those of the latest run.
        """
        return Rules(
            restart_us=options.overhead_us,
            move_us=options.overhead_us,
            is_shared=options.sharing,
            neighbour_ppm=options.neighbour_ppm,
            knows_quotas=self.knows_quotas,
            quotas=tuple(map(float, self.quota)) if self.knows_quotas else (),
        )

    def supports(self, jobs: Workload, cluster: Cluster) -> Support:
        """Return whether the policy supports these jobs on this cluster, with the reason if not."""
        del cluster
        if self.reads_losses and not jobs.loss.shape[1]:
            return Support(False, "it requires loss curves, which these jobs lack")
        return SUPPORTED

    def begin(self, cluster: Cluster, seed: int) -> None:
        """Reset all state; called before the first `plan` of each run. Random numbers must come from `seed` alone."""
        del cluster, seed

    @abstractmethod
    def plan(self, view: "View") -> Plan:
        """Decide which jobs run from now on, and where."""

    def worth(self) -> Worth | None:
        """Return the utilities of jobs by completion time, if the policy maximises them; the checker recomputes them."""
        return None

    def promises(self) -> tuple[IntArray, IntArray, IntArray] | None:
        """Return the reserved starts in the form of `EventLog.with_promises`, or None.

        The engine logs the reserved starts, and the checker compares them with the actual starts.
        """
        return None

    def figures(self) -> Mapping[str, float]:
        """Return counters of the completed run by name, such as conflicts, rejections or rounds."""
        return {}


COLUMNS = (
    *("submit_us", "gpus", "slowdown_ppm", "app", "group", "min_gpus", "max_gpus", "share_milli", "busy_milli"),
    *("gpu_type_slowdown_ppm", "cpu_milli", "memory_mib", "priority", "user"),
)
"""Workload columns that every policy sees, for the jobs submitted so far."""


class View:
    """The cluster and the jobs submitted so far, at one instant. Arrays are read-only, with one entry per job number.

    Parameters
    ----------
    now_us
        The instant, in microseconds after the first submission.
    cluster
        Machines and GPUs.
    jobs
        Numbers of the waiting and running jobs, by submission.
    running
        GPUs of each running job by its number, in order of their last starts.
    is_up
        Whether each machine is up; GPUs of other machines are unavailable; shape (machines,).
    prepare
        Functions by which wrappers change the free GPUs before the wrapped policy sees them.
    num_groups, num_users
        Number of virtual clusters, and of users.
    is_shared
        Whether jobs take only their share of a GPU.
    submit_us, gpus, slowdown_ppm, app, group, min_gpus, max_gpus, share_milli, busy_milli, gpu_type_slowdown_ppm, cpu_milli, memory_mib, priority, user
        As in `Workload`, of the jobs submitted so far.
    """

    submit_us: IntArray
    gpus: IntArray
    slowdown_ppm: IntArray
    app: IntArray
    group: IntArray
    min_gpus: IntArray
    max_gpus: IntArray
    share_milli: IntArray
    busy_milli: IntArray
    gpu_type_slowdown_ppm: IntArray
    cpu_milli: IntArray
    memory_mib: IntArray
    priority: IntArray
    user: IntArray

    def __init__(
        self,
        now_us: int,
        num_submitted: int,
        books: "ClusterState",
        columns: Mapping[str, IntArray],
        oracle_inputs: tuple[Oracle, ...],
    ) -> None:
        self.now_us = now_us
        self.cluster: Cluster = books.cluster
        self._books, self._oracle_inputs = books, oracle_inputs
        self._count = num_submitted
        self.running: Mapping[int, Gpus] = MappingProxyType(books.shown)
        self.jobs: IntArray = np.flatnonzero(books.is_active[:num_submitted])
        self.is_up: BoolArray = books.is_up.copy()
        self.is_up.flags.writeable = False
        self.prepare: list[Callable[[FreeGpus], None]] = []
        self._is_whole = True
        self.num_groups, self.num_users = len(books.jobs.groups), len(books.jobs.users)
        self.is_shared = books.site.is_shared
        for name in COLUMNS:
            setattr(self, name, columns[name][:num_submitted])

    def __getattr__(self, name: str) -> Any:
        """Raise an error that lists the available attributes."""
        there = sorted({each for each in (*vars(self), *dir(type(self))) if not each.startswith("_")})
        raise AttributeError(f"a view has no attribute {name!r}; {did_you_mean(name, there)}it has: {', '.join(there)}")

    @property
    def waiting(self) -> IntArray:
        """Numbers of the waiting jobs, by submission."""
        if self._is_whole:
            return self.jobs[~self._books.is_running[self.jobs]]
        return self.jobs[~np.isin(self.jobs, list(self.running))]

    @property
    def held_back(self) -> tuple[int, ...]:
        """Numbers of the jobs in back-off after a failed attempt."""
        return tuple(job for _, job in self._books.held_back)

    @property
    def is_done(self) -> BoolArray:
        """Whether each job has done all of its work."""
        done: BoolArray = self._books.is_done[: self._count].copy()
        return done

    @property
    def executed_us(self) -> IntArray:
        """Time of progress with GPUs so far."""
        return self._books.executed_at(self.now_us, self._count)

    @property
    def served_us(self) -> IntArray:
        """Work done so far, in time on the complete gang on one machine: the job's step counter."""
        return self._books.served_at(self.now_us, self._count)

    @property
    def first_start_us(self) -> IntArray:
        """Time of each job's first start, -1 if it never started."""
        return _read_only(self._books.first_start[: self._count])

    @property
    def started_us(self) -> IntArray:
        """Time of each job's last start, -1 if it never started."""
        return _read_only(self._books.started[: self._count])

    def progress_since(self, job: int) -> int:
        """Return the time at which a running job begins or began to make progress, after the pause at its start."""
        return int(self._books.pause_end[job])

    @property
    def stopped_us(self) -> IntArray:
        """Time of each job's last stop, -1 if it was never stopped."""
        return _read_only(self._books.stopped[: self._count])

    @property
    def has_failed(self) -> BoolArray:
        """Whether an attempt of each job has failed; such a job continues, because its run time is simulated in one piece."""
        if self._books.rules.retries:
            return np.zeros(self._count, np.bool_)
        fails = self._books.jobs.fails_us[: self._count]
        return np.asarray((fails >= 0) & (self.executed_us >= fails))

    @property
    def remaining_us(self) -> IntArray:
        """Remaining work, in time on the complete gang on one machine at each job's present speed.

        Only policies that declare `Oracle.RUN_TIMES` may read it.

        Raises
        ------
        NotAllowedError
            If the policy does not declare `Oracle.RUN_TIMES`.
        """
        if Oracle.RUN_TIMES not in self._oracle_inputs:
            raise NotAllowedError(
                "run times are hidden from this policy; declare them: oracle_inputs = (Oracle.RUN_TIMES,)"
            )
        left = self._books.jobs.foreseen_us(self.served_us)
        return np.asarray(
            np.maximum(1, left) if self._books.rules.retries else left
        )  # a failing attempt may do more work than the job needs

    def undone_by_stop(self, job: int) -> int:
        """Return the work in microseconds that a stop now would undo."""
        books, step = self._books, int(self._books.stop_steps[job])
        if not step:
            return 0
        done = int(books.served_at(self.now_us, self._count)[job])
        return done - max(int(books.saved[job]), done // step * step)

    @property
    def num_losses(self) -> int:
        """Number of losses that a job reports up to the end of its planned work; 0 without loss curves."""
        return int(self._books.jobs.loss.shape[1])

    def losses(self, job: int) -> FloatArray:
        """Return the losses that a job has reported so far: the first before any work, the others after equal steps of work."""
        points: FloatArray = self._books.jobs.loss[job]
        if not len(points):
            return points
        done = int(self.served_us[job]) * (len(points) - 1) // int(self._books.jobs.duration_us[job])
        return np.asarray(points[: min(done, len(points) - 1) + 1])

    def room(self, without: Iterable[int] = ()) -> FreeGpus:
        """Return the GPUs that are free while the running jobs continue, except the jobs in `without`."""
        room = self._books.room(without)
        for prepare in self.prepare:
            prepare(room)
        return room

    def hide(self, hidden: Collection[int], stopped: Collection[int] = ()) -> None:
        """Hide from the wrapped policy the `hidden` jobs, which a wrapper manages, and show the `stopped` jobs as waiting."""
        gone = {*hidden, *stopped}
        self._is_whole = False
        self.running = MappingProxyType({job: gpus for job, gpus in self.running.items() if job not in gone})
        self.jobs = self.jobs[~np.isin(self.jobs, list(hidden))]

    def machine_of(self, gpu: int) -> int:
        """Return the machine of a GPU."""
        return self._books.site.machine_of[gpu]

    def level(self, gpus: Gpus) -> int:
        """Return the locality of GPUs: 0 within a machine, 1 within a rack, 2 across racks."""
        machines = {self._books.site.machine_of[gpu] for gpu in gpus}
        if len(machines) == 1:
            return 0
        return 1 if len({int(self.cluster.rack[machine]) for machine in machines}) == 1 else 2


def _read_only(values: IntArray) -> IntArray:
    view = values.view()
    view.flags.writeable = False
    return view

"""The contract of a planning policy: what it sees at an instant, and what it answers.

The engine calls `plan` after each instant at which something happened (a submission, an end), or at the times that the
policy asked for. It hands over a `View`, which shows what the policy's real counterpart would see, and takes a `Plan`:
which jobs are to run from now on, and on which GPUs. A job that runs and isn't in the plan is stopped; one whose GPUs
change is stopped and started; one whose GPUs stay goes on undisturbed. A plan that breaks a rule ends the run by a
`BrokenRuleError`, which names event, job and rule.
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
    """What of a job a policy may see that a real scheduler wouldn't; declared, printed, and shown only then."""

    RUN_TIMES = "the run times"


class BrokenRuleError(InvalidProblemError):
    """A policy's plan breaks a rule; the text names event, job and rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a policy decides.

    Parameters
    ----------
    gpus
        GPUs of every job that is to run from now on, by the job's number; jobs start in this order.
    again_us
        When to be called again at the latest, after now; None for at the next event.
    leave
        Jobs that are sent away for good, whether they run or wait: refused, or given up.
    steps
        Stops (`Event.PREEMPT`) and starts (`Event.START`) in the order in which they happen, for policies to which it matters: a
        job that is stopped and started on the same GPUs starts anew. What isn't named is stopped before, or started after.
    """

    gpus: Mapping[int, Gpus]
    again_us: int | None = None
    leave: Sequence[int] = field(default=())
    steps: Sequence[tuple[Event, int]] = field(default=())


class PlanningPolicy(ABC):
    """A policy that plans. One object serves one run after the other: `begin` clears all that it remembers.

    Parameters
    ----------
    name, source, assumptions
        Its name, the publication that it follows, and how gaps of that are filled here. Decorated by `policy`, a class gets
        the first two from there.
    oracle_inputs
        What it sees that a real scheduler wouldn't; empty if nothing.
    reads_losses
        Whether it follows the losses that jobs report, so that it needs loss curves.
    places_itself
        Whether it brings its own placement, so that the engine's rule and wrappers around placement don't reach it.
    may_spread
        Whether it lets gangs spread over machines where the engine's rule doesn't.
    knows_quotas
        Whether it goes by quotas of the virtual clusters, so that jobs may wait for theirs.
    quota
        GPUs of each virtual cluster, which `begin` sets where it goes by quotas: figures and checker go by them, too.
    notes
        What a user should know of the files that it read, one line each: fields that decide nothing here.
    plans_at_events
        Whether it is called at submissions and ends, too, or only at the times that it asked for (a round-based policy:
        then a job that ends leaves its GPUs idle until the round is over). Where it asked for none, the next event calls.
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
        """What it sees that a real scheduler wouldn't, for people; empty if nothing."""
        return ", ".join(self.oracle_inputs)

    def rules(self, options: EngineOptions) -> Rules:
        """Return what its runs may do and what starts cost: whole gangs, one job a GPU, the engine's overhead unless it says so.

        Quotas are those of the run that was begun last.
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
        """Tell whether it can serve such jobs on such a cluster, and if not, why."""
        del cluster
        if self.reads_losses and not jobs.loss.shape[1]:
            return Support(False, "it follows loss curves, and these jobs have none")
        return SUPPORTED

    def begin(self, cluster: Cluster, seed: int) -> None:
        """Forget earlier runs; called before the first `plan` of each. Random numbers come from `seed` alone."""
        del cluster, seed

    @abstractmethod
    def plan(self, view: "View") -> Plan:
        """Decide which jobs run from now on, and where."""

    def worth(self) -> Worth | None:
        """Return what jobs were worth by when they ended, if the policy goes by that: logged, and recomputed by the checker."""
        return None

    def promises(self) -> tuple[IntArray, IntArray, IntArray] | None:
        """Return what a policy with reservations promised, as `EventLog.with_promises` takes it: logged, and held against the starts by the checker."""
        return None

    def figures(self) -> Mapping[str, float]:
        """Return what it has to say of the run that ended: conflicts, refusals, rounds; numbers by name."""
        return {}


COLUMNS = (
    *("submit_us", "gpus", "slowdown_ppm", "app", "group", "min_gpus", "max_gpus", "share_milli", "busy_milli"),
    *("gpu_type_slowdown_ppm", "cpu_milli", "memory_mib", "priority", "user"),
)
"""Columns of the workload that any scheduler sees of the jobs submitted so far."""


class View:
    """The cluster and the jobs submitted so far, at an instant. Arrays are read-only, one entry a job by its number.

    Parameters
    ----------
    now_us
        The instant, in microseconds after the first submission.
    cluster
        Machines and GPUs.
    jobs
        Numbers of the jobs that wait or run, by submission.
    running
        GPUs of each job that runs, by its number, in the order of their last starts.
    is_up
        Whether each machine is up; the GPUs of the others are no room; shape (machines,).
    prepare
        What wrappers do to all room before the policy inside sees it.
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
        """Say what there is where a policy asks for something else."""
        there = sorted({each for each in (*vars(self), *dir(type(self))) if not each.startswith("_")})
        raise AttributeError(f"a view has no {name!r}; {did_you_mean(name, there)}it has: {', '.join(there)}")

    @property
    def waiting(self) -> IntArray:
        """Numbers of the jobs that wait, by submission."""
        if self._is_whole:
            return self.jobs[~self._books.is_running[self.jobs]]
        return self.jobs[~np.isin(self.jobs, list(self.running))]

    @property
    def held_back(self) -> tuple[int, ...]:
        """Numbers of the jobs that neither wait nor run, a try of theirs having failed a while ago."""
        return tuple(job for _, job in self._books.held_back)

    @property
    def is_done(self) -> BoolArray:
        """Whether each job has done all of its work."""
        done: BoolArray = self._books.is_done[: self._count].copy()
        return done

    @property
    def executed_us(self) -> IntArray:
        """Time with GPUs in progress so far."""
        return self._books.executed_at(self.now_us, self._count)

    @property
    def served_us(self) -> IntArray:
        """Work done so far, in time on the whole gang in one machine: what a job's own step counter shows."""
        return self._books.served_at(self.now_us, self._count)

    @property
    def first_start_us(self) -> IntArray:
        """When each job first had GPUs, -1 if it never had."""
        return _read_only(self._books.first_start[: self._count])

    @property
    def started_us(self) -> IntArray:
        """When each job was last started, -1 if it never was."""
        return _read_only(self._books.started[: self._count])

    def progress_since(self, job: int) -> int:
        """Return since or from when a running job gets on: after the pause of its start."""
        return int(self._books.pause_end[job])

    @property
    def stopped_us(self) -> IntArray:
        """When each job was last stopped, -1 if it never was."""
        return _read_only(self._books.stopped[: self._count])

    @property
    def has_failed(self) -> BoolArray:
        """Whether a try of the job has failed by now that it goes on from, its run time being played in one piece."""
        if self._books.rules.retries:
            return np.zeros(self._count, np.bool_)
        fails = self._books.jobs.fails_us[: self._count]
        return np.asarray((fails >= 0) & (self.executed_us >= fails))

    @property
    def remaining_us(self) -> IntArray:
        """Work left, in time on the whole gang in one machine, at each job's present speed; only for policies that declare it.

        Raises
        ------
        NotAllowedError
            If the policy doesn't declare `Oracle.RUN_TIMES`.
        """
        if Oracle.RUN_TIMES not in self._oracle_inputs:
            raise NotAllowedError(
                "run times are hidden from this policy; declare them: oracle_inputs = (Oracle.RUN_TIMES,)"
            )
        left = self._books.jobs.foreseen_us(self.served_us)
        return np.asarray(np.maximum(1, left) if self._books.rules.retries else left)  # a failing try may do more

    def undone_by_stop(self, job: int) -> int:
        """Return the work in microseconds that a running job would lose if it were stopped now."""
        books, step = self._books, int(self._books.stop_steps[job])
        if not step:
            return 0
        done = int(books.served_at(self.now_us, self._count)[job])
        return done - max(int(books.saved[job]), done // step * step)

    @property
    def num_losses(self) -> int:
        """How many losses a job reports up to the end of all its planned work, 0 where losses aren't known."""
        return int(self._books.jobs.loss.shape[1])

    def losses(self, job: int) -> FloatArray:
        """Return the losses that a job has reported so far: one at each equal step of its work, the first before any."""
        points: FloatArray = self._books.jobs.loss[job]
        if not len(points):
            return points
        done = int(self.served_us[job]) * (len(points) - 1) // int(self._books.jobs.duration_us[job])
        return np.asarray(points[: min(done, len(points) - 1) + 1])

    def room(self, without: Iterable[int] = ()) -> FreeGpus:
        """Return the room that the running jobs leave, `without` some of them: to take GPUs from by the placement rule."""
        room = self._books.room(without)
        for prepare in self.prepare:
            prepare(room)
        return room

    def hide(self, hidden: Collection[int], stopped: Collection[int] = ()) -> None:
        """Hide jobs from the policy inside a wrapper, which looks after them itself, and show others as waiting."""
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

"""Jobs that a cluster runs, as arrays."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np

from optim.core.arrays import BoolArray, ComparesByValue, FloatArray, IntArray
from optim.core.errors import InvalidProblemError
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.columns import LATER, check_ranges, column, columns_of, fill_columns, form

US = 1_000_000
"""Microseconds per second. Times are integers, so that rounding can't change the order of events."""

PPM = 1_000_000
"""A slowdown of 1 in parts per million."""

LATEST_US = 2**50
"""Latest time, about 35 years; exact in 64-bit integers and in doubles."""

LEVELS = ("machine", "rack", "cluster")
"""Localities: the smallest part of the cluster that contains all of a job's GPUs."""

MAX_MISSING = 0.05
"""Largest share of a source's GPU-hours that may be left out without a warning."""

ELSEWHERE, EARLIER = "jobs in other virtual clusters", "jobs submitted earlier"
"""Reasons for leaving out jobs at the user's request, which give no warning."""

UNFINISHED = "jobs still running or pending"
"""Reason for leaving out jobs whose GPU-hours are known only up to the end of the source."""


def counted(dropped: Mapping[str, int], more: Mapping[str, str] | None = None) -> str:
    """Return the number of rows left out for each reason (a plural noun phrase), with the remark of `more` on it, as text.

    Examples
    --------
    >>> counted({"job steps": 3, "jobs without a GPU": 1}, {"job steps": " (of 2 jobs)"})
    '3 job steps (of 2 jobs), 1 job without a GPU'
    """
    more = more or {}
    singular = {reason: _PLURAL.sub(r"\1", reason, count=1) for reason in dropped}
    return ", ".join(
        f"{count} {singular[reason] if count == 1 else reason}{more.get(reason, '')}"
        for reason, count in dropped.items()
        if count
    )


_PLURAL = re.compile(r"\b(job|row|step|pod)s\b")

MIB_A_GB = 1_024

WHOLE_MILLI = 1_000
"""One GPU in thousandths."""

LABELS: Mapping[str, str] = {
    "group": "groups",
    "user": "users",
    "model": "models",
    "status": "statuses",
    "reason": "reasons",
    "account": "accounts",
    "qos": "qos_names",
}
"""Columns that hold indices into names, and the fields with the names."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Workload(ComparesByValue):
    """Jobs in the order of their submission, one row per job.

    Parameters
    ----------
    submit_us
        Submission in microseconds after the first; not decreasing; shape (jobs,).
    gpus
        Gang: number of GPUs that the job uses together, at least 1; shape (jobs,).
    duration_us
        Exclusive run time on its gang in one machine, positive; shape (jobs,).
    slowdown_ppm
        Slowdown by locality (`LEVELS`) in parts per million, at least 1,000,000; shape (jobs, 3).
    app
        Number of each job's app, at least 0; by default each job is a separate app; shape (jobs,).
    group
        Index of each job's virtual cluster in `groups`; shape (jobs,).
    min_gpus, max_gpus
        Range of GPUs on which an elastic policy may run a job; default: 1 to the gang; shape (jobs,).
    share_milli
        Share of each GPU that the job takes if GPUs are shared, in thousandths; default 1,000; shape (jobs,).
    busy_milli
        Utilisation of a GPU by the job alone, in thousandths, which determines how jobs on one GPU slow each other down;
        default 1,000; shape (jobs,).
    gpu_type_slowdown_ppm
        Slowdown by the cluster's types of GPU in parts per million, at least 1,000,000; 0 where the job can't run;
        shape (jobs, types), or (jobs, 0) if types make no difference.
    cpu_milli, memory_mib
        vCPU, in thousandths, and memory per GPU; default 0; shape (jobs,).
    priority
        Priority for policies that use it, larger first; default 0; shape (jobs,).
    fails_us
        Run time after which an attempt of the job fails, -1 if none fails; `duration_us` includes all attempts; shape (jobs,).
    tries
        Number of failing attempts of a job whose attempts fail; default 1; shape (jobs,).
    estimate_us
        Run time stated by the user, such as a time limit; 0 if none; shape (jobs,).
    good_us
        Work of the successful attempt after the failing attempts; 0 if there is none; -1 if it is the duration minus the
        failing attempts; shape (jobs,).
    checkpoint_us
        Work between two checkpoints of the job, if preemptions or failures of machines undo work: -1 for the value of the run's
        rules, 0 for a job without checkpoints; shape (jobs,).
    step_time_milli
        Time per step in equal parts of the job's steps, in thousandths of its mean, for a job that adapts its batch size.
        The duration is the true one, but policies see the remaining run time at the present speed. Shape (jobs, parts), or
        (jobs, 0) for constant speeds.
    loss
        Loss at equidistant points of the work, from start to end; shape (jobs, points), or (jobs, 0) if unknown.
    user, model, status, reason, account, qos
        Indices into `users`, `models`, `statuses` (end of the job in its trace), `reasons` (of its failure), `accounts`
        (charged for the job) and `qos_names` (qualities of service); shape (jobs,).
    groups
        Names of the virtual clusters.
    users, models, statuses, reasons, accounts, qos_names
        Names of users, models and so on, "" for unknown.
    ids
        Names of the jobs.
    dropped
        Number of rows of the source that were left out, by reason.
    dropped_gpu_h
        GPU-hours of these rows by reason, as far as the source reports them.
    notes
        Remarks for users of the jobs, one line each.
    recorded_wait_us
        Each job's time without GPUs between submission and end in the source's cluster; -1 if not reported; shape (jobs,).
    begin
        Date of time 0; None if the source has no dates.
    recorded_wait
        Number of jobs whose wait the source reports, and its mean in hours; None if there are none.

    Raises
    ------
    InvalidProblemError
        If arrays differ in length or have a wrong shape, times aren't sorted, or a number is out of range.
    """

    submit_us: IntArray = field(metadata=form(least=0, most=LATEST_US))
    gpus: IntArray = field(metadata=form(least=1, most=2**20))
    duration_us: IntArray = field(metadata=form(least=1, most=LATEST_US))
    slowdown_ppm: IntArray = column(lambda jobs: np.full((len(jobs), 3), PPM), dims=2, least=PPM, most=1_000 * PPM)
    app: IntArray = column(lambda jobs: np.arange(len(jobs)), least=0, most=2**53)
    group: IntArray = column(0)
    min_gpus: IntArray = column(1, least=1, most=2**20, since=1, former="least_gpus")
    max_gpus: IntArray = column(lambda jobs: jobs.gpus, least=1, most=2**20, since=1, former="most_gpus")
    share_milli: IntArray = column(WHOLE_MILLI, least=1, most=WHOLE_MILLI, since=1)
    busy_milli: IntArray = column(WHOLE_MILLI, least=1, most=WHOLE_MILLI, since=1)
    gpu_type_slowdown_ppm: IntArray = column(
        lambda jobs: np.zeros((len(jobs), 0)), dims=2, least=0, most=1_000 * PPM, since=1, former="kind_ppm"
    )
    cpu_milli: IntArray = column(0, least=0, most=2**40, since=1)
    memory_mib: IntArray = column(0, least=0, most=2**40, since=1)
    priority: IntArray = column(0, least=-(2**31), most=2**31, since=1)
    fails_us: IntArray = column(-1, least=-1, most=LATEST_US, since=1)
    tries: IntArray = column(1, least=1, most=2**20, since=4)
    good_us: IntArray = column(-1, least=-1, most=LATEST_US, since=4)
    estimate_us: IntArray = column(0, least=0, most=LATEST_US, since=LATER)
    checkpoint_us: IntArray = column(-1, least=-1, most=LATEST_US, since=LATER)
    user: IntArray = column(0, since=2)
    model: IntArray = column(0, since=2)
    status: IntArray = column(0, since=2)
    reason: IntArray = column(0, since=2)
    account: IntArray = column(0, since=LATER)
    qos: IntArray = column(0, since=LATER)
    recorded_wait_us: IntArray = column(-1, least=-1, most=LATEST_US, since=LATER)
    step_time_milli: IntArray = column(
        lambda jobs: np.zeros((len(jobs), 0)), dims=2, least=1, most=1_000_000, since=LATER
    )
    loss: FloatArray = column(lambda jobs: np.zeros((len(jobs), 0)), dims=2, dtype=np.float64, since=1)
    groups: tuple[str, ...] = ("",)
    users: tuple[str, ...] = ("",)
    models: tuple[str, ...] = ("",)
    statuses: tuple[str, ...] = ("",)
    reasons: tuple[str, ...] = ("",)
    accounts: tuple[str, ...] = ("",)
    qos_names: tuple[str, ...] = ("",)
    ids: tuple[str, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)
    dropped_gpu_h: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    recorded_wait: tuple[int, float] | None = None
    begin: datetime | None = None

    def __post_init__(self) -> None:
        """Fill in defaults and check all columns."""
        count = len(self.submit_us)
        if not count:
            raise InvalidProblemError("a workload must have at least one job, got none")
        fill_columns(self, count, "job")
        if self.slowdown_ppm.shape[1] != len(LEVELS):
            raise InvalidProblemError(f"slowdown_ppm must have {len(LEVELS)} numbers per job: {', '.join(LEVELS)}")
        if not np.isfinite(self.loss).all():
            raise InvalidProblemError("loss must be finite; omit it if it isn't known")
        if self.submit_us[0] < 0 or (np.diff(self.submit_us) < 0).any():
            raise InvalidProblemError(
                "jobs must be sorted by submission time, and the first time must be at least 0; sort them first"
            )
        check_ranges(self)
        for label, names in LABELS.items():
            values, known = getattr(self, label), len(getattr(self, names))
            if values.min() < 0 or values.max() >= known:
                raise InvalidProblemError(f"{label} must lie in 0..{known - 1}, got {values.min()}..{values.max()}")
        if (self.good_us > self.duration_us).any():
            raise InvalidProblemError("good_us must not exceed duration_us, which includes all attempts")
        if (self.min_gpus > self.max_gpus).any() or (
            (self.gpu_type_slowdown_ppm > 0) & (self.gpu_type_slowdown_ppm < PPM)
        ).any():
            raise InvalidProblemError(
                "min_gpus must not exceed max_gpus, and gpu_type_slowdown_ppm must be 0 or at least 1000000"
            )
        if (self.gpus.astype(float) * self.duration_us * self.slowdown_ppm.max(1) / PPM).max() >= 2.0**62:
            raise InvalidProblemError("a job's GPUs x duration must stay below 2**62 microseconds; check the units")
        if not self.ids:
            object.__setattr__(self, "ids", self.numbered)
        if len(self.ids) != count:
            raise InvalidProblemError(f"ids has {len(self.ids)} entries for {count} jobs; give one per job")

    def __len__(self) -> int:
        """Return the number of jobs."""
        return len(self.submit_us)

    def select(self, rows: IntArray) -> "Workload":
        """Return the jobs in some increasing rows, with unchanged times and without the notes and counts of left-out rows."""
        columns = {name: getattr(self, name)[rows] for name in columns_of(self)}
        return replace(
            self, **columns, ids=tuple(self.ids[row] for row in rows.tolist()), dropped={}, dropped_gpu_h={}, notes=()
        )

    @property
    def numbered(self) -> tuple[str, ...]:
        """Default names of the jobs."""
        return tuple(f"j{row}" for row in range(len(self)))

    def foreseen_us(self, served_us: IntArray) -> IntArray:
        """Return the remaining work of the first n jobs, extrapolated from their present speeds; shape (n,).

        For a job that has done a share s of its steps and now takes c times its mean time per step, this is c (1 - s) times
        its run time. At constant speed it is the true remaining work.

        Parameters
        ----------
        served_us
            Work done, as time on the full gang in one machine; shape (n,).
        """
        number, parts = len(served_us), self.step_time_milli.shape[1]
        whole = self.duration_us[:number]
        if not parts:
            return whole - served_us
        pace = self.step_time_milli[:number] / self.step_time_milli[:number].sum(axis=1, keepdims=True)
        until = np.cumsum(pace, axis=1)
        done = served_us / whole
        part = np.minimum((until <= done[:, None]).sum(axis=1), parts - 1)
        rows = np.arange(number)
        now = pace[rows, part]
        share = (part + (done - (until[rows, part] - now)) / now) / parts
        seen = np.maximum(1, np.rint(now * parts * (1.0 - share) * whole)).astype(np.int64)
        return np.where(served_us < whole, seen, 0)

    @property
    def gpu_hours(self) -> float:
        """Work of all jobs in GPU-hours."""
        return float(self.gpus.astype(float) @ self.duration_us) / US / 3600

    @property
    def left_out(self) -> str:
        """Text on the rows left out of the source, with their GPU-hours if known; empty if there are none."""
        hours = {
            reason: f" ({'at least ' if reason == UNFINISHED else ''}{held:,.1f} GPU-hours)"
            for reason, held in self.dropped_gpu_h.items()
        }
        said = counted(self.dropped, hours)
        return f"left out: {said}" if said else ""

    @property
    def missing(self) -> str:
        """A warning if more than `MAX_MISSING` of the GPU-hours were left out, other than at the user's request; else empty."""
        lost = {reason: held for reason, held in self.dropped_gpu_h.items() if reason not in (ELSEWHERE, EARLIER)}
        held = sum(lost.values())
        everything = self.gpu_hours + held
        if held <= MAX_MISSING * everything:
            return ""
        reasons = ", ".join(sorted(lost, key=lambda reason: -lost[reason]))
        least = "at least " if UNFINISHED in self.dropped else ""
        return (
            f"{least}{held:,.1f} of {everything:,.1f} GPU-hours ({held / everything:.0%}) are left out: {reasons}; "
            "the cluster was fuller, and jobs waited longer, than is shown"
        )

    @property
    def recorded(self) -> BoolArray:
        """Which jobs have a wait, and so an end, in the source; shape (jobs,)."""
        return self.recorded_wait_us >= 0

    def strains_hosts(self, cluster: Cluster, jobs_a_gpu: int = 1) -> bool:
        """Return whether a machine full of the most demanding jobs could run out of vCPU or memory."""
        asks = np.array([self.cpu_milli.max(), self.memory_mib.max()])
        return bool((asks[:, None] * cluster.gpus * jobs_a_gpu > hosts(cluster)).any())

    def room_on(self, cluster: Cluster, job: int) -> IntArray:
        """Return how many GPUs of each empty machine a job can use, given type, vCPU and memory; shape (machines,)."""
        asks = np.maximum(1, [self.cpu_milli[job], self.memory_mib[job]])
        room = np.minimum(cluster.gpus, (hosts(cluster) // asks[:, None]).min(axis=0))
        if self.gpu_type_slowdown_ppm.shape[1]:
            room = np.where(self.gpu_type_slowdown_ppm[job, cluster.kind] > 0, room, 0)
        return np.asarray(room, np.int64)

    def check_fits(self, cluster: Cluster, *, on_one_machine: bool = False) -> None:
        """Check that every gang fits into the empty cluster.

        Parameters
        ----------
        cluster
            Cluster for the jobs.
        on_one_machine
            Whether a gang must be on one machine if it fits into the largest one, and on empty machines otherwise.

        Raises
        ------
        InvalidProblemError
            If a gang doesn't fit; the message names the first such job.
        """
        too_large = np.flatnonzero(self.gpus > cluster.num_gpus)
        if len(too_large):
            row = int(too_large[0])
            raise InvalidProblemError(
                f"job {self.ids[row][:40]} needs {self.gpus[row]} GPUs, but the cluster has {cluster.num_gpus}; "
                f"enlarge the cluster, or drop such jobs with --option oversized=drop"
            )
        if self.strains_hosts(cluster) or self.gpu_type_slowdown_ppm.shape[1]:
            self._check_room(cluster, on_one_machine)

    def max_machine(self, cluster: Cluster, job: int) -> int:
        """Return the GPUs of the largest machine whose type can run a job, 0 if there is none."""
        if not self.gpu_type_slowdown_ppm.shape[1]:
            return int(cluster.gpus.max())
        return int(cluster.gpus.max(where=self.gpu_type_slowdown_ppm[job, cluster.kind] > 0, initial=0))

    def _check_room(self, cluster: Cluster, on_one_machine: bool) -> None:
        """Check that every gang finds enough GPUs of its types, vCPU and memory."""
        kinds = np.column_stack([self.gpus, self.cpu_milli, self.memory_mib, self.gpu_type_slowdown_ppm])
        for row in np.sort(np.unique(kinds, axis=0, return_index=True)[1]).tolist():
            room, gang = self.room_on(cluster, row), int(self.gpus[row])
            widest = self.max_machine(cluster, row) if on_one_machine else 0
            if self.gpu_type_slowdown_ppm.shape[1]:
                self._check_types(cluster, row)
            whole = (
                cluster.gpus[room == cluster.gpus] if widest else room
            )  # the placement rule puts wide gangs on empty machines
            most = int(room.max() if gang <= widest else whole.sum())
            if gang > most:
                where = "no machine has room for more than" if gang <= widest else "the machines only have room for"
                raise InvalidProblemError(
                    f"job {self.ids[row][:40]} needs {gang} GPUs with {self.cpu_milli[row] / 1000:g} vCPU and "
                    f"{self.memory_mib[row] / MIB_A_GB:g} GB each, but {where} {most}; request less, or enlarge the machines"
                    + (", or let gangs spread with --option spread=true" if widest else "")
                )

    def _check_types(self, cluster: Cluster, row: int) -> None:
        """Check that the cluster has enough GPUs of the types on which a job can run."""
        usable = self.gpu_type_slowdown_ppm[row] > 0
        there = int(cluster.gpus[usable[cluster.kind]].sum())
        if self.gpus[row] > there:
            names = ", ".join(name for name, is_one in zip(cluster.kinds, usable.tolist(), strict=False) if is_one)
            raise InvalidProblemError(
                f"job {self.ids[row][:40]} needs {self.gpus[row]} GPUs of {names[:80] or 'a missing type'}, but the cluster has {there}; "
                f"enlarge the cluster, or drop such jobs with --option oversized=drop"
            )


def hosts(cluster: Cluster) -> IntArray:
    """Return vCPU in thousandths and memory in MiB of each machine; shape (2, machines)."""
    return np.stack([np.rint(cluster.cpus * 1000), np.rint(cluster.memory_gb * MIB_A_GB)]).astype(np.int64)

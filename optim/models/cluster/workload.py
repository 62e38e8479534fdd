"""Jobs that a cluster runs, as arrays."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np

from optim.core.arrays import BoolArray, ComparesByValue, FloatArray, IntArray
from optim.core.errors import InvalidProblemError
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.columns import LATER, check_ranges, column, columns_of, fill_columns, form

US = 1_000_000
"""Microseconds in a second: time is whole microseconds, so that no order hangs on a rounded number."""

PPM = 1_000_000
"""A slowdown of 1 in parts per million."""

LATEST_US = 2**50
"""Latest time: exact in 64 bits and in doubles (35 years)."""

LEVELS = ("machine", "rack", "cluster")
"""Localities: the smallest part of the cluster that holds all of a job's GPUs."""

MAX_MISSING = 0.05
"""Share of the GPU-hours of a source above which it is a warning that they were left out."""

ELSEWHERE, EARLIER = "in other virtual clusters", "submitted earlier"
"""Reasons to leave jobs out that a user asked for: no warning."""

UNFINISHED = "that run or wait still"
"""A reason to leave jobs out of which a source tells only the GPU-hours so far."""

MIB_A_GB = 1_024

WHOLE_MILLI = 1_000
"""A whole GPU in thousandths."""

LABELS: Mapping[str, str] = {
    "group": "groups",
    "user": "users",
    "model": "models",
    "status": "statuses",
    "reason": "reasons",
    "account": "accounts",
    "qos": "qos_names",
}
"""Columns that hold numbers into names, and where the names are."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Workload(ComparesByValue):
    """Jobs in the order of their submission, one row a job.

    Parameters
    ----------
    submit_us
        Submission in microseconds after the first; not decreasing; shape (jobs,).
    gpus
        Gang: GPUs that the job holds together, at least 1; shape (jobs,).
    duration_us
        Exclusive run time on its gang in one machine, positive; shape (jobs,).
    slowdown_ppm
        How much longer work takes by locality (`LEVELS`), in parts per million, at least 1,000,000; shape (jobs, 3).
    app
        Number of each job's app, at least 0; jobs without one are apps of their own; shape (jobs,).
    group
        Number of each job's virtual cluster, into `groups`; shape (jobs,).
    min_gpus, max_gpus
        What an elastic policy may run a job on instead of its gang: 1 to the gang unless given; shape (jobs,).
    share_milli
        Of each of its GPUs, in thousandths, what it takes where GPUs are shared; 1,000 unless given; shape (jobs,).
    busy_milli
        How much of a GPU's time it computes when alone there: what two jobs on one GPU slow each other down by; 1,000 unless
        given; shape (jobs,).
    gpu_type_slowdown_ppm
        How much longer work takes by the cluster's types of GPU, in parts per million, at least 1,000,000; 0 where the job
        can't run; shape (jobs, types), or (jobs, 0) where types make no difference.
    cpu_milli, memory_mib
        What it takes of its host for each GPU; nothing unless given; shape (jobs,).
    priority
        Larger ones first, where a policy heeds them; 0 unless given; shape (jobs,).
    fails_us
        After how much run time a try of the job fails, -1 if it doesn't; its duration holds all of its tries; shape (jobs,).
    tries
        How many tries of such a job fail, 1 unless given; shape (jobs,).
    estimate_us
        Run time that its user states, such as a time limit; 0 where none is stated; shape (jobs,).
    good_us
        Work of such a job's try that ends well after these, 0 if none does, -1 for what they leave of its duration; shape (jobs,).
    checkpoint_us
        Work between two checkpoints of the job where stops or failures of machines undo work: -1 for that of the run's rules, 0
        for a job that has none and starts again from nothing; shape (jobs,).
    step_time_milli
        Time per step in each of equal parts of the job's steps, in thousandths of its mean over all of them, where a job adapts its batch size:
        its run time is the true one, and policies that see run times see what remains at the present speed; shape (jobs,
        parts), or (jobs, 0) where speeds are constant.
    loss
        Loss at equal steps of the work from 0 to all of it; shape (jobs, points), or (jobs, 0) if it isn't known.
    user, model, status, reason, account, qos
        Numbers into `users`, `models`, `statuses` (how the job ended in its trace), `reasons` (why it failed), `accounts` (to
        which the job is charged) and `qos_names` (qualities of service); shape (jobs,).
    groups
        Names of the virtual clusters.
    users, models, statuses, reasons, accounts, qos_names
        Names, "" where it isn't known.
    ids
        Names of the jobs.
    dropped
        How many rows of a source were left out, by reason.
    dropped_gpu_h
        GPU-hours that such rows held, by reason, as far as the source tells them.
    notes
        What a user of the jobs should know, one line each.
    recorded_wait_us
        How long each waited in the cluster of the source, all time without GPUs from its submission to its end; -1 where the source
        doesn't tell; shape (jobs,).
    begin
        Date of time 0; None where the source tells no dates.
    recorded_wait
        Of how many of the jobs a source tells the wait, and its mean in hours; None if of none.

    Raises
    ------
    InvalidProblemError
        If arrays differ in length or have another form, times aren't sorted, or a number is outside its range.
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
        """Fill what was left out, and check the rest."""
        count = len(self.submit_us)
        if not count:
            raise InvalidProblemError("there is no job; a workload has at least one")
        fill_columns(self, count, "job")
        if self.slowdown_ppm.shape[1] != len(LEVELS):
            raise InvalidProblemError(f"slowdown_ppm must have {len(LEVELS)} numbers a job: {', '.join(LEVELS)}")
        if not np.isfinite(self.loss).all():
            raise InvalidProblemError("loss must be finite numbers; leave it out where it isn't known")
        if self.submit_us[0] < 0 or (np.diff(self.submit_us) < 0).any():
            raise InvalidProblemError("jobs must be sorted by submission, from 0 on; sort them first")
        check_ranges(self)
        for label, names in LABELS.items():
            values, known = getattr(self, label), len(getattr(self, names))
            if values.min() < 0 or values.max() >= known:
                raise InvalidProblemError(f"{label} must lie in 0..{known - 1}, the names there are; it has others")
        if (self.good_us > self.duration_us).any():
            raise InvalidProblemError("good_us must not exceed duration_us, which holds all tries")
        if (self.min_gpus > self.max_gpus).any() or (
            (self.gpu_type_slowdown_ppm > 0) & (self.gpu_type_slowdown_ppm < PPM)
        ).any():
            raise InvalidProblemError(
                "min_gpus must not exceed max_gpus, and gpu_type_slowdown_ppm be 0 or at least 1000000"
            )
        if (self.gpus.astype(float) * self.duration_us * self.slowdown_ppm.max(1) / PPM).max() >= 2.0**62:
            raise InvalidProblemError("a job's GPUs x duration must stay below 2**62 microseconds; check the units")
        if not self.ids:
            object.__setattr__(self, "ids", self.numbered)
        if len(self.ids) != count:
            raise InvalidProblemError(f"ids has {len(self.ids)} entries for {count} jobs; give one a job")

    def __len__(self) -> int:
        """Return the number of jobs."""
        return len(self.submit_us)

    def select(self, rows: IntArray) -> "Workload":
        """Return some of the jobs, rows increasing, on the same clock; what the source left out is not told again."""
        columns = {name: getattr(self, name)[rows] for name in columns_of(self)}
        return replace(
            self, **columns, ids=tuple(self.ids[row] for row in rows.tolist()), dropped={}, dropped_gpu_h={}, notes=()
        )

    @property
    def numbered(self) -> tuple[str, ...]:
        """Names of jobs that have none of their own."""
        return tuple(f"j{row}" for row in range(len(self)))

    def foreseen_us(self, served_us: IntArray) -> IntArray:
        """Return the work that seems left at each job's present speed, shape (n,), of the first n jobs.

        A job that has done the share s of its steps, and takes c times the mean per step now, seems to need c (1 - s) of its whole
        run time. Where speeds are constant that is the work that is left.

        Parameters
        ----------
        served_us
            Work done, shape (n,): time on the whole gang in one machine.
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
        """Work of all jobs."""
        return float(self.gpus.astype(float) @ self.duration_us) / US / 3600

    @property
    def left_out(self) -> list[str]:
        """What was left out of the source, a text a reason, with GPU-hours as far as they are known."""
        hours = {
            reason: f" ({'at least ' if reason == UNFINISHED else ''}{held:,.1f} GPU-hours)"
            for reason, held in self.dropped_gpu_h.items()
        }
        return [f"{count} left out: {reason}{hours.get(reason, '')}" for reason, count in self.dropped.items()]

    @property
    def missing(self) -> str:
        """A warning where more than `MAX_MISSING` of the GPU-hours were left out, not counting what a user asked for; else empty."""
        lost = {reason: held for reason, held in self.dropped_gpu_h.items() if reason not in (ELSEWHERE, EARLIER)}
        held = sum(lost.values())
        everything = self.gpu_hours + held
        if held <= MAX_MISSING * everything:
            return ""
        reasons = ", ".join(sorted(lost, key=lambda reason: -lost[reason]))
        least = "at least " if UNFINISHED in self.dropped else ""
        return (
            f"{least}{held:,.1f} of {everything:,.1f} GPU-hours ({held / everything:.0%}) are left out: jobs {reasons}; "
            "the cluster was fuller, and jobs waited longer, than is shown"
        )

    @property
    def recorded(self) -> BoolArray:
        """Which jobs the source tells the wait of, so that it tells their end as well; shape (jobs,)."""
        return self.recorded_wait_us >= 0

    def strains_hosts(self, cluster: Cluster, jobs_a_gpu: int = 1) -> bool:
        """Return whether a machine full of the jobs that ask most could run out of vCPU or memory."""
        asks = np.array([self.cpu_milli.max(), self.memory_mib.max()])
        return bool((asks[:, None] * cluster.gpus * jobs_a_gpu > hosts(cluster)).any())

    def room_on(self, cluster: Cluster, job: int) -> IntArray:
        """Return how many GPUs of each machine, all free, a job can use, by type, vCPU and memory; shape (machines,)."""
        asks = np.maximum(1, [self.cpu_milli[job], self.memory_mib[job]])
        room = np.minimum(cluster.gpus, (hosts(cluster) // asks[:, None]).min(axis=0))
        if self.gpu_type_slowdown_ppm.shape[1]:
            room = np.where(self.gpu_type_slowdown_ppm[job, cluster.kind] > 0, room, 0)
        return np.asarray(room, np.int64)

    def check_fits(self, cluster: Cluster, *, on_one_machine: bool = False) -> None:
        """Check that every gang fits into the cluster while nothing else runs.

        Parameters
        ----------
        cluster
            Where they are to run.
        on_one_machine
            Whether gangs that the largest machine's GPUs could hold are placed on one machine only, and wider ones on whole ones.

        Raises
        ------
        InvalidProblemError
            If one doesn't; it names the first.
        """
        too_large = np.flatnonzero(self.gpus > cluster.num_gpus)
        if len(too_large):
            row = int(too_large[0])
            raise InvalidProblemError(
                f"job {self.ids[row][:40]} asks for {self.gpus[row]} GPUs of a cluster of {cluster.num_gpus}; "
                f"enlarge the cluster, or leave such jobs out with --option oversized=drop"
            )
        if self.strains_hosts(cluster) or self.gpu_type_slowdown_ppm.shape[1]:
            self._check_room(cluster, on_one_machine)

    def max_machine(self, cluster: Cluster, job: int) -> int:
        """Return the GPUs of the largest machine whose type can run a job, 0 if there is none."""
        if not self.gpu_type_slowdown_ppm.shape[1]:
            return int(cluster.gpus.max())
        return int(cluster.gpus.max(where=self.gpu_type_slowdown_ppm[job, cluster.kind] > 0, initial=0))

    def _check_room(self, cluster: Cluster, on_one_machine: bool) -> None:
        """Check that there are GPUs of its types, and vCPU and memory, for every gang."""
        kinds = np.column_stack([self.gpus, self.cpu_milli, self.memory_mib, self.gpu_type_slowdown_ppm])
        for row in np.sort(np.unique(kinds, axis=0, return_index=True)[1]).tolist():
            room, gang = self.room_on(cluster, row), int(self.gpus[row])
            widest = self.max_machine(cluster, row) if on_one_machine else 0
            if self.gpu_type_slowdown_ppm.shape[1]:
                self._check_types(cluster, row)
            whole = (
                cluster.gpus[room == cluster.gpus] if widest else room
            )  # placed by a rule, wide gangs take whole machines
            most = int(room.max() if gang <= widest else whole.sum())
            if gang > most:
                where = "no machine has room for more than" if gang <= widest else "the machines have room for"
                raise InvalidProblemError(
                    f"job {self.ids[row][:40]} asks for {gang} GPUs with {self.cpu_milli[row] / 1000:g} vCPU and "
                    f"{self.memory_mib[row] / MIB_A_GB:g} GB each, and {where} {most} such; ask for less, or enlarge the machines"
                    + (", or let gangs spread with --option spread=true" if widest else "")
                )

    def _check_types(self, cluster: Cluster, row: int) -> None:
        """Check that a job finds its GPUs among the types that it can run on."""
        usable = self.gpu_type_slowdown_ppm[row] > 0
        there = int(cluster.gpus[usable[cluster.kind]].sum())
        if self.gpus[row] > there:
            names = ", ".join(name for name, is_one in zip(cluster.kinds, usable.tolist(), strict=False) if is_one)
            raise InvalidProblemError(
                f"job {self.ids[row][:40]} asks for {self.gpus[row]} GPUs of {names[:80] or 'no type that is there'}, of which the "
                f"cluster has {there}; enlarge the cluster, or leave such jobs out with --option oversized=drop"
            )


def hosts(cluster: Cluster) -> IntArray:
    """Return vCPU in thousandths and memory in MiB of each machine; shape (2, machines)."""
    return np.stack([np.rint(cluster.cpus * 1000), np.rint(cluster.memory_gb * MIB_A_GB)]).astype(np.int64)

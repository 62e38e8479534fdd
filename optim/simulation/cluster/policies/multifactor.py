"""Slurm's multifactor priority: age, fair share, size, partition and quality of service (QOS), with preemption by QOS."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidOptionError, InvalidProblemError, UnsupportedProblemError, check_choices, check_in
from optim.core.policies import policy
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.fair_share import AssociationTree, DecayedUsage
from optim.models.cluster.rules import Rules
from optim.models.cluster.workload import US, Workload
from optim.simulation.cluster.index.policy import ALL, CHARGE_UNIT, MAX_PRIORITY, Guess, IndexPolicy, Key
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.planning.free_gpus import Gpus, alike
from optim.simulation.cluster.planning.placing import HeldUp, make_room
from optim.simulation.cluster.planning.policy import Plan, PlanningPolicy, View
from optim.simulation.cluster.planning.reservations import ReservationBook, rules_of_reservations
from optim.simulation.cluster.policies.reservations import NEEDS, EasyOptions
from optim.workloads.cluster.slurm_settings import (
    BACKFILL,
    BUILTIN,
    PartitionPriority,
    QualityOfService,
    read_associations,
    read_priority_settings,
    read_qualities_of_service,
)

if TYPE_CHECKING:
    from optim.simulation.cluster.index.priorities import Priorities


class Backfilling(StrEnum):
    """Rule that chooses the waiting jobs with a reserved start."""

    NONE = "none"
    EASY = "easy"
    CONSERVATIVE = "conservative"


@dataclass(frozen=True, slots=True, kw_only=True)
class MultifactorOptions(EasyOptions):
    """Options; the defaults are the first sample configuration in Slurm's documentation of the plug-in.

    Parameters
    ----------
    weight_age, weight_fair_share, weight_job_size, weight_partition, weight_qos
        ``PriorityWeightAge`` and so on: weights of the factors, which lie in [0, 1].
    max_age_h
        Waiting time in hours at which the age factor is 1 (``PriorityMaxAge``).
    half_life_h
        Hours after which usage counts half (``PriorityDecayHalfLife``); 0 for usage that never decays.
    calc_period_min
        Minutes between updates of usage and age, and thus of priorities (``PriorityCalcPeriod``).
    favor_small
        Whether small jobs have the larger size factor (``PriorityFavorSmall``).
    fair_tree
        Whether to use the Fair Tree factor; otherwise the classic fair-share factor (``PriorityFlags=NO_FAIR_TREE``).
    damping
        Divisor of the classic factor's exponent (``FairShareDampeningFactor``).
    exempt_s
        Minimum run time in seconds before a job may be preempted (``PreemptExemptTime``).
    backfill
        Whether jobs may start ahead of a job that doesn't fit; ``sched/builtin`` doesn't allow this.
    reservations
        Waiting jobs with a reserved start that other jobs may not delay: the first job that doesn't fit (`easy`), all
        jobs (`conservative`, the default of ``sched/backfill``), or no job (`none`).
    depth
        Number of waiting jobs with a reservation, in order of priority (``bf_job_part_count_reserve``); 0 for one job under
        `easy` and for all jobs under `conservative`.
    conf
        A slurm.conf that replaces the options of priority and sets partitions' factors and tiers.
    associations
        File of accounts, users and shares in the format of ``sacctmgr -P show associations``; by default each account and each
        user has one share.
    qos
        File in the format of ``sacctmgr -P show qos``; by default each QOS has priority 0 and preempts none.

    Raises
    ------
    InvalidOptionError
        If a value is outside its range, or an option is given together with a file that sets it.
    """

    weight_age: int = 1000
    weight_fair_share: int = 10000
    weight_job_size: int = 1000
    weight_partition: int = 1000
    weight_qos: int = 0
    max_age_h: float = 336.0
    half_life_h: float = 336.0
    calc_period_min: float = 5.0
    favor_small: bool = False
    fair_tree: bool = True
    damping: int = 1
    exempt_s: int = 0
    backfill: bool = False
    reservations: Backfilling = Backfilling.NONE
    depth: int = 0
    conf: Path | None = None
    associations: Path | None = None
    qos: Path | None = None

    def __post_init__(self) -> None:
        """Check the ranges."""
        EasyOptions.__post_init__(self)
        check_choices(self, {"reservations": tuple(Backfilling)})
        object.__setattr__(self, "reservations", Backfilling(self.reservations))  # accepts strings
        if self.reservations is Backfilling.NONE and self.depth:
            raise InvalidOptionError(
                "multifactor.depth needs multifactor.reservations=easy or conservative; set one of them"
            )
        weights = [each.name for each in fields(self) if each.name.startswith("weight_")]
        check_in(f"[0, {MAX_PRIORITY}]", self, *weights)
        check_in("[0, 1e6]", self, "half_life_h")
        check_in("(0, 1e6]", self, "max_age_h", "calc_period_min")
        check_in("[1, 65533]", self, "damping")
        check_in("[0, 1e9]", self, "exempt_s")
        for name in ("conf", "associations", "qos"):
            path = getattr(self, name)
            if path is not None and not path.is_file():
                raise InvalidOptionError(f"{name} must be a file, got {path}")
        if self.conf is not None:
            own = {each.name for each in fields(EasyOptions)}
            files = ("conf", "associations", "qos", "backfill", "reservations", *own)
            beside = [
                each.name
                for each in fields(self)
                if each.name not in files and getattr(self, each.name) != each.default
            ]
            if beside:
                raise InvalidOptionError(f"multifactor.conf and {beside[0]} exclude each other; omit one")

    @property
    def half_life_us(self) -> float:
        """Half-life in microseconds, infinite for none."""
        return self.half_life_h * 3600 * US if self.half_life_h else math.inf


@policy(
    "multifactor",
    world="cluster",
    options=MultifactorOptions,
    summary="Run jobs by Slurm's priority of age, fair share over accounts, size, partition and QOS; preempt by QOS.",
    source="Slurm's Multifactor Priority Plugin, slurm.schedmd.com/priority_multifactor.html, classic_fair_share.html, fair_tree.html and preempt.html",
)
class Multifactor(PlanningPolicy):
    """Order jobs by whether their QOS may preempt, then by partition tier, priority and submission.

    Attributes
    ----------
    settings
        The options; if a slurm.conf is given, with its values.
    tree
        Tree of accounts and users (associations).
    association
        Row of each job's user in the tree; shape (jobs,).
    scheduler
        ``SchedulerType`` of slurm.conf, "" if absent.
    ignored
        Parameters of slurm.conf without effect on the simulation.
    """

    assumptions = (
        "GPUs replace nodes and CPUs; usage decays continuously; the priority uses usage and age as of each calc_period_min; age restarts "
        "when a job is preempted; virtual clusters are partitions; users and accounts are those of the table; preempted jobs "
        "are queued again; victims are chosen by lowest QOS, then smallest gang"
    )

    def __init__(self, options: MultifactorOptions, jobs: Workload) -> None:
        self.options = self.settings = options
        self.jobs = jobs
        self.partitions: Mapping[str, PartitionPriority] = {}
        self.scheduler = ""
        self.ignored: tuple[str, ...] = ()
        if options.conf is not None:
            found = read_priority_settings(options.conf)
            self.settings = replace(options, conf=None, **found.options)
            self.partitions = found.partitions
            self.scheduler, self.ignored = found.scheduler, found.ignored
            if self.ignored:
                self.notes = (f"{options.conf}: without effect: {', '.join(self.ignored)}",)
        account = np.array(jobs.accounts, object)[jobs.account]
        user = np.array(jobs.users, object)[jobs.user]
        if options.associations is None:
            self.tree = AssociationTree.of_jobs(account, user)
        else:
            self.tree = read_associations(options.associations)
        self.association = _associations_of(self.tree, account.tolist(), user.tolist(), options.associations)
        if self.settings.fair_tree:
            self.tree.fair_tree_factors(np.zeros(len(self.tree.names)))  # raises for invalid shares
        self.qos = _qualities(options.qos, jobs)
        self.level = _levels(self.qos, options.qos)
        factor = np.array([self.partitions.get(name, PartitionPriority()).job_factor for name in jobs.groups], float)
        self.partition_factor = factor / max(1.0, *factor, *(each.job_factor for each in self.partitions.values()))
        self.tier = np.array([self.partitions.get(name, PartitionPriority()).tier for name in jobs.groups], np.int64)
        priority = np.array([each.priority for each in self.qos], float)
        self.qos_factor = priority / max(1.0, float(priority.max()))
        usage_factor = np.array([each.usage_factor for each in self.qos])
        self.charge = np.rint(jobs.gpus * usage_factor[jobs.qos] * CHARGE_UNIT).astype(np.int64)
        self.may_preempt = np.array([bool(each.preempts) for each in self.qos])
        self.kind = alike(jobs, jobs.qos)
        if self.reserves and self.may_preempt.any():
            raise UnsupportedProblemError(
                "multifactor.reservations doesn't support preemption by QOS; omit reservations, or remove Preempt from the file"
            )
        if self.not_taken_over:
            self.notes = (*self.notes, f"{options.conf}: {self.not_taken_over}")
        if options.conf is not None and options.qos is None and self.settings.weight_qos:
            self.notes = (*self.notes, f"{options.conf}: PriorityWeightQOS needs --option multifactor.qos=FILE")
        self.period_us = max(1, round(self.settings.calc_period_min * 60 * US))

    @property
    def not_taken_over(self) -> str:
        """Difference between the ``SchedulerType`` of slurm.conf (or its default) and the simulated type; "" if they agree."""
        if self.options.conf is None or (self.scheduler or BACKFILL) not in (BACKFILL, BUILTIN):
            return ""
        said = f"SchedulerType={self.scheduler}" if self.scheduler else f"SchedulerType (absent: {BACKFILL})"
        if self.scheduler == BUILTIN:
            is_other = self.reserves or self.options.backfill
            return f"{said} is not applied: jobs may overtake one that does not fit" if is_other else ""
        if self.reserves:
            return ""
        if self.options.backfill:
            return f"{said} is not applied: no start is reserved"
        remedy = "its reservations do not support preemption by QOS"
        if not self.may_preempt.any():
            remedy = "for backfill add --option multifactor.reservations=easy (or conservative: reserve for every job)"
        return f"{said} is not applied: multifactor runs strict, as {BUILTIN}; {remedy}"

    def begin(self, cluster: Cluster, seed: int) -> None:
        """Forget all usage."""
        del seed
        self.base = self._base(cluster.num_gpus)
        self.usage = DecayedUsage(len(self.tree.names), self.settings.half_life_us)
        self.fair_share = self._fair_share(self.usage.gpu_us)
        self.looked_us = 0
        self.held: FloatArray = np.zeros(len(self.tree.names))
        self.book = ReservationBook(self.index_policy(), self.jobs) if self.reserves else None
        self.preempted = 0

    def plan(self, view: View) -> Plan:
        """Start jobs by priority; a job that doesn't fit preempts jobs that its QOS may preempt."""
        is_new = self._look(view.now_us)
        if self.book is not None:
            found = self.book.plan(view, self.engine, self.order(view, view.waiting), is_new_order=is_new)
            self._hold(view, found.gpus)
            num_waiting = len(view.jobs) - len(found.leave) - len(found.gpus)
            times = [found.again_us] if found.again_us is not None else []
            if num_waiting and self.book.room.num_free:
                times.append(self._next_period(view))
            return replace(found, again_us=min(times, default=None))
        gpus, room = dict(view.running), view.room()
        again: list[int] = []
        order = self.order(view, view.waiting)
        kinds, may_start = self.kind[order], np.ones(len(order), np.bool_)
        is_preemptor = self.may_preempt[self.jobs.qos[order]]
        held_up = HeldUp(room.site, is_strict=True)
        is_plain = room.site.is_plain and room.allowed is None
        while True:
            if is_plain and not room.num_free:
                may_start &= is_preemptor
            if not may_start.any():
                break
            at = int(may_start.argmax())
            job = int(order[at])
            taken = room.place(job)
            if taken is not None:
                gpus[job] = taken
                may_start[at] = False
                continue
            if is_preemptor[at]:
                before = len(gpus)
                if make_room(room, job, self._victims(view, job, gpus, again), gpus):
                    self.preempted += before + 1 - len(gpus)
                    may_start[at] = False
                    continue
            if self.options.backfill:
                may_start &= kinds != kinds[at]
                continue
            held_up.add(job)
            if held_up.is_all:
                break
            _, first = np.unique(kinds, return_index=True)
            may_start &= ~np.isin(kinds, [kinds[each] for each in first.tolist() if held_up.holds(int(order[each]))])
        self._hold(view, gpus)
        if not self.options.backfill and len(gpus) < len(view.jobs) and room.num_free:
            again.append(self._next_period(view))
        return Plan(gpus=gpus, again_us=min(again, default=None))

    def _hold(self, view: View, gpus: Mapping[int, Gpus]) -> None:
        """Update usage up to now if the plan changes the GPUs that users hold."""
        running = np.fromiter(gpus, np.int64, len(gpus))
        owners, charge = self.association[running], self.charge[running]
        held = np.bincount(owners, weights=charge, minlength=len(self.tree.names)) / CHARGE_UNIT
        if (held != self.held).any():
            self.usage.advance(view.now_us, self.held)
            self.held = held

    def _next_period(self, view: View) -> int:
        """Return the next time at which the order may change."""
        return (view.now_us // self.period_us + 1) * self.period_us

    def order(self, view: View, waiting: IntArray) -> IntArray:
        """Return the waiting jobs in the order in which they start."""
        level, tier = self.level[self.jobs.qos[waiting]], self.tier[self.jobs.group[waiting]]
        return np.asarray(waiting[np.lexsort((waiting, -self.priorities(view, waiting), -tier, -level))])

    def priorities(self, view: View, waiting: IntArray) -> IntArray:
        """Return the priority of waiting jobs, the weighted sum of their factors truncated to an integer; shape (waiting,)."""
        one = self.settings
        since = np.maximum(view.submit_us[waiting], view.stopped_us[waiting])
        age = np.minimum(1.0, np.maximum(0, self.looked_us - since) / self.max_age_us)
        fair_share = self.fair_share[self.association[waiting]]
        total = one.weight_age * age + (one.weight_fair_share * fair_share + self.base[waiting])
        return np.asarray(np.minimum(total, MAX_PRIORITY), np.int64)

    def _base(self, num_gpus: int) -> FloatArray:
        """Return the weighted sum of the factors that stay constant while a job waits; shape (jobs,)."""
        one, jobs = self.settings, self.jobs
        size = jobs.gpus / num_gpus
        return np.asarray(
            one.weight_job_size * (1 + 1 / num_gpus - size if one.favor_small else size)
            + one.weight_partition * self.partition_factor[jobs.group]
            + one.weight_qos * self.qos_factor[jobs.qos]
        )

    @property
    def max_age_us(self) -> float:
        """Waiting time at which the age factor is 1."""
        return self.settings.max_age_h * 3600 * US

    @property
    def is_compiled(self) -> bool:
        """Whether the compiled loop can simulate the policy: it has not been subclassed, and no QOS may preempt another."""
        return type(self) is Multifactor and not self.may_preempt.any()

    def index_policy(self) -> IndexPolicy:
        """Return the policy for the compiled loop, ordered by `compiled_priorities`."""
        one = self.options
        rule = None
        if self.reserves:
            least = 1 if one.reservations is Backfilling.EASY else ALL
            rule = one.rule(one.depth or least)
        return IndexPolicy(name=self.name, key=Key.SUBMISSION, backfill=one.backfill, reservations=rule)

    @property
    def reserves(self) -> bool:
        """Whether waiting jobs have reserved starts."""
        return self.options.reservations is not Backfilling.NONE

    @property
    def backfill(self) -> bool:
        """Whether jobs may start ahead of a job that doesn't fit."""
        return self.options.backfill or self.reserves

    @property
    def needs(self) -> str:
        """Information that the policy uses and a real scheduler lacks."""
        return NEEDS if self.reserves and self.options.guess is Guess.FACTOR else ""

    def rules(self, options: EngineOptions) -> Rules:
        """Return the engine's rules, with kills at the jobs' time limits if `kills` is set."""
        self.engine = options
        rules = PlanningPolicy.rules(self, options)
        return rules_of_reservations(self.index_policy(), self.jobs, rules, options) if self.reserves else rules

    def compiled_priorities(self, cluster: Cluster) -> "Priorities":
        """Return the priorities that order jobs in the compiled loop."""
        from optim.simulation.cluster.index.priorities import make_priorities  # listing policies must not import Numba

        self.begin(cluster, 0)
        one, jobs = self.settings, self.jobs
        ranked = np.stack([-self.level[jobs.qos], -self.tier[jobs.group]])
        return make_priorities(
            self.tree,
            period_us=self.period_us,
            is_tree=one.fair_tree,
            is_strict=self.reserves or not self.options.backfill,
            factors=(self.usage.rate, one.weight_age, self.max_age_us, one.weight_fair_share, one.damping),
            base=self.base,
            level=np.unique(ranked, axis=1, return_inverse=True)[1].ravel() + 1,
            association=self.association,
            charge=self.charge,
            gpus=jobs.gpus,
        )

    def _fair_share(self, usage: FloatArray) -> FloatArray:
        if self.settings.fair_tree:
            return self.tree.fair_tree_factors(usage)
        return self.tree.classic_factors(usage, self.settings.damping)

    def _look(self, now_us: int) -> bool:
        """Update usage and age to the start of the current period; return whether the period is new."""
        period = now_us // self.period_us * self.period_us
        if period > self.looked_us:
            self.fair_share, self.looked_us = self._fair_share(self.usage.after(period, self.held)), period
            return True
        return False

    def _victims(self, view: View, job: int, gpus: Mapping[int, Gpus], again: list[int]) -> Iterator[int]:
        """Yield the running jobs that a job may preempt, lowest QOS first; `again` collects the ends of exemptions."""
        jobs, started = self.jobs, view.started_us
        names = set(self.qos[int(jobs.qos[job])].preempts)
        found = []
        for other in view.running:
            mine = self.qos[int(jobs.qos[other])]
            if other not in gpus or mine.name not in names:
                continue
            exempt_s = self.settings.exempt_s if mine.exempt_s is None else mine.exempt_s
            until = int(started[other]) + exempt_s * US
            if until > view.now_us:
                again.append(until)
            else:
                found.append((mine.priority, int(jobs.gpus[other]), -int(started[other]), -other, other))
        yield from (each[-1] for each in sorted(found))

    def figures(self) -> Mapping[str, float]:
        """Return the number of jobs preempted by QOS."""
        return {"preempted": float(self.preempted)} | ({} if self.book is None else self.book.figures())


def _associations_of(tree: AssociationTree, account: list[str], user: list[str], path: Path | None) -> IntArray:
    """Return the row of each job's user in its account; jobs without an account use the user's only association.

    Raises
    ------
    InvalidProblemError
        If there is no such association, or several.
    """
    by_pair = {
        (tree.names[int(tree.parent[row])], tree.names[row]): row for row in np.flatnonzero(tree.is_user).tolist()
    }
    of_user: dict[str, list[int]] = {}
    for (_, name), row in by_pair.items():
        of_user.setdefault(name, []).append(row)
    known: dict[tuple[str, str], int] = {}
    for pair in dict.fromkeys(zip(account, user, strict=True)):
        name, who = pair
        rows = [by_pair[pair]] if pair in by_pair else of_user.get(who, []) if not name else []
        if not name and path is None:
            rows = [by_pair[tree.names[0], who]]
        if len(rows) != 1:
            said = f"of account {name[:40]!r} " if name else ""
            many = f"{len(rows)} accounts, and the jobs name none" if rows else "no association"
            raise InvalidProblemError(
                f"{path}: user {who[:40]!r} {said}has {many}; add the association, or add a column account to the jobs"
            )
        known[pair] = rows[0]
    return np.array([known[pair] for pair in zip(account, user, strict=True)], np.int64)


def _qualities(path: Path | None, jobs: Workload) -> tuple[QualityOfService, ...]:
    """Return the QOS of each QOS number in the workload; the number for no QOS gets the file's `normal`, or else a default.

    Raises
    ------
    InvalidProblemError
        If the file lacks the QOS of a job.
    """
    if path is None:
        return tuple(QualityOfService(name=name) for name in jobs.qos_names)
    found = {each.name: each for each in read_qualities_of_service(path)}
    default = replace(found.get("normal", QualityOfService(name="")), name="normal")
    unknown = [name for name in jobs.qos_names if name and name not in found]
    if unknown:
        raise InvalidProblemError(
            f"{path}: unknown quality of service {unknown[0][:40]!r} in the jobs (known: {', '.join(found)[:80]}); add it"
        )
    return tuple(found[name] if name else default for name in jobs.qos_names)


def _levels(qos: tuple[QualityOfService, ...], path: Path | None) -> IntArray:
    """Return the level of each QOS, above the levels of all that it may preempt.

    Raises
    ------
    InvalidProblemError
        If preemption is cyclic.
    """
    preempts = {each.name: set(each.preempts) for each in qos}
    level = dict.fromkeys(preempts, 0)
    for _ in range(len(preempts) + 1):
        before = dict(level)
        for name, others in preempts.items():
            level[name] = max((level[other] + 1 for other in others if other in level), default=0)
        if level == before:
            return np.array([level[each.name] for each in qos], np.int64)
    highest = max(level, key=lambda name: level[name])
    raise InvalidProblemError(
        f"{path}: Preempt forms a cycle, reachable from quality of service {highest[:40]!r}; remove the cycle"
    )

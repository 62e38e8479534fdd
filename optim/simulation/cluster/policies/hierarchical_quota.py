"""Hierarchical quotas: queues in cohorts borrow unused quota of other queues, which can reclaim it by preemption."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from heapq import heapify, heappop, heappush
from pathlib import Path

import numpy as np

from optim.core.arrays import BoolArray, FloatArray, IntArray
from optim.core.errors import InvalidOptionError, InvalidProblemError, check_choices, check_in
from optim.core.policies import policy
from optim.core.registry import SUPPORTED, Support
from optim.models.cluster.cluster import UNNAMED, Cluster
from optim.models.cluster.fair_share import DecayedUsage
from optim.models.cluster.quota_tree import (
    NOT_SET,
    UNLIMITED,
    Queueing,
    QueueRules,
    QuotaLedger,
    QuotaTree,
    Reclaim,
    ShareRule,
    WithinQueue,
)
from optim.models.cluster.rules import Rules
from optim.models.cluster.workload import US, Workload
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.planning.free_gpus import FreeGpus, Gpus, alike
from optim.simulation.cluster.planning.placing import quotas_by_gpu_time
from optim.simulation.cluster.planning.policy import Plan, PlanningPolicy, View
from optim.workloads.cluster.queue_files import CLUSTER, MILLI, QueueFile, read_queues

GPU = "gpu"


class QueueBy(StrEnum):
    """Attribute of a job that names its queue."""

    VIRTUAL_CLUSTER = "vc"
    ACCOUNT = "account"
    USER = "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class HierarchicalQuotaOptions:
    """Options.

    Parameters
    ----------
    quotas
        YAML file of Kueue's or KAI Scheduler's queues. By default each virtual cluster is a queue whose quota is its share of
        the trace's GPU-hours; all queues are in one cohort without limits on lending and reclaiming.
    queue_by
        Attribute of a job that names its queue: its virtual cluster (``vc``), ``account`` or ``user``.
    default_queue
        Queue of jobs whose queue isn't in the file; empty to reject such jobs.
    half_life_h
        Half-life in hours of the usage that orders borrowing queues; 0 for the file's value, or no ordering by usage.

    Raises
    ------
    InvalidOptionError
        If a value is outside its range.
    """

    quotas: Path | None = None
    queue_by: str = QueueBy.VIRTUAL_CLUSTER.value
    default_queue: str = ""
    half_life_h: float = 0.0

    def __post_init__(self) -> None:
        """Check the values."""
        check_choices(self, {"queue_by": tuple(each.value for each in QueueBy)})
        check_in("[0, 1e6]", self, "half_life_h")
        if self.quotas is not None and not self.quotas.is_file():
            raise InvalidOptionError(f"quotas must be a file, got {self.quotas}")


def tree_of_groups(jobs: Workload, cluster: Cluster) -> QuotaTree:
    """Return one cohort with a queue per virtual cluster; quotas are GPUs by GPU-time, rounded by largest remainder."""
    exact = quotas_by_gpu_time(jobs, cluster)
    whole = np.floor(exact).astype(np.int64)
    most = np.lexsort((np.arange(len(whole)), -(exact - whole)))[: cluster.num_gpus - int(whole.sum())]
    whole[most] += 1
    count = 1 + len(jobs.groups)
    nominal = np.concatenate([[0], whole * MILLI])[:, None]
    rules = QueueRules(reclaim=Reclaim.ANY, within=WithinQueue.LOWER_PRIORITY)
    return QuotaTree(
        names=(CLUSTER, *jobs.groups),
        parent=np.array([-1, *[0] * len(jobs.groups)], np.int64),
        is_queue=np.arange(count) > 0,
        flavors=(GPU,),
        nominal=nominal,
        borrowing=np.full((count, 1), UNLIMITED),
        lending=np.full((count, 1), UNLIMITED),
        covers=np.ones((count, 1), np.bool_),
        weight=np.ones(count),
        priority=np.zeros(count, np.int64),
        rules=(QueueRules(), *[rules] * len(jobs.groups)),
        reclaim_after_us=np.full(count, NOT_SET),
        preempt_after_us=np.full(count, NOT_SET),
    )


@policy(
    "hierarchical-quota",
    world="cluster",
    options=HierarchicalQuotaOptions,
    summary="Share GPUs among queues in cohorts by quotas, borrowing and lending limits, reclaim and fair sharing (YAML of Kueue or KAI Scheduler).",
    source="Kueue's concepts Cluster Queue, Cohort and Preemption, kueue.sigs.k8s.io/docs/concepts; KAI Scheduler's Scheduling Queues and Fairness",
)
class HierarchicalQuota(PlanningPolicy):
    """Serve queues within their quota first, then by share of borrowed GPUs; within a queue by priority and submission."""

    knows_quotas = True
    assumptions = (
        "only GPUs are counted, and a gang is one workload; a gang is admitted when it has both quota and a place, in the "
        "first flavor of its queue in which it fits; a job with quota but no place preempts jobs of queues over quota; KAI's "
        "queues are treated as Kueue's with fair sharing, by priority and then weight, and all of their jobs may be preempted"
    )

    def __init__(self, options: HierarchicalQuotaOptions, jobs: Workload) -> None:
        self.options, self.jobs = options, jobs
        self.file: QueueFile | None = None if options.quotas is None else read_queues(options.quotas)
        if self.file is not None and self.file.ignored:
            self.notes = (f"{self.file.path}: fields without effect here: {', '.join(self.file.ignored)}",)
        self.labels, self.names = {
            QueueBy.VIRTUAL_CLUSTER.value: (jobs.group, jobs.groups),
            QueueBy.ACCOUNT.value: (jobs.account, jobs.accounts),
            QueueBy.USER.value: (jobs.user, jobs.users),
        }[options.queue_by]
        if self.file is not None:
            self._queues_of(self.file.tree(1))  # raises for unknown names before the run

    def tree_for(self, cluster: Cluster) -> QuotaTree:
        """Return the quota tree for a cluster."""
        if self.file is None:
            tree = tree_of_groups(self.jobs, cluster)
            if self.options.queue_by != QueueBy.VIRTUAL_CLUSTER.value:
                raise InvalidOptionError(
                    "hierarchical-quota.queue_by needs hierarchical-quota.quotas=FILE; give a file"
                )
        else:
            tree = self.file.tree(cluster.num_gpus)
        return replace(tree, half_life_h=self.options.half_life_h or tree.half_life_h)

    def _queues_of(self, tree: QuotaTree) -> IntArray:
        """Return the row of each job's queue.

        Raises
        ------
        InvalidProblemError
            If a job's queue or the default queue doesn't exist.
        """
        default = tree.queue_of(self.options.default_queue) if self.options.default_queue else None
        if self.options.default_queue and default is None:
            raise InvalidProblemError(
                f"default_queue must be one of the queues {', '.join(tree.queues)[:100]}, got {self.options.default_queue[:40]!r}"
            )
        queue = []
        for name in self.names:
            row = tree.queue_of(name)
            row = default if row is None else row
            if row is None and len(self.names) == 1 and not name and len(tree.queues) == 1:
                row = next(iter(tree.queues.values()))
            if row is None:
                source = self.file.path if self.file else "the jobs"
                raise InvalidProblemError(
                    f"{source}: no queue {name[:40]!r}, used by jobs (queues: {', '.join(tree.queues)[:60]}); add it, or set "
                    "--option hierarchical-quota.queue_by=account (or user), or default_queue=NAME"
                )
            queue.append(row)
        return np.array(queue, np.int64)[self.labels]

    def supports(self, jobs: Workload, cluster: Cluster) -> Support:
        """Return whether each of the policy's jobs could be admitted on an otherwise empty cluster."""
        tree, jobs = self.tree_for(cluster), self.jobs
        queue, machines = self._queues_of(tree), flavor_machines(tree, cluster)
        ledger = QuotaLedger(tree)
        for row in np.sort(
            np.unique(np.column_stack([queue, jobs.gpus, jobs.gpu_type_slowdown_ppm > 0]), axis=0, return_index=True)[1]
        ).tolist():
            node, room = int(queue[row]), jobs.room_on(cluster, row)
            if tree.rules[node].is_held:
                return Support(False, f"queue {tree.names[node][:40]!r} has jobs but is stopped (stopPolicy)")
            most = [
                min(ledger.potential(node, at) // MILLI, int(room[machines[at]].sum()))
                for at in range(len(tree.flavors))
                if tree.covers[node, at]
            ]
            if max(most, default=0) < jobs.gpus[row]:
                return Support(
                    False,
                    f"job {jobs.ids[row][:40]} asks for {jobs.gpus[row]} GPUs, and queue {tree.names[node][:40]!r} can have at most "
                    f"{max(most, default=0)} of one flavor; raise its quota or borrowing limit, or remove such jobs",
                )
        return SUPPORTED

    def begin(self, cluster: Cluster, seed: int) -> None:
        """Set the quotas and reset all usage."""
        del seed
        self.tree = self.tree_for(cluster)
        self.queue = self._queues_of(self.tree)
        self.node_of: list[int] = self.queue.tolist()
        self.priority: list[int] = self.jobs.priority.tolist()
        self.machines = flavor_machines(self.tree, cluster)
        self.paths = [self.tree.path(node) for node in range(len(self.tree.names))]
        self.ledger = QuotaLedger(self.tree)
        self.siblings: dict[tuple[int, int], tuple[int, int] | None] = {}
        self.flavors: list[list[int]] = [np.flatnonzero(covers).tolist() for covers in self.tree.covers]
        self.flavor: dict[int, int] = {}
        half_life_us = self.tree.half_life_h * 3600 * US if self.tree.half_life_h else math.inf
        self.users = _users_of_queues(self.jobs, self.queue)
        self.user_usage = DecayedUsage(int(self.users.max()) + 1, half_life_us)
        self.queue_usage = DecayedUsage(len(self.tree.names), half_life_us)
        self.user_weight = self._user_weights()
        self.held: tuple[FloatArray, FloatArray] = (np.zeros(len(self.user_weight)), np.zeros(len(self.tree.names)))
        self.by_usage = np.array([rules.by_usage for rules in self.tree.rules])[self.queue]
        # Of equal jobs, the first in order can preempt every job that the others can. Usage, if it counts, precedes priority.
        by_user = (self.by_usage * self.users, self.by_usage * self.jobs.priority)
        self.kind = alike(self.jobs, self.queue, *by_user)
        self.reclaimed = self.preempted_in_queue = 0
        queues = [int(row) for row in dict.fromkeys(self.node_of)]
        by_group = [set(self.queue[self.jobs.group == group].tolist()) for group in range(len(self.jobs.groups))]
        is_alike = self.options.queue_by == QueueBy.VIRTUAL_CLUSTER.value and len(queues) == sum(map(bool, by_group))
        quota = self.tree.nominal.sum(axis=1) / MILLI
        self.quota = [float(quota[min(rows)]) if rows else 0.0 for rows in by_group] if is_alike else ()

    def rules(self, options: EngineOptions) -> Rules:
        """Return the rules, with quotas per virtual cluster if each is a queue."""
        rules = PlanningPolicy.rules(self, options)
        return rules if rules.quotas else replace(rules, knows_quotas=False)

    def _user_weights(self) -> FloatArray:
        weight = np.ones(int(self.users.max()) + 1)
        for number, name in enumerate(self.names):
            local = self.tree.local_queues.get(name)
            if local is not None:
                weight[self.users[self.labels == number]] = max(local.weight, 1e-9)
        return weight

    def plan(self, view: View) -> Plan:
        """Admit jobs queue by queue; a job within quota that can't be admitted preempts jobs of queues over their quota."""
        self._let_time_pass(view.now_us)
        self._forget_ended(view)
        one = _Pass(self, view)
        stopped = one.admit(self._ordered(view.waiting), may_stop=True)
        if stopped:
            left = [job for job in (*view.waiting.tolist(), *stopped) if job not in one.gpus]
            one.admit(self._ordered(np.array(sorted(left), np.int64)), may_stop=False)
        if self.tree.half_life_h:
            running = np.fromiter(one.gpus, np.int64, len(one.gpus))
            gpus = self.jobs.gpus[running].astype(float)
            self.held = (
                np.bincount(self.users[running], weights=gpus, minlength=len(self.held[0])).astype(np.float64),
                np.bincount(self.queue[running], weights=gpus, minlength=len(self.held[1])).astype(np.float64),
            )
        return Plan(gpus=one.gpus, again_us=min(one.again, default=None))

    def _let_time_pass(self, now_us: int) -> None:
        """Update usage up to now."""
        if self.tree.half_life_h:
            self.user_usage.advance(now_us, self.held[0])
            self.queue_usage.advance(now_us, self.held[1])

    def _forget_ended(self, view: View) -> None:
        """Release the quota of jobs that no longer run, and charge running jobs that this policy did not start."""
        for job in [job for job in self.flavor if job not in view.running]:
            self.ledger.change(self.node_of[job], self.flavor.pop(job), -self.milli(job))
        for job in [job for job in view.running if job not in self.flavor]:
            self.flavor[job] = self._flavor_on(view.machine_of(view.running[job][0]), self.node_of[job])
            self.ledger.change(self.node_of[job], self.flavor[job], self.milli(job))

    def milli(self, job: int) -> int:
        """Return the quota that a job uses, in thousandths of a GPU."""
        return int(self.jobs.gpus[job]) * MILLI

    def _flavor_on(self, machine: int, node: int) -> int:
        """Return a flavor of a machine, preferably one that the queue defines."""
        there = [at for at, mine in enumerate(self.machines) if mine[machine]]
        return next((at for at in there if self.tree.covers[node, at]), there[0] if there else 0)

    def _ordered(self, waiting: IntArray) -> IntArray:
        """Return waiting jobs in the order of their queues, the next to be admitted first."""
        usage = (self.user_usage.gpu_us / self.user_weight)[self.users[waiting]] * self.by_usage[waiting]
        return np.asarray(waiting[np.lexsort((waiting, -self.jobs.priority[waiting], usage))])

    def figures(self) -> Mapping[str, float]:
        """Return the numbers of jobs preempted by other queues and by their own queue."""
        return {"reclaimed": float(self.reclaimed), "preempted_in_queue": float(self.preempted_in_queue)}


def flavor_machines(tree: QuotaTree, cluster: Cluster) -> list[BoolArray]:
    """Return the machines of each flavor: they match all labels of the flavor that name a GPU type or a partition.

    A flavor without such a label is matched by its name. If GPU types have no names, or the only flavor has no labels, every
    flavor contains all machines.

    Raises
    ------
    InvalidProblemError
        If a flavor matches no GPU type or partition of the cluster, or no machine matches all of its labels.
    """
    everything = np.ones(cluster.num_machines, np.bool_)
    if cluster.kinds == UNNAMED or (len(tree.flavors) == 1 and not tree.labels.get(tree.flavors[0])):
        return [everything] * len(tree.flavors)
    names: list[set[str]] = [
        {name.casefold(), *(each.casefold() for each in (cluster.partitions[at] if cluster.partitions else ()))}
        for at, name in enumerate(cluster.names_of_gpus)
    ]
    found = []
    for flavor in tree.flavors:
        known = {each.casefold() for each in tree.labels.get(flavor, ())} & set[str]().union(*names)
        called = known or {flavor.casefold()}
        kinds = np.array([called <= each for each in names])
        if not kinds.any():
            said = "has node labels that no machine matches" if known else "matches no GPU type of the cluster"
            raise InvalidProblemError(
                f"flavor {flavor[:40]!r} {said} ({', '.join(cluster.names_of_gpus)[:80]}); give a "
                "ResourceFlavor whose node label is one of these types, or a cluster without types"
            )
        found.append(kinds[cluster.kind])
    return found


def _users_of_queues(jobs: Workload, queue: IntArray) -> IntArray:
    """Return for each job the number of its user and queue, or of its virtual cluster and queue if users are unnamed."""
    who = jobs.user if len(jobs.users) > 1 else jobs.group
    return np.asarray(np.unique(np.column_stack([queue, who]), axis=0, return_inverse=True)[1].ravel(), np.int64)


Candidate = tuple[bool, int, int, int, int]
"""Preemption candidate: whether it is in the same queue, its priority, minus its start, minus its number (the sort
key), and its number."""


class _Pass:
    """One pass over all queues, with usage, free GPUs and running jobs."""

    def __init__(self, owner: HierarchicalQuota, view: View) -> None:
        self.owner, self.view, self.tree = owner, view, owner.tree
        self.gpus: dict[int, Gpus] = dict(view.running)
        self.room = view.room()
        self.ledger, self.flavor, self.priority = owner.ledger, owner.flavor, owner.priority
        self.again: list[int] = []
        self.started = view.started_us
        self.running: dict[int, list[int]] = {}
        for job in self.gpus:
            self.running.setdefault(owner.node_of[job], []).append(job)
        self.is_plain = self.room.site.is_plain and self.room.allowed is None

    def _milli(self, job: int) -> int:
        return self.room.site.widths[job] * MILLI

    def admit(self, order: IntArray, *, may_stop: bool) -> list[int]:
        """Admit waiting jobs, always the first of the next queue; return the preempted jobs.

        Equal requests of a queue form a class. If the first job of a class isn't admitted, no job of the class is: only
        preemption frees GPUs in a pass, and another pass follows each preemption.
        """
        ahead = self._heads(order, may_stop)
        stopped: list[int] = []
        while ahead:
            node = self._turn({node: int(order[heads[0][0]]) for node, heads in ahead.items()})
            at, kind, rest = heappop(ahead[node])
            job = int(order[at])
            is_admitted = self._admit(node, job)
            if not is_admitted and may_stop:
                gone = self._stop_for(node, job)
                stopped += gone
                is_admitted = bool(gone)
            if is_admitted and len(rest):
                heappush(ahead[node], (int(rest[0]), kind, rest[1:]))
            if not ahead[node] or (not is_admitted and self.tree.rules[node].queueing is Queueing.STRICT_FIFO):
                del ahead[node]
        return stopped

    def _heads(self, order: IntArray, may_stop: bool) -> "dict[int, list[tuple[int, int, IntArray]]]":
        """Return for each queue a heap of its admissible job classes: positions in `order` of the first job and of the rest."""
        if not len(order):
            return {}
        kinds = self.owner.kind[order]
        places = np.argsort(kinds, kind="stable")
        begins = np.flatnonzero(np.diff(kinds[places], prepend=-1))
        first: dict[int, int] = {}
        ahead: dict[int, list[tuple[int, int, IntArray]]] = {}
        free, borrowers = self.room.num_free, self._borrowers()
        for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(places)], strict=True):
            at = int(places[begin])
            job = int(order[at])
            node = self.owner.node_of[job]
            first[node] = min(first.get(node, at), at)
            if self._could(node, job, free, borrowers, may_stop):
                ahead.setdefault(node, []).append((at, int(kinds[at]), places[begin + 1 : end]))
        for node, heads in list(ahead.items()):
            heapify(heads)
            if self.tree.rules[node].queueing is Queueing.STRICT_FIFO and heads[0][0] != first[node]:
                del ahead[node]
        return dict(sorted(ahead.items()))

    def _borrowers(self) -> list[int]:
        """Return the queues that have running jobs and use more than their quota."""
        usage, total = self.ledger.usage, self.ledger.total
        return [
            node
            for node in self.running
            if any(used > most for used, most in zip(usage[node], total[node], strict=True))
        ]

    def _could(self, node: int, job: int, free: int, borrowers: Sequence[int], may_stop: bool) -> bool:
        """Return whether free quota and GPUs, or preemption, may admit a job; False stays valid for the entire pass."""
        rules, width = self.tree.rules[node], self.room.site.widths[job]
        if rules.is_held:
            return False
        if may_stop and rules.within is not WithinQueue.NEVER and self._has_later(node, job):
            return True
        if may_stop and any(self._could_reclaim(node, job, flavor, borrowers) for flavor in self._flavors(node)):
            return True
        if self.is_plain and width > free:
            return False
        return any(self.ledger.available(node, flavor) >= width * MILLI for flavor in self._flavors(node))

    def _could_reclaim(self, node: int, job: int, flavor: int, borrowers: Sequence[int]) -> bool:
        """Return whether a job could reclaim GPUs from at least one queue over its quota."""
        rules = self.tree.rules[node]
        if not borrowers or rules.reclaim is Reclaim.NEVER:
            return False
        lowest = self.ledger.lowest_that_fits(node, flavor, self._milli(job))
        if not self.tree.shares and not rules.borrow_within and (lowest is None or self.tree.parent[lowest] < 0):
            return False
        return any(
            queue != node and self._reclaim_from(node, job, flavor, queue, lowest) is not None for queue in borrowers
        )

    def _has_later(self, node: int, job: int) -> bool:
        """Return whether the job's queue runs a job that it could preempt by the rule for preemption within a queue."""
        within = self.tree.rules[node].within
        key = (-self.priority[job], job)
        for other in self.running.get(node, ()):
            if self.priority[other] < self.priority[job]:
                return True
            if within is WithinQueue.LOWER_OR_NEWER_EQUAL_PRIORITY and (-self.priority[other], other) > key:
                return True
        return False

    def _flavors(self, node: int) -> Iterable[int]:
        return self.owner.flavors[node]

    def _place(self, room: FreeGpus, job: int, flavor: int) -> Gpus | None:
        mine = self.owner.machines[flavor]
        return room.find(job, machines=None if mine.all() else mine)

    def _admit(self, node: int, job: int) -> bool:
        """Start a job in the first flavor in which it has quota and fits; return whether there is such a flavor."""
        if self.tree.rules[node].is_held:
            return False
        amount = self._milli(job)
        for flavor in self._flavors(node):
            if self.ledger.available(node, flavor) < amount:
                continue
            found = (
                None if self.is_plain and self.room.num_free * MILLI < amount else self._place(self.room, job, flavor)
            )
            if found is not None:
                self._start(node, job, flavor, found)
                return True
        return False

    def _start(self, node: int, job: int, flavor: int, gpus: Gpus) -> None:
        self.room.take(job, gpus)
        self.gpus[job], self.flavor[job] = gpus, flavor
        self.ledger.change(node, flavor, self._milli(job))

    def _turn(self, heads: Mapping[int, int]) -> int:
        """Return the next queue, given each queue's next job.

        With fair sharing, the next queue is found from the root down: at each level it is in the child with the least share.
        Otherwise queues are ordered by the number of levels over which they borrow, then by priority and submission of their
        next jobs.
        """
        if len(heads) == 1:
            return next(iter(heads))
        if not self.tree.shares and not self.tree.half_life_h:
            return min(
                heads, key=lambda node: (self._height(node, heads[node]), -self.priority[heads[node]], heads[node])
            )
        best: dict[int, tuple[tuple[float, ...], int]] = {}
        nodes = sorted({each for node in heads for each in self.owner.paths[node]}, reverse=True)
        for node in [*nodes, -1]:
            below = (
                [each for each in nodes if int(self.tree.parent[each]) == node]
                if node < 0 or not self.tree.is_queue[node]
                else []
            )
            rivals = [(self._key(child, best[child][1], heads), best[child][1]) for child in below]
            best[node] = min(rivals) if rivals else ((), node)
        return best[-1][1]

    def _height(self, node: int, job: int) -> int:
        """Return the number of levels over which a queue has to borrow for a job; 0 for no borrowing."""
        amount, path = self._milli(job), self.owner.paths[node]
        flavor = next(iter(self._flavors(node)), 0)
        lowest = self.ledger.lowest_that_fits(node, flavor, amount)
        return len(path) if lowest is None else path.index(lowest)

    def _key(self, child: int, queue: int, heads: Mapping[int, int]) -> tuple[float, ...]:
        """Return the sort key of a cohort's child among its siblings, given its next queue and the queues' next jobs."""
        job = heads[queue]
        flavor = next(iter(self._flavors(queue)), 0)
        more = dict(self.ledger.above(queue, flavor, self._milli(job)))[child]
        is_borrowing = self.ledger.borrowed(child, more, flavor) > 0
        if self.tree.half_life_h:
            share = float(self.owner.queue_usage.gpu_us[self._queues_below(child)].sum()) / max(
                float(self.tree.weight[child]), 1e-9
            )
        else:
            share = self._share(child, self.ledger, more, flavor)[1]
        return (is_borrowing, -int(self.tree.priority[child]), share, -self.priority[job], job)

    def _queues_below(self, node: int) -> list[int]:
        return [queue for queue in self.tree.queues.values() if node in self.owner.paths[queue]]

    def _share(self, node: int, ledger: QuotaLedger, more: int = 0, flavor: int = 0) -> tuple[int, float]:
        """Return a node's priority key and its borrowed GPUs over its weight; smaller values are served first."""
        borrowed, weight = ledger.borrowed(node, more, flavor), float(self.tree.weight[node])
        return -int(self.tree.priority[node]), 0.0 if not borrowed else borrowed / weight if weight else math.inf

    def _stop_for(self, node: int, job: int) -> list[int]:
        """Preempt running jobs to admit a job; return the preempted jobs, empty if that is impossible."""
        rules, amount = self.tree.rules[node], self._milli(job)
        if rules.is_held or (
            rules.reclaim is Reclaim.NEVER and rules.within is WithinQueue.NEVER and not rules.borrow_within
        ):
            return []
        for flavor in self._flavors(node):
            if self.ledger.potential(node, flavor) < amount:
                continue
            for candidates, choose in self._ways(node, job, flavor):
                found = choose(node, job, flavor, candidates) if candidates else None
                if found is None:
                    continue
                stopped, gpus = found
                for other in stopped:
                    queue = self.owner.node_of[other]
                    self.room.give(other, self.gpus.pop(other))
                    self.ledger.change(queue, self.flavor.pop(other), -self._milli(other))
                    self.owner.reclaimed += queue != node
                    self.owner.preempted_in_queue += queue == node
                self._start(node, job, flavor, gpus)
                return stopped
        return []

    def _ways(
        self, node: int, job: int, flavor: int
    ) -> "list[tuple[list[Candidate], Callable[[int, int, int, Sequence[Candidate]], tuple[list[int], Gpus] | None]]]":
        """Return pairs of preemption candidates and selection rule, to be tried in order."""
        candidates = sorted(self._candidates(node, job, flavor))
        mine = [each for each in candidates if each[0]]
        choose = self._by_shares if self.tree.shares else self._in_order
        return [(candidates, choose), *([(mine, self._in_order)] if len(mine) < len(candidates) else [])]

    def _candidates(self, node: int, job: int, flavor: int) -> Iterable[Candidate]:
        """Yield the running jobs that may be preempted for a job."""
        rules, priority = self.tree.rules[node], self.priority
        key = (-priority[job], job)
        lowest = self.ledger.lowest_that_fits(node, flavor, self._milli(job))
        for queue, others in self.running.items():
            if queue == node:
                if rules.within is WithinQueue.NEVER:
                    continue
                is_newer = rules.within is WithinQueue.LOWER_OR_NEWER_EQUAL_PRIORITY
                may = [
                    each
                    for each in others
                    if priority[each] < priority[job] or (is_newer and (-priority[each], each) > key)
                ]
                least_us = self._first_set(self.tree.preempt_after_us, self.owner.paths[queue])
            else:
                way = self._reclaim_from(node, job, flavor, queue, lowest)
                if way is None:
                    continue
                limit, child = way
                may = others if limit is None else [each for each in others if priority[each] < limit]
                least_us = self._first_set(
                    self.tree.reclaim_after_us, self.owner.paths[child if self.tree.is_by_ancestor else queue]
                )
            for other in may:
                if other not in self.gpus or self.flavor[other] != flavor:
                    continue
                start = int(self.started[other])
                if start + least_us > self.view.now_us:
                    self.again.append(start + least_us)
                else:
                    yield (queue == node, priority[other], -start, -other, other)

    def _reclaim_from(
        self, node: int, job: int, flavor: int, queue: int, lowest: int | None
    ) -> "tuple[int | None, int] | None":
        """Return the priority below which another queue's jobs may be preempted, and the common cohort's child with that queue.

        The priority is None if all jobs of the other queue may be preempted; the result is None if none of them may. The other
        queue and its cohorts below the common cohort must use more than their quota. Of the job's queue and its cohorts,
        `lowest` is the lowest with enough quota for the job. If it lies below the common cohort, the job reclaims quota;
        otherwise the job borrows.
        """
        rules, path = self.tree.rules[node], self.owner.paths[node]
        above = self._siblings(path, self.owner.paths[queue])
        if above is None or not self._is_borrowing(self.ledger, queue, above[1], flavor):
            return None
        is_promised = lowest is not None and path.index(lowest) <= path.index(above[0])
        if is_promised or self.tree.shares:
            if rules.reclaim is Reclaim.NEVER:
                return None
            return None if rules.reclaim is Reclaim.ANY else self.priority[job], above[1]
        if not rules.borrow_within:
            return None
        most = self.priority[job] if rules.borrow_max_priority is None else rules.borrow_max_priority + 1
        return min(self.priority[job], most), above[1]

    def _siblings(self, path: Sequence[int], other: Sequence[int]) -> tuple[int, int] | None:
        """Return the two children of the first common cohort, each with one of the queues; None without a common cohort."""
        pair = (path[0], other[0])
        if pair not in self.owner.siblings:
            common = next((each for each in path if each in other), None)
            found = None if common is None else (path[path.index(common) - 1], other[other.index(common) - 1])
            self.owner.siblings[pair] = found
        return self.owner.siblings[pair]

    def _is_borrowing(self, ledger: QuotaLedger, queue: int, child: int, flavor: int) -> bool:
        """Return whether a queue and its ancestors up to a child of the common cohort use more than their quota."""
        path = self.owner.paths[queue]
        return all(ledger.usage[each][flavor] > ledger.total[each][flavor] for each in path[: path.index(child) + 1])

    @staticmethod
    def _first_set(values: IntArray, path: Sequence[int]) -> int:
        return next((int(values[each]) for each in path if values[each] != NOT_SET), 0)

    def _in_order(
        self, node: int, job: int, flavor: int, candidates: Sequence[Candidate]
    ) -> tuple[list[int], Gpus] | None:
        """Preempt candidates in order until the job fits, skipping candidates whose queues no longer borrow."""
        trial = _Trial(self, node, job, flavor)
        for *_, other in candidates:
            queue = self.owner.node_of[other]
            if queue != node:
                above = self._siblings(self.owner.paths[node], self.owner.paths[queue])
                if above is None or not self._is_borrowing(trial.ledger, queue, above[1], flavor):
                    continue
            trial.stop(other)
            if trial.fits():
                return trial.spared()
        return None

    def _by_shares(
        self, node: int, job: int, flavor: int, candidates: Sequence[Candidate]
    ) -> tuple[list[int], Gpus] | None:
        """Preempt candidates of the queue with the largest share, as the share rules allow, until the job fits."""
        trial, path = _Trial(self, node, job, flavor), self.owner.paths[node]
        for rule in self.tree.shares:
            left: dict[int, list[int]] = {}
            for *_, other in candidates:
                if other not in trial.stopped:
                    left.setdefault(self.owner.node_of[other], []).append(other)
            while left:
                queue = max(
                    left, key=lambda each: (each != node, self._share(self._side(path, each), trial.ledger), -each)
                )
                child = self._side(path, queue)
                if queue != node and not self._is_borrowing(trial.ledger, queue, child, flavor):
                    del left[queue]
                    continue
                chosen = next(
                    (other for other in left[queue] if queue == node or self._may(trial, rule, path, other)), None
                )
                if chosen is None:
                    del left[queue]
                    continue
                left[queue].remove(chosen)
                if not left[queue]:
                    del left[queue]
                trial.stop(chosen)
                if trial.fits():
                    return trial.spared()
        return None

    def _side(self, path: Sequence[int], queue: int) -> int:
        """Return the first common cohort's child that contains a queue; the queue itself if it is the job's queue."""
        above = self._siblings(path, self.owner.paths[queue]) if queue != path[0] else None
        return above[1] if above else queue

    def _may(self, trial: "_Trial", rule: ShareRule, path: Sequence[int], other: int) -> bool:
        """Return whether the share rule allows preempting a job of another queue."""
        queue = self.owner.node_of[other]
        above = self._siblings(path, self.owner.paths[queue])
        assert above is not None  # candidates share a cohort with the job
        more = dict(trial.ledger.above(path[0], trial.flavor, self._milli(trial.job)))[above[0]]
        mine = self._share(above[0], trial.ledger, more, trial.flavor)
        if mine[1] == 0.0:
            return True  # the job's queue, or its cohort below the common one, stays within its quota
        if rule is ShareRule.INITIAL_SHARE:
            return mine < self._share(above[1], trial.ledger)
        after = trial.ledger.copy()
        after.change(queue, trial.flavor, -self._milli(other))
        return mine <= self._share(above[1], after)


class _Trial:
    """Hypothetical state after preempting some jobs for a waiting job."""

    def __init__(self, one: _Pass, node: int, job: int, flavor: int) -> None:
        self.one, self.node, self.job, self.flavor = one, node, job, flavor
        self.room, self.ledger = one.room.copy(), one.ledger.copy()
        self.stopped: list[int] = []

    def _change(self, other: int, sign: int) -> None:
        gpus = self.one.gpus[other]
        (self.room.give if sign < 0 else self.room.take)(other, gpus)
        queue = self.one.owner.node_of[other]
        self.ledger.change(queue, self.one.flavor[other], sign * self.one._milli(other))

    def stop(self, other: int) -> None:
        """Preempt a job in the hypothetical state."""
        self._change(other, -1)
        self.stopped.append(other)

    def fits(self) -> bool:
        """Return whether the job's queue has enough quota, and the job fits."""
        if self.ledger.available(self.node, self.flavor) < self.one._milli(self.job):
            return False
        return self.one._place(self.room, self.job, self.flavor) is not None

    def spared(self) -> tuple[list[int], Gpus]:
        """Undo unnecessary preemptions, latest first; return the jobs to preempt, and the job's GPUs."""
        for other in self.stopped[::-1]:
            self._change(other, 1)
            if self.fits():
                self.stopped.remove(other)
            else:
                self._change(other, -1)
        gpus = self.one._place(self.room, self.job, self.flavor)
        assert gpus is not None
        return self.stopped, gpus

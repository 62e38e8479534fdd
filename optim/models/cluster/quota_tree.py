"""Queues in a tree of cohorts, with nominal quotas, borrowing limits and lending limits.

A node lends unused quota to its cohort up to its lending limit, and uses at most its quota plus its borrowing limit. A node
takes f = max(demand - quota, -lending limit) from its cohort, and the demand of a cohort is the sum of its children's f.
Usage is admitted if f <= borrowing limit at every node and f <= 0 at the root.

References
----------
Kueue's documentation, concepts "Cluster Queue" and "Cohort", https://kueue.sigs.k8s.io/docs/concepts/; KAI Scheduler's
documentation, "Scheduling Queues" and "Fairness", https://github.com/kai-scheduler/KAI-Scheduler/tree/main/docs.
"""

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from optim.core.arrays import BoolArray, ComparesByValue, FloatArray, IntArray
from optim.core.errors import InvalidProblemError

UNLIMITED = 2**60
"""Value of a limit that never applies, in thousandths of a GPU."""

MAX_QUOTA = 2**40
"""Largest quota or limit, in thousandths of a GPU."""

NOT_SET = -1


class Queueing(StrEnum):
    """Whether a job that can't be admitted blocks later jobs of its queue (Kueue's ``queueingStrategy``)."""

    STRICT_FIFO = "StrictFIFO"
    BEST_EFFORT_FIFO = "BestEffortFIFO"


class Reclaim(StrEnum):
    """Which jobs a queue may preempt in other queues that exceed their quota (Kueue's ``reclaimWithinCohort``)."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"
    ANY = "Any"


class WithinQueue(StrEnum):
    """Which jobs a queue may preempt among its jobs (Kueue's ``withinClusterQueue``)."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"
    LOWER_OR_NEWER_EQUAL_PRIORITY = "LowerOrNewerEqualPriority"


class ShareRule(StrEnum):
    """When fair sharing lets a queue over its quota preempt another queue's job (Kueue's ``preemptionStrategies``)."""

    FINAL_SHARE = "LessThanOrEqualToFinalShare"
    """The preempting queue's share with the waiting job is at most the other queue's share without the preempted job."""
    INITIAL_SHARE = "LessThanInitialShare"
    """The preempting queue's share with the waiting job is less than the other queue's present share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRules:
    """How a queue admits jobs, and which jobs they may preempt.

    Parameters
    ----------
    queueing, reclaim, within
        See `Queueing`, `Reclaim` and `WithinQueue`.
    borrow_within
        Whether a borrowing job may preempt jobs of lower priority in queues over their quota.
    borrow_max_priority
        Largest priority of a job that `borrow_within` allows to preempt; None for any.
    is_held
        Whether the queue admits no jobs.
    by_usage
        Whether the queue orders jobs by the decayed usage of their users before their priority.
    """

    queueing: Queueing = Queueing.BEST_EFFORT_FIFO
    reclaim: Reclaim = Reclaim.NEVER
    within: WithinQueue = WithinQueue.NEVER
    borrow_within: bool = False
    borrow_max_priority: int | None = None
    is_held: bool = False
    by_usage: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalQueue:
    """Alias by which jobs choose a queue, with a weight for its usage."""

    queue: str
    weight: float = 1.0


@dataclass(frozen=True, kw_only=True, eq=False)
class QuotaTree(ComparesByValue):
    """Queues and cohorts, each parent before its children; there may be several roots. Amounts are thousandths of a GPU.

    Parameters
    ----------
    names
        Names of queues and cohorts; a queue and a cohort may have the same name.
    parent
        Row of each node's cohort, -1 for a root; shape (nodes,).
    is_queue
        Whether the node is a queue, which has no children; shape (nodes,).
    flavors
        Names of types of quota, such as types of GPU.
    nominal, borrowing, lending
        Quota, borrowing limit and lending limit, `UNLIMITED` for no limit; shape (nodes, flavors).
    covers
        Whether the node defines a quota of the flavor; a queue uses only flavors that it defines; shape (nodes, flavors).
    weight, priority
        Weight and priority in fair sharing: borrowed quota is divided by priority, highest first, then by weight; shape
        (nodes,).
    rules
        Rules of each node; the rules of cohorts are ignored.
    reclaim_after_us, preempt_after_us
        Minimum run time of a job before a job of another queue (`reclaim_after_us`) or of the same queue
        (`preempt_after_us`) may preempt it; `NOT_SET` inherits the cohort's value, or 0 at the root; shape (nodes,).
    is_by_ancestor
        Whether `reclaim_after_us` is taken from the preempted job's ancestor just below the first common ancestor of both queues,
        instead of from its queue.
    labels
        Types of GPU or partitions that each flavor selects by its labels.
    label_keys
        Keys of the labels in `labels`, in the same order, if known.
    local_queues
        Aliases of queues.
    shares
        Conditions under which queues over their quota may preempt each other's jobs, in the order tried; empty for never.
    half_life_h
        Half-life of usage in hours, if queues order jobs by it; 0 otherwise.

    Raises
    ------
    InvalidProblemError
        If arrays differ in length, a parent comes after its child or is a queue, or an amount is out of range.
    """

    names: tuple[str, ...]
    parent: IntArray
    is_queue: BoolArray
    flavors: tuple[str, ...]
    nominal: IntArray
    borrowing: IntArray
    lending: IntArray
    covers: BoolArray
    weight: FloatArray
    priority: IntArray
    rules: tuple[QueueRules, ...]
    reclaim_after_us: IntArray
    preempt_after_us: IntArray
    is_by_ancestor: bool = True
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    label_keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    local_queues: Mapping[str, LocalQueue] = field(default_factory=dict)
    shares: tuple[ShareRule, ...] = ()
    half_life_h: float = 0.0

    def __post_init__(self) -> None:
        """Check the tree."""
        count, shape = len(self.names), (len(self.names), len(self.flavors))
        lengths = {len(getattr(self, name)) for name in ("parent", "is_queue", "weight", "priority", "rules")}
        lengths |= {len(self.reclaim_after_us), len(self.preempt_after_us)}
        amounts = (self.nominal, self.borrowing, self.lending)
        if not count or lengths != {count} or any(each.shape != shape for each in (*amounts, self.covers)):
            raise InvalidProblemError("a quota tree must have at least one node, and one entry per node in each column")
        is_child = self.parent >= 0
        if (self.parent >= np.arange(count)).any() or self.is_queue[self.parent[is_child]].any():
            raise InvalidProblemError("a queue's parent must be a cohort listed before it")
        if any((each < 0).any() for each in amounts) or self.nominal.max(initial=0) > MAX_QUOTA:
            raise InvalidProblemError(f"quotas and limits must lie in 0..{MAX_QUOTA // 1000} GPUs")
        queues = [name for name, is_one in zip(self.names, self.is_queue.tolist(), strict=True) if is_one]
        if len(set(queues)) < len(queues):
            raise InvalidProblemError("queues must have different names")

    @property
    def queues(self) -> dict[str, int]:
        """Rows of the queues by name."""
        return {self.names[row]: row for row in np.flatnonzero(self.is_queue).tolist()}

    def path(self, node: int) -> list[int]:
        """Return a node and its cohorts, up to the root."""
        found = [node]
        while self.parent[found[-1]] >= 0:
            found.append(int(self.parent[found[-1]]))
        return found

    def queue_of(self, name: str) -> int | None:
        """Return the row of the queue with this name or alias, or None; ``namespace/name`` also matches ``name``."""
        for each in (name, name.rpartition("/")[2]):
            local = self.local_queues.get(each)
            row = self.queues.get(local.queue if local else each)
            if row is not None:
                return row
        return None


class QuotaLedger:
    """Usage of a tree's quotas.

    Parameters
    ----------
    tree
        The quotas.

    Attributes
    ----------
    total
        Quota of each node including the quota lent by its children; shape (nodes, flavors).
    local
        Part of `total` that is never lent to the cohort; shape (nodes, flavors).
    usage
        Usage of a queue; for a cohort, its children's usage beyond their local quota; shape (nodes, flavors).
    """

    def __init__(self, tree: QuotaTree) -> None:
        self.tree = tree
        total, local = tree.nominal.copy(), np.zeros_like(tree.nominal)
        for node in range(len(tree.names) - 1, -1, -1):
            local[node] = np.maximum(0, total[node] - tree.lending[node])
            if tree.parent[node] >= 0:
                total[tree.parent[node]] += total[node] - local[node]
        self.total: list[list[int]] = total.tolist()
        self.local: list[list[int]] = local.tolist()
        self.parent: list[int] = tree.parent.tolist()
        self.borrowing: list[list[int]] = tree.borrowing.tolist()
        self.usage = [[0] * len(tree.flavors) for _ in tree.names]

    def copy(self) -> "QuotaLedger":
        """Return an independent ledger with the same usage."""
        other = copy(self)
        other.usage = [row.copy() for row in self.usage]
        return other

    def available(self, node: int, flavor: int) -> int:
        """Return how much more a node may use under all quotas and limits up to its root; negative if over a limit."""
        used, total, local = self.usage[node][flavor], self.total[node][flavor], self.local[node][flavor]
        if self.parent[node] < 0:
            return total - used
        above = self.available(self.parent[node], flavor)
        limit = self.borrowing[node][flavor]
        if limit < UNLIMITED:
            above = min(above, total - local - max(0, used - local) + limit)
        return max(0, local - used) + above

    def potential(self, node: int, flavor: int) -> int:
        """Return how much a node may use if nothing else is in use."""
        total = self.total[node][flavor]
        if self.parent[node] < 0:
            return total
        most = self.local[node][flavor] + self.potential(self.parent[node], flavor)
        return min(most, total + self.borrowing[node][flavor])

    def change(self, node: int, flavor: int, amount: int) -> None:
        """Change the usage of a node by an amount."""
        while node >= 0 and amount:
            before = self.usage[node][flavor]
            local = self.local[node][flavor]
            self.usage[node][flavor] = before + amount
            amount = max(0, before + amount - local) - max(0, before - local)
            node = self.parent[node]

    def borrowed(self, node: int, more: int = 0, flavor: int = 0) -> int:
        """Return a node's usage beyond its quota, summed over flavors, after using `more` of one flavor."""
        usage, total = self.usage[node], self.total[node]
        return sum(max(0, used + more * (at == flavor) - total[at]) for at, used in enumerate(usage))

    def lowest_that_fits(self, queue: int, flavor: int, amount: int) -> int | None:
        """Return the lowest of a queue and its cohorts whose quota covers additional usage of the queue, or None."""
        for node, more in self.above(queue, flavor, amount):
            if self.usage[node][flavor] + more <= self.total[node][flavor]:
                return node
        return None

    def above(self, queue: int, flavor: int, amount: int) -> Iterator[tuple[int, int]]:
        """Yield a queue and its cohorts, each with the increase of its usage caused by additional usage of the queue."""
        node = queue
        while node >= 0:
            yield node, amount
            amount = max(0, amount - max(0, self.local[node][flavor] - self.usage[node][flavor]))
            node = self.parent[node]

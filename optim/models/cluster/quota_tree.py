"""Quotas that lend: queues in a tree of cohorts, with nominal quota, borrowing limits and lending limits.

The unused quota of a node is lent to its cohort up to its lending limit, and each node may use at most its borrowing limit more than
its own. In signs: a node takes f = max(demand - quota, -lending limit) from its cohort, where the demand of a cohort is the sum of
what its children take, and usage is admitted if f <= borrowing limit at every node and f <= 0 at the root.

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
"""No limit, in thousandths of a GPU."""

MAX_QUOTA = 2**40
"""Largest quota or limit, in thousandths of a GPU."""

NOT_SET = -1


class Queueing(StrEnum):
    """Whether a job that isn't admitted holds up the younger ones of its queue (Kueue's ``queueingStrategy``)."""

    STRICT_FIFO = "StrictFIFO"
    BEST_EFFORT_FIFO = "BestEffortFIFO"


class Reclaim(StrEnum):
    """Whose jobs in other queues over their quota may be stopped (Kueue's ``reclaimWithinCohort``)."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"
    ANY = "Any"


class WithinQueue(StrEnum):
    """Whose jobs in the same queue may be stopped (Kueue's ``withinClusterQueue``)."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"
    LOWER_OR_NEWER_EQUAL_PRIORITY = "LowerOrNewerEqualPriority"


class ShareRule(StrEnum):
    """When fair sharing lets a queue over its quota stop another's job (Kueue's ``preemptionStrategies``)."""

    FINAL_SHARE = "LessThanOrEqualToFinalShare"
    """Its share with the job that waits is at most the other's without the job that is stopped."""
    INITIAL_SHARE = "LessThanInitialShare"
    """Its share with the job that waits is less than the other's as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRules:
    """How a queue admits, and whom its jobs may stop.

    Parameters
    ----------
    queueing, reclaim, within
        See their classes.
    borrow_within
        Whether its jobs may stop jobs of lower priority in queues over their quota although they borrow themselves.
    borrow_max_priority
        Largest priority of jobs that are stopped so; None for any.
    is_held
        Whether it admits nobody.
    by_usage
        Whether its jobs are ordered by the decayed usage of their users before their priority.
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
    """A name by which jobs choose a queue, and the weight by which its usage counts."""

    queue: str
    weight: float = 1.0


@dataclass(frozen=True, kw_only=True, eq=False)
class QuotaTree(ComparesByValue):
    """Queues and cohorts, parents before their children; several roots are several trees. Amounts are thousandths of a GPU.

    Parameters
    ----------
    names
        Of queues and cohorts; a queue and a cohort may share one.
    parent
        Row of each one's cohort, -1 for a root; shape (nodes,).
    is_queue
        Whether jobs queue there; queues have no children; shape (nodes,).
    flavors
        Names of types of quota, such as types of GPU.
    nominal, borrowing, lending
        Quota, and limits of what is borrowed and lent, `UNLIMITED` for none; shape (nodes, flavors).
    covers
        Whether a node defines the flavor: a queue uses no other; shape (nodes, flavors).
    weight, priority
        By which fair sharing divides what is borrowed: first the highest priority, then by weight; shape (nodes,).
    rules
        One per node; those of cohorts say nothing.
    reclaim_after_us, preempt_after_us
        How long a job runs before it is stopped for another queue, or for its own; `NOT_SET` for what the cohort says, else at
        once; shape (nodes,).
    is_by_ancestor
        Whether the former is that of the child of the first common ancestor, on the side of the job that is stopped, rather than
        its queue's.
    labels
        Types of GPU or partitions that a flavor stands for by its labels, by name.
    label_keys
        The keys of these labels, in the same order, where they are known.
    local_queues
        Further names of queues for jobs.
    shares
        When queues over their quota may stop each other's jobs, in the order in which this is tried; empty for never.
    half_life_h
        Hours after which usage counts half, where queues are ordered by it; 0 where they aren't.

    Raises
    ------
    InvalidProblemError
        If arrays differ in length, a parent stands behind its child or is a queue, or an amount is out of range.
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
            raise InvalidProblemError(
                "a tree of quotas needs one entry per node in each of its columns, and at least one node"
            )
        is_child = self.parent >= 0
        if (self.parent >= np.arange(count)).any() or self.is_queue[self.parent[is_child]].any():
            raise InvalidProblemError("a queue's parent must be a cohort that stands before it")
        if any((each < 0).any() for each in amounts) or self.nominal.max(initial=0) > MAX_QUOTA:
            raise InvalidProblemError(f"quotas and limits must lie in 0..{MAX_QUOTA // 1000} GPUs")
        queues = [name for name, is_one in zip(self.names, self.is_queue.tolist(), strict=True) if is_one]
        if len(set(queues)) < len(queues):
            raise InvalidProblemError("queues must have different names")

    @property
    def queues(self) -> dict[str, int]:
        """Rows of the queues by their names."""
        return {self.names[row]: row for row in np.flatnonzero(self.is_queue).tolist()}

    def path(self, node: int) -> list[int]:
        """Return a node and its cohorts, up to the root."""
        found = [node]
        while self.parent[found[-1]] >= 0:
            found.append(int(self.parent[found[-1]]))
        return found

    def queue_of(self, name: str) -> int | None:
        """Return the row of the queue that jobs mean by a name, None if there is none; of ``namespace/name`` the name alone will do."""
        for each in (name, name.rpartition("/")[2]):
            local = self.local_queues.get(each)
            row = self.queues.get(local.queue if local else each)
            if row is not None:
                return row
        return None


class QuotaLedger:
    """Who uses how much of a tree's quotas.

    Parameters
    ----------
    tree
        The quotas.

    Attributes
    ----------
    total
        Quota of each node with what its children lend it; shape (nodes, flavors).
    local
        Of it what is never lent to its cohort; shape (nodes, flavors).
    usage
        Of a queue what it uses, of a cohort what its children use beyond what is local to them; shape (nodes, flavors).
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
        """Return a ledger of its own with the same usage."""
        other = copy(self)
        other.usage = [row.copy() for row in self.usage]
        return other

    def available(self, node: int, flavor: int) -> int:
        """Return how much more a node may use, by all quotas and limits up to its root; negative where it uses too much."""
        used, total, local = self.usage[node][flavor], self.total[node][flavor], self.local[node][flavor]
        if self.parent[node] < 0:
            return total - used
        above = self.available(self.parent[node], flavor)
        limit = self.borrowing[node][flavor]
        if limit < UNLIMITED:
            above = min(above, total - local - max(0, used - local) + limit)
        return max(0, local - used) + above

    def potential(self, node: int, flavor: int) -> int:
        """Return how much a node may use while nobody else uses anything."""
        total = self.total[node][flavor]
        if self.parent[node] < 0:
            return total
        most = self.local[node][flavor] + self.potential(self.parent[node], flavor)
        return min(most, total + self.borrowing[node][flavor])

    def change(self, node: int, flavor: int, amount: int) -> None:
        """Let a node use more, or with a negative amount less."""
        while node >= 0 and amount:
            before = self.usage[node][flavor]
            local = self.local[node][flavor]
            self.usage[node][flavor] = before + amount
            amount = max(0, before + amount - local) - max(0, before - local)
            node = self.parent[node]

    def borrowed(self, node: int, more: int = 0, flavor: int = 0) -> int:
        """Return how much a node uses beyond its quota over all flavors, with so much `more` of one."""
        usage, total = self.usage[node], self.total[node]
        return sum(max(0, used + more * (at == flavor) - total[at]) for at, used in enumerate(usage))

    def lowest_that_fits(self, queue: int, flavor: int, amount: int) -> int | None:
        """Return the lowest of a queue and its cohorts whose own quota suffices for more usage of the queue, None if none's does."""
        for node, more in self.above(queue, flavor, amount):
            if self.usage[node][flavor] + more <= self.total[node][flavor]:
                return node
        return None

    def above(self, queue: int, flavor: int, amount: int) -> Iterator[tuple[int, int]]:
        """Yield a queue and its cohorts, each with how much more usage of the queue adds to its own."""
        node = queue
        while node >= 0:
            yield node, amount
            amount = max(0, amount - max(0, self.local[node][flavor] - self.usage[node][flavor]))
            node = self.parent[node]

"""Proofs of upper bounds for admission problems: dual points, cuts and branching trees.

They are data: solvers produce them, `optim.models.admission.check` recomputes what they prove.
"""

from dataclasses import dataclass
from enum import StrEnum

from optim.core.arrays import ComparesByValue
from optim.models.admission.instance import FloatArray, IntArray


class Side(StrEnum):
    """Which kind of server a row belongs to; on shared servers every row is a worker row."""

    WORKER = "worker"
    PS = "ps"


@dataclass(frozen=True, kw_only=True, eq=False)
class ServerCut(ComparesByValue):
    """A valid inequality of ONE server's integer packings, used with a dual multiplier.

    For every integer packing of one server of class `server_class` in slot `slot`, of at most N_j workers and Z_j(N_j) PSs of job j,
    ``sum_j worker_coefficient[j] y_j + ps_coefficient[j] z_j <= right_hand_side``. Summed over the
    class' servers the right-hand side is multiplied by their count. Coefficients are integers, so
    that validity is decided exactly. For a job with demand segments the inequality must hold with
    the elementwise smallest demand of its segments.

    Parameters
    ----------
    side
        Servers of workers or of PSs; `worker` on shared servers.
    server_class, slot
        Where it holds.
    jobs
        Shape (items,), ascending; other jobs have coefficient 0.
    worker_coefficient, ps_coefficient
        Shape (items,), integers >= 0. On disjoint servers only the side's own is non-zero.
    right_hand_side
        Integer >= 0.
    multiplier
        Dual value >= 0, utils a unit of the left-hand side.
    """

    side: Side
    server_class: int
    slot: int
    jobs: IntArray
    worker_coefficient: IntArray
    ps_coefficient: IntArray
    right_hand_side: int
    multiplier: float


@dataclass(frozen=True, kw_only=True, eq=False)
class CountCut(ComparesByValue):
    """A valid inequality of how many units of each job a CLASS holds in a slot, used with a dual multiplier.

    For all counts n_j that the class' servers hold together in slot `slot`, ``sum_j gain_j(n_j) <= right_hand_side``,
    where gains are any functions of whole counts that don't fall: unlike a `ServerCut`'s they tell a job with four
    units in half of its schedules from one with two in all. Gains are whole numbers, so that validity is decided
    exactly. On shared servers a job's workers and PSs count as two: ``sum_j gain_j(y_j) + ps_gain_j(z_j)``. For a job
    with demand segments the inequality must hold with the elementwise smallest demand of its segments.

    Parameters
    ----------
    side
        Servers of workers or of PSs; `worker` on shared servers.
    server_class, slot
        Where it holds.
    jobs
        Shape (items,), ascending; other jobs have no gain.
    gain
        Shape (items, widest): gains of 1, ..., widest units, >= 0 and not falling; of more units as of the widest.
    ps_gain
        On shared servers those of 1, ..., widest PSs, and `gain` those of workers; None on separate ones.
    right_hand_side
        Integer >= 0, of the whole class.
    multiplier
        Dual value >= 0, utils a unit of the left-hand side.
    """

    side: Side
    server_class: int
    slot: int
    jobs: IntArray
    gain: IntArray
    right_hand_side: int
    multiplier: float
    ps_gain: IntArray | None = None


Cut = ServerCut | CountCut
"""What tightens the packing LP."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PriceProof(ComparesByValue):
    """A point of the packing LP's dual (rows (A.19) to (A.21)), over server classes, with cuts.

    It proves ``sum_i payoff_i + sum_{c,t,r} price * count_c * capacity + sum_cuts multiplier * count *
    right_hand_side`` (count cuts: without count) as an upper bound, if every payoff is at least ``max(0, value - cost)`` over all
    schedules of the job: any prices >= 0 will do (docs/mathematics/admission.md, (A.22)). In a leaf of a `TreeProof` the schedules are
    those that its splits leave. A job that they admit can't be refused, so that its payoff is at least ``value - cost``, and may be
    negative; that of a job that they refuse is 0.

    Parameters
    ----------
    worker_price, ps_price
        Shape (classes, slots, resources), utils a unit of resource. On shared servers all prices
        are worker prices and `ps_price` has no classes.
    payoff
        Shape (jobs,): mu, utils; negative only for jobs that the leaf of a tree admits.
    cuts, count_cuts
        Cuts with their multipliers.
    """

    worker_price: FloatArray
    ps_price: FloatArray
    payoff: FloatArray
    cuts: tuple[ServerCut, ...] = ()
    count_cuts: tuple[CountCut, ...] = ()


class BranchKind(StrEnum):
    """How a node's set of plans is split in two, the low child first; v is the branch's `value`, which `admitted` has no use for."""

    ADMITTED = "admitted"
    """job i is refused | job i is admitted."""
    COMPLETION = "completion"
    """job i is refused or completes by slot v | job i is refused or completes after slot v."""
    WORKERS = "workers"
    """job i has at most v workers in the class in the slot | at least v + 1."""
    PS = "ps"
    """job i has at most v PSs in the class in the slot | at least v + 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A split of a node into a low and a high child."""

    kind: BranchKind
    job: int
    value: int = 0
    server_class: int = -1
    slot: int = -1


@dataclass(frozen=True, kw_only=True, eq=False)
class TreeNode(ComparesByValue):
    """A node of a branching tree: either split, or a leaf with a proof of its bound.

    Parameters
    ----------
    branch
        The split, None at a leaf.
    low, high
        Numbers of the children, -1 at a leaf.
    proof
        At a leaf a dual point for the leaf's restricted schedules; None at a leaf whose restrictions
        leave no plan at all.
    """

    branch: Branch | None = None
    low: int = -1
    high: int = -1
    proof: PriceProof | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class TreeProof(ComparesByValue):
    """A branching tree whose leaves cover all plans; node 0 is the root.

    It proves the largest bound of its leaves.
    """

    nodes: tuple[TreeNode, ...]

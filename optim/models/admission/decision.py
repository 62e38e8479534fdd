"""Decisions of an admission problem, their construction from counts, and proofs of upper bounds.

Solvers produce these data; `optim.models.admission.check` recomputes objectives and bounds from them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from optim.core.arrays import (
    ComparesByValue,
    FloatArray,
    IntArray,
    derived,
    freeze_arrays,
    own_whole_rows,
    whole_numbers,
)
from optim.core.errors import InvalidProblemError
from optim.core.frames import Columns
from optim.models.admission.data import share_of
from optim.models.admission.instance import AdmissionInstance

JOB, SLOT, SERVER, COUNT = range(4)
"""Columns of a plan's rows."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AdmissionPlan(ComparesByValue):
    """A plan: the numbers of workers and PSs of each job in each slot on each server.

    Parameters
    ----------
    workers, ps
        Shape (rows, 4): job, slot, server and count (positive). Rows are sorted, and each (job, slot, server) occurs
        once. Servers are numbered class by class (`ServerClasses.class_of_server`).

    Examples
    --------
    >>> import optim
    >>> plan = optim.AdmissionPlan.from_rows(workers=[(0, 2, 0, 3), (0, 1, 0, 1)], ps=[(0, 1, 0, 1), (0, 2, 0, 1)])
    >>> plan.admitted.tolist(), plan.completion.tolist()
    ([0], [2])
    """

    workers: IntArray
    ps: IntArray

    def __post_init__(self) -> None:
        own_whole_rows(self, {"workers": 4, "ps": 4}, "a plan's")

    @classmethod
    def from_rows(cls, workers: Iterable[Iterable[float]], ps: Iterable[Iterable[float]]) -> "AdmissionPlan":
        """Build a plan from (job, slot, server, count) rows in any order; rows with count 0 are dropped.

        Numbers within 1e-6 of an integer are rounded, because solvers of integer programmes return such
        numbers.

        Raises
        ------
        InvalidProblemError
            If a number is fractional or negative, a row does not have four numbers, or two rows have the same
            job, slot and server.
        """
        return cls(workers=_sorted_rows(workers, "workers"), ps=_sorted_rows(ps, "ps"))

    @derived
    def admitted(self) -> IntArray:
        """Jobs with at least one worker, ascending."""
        return np.unique(self.workers[:, JOB])

    @derived
    def completion(self) -> IntArray:
        """Completion slot of each job in `admitted`: the last slot in which the job has workers (row (8))."""
        last = np.full(int(self.admitted[-1]) + 1 if len(self.admitted) else 0, -1, dtype=np.int64)
        np.maximum.at(last, self.workers[:, JOB], self.workers[:, SLOT])
        completion: IntArray = last[self.admitted]
        return completion

    def objective(self, instance: AdmissionInstance) -> float:
        """Return the summed value of all admitted jobs at their completion slots.

        Raises
        ------
        InvalidProblemError
            If a job or slot of a row is outside the instance.
        """
        self._check_rows(instance)
        return float(np.sum(instance.value[self.admitted, self.completion])) if len(self.admitted) else 0.0

    def _check_rows(self, instance: AdmissionInstance) -> None:
        """Reject rows whose job or slot is outside the instance; NumPy would count negative indices from the end."""
        for rows, side in ((self.workers, "workers"), (self.ps, "ps")):
            for column, name, most in ((JOB, "job", instance.num_jobs), (SLOT, "slot", instance.horizon)):
                wrong = rows[(rows[:, column] < 0) | (rows[:, column] >= most)]
                if len(wrong):
                    raise InvalidProblemError(
                        f"a plan's {side} name {name} {wrong[0, column]}, but instance {instance.name!r} has {name}s 0 to {most - 1}"
                    )

    def columns(self, instance: AdmissionInstance | None = None) -> Columns:
        """Return the rows as columns side, job, slot, server, count; given the instance, jobs appear by name."""
        if instance is not None:
            self._check_rows(instance)
        rows = np.concatenate([self.workers, self.ps])
        jobs = rows[:, JOB] if instance is None else [instance.jobs.ids[job] for job in rows[:, JOB].tolist()]
        side = ["worker"] * len(self.workers) + ["ps"] * len(self.ps)
        return {"side": side, "job": jobs, "slot": rows[:, SLOT], "server": rows[:, SERVER], "count": rows[:, COUNT]}

    def picture(self) -> str:
        """Return a Gantt chart as an ``<svg>`` element: one row per job, darker cells for more workers."""
        from optim.core.text import Cell, grid

        counts: dict[tuple[int, int], int] = {}
        for job, slot, _, count in self.workers.tolist():
            counts[job, slot] = counts.get((job, slot), 0) + count
        most = max(counts.values(), default=1)
        row_of = {job: row for row, job in enumerate(self.admitted.tolist())}
        cells = [
            Cell(row_of[job], slot, 0.25 + 0.75 * count / most, f"job {job}, slot {slot}: workers {count}")
            for (job, slot), count in counts.items()
        ]
        return grid([f"job {job}" for job in row_of], cells, "slots", f"Plan of {len(row_of)} admitted jobs over time")


def _sorted_rows(rows: Iterable[Iterable[float]], side: str) -> IntArray:
    listed = [tuple(row) if isinstance(row, Iterable) else row for row in rows]
    wrong = next((row for row in listed if not isinstance(row, tuple) or len(row) != 4), None)
    if wrong is not None:
        raise InvalidProblemError(f"a plan's {side} must be rows of job, slot, server and count, got {wrong!r}")
    array = whole_numbers(listed, "a plan's rows").reshape(-1, 4)
    if array.size and array.min() < 0:
        raise InvalidProblemError(
            f"a plan's {side} must be numbers of at least 0, got {tuple(array[array.min(axis=1) < 0][0].tolist())}"
        )
    array = array[array[:, COUNT] != 0]
    ordered: IntArray = array[np.lexsort((array[:, SERVER], array[:, SLOT], array[:, JOB]))]
    same = (np.diff(ordered[:, :COUNT], axis=0) == 0).all(axis=1)
    if same.any():
        raise InvalidProblemError(
            f"a plan's {side} have two rows for the same job, slot and server {tuple(ordered[:-1][same][0, :COUNT].tolist())}; add their counts up"
        )
    return ordered


class Side(StrEnum):
    """Side of the cluster: servers of workers or servers of PSs; shared servers are all on the worker side."""

    WORKER = "worker"
    PS = "ps"


@dataclass(frozen=True, kw_only=True, eq=False)
class ServerCut(ComparesByValue):
    """A valid inequality on the integer packings of one server, weighted by a dual multiplier.

    The inequality is ``sum_j worker_coefficient[j] y_j + ps_coefficient[j] z_j <= right_hand_side``. It holds for
    all numbers y_j of workers and z_j of PSs that fit one server of class `server_class` in slot `slot`, with
    at most N_j workers and Z_j(N_j) PSs of job j. Summed over the servers of the class, the right-hand side is
    multiplied by their number. Coefficients are integers, so that validity is decided exactly. For a job with
    demand segments the inequality must hold with the elementwise smallest demand of its segments.

    Parameters
    ----------
    side
        Servers of workers or of PSs; `worker` on shared servers.
    server_class, slot
        Class and slot of the inequality.
    jobs
        Shape (items,), ascending; other jobs have coefficient 0.
    worker_coefficient, ps_coefficient
        Shape (items,), integers >= 0. On separate servers the coefficients of units of the other side are 0.
    right_hand_side
        Integer >= 0.
    multiplier
        Dual value >= 0, utility per unit of the left-hand side.
    """

    side: Side
    server_class: int
    slot: int
    jobs: IntArray
    worker_coefficient: IntArray
    ps_coefficient: IntArray
    right_hand_side: int
    multiplier: float

    def __post_init__(self) -> None:
        freeze_arrays(self)


@dataclass(frozen=True, kw_only=True, eq=False)
class CountCut(ComparesByValue):
    """A valid inequality on the jobs' numbers of units in one server class and slot, weighted by a dual multiplier.

    The inequality is ``sum_j gain_j(n_j) <= right_hand_side`` for all counts n_j that fit the servers of the
    class together in slot `slot`. Gains are non-decreasing functions of the count. A `ServerCut` is linear in
    the counts, so a schedule of four units with LP weight 1/2 counts as much as one of two units with weight 1;
    in a `CountCut` the two may differ. Gains are integers, so that validity is decided exactly. On shared
    servers a job's workers and PSs have separate gains: ``sum_j gain_j(y_j) + ps_gain_j(z_j)``. For a job with
    demand segments the inequality must hold with the elementwise smallest demand of its segments.

    Parameters
    ----------
    side
        Servers of workers or of PSs; `worker` on shared servers.
    server_class, slot
        Class and slot of the inequality.
    jobs
        Shape (items,), ascending; other jobs have no gain.
    gain
        Shape (items, widest): the gains of 1, 2, ..., `widest` units, >= 0 and non-decreasing; more units have the
        gain of `widest` units.
    ps_gain
        On shared servers the gains of 1, 2, ... PSs (`gain` is then for workers), in the form of `gain`; None on
        separate servers.
    right_hand_side
        Integer >= 0, for all servers of the class together.
    multiplier
        Dual value >= 0, utility per unit of the left-hand side.
    """

    side: Side
    server_class: int
    slot: int
    jobs: IntArray
    gain: IntArray
    right_hand_side: int
    multiplier: float
    ps_gain: IntArray | None = None

    def __post_init__(self) -> None:
        freeze_arrays(self)


@dataclass(frozen=True, kw_only=True, eq=False)
class SlotCut(ComparesByValue):
    """A valid inequality on the jobs' numbers of workers in one slot on all servers, weighted by a dual multiplier.

    The inequality is ``sum_j gain_j(y_j) <= right_hand_side`` for all numbers y_j of workers that fit in slot `slot`
    together with the PSs that they need. Gains are non-decreasing functions of the number. A `CountCut` concerns the
    units in one class; a `SlotCut` concerns all classes, and workers and PSs together.

    Validity is decided on knapsack rows. Each pair of a resource r and a divisor d gives one row for the workers'
    servers and one for the PSs' servers (shared servers: one row for both): the sum of ``floor(demand_r / d)`` over
    all units is at most the sum of ``floor(capacity_r / d)`` over the servers. Every packing meets all these rows,
    because rounding down each server's row loses no integral packing. With the divisor of one micro-unit the row is the
    total capacity. For a job with demand segments the rows use the elementwise smallest demand of its segments.

    Parameters
    ----------
    slot
        Slot of the inequality.
    jobs
        Shape (items,), ascending; other jobs have no gain.
    gain
        Shape (items, widest): the gains of 1, 2, ..., `widest` workers, integers >= 0, non-decreasing; more workers have
        the gain of `widest` workers.
    resource, divisor
        Shape (rows,): index of each row's resource, and its divisor >= 1 in micro-units.
    right_hand_side
        Integer >= 0.
    multiplier
        Dual value >= 0, utility per unit of the left-hand side.
    """

    slot: int
    jobs: IntArray
    gain: IntArray
    resource: IntArray
    divisor: IntArray
    right_hand_side: int
    multiplier: float

    def __post_init__(self) -> None:
        freeze_arrays(self)


Cut = ServerCut | CountCut | SlotCut
"""A valid inequality that tightens the packing LP."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PriceProof(ComparesByValue):
    """A point of the packing LP's dual (rows (A.19) to (A.21)), with prices by server class, and with cuts.

    The upper bound is ``sum_i payoff_i + sum_{c,t,r} price * count_c * capacity + sum_cuts multiplier * count
    * right_hand_side``, with job i, server class c, slot t, resource r and the number of servers `count_c`
    (count cuts and slot cuts: without the factor count). The bound is valid for all prices >= 0 if every payoff is at
    least ``max(0, value - cost)`` over all schedules of the job. The bound is (A.22) in
    docs/mathematics/admission.md. In a leaf of a `TreeProof`, payoffs need only cover the schedules that satisfy
    the leaf's branches. A job that the branches admit has a payoff of at least ``value - cost``, possibly negative.
    A job that the branches reject has payoff 0.

    Parameters
    ----------
    worker_price, ps_price
        Shape (classes, slots, resources), >= 0, utility per unit of the resource. On shared servers all
        prices are worker prices and `ps_price` has no classes.
    payoff
        Shape (jobs,): mu, utility units; negative only for jobs that the branches of a leaf admit.
    cuts, count_cuts, slot_cuts
        The cuts of each form; a cut contains its multiplier.
    """

    worker_price: FloatArray
    ps_price: FloatArray
    payoff: FloatArray
    cuts: tuple[ServerCut, ...] = ()
    count_cuts: tuple[CountCut, ...] = ()
    slot_cuts: tuple[SlotCut, ...] = ()

    def __post_init__(self) -> None:
        freeze_arrays(self)


class BranchKind(StrEnum):
    """Kind of a branch, described as "condition in the low child | condition in the high child".

    The number v is the branch's `value`; `admitted` does not use it.
    """

    ADMITTED = "admitted"
    """job i is rejected | job i is admitted."""
    COMPLETION = "completion"
    """job i is rejected or completes by slot v | job i is rejected or completes after slot v."""
    WORKERS = "workers"
    """job i has at most v workers on servers of the branch's class in its slot | at least v + 1 workers."""
    PS = "ps"
    """job i has at most v PSs on servers of the branch's class in its slot | at least v + 1 PSs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A split of a node into a low and a high child: `kind` states the conditions on `job`, with the number `value`.

    Only the kinds `workers` and `ps` use `server_class` and `slot`.
    """

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
        The split of an inner node; None at a leaf.
    low, high
        Numbers of the children, -1 at a leaf.
    proof
        Dual point for the schedules that a leaf's branches allow; None at an inner node and at a leaf that
        contains no plan.
    """

    branch: Branch | None = None
    low: int = -1
    high: int = -1
    proof: PriceProof | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class TreeProof(ComparesByValue):
    """A branching tree whose leaves cover all plans; node 0 is the root.

    The proven bound is the largest bound of the leaves.
    """

    nodes: tuple[TreeNode, ...]


Counts = dict[tuple[int, int, int], int]
"""Units by (job, slot, server)."""


def trimmed_plan(instance: AdmissionInstance, *, workers: Counts, ps: Counts) -> AdmissionPlan:
    """Return a valid plan built from given counts.

    Superfluous units of each job are removed first. The job keeps no slot after its work is done. In each
    slot it keeps the smallest number of workers with the same progress, and Z(Y) PSs for Y workers. This
    frees resources and delays no completion. Jobs are then placed in order of decreasing value. A job is
    dropped if it violates a row (work, limits of one job on a server, capacities; all in integers).

    Parameters
    ----------
    instance
        The instance.
    workers, ps
        Counts >= 0 by (job, slot, server).
    """
    by_job = _by_job(instance, workers), _by_job(instance, ps)
    needs = [_needs(instance, i, *sides) for i, sides in enumerate(zip(*by_job, strict=True))]
    complete = [need for need in needs if need is not None]
    complete.sort(key=lambda need: (-instance.value[need.job, need.completion], need.job))
    free = _FreeServers(instance)
    placed = [need for need in complete if free.take(need)]
    return AdmissionPlan.from_rows(
        workers=[row for need in placed for row in need.rows(Side.WORKER)],
        ps=[row for need in placed for row in need.rows(Side.PS)],
    )


@dataclass(slots=True, kw_only=True)
class _Need:
    """Units that one job needs to complete.

    `segment` contains the job's demand segment by slot, `units` the numbers of units by (side, slot) and server.
    """

    job: int
    completion: int = -1
    segment: dict[int, int] = field(default_factory=dict)
    units: dict[tuple[Side, int], dict[int, int]] = field(default_factory=dict)

    def rows(self, side: Side) -> Iterator[tuple[int, int, int, int]]:
        """Yield the job's rows of a plan on one side of the cluster."""
        for (on, slot), by_server in self.units.items():
            if on is side:
                yield from ((self.job, slot, server, count) for server, count in by_server.items())


BySlot = dict[int, dict[int, int]]
"""One job's units by slot and server."""


def _by_job(instance: AdmissionInstance, counts: Counts) -> list[BySlot]:
    result: list[BySlot] = [{} for _ in range(instance.num_jobs)]
    for (job, slot, server), count in sorted(counts.items()):
        if count > 0:
            result[job].setdefault(slot, {})[server] = count
    return result


def _needs(instance: AdmissionInstance, i: int, workers: BySlot, ps: BySlot) -> _Need | None:
    """Return the units of a job that make progress, slot by slot; None if its work is not done in time."""
    target, progress = int(instance.target[i]), instance.progress[i]
    first, last = int(instance.jobs.segment_offset[i]), int(instance.jobs.segment_offset[i + 1])
    starts = instance.jobs.segment_start[first:last]
    need = _Need(job=i)
    done = 0
    for slot in sorted(workers):
        if slot < instance.jobs.arrival[i]:
            continue
        num_workers = min(sum(workers[slot].values()), len(progress) - 1)
        gain = min(int(progress[num_workers]), target - done)
        count = int(np.searchsorted(progress, gain))
        if count == 0:
            continue
        num_ps = int(instance.ps_needed[i][count])
        if sum(ps.get(slot, {}).values()) < num_ps:
            return None
        need.segment[slot] = first + int(np.searchsorted(starts, done, side="right")) - 1
        need.units[Side.WORKER, slot] = _first_units(workers[slot], count)
        need.units[Side.PS, slot] = _first_units(ps[slot], num_ps)
        done += gain
        if done == target:
            need.completion = slot
            return need if instance.value[i, slot] > 0 else None
    return None


def _first_units(by_server: dict[int, int], number: int) -> dict[int, int]:
    """Return the first `number` units, in the order of the servers."""
    units = {}
    for server, count in by_server.items():
        units[server] = min(count, number)
        number -= units[server]
        if number == 0:
            break
    return units


class _FreeServers:
    """Free resources of every server in every slot."""

    def __init__(self, instance: AdmissionInstance) -> None:
        self._instance = instance
        jobs, workers, ps = instance.jobs, instance.worker_servers, instance.ps_servers
        self._demand = {Side.WORKER: jobs.worker_demand, Side.PS: jobs.ps_demand}
        self._most = {Side.WORKER: instance.workers_per_server, Side.PS: instance.ps_per_server}
        self._class = {Side.WORKER: workers.class_of_server, Side.PS: ps.class_of_server}
        residual = workers.capacity[workers.class_of_server]
        self._residual = {
            Side.WORKER: residual,
            Side.PS: residual if instance.has_shared_servers else ps.capacity[ps.class_of_server],
        }

    def take(self, need: _Need) -> bool:
        """Place a job if all its units fit; return whether they fit."""
        if not all(self._is_within_limits(need, slot, segment) for slot, segment in need.segment.items()):
            return False
        loads = [
            (self._residual[side][server, slot], self._demand[side][need.segment[slot]] * count)
            for (side, slot), by_server in need.units.items()
            for server, count in by_server.items()
        ]
        for rest, load in loads:
            np.subtract(rest, load, out=rest)
        if all((rest >= 0).all() for rest, _ in loads):
            return True
        for rest, load in loads:
            np.add(rest, load, out=rest)
        return False

    def _is_within_limits(self, need: _Need, slot: int, segment: int) -> bool:
        """Return whether the job's units on each server fit the empty server under the share cap."""
        units = {side: need.units[side, slot] for side in (Side.WORKER, Side.PS)}
        for side, by_server in units.items():
            most = self._most[side][segment, :, slot]
            if any(count > most[self._class[side][server]] for server, count in by_server.items()):
                return False
        instance = self._instance
        share = instance.max_share_per_server
        if share is None or not instance.has_shared_servers:
            return True
        for server in units[Side.WORKER].keys() & units[Side.PS].keys():
            use = sum(self._demand[side][segment] * by_server[server] for side, by_server in units.items())
            limit = share_of(instance.worker_servers.capacity[self._class[Side.WORKER][server], slot], share)
            if (use > limit).any():
                return False
        return True

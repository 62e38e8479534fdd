"""Recompute the bound of a branching tree: its leaves cover all plans, and each leaf has a bound or is infeasible.

Branches on counts concern classes of servers. Such branches give jobs minimum numbers of units in a class. If these
units cannot be packed on the servers of the class, the leaf contains no plan.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from optim.core.claims import Descent
from optim.core.limits import Effort
from optim.core.solution import Violation, violation
from optim.models.admission.check import placement
from optim.models.admission.check.cuts import CutCheck
from optim.models.admission.check.exact_instance import (
    Demand,
    ExactInstance,
    ExactJob,
    ps_beside_on_one,
    smallest_demand,
    units_on_server,
)
from optim.models.admission.check.prices import BoundFindings, check_prices
from optim.models.admission.check.schedules import FREE, Place, Pricing, Restriction, has_schedule, no_prices
from optim.models.admission.decision import Branch, BranchKind, PriceProof, Side, TreeNode, TreeProof

STEP_LIMIT = 1_000_000
"""Limit on the steps of the packing search for one side, class and slot; a leaf that needs more is unproven."""

Pair = tuple[int, int]
"""Numbers of workers and of PSs of one job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """A job's minimum numbers of units on one side, class and slot; the smallest demand of a unit; and `max_ps`.

    ``max_ps[y]`` is the maximum number of PSs that fit one server together with y workers.
    """

    min_units: Pair
    demand: Demand
    max_ps: tuple[int, ...]

    def fits(self, pair: Pair) -> bool:
        """Return whether these units fit an empty server."""
        return pair[0] < len(self.max_ps) and pair[1] <= self.max_ps[pair[0]]


def is_crowded(exact: ExactInstance, restrictions: Mapping[int, Restriction]) -> bool:
    """Return whether the minimum units of the restrictions provably do not fit the servers of some class."""
    by_place: dict[tuple[Side, int, int], list[int]] = {}
    for job, restriction in restrictions.items():
        hosts = {(Side.WORKER if exact.is_shared else side, c, t) for side, c, t in restriction.at_least}
        for place in hosts:
            by_place.setdefault(place, []).append(job)
    return any(
        not _fit(exact, place, [_units(exact, exact.jobs[job], place, restrictions[job]) for job in sorted(jobs)])
        for place, jobs in sorted(by_place.items())
    )


def _units(exact: ExactInstance, job: ExactJob, place: Place, restriction: Restriction) -> Units:
    side, c, slot = place
    demand, capacity = _min_demand(exact, job, slot, restriction), exact.servers(side).capacity_at(c, slot)
    sides = (Side.WORKER, Side.PS) if exact.is_shared else (side,)
    min_units = tuple(
        restriction.at_least.get((each_side, c, slot), 0) if each_side in sides else 0
        for each_side in (Side.WORKER, Side.PS)
    )
    most = (job.max_workers, job.ps_needed(job.max_workers))
    if exact.is_shared:
        beside = [ps_beside_on_one(demand, capacity, exact.share, y, most[1]) for y in range(most[0] + 1)]
        max_ps = tuple(z for z in beside if z >= 0)
    elif side is Side.WORKER:
        max_ps = (0,) * (1 + units_on_server(demand.worker, capacity, exact.share, most[0]))
    else:
        max_ps = (units_on_server(demand.ps, capacity, exact.share, most[1]),)
    return Units(min_units=(min_units[0], min_units[1]), demand=demand, max_ps=max_ps)


def _min_demand(exact: ExactInstance, job: ExactJob, slot: int, restriction: Restriction) -> Demand:
    """Return the elementwise smallest demand of the segments in which the job may be at the slot's start."""
    if slot <= job.arrival:
        return job.demands[0]
    pricing = Pricing(
        exact=exact, job=job, slots=range(job.arrival, slot), prices=no_prices(exact), restriction=restriction
    )
    min_units = pricing.limits(job.demands[0], Side.WORKER)[0].sum(axis=0)
    most = np.max([pricing.limits(demand, Side.WORKER)[1] for demand in job.demands], axis=0).sum(axis=0)
    first, last = (
        job.segment_at(sum(job.progress(workers) for workers in counts.tolist())) for counts in (min_units, most)
    )
    return smallest_demand(job.demands[first : last + 1])


def _fit(exact: ExactInstance, place: Place, jobs: Sequence[Units]) -> bool:
    """Return False if the jobs' minimum units provably do not fit the servers of a class in a slot, else True."""
    side, c, slot = place
    servers = exact.servers(side)
    search = _Packing(jobs, servers.capacity_at(c, slot))
    return search.fits(tuple(job.min_units for job in jobs), servers.count[c])


class _Packing:
    """Fill equal servers one after the other with maximal packings; sets of units that do not fit are memorised."""

    def __init__(self, jobs: Sequence[Units], capacity: tuple[int, ...]) -> None:
        self._jobs, self._capacity = jobs, capacity
        self._failed: set[tuple[tuple[Pair, ...], int]] = set()
        self._steps = 0

    def fits(self, rest: tuple[Pair, ...], number: int) -> bool:
        """Return whether the units `rest` fit `number` empty servers; also True if the search reaches its limit.

        The search is depth first with an explicit stack, since servers may outnumber the recursion limit.
        """
        verdict = self._verdict(rest, number)
        if verdict is not None:
            return verdict
        opened = [(rest, number, self._after_one(rest))]
        while opened:
            rest, number, ways = opened[-1]
            rest_after = next(ways, None)
            if self._steps > STEP_LIMIT:
                return True
            if rest_after is None:
                self._failed.add((rest, number))
                opened.pop()
                continue
            verdict = self._verdict(rest_after, number - 1)
            if verdict:
                return True
            if verdict is None:
                opened.append((rest_after, number - 1, self._after_one(rest_after)))
        return False

    def _verdict(self, rest: tuple[Pair, ...], number: int) -> bool | None:
        """Return whether the units `rest` fit if a simple test decides this, None if only a search can."""
        if not any(map(any, rest)):
            return True
        cannot_fit = number == 0 or (rest, number) in self._failed or not self._has_capacity(rest, number)
        return False if cannot_fit else None

    def _has_capacity(self, rest: tuple[Pair, ...], number: int) -> bool:
        return all(
            sum(y * job.demand.worker[r] + z * job.demand.ps[r] for (y, z), job in zip(rest, self._jobs, strict=True))
            <= number * limit
            for r, limit in enumerate(self._capacity)
        )

    def _after_one(self, rest: tuple[Pair, ...]) -> Iterator[tuple[Pair, ...]]:
        """Yield the units that remain after one server is filled, for every maximal packing of this server.

        Some server holds a unit of the first remaining job. As servers are equal, it may be assumed to be this server.
        """
        first = next(k for k, pair in enumerate(rest) if any(pair))
        for packed, residual in self._ways(rest, 0, self._capacity):
            if any(packed[first]) and not any(
                self._takes_more(k, packed[k], rest[k], residual) for k in range(len(self._jobs))
            ):
                yield tuple((y - a, z - b) for (y, z), (a, b) in zip(rest, packed, strict=True))

    def _takes_more(self, k: int, packed: Pair, rest: Pair, residual: tuple[int, ...]) -> bool:
        more = (((packed[0] + 1, packed[1]), (1, 0)), ((packed[0], packed[1] + 1), (0, 1)))
        return any(
            pair[0] <= rest[0]
            and pair[1] <= rest[1]
            and self._jobs[k].fits(pair)
            and min(_residual(self._jobs[k].demand, one, residual), default=0) >= 0
            for pair, one in more
        )

    def _ways(
        self, rest: tuple[Pair, ...], k: int, capacity: tuple[int, ...]
    ) -> Iterator[tuple[tuple[Pair, ...], tuple[int, ...]]]:
        self._steps += 1
        if self._steps > STEP_LIMIT:
            return
        if k == len(rest):
            yield (), capacity
            return
        job = self._jobs[k]
        for y in range(min(rest[k][0], len(job.max_ps) - 1), -1, -1):
            for z in range(min(rest[k][1], job.max_ps[y]), -1, -1):
                residual = _residual(job.demand, (y, z), capacity)
                if min(residual, default=0) >= 0:
                    for others, final in self._ways(rest, k + 1, residual):
                        yield ((y, z), *others), final


def _residual(demand: Demand, pair: Pair, capacity: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(
        limit - pair[0] * worker - pair[1] * ps
        for limit, worker, ps in zip(capacity, demand.worker, demand.ps, strict=True)
    )


COPIED = 10
"""Number of steps charged for copying one limit of a restriction; the copies stay in memory along a path of the tree."""

SOUGHT = 1_000
"""Number of steps charged for one search for a job's schedule."""

Restrictions = Mapping[int, Restriction]
"""Restrictions by job; unlisted jobs are unrestricted."""


def check_tree(exact: ExactInstance, proof: TreeProof) -> BoundFindings:
    """Recompute the bound of a branching tree: the largest bound of its leaves.

    Each branch sends every plan to one of its two children, so that every plan belongs to a leaf.
    """
    nodes = proof.nodes
    violations: list[Violation] = []
    leaves: list[BoundFindings] = []
    is_complete = True
    cuts = CutCheck(exact)
    seen: set[int] = set()
    walk = Descent[int, Restriction](Effort("the tree"))
    known = _Known(exact, walk.effort)
    if not nodes:
        return _refused("the tree has no nodes")
    for number in walk:
        if not (isinstance(number, int | np.integer) and 0 <= number < len(nodes)):
            return _refused(f"a child is node {number}, but the nodes are 0 to {len(nodes) - 1}")
        if number in seen:
            return _refused(f"node {number} is reached twice")
        seen.add(number)
        node = nodes[number]
        cause = _malformed(exact, node)
        if cause is not None:
            return _refused(f"node {number}: {cause}")
        if node.branch is not None:
            for child, is_high in ((node.high, True), (node.low, False)):
                walk.add(child, node.branch.job, partial(_narrowed, walk.effort, node.branch, is_high=is_high))
            continue
        walk.effort.spend(len(walk.conditions))
        findings = _check_leaf(exact, node, number, walk.conditions, cuts, known)
        violations += findings.violations
        if findings.bound is not None:
            leaves.append(findings)
        elif findings.violations:
            is_complete = False
    if len(seen) < len(nodes):
        lost = next(number for number in range(len(nodes)) if number not in seen)
        return _refused(f"node {lost} is not reachable from node 0")
    if not is_complete or not leaves:
        return BoundFindings(violations=tuple(violations))
    return BoundFindings(
        violations=tuple(violations),
        bound=max(leaf.bound for leaf in leaves if leaf.bound is not None),
    )


def _refused(text: str) -> BoundFindings:
    return BoundFindings(violations=(violation(placement.TREE, text),))


def _malformed(exact: ExactInstance, node: Any) -> str | None:
    if not isinstance(node, TreeNode):
        return f"must be a TreeNode, got {type(node).__name__}"
    branch = node.branch
    if branch is None:
        if (node.low, node.high) != (-1, -1):
            return f"a leaf must have no children, got {node.low} and {node.high}"
        if node.proof is not None and not isinstance(node.proof, PriceProof):
            return f"a leaf's proof must be a PriceProof, got {type(node.proof).__name__}"
        return None
    if not isinstance(branch, Branch) or not isinstance(branch.kind, BranchKind):
        return f"cannot read the branch {branch!r}"
    numbers = (branch.job, branch.value, branch.server_class, branch.slot)
    if not all(isinstance(number, int | np.integer) for number in numbers):
        return f"the numbers of a branch must be whole numbers, got {numbers}"
    if not 0 <= branch.job < len(exact.jobs):
        return f"the branch is on job {branch.job}, but there are {len(exact.jobs)} jobs"
    if branch.kind in (BranchKind.WORKERS, BranchKind.PS):
        side = Side.WORKER if branch.kind is BranchKind.WORKERS else Side.PS
        num_classes = len(exact.servers(side).count)
        if not (0 <= branch.server_class < num_classes and 0 <= branch.slot < exact.horizon):
            return f"the branch is on class {branch.server_class}, slot {branch.slot}, outside the instance"
    return None


def _narrowed(effort: Effort, branch: Branch, before: Restriction | None, *, is_high: bool) -> Restriction:
    """Return a job's restriction in a child of a branch; each limit that is copied counts as `COPIED` steps."""
    restriction = FREE if before is None else before
    effort.spend(COPIED * (len(restriction.at_least) + len(restriction.at_most)))
    return restriction.narrowed(branch, is_high=is_high)


def _check_leaf(
    exact: ExactInstance, node: TreeNode, number: int, restrictions: Restrictions, cuts: CutCheck, known: "_Known"
) -> BoundFindings:
    if node.proof is not None:
        return check_prices(exact, node.proof, cuts, restrictions, leaf=f", leaf {number}")
    if any(known.is_empty(job, restriction) for job, restriction in sorted(restrictions.items(), key=_by_job)):
        return BoundFindings(violations=())
    if is_crowded(exact, restrictions):
        return BoundFindings(violations=())
    text = f"leaf {number} has no proof, and its restrictions could not be shown to be contradictory or to overload any servers"
    return BoundFindings(violations=(violation(placement.TREE, text, where=f"leaf {number}"),))


def _by_job(item: tuple[int, Restriction]) -> int:
    return item[0]


class _Known:
    """Cache of whether any plan meets a job's restriction, since neighbouring leaves share most restrictions."""

    def __init__(self, exact: ExactInstance, effort: Effort) -> None:
        self._exact, self._effort = exact, effort
        self._known_empty: dict[int, tuple[Restriction, bool]] = {}

    def is_empty(self, job: int, restriction: Restriction) -> bool:
        """Return whether no plan meets one job's restriction."""
        known = self._known_empty.get(job)
        if known is None or known[0] is not restriction:
            known = self._known_empty[job] = restriction, self._find(job, restriction)
        return known[1]

    def _find(self, job: int, restriction: Restriction) -> bool:
        if restriction.is_contradictory:
            return True
        if not restriction.is_admitted:
            return False
        self._effort.spend(SOUGHT)
        return not has_schedule(self._exact, self._exact.jobs[job], restriction)

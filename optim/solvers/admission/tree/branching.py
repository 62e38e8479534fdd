"""How to split a node: what its fractional point is undecided about, and which split promises most."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from optim.models.admission.instance import FloatArray, IntArray
from optim.models.admission.proof import Branch, BranchKind
from optim.solvers.admission.pricing.class_pricing import PricedSchedules

INTEGRALITY_TOL = 1e-6
"""Weights closer to 0 or 1 than this are whole."""

LEAST_LOSS = 1e-6
"""Losses count as at least this much, so that one child's loss still ranks splits whose other child loses nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A split, and how much weight of the fractional point each child forbids."""

    branch: Branch
    low_share: float
    high_share: float

    @property
    def balance(self) -> float:
        """The smaller of the two."""
        return min(self.low_share, self.high_share)


def value_candidates(schedules: PricedSchedules, weight: FloatArray, is_admitted: IntArray) -> list[Candidate]:
    """Return splits on what earns: whether a job is admitted, and by when it completes; by job.

    Parameters
    ----------
    schedules, weight
        Known schedules and their weights at the master's point.
    is_admitted
        Shape (jobs,): jobs that the node admits.
    """
    on = np.flatnonzero(weight > INTEGRALITY_TOL)
    by_slot = np.zeros((len(is_admitted), schedules.workers.shape[2]))
    np.add.at(by_slot, (schedules.jobs[on], schedules.completion[on]), weight[on])
    found = []
    for i, own in enumerate(by_slot):
        total = float(own.sum())
        if not is_admitted[i] and INTEGRALITY_TOL < total < 1.0 - INTEGRALITY_TOL:
            branch = Branch(kind=BranchKind.ADMITTED, job=i)
            found.append(Candidate(branch=branch, low_share=total, high_share=1.0 - total))
        slots = np.flatnonzero(own > INTEGRALITY_TOL)
        if len(slots) > 1:
            until = np.cumsum(own[slots])[:-1]
            k = int(np.argmax(np.minimum(until, total - until)))
            branch = Branch(kind=BranchKind.COMPLETION, job=i, value=int(slots[k]))
            found.append(Candidate(branch=branch, low_share=total - float(until[k]), high_share=float(until[k])))
    return found


def count_candidates(schedules: PricedSchedules, weight: FloatArray, num_jobs: int, most: int) -> list[Candidate]:
    """Return the most balanced splits on a job's number of workers or PSs in a class and slot."""
    found = []
    for i in range(num_jobs):
        on = np.flatnonzero((weight > INTEGRALITY_TOL) & (schedules.jobs == i))
        if len(on) > 1:
            own = list(_count_splits(i, weight[on], schedules.workers[on], schedules.ps[on]))
            found += sorted(own, key=lambda candidate: -candidate.balance)[:2]
    return sorted(found, key=lambda candidate: -candidate.balance)[:most]


def _count_splits(job: int, weight: FloatArray, workers: IntArray, ps: IntArray) -> Iterator[Candidate]:
    for kind, counts in ((BranchKind.WORKERS, workers), (BranchKind.PS, ps)):
        differs = (counts != counts[0]).any(axis=0)
        for c, t in np.argwhere(differs).tolist():
            numbers = counts[:, c, t]
            value = int(np.floor(weight @ numbers / weight.sum() + INTEGRALITY_TOL))
            value = min(max(value, int(numbers.min())), int(numbers.max()) - 1)
            above = float(weight[numbers > value].sum())
            branch = Branch(kind=kind, job=job, value=value, server_class=c, slot=t)
            yield Candidate(branch=branch, low_share=above, high_share=float(weight.sum()) - above)


@dataclass(slots=True)
class _Losses:
    """Losses of one child, a unit of forbidden weight."""

    total: float = 0.0
    number: int = 0

    @property
    def mean(self) -> float:
        return self.total / self.number if self.number else 0.0


@dataclass(slots=True)
class PseudoCosts:
    """What splits have cost so far: the mean loss of the bound a unit of weight that the child forbids.

    Kept by kind of split, job and child; what a job lacks is taken from all jobs together.
    """

    _by_job: dict[tuple[BranchKind, int, bool], _Losses] = field(default_factory=dict)
    _overall: dict[tuple[BranchKind, bool], _Losses] = field(default_factory=dict)

    def record(self, candidate: Candidate, loss: float, *, is_high: bool) -> None:
        """Learn from one child's loss."""
        share = candidate.high_share if is_high else candidate.low_share
        branch = candidate.branch
        for losses in (
            self._by_job.setdefault((branch.kind, branch.job, is_high), _Losses()),
            self._overall.setdefault((branch.kind, is_high), _Losses()),
        ):
            losses.total += max(loss, 0.0) / max(share, 0.01)
            losses.number += 1

    def number(self, candidate: Candidate) -> int:
        """Return how often the split's kind was tried on its job, in the child tried less often."""
        branch = candidate.branch
        return min(
            losses.number if (losses := self._by_job.get((branch.kind, branch.job, is_high))) else 0
            for is_high in (False, True)
        )

    def score(self, candidate: Candidate, default: float) -> float:
        """Return the product of both children's expected losses; `default` a unit where nothing is known."""
        return score(*(self._expected(candidate, default, is_high=is_high) for is_high in (False, True)))

    def _expected(self, candidate: Candidate, default: float, *, is_high: bool) -> float:
        branch = candidate.branch
        share = candidate.high_share if is_high else candidate.low_share
        own = self._by_job.get((branch.kind, branch.job, is_high))
        overall = self._overall.get((branch.kind, is_high))
        rate = own.mean if own else overall.mean if overall else default
        return rate * share


def score(low_loss: float, high_loss: float) -> float:
    """Return how good a split is: the product of its children's losses."""
    return max(low_loss, LEAST_LOSS) * max(high_loss, LEAST_LOSS)

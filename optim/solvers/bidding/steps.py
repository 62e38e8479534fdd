"""Local search for footprints: BidBrain's one-step additions, and removals and exchanges."""

from collections.abc import Callable

import numpy as np

from optim.core.arrays import BoolArray, FloatArray, IntArray
from optim.core.driver import AbstractIteration, SolverState
from optim.core.solution import Termination
from optim.models.bidding.cost_per_work import evaluate, evaluate_many
from optim.models.bidding.instance import BiddingInstance
from optim.solvers.bidding.survival import shortfall
from optim.solvers.bidding.tree.box import CAP_TOL

MAX_STEPS = 64
"""Up to this number of instances, every number is tried; above it, powers of two."""

IMPROVEMENT = 1e-12
"""Smaller relative gains count as rounding."""


class LocalSearch(AbstractIteration[IntArray]):
    """Step to the best footprint in the neighbourhood until none is better.

    A neighbour adds any number of instances to one bid, removes any number, or exchanges instances of one bid for
    instances of another bid: one for one or two, or all for as many, or for as many as that bid allows. Footprints are
    compared by missing work and survival, then by cost per work; ties go to the first.

    Parameters
    ----------
    instance
        The instance.
    start
        Shape (bids,): start of the search.
    begun
        Number of earlier steps.
    """

    def __init__(self, instance: BiddingInstance, start: IntArray, *, begun: int = 0) -> None:
        self.instance, self.counts, self.steps = instance, start.copy(), begun
        self._is_done = False
        self._lack, self._value = (float(part[0]) for part in self._judge(start[None]))

    def reachable(self) -> IntArray:
        """Return the neighbours, feasible or not."""
        return neighbours(self.instance, self.counts)

    def choose(self, table: IntArray, lack: FloatArray, value: FloatArray) -> int:
        """Return the row of a table of better footprints to step to."""
        return int(np.lexsort((value, lack))[0])

    def is_done(self) -> bool:
        """Return whether no neighbour is better."""
        return self._is_done

    def step(self) -> None:
        """Move to a better footprint, if there is one."""
        table = self.reachable()
        table = table[is_feasible(self.instance, table)]
        lack, value = self._judge(table)
        gain = value < self._value * (1 - IMPROVEMENT) if np.isfinite(self._value) else np.isfinite(value)
        is_better = np.where(lack == self._lack, gain, lack < self._lack)
        self._is_done = not is_better.any()
        if not self._is_done:
            table, lack, value = table[is_better], lack[is_better], value[is_better]
            row = self.choose(table, lack, value)
            self.counts, self._lack, self._value = table[row], float(lack[row]), float(value[row])
            self.steps += 1

    def standing(self) -> SolverState:
        """Return the number of steps; infinite values are omitted."""
        return SolverState(iterations=self.steps)

    def finish(self, reason: Termination | None) -> IntArray:
        """Return the footprint."""
        return self.counts

    @property
    def lack(self) -> float:
        """The footprint's missing work and survival, see `lack_of`."""
        return self._lack

    @property
    def standard(self) -> tuple[float, float]:
        """The footprint's criteria: missing work and survival, then cost per work."""
        return self._lack, self._value

    def _judge(self, table: IntArray) -> tuple[FloatArray, FloatArray]:
        cost, work = evaluate_many(self.instance, table)
        ratio = np.asarray(np.divide(cost, work, out=np.full(len(cost), np.inf), where=work > 0))
        return lack_of(self.instance, table), ratio


class SteepestAdditions(LocalSearch):
    """Add instances of one bid at a time to the empty footprint, each time those that lower the cost per work most."""

    def __init__(self, instance: BiddingInstance) -> None:
        super().__init__(instance, np.zeros(instance.num_bids, dtype=np.int64))

    def reachable(self) -> IntArray:
        """Return the footprints with any number of instances of one more bid."""
        return _additions(self.instance, self.counts, _numbers)


class GreedySearch(SteepestAdditions):
    """Add instances of one bid at a time to the empty footprint, in increasing ratio of added cost to added work.

    Only additions that lower the cost per work count; among equal ratios, the addition that lowers it most is taken.
    """

    def reachable(self) -> IntArray:
        """Return the footprints with a power of two, or the maximal number, of instances of one more bid."""
        return _additions(self.instance, self.counts, _doubling)

    def choose(self, table: IntArray, lack: FloatArray, value: FloatArray) -> int:
        """Return the row of the addition with the least added cost per added work."""
        now = evaluate(self.instance, self.counts)
        cost, work = evaluate_many(self.instance, table)
        # Additions that only raise the survival probability may add no work.
        adds = work > now.work
        ratio = np.divide(cost - now.cost, work - now.work, out=np.full(len(cost), np.inf), where=adds)
        is_least = np.flatnonzero(ratio <= ratio.min() + IMPROVEMENT * abs(ratio.min()) if adds.any() else ~adds)
        return int(is_least[np.lexsort((value[is_least], lack[is_least]))[0]])


def neighbours(instance: BiddingInstance, counts: IntArray) -> IntArray:
    """Return all additions, removals and moves of a footprint, feasible or not, shape (footprints, bids)."""
    removed = [(j, -n) for j, count in enumerate(counts.tolist()) for n in _numbers(count)]
    return np.concatenate([_additions(instance, counts, _numbers), _applied(counts, removed), _moves(instance, counts)])


def lack_of(instance: BiddingInstance, table: IntArray) -> FloatArray:
    """Return the footprints' missing work plus their shortfall of survival, shape (footprints,)."""
    _, work = evaluate_many(instance, table)
    return np.asarray(np.maximum(0.0, instance.min_work - work) + shortfall(instance, table))


def is_feasible(instance: BiddingInstance, table: IntArray) -> BoolArray:
    """Return which of many footprints satisfy the caps, and the limit of one bid per market if there is one."""
    caps, bids = instance.caps, instance.bids
    fits = (table @ caps.weight.T <= caps.limit * (1.0 + CAP_TOL)).all(axis=1)
    if instance.one_bid_per_market and instance.num_bids:
        first = np.flatnonzero(np.diff(bids.market, prepend=-1))
        fits &= (np.add.reduceat((table > 0).astype(np.int64), first, axis=1) <= 1).all(axis=1)
    return np.asarray(fits)


def _additions(instance: BiddingInstance, counts: IntArray, numbers: Callable[[int], list[int]]) -> IntArray:
    residual = instance.bids.max_count - counts
    return _applied(counts, [(j, n) for j, most in enumerate(residual.tolist()) for n in numbers(most)])


def _doubling(most: int) -> list[int]:
    """Return powers of two below a number, and the number itself."""
    return [2**k for k in range(most.bit_length()) if 2**k < most] + [most] * (most > 0)


def _numbers(most: int) -> list[int]:
    """Return the numbers of instances to try, up to `most`."""
    return sorted({*range(1, min(most, MAX_STEPS) + 1), *_doubling(most)})


def _moves(instance: BiddingInstance, counts: IntArray) -> IntArray:
    residual = instance.bids.max_count - counts
    pairs = []
    for j in np.flatnonzero(counts).tolist():
        for i in np.flatnonzero(residual > 0).tolist():
            if i != j:
                count, space = int(counts[j]), int(residual[i])
                for take, give in {(1, 1), (count, min(count, space)), (count, space), (1, min(2, space))}:
                    pairs.append((j, take, i, min(give, space)))
    table = np.repeat(counts[None], len(pairs), axis=0)
    if pairs:
        source, take, target, give = np.array(sorted(pairs)).T
        rows = np.arange(len(pairs))
        table[rows, source] -= take
        table[rows, target] += give
    return table


def _applied(counts: IntArray, steps: list[tuple[int, int]]) -> IntArray:
    table = np.repeat(counts[None], len(steps), axis=0)
    if steps:
        bid, number = np.array(steps).T
        table[np.arange(len(steps)), bid] += number
    return table

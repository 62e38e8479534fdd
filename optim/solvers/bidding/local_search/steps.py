"""Footprints by steps: BidBrain's one-step additions, and exchanges between bids."""

from collections.abc import Callable

import numpy as np

from optim.models.bidding.cost_per_work import evaluate_many
from optim.models.bidding.instance import BiddingInstance, FloatArray, IntArray

MOST_STEPS = 64
"""Up to so many instances every number is tried; beyond, numbers double."""

IMPROVEMENT = 1e-12
"""Relative gain below which a step is none: rounding."""

Halt = Callable[[int], bool]
"""Asked with the number of steps whether to stop."""


def never(steps: int) -> bool:
    """Go on."""
    del steps
    return False


def greedy_counts(instance: BiddingInstance, halt: Halt = never) -> tuple[IntArray, int]:
    """Return the footprint that one-step additions lead to from nothing, and the number of steps.

    Each step adds the instances of one bid that lower the cost per work most; ties go to the first bid and the
    fewest instances. It ends when no addition lowers the cost per work.
    """
    counts = np.zeros(instance.num_bids, dtype=np.int64)
    key, steps = _keys(instance, counts[None])[0], 0
    while not halt(steps):
        table = _additions(instance, counts)
        best = _best(instance, table)
        if best is None or not _is_better(best[0], key):
            break
        key, counts = best
        steps += 1
    return counts, steps


def exchange_counts(instance: BiddingInstance, start: IntArray, halt: Halt = never) -> tuple[IntArray, int]:
    """Return a footprint that no addition, removal or exchange between two bids improves, and the number of steps.

    Every step takes the best move: any number of instances added to or removed from one bid, or one or all of a
    bid's instances, or as many as fit, moved to another bid.
    """
    counts = start.copy()
    key, steps = _keys(instance, counts[None])[0], 0
    while not halt(steps):
        best = _best(instance, neighbours(instance, counts))
        if best is None or not _is_better(best[0], key):
            break
        key, counts = best
        steps += 1
    return counts, steps


def neighbours(instance: BiddingInstance, counts: IntArray) -> IntArray:
    """Return all additions, removals and moves of a footprint, feasible or not, shape (footprints, bids)."""
    return np.concatenate([_additions(instance, counts), _removals(instance, counts), _moves(instance, counts)])


def is_feasible(instance: BiddingInstance, table: IntArray) -> FloatArray:
    """Tell which of many footprints keep the caps and the rule of one bid a market."""
    caps, bids = instance.caps, instance.bids
    fits = (table @ caps.weight.T <= caps.limit * (1 + 1e-12) + 1e-9).all(axis=1)
    if instance.one_bid_a_market and instance.num_bids:
        first = np.flatnonzero(np.diff(bids.market, prepend=-1))
        fits &= (np.add.reduceat((table > 0).astype(np.int64), first, axis=1) <= 1).all(axis=1)
    return np.asarray(fits)


def _keys(instance: BiddingInstance, table: IntArray) -> FloatArray:
    """Return what footprints are ranked by: work that is missing, then cost per work."""
    cost, work = evaluate_many(instance, table)
    ratio = np.divide(cost, work, out=np.full(len(cost), np.inf), where=work > 0)
    return np.column_stack([np.maximum(0.0, instance.min_work - work), ratio])


def _is_better(one: FloatArray, other: FloatArray) -> bool:
    if one[0] != other[0]:
        return bool(one[0] < other[0])
    return bool(one[1] < other[1] * (1 - IMPROVEMENT)) if np.isfinite(other[1]) else bool(np.isfinite(one[1]))


def _best(instance: BiddingInstance, table: IntArray) -> tuple[FloatArray, IntArray] | None:
    table = table[is_feasible(instance, table)]
    if not len(table):
        return None
    keys = _keys(instance, table)
    row = int(np.lexsort((np.arange(len(keys)), keys[:, 1], keys[:, 0]))[0])
    return keys[row], table[row]


def _numbers(most: int) -> list[int]:
    """Return numbers of instances worth trying, up to `most`."""
    if most <= MOST_STEPS:
        return list(range(1, most + 1))
    doubling = [2**k for k in range(int(most).bit_length()) if 2**k < most]
    return sorted({*range(1, MOST_STEPS + 1), *doubling, most})


def _additions(instance: BiddingInstance, counts: IntArray) -> IntArray:
    room = instance.bids.max_count - counts
    steps = [(j, n) for j in range(len(counts)) for n in _numbers(int(room[j]))]
    return _applied(counts, steps)


def _removals(instance: BiddingInstance, counts: IntArray) -> IntArray:
    steps = [(j, -n) for j in np.flatnonzero(counts).tolist() for n in _numbers(int(counts[j]))]
    return _applied(counts, steps)


def _moves(instance: BiddingInstance, counts: IntArray) -> IntArray:
    room = instance.bids.max_count - counts
    pairs = []
    for j in np.flatnonzero(counts).tolist():
        for i in np.flatnonzero(room > 0).tolist():
            if i != j:
                held, space = int(counts[j]), int(room[i])
                for take, give in {(1, 1), (held, min(held, space)), (held, space), (1, min(2, space))}:
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

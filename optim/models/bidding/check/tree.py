"""What a tree proves about the cost per work: its leaves cover all footprints, and each bounds its part."""

import math
from functools import partial

import numpy as np

from optim.core.counters import MOST
from optim.core.descent import Descent
from optim.core.limits import Effort
from optim.core.recomputed import is_finite
from optim.core.verification import Violation, violation
from optim.models.bidding.check.facts import Facts, held_work, least_rate_for
from optim.models.bidding.check.lasting import CheckedCovers, checked_covers
from optim.models.bidding.check.leaf import LARGEST, CheckedBox, check_form, leaf_bound
from optim.models.bidding.proof import CHANGE, RATE, THETA, RatioProof, TreeNode

ANY, UNCHANGED, CHANGED = (0.0, math.inf), (0, 0), (1, math.inf)
VECTOR = 16
"""Bids that are gone over in a step."""


def proven_bound(facts: Facts, proof: RatioProof) -> tuple[float | None, list[Violation]]:
    """Return the bound that a proof gives, None with what is wrong with it."""
    instance = facts.instance
    if not (is_finite(proof.ratio) and 0 <= proof.ratio <= LARGEST):
        text = f"the ratio must be a number from 0 to {LARGEST:g}, got {proof.ratio!r}"
        return None, [violation("certificate", text)]
    if proof.ratio == 0:
        return 0.0, []  # costs are never negative
    least_work = max(held_work(instance), _least_cost(facts) / proof.ratio * (1.0 - 1e-12))
    least, wrong = _tree_bound(facts, proof, least_rate_for(instance.scalability, least_work))
    if wrong:
        return None, wrong
    if least >= 0:
        return proof.ratio, []
    if least_work <= 0:
        return 0.0, []
    return max(0.0, proof.ratio + least / least_work), []


def _least_cost(facts: Facts) -> float:
    """Return what every footprint that does any work costs: without machines of its own it takes an instance."""
    instance = facts.instance
    bids = instance.bids
    taken = facts.unit_cost[(bids.max_count > 0) & (bids.rate > 0) & facts.alive.any(axis=1)]
    is_idle = instance.fixed_rate == 0 and len(taken) > 0
    return instance.fixed_usd + (float(taken.min()) if is_idle else 0.0)


def _tree_bound(facts: Facts, proof: RatioProof, least_rate: float) -> tuple[float, list[Violation]]:
    """Return the least bound of the tree's leaves; its splits must cover all footprints."""
    if not proof.nodes:
        return -math.inf, [violation("certificate", "the tree has no node")]
    covers = checked_covers(facts.instance, proof.covers)
    if not isinstance(covers, CheckedCovers):
        return -math.inf, [covers]
    for x in proof.multipliers:
        wrong = check_form(facts, x, len(proof.covers))
        if wrong is not None:
            return -math.inf, [wrong]
    least, path = math.inf, _Path(facts)
    for visits, number in enumerate(path.walk, start=1):
        if not 0 <= number < len(proof.nodes) or visits > len(proof.nodes):
            return -math.inf, [violation("certificate", "the tree has a child that isn't there, or a circle")]
        node = proof.nodes[number]
        if node.bid is None:
            if not 0 <= node.multipliers < len(proof.multipliers):
                return -math.inf, [violation("certificate", f"there are no multipliers {node.multipliers}")]
            x = proof.multipliers[node.multipliers]
            least = min(least, leaf_bound(facts, path.box(), x, proof.ratio, least_rate, covers))
        elif not path.split(node):
            text = f"nodes[{number}]: the tree splits by bid {node.bid} at {node.value}, which can't be"
            return -math.inf, [violation("certificate", text)]
    return least, []


class _Path:
    """The box of the node that a walk is at; a condition is a range (least, most), of a split by change (0, 0) or (1, inf)."""

    def __init__(self, facts: Facts) -> None:
        self._facts, bids = facts, facts.instance.bids
        self._low, self._high = np.zeros(len(bids), dtype=np.int64), bids.max_count.copy()
        self.walk = Descent[int, tuple[float, float]](Effort("the tree"), self._hear)

    def box(self) -> CheckedBox:
        """Return the box."""
        said, bids = self.walk.conditions, self._facts.instance.bids
        self.walk.effort.spend(1 + len(bids) // VECTOR)
        change = said.get(CHANGE)
        has_change = (change == CHANGED if change is not None else None) if bids.is_new.any() else False
        high = np.where(bids.is_new, np.minimum(self._high, 0), self._high) if change == UNCHANGED else self._high
        return CheckedBox(
            low=self._low, high=high, has_change=has_change, theta=said.get(THETA, ANY), rate=said.get(RATE, ANY)
        )

    def split(self, node: TreeNode) -> bool:
        """Have both children of a node visited; return whether it can be split so."""
        bids, at, bid = self._facts.instance.bids, node.value, node.bid
        parts: tuple[tuple[float, float], tuple[float, float]]
        if bid == CHANGE:
            if CHANGE in self.walk.conditions or not bids.is_new.any():
                return False
            parts = UNCHANGED, CHANGED
        elif bid in (THETA, RATE):
            if not (self._facts.has_common_loss and 0 <= at <= LARGEST):
                return False
            parts = (0.0, at), (at, math.inf)
        elif bid is not None and 0 <= bid < len(bids) and abs(at) <= MOST and at == int(at):
            parts = (0, int(at)), (int(at) + 1, int(bids.max_count[bid]))
        else:
            return False
        for child, part in zip((node.low, node.high), parts, strict=True):
            self.walk.add(child, bid, partial(_within, part))
        return True

    def _hear(self, bid: int, part: tuple[float, float] | None) -> None:
        """Note a bid's range in the box."""
        if bid >= 0:
            self._low[bid], self._high[bid] = _within(part or ANY, (0, int(self._facts.instance.bids.max_count[bid])))


def _within(part: tuple[float, float], before: tuple[float, float] | None) -> tuple[float, float]:
    """Return what both allow."""
    return part if before is None else (max(part[0], before[0]), min(part[1], before[1]))

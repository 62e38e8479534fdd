"""What a tree proves about the cost per work: its leaves cover all footprints, and each bounds its part."""

import math
from dataclasses import replace

import numpy as np

from optim.core.counters import MOST
from optim.core.recomputed import is_finite
from optim.core.verification import Violation, violation
from optim.models.bidding.check.facts import Facts, held_work, least_rate_for
from optim.models.bidding.check.lasting import CheckedCovers, checked_covers
from optim.models.bidding.check.leaf import LARGEST, CheckedBox, check_form, leaf_bound
from optim.models.bidding.proof import CHANGE, RATE, THETA, RatioProof, TreeNode


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
    bids = facts.instance.bids
    size = len(bids)
    root = CheckedBox(low=np.zeros(size, dtype=np.int64), high=bids.max_count, has_change=None)
    if not bids.is_new.any():
        root = CheckedBox(low=root.low, high=root.high, has_change=False)
    if not proof.nodes:
        return -math.inf, [violation("certificate", "the tree has no node")]
    covers = checked_covers(facts.instance, proof.covers)
    if not isinstance(covers, CheckedCovers):
        return -math.inf, [covers]
    for x in proof.multipliers:
        wrong = check_form(facts, x, len(proof.covers))
        if wrong is not None:
            return -math.inf, [wrong]
    least, pending, visits = math.inf, [(0, root)], 0
    while pending:
        number, box = pending.pop()
        visits += 1
        if not 0 <= number < len(proof.nodes) or visits > len(proof.nodes):
            return -math.inf, [violation("certificate", "the tree has a child that isn't there, or a circle")]
        node = proof.nodes[number]
        if node.bid is None:
            if not 0 <= node.multipliers < len(proof.multipliers):
                return -math.inf, [violation("certificate", f"there are no multipliers {node.multipliers}")]
            x = proof.multipliers[node.multipliers]
            least = min(least, leaf_bound(facts, box, x, proof.ratio, least_rate, covers))
        else:
            parts = _split(facts, box, node)
            if parts is None:
                text = f"nodes[{number}]: the tree splits by bid {node.bid} at {node.value}, which can't be"
                return -math.inf, [violation("certificate", text)]
            pending += zip((node.low, node.high), parts, strict=True)
    return least, []


def _split(facts: Facts, box: CheckedBox, node: TreeNode) -> tuple[CheckedBox, CheckedBox] | None:
    """Return the parts of a box, None if it can't be split so."""
    bids, at = facts.instance.bids, node.value
    if node.bid == CHANGE and box.has_change is None:
        unchanged = np.where(bids.is_new, 0, box.high)
        return replace(box, high=unchanged, has_change=False), replace(box, has_change=True)
    if node.bid in (THETA, RATE) and not (facts.has_common_loss and 0 <= at <= LARGEST):
        return None
    if node.bid == THETA:
        low, high = box.theta
        return replace(box, theta=(low, min(high, at))), replace(box, theta=(max(low, at), high))
    if node.bid == RATE:
        low, high = box.rate
        return replace(box, rate=(low, min(high, at))), replace(box, rate=(max(low, at), high))
    if node.bid is not None and 0 <= node.bid < len(bids) and abs(at) <= MOST and at == int(at):
        least, most = box.low.copy(), box.high.copy()
        most[node.bid] = min(most[node.bid], at)
        least[node.bid] = max(least[node.bid], at + 1)
        return replace(box, high=most), replace(box, low=least)
    return None

"""What is done at an open box: its counts are rounded to footprints, and it is split by a sum or by a bid."""

from dataclasses import dataclass

import numpy as np

from optim.models.bidding.instance import BiddingInstance, FloatArray, IntArray
from optim.models.bidding.proof import RATE, THETA
from optim.solvers.bidding.tree.box import CAP_TOL, Box
from optim.solvers.bidding.tree.node_lp import LpPoint
from optim.solvers.bidding.tree.relaxation import Relaxation

INTEGRAL_TOL = 1e-6

STAKE = 0.02
"""A box is split by whether a bid is taken if the relaxation saves more than this share of the gap by taking it partly."""


@dataclass(frozen=True, kw_only=True, eq=False)
class OpenBox:
    """A box that may hold something better, its relaxation's answer, and its place in the tree."""

    box: Box
    node: int
    multipliers: int
    bound: float
    relaxation: Relaxation
    point: LpPoint
    charge: FloatArray


def choose_sum(instance: BiddingInstance, ratio: float, missing: float, entry: OpenBox) -> tuple[int, float] | None:
    """Return theta or the sum of rates and where to split it, if their envelope overlooks much of the gap."""
    e = entry.relaxation.envelope
    if e is None or not e.is_curved:
        return None
    theta, total, lost = entry.point.sums
    (low, high), (first, last) = e.theta, e.loss
    share = -instance.eviction_loss_h * float(np.expm1(-theta))
    overlooked = share * total - lost
    slope = float(instance.scalability.slope(np.maximum(entry.point.rates, 0.0))[0])
    if ratio * slope * overlooked <= STAKE * missing:
        return None
    by_chord = (share - first - (theta - low) * (last - first) / (high - low)) * total
    by = THETA if by_chord > 0.5 * overlooked else RATE
    at, (low, high) = (theta, e.theta) if by == THETA else (total, e.rate)
    return by, float(np.clip(at, 0.9 * low + 0.1 * high, 0.1 * low + 0.9 * high))


def choose_bid(missing: float, entry: OpenBox) -> tuple[int | None, int]:
    """Return the bid to split by and where: a broken count first, then an undecided bid, then any."""
    relaxation, counts = entry.relaxation, entry.point.counts
    low, high = entry.box.low[relaxation.active], entry.box.high[relaxation.active]
    counts = np.clip(counts, low, high)
    share = counts / np.maximum(high, 1)
    undecided = (low == 0) & (counts > INTEGRAL_TOL) & (share < 1.0 - INTEGRAL_TOL)
    stake = np.where(undecided, entry.charge * (1.0 - share), 0.0)
    if relaxation.has_indicators and stake.max(initial=0.0) > STAKE * missing:
        return int(relaxation.active[int(stake.argmax())]), 0
    broken = np.abs(counts - np.rint(counts))
    if broken.max(initial=0.0) > INTEGRAL_TOL:
        j = int((broken * (1.0 + np.abs(relaxation.cost))).argmax())
        return int(relaxation.active[j]), int(np.floor(counts[j]))
    if undecided.any():
        j = int(np.where(undecided, 1.0 - share, 0.0).argmax())
        return int(relaxation.active[j]), 0
    free = np.flatnonzero(low < high)
    if not len(free):
        return None, 0
    j = int(free[int((high - low)[free].argmax())])
    whole = int(np.rint(counts[j]))
    return int(relaxation.active[j]), whole if whole < high[j] else whole - 1


def rounded(instance: BiddingInstance, relaxation: Relaxation, point: LpPoint) -> IntArray:
    """Return the relaxation's counts rounded in three ways, cut down to the caps, shape (3, bids)."""
    caps, active = instance.caps, relaxation.active
    rounded_counts = []
    for counts in (np.floor(point.counts + INTEGRAL_TOL), np.rint(point.counts), np.ceil(point.counts - 1e-3)):
        full = np.zeros(instance.num_bids, dtype=np.int64)
        full[active] = np.clip(counts, relaxation.low, relaxation.high)
        for j in active[np.argsort(point.counts, kind="stable")]:
            over = caps.weight @ full - caps.limit
            too_much = over > CAP_TOL * caps.limit
            if not too_much.any():
                break
            weight = caps.weight[:, j]
            drop = np.where(too_much & (weight > 0), np.ceil(over / np.where(weight > 0, weight, 1.0)), 0)
            full[j] -= min(int(full[j]), int(drop.max()))
        rounded_counts.append(full)
    return np.array(rounded_counts)

"""Small bidding instances, by Hypothesis or by a seed, and the best footprint by enumeration."""

from dataclasses import replace
from itertools import product

import numpy as np
from hypothesis import strategies as st

from optim.models.bidding.cost_per_work import evaluate_many
from optim.models.bidding.data import (
    Bids,
    Caps,
    CurveKind,
    EvictionTerm,
    HourOutlook,
    Scalability,
    ScenarioOutlook,
    SurvivalConstraint,
)
from optim.models.bidding.instance import BiddingInstance
from optim.models.bidding.market.lifetimes import CommonShocks

CURVES = (
    Scalability(),
    Scalability.amdahl(0.05),
    Scalability(kind=CurveKind.USL, serial=0.05, crosstalk=0.01),
    Scalability(kind=CurveKind.POINTS, points=((2.0, 2.0), (5.0, 4.0), (9.0, 5.0))),
)


def published_vector() -> BiddingInstance:
    """Four bids under a cap of 12 and G(V) = V / (1 + 0.05 V): the best footprint is (6, 0, 0, 5)."""
    return hour_instance(
        market=[0, 1, 2, 3],
        cost=[0.045, 0.0945, 0.06, 0.12],
        work=[0.679167, 0.9725, 0.70, 1.5],
        max_count=6,
        cap=12,
        fixed_usd=0.63,
        scalability=Scalability(kind=CurveKind.SATURATING, serial=0.05, base=1.0),
    )


def hour_instance(
    market,
    cost,
    work,
    *,
    evicted=None,
    max_count=6,
    cap=None,
    term=EvictionTerm.PER_BID,
    name="small",
    delta=None,
    **fields,
) -> BiddingInstance:
    """Return a one-hour instance; `work` is the rate, and usable time is an hour, unless evictions are given."""
    market = np.array(market, dtype=np.int64)
    size = len(market)
    evicted = np.zeros(size) if evicted is None else np.array(evicted, dtype=np.float64)
    delta = [int((market[:j] == market[j]).sum()) * 1000 for j in range(size)] if delta is None else delta
    is_new = fields.pop("is_new", np.zeros(size, dtype=bool))
    return BiddingInstance(
        name=name,
        markets=tuple(f"m{m}" for m in range(int(market.max(initial=-1)) + 1)),
        bids=Bids(
            market=market,
            delta_micro=np.array(delta, dtype=np.int64),
            rate=np.array(work, dtype=np.float64),
            max_count=np.full(size, max_count, dtype=np.int64) if np.isscalar(max_count) else np.array(max_count),
            is_new=is_new,
        ),
        outlook=HourOutlook(
            price_usd=np.array(cost, dtype=np.float64),
            evicted=evicted,
            usable_h=np.array(fields.pop("usable_h", np.ones(size)), dtype=np.float64),
            hours=np.ones(size),
            term=term,
        ),
        caps=Caps(names=(), weight=np.zeros((0, size)), limit=np.zeros(0))
        if cap is None
        else Caps(names=("instances",), weight=np.ones((1, size)), limit=np.array([float(cap)])),
        **fields,
    )


def drawn(seed: int) -> BiddingInstance:
    """Return a small instance of any form by a seed."""
    rng = np.random.default_rng(seed)
    per_market = rng.integers(1, 3, size=int(rng.integers(1, 4)))
    market = np.repeat(np.arange(len(per_market)), per_market)
    size = len(market)
    is_new = rng.random(size) < 0.7
    fields = {
        "fixed_usd": float(rng.choice([0.0, 0.3, 0.63])),
        "fixed_rate": float(rng.choice([0.0, 0.5])),
        "scalability": CURVES[rng.integers(len(CURVES))],
        "eviction_loss_h": float(rng.choice([0.0, 0.1, 0.2])),
        "change_loss_h": float(rng.choice([0.0, 0.05])),
        "one_bid_per_market": bool(rng.random() < 0.3),
    }
    max_count = rng.integers(0, 4, size=size)
    cap = int(rng.integers(1, 8)) if rng.random() < 0.7 else None
    rate = rng.choice([0.25, 0.5, 1.0, 2.0], size=size)
    price = rng.uniform(0.02, 0.2, size=size)
    if rng.random() < 0.5:
        evicted = -np.sort(-rng.uniform(0, 0.8, size=size))
        usable = np.clip(1 - evicted * rng.uniform(0.3, 0.9), 0, 1)
        term = EvictionTerm(rng.choice([term.value for term in EvictionTerm]))
        return hour_instance(
            market, price, rate, evicted=evicted, usable_h=usable, max_count=max_count, cap=cap, term=term,
            is_new=is_new, name=f"hour-{seed}", **fields,
        )  # fmt: skip
    base = hour_instance(
        market, price, rate, max_count=max_count, cap=cap, is_new=is_new, name=f"windows-{seed}", **fields
    )
    windows, slots = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    length = slots * (3600 // slots)
    end = np.where(rng.random((size, windows)) < 0.5, rng.integers(0, length, size=(size, windows)), length)
    for j in range(1, size):
        if market[j] == market[j - 1]:
            end[j] = np.maximum(end[j], end[j - 1])
    is_out = end < length
    charge = np.where(is_out, 0, rng.integers(20_000, 200_000, size=(size, windows)))
    weight = rng.random(windows) + 0.1
    outlook = ScenarioOutlook(
        weight=weight / weight.sum(),
        slot_s=3600 // slots,
        num_slots=slots,
        ready_s=int(rng.choice([0, 180])),
        charge_micro=charge,
        evicted_s=np.where(is_out, end, -1),
    )
    return BiddingInstance(
        name=base.name, markets=base.markets, bids=base.bids, outlook=outlook, caps=base.caps, **fields
    )


small_instances = st.integers(0, 10**6).map(drawn)


def varied(seed: int) -> BiddingInstance:
    """Return a small instance by a seed, with more features: two caps, minimum work, no fixed cost, losses for all allocations."""
    rng = np.random.default_rng([seed, 1])
    instance = drawn(seed)
    if rng.random() < 0.4:
        weight = rng.choice([0.0, 0.5, 1.0, 2.0], size=(2, instance.num_bids))
        instance = replace(instance, caps=Caps(names=("one", "two"), weight=weight, limit=rng.uniform(0, 6, 2)))
    if rng.random() < 0.4:
        instance = replace(instance, fixed_usd=0.0)
    if rng.random() < 0.4 and isinstance(instance.outlook, HourOutlook):
        usable = np.clip(instance.outlook.usable_h, 0.5, 1.0)
        term = EvictionTerm(rng.choice(["any-bid", "per-market"]))
        instance = replace(instance, outlook=replace(instance.outlook, term=term, usable_h=usable))
    if rng.random() < 0.5:
        _, work = evaluate_many(instance, all_footprints(instance))
        instance = replace(instance, min_work=float(rng.choice([0.3, 0.6, 0.9, 1.0]) * work.max()))
    return instance


varied_instances = st.integers(0, 10**6).map(varied)


def all_footprints(instance: BiddingInstance) -> np.ndarray:
    """Return every footprint that keeps the caps and the rule of one bid per market."""
    ranges = [range(int(most) + 1) for most in instance.bids.max_count]
    table = np.array(list(product(*ranges)), dtype=np.int64).reshape(-1, instance.num_bids)
    fits = (table @ instance.caps.weight.T <= instance.caps.limit + 1e-9).all(axis=1)
    if instance.one_bid_per_market:
        for m in range(len(instance.markets)):
            fits &= (table[:, instance.bids.market == m] > 0).sum(axis=1) <= 1
    return table[fits]


def best_of_all(instance: BiddingInstance) -> float:
    """Return the lowest cost per work of any footprint with enough work, infinity where there is none."""
    cost, work = evaluate_many(instance, all_footprints(instance))
    is_answer = (work > 0) & (work >= instance.min_work * (1 - 1e-12))
    return float(np.where(is_answer, cost / np.where(work > 0, work, 1.0), np.inf).min())


def with_survival(seed: int) -> BiddingInstance:
    """Return a small instance by a seed with a chance constraint on capacity, and shocks by market, zone and region."""
    rng, instance = np.random.default_rng([seed, 7]), varied(seed)
    size = len(instance.markets)
    num_zones = int(rng.integers(1, size + 1))
    num_regions = int(rng.integers(1, num_zones + 1))
    shocks = CommonShocks(
        zone=rng.integers(0, num_zones, size),
        region=rng.integers(0, num_regions, num_zones),
        own=rng.uniform(0, 0.6, size),
        by_zone=rng.uniform(0, 0.3, num_zones) * (rng.random() < 0.8),
        by_region=rng.uniform(0, 0.2, num_regions) * (rng.random() < 0.8),
    )
    asked = SurvivalConstraint(
        shocks=shocks,
        capacity=rng.choice([0, 1, 1, 2, 4], instance.num_bids),
        min_capacity=int(rng.integers(1, 6)),
        probability=float(rng.choice([0.3, 0.5, 0.7, 0.8])),
    )
    return replace(instance, survival=asked)


def outcomes(shocks: CommonShocks) -> tuple[np.ndarray, np.ndarray]:
    """Return which markets survive each combination of shocks, one row per combination, and the probability of each."""
    causes = np.concatenate([shocks.own, shocks.by_zone, shocks.by_region])
    first_zone, first_region = len(shocks.own), len(shocks.own) + len(shocks.by_zone)
    struck = np.array(list(product((False, True), repeat=len(causes))))
    chance = np.where(struck, 1 - np.exp(-causes), np.exp(-causes)).prod(axis=1)
    by_zone, by_region = struck[:, first_zone + shocks.zone], struck[:, first_region + shocks.region[shocks.zone]]
    return ~(struck[:, : len(shocks.own)] | by_zone | by_region), chance


def kept_by_outcomes(instance: BiddingInstance, table: np.ndarray) -> np.ndarray:
    """Return each footprint's probability of keeping the minimum capacity, summed over all outcomes."""
    asked, (lasts, chance) = instance.survival, outcomes(instance.survival.shocks)
    return ((table * asked.capacity) @ lasts[:, instance.bids.market].T >= asked.min_capacity) @ chance


def footprints_that_keep_enough(instance: BiddingInstance) -> np.ndarray:
    """Return every footprint that satisfies the caps, the limit of one bid per market, and the chance constraint."""
    table = all_footprints(instance)
    return table[kept_by_outcomes(instance, table) >= instance.survival.probability - 1e-9]


def best_that_lasts(instance: BiddingInstance) -> float:
    """Return the lowest cost per work under the chance constraint, infinity if no footprint satisfies it."""
    cost, work = evaluate_many(instance, footprints_that_keep_enough(instance))
    is_answer = (work > 0) & (work >= instance.min_work * (1 - 1e-12))
    return float(np.where(is_answer, cost / np.where(work > 0, work, 1.0), np.inf).min(initial=np.inf))

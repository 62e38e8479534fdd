"""Leaves of trees, boxes and curves as the checker proves them."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optim
from optim.models.bidding.check.exact_instance import VerifierContext, check_curve, footprint_value
from optim.models.bidding.check.tree import CheckedBox, check_form, leaf_bound, proven_bound
from optim.models.bidding.cost_per_work import evaluate_many, survival
from optim.models.bidding.data import EvictionTerm
from optim.models.bidding.decision import RATE, THETA, Multipliers, RatioProof, TreeNode
from tests.support.bidding.small_markets import all_footprints, hour_instance, published_vector, varied_instances

seeds = st.integers(0, 10**6)


def multipliers_of(facts, rng):
    """Draw multipliers of any size and sign that are allowed."""
    instance = facts.instance
    cells, size = len(facts.cell_weight), instance.num_bids
    entries = int(rng.integers(0, 6)) if size else 0
    x = Multipliers(
        point=rng.uniform(0, 12, cells),
        eviction=rng.uniform(0, 1, cells) * rng.integers(0, 2),
        attribution_cell=rng.integers(0, cells, entries),
        attribution_bid=rng.integers(0, size, entries),
        attribution=rng.uniform(0, 1, entries),
        cap=rng.uniform(0, 0.2, len(instance.caps.limit)),
        work=float(rng.uniform(0, 0.3) * rng.integers(0, 2)),
    )
    if not facts.has_common_loss:
        return x
    return replace(
        x,
        lost_by_rate=float(rng.uniform(0, 0.3)),
        lost_by_theta=float(rng.uniform(0, 1)),
        theta=float(rng.uniform(-0.2, 0.2) * rng.integers(0, 2)),
        rate=float(rng.uniform(-0.1, 0.1) * rng.integers(0, 2)),
    )


def box_of(facts, rng):
    """Draw a box, with ranges of theta and of the sum of rates where they count."""
    bids = facts.instance.bids
    low = np.minimum(rng.integers(0, 2, len(bids)) * rng.integers(0, 2), bids.max_count)
    high = np.minimum(bids.max_count, low + rng.integers(0, 4, len(bids)))
    change = bool(rng.random() < 0.7) if bids.is_new.any() else False
    if not change:
        low, high = np.where(bids.is_new, 0, low), np.where(bids.is_new, 0, high)
    box = CheckedBox(low=low, high=high, has_change=change)
    if facts.has_common_loss and rng.random() < 0.7:
        box = replace(box, theta=tuple(np.sort(rng.uniform(0, 4, 2)).tolist()))
        box = replace(box, rate=tuple(np.sort(rng.uniform(0, 9, 2)).tolist()))
    return box


def inside_of(facts, box):
    """Return the answers in a box: footprints, their costs and their work."""
    instance, table = facts.instance, all_footprints(facts.instance)
    inside = ((table >= box.low) & (table <= box.high)).all(axis=1)
    has_new = (table[:, instance.bids.is_new] > 0).any(axis=1)
    inside &= has_new if box.has_change else ~has_new
    if facts.has_common_loss:
        theta = -np.log(np.maximum(survival(instance, instance.outlook, table), 1e-12))
        rate = instance.fixed_rate + table @ instance.bids.rate
        inside &= (box.theta[0] <= theta) & (theta <= box.theta[1]) & (box.rate[0] <= rate) & (rate <= box.rate[1])
    cost, work = evaluate_many(instance, table)
    inside &= (work > 0) & (work >= instance.min_work)
    return table[inside], cost[inside], work[inside]


@given(instance=varied_instances, seed=seeds)
def test_any_multipliers_bound_every_footprint_of_a_box(instance, seed):
    """The core of every proof: for arbitrary numbers, the proven bound is valid."""
    facts, rng = VerifierContext(instance=instance), np.random.default_rng(seed)
    x, box = multipliers_of(facts, rng), box_of(facts, rng)
    assert check_form(facts, x) is None
    _, cost, work = inside_of(facts, box)
    ratio = float(rng.uniform(0, 0.5))
    assert (cost - ratio * work >= leaf_bound(facts, box, x, ratio, 0.0) - 1e-9).all()


@given(instance=varied_instances, seed=seeds)
def test_a_smaller_box_never_proves_less(instance, seed):
    """So a leaf may keep the multipliers of a larger box, even if the smaller box contains no footprint."""
    facts, rng = VerifierContext(instance=instance), np.random.default_rng(seed)
    x, outer, ratio = multipliers_of(facts, rng), box_of(facts, rng), float(rng.uniform(0, 0.5))
    x = replace(
        x, attribution=x.attribution[:0], attribution_cell=x.attribution_cell[:0], attribution_bid=x.attribution_bid[:0]
    )
    low = np.minimum(outer.low + rng.integers(0, 2, instance.num_bids), outer.high)
    inner = replace(outer, low=low, high=np.maximum(low, outer.high - rng.integers(0, 2, instance.num_bids)))
    assert leaf_bound(facts, inner, x, ratio, 0.0) >= leaf_bound(facts, outer, x, ratio, 0.0) - 1e-9
    if not len(inside_of(facts, inner)[0]) and (inner.low == inner.high).all():
        assert leaf_bound(facts, replace(inner, theta=(0.0, np.inf), rate=(0.0, np.inf)), x, ratio, 0.0) is not None


def two_bids(term=EvictionTerm.ANY_BID, **fields):
    """Return two bids with losses for all allocations: theta is 0.693 with the first, 0.288 more with the second."""
    return hour_instance(
        [0, 1], [0.1, 0.2], [1.0, 2.0], evicted=[0.5, 0.25], max_count=3, term=term, fixed_usd=0.3,
        eviction_loss_h=0.2, **fields,
    )  # fmt: skip


def nothing(facts, **fields):
    """Return multipliers of 0, but for some."""
    cells, none = np.zeros(len(facts.cell_weight)), np.zeros(0, dtype=np.int64)
    zeros = {
        "attribution_cell": none,
        "attribution_bid": none,
        "attribution": np.zeros(0),
        "cap": 0 * facts.instance.caps.limit,
    }
    return Multipliers(point=cells, eviction=cells, **zeros, **fields)


def test_a_box_of_one_footprint_is_worth_what_the_footprint_is():
    facts = VerifierContext(instance=two_bids())
    counts = np.array([2, 1])
    cost, work = footprint_value(facts, [2, 1])
    box = CheckedBox(low=counts, high=counts, has_change=False)
    assert leaf_bound(facts, box, nothing(facts), 0.1, 0.0) == pytest.approx(cost - 0.1 * work, rel=1e-12)
    asking = VerifierContext(instance=two_bids(min_work=work * 1.01))
    assert leaf_bound(asking, box, nothing(asking), 0.1, 0.0) == np.inf


def test_a_plane_below_the_loss_is_exact_at_a_corner_of_its_box():
    """K = 5, theta = 0.288 to 0.981: with counts (.., 2) the loss is 0.2 (1 - exp(-theta)) K at both ends."""
    facts = VerifierContext(instance=two_bids())
    box = CheckedBox(low=np.array([0, 2]), high=np.array([1, 2]), has_change=False)
    least, most = -np.log(0.75), -np.log(0.375)
    slope = 4.0 * 0.2 * (0.75 - 0.375) / (most - least)  # the lower plane: the chord, at the least rate
    x = nothing(facts, lost_by_rate=0.2 * 0.25, lost_by_theta=slope)
    bound = leaf_bound(facts, box, x, 0.1, 0.0)
    values = [cost - 0.1 * work for cost, work in (footprint_value(facts, counts) for counts in ([0, 2], [1, 2]))]
    assert bound <= min(values)
    assert bound == pytest.approx(min(values), abs=0.02)
    assert leaf_bound(facts, box, nothing(facts), 0.1, 0.0) < bound - 0.01


def test_where_a_bid_has_less_time_than_the_loss_only_what_is_lost_for_certain_is_taken_off():
    """Of 12 minutes' loss a quarter is certain: the first bid's 6 minutes may not be clamped at 0 for the second's gain."""
    instance = hour_instance(
        [0, 1], [0.1, 0.2], [1.0, 2.0], evicted=[0.5, 0.25], usable_h=[0.1, 1.0], max_count=3, term=EvictionTerm.ANY_BID,
        fixed_usd=0.3, eviction_loss_h=0.2,
    )  # fmt: skip
    facts = VerifierContext(instance=instance)
    box = CheckedBox(low=np.array([0, 1]), high=np.array([1, 1]), has_change=False)
    values = [cost - 0.1 * work for cost, work in (footprint_value(facts, counts) for counts in ([0, 1], [1, 1]))]
    sure = leaf_bound(facts, box, nothing(facts, lost_by_rate=0.05), 0.1, 0.0)
    assert leaf_bound(facts, box, nothing(facts), 0.1, 0.0) < sure <= min(values)
    assert leaf_bound(facts, box, nothing(facts, lost_by_rate=0.2), 0.1, 0.0) == pytest.approx(sure, rel=1e-12)


def test_prices_of_sums_are_refused_where_evictions_are_ones_own_loss():
    facts = VerifierContext(instance=two_bids(EvictionTerm.PER_BID))
    for field in ("lost_by_rate", "lost_by_theta", "theta", "rate"):
        assert check_form(facts, nothing(facts, **{field: 0.1})) is not None
    assert check_form(facts, nothing(facts, work=0.1)) is None
    assert check_form(facts, nothing(facts, work=-0.1)) is not None


@pytest.mark.parametrize("by", [THETA, RATE])
def test_a_tree_may_be_split_by_sums_only_where_losses_are_everybodys(by):
    nodes = (TreeNode(bid=by, value=0.5, low=1, high=2), TreeNode(), TreeNode())
    for term in (EvictionTerm.ANY_BID, EvictionTerm.PER_BID):
        facts = VerifierContext(instance=two_bids(term))
        proof = RatioProof(ratio=0.01, nodes=nodes, multipliers=(nothing(facts),))
        assert (proven_bound(facts, proof)[0] is None) == (term is EvictionTerm.PER_BID)


def test_an_empty_range_holds_no_footprint():
    facts = VerifierContext(instance=two_bids())
    box = CheckedBox(low=np.zeros(2, dtype=np.int64), high=np.array([3, 3]), has_change=False)
    assert leaf_bound(facts, replace(box, theta=(2.0, 1.0)), nothing(facts), 0.1, 0.0) == np.inf
    assert leaf_bound(facts, replace(box, rate=(9.5, 99.0)), nothing(facts), 0.1, 0.0) == np.inf
    assert leaf_bound(facts, replace(box, rate=(8.5, 99.0)), nothing(facts), 0.1, 0.0) < np.inf


@cache
def traced(name="published"):
    instance = published_vector() if name == "published" else optim.reference_instance(name)
    return instance, optim.solve(instance, "frontier")


def refused(changes=None, *, without=(), name="published"):
    """Return the violated rows after some counters are changed or left out."""
    instance, solution = traced(name)
    counts = {**solution.stats.counts, **(changes or {})}
    counts = {key: value for key, value in counts.items() if key not in without}
    given = replace(solution, stats=replace(solution.stats, counts=counts))
    return [found.row for found in optim.verify(instance, given).violations]


def last() -> int:
    return int(traced()[1].stats.counts["points"]) - 1


@pytest.mark.parametrize(
    "name",
    [
        "published",
        *(pytest.param(f"spot-tiny-{one}", marks=pytest.mark.prove) for one in ("any", "market", "windows")),
    ],
)
def test_a_traced_curve_is_accepted(name):
    _, solution = traced(name)
    assert solution.stats.counts["points"] > 1
    assert refused(name=name) == []


def test_points_are_as_many_as_are_said():
    assert last() > 3
    assert refused({"points": 2.0}) == refused({"points": last() + 2.0}) == ["counts [points]"]
    assert refused(without=["points"]) == refused({"points": 0.0}) == ["counts [points]"]
    assert refused({f"cost_{last() + 1}": 1.0}) == ["counts [points]"]
    assert refused(without=["work_2"]) == ["counts [points]"]
    assert refused(without=["cost_2", "work_2"]) == ["counts [points]"]


def test_costs_and_works_are_those_that_footprints_can_have():
    end = last()
    assert refused({f"cost_{end}": 0.01}) == [f"counts [cost_{end}]"]
    assert refused({f"cost_{end}": 1e6}) == [f"counts [cost_{end}]"]
    assert refused({f"work_{end}": 1e6}) == [f"counts [work_{end}]"]
    assert refused({"work_0": -1.0}) == ["counts [work_0]"]


def test_more_work_costs_more():
    counts = traced()[1].stats.counts
    assert refused({"cost_1": counts["cost_2"] + 1e-6}) == ["counts [cost_2]"]
    assert refused({"work_1": counts["work_0"] - 1e-12}) == []
    assert refused({"work_2": counts["work_1"] - 1e-6}) == ["counts [work_2]"]


def test_no_point_costs_less_a_unit_than_the_bound():
    counts, bound = traced()[1].stats.counts, traced()[1].bound
    own = next(i for i in range(last()) if counts[f"work_{i}"] == counts["work"])
    assert refused({f"cost_{own}": bound * counts["work"] * (1 - 1e-6)}) == [f"counts [cost_{own}]"]


def test_the_decision_is_a_point_of_its_curve():
    counts = traced()[1].stats.counts
    own = next(i for i in range(last()) if counts[f"work_{i}"] == counts["work"])
    assert refused({f"cost_{own}": counts[f"cost_{own}"] * 1.001}) == ["counts [points]"]
    assert refused({f"work_{own}": counts["work"] * 0.999}) == ["counts [points]"]


def test_work_below_what_is_asked_for_is_held_to_no_bound():
    facts = VerifierContext(instance=replace(published_vector(), min_work=2.0))
    cheap = {"points": 1.0, "cost_0": facts.instance.fixed_usd, "work_0": 1.0}
    assert check_curve(facts, cheap, 100.0, None) == []
    assert [found.row for found in check_curve(facts, {**cheap, "work_0": 2.0}, 100.0, None)] == ["counts [cost_0]"]


def test_a_file_without_a_curve_has_nothing_to_check():
    facts = VerifierContext(instance=published_vector())
    assert check_curve(facts, {}, None, None) == check_curve(facts, {"points": 0.0}, None, (1.0, 1.0)) == []

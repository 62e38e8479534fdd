"""Cost per work against published figures, against the checker's sums, and by its symmetries."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.models.bidding.check.exact_instance import VerifierContext, footprint_value
from optim.models.bidding.cost_per_work import evaluate
from optim.models.bidding.data import CurveKind, EvictionTerm, HourOutlook, Scalability
from tests.support.bidding.small_markets import all_footprints, hour_instance, published_vector, small_instances

EVICTED, USABLE, PRICE = (0.55, 0.055), (0.679167, 0.9725), 0.10
PUBLISHED = {0.0: (0.06626, 0.09717), 0.25: (0.08308, 0.09857), 0.5: (0.11134, 0.10000), 0.4125: (0.09949, 0.09949)}
"""Loss by an eviction in hours: cost per work of a risky and of a safe bid at $0.10 per hour."""


@pytest.mark.parametrize("term", EvictionTerm)
@pytest.mark.parametrize("loss_h", PUBLISHED)
def test_a_risky_and_a_safe_bid_cost_what_was_published(term, loss_h):
    for bid in range(2):
        instance = hour_instance(
            [0], [PRICE], [1.0], evicted=[EVICTED[bid]], usable_h=[USABLE[bid]], eviction_loss_h=loss_h, term=term
        )
        # lambda may exceed a slot in the one-hour form only
        assert evaluate(instance, np.array([1])).ratio == pytest.approx(PUBLISHED[loss_h][bid], abs=1.5e-5)


def test_the_published_vector_has_its_published_value():
    value = evaluate(published_vector(), np.array([6, 0, 0, 5]))
    assert value.cost == pytest.approx(1.5)
    assert value.work == pytest.approx(7.331750604, abs=1e-9)
    assert value.ratio == pytest.approx(0.2045896104, abs=1e-10)


@given(instance=small_instances, data=st.data())
def test_agrees_with_the_checkers_sums_term_by_term(instance, data):
    table = all_footprints(instance)
    counts = table[data.draw(st.integers(0, len(table) - 1))]
    cost, work = footprint_value(VerifierContext(instance=instance), counts.tolist())
    value = evaluate(instance, counts)
    assert (value.cost, value.work) == pytest.approx((cost, work), rel=1e-12, abs=1e-12)


def halves(instance, term):
    """Return the instance with each bid's market holding the same bid twice."""
    outlook = instance.outlook
    return hour_instance(
        np.repeat(instance.bids.market, 2),
        np.repeat(outlook.price_usd, 2),
        np.repeat(instance.bids.rate, 2),
        evicted=np.repeat(outlook.evicted, 2),
        usable_h=np.repeat(outlook.usable_h, 2),
        delta=np.repeat(instance.bids.delta_micro, 2).tolist(),
        term=term,
        eviction_loss_h=0.2,
        fixed_usd=0.3,
    )


@given(evicted=st.floats(0.05, 0.9), usable=st.floats(0.3, 1.0), half=st.integers(1, 3))
def test_splitting_an_allocation_matters_only_where_evictions_count_one_by_one(evicted, usable, half):
    for term, is_same in ((EvictionTerm.PER_MARKET, True), (EvictionTerm.PER_BID, True), (EvictionTerm.ANY_BID, False)):
        whole = hour_instance(
            [0], [0.1], [1.0], evicted=[evicted], usable_h=[usable], term=term, eviction_loss_h=0.2, fixed_usd=0.3
        )
        one = evaluate(whole, np.array([2 * half])).ratio
        two = evaluate(halves(whole, term), np.array([half, half])).ratio
        assert (two == pytest.approx(one, rel=1e-12)) == is_same


@given(instance=small_instances, data=st.data(), factor=st.floats(0.1, 10))
def test_costs_scale_with_prices(instance, data, factor):
    if not isinstance(instance.outlook, HourOutlook):
        return
    counts = all_footprints(instance)[data.draw(st.integers(0, len(all_footprints(instance)) - 1))]
    dearer = replace(
        instance,
        fixed_usd=factor * instance.fixed_usd,
        outlook=replace(instance.outlook, price_usd=factor * instance.outlook.price_usd),
    )
    assert evaluate(dearer, counts).cost == pytest.approx(factor * evaluate(instance, counts).cost)
    assert evaluate(dearer, counts).work == evaluate(instance, counts).work


def test_doubling_all_rates_halves_the_cost_per_work_only_without_a_curve():
    vector = published_vector()
    counts = np.array([6, 0, 0, 5])
    for curve, is_half in ((Scalability(), True), (vector.scalability, False)):
        plain = replace(vector, scalability=curve)
        faster = replace(plain, bids=replace(plain.bids, rate=2 * plain.bids.rate))
        ratio = evaluate(faster, counts).ratio / evaluate(plain, counts).ratio
        assert (ratio == pytest.approx(0.5)) == is_half


@given(instance=small_instances, data=st.data())
def test_without_a_curve_doubling_all_rates_halves_the_cost_per_work_of_every_footprint(instance, data):
    table = all_footprints(instance)
    counts = table[data.draw(st.integers(0, len(table) - 1))]
    plain = replace(instance, scalability=Scalability())
    faster = replace(plain, bids=replace(plain.bids, rate=2 * plain.bids.rate), fixed_rate=2 * plain.fixed_rate)
    one, two = evaluate(plain, counts), evaluate(faster, counts)
    assert two.cost == one.cost
    assert two.work == pytest.approx(2 * one.work, rel=1e-12)


positive = st.floats(0.01, 10)


@given(cost=positive, work=positive, more_cost=st.floats(0.0, 10), more_work=positive)
def test_what_is_cheaper_than_the_footprint_makes_it_cheaper_where_all_adds_up(cost, work, more_cost, more_work):
    held, other = work / max(work, more_work), more_work / max(work, more_work)
    instance = hour_instance([0, 1], [cost, more_cost], [1.0, 1.0], usable_h=[held, other])
    one, both = (evaluate(instance, np.array(counts)) for counts in ([1, 0], [1, 1]))
    alone = more_cost / other
    if alone < one.ratio * (1 - 1e-9):
        assert both.ratio < one.ratio
    if alone > one.ratio * (1 + 1e-9):
        assert both.ratio > one.ratio
    assert min(one.ratio, alone) * (1 - 1e-12) <= both.ratio <= max(one.ratio, alone) * (1 + 1e-12)


@given(serial=st.floats(0, 0.5), rate=st.floats(0.01, 1e4), other=st.floats(0.01, 1e4))
def test_tangents_lie_above_the_curve(serial, rate, other):
    for curve in (Scalability.amdahl(serial), Scalability(kind=CurveKind.USL, serial=serial, crosstalk=serial / 10)):
        line = float(curve.value(np.array(rate)) + curve.slope(np.array(rate)) * (other - rate))
        assert float(curve.value(np.array(other))) <= line + 1e-9 * max(1.0, abs(line))

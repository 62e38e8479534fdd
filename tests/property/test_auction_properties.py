"""Theoretical properties of the auction under their stated conditions, and counterexamples."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from optim.models.auction.data import as_floats
from optim.models.auction.instance import AuctionInstance
from optim.models.files import verify
from optim.solvers.solve import solve
from tests.support.auction.builders import auction, linear
from tests.support.auction.enumeration import can_place, optimum
from tests.support.auction.strategies import auctions

TOL = 1e-9
CLOSED = {"payments": "closed"}
"""Payments that are points, not intervals."""


def shares(instance: AuctionInstance, **options):
    return solve(instance, "exact", options={"payments": "closed", **options}).decision.share_high


def scaled(instance: AuctionInstance, factors) -> AuctionInstance:
    """Multiply all of an app's rho by a factor."""
    factor = np.array(factors[: instance.num_apps])
    apps = replace(instance.apps, empty_rho=as_floats(instance.apps.empty_rho * factor))
    bids = replace(instance.bids, rho=as_floats(instance.bids.rho * factor[instance.bids.app]))
    return replace(instance, apps=apps, bids=bids)


@given(auctions(empty_value="zero"))
def test_under_the_zero_convention_a_share_may_be_zero_but_no_less(instance):
    solution = solve(instance, "exact")
    assert verify(instance, solution).is_ok
    assert ((solution.decision.share_high >= 0) & (solution.decision.share_high <= 1)).all()


@given(auctions(), st.lists(st.sampled_from([0.25, 0.5, 1.0, 2.0, 8.0]), min_size=3, max_size=3))
def test_the_scale_of_an_apps_values_changes_nothing(instance, factors):
    """Powers of two, so that no rounding decides between equal bids."""
    one, other = (solve(each, "exact", options=CLOSED) for each in (instance, scaled(instance, factors)))
    assert one.objective == pytest.approx(other.objective, abs=TOL)
    if one.decision.row.tolist() == other.decision.row.tolist():
        assert one.decision.share_high == pytest.approx(other.decision.share_high, abs=TOL)


@given(auctions(most_apps=1))
def test_a_single_app_keeps_everything(instance):
    assert (shares(instance) == 1.0).all()


@given(auctions())
def test_removing_an_app_that_wins_nothing_can_only_raise_the_others_shares(instance):
    solution = solve(instance, "exact", options=CLOSED)
    losers = np.flatnonzero(solution.decision.row < 0)
    assume(len(losers))
    loser = int(losers[0])
    kept = instance.bids.app != loser
    bids = replace(
        instance.bids,
        app=instance.bids.app[kept],
        gpus=instance.bids.gpus[kept],
        locality=instance.bids.locality[kept],
        rho=instance.bids.rho[kept],
    )
    without = solve(replace(instance, bids=bids), "exact", options=CLOSED)
    assert without.objective == pytest.approx(solution.objective, abs=TOL)
    number = np.append(np.cumsum(kept) - 1, -1)  # the last one is the empty row's
    moved = number[solution.decision.row]
    if moved.tolist() == without.decision.row.tolist():
        assert (without.decision.share_high >= solution.decision.share_high - TOL).all()


@given(auctions())
def test_a_share_is_what_the_others_lose(instance):
    """c_i = (the others' product with i) / (their product without i), by enumeration."""
    plan = solve(instance, "exact", options=CLOSED).decision
    assert ((plan.share_high > 0) & (plan.share_high <= 1)).all()
    for i in np.flatnonzero(plan.row >= 0).tolist():
        beside = plan.welfare(instance) - float(instance.weight[plan.row[i]])
        assert plan.share_high[i] == pytest.approx(np.exp(beside - optimum(instance, absent=i)), abs=1e-6)


def test_whole_gpus_break_the_divisible_lower_bound():
    """One GPU that two apps want: c falls as far as one likes below 1/e."""
    instance = auction([1], [(1, "slot", 1000.0)], [(1, "slot", 900.0)])
    assert shares(instance)[0] == pytest.approx(1 / 900)


def test_after_payment_the_allocation_is_no_longer_efficient():
    plan = solve(auction([4], linear(4, 100.0), linear(4, 100.0)), "exact").decision
    assert plan.granted_gpus(2).sum() < plan.awarded_gpus(2).sum()


@given(auctions())
def test_order_of_the_apps_doesnt_matter_to_welfare(instance):
    n = instance.num_apps
    assume(n > 1)
    order = np.argsort(-instance.bids.app, kind="stable")
    bids = replace(
        instance.bids,
        app=(n - 1 - instance.bids.app)[order],
        gpus=instance.bids.gpus[order],
        locality=instance.bids.locality[order],
        rho=instance.bids.rho[order],
    )
    assert solve(replace(instance, bids=bids), "exact").objective == pytest.approx(
        solve(instance, "exact").objective, abs=TOL
    )


def lexicographic(instance):
    """Return the most apps served and the largest product of V = 1 / rho - 1 / rho_empty over them, by enumeration."""
    rho, empty = instance.bids.rho.tolist(), instance.apps.empty_rho.tolist()
    value = [1.0 / r - 1.0 / empty[app] for app, r in zip(instance.bids.app.tolist(), rho, strict=True)]
    rows = [[-1, *np.flatnonzero(instance.bids.app == i).tolist()] for i in range(instance.num_apps)]
    best = (0, 1.0)
    for choice in product(*rows):
        chosen = [b for b in choice if b >= 0]
        reached = (len(chosen), math.prod(value[b] for b in chosen))
        if reached > best and can_place(instance, chosen, instance.cluster.slot_free.tolist()):
            best = reached
    return best, value


@given(auctions(empty_value="zero"))
def test_under_the_zero_convention_as_many_as_possible_are_served_then_their_product_counts(instance):
    (served, reached), value = lexicographic(instance)
    chosen = [b for b in solve(instance, "exact").decision.row.tolist() if b >= 0]
    assert len(chosen) == served
    assert math.prod(value[b] for b in chosen) == pytest.approx(reached)


def test_a_row_that_fits_nowhere_changes_no_award():
    """Values decide which of two apps is served, not bundles that the apps can't get."""
    rivals = [(1, "slot", 3.0)], [(1, "slot", 2.0)]
    plain = solve(auction([1], *rivals, empty_value="zero"), "exact")
    beside = solve(auction([1], [*rivals[0], (4, "slot", 1.0001)], rivals[1], empty_value="zero"), "exact")
    assert plain.decision.row.tolist() == beside.decision.row.tolist() == [0, -1]


@pytest.mark.parametrize("empty_value", ["positive", "zero"])
def test_fairness_from_the_smallest_to_the_largest_number_is_solved_and_verified(empty_value):
    bids = {"a": [(1, "slot", 1e-300), (2, "slot", 1e-308)], "b": [(1, "slot", 1e-5), (2, "slot", 5e299)]}
    instance = AuctionInstance.from_bids([2], bids, empty_rho=1e300, empty_value=empty_value)
    solution = solve(instance, "exact")
    assert verify(instance, solution).is_ok
    assert solution.decision.row.tolist() == [0, 2]
    assert np.isfinite(solution.objective)

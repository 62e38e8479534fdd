"""The exact solver against trying all footprints, the plain programme by HiGHS, and published figures."""

from dataclasses import replace
from functools import cache

import numpy as np
import pyomo.environ as pyo
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.driver import Monitor, run_iteration
from optim.core.solution import Termination
from optim.core.stopping import IterationLimit
from optim.models.bidding.cost_per_work import evaluate
from optim.models.bidding.data import CurveKind, HourOutlook, Scalability
from optim.models.bidding.instance import LARGEST
from optim.models.bidding.programme import charnes_cooper_model, parametric_model, supports_programme
from optim.models.files import verify
from optim.models.reference import reference_instance
from optim.solvers.bidding.outcome import make_tree, min_rate_of
from optim.solvers.lp.highs import CompiledModel, solve_with_highs
from optim.solvers.solve import solve
from optim.workloads.bidding.generator import GeneratorOptions, generate
from tests.support.bidding.small_markets import (
    CURVES,
    best_of_all,
    best_that_lasts,
    drawn,
    hour_instance,
    published_vector,
    small_instances,
    varied,
    varied_instances,
    with_survival,
)

REL_TOL = 1e-6
"""Proven gap to the optimum, relative."""


def test_the_plain_method_takes_the_published_steps():
    """Each programme solved to its end, ratio by ratio, as Dinkelbach has it (1967, DOI 10.1287/mnsc.13.7.492)."""
    instance, ratios, steps = published_vector(), [1.0], []
    while len(steps) < 4:
        tree = make_tree(instance, ratios[-1], steps[-1] if steps else None, cutoff=np.inf, gap=1e-12)
        result = run_iteration(tree, Monitor())
        steps.append(result.counts)
        ratios.append(evaluate(instance, result.counts).ratio)
    assert [counts.tolist() for counts in steps] == [[0, 6, 0, 6], [6, 0, 0, 6], [6, 0, 0, 5], [6, 0, 0, 5]]
    assert ratios[:4] == pytest.approx([1.0, 0.22507144, 0.20490055, 0.20458961], abs=5e-9)
    assert result.value == pytest.approx(0.0, abs=1e-9)


def test_the_cap_of_the_published_vector_is_not_filled():
    solution = solve(published_vector(), "dinkelbach")
    assert solution.decision.counts.tolist() == [6, 0, 0, 5]
    assert solution.objective == pytest.approx(0.2045896104, abs=1e-10)


def check_against_all_footprints(instance, **options):
    """Compare value and proof with those of trying every footprint."""
    best = best_of_all(instance)
    solution = solve(instance, "dinkelbach", options=options)
    checked = verify(instance, solution)
    assert checked.is_ok, (instance.name, checked.violations)
    if not np.isfinite(best):
        assert solution.decision is None
        return
    assert solution.objective == pytest.approx(best, rel=REL_TOL, abs=1e-12)
    assert solution.bound <= best * (1 + 1e-12)
    assert solution.termination is Termination.OPTIMAL


@given(instance=small_instances)
def test_finds_and_proves_what_trying_all_footprints_finds(instance):
    check_against_all_footprints(instance)


@given(instance=varied_instances, heuristic=st.booleans())
def test_no_proof_gets_lost_for_two_caps_least_work_no_fixed_cost_or_losses_for_everybody(instance, heuristic):
    check_against_all_footprints(instance, heuristic=heuristic)


@pytest.mark.prove
@pytest.mark.parametrize("part", range(10))
def test_six_hundred_instances_are_solved_and_proven_as_trying_all_footprints_does(part):
    for seed in range(60 * part, 60 * (part + 1)):
        check_against_all_footprints(varied(seed))


@cache
def lasting_with_best(seed):
    """Return an instance with a chance constraint on capacity, and its optimum by enumeration."""
    instance = with_survival(seed)
    return instance, best_that_lasts(instance)


def check_what_lasts(seed):
    """Compare value and proof with enumeration of footprints and shocks; return whether any footprint keeps enough capacity."""
    instance, best = lasting_with_best(seed)
    for name in ("dinkelbach", "frontier") if seed % 4 == 1 else ("dinkelbach",):
        solution = solve(instance, name)
        assert verify(instance, solution).is_ok, seed
        if not np.isfinite(best):
            assert solution.decision is None, seed
            continue
        assert solution.objective == pytest.approx(best, rel=REL_TOL, abs=1e-12), seed
        assert solution.bound <= best * (1 + 1e-12)
        assert solution.termination is Termination.OPTIMAL, seed
    return np.isfinite(best)


def test_what_must_last_is_proven_as_trying_all_footprints_and_outcomes_does():
    assert sum(check_what_lasts(seed) for seed in range(12)) > 2


@pytest.mark.prove
@pytest.mark.parametrize("part", range(10))
def test_six_hundred_instances_of_what_must_last_are_proven_as_trying_all_does(part):
    assert sum(check_what_lasts(seed) for seed in range(60 * part, 60 * (part + 1))) > 10


@pytest.mark.parametrize("solver", ["greedy", "exchange"])
def test_heuristics_keep_enough_and_bound(solver):
    for seed in range(8):
        instance, best = lasting_with_best(seed)
        solution = solve(instance, solver)
        assert verify(instance, solution).is_ok, seed
        if solution.decision is not None:
            assert solution.objective >= best * (1 - 1e-12), seed
            assert solution.bound <= best * (1 + 1e-12), seed


def test_a_stopped_search_states_no_less_than_the_relaxation_proves():
    instance = generate(GeneratorOptions(zone_types=12, windows=8, min_gpus=16, min_probability=0.8), 0)
    stopped = solve(instance, "dinkelbach", stop=IterationLimit(40))
    assert verify(instance, stopped).is_ok
    assert stopped.gap > 1e-6
    assert stopped.bound >= solve(instance, "exchange").bound * (1 - 1e-9)


@pytest.mark.parametrize("curve", CURVES)
def test_a_rate_that_work_needs_is_just_below_what_does_it(curve):
    for work in (0.3, 1.7, 3.0):
        rate = min_rate_of(curve, work)
        assert float(curve.value(np.array(rate))) == pytest.approx(work, rel=1e-7)
        assert float(curve.value(np.array(rate))) <= work


def test_without_a_bid_that_works_nothing_is_found():
    solution = solve(hour_instance([0], [0.1], [0.0], fixed_usd=1.0), "dinkelbach")
    assert solution.decision is None
    assert solution.termination is Termination.INFEASIBLE


def test_least_work_that_no_footprint_does_leaves_no_decision():
    instance = replace(published_vector(), min_work=11.0)
    solution = solve(instance, "dinkelbach")
    assert solution.decision is None
    assert solution.message == "no footprint with enough work was found"


@pytest.mark.parametrize("solver", ["dinkelbach", "exchange", "frontier"])
def test_a_footprint_that_does_the_least_work_is_found(solver):
    """The best footprint without the condition does 7.33; the most that can be done is 8.5."""
    instance = replace(published_vector(), min_work=8.2)
    solution = solve(instance, solver)
    assert verify(instance, solution).is_ok
    assert solution.stats.counts["work"] >= 8.2
    if solver in ("dinkelbach", "frontier"):
        assert solution.objective == pytest.approx(best_of_all(instance), rel=REL_TOL)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_an_hour_of_real_prices_is_proven_with_no_fixed_cost_and_with_least_work(share):
    """`spot-hour-0`: 15 markets by 12 deltas; the required work is 1.3 times that of its best footprint."""
    instance = reference_instance("spot-hour-0")
    work = solve(instance, "dinkelbach").stats.counts["work"]
    changed = replace(instance, fixed_usd=instance.fixed_usd * share, min_work=1.3 * work * share)
    solution = solve(changed, "dinkelbach")
    assert solution.termination is Termination.OPTIMAL
    assert verify(changed, solution).is_ok


def test_losses_for_everybody_are_settled_in_few_boxes():
    """`spot-market-0`, where charging them at the least rate alone left hundreds of boxes."""
    instance = reference_instance("spot-market-0")
    solution = solve(instance, "dinkelbach")
    assert solution.termination is Termination.OPTIMAL
    assert solution.stats.iterations <= 60
    assert verify(instance, solution).is_ok


@given(instance=varied_instances)
def test_a_search_that_is_stopped_states_what_its_tree_proves(instance):
    best = best_of_all(instance)
    solution = solve(instance, "dinkelbach", stop=IterationLimit(2))
    assert verify(instance, solution).is_ok
    if solution.bound is not None:
        assert solution.bound <= best * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(12))
def test_the_charnes_cooper_form_bounds_the_optimum(seed):
    instance = drawn(seed)
    best = best_of_all(instance)
    if supports_programme(instance) is not None or not np.isfinite(best):
        pytest.skip("without a linear form, or without work")
    model = charnes_cooper_model(instance)
    outcome = solve_with_highs(CompiledModel(model))
    assert outcome.objective <= best * (1 + 1e-7)
    relaxed = parametric_model(instance, outcome.objective)
    for variable in (*relaxed.count.values(), *relaxed.taken.values()):
        variable.domain = pyo.NonNegativeReals
    for variable in relaxed.taken.values():
        variable.setub(1.0)
    assert solve_with_highs(CompiledModel(relaxed)).objective == pytest.approx(0.0, abs=1e-7)


@given(instance=small_instances, factor=st.sampled_from([0.5, 2.0, 4.0]))
def test_prices_scale_the_optimum_and_leave_the_footprint(instance, factor):
    if not isinstance(instance.outlook, HourOutlook) or not np.isfinite(best_of_all(instance)):
        return
    dearer = replace(
        instance,
        fixed_usd=factor * instance.fixed_usd,
        outlook=replace(instance.outlook, price_usd=factor * instance.outlook.price_usd),
    )
    one, other = solve(instance, "dinkelbach"), solve(dearer, "dinkelbach")
    assert other.objective == pytest.approx(factor * one.objective, rel=REL_TOL)
    assert evaluate(instance, other.decision.counts).ratio == pytest.approx(one.objective, rel=REL_TOL)


@given(
    evicted=st.lists(st.floats(0.0, 0.95), min_size=2, max_size=5),
    usable=st.lists(st.floats(0.2, 1.0), min_size=5, max_size=5),
)
def test_without_losses_the_best_delta_has_most_usable_time_for_each_paid_hour(evicted, usable):
    evicted = sorted(evicted, reverse=True)
    usable = sorted(usable[: len(evicted)])
    instance = hour_instance(
        [0] * len(evicted), [0.1] * len(evicted), [1.0] * len(evicted), evicted=evicted, usable_h=usable, max_count=1,
        one_bid_per_market=True,
    )  # fmt: skip
    solution = solve(instance, "dinkelbach")
    merit = [u / (1 - b) for u, b in zip(usable, evicted, strict=True)]
    chosen = int(solution.decision.counts.argmax())
    assert merit[chosen] == pytest.approx(max(merit), rel=1e-6)


@given(instance=small_instances)
def test_markets_with_swapped_labels_swap_the_answer(instance):
    if not np.isfinite(best_of_all(instance)):
        return
    order = np.argsort(-instance.bids.market, kind="stable")
    bids, outlook = instance.bids, instance.outlook
    names = ("price_usd", "evicted", "usable_h", "hours")
    if not isinstance(outlook, HourOutlook):
        names = ("charge_micro", "evicted_s")
    swapped = replace(
        instance,
        bids=replace(
            bids,
            market=(len(instance.markets) - 1 - bids.market)[order],
            delta_micro=bids.delta_micro[order],
            rate=bids.rate[order],
            max_count=bids.max_count[order],
            is_new=bids.is_new[order],
        ),
        outlook=replace(outlook, **{name: getattr(outlook, name)[order] for name in names}),
        caps=replace(instance.caps, weight=instance.caps.weight[:, order]),
    )
    one, other = solve(instance, "dinkelbach"), solve(swapped, "dinkelbach")
    assert other.objective == pytest.approx(one.objective, rel=2 * REL_TOL)


def test_a_peak_of_the_curve_stops_the_buying():
    curve = Scalability(kind=CurveKind.POINTS, points=((3.0, 3.0),))
    instance = hour_instance([0], [0.01], [1.0], max_count=50, fixed_usd=1.0, scalability=curve)
    assert solve(instance, "dinkelbach").decision.counts.tolist() == [3]


@pytest.mark.parametrize("rates", [{1: LARGEST}, dict.fromkeys(range(12), LARGEST), {}])
def test_the_largest_numbers_that_are_taken_leave_a_proof_that_holds(rates):
    instance = reference_instance("spot-tiny-any")
    rate = instance.bids.rate.copy()
    for bid, value in rates.items():
        rate[bid] = value
    instance = replace(instance, bids=replace(instance.bids, rate=rate), fixed_usd=0.0 if rates else LARGEST)
    solution = solve(instance, "dinkelbach", stop=IterationLimit(50))
    assert verify(instance, solution).violations == ()
    assert solution.bound <= solution.objective

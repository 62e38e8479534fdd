"""The tree of one ratio against trying all footprints: value, bound, haste, limits."""

from dataclasses import replace

import numpy as np
import pytest

from optim.core.driver import Monitor, run_iteration
from optim.core.stopping import IterationLimit
from optim.models.bidding.cost_per_work import evaluate, evaluate_many
from optim.models.bidding.instance import LARGEST
from optim.models.reference import reference_instance
from optim.solvers.bidding.outcome import make_tree
from tests.support.bidding.small_markets import all_footprints, best_of_all, hour_instance, published_vector, varied


def least(instance, ratio, *, is_answer=True):
    """Return the least ``cost - ratio work`` of any footprint, by default of those with enough work."""
    cost, work = evaluate_many(instance, all_footprints(instance))
    counts = (work > 0) & (work >= instance.min_work) if is_answer else np.ones(len(work), dtype=bool)
    return float(np.where(counts, cost - ratio * work, np.inf).min())


@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.prove), 2])
def test_the_tree_finds_the_least_value_at_any_ratio_and_bounds_it(part):
    for seed in range(30 * part, 30 * (part + 1)):
        instance = varied(seed)
        ratio = best_of_all(instance) * 1.1
        if not 0 < ratio < np.inf:
            continue
        for everything in (False, True):
            tree = make_tree(instance, ratio, None, cutoff=9.0, gap=1e-9, all_of_interest=everything)
            result = run_iteration(tree, Monitor())
            expected = least(instance, ratio, is_answer=not everything)
            assert result.value == pytest.approx(expected, abs=1e-8), seed
            assert expected - 2e-9 <= result.bound + 1e-6, seed
            assert result.bound <= expected + 1e-9, seed
            assert result.counts is not None
            value = evaluate(instance, result.counts)
            assert value.cost - ratio * value.work == pytest.approx(expected, abs=1e-8), seed


def test_nothing_is_found_above_the_cutoff():
    instance = published_vector()
    ratio = best_of_all(instance) * (1 - 1e-6)
    result = run_iteration(make_tree(instance, ratio, None), Monitor())
    assert result.counts is None
    assert result.bound >= -1e-9


def test_a_hasty_tree_ends_after_a_leap_and_a_stopped_one_keeps_its_open_boxes():
    instance = published_vector()
    hasty = make_tree(instance, 1.0, None, is_hasty=True, begun=5)
    result = run_iteration(hasty, Monitor())
    assert result.counts is not None
    assert hasty.standing().iterations == 5 + hasty.num_solved
    full = make_tree(instance, 1.0, None)
    run_iteration(full, Monitor())
    assert hasty.num_solved <= full.num_solved
    stopped = run_iteration(make_tree(instance, 0.2045, None), Monitor(IterationLimit(1)))
    assert stopped.bound <= least(instance, 0.2045) + 1e-9


def test_a_root_that_loses_most_bids_is_solved_again_before_it_is_split():
    """Four bids, two of them useful, with twelve that are far too expensive for their work: these are removed at once."""
    size = 16
    instance = hour_instance(
        list(range(size)),
        [0.045, 0.0945, 0.06, 0.12, *(0.3 + 0.01 * k for k in range(12))],
        [0.679167, 0.9725, 0.70, 1.5, *[0.8] * 12],
        max_count=6, cap=12, fixed_usd=0.63, scalability=published_vector().scalability,
    )  # fmt: skip
    tree = make_tree(instance, best_of_all(published_vector()) * 1.0001, None, gap=1e-9)
    tree.init()
    assert tree.num_solved == 2
    result = run_iteration(tree, Monitor())
    assert result.counts.tolist() == [6, 0, 0, 5, *[0] * 12]


def test_the_largest_rate_that_is_taken_cuts_nothing_off():
    market = reference_instance("spot-tiny-windows")
    rate = market.bids.rate.copy()
    rate[7] = LARGEST
    instance = replace(market, bids=replace(market.bids, rate=rate))
    with np.errstate(all="ignore"):
        run_iteration(make_tree(instance, best_of_all(published_vector()), None), Monitor(stop=IterationLimit(3)))

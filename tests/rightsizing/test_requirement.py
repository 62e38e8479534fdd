"""Guarantees of tuning: the finite-sample guarantee of split conformal prediction, exactly, and its draws."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from optim.core.errors import InvalidOptionError
from optim.rightsizing import Measure, Slo, make_plan, tune
from optim.rightsizing.engine import under_time
from optim.rightsizing.tuning import Draws, covering, draw_needs, min_covered, num_drawn, num_needed, requirement_on
from tests.support.containers.worlds import world_of


def varied_world(rng, number):
    """Containers of different sizes and lengths, with at least one decided cycle each."""
    arrays = [rng.lognormal(0, 1, (int(rng.integers(5, 20)), 2)) * rng.lognormal(0, 1) for _ in range(number)]
    return world_of(arrays, training=arrays[:1])


@settings(max_examples=10)
@given(
    seed=st.integers(0, 2**32 - 1),
    number=st.integers(3, 8),
    allowed=st.floats(0.1, 0.6),
    name=st.sampled_from(["prev-step-max", "holt", "prev-step-rules"]),
)
def test_of_n_plus_one_containers_at_most_the_allowed_share_is_uncovered_by_what_the_others_tune(
    seed, number, allowed, name
):
    """Whichever of exchangeable containers is the fresh one is equally likely: this is the guarantee, not a sample of it."""
    rng = np.random.default_rng(seed)
    world = varied_world(rng, number + 1)
    plan, draws = make_plan(world, name), draw_needs(world, rng)
    uncovered = np.zeros(2)
    for fresh in range(number + 1):
        others, own = (
            Draws(series=draws.series[rows], cycle=draws.cycle[rows], need=draws.need[rows])
            for rows in (np.arange(number + 1) != fresh, [fresh])
        )
        tuned = tune(plan, covering(others, np.full(2, allowed)), 2)
        if min_covered(number, allowed) > number:
            return  # too few containers for any promise
        uncovered += tuned.is_reached & (own.covered(plan.allocate(tuned.multiplier)) < 1)
    assert (uncovered <= allowed * (number + 1) + 1e-9).all()


@given(number=st.integers(1, 400), allowed=st.floats(0.001, 0.999))
def test_what_must_be_covered_is_the_ceiling(number, allowed):
    least = min_covered(number, allowed)
    assert least >= (number + 1) * (1 - allowed) - 1e-6
    assert least - 1 < (number + 1) * (1 - allowed)


@given(share=st.floats(0.001, 0.999))
@example(0.01)
@example(0.05)
@example(0.03)
@example(1 / 3)
def test_the_fewest_containers_for_a_share_are_enough_and_one_less_is_not(share):
    number = num_needed(share)
    assert min_covered(number, share) <= number
    assert number == 1 or min_covered(number - 1, share) > number - 1
    assert {0.01: 99, 0.05: 19, 0.03: 33, 1 / 3: 2}.get(share, number) == number


@given(seed=st.integers(0, 2**32 - 1))
def test_draws_are_peaks_of_memory_and_samples_of_cpu_from_decided_cycles(seed):
    rng = np.random.default_rng(seed)
    world = varied_world(rng, 5)
    draws = draw_needs(world, rng)
    assert draws.need.shape == (5, 2)
    assert (draws.cycle >= 1).all()
    for place in range(5):
        (cpu, memory), (first, second) = draws.need[place], draws.cycle[place]
        own = world.by_cycle[draws.series[place, 0], first, :, 0]
        assert cpu in own[own > 0]
        assert memory == world.by_cycle[draws.series[place, 1], second, :, 1].max()


def test_every_decided_cycle_and_sample_is_drawn_as_often_as_any_other():
    world = world_of([np.arange(1.0, 12.0)])
    rng = np.random.default_rng(3)
    many = [draw_needs(world, rng) for _ in range(3000)]
    cpu, memory = (np.unique([d.need[0, k] for d in many], return_counts=True) for k in (0, 1))
    assert cpu[0].tolist() == [5, 6, 7, 8, 9, 10, 11]
    assert memory[0].tolist() == [8, 11]
    for _, counts in (cpu, memory):
        expected = 3000 / len(counts)
        assert (np.abs(counts - expected) < 6 * math.sqrt(expected)).all()


def test_containers_of_a_pod_are_one_draw_and_those_without_a_decided_cycle_none():
    world = world_of([np.full(12, 2.0), np.full(9, 2.0), np.full(3, 2.0)])
    assert len(draw_needs(world, np.random.default_rng(0)).need) == 2
    one = replace(world, group=np.array([0, 0, 1]))
    assert len(draw_needs(one, np.random.default_rng(0)).need) == 1
    assert (num_drawn(world), num_drawn(one)) == (2, 1)


def test_only_whole_cycles_are_drawn_where_that_is_asked_for():
    world = world_of([np.arange(1.0, 12.0), np.arange(1.0, 8.0)])
    rng = np.random.default_rng(0)
    for _ in range(20):
        draws = draw_needs(world, rng, is_whole=True)
        assert draws.need[:, 1].tolist() == [8.0]


def test_the_papers_measure_counts_all_samples():
    world = world_of([np.ones(8)])
    is_met = requirement_on(world, Slo(measure=Measure.UNDER_TIME, under_time=0.5), 0)
    given_to = np.ones((1, 2, 2))
    given_to[0, 1, 0] = 0.9
    assert under_time(world, given_to).tolist() == [0.5, 0.0]
    assert is_met(given_to).tolist() == [True, True]
    given_to[0, 0, 1] = 0.0
    assert is_met(given_to * 0.99).tolist() == [True, True]
    assert is_met(given_to * 0.9).tolist() == [False, False]


@pytest.mark.parametrize("wrong", [{"kills": 0.0}, {"throttled": 1.0}, {"under_time": -0.1}])
def test_shares_out_of_range_are_refused(wrong):
    with pytest.raises(InvalidOptionError, match=f"{next(iter(wrong))} must be in"):
        Slo(**wrong)

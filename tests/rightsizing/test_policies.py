"""Policies on series with closed-form answers, and properties of all policies on any series."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidOptionError, InvalidProblemError, UnsupportedProblemError
from optim.core.policies import clairvoyant_names
from optim.rightsizing import make_plan, make_world, policy_names
from optim.rightsizing.engine import under_time
from tests.support.containers.worlds import drawn_worlds, series_of, world_of

CAUSAL = tuple(name for name in policy_names() if name not in clairvoyant_names("containers"))
ONE = np.ones(2)


def later(world, name, multiplier=ONE):
    """Allocations of the first container's CPU from its second cycle on."""
    return make_plan(world, name).allocate(multiplier)[0, 1:, 0]


@pytest.mark.parametrize(
    "name",
    ["prev-step-max", "prev-step-rules", "running-max", "quantile-95", "static", "autopilot"],
)
def test_constant_demand_is_met_exactly(name):
    world = world_of([np.full(12, 3.0)] * 2, labels=[np.zeros(12, dtype=int)] * 2)
    assert later(world, name) == pytest.approx(3.0, rel=1e-12)


@pytest.mark.parametrize("multiplier", [0.0, 1.0, 2.5])
def test_rules_on_a_square_wave_are_mean_and_half_the_swing(multiplier):
    world = world_of([np.tile([1.0, 3.0], 6)])
    for name in ("prev-step-rules", "current-step-rules"):
        assert later(world, name, multiplier * ONE) == pytest.approx(2.0 + multiplier)
    assert later(world, "prev-step-max") == pytest.approx(3.0)
    assert later(world, "current-step-max") == pytest.approx(3.0)


def test_a_ramp_leaves_reactive_policies_a_cycle_behind():
    ramp = np.arange(1.0, 13.0)
    world = world_of([ramp])
    assert later(world, "prev-step-max").tolist() == [4.0, 8.0]
    assert later(world, "current-step-max").tolist() == [8.0, 12.0]
    assert later(world, "oracle-static").tolist() == [12.0, 12.0]


def test_quantiles_look_back_half_an_hour_only():
    demand = np.concatenate([np.full(120, 9.0), np.ones(124)])
    world = world_of([demand], cycle_samples=4)
    assert later(world, "quantile-95")[-1] == pytest.approx(1.0)


def test_the_phase_rule_takes_moments_over_all_training_samples_of_the_phase():
    training, labels = (
        [np.array([1.0, 3.0, 10.0, 10.0]), np.array([5.0, 20.0])],
        [np.array([0, 0, 1, 1]), np.array([0, 1])],
    )
    world = world_of(
        [np.ones(8)], training=training, labels=[np.array([1, 1, 1, 0, 0, 0, 0, 1])], training_labels=labels
    )
    low = np.array([1.0, 3.0, 5.0])
    assert later(world, "phase-rule", 2 * ONE) == pytest.approx(low.mean() + 2 * low.std())


def test_a_price_buys_what_follows_a_phase():
    """Phase 0 doesn't change, phase 1 doubles."""
    calm, growing = np.full(12, 2.0), np.array([1.0] * 4 + [2.0] * 4)
    labels = [np.zeros(12, dtype=int), np.array([1] * 4 + [0] * 4)]
    world = world_of(
        [np.full(8, 3.0), np.full(8, 3.0)],
        training=[calm, growing],
        labels=[np.zeros(8, dtype=int), np.ones(8, dtype=int)],
        training_labels=labels,
    )
    allocation = make_plan(world, "phase-price").allocate(100 * ONE)
    assert allocation[:, 1, 0] == pytest.approx([0.95 * 3.0, 0.95 * 6.0])


def test_holts_smoothing_goes_on_with_a_ramp_of_peaks():
    world = world_of([np.arange(1.0, 41.0)])
    given = later(world, "holt", 0 * ONE)
    level, trend = 4.0, 0.0
    assert given[0] == level
    for cycle, peak in enumerate([8.0, 12.0, 16.0, 20.0, 24.0, 28.0, 32.0, 36.0], start=1):
        fresh = level + trend + 0.5 * (peak - level - trend)
        level, trend = fresh, trend + 0.3 * (fresh - level - trend)
        assert given[cycle] == pytest.approx(level + trend)
    assert abs(given[-1] - 40.0) < 1.5


def test_autopilot_averages_batch_cpu_over_aggregates_that_fade():
    """Two aggregates of five minutes, the older one weighs 2^(-5 min / 12 h)."""
    world = world_of([np.concatenate([np.full(20, 2.0), np.full(20, 4.0), np.ones(40)])], cycle_samples=40)
    fade = 2.0 ** (-5 / 720)
    assert later(world, "autopilot") == pytest.approx((2.0 * fade + 4.0) / (fade + 1.0))


def test_a_running_maximum_never_falls():
    world = world_of([np.concatenate([np.full(4, 5.0), np.ones(8)])])
    assert later(world, "running-max").tolist() == [5.0, 5.0]
    assert later(world, "prev-step-max").tolist() == [5.0, 1.0]


@given(world=drawn_worlds(), name=st.sampled_from(policy_names()), low=st.floats(0, 4), step=st.floats(0, 4))
def test_allocations_and_safety_grow_with_the_multiplier(world, name, low, step):
    plan = make_plan(world, name)
    less, more = plan.allocate(low * ONE), plan.allocate((low + step) * ONE)
    if not name.startswith("vpa"):
        assert (more >= less - 1e-12).all()
        assert (under_time(world, more) <= under_time(world, less)).all()
    assert (more >= 0).all()
    assert (more <= world.limit[:, None] + 1e-12).all()


@given(world=drawn_worlds(), name=st.sampled_from(CAUSAL), cycle=st.integers(0, 5), factor=st.floats(0, 3))
def test_what_comes_later_never_changes_what_is_given_now(world, name, cycle, factor):
    end = cycle * world.cycle_samples
    changed = world.values.copy()
    changed[:, end:] *= factor
    phase = world.phase.copy()
    phase[:, end:] = 1 - phase[:, end:]
    other = replace(world, values=changed, phase=phase)
    now = slice(0, cycle + 1)
    before, after = (make_plan(w, name).allocate(1.3 * ONE)[:, now] for w in (world, other))
    np.testing.assert_array_equal(before, after)


@given(world=drawn_worlds(), name=st.sampled_from(CAUSAL))
def test_containers_do_not_touch_each_other(world, name):
    alone = replace(
        world,
        values=world.values[:1],
        lengths=world.lengths[:1],
        group=world.group[:1] * 0,
        limit=world.limit[:1],
        phase=world.phase[:1],
    )
    together = make_plan(world, name).allocate(1.2 * ONE)[:1]
    np.testing.assert_allclose(make_plan(alone, name).allocate(1.2 * ONE), together, rtol=1e-12)


@given(world=drawn_worlds(), name=st.sampled_from(CAUSAL))
def test_all_start_with_the_same_and_end_with_nothing(world, name):
    allocation = make_plan(world, name).allocate(ONE)
    np.testing.assert_array_equal(allocation[:, 0], np.minimum(world.first, world.limit))
    assert (allocation[world.samples == 0] == 0).all()


def test_a_policy_with_phases_needs_them():
    with pytest.raises(UnsupportedProblemError, match="needs phases"):
        make_plan(world_of([np.ones(8)]), "phase-rule")


def test_a_bound_has_no_multiplier():
    with pytest.raises(InvalidOptionError, match="is a bound"):
        make_plan(world_of([np.ones(8)]), "clairvoyant")


def test_an_unknown_policy_is_named_with_those_there_are():
    with pytest.raises(InvalidOptionError, match=r"unknown policy 'best'.* there are: .*vpa"):
        make_plan(world_of([np.ones(8)]), "best")


def test_series_off_the_grid_are_refused():
    series = series_of([np.ones(8)])
    with pytest.raises(InvalidProblemError, match="one grid"):
        make_world(replace(series, interval_s=None), series)


def test_the_quantile_has_the_level_of_its_name_and_looks_back_120_samples():
    demand = np.random.default_rng(3).random(160)
    given = later(world_of([demand], cycle_samples=20), "quantile-95", 1.5 * ONE)
    for cycle, value in enumerate(given, start=1):
        last = demand[max(0, 20 * cycle - 120) : 20 * cycle]
        assert value == pytest.approx(1.5 * np.quantile(last, 0.95))


def test_static_gives_for_ever_what_all_get_at_first():
    world = world_of([np.ones(12)], training=[np.arange(21.0)])
    assert make_plan(world, "static").allocate(3 * ONE)[0, :, 0].tolist() == pytest.approx([19.0, 57.0, 57.0])


def test_where_no_phase_is_known_all_get_what_they_get_at_first():
    labels = [np.array([-1] * 4 + [0] * 4 + [-1] * 4)]
    world = world_of([np.full(12, 2.0)], training=[np.arange(12.0)], labels=labels, training_labels=[np.zeros(12, int)])
    for name in ("phase-rule", "phase-price"):
        assert make_plan(world, name).allocate(ONE)[0, 1].tolist() == world.first.tolist(), name

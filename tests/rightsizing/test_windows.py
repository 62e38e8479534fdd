"""Features of training containers and of running containers, compared with plain slices."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidProblemError
from optim.rightsizing.features import examples_of, post_warmup_parts, view_features
from optim.rightsizing.policy import views
from tests.support.containers.worlds import drawn_worlds, world_of

RNG = np.random.default_rng(2)


def rows_alike(lessons, row):
    return (lessons.features.values == row).all(axis=1)


@pytest.mark.parametrize("has_phases", [False, True])
def test_a_container_at_work_and_the_same_one_in_training_are_the_same_moments(has_phases):
    own = 1 + RNG.random((26, 2))
    labels = [np.arange(26) // 7 % 2]
    world = world_of([own], training=[own], labels=labels)
    lessons = examples_of(world, has_phases=has_phases)
    assert len(lessons.after) == 6  # moments 4, 8, ... 24
    nothing = np.zeros((1, world.num_cycles, 2))
    for view in views(world, nothing):
        found = view_features(view, world, has_phases=has_phases)
        assert found.values[0].tolist() == lessons.features.values[view.cycle - 1].tolist()
        assert found.level[0] == pytest.approx([own[: 4 * view.cycle][-4:, 0].mean(), own[4 * view.cycle - 1, 1]])


def test_what_followed_is_relative_to_the_level_and_ends_with_the_series():
    own = 1 + RNG.random((11, 2))
    world = world_of([own], training=[own])
    lessons = examples_of(world, has_phases=False)
    assert lessons.is_there.tolist() == [[True] * 4, [True, True, True, False]]
    level = [own[4:8, 0].mean(), own[7, 1]]
    assert np.exp(lessons.after[1, :3]) * level == pytest.approx(own[8:11])
    assert np.exp(lessons.peak[:, 1]) == pytest.approx([own[4:8, 1].max() / own[3, 1], own[8:11, 1].max() / own[7, 1]])


@pytest.mark.parametrize("cycle", [40, 79, 82])
def test_of_a_long_cycle_forty_samples_are_kept_spread_from_its_first_to_its_last(cycle):
    own = 1 + RNG.random((3 * cycle, 2))
    lessons = examples_of(world_of([own], training=[own], cycle_samples=cycle), has_phases=False, is_whole=True)
    kept = [k * (cycle - 1) // 39 for k in range(40)]
    assert lessons.after.shape[1] == 40
    ahead = own[cycle:][kept]  # of the first lesson, which has seen one cycle
    assert np.exp(lessons.after[0]) * lessons.features.level[0] == pytest.approx(ahead)


def test_where_the_end_is_not_the_containers_a_whole_cycle_must_follow():
    own = 1 + RNG.random((19, 2))
    lessons = examples_of(world_of([own], training=[own, own[:7]]), has_phases=False, is_whole=True)
    assert len(lessons.after) == 3 + 1  # moments 4, 8, 12 and, of the short one, 3
    assert lessons.is_there.all()


def test_harm_counts_by_what_a_unit_decides_in_all():
    own = 1 + RNG.random((26, 2))
    world = world_of([own], training=[own, own[:3], own[:11]])
    assert post_warmup_parts(world.training, 4).tolist() == [[22, 6], [1, 1], [7, 2]]
    lessons = examples_of(world, has_phases=False)
    first, last = lessons.share[0], lessons.share[len(lessons.share) - 1]
    assert first.tolist() == [1 / 22, 1 / (6 * 4)]
    assert last.tolist() == [1 / 7, 1 / (2 * 3)]  # three samples are left after the eighth
    pod = replace(world.training, units=dict.fromkeys(world.training.containers, "pod"))
    assert post_warmup_parts(pod, 4).tolist() == [[29, 8]] * 3


@given(world=drawn_worlds(), factor=st.floats(0.5, 20))
def test_numbers_are_finite_and_do_not_change_with_a_containers_size_but_for_its_level(world, factor):
    for view in views(world, np.zeros((*world.samples.shape, 2))):
        found = view_features(view, world, has_phases=False)
        assert np.isfinite(found.values).all()
        assert (found.level > 0).all()
        larger = type(view)(
            **{name: getattr(view, name) for name in view.__slots__} | {"past": factor * view.past + 1e-3}
        )
        plain = type(view)(
            **{name: getattr(view, name) for name in view.__slots__} | {"past": view.past + 1e-3 / factor}
        )
        one, two = (view_features(own, world, has_phases=False).values[:, 2:] for own in (larger, plain))
        np.testing.assert_allclose(one, two, rtol=1e-6, atol=1e-9)


def test_the_phase_and_how_long_it_has_lasted_are_numbers():
    own = np.ones((12, 2))
    world = world_of([own], training=[own], labels=[np.array([0] * 5 + [1] * 7)])
    found = examples_of(world, has_phases=True).features.values[:, -3:]
    assert found[0].tolist() == [1.0, 0.0, np.log1p(4)]
    assert found[1].tolist() == [0.0, 1.0, np.log1p(3)]


def test_series_of_single_samples_teach_nothing():
    with pytest.raises(InvalidProblemError, match="has 2 samples or more"):
        examples_of(world_of([np.ones(8)], training=[np.ones(1)] * 3), has_phases=False)

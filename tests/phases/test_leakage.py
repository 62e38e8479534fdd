"""Fitted parameters don't depend on held-out data: after a change of a held-out series they are equal."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optim.phases import PhaseModel
from optim.phases.model import HELD_OUT_SHARE
from optim.phases.preprocessing import split_containers
from optim.rightsizing import Slo, compare_policies
from optim.rightsizing.world import WorldOptions, find_phases, prepare_split, split_series
from optim.workloads.containers import ContainerOptions, generate_containers

DRAWN = generate_containers(ContainerOptions(num_containers=12), seed=4)
SETTINGS = {"encoder": "window-statistics", "num_phases": 3, "seed": 1}


def changed(series, segments, factor):
    """The series with some segments' samples multiplied and turned around."""
    values = series.values.copy()
    for segment in segments:
        rows = series.rows(segment)
        values[rows] = factor * values[rows][::-1]
    return replace(series, values=values)


@pytest.fixture(scope="module")
def fitted():
    """The model before anything is changed."""
    return PhaseModel(**SETTINGS).fit(DRAWN)


@settings(max_examples=5)
@given(factor=st.floats(0.1, 10.0))
def test_held_out_containers_move_neither_scaling_nor_codes_nor_clusters_nor_the_linear_forecast(fitted, factor):
    _, held = split_containers(DRAWN, HELD_OUT_SHARE, np.random.default_rng(1), 4)
    assert len(held) == 2
    again = PhaseModel(**SETTINGS).fit(changed(DRAWN, held.tolist(), factor))
    for name in ("offset", "mean", "deviation"):
        assert np.array_equal(getattr(again.scaling_, name), getattr(fitted.scaling_, name))
    for name, array in fitted.encoder_.arrays().items():
        assert np.array_equal(again.encoder_.arrays()[name], array)
    assert np.array_equal(again.linear_forecast_.matrix, fitted.linear_forecast_.matrix)
    # Their order is by the consumption of all containers: only the set is the same.
    assert sorted(again.centres_.tolist()) == sorted(fitted.centres_.tolist())


def test_training_containers_do_move_them(fitted):
    training, _ = split_containers(DRAWN, HELD_OUT_SHARE, np.random.default_rng(1), 4)
    again = PhaseModel(**SETTINGS).fit(changed(DRAWN, training.tolist()[:3], 3.0))
    assert not np.array_equal(again.scaling_.mean, fitted.scaling_.mean)
    assert sorted(again.centres_.tolist()) != sorted(fitted.centres_.tolist())


@pytest.mark.prove
@settings(max_examples=2)
@given(factor=st.floats(0.2, 5.0), seed=st.integers(0, 100))
def test_nothing_that_is_learned_or_tuned_depends_on_the_test_containers(factor, seed):
    options = WorldOptions(encoder="window-statistics", num_phases=3)
    training, tuned, test = split_series(DRAWN, options, seed=seed)
    other = changed(test, range(test.num_segments), factor)
    one, two = (find_phases(training, (tuned, part), options, seed=seed) for part in (test, other))
    assert np.array_equal(one[0].training, two[0].training)
    assert np.array_equal(one[0].labels, two[0].labels)
    place = {name: segment for segment, name in enumerate(DRAWN.containers)}
    moved = changed(DRAWN, [place[name] for name in test.containers], factor)
    trials = [prepare_split(series, options, seed=seed) for series in (DRAWN, moved)]
    worlds = [trial.test for trial in trials]
    assert np.array_equal(worlds[0].first, worlds[1].first)
    assert np.array_equal(worlds[0].training_phase, worlds[1].training_phase)
    assert np.array_equal(worlds[0].training.values, worlds[1].training.values)
    assert not np.array_equal(worlds[0].values, worlds[1].values)
    wanted, names = Slo(kills=0.3, throttled=0.3), ("phase-price", "prev-step-rules", "vpa")
    rows = [
        [row.multiplier for rows in compare_policies(trial, names, wanted, num_resamples=1, seed=seed) for row in rows]
        for trial in trials
    ]
    assert rows[0] == rows[1]
    # Those that are tuned on do move them.
    moved = changed(DRAWN, [place[name] for name in tuned.containers], 7.0)
    found = compare_policies(prepare_split(moved, options, seed=seed), ["static"], wanted, num_resamples=1, seed=seed)
    before = compare_policies(trials[0], ["static"], wanted, num_resamples=1, seed=seed)
    assert [row.multiplier for row in next(found)] != [row.multiplier for row in next(before)]

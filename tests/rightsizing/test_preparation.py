"""Worlds from series: training and test containers, and phases without knowledge of the future."""

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.phases import ENCODERS, PhaseModel
from optim.rightsizing.world import TRUTH, WorldOptions, prepare_split, split_series
from optim.workloads.containers import ContainerOptions, generate_containers
from tests.support.containers.worlds import series_of

DRAWN = generate_containers(ContainerOptions(num_containers=20), seed=2)


def test_containers_to_learn_from_to_tune_on_and_to_test_on_are_apart():
    parts = split_series(DRAWN, WorldOptions(), seed=0)
    assert [len(part.containers) for part in parts] == [8, 8, 4]
    assert len({name for part in parts for name in part.containers}) == 20


def test_a_long_series_is_split_by_time_into_parts_that_keep_every_sample_once():
    rising = np.arange(1.0, 100.0)
    options = WorldOptions(is_by_time=True, cycle_s=60.0)
    learned, tuned, held = split_series(series_of([rising, 1000 + rising]), options, seed=0)
    assert learned.values[:, 0].tolist() == [*range(1, 25), *range(49, 50), *range(1001, 1025), *range(1049, 1050)]
    assert tuned.values[:, 0].tolist() == [*range(25, 49), *range(1025, 1049)]
    assert held.values[:, 0].tolist() == [*range(50, 100), *range(1050, 1100)]
    assert len(set(learned.containers)) == learned.num_segments == 4
    with pytest.raises(InvalidProblemError, match="no series has 12 cycles in the half"):
        split_series(series_of([rising[:20]]), options, seed=0)


@pytest.mark.parametrize(
    "encoder",
    [
        "window-statistics",
        *(
            pytest.param(name, marks=pytest.mark.prove)
            for name in ENCODERS
            if name not in ("window-statistics", "crbm")
        ),
    ],
)
def test_labels_of_a_series_do_not_change_when_it_goes_on(encoder):
    model = PhaseModel(encoder=encoder, num_phases=4).fit(DRAWN)
    whole = DRAWN.select([0])
    labels = model.predict(whole)
    for length in (41, 80):
        part = series_of([whole.values[:length]])
        np.testing.assert_array_equal(model.predict(part), labels[:length])


@pytest.mark.parametrize("number", [1, 2])
def test_too_few_containers_are_refused(number):
    with pytest.raises(InvalidProblemError, match="at least three containers"):
        prepare_split(series_of([np.ones(90)] * number), WorldOptions(), seed=0)


def test_truth_needs_a_truth():
    with pytest.raises(InvalidProblemError, match="true phases"):
        prepare_split(series_of([np.ones(90)] * 3), WorldOptions(encoder=TRUTH), seed=0)


def test_an_unknown_encoder_is_refused():
    with pytest.raises(InvalidOptionError, match=r"encoder must be one of .*truth"):
        WorldOptions(encoder="magic")

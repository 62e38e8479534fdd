"""Series in cycles: their positions, the initial knowledge, and the samples after a container's end."""

import numpy as np
import pytest

from optim.core.errors import InvalidProblemError
from optim.models.containers.series import ContainerSeries
from optim.rightsizing import PhaseLabels, make_world
from tests.support.containers.worlds import series_of

SHORT, LONG, MIDDLE = np.arange(1.0, 4.0), np.arange(10.0, 19.0), np.arange(20.0, 26.0)


@pytest.fixture(scope="module")
def world():
    """Three containers in cycles of four samples."""
    limit = np.array([[5.0, np.nan], [np.nan, 70.0], [60.0, 80.0]])
    series = series_of([SHORT, LONG, MIDDLE], limit=limit)
    training = series_of([np.arange(101.0), np.arange(40.0)])
    phases = PhaseLabels(labels=np.arange(18) % 5, training=np.arange(141) % 3, num_phases=5)
    return make_world(series, training, phases, cycle_s=60.0)


def test_the_longest_stands_first_and_nothing_is_asked_for_after_an_end(world):
    assert world.lengths.tolist() == [9, 6, 3]
    assert world.group.tolist() == [1, 2, 0]
    assert world.values.shape == (3, 12, 2)
    assert world.values[0, :, 0].tolist() == [*LONG, 0, 0, 0]
    assert world.values[2, :, 1].tolist() == [*SHORT, *[0.0] * 9]
    assert world.phase[0].tolist() == [3, 4, 0, 1, 2, 3, 4, 0, 1, -1, -1, -1]
    assert world.limit.tolist() == [[np.inf, 70.0], [60.0, 80.0], [5.0, np.inf]]


def test_demand_above_a_limit_counts_as_the_limit():
    series = series_of([LONG], limit=np.array([[12.0, np.nan]]))
    values = make_world(series, series, cycle_s=60.0).values[0, :9]
    assert values[:, 0].tolist() == [10, 11, *[12] * 7]
    assert values[:, 1].tolist() == LONG.tolist()


def test_cycles_count_samples_and_who_runs(world):
    assert (world.num_containers, world.num_cycles, world.cycle_samples) == (3, 3, 4)
    assert world.running.tolist() == [3, 2, 1]
    assert world.samples.tolist() == [[4, 4, 1], [4, 2, 0], [3, 0, 0]]
    assert world.is_sample[1, 1].tolist() == [True, True, False, False]
    assert world.by_cycle[0, 1, :, 0].tolist() == [14, 15, 16, 17]
    assert world.is_level.tolist() == [False, True]


def test_at_first_all_get_what_covers_95_per_cent_of_the_training_samples(world):
    pooled = np.concatenate([np.arange(101.0), np.arange(40.0)])
    assert world.first == pytest.approx(np.quantile(pooled, 0.95) * np.ones(2))
    assert world.training_phase.tolist() == (np.arange(141) % 3).tolist()


def test_cycles_shorter_than_an_interval_and_other_resources_are_refused():
    series = series_of([LONG])
    with pytest.raises(InvalidProblemError, match="cycle_s must be at least the interval of 15 s, got 7"):
        make_world(series, series, cycle_s=7.0)
    other = ContainerSeries.from_arrays({"a": np.ones((4, 1))}, ("cpu",), 15.0)
    with pytest.raises(InvalidProblemError, match="training has resources"):
        make_world(series, other)

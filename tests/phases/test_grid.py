"""Resampling by hand-worked series, and properties for all series."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.models.containers.series import CPU, MEMORY, ContainerSeries
from optim.phases.preprocessing import to_grid


def series(times, cpu, memory=None, containers=("a",), lengths=None, phase=None):
    values = np.stack([cpu, cpu if memory is None else memory], axis=1).astype(float)
    return ContainerSeries(
        resources=(CPU, MEMORY),
        containers=containers,
        lengths=np.array(lengths or [len(times)]),
        values=values,
        time_s=np.array(times, dtype=float),
        phase=None if phase is None else np.array(phase),
        limit=np.arange(2.0 * len(containers)).reshape(-1, 2),
    )


def test_rates_are_averaged_levels_hold_the_highest_and_gaps_split():
    grid = to_grid(series([0, 14, 16, 30, 61, 200, 215], [1, 3, 5, 4, 8, 2, 6], phase=[0, 0, 1, 1, 2, 3, 3]), 15, 60)
    found = grid.series
    assert found.lengths.tolist() == [5, 2]
    assert found.containers == ("a", "a")
    assert found.time_s.tolist() == [0, 15, 30, 45, 60, 200, 215]
    assert found.values[:, 0].tolist() == [1, 4, 4, 4, 8, 2, 6]
    assert found.values[:, 1].tolist() == [1, 5, 4, 4, 8, 2, 6]
    assert found.phase.tolist() == [0, 1, 1, 1, 2, 3, 3]
    assert grid.row.tolist() == [0, 1, 1, 2, 4, 5, 6]
    assert found.limit.tolist() == [[0, 1], [0, 1]]
    falling = to_grid(series([0, 14, 16, 30], [1, 5, 3, 4]), 15, 60).series
    assert falling.values.tolist() == [[1, 1], [4, 5], [4, 4]]


def test_series_on_the_grid_come_back_as_they_are():
    given_series = series([0, 15, 30, 7, 22], [1, 2, 3, 4, 5], containers=("a", "b"), lengths=[3, 2])
    grid = to_grid(given_series, 15, 60)
    assert np.array_equal(grid.series.values, given_series.values)
    assert grid.series.interval_s == 15
    assert to_grid(grid.series, 15, 60).series is grid.series


@given(
    st.lists(st.integers(1, 90), min_size=1, max_size=30),
    st.sampled_from([5.0, 15.0, 20.0]),
)
def test_every_sample_has_a_row_segments_are_regular_and_resampling_again_changes_nothing(steps, interval):
    times = np.concatenate([[0], np.cumsum(steps)]).astype(float)
    if np.median(steps) > 60:
        return
    cpu = np.arange(1, len(times) + 1)
    grid = to_grid(series(times, cpu), interval, 60.0)
    found = grid.series
    assert (np.abs(found.time_s[grid.row] - times) <= interval / 2 + 1e-9).all()
    for rows in found.segments():
        assert np.allclose(np.diff(found.time_s[rows]), interval)
    assert found.num_segments == 1 + sum(step > 60 for step in steps)
    assert found.values[:, 1].min() >= 1
    again = to_grid(found, interval, 60.0)
    assert again.series is found


def test_coarse_series_are_refused_with_the_interval_that_suits_them():
    with pytest.raises(InvalidProblemError, match="interval_s 300"):
        to_grid(series([0, 300, 600], [1, 2, 3]), 15, 60)


def test_an_interval_longer_than_the_gap_is_refused():
    with pytest.raises(InvalidOptionError, match="interval_s"):
        to_grid(series([0, 15], [1, 2]), 90, 60)


@pytest.mark.parametrize("interval_s", [1e-8, 1e-100, 1e-320])
def test_an_interval_that_leaves_too_many_points_is_refused(interval_s):
    with pytest.raises(
        InvalidOptionError, match=r"gives .* points, above the limit of 500000000; give a longer interval"
    ):
        to_grid(series([0, 14, 30], [1, 2, 3]), interval_s, 60)


@given(
    st.lists(st.tuples(st.integers(1, 90), st.integers(0, 50)), min_size=2, max_size=40), st.sampled_from([15, 60, 300])
)
def test_no_interval_loses_a_peak_of_memory(samples, interval):
    steps, memory = zip(*samples, strict=True)
    times = np.cumsum(steps).astype(float)
    grid = to_grid(series(times, memory), interval, 400.0)
    for row, value in enumerate(grid.series.values[:, 1].tolist()):
        own = [memory[k] for k in np.flatnonzero(grid.row == row)]
        assert value == (max(own) if own else grid.series.values[row - 1, 1])

"""Ragged series: shapes are checked, segments selected, bad samples named."""

import numpy as np
import pytest

from optim.core.errors import InvalidProblemError
from optim.models.containers.series import CPU, MEMORY, ContainerSeries, Resource


def series(**changes):
    given = {
        "resources": (CPU, MEMORY),
        "containers": ("a", "b", "b"),
        "lengths": np.array([2, 1, 2]),
        "values": np.arange(10.0).reshape(5, 2),
        "time_s": np.array([0.0, 15.0, 0.0, 100.0, 115.0]),
        "phase": np.array([0, 1, 0, 1, 1]),
        "limit": np.ones((3, 2)),
    }
    return ContainerSeries(**{**given, **changes})


def test_segments_follow_each_other():
    assert series().starts.tolist() == [0, 2, 3]
    assert series().segment.tolist() == [0, 0, 1, 2, 2]
    assert series().container_index.tolist() == [0, 1, 1]


def test_selects_segments_and_resources_in_the_order_given():
    chosen = series().select([2, 0]).select_resources(["memory"])
    assert chosen.containers == ("b", "a")
    assert chosen.values[:, 0].tolist() == [7, 9, 1, 3]
    assert chosen.phase.tolist() == [1, 1, 0, 1]


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"values": np.zeros((4, 2))}, "values must have shape"),
        ({"limit": np.zeros((1, 2))}, "limit must have shape"),
        ({"values": np.full((5, 2), np.nan)}, "container 'a' must be finite"),
        ({"values": np.full((5, 2), np.inf)}, "got inf; give it in a larger unit"),
        ({"values": np.full((5, 2), 1e200)}, "at most 1e\\+100"),
        ({"time_s": np.array([0.0, 0.0, 0.0, 1.0, 2.0])}, "container 'a' must increase"),
        ({"resources": (CPU, CPU)}, "distinct names"),
        ({"lengths": np.array([2, 0, 3])}, "at least one sample"),
    ],
)
def test_contradictions_are_refused(change, cause):
    with pytest.raises(InvalidProblemError, match=cause):
        series(**change)


def test_an_unknown_resource_is_named():
    with pytest.raises(InvalidProblemError, match="no resource 'gpu'"):
        series().select_resources(["gpu"])


def test_series_are_made_of_arrays_by_container():
    gpu = Resource(name="gpu", unit="%", is_level=True)
    arrays = {"b": np.ones((3, 3)), "a": [[1, 2, 3]]}
    made = ContainerSeries.from_arrays(arrays, ("cpu", gpu, "io"), interval_s=30)
    assert made.resources == (CPU, gpu, Resource(name="io"))
    assert made.containers == ("b", "a")
    assert made.lengths.tolist() == [3, 1]
    assert made.time_s.tolist() == [0, 30, 60, 0]
    assert made.values[3].tolist() == [1, 2, 3]
    assert made.interval_s == 30.0


@pytest.mark.parametrize(
    ("arrays", "cause"),
    [
        ({}, "at least one container"),
        ({"a": [1.0, 2.0]}, r"container 'a' must have shape \(samples, 2\)"),
        ({"a": [[1.0, 2.0]], "b": [[1.0]]}, "container 'b' must have shape"),
        ({"a": np.zeros((0, 2))}, "at least one sample"),
        ({"a": [[1.0, float("nan")]]}, "memory of container 'a' must be finite"),
    ],
)
def test_arrays_that_fit_nothing_are_refused(arrays, cause):
    with pytest.raises(InvalidProblemError, match=cause):
        ContainerSeries.from_arrays(arrays, ("cpu", "memory"), 15.0)


def test_windows_end_where_enough_rows_of_their_own_segment_lie_before():
    given = series()
    assert given.place.tolist() == [0, 1, 0, 0, 1]
    assert given.ends(0).tolist() == [0, 1, 2, 3, 4]
    assert given.ends(1).tolist() == [1, 4]
    windows = given.windows(1)
    assert windows.shape == (2, 2, 2)
    assert windows.tolist() == [given.values[0:2].tolist(), given.values[3:5].tolist()]
    assert given.windows(2).shape == (0, 3, 2)


def test_segments_are_slices_of_the_rows():
    given = series()
    assert list(given.segments()) == [slice(0, 2), slice(2, 3), slice(3, 5)]
    assert [given.rows(k) for k in range(3)] == list(given.segments())
    assert (given.num_segments, given.num_samples) == (3, 5)
    assert given.owner.tolist() == [0, 0, 1, 1, 1]

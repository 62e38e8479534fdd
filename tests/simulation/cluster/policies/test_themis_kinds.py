"""GPUs of several types from an app's view."""

from types import SimpleNamespace

import numpy as np
import pytest

from optim.models.cluster.cluster import Cluster
from optim.simulation.cluster.policies.themis.apps import NOTHING, GpuTypes, OtherTypeHoldings

CLUSTER = Cluster(gpus=np.array([4, 4, 4]), kind=np.array([0, 1, 2]), kinds=("a", "b", "c"))


def kinds(ppm, work=(10, 30, 60)):
    """Jobs of app 0, 0 and 1, of 2 GPUs each."""
    view = SimpleNamespace(
        cluster=CLUSTER,
        app=np.array([0, 0, 1]),
        gpus=np.full(3, 2),
        gpu_type_slowdown_ppm=np.array(ppm, np.int64).reshape(3, -1),
    )
    return GpuTypes(view, np.arange(3), np.array(work))


TWICE = [[10**6, 2 * 10**6, 0], [10**6, 4 * 10**6, 0], [3 * 10**6, 10**6, 10**6]]


def test_slowness_is_the_mean_over_the_jobs_that_can_run_by_their_work():
    found = kinds(TWICE)
    assert found.slowness[0].tolist() == [1.0, (2 * 10 + 4 * 30) / 40, np.inf]
    assert found.slowness[1].tolist() == [3.0, 1.0, 1.0]
    assert (found.by_speed([0]), found.by_speed([1]), found.by_speed([0, 1])) == ([0, 1, 2], [1, 2, 0], [0, 1, 2])
    assert found.usable(np.arange(3), 2).tolist() == [2]


def test_other_gpus_count_by_what_they_do_for_the_app():
    """Type b is 3.5 times slower than a: two GPUs of a do as much as seven of b; those on offer and useless ones don't count."""
    found = kinds(TWICE)
    places = ((0, 2), (1, 1), (2, 3))
    assert found.beside(0, places, 1, demand=4) == OtherTypeHoldings(2, pytest.approx(7.0))
    assert found.beside(0, places, 0, demand=4) == OtherTypeHoldings(1, pytest.approx(1 / 3.5))
    assert found.beside(0, ((1, 2),), 1, demand=4) == NOTHING
    assert found.own(places, 1) == ((1, 1),)


def test_gpus_of_other_types_are_first_of_all_for_jobs_that_can_not_use_the_one_on_offer():
    """Of the app's demand of 4, only 2 are available on the type: the first two GPUs of the other type belong to the other job."""
    found = kinds(TWICE)
    assert found.beside(0, ((0, 2),), 1, demand=2) == NOTHING
    assert found.beside(0, ((0, 3),), 1, demand=2) == OtherTypeHoldings(1, pytest.approx(3.5))


def test_types_make_no_difference_where_jobs_name_none():
    found = kinds(np.zeros((3, 0)))
    assert (found.slowness == 1.0).all()
    assert not found.is_one

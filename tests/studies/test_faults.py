"""Faults: the changed value and place, and no other change."""

import numpy as np
import pytest
from optim_studies.faults import MIN_SAMPLES, FaultKind, inject

from optim.core.errors import InvalidProblemError
from optim.models.containers.series import ContainerSeries
from optim.workloads.containers import ContainerOptions, generate_containers


@pytest.fixture(scope="module")
def usual():
    """Return containers without faults."""
    return generate_containers(ContainerOptions(num_containers=40), seed=7)


@pytest.mark.parametrize("kind", FaultKind)
def test_samples_outside_of_faults_stay_and_a_share_of_the_long_enough_containers_has_one(usual, kind):
    found = inject(usual, kind, 0.5, seed=1)
    has = found.onset >= 0
    assert 8 <= has.sum() <= 30
    assert (usual.lengths[has] >= MIN_SAMPLES).all()
    place, segment = usual.place, usual.segment
    inside = has[segment] & (place >= found.onset[segment]) & (place < found.end[segment])
    assert np.array_equal(found.series.values[~inside], usual.values[~inside])
    for column in range(2):
        assert (found.series.values[:, column] <= usual.limit[segment, column]).all()
    every = inject(usual, kind, 1.0, seed=1)
    assert ((every.onset >= 0) == (usual.lengths >= MIN_SAMPLES)).all()
    assert (inject(usual, kind, 0.0, seed=1).onset == -1).all()


def faulty(usual, kind):
    """Each faulty segment: its usual samples from the onset to the end of the fault, those with it, and the most before."""
    found = inject(usual, kind, 1.0, seed=2)
    for segment, rows in enumerate(usual.segments()):
        if found.onset[segment] >= 0:
            part = slice(rows.start + found.onset[segment], rows.start + found.end[segment])
            yield usual.values[part], found.series.values[part], usual.values[rows].max(axis=0), usual.limit[segment]


def test_a_leak_adds_up_to_the_most_and_never_falls_below_what_was_used(usual):
    for before, after, most, limit in faulty(usual, "leak"):
        assert np.array_equal(before[:, 0], after[:, 0])
        added = np.minimum(before[:, 1] + np.linspace(0, most[1], len(before) + 1)[1:], limit[1])
        assert after[:, 1] == pytest.approx(added)


def test_a_stuck_thread_idles_and_holds(usual):
    for before, after, *_ in faulty(usual, "stuck-thread"):
        assert after[:, 0] == pytest.approx(before[:, 0] / 100)
        assert np.unique(after[:, 1]).tolist() == [before[0, 1]]


def test_a_neighbour_takes_cpu_for_a_quarter_of_an_hour(usual):
    for before, after, *_ in faulty(usual, "noisy-neighbour"):
        assert len(after) <= 60
        left = after[:, 0] / np.maximum(before[:, 0], 1e-300)
        assert ((left >= 1 / 3 - 1e-9) & (left <= 2 / 3 + 1e-9))[before[:, 0] > 0].all()
        assert np.array_equal(before[:, 1], after[:, 1])


def test_restarts_come_every_four_to_eight_minutes(usual):
    counted = 0
    for before, after, *_ in faulty(usual, "restart-loop"):
        begins = np.flatnonzero(after[:, 1] < 0.051 * before[:, 1])
        gaps = np.diff(begins) * 15.0
        assert begins[0] == 0
        assert ((gaps >= 240 - 15) & (gaps <= 480 + 15)).all()
        counted += len(gaps)
    assert counted > 20


def test_refuses_series_that_are_not_cpu_and_memory_on_a_grid():
    only = ContainerSeries.from_arrays({"a": np.ones((100, 1))}, ("cpu",), 15.0)
    with pytest.raises(InvalidProblemError, match="a rate and a level"):
        inject(only, "leak", 1.0, 0)

"""The timed points of a grid: few and informative, with one worker and one server among them."""

import numpy as np
import pytest

from optim.profiling.fitting import fit_times, synchronous_terms
from optim.profiling.job_profile import ProfileOptions
from optim.profiling.timing import FIRST_POINTS, Timing, choose_points, time_worthwhile

THETA = np.array([0.02, 0.05, 0.01, 0.004, 0.006])
"""Coefficients of the simulated job's speed function."""
BATCH = 32.0


def terms_of(points):
    return synchronous_terms(*np.array(points, dtype=float).T, BATCH)


def timed(points):
    """Return exact times of a simulated job."""
    return [Timing(seconds=np.array([seconds])) for seconds in terms_of(points) @ THETA]


def test_a_large_grid_is_measured_where_it_tells_most():
    options, asked = ProfileOptions(max_workers=32, max_servers=8, max_points=10), []

    def time_steps(points):
        asked.extend(points)
        return timed(points)

    timings = time_worthwhile(options.grid, 10, BATCH, time_steps)
    assert sorted(asked) == sorted(timings)
    assert len(timings) == 10
    assert (1, 1) in timings
    fit = fit_times(terms_of(list(timings)), np.array([timing.median for timing in timings.values()]))
    assert fit.coefficients == pytest.approx(THETA, rel=1e-6)


def test_one_worker_with_one_server_is_measured_even_where_other_points_tell_more():
    grid = [(workers, servers) for workers in (1, 2, 5, 7) for servers in (1, 2, 21)]
    terms, alone = terms_of(grid), grid.index((1, 1))
    without_times = BATCH / np.array(grid, dtype=float)[:, 0]
    assert alone not in choose_points(terms, without_times, FIRST_POINTS)
    assert alone not in choose_points(terms, terms @ THETA, FIRST_POINTS + 1)
    timings = time_worthwhile(grid, FIRST_POINTS + 1, BATCH, timed)
    assert (1, 1) in timings
    assert len(timings) == FIRST_POINTS + 1


def test_a_small_grid_is_measured_whole():
    assert tuple(time_worthwhile(ProfileOptions().grid, 12, BATCH, timed)) == ProfileOptions().grid

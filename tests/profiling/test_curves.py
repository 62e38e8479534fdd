"""Speed-ups by workers, from the fitted function or the measured points: in twentieths, and empty for linear speed."""

import msgspec
import numpy as np
import pytest

from optim.profiling.document import MeasuredValue, ScalingPoint, SpeedFunction
from optim.profiling.fitting import speedup_table, speedups
from optim.workloads.profiles import published_profiles

JOB = published_profiles().jobs[0]


def with_speed(coefficients, largest=8, **fields):
    """A job of eight partitions with a fitted function; a parameter server serves two workers."""
    speed = SpeedFunction(
        kind="synchronous",
        coefficients=[MeasuredValue.exactly(value) for value in coefficients],
        largest_workers=largest,
        global_batch=8.0,
    )
    rates = {"worker_mbps": MeasuredValue.exactly(100.0), "ps_mbps": MeasuredValue.exactly(200.0)}
    return msgspec.structs.replace(JOB, speed=speed, **rates, **fields)


def test_the_fitted_function_counts_with_the_servers_that_bandwidths_ask_for():
    job = with_speed([0.1, 0.2, 0.3, 0.05, 0.02])
    seconds = [0.8 / w + 0.2 + 0.3 * w / p + 0.05 * w + 0.02 * p for w, p in ((1, 1), (2, 1), (3, 2), (4, 2))]
    assert speedups(job, 4) == pytest.approx(seconds[0] / np.array(seconds))


def test_nothing_is_read_beyond_twice_what_was_measured():
    job = with_speed([1.0, 0.0, 0.0, 0.0, 0.0], largest=2)
    assert speedups(job, 8) == pytest.approx([1, 2, 3, 4, 4, 4, 4, 4])
    assert speedup_table(job, 8) == (20, 40, 60, 80)
    assert speedup_table(job, 4) == ()


def test_without_a_function_measured_points_tell():
    points = [ScalingPoint(workers=1, speedup=1.0), ScalingPoint(workers=4, speedup=2.5)]
    job = msgspec.structs.replace(JOB, scaling=points)
    assert speedups(job, 4) == pytest.approx([1.0, 1.5, 2.0, 2.5])
    assert speedup_table(job, 6) == (20, 30, 40, 50, 60, 70)


def test_a_table_never_falls_although_workers_may_slow_each_other_down():
    job = with_speed([0.1, 0.0, 0.0, 0.2, 0.0])
    exact = speedups(job, 8)
    assert exact.max() > exact[-1]
    table = speedup_table(job, 8)
    assert table[-1] == round(20 * exact.max())
    assert list(table) == sorted(table)
    assert table[0] == 20

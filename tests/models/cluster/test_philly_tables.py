"""The published tables add up."""

import math

import pytest

from optim.models.cluster.philly import BUCKETS, DELAYED_JOBS, FAILURES, STATUS_SHARES, bucket_of


def test_failed_trials_are_those_of_the_table():
    assert sum(reason.trials for reason in FAILURES.values()) == pytest.approx(39_776, abs=2)
    for reason in FAILURES.values():
        assert reason.by_size is None or sum(reason.by_size) == pytest.approx(reason.trials, abs=1)


@pytest.mark.parametrize("column", ["time_share", "gpu_time_share"])
def test_shares_of_run_time_to_failure_add_up(column):
    assert math.fsum(getattr(reason, column) or 0.0 for reason in FAILURES.values()) == pytest.approx(1, abs=0.002)


def test_shares_of_statuses_add_up():
    assert [math.fsum(column) for column in zip(*STATUS_SHARES.values(), strict=True)] == pytest.approx([1, 1])


def test_shares_of_fragmentation_are_those_printed():
    shares = [lost / (lost + fair) for fair, lost in DELAYED_JOBS.values()]
    assert shares == pytest.approx([0.594, 0.742, 0.979], abs=5e-4)


def test_a_log_normal_goes_through_median_and_ninth_decile():
    mu, sigma = FAILURES["incorrect inputs"].log_normal
    assert (math.exp(mu), math.exp(mu + 1.2816 * sigma)) == pytest.approx((1.87, 404.83))
    assert FAILURES["model diverged"].log_normal is None


def test_sizes_of_jobs_are_the_studys():
    assert [bucket_of(gpus) for gpus in (1, 2, 4, 5, 8, 9, 128)] == [0, 1, 1, 2, 2, 3, 3]
    assert BUCKETS[0] == (1, 1)

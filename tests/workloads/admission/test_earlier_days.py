"""Days drawn for a cluster without a history."""

from dataclasses import replace

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError
from optim.workloads.admission.earlier_days import drawn_days
from tests.support.admission.days import days


def test_drawn_days_have_the_cluster_s_servers_and_jobs_of_their_own() -> None:
    today = days(0)[-1]
    first, second = drawn_days(today, 2, seed=0)
    assert first.name != second.name
    for day in (first, second):
        assert day.worker_servers is today.worker_servers
        assert day.num_jobs == today.num_jobs
    assert not np.array_equal(first.jobs.epochs, second.jobs.epochs)
    again = drawn_days(today, 2, seed=0)[1]
    np.testing.assert_array_equal(second.jobs.epochs, again.jobs.epochs)
    assert not np.array_equal(drawn_days(today, 1, seed=1)[0].jobs.epochs, first.jobs.epochs)


def test_other_resources_are_refused_with_what_to_give_instead() -> None:
    with pytest.raises(InvalidOptionError, match="give --history FILE instead"):
        drawn_days(replace(days(0)[-1], resources=("a", "b", "c", "d")), 1, 0)

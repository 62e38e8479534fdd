"""Days drawn for a cluster without a history."""

from dataclasses import replace

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError
from optim.workloads.admission.generator import GeneratorOptions, drawn_days, generate
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


def test_no_earlier_day_is_the_day_itself() -> None:
    """The generator's seed 1,001 is the second draw of seed 0; the days beside it are the same as for any other instance."""
    options = GeneratorOptions(num_jobs=4, num_slots=6, num_worker_servers=3, num_ps_servers=3)
    today, other = (generate(options, seed) for seed in (1001, 7))
    usual, found = drawn_days(other, 4, seed=0), drawn_days(today, 3, seed=0)
    assert np.array_equal(usual[1].jobs.epochs, today.jobs.epochs)
    assert [day.jobs.epochs.tolist() for day in found] == [usual[k].jobs.epochs.tolist() for k in (0, 2, 3)]


def test_other_resources_are_refused_with_what_to_give_instead() -> None:
    with pytest.raises(InvalidOptionError, match="give --history FILE instead"):
        drawn_days(replace(days(0)[-1], resources=("a", "b", "c", "d")), 1, 0)

"""Tables of machines that leave and return by plan."""

from datetime import datetime

import pytest

from optim.core.errors import InvalidProblemError
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.rules import ENDLESS
from optim.models.cluster.workload import US
from optim.workloads.cluster.outages import read_outages

CLUSTER = Cluster.grid("5x8")


def _read(tmp_path, text, begin=None):
    path = tmp_path / "outages.csv"
    path.write_text(text)
    return read_outages(path, CLUSTER, begin)


def test_machines_and_ranges_leave_for_their_windows(tmp_path):
    found = _read(tmp_path, "machine,start,end\n3,100,200\n0-1,,50\n4,300,\n")
    assert found == ((0, 0, 50 * US), (1, 0, 50 * US), (3, 100 * US, 200 * US), (4, 300 * US, ENDLESS))


def test_windows_of_one_machine_that_meet_are_one(tmp_path):
    assert _read(tmp_path, "machine,start,end\n2,10,20\n2,20,30\n2,5,12\n2,31,32\n") == (
        (2, 5 * US, 30 * US),
        (2, 31 * US, 32 * US),
    )


def test_the_number_of_machines_from_dates_on(tmp_path):
    """Three from noon on, all five again from two on, four from three on for good."""
    text = "start,machines\n2024-05-01 12:00,3\n2024-05-01 14:00,5\n2024-05-01 15:00,4\n"
    hour = 3600 * US
    found = _read(tmp_path, text, datetime(2024, 5, 1, 11))
    assert found == ((3, hour, 3 * hour), (4, hour, 3 * hour), (4, 4 * hour, ENDLESS))


def test_what_was_over_before_the_first_submission_is_left_out(tmp_path):
    text = "machine,start,end\n1,2024-05-01,2024-05-02\n2,2024-05-01,2024-05-04\n"
    assert _read(tmp_path, text, datetime(2024, 5, 3)) == ((2, 0, 24 * 3600 * US),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("machine,start,end\n5,0,1\n", "0..4"),
        ("machine,start,end\n3-2,0,1\n", "0..4"),
        ("machine,start,end\nx,0,1\n", "row 2"),
        ("machine,start,end\n1,10,10\n", "after the row's start"),
        ("machine,start,end\n1,2024-05-01,2024-05-02\n", "seconds after the first submission"),
        ("machine,start,end\n1,1e30,\n", "at most 1e\\+18"),
        ("machine,start\n1,2\n", "'end' is missing"),
        ("start,machines\n0,6\n", "at most 5"),
        ("start,machines\n0,1.5\n", "at most 5"),
        ("start,machines\n0,5\n", "leave --outages out"),
    ],
)
def test_what_cannot_be_a_plan_is_refused_in_a_line(tmp_path, text, said):
    with pytest.raises(InvalidProblemError, match=said) as error:
        _read(tmp_path, text)
    assert "\n" not in str(error.value)

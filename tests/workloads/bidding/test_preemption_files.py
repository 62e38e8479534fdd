"""Spells from series of how many machines are up."""

import pytest

from optim.core.errors import InvalidProblemError
from optim.workloads.prices.availability_files import read_spells

HEADER = "kind,nodes,campaign,zone,resource,gap_seconds,tick,value\n"


def write(tmp_path, series, kind="preemption"):
    path = tmp_path / "series.csv"
    rows = [
        f"{kind},4,c,{zone},v100_1,60,{tick},{value}"
        for zone, values in series.items()
        for tick, value in enumerate(values)
    ]
    path.write_text(HEADER + "\n".join(rows) + "\n")
    return path


def test_machines_that_come_are_launched_and_those_that_go_are_lost_the_oldest_first(tmp_path):
    found = read_spells(write(tmp_path, {"a": [1, 2, 2, 1, 0, 1], "b": [0, 0, 1]}))
    assert found.kinds == ("c/a/v100_1", "c/b/v100_1")
    rows = list(zip(found.kind, found.start_s, found.length_s, found.is_lost, strict=True))
    assert rows == [
        (0, 0.0, 180.0, True),
        (0, 60.0, 180.0, True),
        (0, 300.0, 60.0, False),
        (1, 120.0, 60.0, False),
    ]


def test_refuses_a_file_without_preemption_series(tmp_path):
    with pytest.raises(InvalidProblemError, match="no row is of kind 'preemption'"):
        read_spells(write(tmp_path, {"a": [1, 1]}, kind="availability"))


def test_refuses_more_machines_at_once_than_can_be_told_apart(tmp_path):
    with pytest.raises(InvalidProblemError, match="machines at once: at most 100000 are read, got 1000000000"):
        read_spells(write(tmp_path, {"a": [1, 10**9]}))


def test_names_the_row_of_the_file_whatever_rows_are_left_out(tmp_path):
    path = write(tmp_path, {"a": [1, 1, 1]})
    first, second, third, fourth = path.read_text().splitlines()
    path.write_text("\n".join((first, second.replace("preemption", "availability"), "", second, fourth, third)))
    with pytest.raises(InvalidProblemError, match="row 6: c/a/v100_1 goes back in time"):
        read_spells(path)

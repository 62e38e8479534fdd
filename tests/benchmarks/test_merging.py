"""Joining results of several machines: nothing twice, nothing lost, nothing that contradicts."""

from dataclasses import replace

import pytest

from optim.benchmarks.compare import merge_results
from optim.benchmarks.records import Record, open_results, read_records
from optim.core.errors import InvalidProblemError

ONE = Record(
    key="k1",
    suite="s",
    problem="admission",
    instance="i",
    instance_digest="d",
    solver="v",
    seed=0,
    termination="completed",
    objective=100.0,
    seconds={"solve": 1.0},
    verified=True,
    code="c",
    finished="2026-01-01T00:00:00+00:00",
)
TWO = replace(ONE, key="k2", seed=1, objective=90.0)


@pytest.fixture
def write(tmp_path):
    def write(name, *records):
        with open_results(tmp_path / name) as results:
            for record in records:
                results.append(record)
        return tmp_path / name

    return write


def objectives(path):
    return {record.key: record.objective for record in read_records(path)}


def test_every_piece_of_work_is_there_once(write, tmp_path):
    later = replace(ONE, seconds={"solve": 2.0}, finished="2026-01-02T00:00:00+00:00", machine={"cpu": "another"})
    merged = merge_results([write("a", later, TWO), write("b", ONE)], tmp_path / "all")
    assert sorted(record.key for record in merged) == ["k1", "k2"]
    assert objectives(tmp_path / "all") == {"k1": 100.0, "k2": 90.0}
    # Both say the same, and the one that was finished first stays.
    assert {record.key: record.seconds for record in merged}["k1"] == {"solve": 1.0}


def test_what_the_file_holds_already_stays(write, tmp_path):
    merge_results([write("a", TWO)], write("all", ONE))
    assert objectives(tmp_path / "all") == {"k1": 100.0, "k2": 90.0}


@pytest.mark.parametrize(
    "worse",
    [replace(ONE, error="it died", objective=None), replace(ONE, termination="time_limit", objective=70.0)],
    ids=["an error", "cut short by the clock"],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_an_answer_is_taken_before_what_ended_badly(write, tmp_path, worse, is_first):
    worse = replace(worse, finished="2025-01-01T00:00:00+00:00")
    files = [write("a", worse), write("b", ONE)]
    merge_results(files if is_first else files[::-1], tmp_path / "all")
    assert objectives(tmp_path / "all") == {"k1": 100.0}


def test_a_contradiction_is_refused_and_said_and_nothing_written(write, tmp_path):
    files = [write("a", ONE, TWO), write("b", replace(ONE, objective=101.0), replace(TWO, findings={"x": 1.0}))]
    with pytest.raises(
        InvalidProblemError, match=r"2 records contradict .*v on i, seed 0: objective 100.0 in .*a, 101"
    ):
        merge_results(files, tmp_path / "all")
    assert not (tmp_path / "all").exists()


def test_results_of_different_code_are_refused(write, tmp_path):
    with pytest.raises(InvalidProblemError, match=r"different code .*a c; .*b another"):
        merge_results([write("a", ONE), write("b", replace(TWO, code="another"))], tmp_path / "all")

"""Comparing with golden results, and merging results of several machines without duplicates, losses or contradictions."""

from dataclasses import replace

import pytest

from optim.benchmarks.compare import Change, Selection, compare, golden_names, merge_results, read_golden, write_golden
from optim.benchmarks.records import Record, open_results, read_records
from optim.core.errors import InvalidProblemError

GOLDEN = Record(
    key="k",
    suite="s",
    problem="admission",
    instance="i",
    instance_digest="d",
    solver="v",
    seed=0,
    termination="completed",
    objective=100.0,
    bound=110.0,
    gap=0.1,
    ratio=1.1,
    seconds={"solve": 1.0},
    verified=True,
    labels={"jobs": 5},
    code="c",
    memory_mb=10.0,
)
ALL = Selection(suites=("s",), seeds=(0,))


def change(selection=ALL, **now):
    (difference,) = compare([replace(GOLDEN, **now)], [GOLDEN], selection)
    return difference.change


@pytest.mark.parametrize(
    "now",
    [
        {},
        {"objective": 100.0 - 0.9e-4},
        {"gap": 0.1199},
        {"gap": 0.0},
        {"bound": 111.0},
        {"seconds": {"solve": 1e6}, "memory_mb": 1e6, "code": "other"},
    ],
)
def test_passes_what_is_within_the_tolerances(now):
    assert change(**now) is Change.SAME


@pytest.mark.parametrize(
    "now",
    [
        {"objective": 100.0 - 1.1e-4},
        {"gap": 0.1201},
        {"gap": None, "bound": None},
        {"objective": None},
        {"verified": False},
        {"verified": False, "error": "it raised"},
        {"instance_digest": "other"},
    ],
)
def test_finds_a_row_that_got_worse(now):
    assert change(**now) is Change.WORSE


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        ({"error": "it raised", "violations": ["row 3"]}, "it raised"),
        ({"violations": ["row 3", "row 5"]}, "not verified: row 3; row 5"),
    ],
)
def test_says_why_a_row_is_not_verified(now, reason):
    (difference,) = compare([replace(GOLDEN, verified=False, **now)], [GOLDEN], ALL)
    assert difference.reason == reason


def test_a_golden_row_without_any_value_has_none_to_compare():
    golden = replace(GOLDEN, objective=None, bound=None, gap=None, ratio=None)
    (difference,) = compare([replace(golden, bound=3.0)], [golden], ALL)
    assert difference.change is Change.SAME


def test_tells_a_better_value_and_lets_it_pass():
    assert change(objective=101.0) is Change.BETTER


@pytest.mark.parametrize(("value", "expected"), [(0.2, Change.SAME), (0.21, Change.WORSE), (0.19, Change.WORSE)])
def test_what_a_study_found_must_come_out_again(value, expected):
    golden = replace(
        GOLDEN, problem="phases", objective=None, bound=None, gap=None, ratio=None, findings={"saved": 0.2}
    )
    (difference,) = compare([replace(golden, findings={"saved": value}, measures={"ms": 3.0})], [golden], ALL)
    assert difference.change is expected
    reason = f"saved {value}, was 0.2: findings must be reproducible" if expected is Change.WORSE else ""
    assert difference.reason == reason


@pytest.mark.parametrize("found", [{}, {"proven": True, "rule": "floor"}, {"proven": False, "rule": "ceil"}])
def test_findings_that_are_no_numbers_must_come_out_again_too(found):
    golden = replace(GOLDEN, findings={"proven": False, "rule": "floor"})
    (difference,) = compare([replace(golden, findings=found)], [golden], ALL)
    assert difference.change is Change.WORSE


def test_compares_no_value_of_a_run_that_the_clock_cut_short():
    assert change(objective=90.0, termination="time_limit") is Change.SAME
    assert change(gap=0.13, termination="time_limit") is Change.WORSE


def test_compares_the_bound_of_a_row_without_objective():
    golden = replace(GOLDEN, objective=None, gap=None, ratio=None)
    for bound, expected in ((110.0, Change.SAME), (110.1, Change.WORSE), (109.9, Change.BETTER)):
        (difference,) = compare([replace(golden, bound=bound)], [golden], ALL)
        assert difference.change is expected


def test_names_a_row_that_is_missing():
    (difference,) = compare([], [GOLDEN], ALL)
    assert difference.is_regression
    assert str(difference) == "s: i, v, seed 0, jobs 5: missing: it was not run"


def test_tells_rows_apart_by_labels():
    (difference,) = compare([replace(GOLDEN, labels={"jobs": 6})], [GOLDEN], ALL)
    assert difference.change is Change.MISSING


@pytest.mark.parametrize(
    "selection",
    [
        Selection(suites=("other",), seeds=(0,)),
        Selection(suites=("s",), seeds=(1,)),
        Selection(suites=("s",), seeds=(0,), solvers=("other",)),
        Selection(suites=("s",), seeds=(0,), instances=("other",)),
    ],
)
def test_misses_no_row_that_was_not_asked_for(selection):
    assert compare([], [GOLDEN], selection) == []


def test_refuses_golden_results_that_hold_a_row_twice():
    with pytest.raises(InvalidProblemError, match="twice"):
        compare([GOLDEN], [GOLDEN, GOLDEN], ALL)


def test_golden_results_hold_no_seconds_and_no_machine(tmp_path):
    path = tmp_path / "golden.jsonl"
    write_golden([replace(GOLDEN, instance="z"), GOLDEN], path)
    stored = read_golden(str(path))
    assert [record.instance for record in stored] == ["i", "z"]
    assert stored[0] == replace(GOLDEN, seconds={}, code="", memory_mb=None)
    assert compare([GOLDEN], stored[:1], ALL)[0].change is Change.SAME


def test_lists_the_shipped_names_when_there_are_no_such_golden_results():
    with pytest.raises(InvalidProblemError, match="there are: " + (", ".join(golden_names()) or "none")):
        read_golden("no-such-results")


def test_refuses_golden_results_without_rows(tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(InvalidProblemError, match="has no record"):
        read_golden(str(tmp_path / "empty.jsonl"))


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
    # Both agree, and the one that finished first remains.
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

"""Records as lines of JSON."""

import dataclasses
import json
from fractions import Fraction

import msgspec
import numpy as np
import pytest

from optim.benchmarks.records import Record, plain, record_from_json, row_of, summarise_decisions
from optim.core.documents import encode_line
from optim.core.solution import Termination

RECORD = Record(problem="admission", instance="i", solver="s", seed=3, termination="optimal", seconds={}, verified=True)


def test_is_one_line_and_comes_back_equal():
    line = RECORD.to_json()
    assert b"\n" not in line
    assert record_from_json(line) == RECORD


def test_has_the_fields_that_programs_rely_on():
    fields = json.loads(RECORD.to_json())
    assert fields.keys() >= {
        *("suite", "instance", "solver", "seed", "termination", "objective", "bound", "gap", "ratio"),
        *("seconds", "verified", "load", "decision_ms", "options", "versions", "machine", "parameters"),
        *("memory_mb", "counts", "wall_s", "processor_s", "findings", "measures"),
    }


def test_a_row_has_its_figures_at_the_top_too_and_is_still_a_record():
    found, measured = {"share": 0.5}, {"ms": 2.0}
    record = dataclasses.replace(RECORD, parameters={"jobs": 3, "seed": "other"}, findings=found, measures=measured)
    row = json.loads(encode_line(row_of(record)))
    assert (row["jobs"], row["seed"], row["parameters"]) == (3, RECORD.seed, {"jobs": 3, "seed": "other"})
    assert (row["share"], row["findings"], row["ms"], row["measures"]) == (0.5, found, 2.0, measured)
    assert record_from_json(encode_line(row_of(record))) == record


def test_reads_records_of_newer_releases_that_have_more_fields():
    fields = json.loads(RECORD.to_json()) | {"invented_later": [1]}
    assert record_from_json(json.dumps(fields).encode()) == RECORD


@pytest.mark.parametrize("line", [b"{}", b"[]", b'{"schema": "optim/record/1"}', b"torn"])
def test_refuses_what_is_no_record(line):
    with pytest.raises(msgspec.MsgspecError):
        record_from_json(line)


def test_plain_values_are_json_whatever_came_in():
    given = {
        "count": np.int64(3),
        "inf": float("inf"),
        "nan": np.float64("nan"),
        "status": Termination.OPTIMAL,
        "share": Fraction(1, 3),
        "nested": {"pair": (1, np.float64(0.5))},
    }
    assert plain(given) == {
        "count": 3,
        "inf": None,
        "nan": None,
        "status": "optimal",
        "share": "1/3",
        "nested": {"pair": [1, 0.5]},
    }


def test_decision_times_are_summed_up():
    summary = summarise_decisions(np.arange(1.0, 102.0))
    assert (summary["count"], summary["median"], summary["p99"], summary["max"]) == (101, 51.0, 100.0, 101.0)
    assert summarise_decisions(()) is None


def test_seconds_are_those_of_the_whole_solve_less_compiling():
    counted = dataclasses.replace(RECORD, seconds={"build": 1.0, "compile": 4.0, "solve": 2.0, "verify": 8.0})
    assert counted.run_s == 3.0
    assert dataclasses.replace(counted, wall_s=10.0).run_s == 6.0
    assert dataclasses.replace(counted, wall_s=3.0).run_s == 0.0


def test_a_column_shows_labels_first_then_what_was_found_measured_or_known():
    layers = {"labels": "a", "findings": "ab", "measures": "abc", "parameters": "abcd"}
    record = dataclasses.replace(RECORD, **{name: dict.fromkeys(keys, name) for name, keys in layers.items()})
    assert [record.figure(name) for name in "abcde"] == ["labels", "findings", "measures", "parameters", None]


@pytest.mark.parametrize(
    ("fields", "has_answer"),
    [
        ({}, False),
        ({"objective": 1.0}, True),
        ({"bound": 1.0}, True),
        ({"findings": {"loss": 1.0}}, True),
        ({"measures": {"ms": 1.0}}, True),
        ({"objective": 1.0, "verified": False}, False),
    ],
)
def test_an_answer_is_a_verified_value_or_what_a_study_found(fields, has_answer):
    assert dataclasses.replace(RECORD, **fields).has_answer is has_answer

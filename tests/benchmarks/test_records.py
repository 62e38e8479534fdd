"""Records as lines of JSON, in files that survive kills, reject a second writer, and stay unchanged on a full disk."""

import dataclasses
import hashlib
import json
import os
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import msgspec
import numpy as np
import pytest

from optim.benchmarks.records import (
    Record,
    open_results,
    plain,
    read_records,
    read_unsealed,
    record_from_json,
    row_of,
    seal,
    summarise_decisions,
)
from optim.core.documents import encode_line
from optim.core.errors import InvalidOptionError, InvalidProblemError, NotAllowedError
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


def make_record(key):
    return Record(
        key=key,
        problem="admission",
        instance="a",
        solver="b",
        seed=0,
        termination="completed",
        seconds={},
        verified=True,
    )


def write(path, *keys):
    with open_results(path) as results:
        for key in keys:
            results.append(make_record(key))


def keys_of(path):
    return [record.key for record in read_records(path)]


def test_reads_back_what_it_appended(tmp_path):
    path = tmp_path / "folder" / "results.jsonl"
    write(path, "one", "two")
    assert read_records(path) == [make_record("one"), make_record("two")]


def test_a_record_is_in_the_file_as_soon_as_it_is_appended(tmp_path):
    """A killed run loses the records that its file did not have by then."""
    path = tmp_path / "results.jsonl"
    with open_results(path) as results:
        for count, key in enumerate(("one", "two"), start=1):
            results.append(make_record(key))
            assert path.read_bytes().count(b"\n") == count


@pytest.mark.parametrize("num_bytes_lost", [1, 2, 40])
def test_drops_a_last_line_that_was_cut_short(tmp_path, num_bytes_lost):
    path = tmp_path / "results.jsonl"
    write(path, "one", "two")
    path.write_bytes(path.read_bytes()[:-num_bytes_lost])
    with open_results(path) as results:
        assert list(results.records) == ["one"]
        results.append(make_record("three"))
    assert keys_of(path) == ["one", "three"]


def test_takes_unwanted_records_out_and_leaves_the_other_lines_as_they_are(tmp_path):
    path = tmp_path / "results.jsonl"
    write(path, "one", "two", "three")
    newer = [{"newer": 1, **json.loads(make_record(key).to_json())} for key in ("one", "two", "three")]
    path.write_bytes(b"".join(seal(json.dumps(fields).encode()) + b"\n" for fields in newer))
    lines = path.read_bytes().splitlines()
    with open_results(path, lambda record: record.key != "two") as results:
        results.append(make_record("four"))
    assert path.read_bytes().splitlines()[:2] == [lines[0], lines[2]]
    assert keys_of(path) == ["one", "three", "four"]


def opened(path):
    """Return the open files of this process for a path, and for the files that it replaced."""
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return [file for file in map(os.path.realpath, links) if file.startswith(str(path))]


def test_leaves_no_file_open_also_after_it_was_rewritten(tmp_path):
    path = tmp_path / "results.jsonl"
    write(path, "one", "two")
    with open_results(path, lambda record: record.key == "one"):
        assert opened(path) == [str(path)]
    assert opened(path) == []


def test_refuses_a_second_writer(tmp_path):
    path = tmp_path / "results.jsonl"
    with open_results(path), pytest.raises(NotAllowedError, match="in use by another"), open_results(path):
        pass


def test_refuses_a_second_writer_also_after_it_was_rewritten(tmp_path):
    path = tmp_path / "results.jsonl"
    write(path, "one")
    with open_results(path, lambda record: False), pytest.raises(NotAllowedError), open_results(path):
        pass


def test_names_the_line_that_is_no_record(tmp_path):
    path = tmp_path / "results.jsonl"
    write(path, "one")
    path.write_bytes(path.read_bytes() + b'{"schema": "something/else"}\n')
    with pytest.raises(InvalidProblemError, match="line 2 is not a benchmark record"), open_results(path):
        pass
    assert path.read_bytes().endswith(b'{"schema": "something/else"}\n')


def test_refuses_a_record_of_another_schema(tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_bytes(replace(make_record("one"), schema="optim/record/99").to_json() + b"\n")
    with pytest.raises(InvalidProblemError, match="optim/record/99"):
        read_records(path)


@pytest.mark.parametrize("name", ["", "/dev/full"])
def test_refuses_what_is_no_regular_file(tmp_path, name):
    with pytest.raises(InvalidOptionError, match="not a regular file"), open_results(tmp_path / name):
        pass


def test_says_so_when_the_folder_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "results.jsonl"
    with pytest.raises(InvalidOptionError, match="cannot be written"), open_results(path):
        pass


def test_leaves_no_part_of_a_line_when_the_disk_is_full(tmp_path, monkeypatch):
    path = tmp_path / "results.jsonl"
    real_write = os.write

    def write_a_part_then_fail(descriptor, data):
        if len(data) < 20:
            raise OSError(28, "No space left on device")
        return real_write(descriptor, data[: len(data) - 10])

    with open_results(path) as results:
        results.append(make_record("one"))
        monkeypatch.setattr(os, "write", write_a_part_then_fail)
        with pytest.raises(OSError, match="No space left"):
            results.append(make_record("two"))
        assert list(results.records) == ["one"]
    assert keys_of(path) == ["one"]
    assert path.read_bytes().endswith(b"}\n")


def test_a_file_of_which_all_is_wanted_is_not_written_anew(tmp_path):
    path = tmp_path / "results.jsonl"
    write(path, "one", "two")
    before = path.stat().st_ino
    with open_results(path) as results:
        assert list(results.records) == ["one", "two"]
    assert path.stat().st_ino == before


def test_records_are_not_waited_for_where_nobody_writes_them(tmp_path, monkeypatch):
    monkeypatch.setattr("optim.core.files.PATIENCE_S", 0.05)
    os.mkfifo(tmp_path / "pipe")
    assert read_records(tmp_path / "pipe") == []
    with pytest.raises(InvalidProblemError, match="can't be read"):
        read_records(tmp_path / "nothing")


WHOLE = seal(make_record("one").to_json()) + b"\n"


@pytest.mark.parametrize(
    "foreign",
    [b'{"a": 1}', b"{", b"notes", b"\n\n{", b"\n", WHOLE + b"notes", WHOLE + b"[1]", WHOLE + b"{ ", bytes(40)],
)
def test_a_file_that_is_not_ours_is_refused_and_left_as_it_is(tmp_path, foreign):
    """Only a partial record after complete ones is cut off; a single line feed contains no data to lose."""
    path = tmp_path / "results.jsonl"
    path.write_bytes(foreign)
    if foreign.strip():
        with pytest.raises(InvalidProblemError, match="choose another results file, or move this one"):
            open_results(path).__enter__()
        with pytest.raises(InvalidProblemError):
            read_records(path)
    else:
        write(path)
    assert path.read_bytes() == foreign


def test_a_read_only_file_is_refused_though_an_administrator_could_write_it(tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_bytes(WHOLE)
    path.chmod(0o444)
    with pytest.raises(InvalidProblemError, match="read-only"):
        write(path, "two")
    assert path.read_bytes() == WHOLE


def test_every_line_ends_with_the_digest_of_the_rest(tmp_path):
    path = tmp_path / "results.jsonl"
    write(path, "one", "two")
    for line in path.read_bytes().splitlines():
        rest, _, digest = line.rpartition(b',"sha256":"')
        assert hashlib.sha256(rest + b"}").hexdigest().encode() + b'"}' == digest
        assert json.loads(line)["sha256"] + '"}' == digest.decode()


CHANGES = [(b'"verified":true', b'"verified":false'), (b'"seed":0', b'"seed":10'), (b'{"schema"', b'{ "schema"'),
           (b',"sha256":"', b',"sha255":"')]  # fmt: skip


@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_a_record_that_was_changed_by_hand_is_not_taken_for_measured(tmp_path, before, after):
    path = tmp_path / "results.jsonl"
    write(path, "one", "two")
    changed = path.read_bytes().replace(before, after, 1)
    path.write_bytes(changed)
    for read in (read_records, lambda path: open_results(path).__enter__()):
        with pytest.raises(InvalidProblemError, match=r"line 1 is not a benchmark record .*changed after"):
            read(path)
    assert path.read_bytes() == changed
    assert len(read_unsealed(path)) == 2

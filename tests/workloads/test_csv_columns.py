"""Tables read in blocks as if they were read at once, and dates as the standard library reads them."""

import gzip
import os
import stat
from datetime import datetime, timedelta

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidProblemError
from optim.core.limits import read_limits
from optim.workloads import csv_columns
from optim.workloads.csv_columns import (
    groups,
    header_of,
    joined,
    read_columns,
    refuse,
    require_columns,
    require_order,
    require_whole,
    utc_dates,
)


@pytest.fixture
def table(tmp_path):
    """Return a function that writes a table and returns its path."""

    def write(text):
        path = tmp_path / "table.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


@pytest.mark.parametrize("cells", [1, 4, 6, 1_000])
def test_blocks_make_no_difference(table, monkeypatch, cells):
    monkeypatch.setattr(csv_columns, "BLOCK_CELLS", cells)
    path = table('a,b,c\n1,x,\n2.5,"y, z",7\n,"two\nlines",8\n4,x,9\n')
    columns = read_columns(path, ("a", "c"), ("b",))
    np.testing.assert_array_equal(columns["a"], [1, 2.5, np.nan, 4])
    np.testing.assert_array_equal(columns["c"], [np.nan, 7, 8, 9])
    assert columns["b"].tolist() == ["x", "y, z", "two\nlines", "x"]
    assert columns["b"][0] is columns["b"][3]


@pytest.mark.parametrize("cells", [1, 1_000])
def test_rows_are_numbered_as_an_editor_does_it(table, monkeypatch, cells):
    monkeypatch.setattr(csv_columns, "BLOCK_CELLS", cells)
    with pytest.raises(InvalidProblemError, match="row 4, column 'a': expected a finite number, got 'inf'"):
        read_columns(table("a\n1\n2\ninf\n"), ("a",))
    with pytest.raises(
        InvalidProblemError, match=r"row 3, column 'a': expected a number of at most 1e\+18, got '-1.1e18'"
    ):
        read_columns(table("a\n1e18\n-1.1e18\n"), ("a",))


@pytest.mark.parametrize("cells", [1, 1_000])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a|b\n\n\n1|2\nx|3\n", 5),
        ("\n \na,b\n1,2\nx,3\n", 5),
        ("\ufeffa,b\r\n\r\n1,2\r\nx,3\r\n", 4),
        ("a,b\r\r1,2\rx,3\r", 4),
        ('a,b\n1,"two\nlines"\n\t \nx,3\n', 5),
        ('a,b\n1,5" wide\nx,3\n', 3),
        ("b,a\n1\n ,\n,2\n3,x\n", 5),
        ('a\n""\n\nx\n', 4),
        ('"a,b;";a\n";\n";1\n2;x\n', 4),
    ],
)
def test_blank_lines_and_those_in_quotes_count_as_an_editor_counts_them(table, monkeypatch, cells, packed, text, line):
    monkeypatch.setattr(csv_columns, "BLOCK_CELLS", cells)
    path = table(gzip.compress(text.encode()) if packed else text)
    separator = next(sign for sign in "|;," if sign in text or sign == ",")
    with pytest.raises(InvalidProblemError, match=f"row {line}, column 'a': expected a finite number, got 'x'"):
        read_columns(path, ("a",), separator=separator)
    texts = read_columns(path, (), ("a",), separator)["a"]
    with pytest.raises(InvalidProblemError, match=f"row {line}, column 'a': expected no x"):
        refuse(path, "a", texts == "x", "expected no x", texts)
    with pytest.raises(InvalidProblemError, match=f"row {line}: g goes back in time"):
        require_order(path, "g", np.array([0, len(texts) - 1]), np.array([1, 0]), by="t")


def test_rows_are_counted_where_the_file_cant_be_read_again(table, tmp_path):
    for path in (tmp_path / "nothing", table(f'a\n\n"{"x" * 200_000}"\n1\n')):
        with pytest.raises(InvalidProblemError, match="row 3, column 'a': expected more"):
            refuse(path, "a", np.array([False, True]), "expected more", np.zeros(2))


def test_values_of_lists_have_no_row(table):
    with pytest.raises(InvalidProblemError, match=r"csv: field 'a': expected more, got 0; correct or remove it$"):
        refuse(table("a\n0\n"), "a", np.array([True]), "expected more", np.zeros(1), is_table=False)
    with pytest.raises(InvalidProblemError, match=r"csv: field 'a': must be at least 1, got 0; correct or remove it$"):
        require_columns(table("a\n0\n"), {"a": np.zeros(1)}, "a", least=1.0, is_table=False)


def test_wide_tables_long_lines_and_many_rows_are_refused_at_once(table):
    wide = table(",".join(f"c{number}" for number in range(200_000)) + "\n")
    with pytest.raises(InvalidProblemError, match=r"line of more than 1048576 bytes|columns: at most 4096 are read"):
        read_columns(wide, ("c0",))
    with read_limits(columns=3):
        assert list(read_columns(table("a,b,c\n1,2,3\n"), ("c",))) == ["c"]
        with pytest.raises(InvalidProblemError, match="columns: at most 3 are read, got 4"):
            read_columns(table("a,b,c,d\n1,2,3,4\n"), ("a",))
    with read_limits(rows=2), pytest.raises(InvalidProblemError, match="rows: at most 2 are read, got 3"):
        read_columns(table("a\n1\n2\n3\n"), ("a",))
    with read_limits(line_bytes=10):
        assert read_columns(table("a\n12345\n1234567890\n"), ("a",))["a"].tolist() == [12345, 1234567890]
        with pytest.raises(InvalidProblemError, match="a line of more than 10 bytes"):
            read_columns(table("a\n12345\n12345678901\n"), ("a",))


@pytest.mark.parametrize("cells", [1, 1_000])
@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ("1,2,", 2),
        ("1,2,\n3,4,", 2),
        ("1,2,7,8", 2),
        ("1,2\n3,4,", 3),
        ("1,2\n3\n5,6\n7,8,9", 5),
        ('\n \n"x\ny,z",4\n5,6,7', 6),
    ],
)
def test_a_row_of_more_fields_than_the_header_is_refused(table, monkeypatch, cells, rows, line):
    monkeypatch.setattr(csv_columns, "BLOCK_CELLS", cells)
    with pytest.raises(
        InvalidProblemError, match=rf"row {line} has more fields than the header \([34], not 2\); remove"
    ):
        read_columns(table(f"a,b\n{rows}\n"), (), ("a", "b"))


@pytest.mark.parametrize(("rows", "line"), [("1,2\n3,4,5\n6,7", 3), ("1,2\n3,4\n5,6,", 4), ("1,2\n3,4,5,6", 3)])
def test_more_fields_are_refused_where_pandas_drops_them(table, monkeypatch, rows, line):
    """Before 3.1 it does so in the first row of each of its blocks, whose length it chooses."""
    dropped = [dict(zip("ab", row.split(","), strict=False)) for row in rows.split("\n")]
    monkeypatch.setattr(csv_columns, "_blocks", lambda *_, **__: iter([pd.DataFrame(dropped)]))
    with pytest.raises(InvalidProblemError, match=f"row {line} has more fields than the header"):
        read_columns(table(f"a,b\n{rows}\n"), ("a",), ("b",))


def test_a_row_of_more_fields_is_named_where_quotes_are_long_or_open(table):
    with pytest.raises(InvalidProblemError, match="row 3 has more fields than the header"):
        read_columns(table(f'a,b\n"{"x" * 100_000}",1\n1,2,3\n'), ("b",))
    for rows in (f'"{"x" * 200_000}",1\n1,2,3', '"never closed'):
        with pytest.raises(InvalidProblemError, match=r"not a CSV file .*C error"):
            read_columns(table(f"a,b\n{rows}\n"), ("b",))


@pytest.mark.parametrize("text", ["a,b,\n1,2,\n3,4,\n", "a,b,,\n1,2\n3,4,,\n", "a,b,c\n1,2\n3,4,5\n"])
def test_a_row_may_have_fewer_fields_and_the_last_column_no_name(table, text):
    assert read_columns(table(text), ("a", "b"))["b"].tolist() == [2, 4]


def test_a_column_that_is_read_is_named_once(table):
    path = table("a,b,a,c,c,a.1\n1,2,3,4,5,6\n")
    for name in ("a", "c"):
        with pytest.raises(
            InvalidProblemError, match=f"column '{name}' is named twice in the header; rename or remove"
        ):
            read_columns(path, ("b",), (name,))
    columns = read_columns(path, ("b", "a.1"))
    assert (columns["b"].tolist(), columns["a.1"].tolist()) == ([2], [6])
    with pytest.raises(InvalidProblemError, match=r"column 'c.1' is missing \(there are: a, b, a, c, c, a.1\)"):
        read_columns(path, ("c.1",))


@pytest.mark.parametrize("header", ["a,b", '"a",b', '\n \n"a","b"', "a,b\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_mark_of_the_byte_order_quotes_and_blank_lines_before_are_no_part_of_a_name(table, header, mark):
    path = table(f"{mark}{header}\n1,2\n")
    assert header_of(path) == ("a", "b")
    columns = read_columns(path, ("a", "b"))
    assert (columns["a"].tolist(), columns["b"].tolist()) == ([1], [2])


def test_names_may_hold_what_separates_them(table):
    assert header_of(table('"a,b",c\n1,2\n')) == ("a,b", "c")
    assert read_columns(table('"a,b",c\n1,2\n'), ("a,b",))["a,b"].tolist() == [1]
    with read_limits(columns=2):
        assert read_columns(table('"a,b",c\n1,2\n'), ("c",))["c"].tolist() == [2]


def test_a_header_without_an_end_is_refused(table):
    path = table('"' + "a\n" * 100_000)
    with pytest.raises(InvalidProblemError, match=r"not a CSV file \(field larger than"):
        read_columns(path, ("a",))
    with pytest.raises(InvalidProblemError, match=r"not a CSV file \(field larger than"):
        header_of(path)


def test_a_table_may_be_packed(table):
    packed = table(gzip.compress(b"a,b\n1,2\n"))
    assert header_of(packed) == ("a", "b")
    assert read_columns(packed, ("b",))["b"].tolist() == [2]


def test_a_pipe_and_a_device_are_refused_at_once(tmp_path):
    reader, writer = os.pipe()
    os.write(writer, b"a,b\n1,2\n")
    os.close(writer)
    os.mkfifo(tmp_path / "named")  # no process writes to it
    for path in (f"/proc/self/fd/{reader}", tmp_path / "named", "/dev/null"):
        for read in (header_of, lambda path: read_columns(path, ("a",))):
            with pytest.raises(
                InvalidProblemError, match=f"{path}: a table is read more than once, .* write it to a file"
            ):
                read(path)
    assert os.read(reader, 99) == b"a,b\n1,2\n"
    os.close(reader)
    assert stat.S_ISFIFO((tmp_path / "named").stat().st_mode)
    with pytest.raises(InvalidProblemError, match="can't be read: Is a directory"):
        header_of(tmp_path)
    with pytest.raises(InvalidProblemError, match="can't be read: No such file"):
        header_of(tmp_path / "nothing")


def test_an_empty_table_one_without_rows_and_one_without_the_column_are_told_apart(table):
    with pytest.raises(InvalidProblemError, match="the file is empty"):
        read_columns(table(""), ("a",))
    with pytest.raises(InvalidProblemError, match="a header but no rows"):
        read_columns(table("a,b\n"), ("a",))
    with pytest.raises(InvalidProblemError, match=r"column 'c' is missing \(there are: a, b\)"):
        read_columns(table("a,b\n1,2\n"), ("c",))
    with pytest.raises(InvalidProblemError, match="not a CSV file"):
        read_columns(table(b"a,b\n\xff\xfe,1\n"), ("b",))
    assert header_of(table("")) == ()
    assert header_of(table(' a ,"b"\n')) == ("a", "b")


@pytest.mark.parametrize(("value", "found"), [("x", "'x'"), (np.nan, "nothing"), (2.5, "2.5"), (7.0, "7")])
def test_what_is_there_is_told(value, found):
    values = np.array([0.0, value], dtype=object)
    with pytest.raises(InvalidProblemError, match=f"f: row 3, column 'a': expected more, got {found}; "):
        refuse("f", "a", np.array([False, True]), "expected more", values)
    refuse("f", "a", np.array([False, False]), "expected more", values)


def test_the_least_value_is_allowed_and_lacking_only_where_it_may():
    columns = {"a": np.array([1.0, 2.0]), "b": np.array([np.nan, 1.0])}
    require_columns("f", columns, "a", least=1.0)
    require_columns("f", columns, "a", "b", least=1.0, may_lack=True)
    with pytest.raises(InvalidProblemError, match="row 2, column 'b': must be at least 1, got nothing"):
        require_columns("f", columns, "a", "b", least=1.0)
    with pytest.raises(InvalidProblemError, match=r"row 2, column 'a': must be at least 1\.5, got 1;"):
        require_columns("f", columns, "a", least=1.5)


def test_whole_numbers_become_integers():
    assert require_whole("f", "a", np.array([2.0, -3.0])).tolist() == [2, -3]
    with pytest.raises(InvalidProblemError, match=r"row 3, column 'a': expected an integer, got 2\.5"):
        require_whole("f", "a", np.array([2.0, 2.5]))


@pytest.mark.parametrize(
    ("times", "is_strict", "row"), [((3, 5, 4), False, 10), ((3, 3, 4), True, 7), ((3, 3, 4), False, 0)]
)
def test_times_of_a_group_rise_or_may_stand_still(times, is_strict, row):
    rows = np.array([2, 5, 8])
    if not row:
        require_order("f", "g", rows, np.array(times), by="t", is_strict=is_strict)
        return
    with pytest.raises(InvalidProblemError, match=f"f: row {row}: g goes back in time; sort its rows by t"):
        require_order("f", "g", rows, np.array(times), by="t", is_strict=is_strict)


def test_rows_are_grouped_by_key_in_order_of_first_appearance():
    keys = joined(np.array(["z", "a", "z"], object), np.array(["1", "2", "1"], object), by="/")
    assert {key: rows.tolist() for key, rows in groups(keys).items()} == {"z/1": [0, 2], "a/2": [1]}
    assert list(groups(keys)) == ["z/1", "a/2"]


@pytest.mark.parametrize(
    ("header", "remedy"),
    [
        ("a;b\n1;2\n", "there are: a;b.; separate columns by ',', not ';'"),
        ("a\tb\n1\t2\n", "separate columns by ',', not '.t'"),
        ("a, B\n1,2\n", "there are: a,  B.; rename ' B'"),
        ("a\n1\n", "check file and trace format"),
    ],
)
def test_another_separator_or_spelling_is_named(tmp_path, header, remedy):
    (tmp_path / "t.csv").write_text(header)
    with pytest.raises(InvalidProblemError, match=remedy):
        read_columns(tmp_path / "t.csv", ["b"])


OFFSETS = [
    "",
    "Z",
    *(f"{sign}{hours:02d}{rest}" for sign in "+-" for hours in (0, 2, 9, 14) for rest in ("", ":00", ":30", "45")),
]


def in_utc(text):
    """The date by the standard library, without its zone."""
    date = datetime.fromisoformat(text)
    return date.replace(tzinfo=None) - (date.utcoffset() or timedelta())


@given(
    rows=st.lists(
        st.tuples(
            st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1)), st.sampled_from("T "), st.sampled_from(OFFSETS)
        ),
        min_size=1,
        max_size=5,
    )
)
def test_all_offsets_are_taken_off(rows):
    texts = [date.isoformat(sep) + offset for date, sep, offset in rows]
    assert [one.to_pydatetime() for one in utc_dates(texts)] == [in_utc(text) for text in texts]


def test_offsets_do_not_depend_on_pandas(monkeypatch):
    """A pandas that drops UTC offsets, as some versions do, gives the same result."""
    read = pd.to_datetime

    def forgetful(series, **options):
        return read(series.str.replace(r"([+-]\d\d:\d\d|Z)$", "", regex=True), **options)

    texts = ["2017-10-03T01:00Z", "2017-10-03T03:01:00+02:00", "2017-10-02T20:01-05:00"]
    monkeypatch.setattr(pd, "to_datetime", forgetful)
    minutes = [(one.to_pydatetime() - datetime(2017, 10, 3, 1)).total_seconds() / 60 for one in utc_dates(texts)]
    assert minutes == [0, 1, 1]


@pytest.mark.parametrize(
    "text",
    ["2017-10-03T01:00+02:00+02:00", "2017-10-03T01:00ZZ", "2017-10-03T01:00+25:00", "2017-10-03T01:00+02:75", "2017-13-01T00:00Z",
     "2017-10-03T01:00Z+02:00", "", "now", "2017-10-03T25:00Z", "2017-10-03+02:00"],
)  # fmt: skip
def test_what_is_no_date_is_none(text):
    assert utc_dates([text, "2017-10-03T01:00Z"]).isna().tolist() == [True, False]


def test_days_minutes_and_parts_of_seconds_are_dates():
    texts = np.array(
        ["2017-10-03", "2017-10-03 01:00", "2017-10-03T01:00:00.25-01:00", "2017-10-03T01:00:00 Z"], dtype=object
    )
    begin = datetime(2017, 10, 3)
    assert [(one.to_pydatetime() - begin).total_seconds() for one in utc_dates(texts)] == [0, 3600, 7200.25, 3600]
    assert utc_dates(texts).dt.tz is None

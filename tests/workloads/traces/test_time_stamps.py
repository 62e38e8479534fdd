"""Dates on a trace's clock."""

from datetime import datetime

import pytest

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.workloads.traces.job_table import read_times, seconds_of

BEGIN = datetime(2017, 10, 3, 1)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2017-10-03T02:00", 3600), ("2017-10-03", -3600), ("90.5", 90.5), ("2017-10-04 01:00:01", 86401)],
)
def test_dates_and_seconds_lie_on_the_clock(text, seconds):
    assert seconds_of(BEGIN, text) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2017-10-03T03:01:00+02:00", 60), ("2017-10-02T20:01-05:00", 60), ("2017-10-03T01:01:00Z", 60)],
)
def test_dates_with_an_offset_are_brought_to_utc_as_those_of_the_trace(tmp_path, text, seconds):
    path = tmp_path / "jobs.csv"
    path.write_text(f"t\n2017-10-03T01:00Z\n{text}\n")
    times, begin, _ = read_times(path, "t")
    assert times[1] == seconds_of(begin, text) == seconds


def test_offsets_at_the_ends_of_the_calendar_are_read():
    year = datetime(1, 1, 1)
    assert seconds_of(year, "0001-01-01T00:00+02:00") == -7200
    assert seconds_of(year, "0001-01-01T00:00-02:00") == 7200


@pytest.mark.parametrize(("begin", "text"), [(BEGIN, "yesterday"), (None, "2017-10-03"), (BEGIN, "inf")])
def test_what_is_no_date_or_needs_one_is_refused(begin, text):
    with pytest.raises(InvalidOptionError, match="--from"):
        seconds_of(begin, text)


def test_a_column_of_times_holds_numbers_or_dates(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text("t\n2000\n500\n")
    assert read_times(path, "t", 1000.0)[0].tolist() == [2.0, 0.5]
    path.write_text("t\n2017-10-03T01:00:05\n2017-10-03T01:00:00\n")
    seconds, begin, _ = read_times(path, "t")
    assert (seconds.tolist(), begin) == ([5, 0], BEGIN)
    path.write_text("t\n2017-10-03 01:00:05\n17\n")
    with pytest.raises(InvalidProblemError, match=r"row 3, column 't': expected a date such as .*, got '17'"):
        read_times(path, "t")
    path.write_text("t\nnow\n")
    with pytest.raises(
        InvalidProblemError, match=r"row 2, column 't': expected seconds, or dates such as .*, got 'now'"
    ):
        read_times(path, "t")


@pytest.mark.parametrize(
    "later",
    [
        "2017-10-03 01:01",
        "2017-10-03T01:01",
        "2017-10-03 01:01:00.000",
        "2017-10-03T01:01:00Z",
        "2017-10-03T03:01:00+02:00",
    ],
)
def test_dates_may_be_written_in_all_usual_forms(tmp_path, later):
    path = tmp_path / "jobs.csv"
    first = "2017-10-03 01:00" + ("Z" if later[-1] == "Z" or "+" in later else "")
    path.write_text(f"t\n{later}\n{first}\n")
    seconds, begin, _ = read_times(path, "t")
    assert (seconds.tolist(), begin) == ([60, 0], BEGIN)


@pytest.mark.parametrize("later", ["2018", "3", "2017-13-03", "3/10/2017", "today", ""])
def test_a_column_of_dates_holds_nothing_else(tmp_path, later):
    path = tmp_path / "jobs.csv"
    path.write_text(f"t,u\n2017-10-03,1\n{later},1\n")
    with pytest.raises(InvalidProblemError, match=r"row 3, column 't': expected a date such as"):
        read_times(path, "t")


@pytest.mark.parametrize(("unit", "factor"), [("seconds", 1), ("milliseconds", 10**3), ("microseconds", 10**6)])
def test_numbers_too_large_for_seconds_count_from_1970_in_a_smaller_unit(tmp_path, unit, factor):
    path = tmp_path / "jobs.csv"
    path.write_text("".join(f"{time}\n" for time in ("t", 1774749570 * factor, 1774749580 * factor)))
    seconds, begin, remarks = read_times(path, "t")
    assert seconds.tolist() == [1774749570, 1774749580]
    assert begin == datetime(1970, 1, 1)
    assert remarks == (() if factor == 1 else (f"the times in 't' are read as {unit} since 1970",))


def test_seconds_of_a_clock_of_their_own_have_no_dates(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text("t\n0\n1774749580\n")
    assert read_times(path, "t")[1] is None


def test_times_in_two_units_are_refused(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text("t\n1774749570\n1774749580000\n")
    with pytest.raises(
        InvalidProblemError, match="row 3 is in milliseconds since 1970, and row 2 isn't; write all in one"
    ):
        read_times(path, "t")


def test_dates_with_and_without_an_offset_are_refused_by_both_rows(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text("t\n2026-03-29T01:59:30+01:00\n2026-03-29\n2026-03-29T02:00:00\n")
    with pytest.raises(
        InvalidProblemError, match=r"row 3 \('2026-03-29'\) has no offset from UTC, and row 2 .* has one; write"
    ):
        read_times(path, "t")


@pytest.mark.parametrize("offset", ["Z", "+01:00", "+0100", "-05"])
def test_offsets_are_known_in_every_form(tmp_path, offset):
    path = tmp_path / "jobs.csv"
    path.write_text(f"t\n2026-03-29T01:59:30{offset}\n2026-03-29 01:59:40{offset}\n")
    assert read_times(path, "t")[0].tolist() == [0, 10]

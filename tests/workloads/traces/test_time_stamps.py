"""Dates on a trace's clock."""

from datetime import datetime

import pytest

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.workloads.traces.time_stamps import read_times, seconds_of

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
    times, begin = read_times(path, "t")
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
    seconds, begin = read_times(path, "t")
    assert (seconds.tolist(), begin) == ([5, 0], BEGIN)
    path.write_text("t\n2017-10-03 01:00:05\n17\n")
    with pytest.raises(InvalidProblemError, match=r"row 3, column 't': a date such as .* is due, got '17'"):
        read_times(path, "t")
    path.write_text("t\nnow\n")
    with pytest.raises(
        InvalidProblemError, match=r"row 2, column 't': seconds, or dates such as .*, are due, got 'now'"
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
    path.write_text(f"t\n{later}\n2017-10-03 01:00\n")
    seconds, begin = read_times(path, "t")
    assert (seconds.tolist(), begin) == ([60, 0], BEGIN)


@pytest.mark.parametrize("later", ["2018", "3", "2017-13-03", "3/10/2017", "today", ""])
def test_a_column_of_dates_holds_nothing_else(tmp_path, later):
    path = tmp_path / "jobs.csv"
    path.write_text(f"t,u\n2017-10-03,1\n{later},1\n")
    with pytest.raises(InvalidProblemError, match=r"row 3, column 't': a date such as"):
        read_times(path, "t")

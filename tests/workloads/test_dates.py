"""Dates against the standard library's reader, whatever pandas makes of several offsets in a column."""

from datetime import datetime, timedelta

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.workloads.csv_columns import utc_dates

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
    """One that forgets them, as some do, gives the same."""
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

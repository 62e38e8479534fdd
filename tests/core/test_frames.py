"""Rows of plain Python and of frames are the same rows."""

import numpy as np
import pandas as pd
import pytest

from optim.core.errors import InvalidProblemError
from optim.core.frames import frame_of, is_frame, rows_of

ROWS = [
    {"id": "a", "work": 3, "worker": {"gpu": 1, "vcpu": 0.5}},
    {"id": "b", "work": 4, "worker": {"gpu": 2, "vcpu": 8}, "deadline": 7},
]


def test_a_frame_gives_the_rows_that_it_was_made_of():
    frame = pd.json_normalize(ROWS)
    assert is_frame(frame)
    assert rows_of(frame, "jobs") == ROWS


def test_what_is_missing_is_left_out_and_numbers_are_plain():
    row = {
        "a": np.int64(3),
        "b": np.float64(0.5),
        "c": None,
        "e": pd.NA,
        "f": np.array([1, 2]),
        "g": 2.0,
    }
    (found,) = rows_of([row], "rows")
    assert found == {"a": 3, "b": 0.5, "f": [1, 2], "g": 2}
    assert [type(value) for value in found.values()] == [int, float, list, int]
    assert np.isnan(rows_of([{"x": float("nan")}], "rows")[0]["x"])  # an error of a program, named where it is read
    assert rows_of(pd.DataFrame({"x": [1.0, float("nan")]}), "rows") == [{"x": 1}, {}]
    assert rows_of([{"x": float("inf")}], "rows") == [{"x": float("inf")}]
    (large,) = rows_of([{"x": 1e300, "y": -(2.0**60), "z": 2.0**40}], "rows")  # too large to be counts
    assert [type(value) for value in large.values()] == [float, float, int]


def test_a_row_must_be_a_mapping():
    with pytest.raises(InvalidProblemError, match=r"jobs\[1\] must be a mapping of fields"):
        rows_of([{"id": "a"}, ("b", 3)], "jobs")


def test_columns_become_a_frame():
    assert frame_of({"a": [1, 2], "b": np.array([0.5, 1.0])}).to_dict("list") == {"a": [1, 2], "b": [0.5, 1.0]}
    assert not is_frame([1])

"""Limits of the readers: above what is promised, checked, and raised for a block only."""

from dataclasses import fields

import pytest

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.core.limits import DEFAULTS, ReadLimits, check_drawn, check_limit, current_limits, read_limits


def test_the_defaults_are_above_what_is_promised():
    assert DEFAULTS.cells > 10_000 * 1_000
    assert DEFAULTS.rows > 10_000 * 40_320 > 300_000
    assert DEFAULTS.count >= 10_000
    assert DEFAULTS.document_bytes > 10_000 * 1_000 * 20
    assert DEFAULTS.table_bytes > 10_000 * 40_320 * 60


def test_limits_are_changed_inside_the_block_only():
    with read_limits(rows=5) as limits:
        assert limits == current_limits() == ReadLimits(rows=5)
        with read_limits(columns=7):
            assert current_limits() == ReadLimits(rows=5, columns=7)
        assert current_limits() == ReadLimits(rows=5)
    assert current_limits() == DEFAULTS


def test_unknown_limits_and_such_below_one_are_refused():
    with (
        pytest.raises(InvalidOptionError, match="unknown limit 'size'; there are: document_bytes"),
        read_limits(size=1),
    ):
        pass
    for field in fields(ReadLimits):
        with pytest.raises(InvalidOptionError, match=f"limit {field.name} must be at least 1, got 0"):
            ReadLimits(**{field.name: 0})
        assert getattr(ReadLimits(**{field.name: 1}), field.name) == 1


def test_a_limit_may_be_met_but_not_exceeded():
    with read_limits(count=3):
        check_limit("count", 3, "machines")
        with pytest.raises(InvalidProblemError, match=r"machines: at most 3 are read, got 4; .*optim --limit count=N"):
            check_limit("count", 4, "machines")


def test_what_is_drawn_may_meet_a_limit_and_not_exceed_it():
    with read_limits(count=3):
        check_drawn("count", 3, "num_jobs")
        with pytest.raises(InvalidOptionError, match=r"num_jobs: at most 3 are drawn, got 4; .*optim --limit count=N"):
            check_drawn("count", 4, "num_jobs")


def test_the_remedy_is_named_for_the_command_and_for_python():
    with pytest.raises(InvalidProblemError, match=r"'optim --limit rows=N' \(in Python: .*read_limits\(rows=N\)"):
        check_limit("rows", DEFAULTS.rows + 1, "table")

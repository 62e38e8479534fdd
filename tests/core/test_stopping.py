"""Stopping rules: when each one stops, why, and the time that it leaves."""

import math

import pytest

from optim.core.errors import InvalidOptionError
from optim.core.solution import Sense, Termination
from optim.core.stopping import (
    AnyOf,
    GapLimit,
    Interruption,
    IterationLimit,
    Never,
    SolveState,
    TimeLimit,
    TimeReserve,
)


def state(**fields):
    return SolveState(**{"elapsed_s": 0.0, **fields})


@pytest.mark.parametrize(
    ("rule", "goes_on", "stops", "reason"),
    [
        (TimeLimit(2.0), {"elapsed_s": 1.99}, {"elapsed_s": 2.0}, Termination.TIME_LIMIT),
        (TimeReserve(TimeLimit(2.5), 0.5), {"elapsed_s": 1.99}, {"elapsed_s": 2.0}, Termination.TIME_LIMIT),
        (IterationLimit(3), {"iterations": 2}, {"iterations": 3}, Termination.ITERATION_LIMIT),
        (GapLimit(0.5), {"objective": 2.0, "bound": 3.01}, {"objective": 2.0, "bound": 3.0}, Termination.GAP_LIMIT),
        (GapLimit(0.5), {"objective": None, "bound": 3.0},
         {"objective": 2.0, "bound": 1.0, "sense": Sense.MINIMISE}, Termination.GAP_LIMIT),
    ],
)  # fmt: skip
def test_each_rule_stops_at_its_limit_and_not_before(rule, goes_on, stops, reason):
    assert rule(state(**goes_on)) is None
    assert rule(state(**stops)) is reason


def test_only_a_clock_and_an_interruption_know_what_is_left():
    assert TimeLimit(2.0).remaining_s(0.5) == 1.5
    assert TimeLimit(2.0).remaining_s(3.0) == 0.0
    assert TimeReserve(TimeLimit(2.0), 0.5).remaining_s(1.0) == 0.5
    assert TimeReserve(TimeLimit(2.0), 3.0).remaining_s(0.0) == 0.0
    assert TimeReserve(Never(), 3.0).remaining_s(0.0) == math.inf
    for rule in (Never(), IterationLimit(0), GapLimit(0.0), Interruption(), AnyOf()):
        assert rule.remaining_s(1.0) == math.inf
    asked = Interruption()
    assert asked(state()) is None
    asked.request()
    assert asked(state()) is Termination.INTERRUPTED
    assert asked.remaining_s(1.0) == 0.0


def test_the_first_of_several_rules_gives_the_reason_and_the_nearest_the_rest():
    rule = AnyOf(IterationLimit(1), TimeLimit(4.0), TimeLimit(9.0))
    assert rule(state()) is None
    assert rule(state(elapsed_s=5.0, iterations=1)) is Termination.ITERATION_LIMIT
    assert rule(state(elapsed_s=5.0)) is Termination.TIME_LIMIT
    assert rule.remaining_s(1.0) == 3.0


def test_limits_that_make_no_sense_are_refused_and_zero_is_none_of_them():
    for rule, bad in (
        (TimeLimit, -1e-9),
        (TimeLimit, math.nan),
        (IterationLimit, -1),
        (GapLimit, -1e-9),
        (GapLimit, math.nan),
    ):
        with pytest.raises(InvalidOptionError, match=r"at least 0"):
            rule(bad)
        assert rule(0) is not None


@pytest.mark.parametrize("rule", [IterationLimit, GapLimit, TimeLimit])
@pytest.mark.parametrize("limit", ["5", None, True, [1]])
def test_limits_that_are_no_numbers_are_refused(rule, limit):
    with pytest.raises(InvalidOptionError, match="limit must be a number of at least 0"):
        rule(limit)

"""Performance profiles say who was best and how often, in either sense, and compare time and gaps where all have them."""

import re
from dataclasses import replace

import numpy as np
import pytest

from optim.benchmarks.records import Record
from optim.benchmarks.report import colours_of, draw_profiles, gap_profile, objective_profile
from optim.report.plots import FigureList


def made(solver, instance, objective, *, problem="admission", gap=None, seconds=1.0, **more):
    return Record(
        problem=problem, instance=instance, solver=solver, seed=0, termination="completed", objective=objective,
        gap=gap, seconds={"solve": seconds}, verified=True, **more,
    )  # fmt: skip


def told(profile):
    return {name: (np.round(x, 6).tolist(), y.tolist()) for name, (x, y) in profile.items()}


@pytest.mark.parametrize(("problem", "best", "worse"), [("admission", 8.0, 4.0), ("bidding", 4.0, 8.0)])
def test_the_best_objective_is_the_largest_or_the_least_cost(problem, best, worse):
    records = [
        made("a", "one", best, problem=problem),
        made("b", "one", worse, problem=problem),
        made("a", "two", worse, problem=problem),
        made("b", "two", worse, problem=problem),
        made("a", "three", best, problem=problem),
    ]
    profile = told(objective_profile(records))
    assert profile["a"] == ([1.0], [1.0])
    assert profile["b"] == ([1.0, 2.0], [pytest.approx(1 / 3), pytest.approx(2 / 3)])


@pytest.mark.parametrize("worthless", [0.0, -1.0, None])
def test_a_case_without_a_positive_objective_is_left_out(worthless):
    records = [made("a", "one", 8.0), made("b", "one", 4.0)]
    nothing = [made(name, "two", worthless) for name in "ab"]
    assert told(objective_profile(records + nothing)) == told(objective_profile(records))


def test_gaps_add_up_to_shares():
    assert told(gap_profile({"a": [0.02, 0.0, 0.02, 0.5]})) == {"a": ([0.0, 2.0, 50.0], [0.25, 0.75, 1.0])}


def pictures(records):
    gallery = FigureList()
    draw_profiles(gallery, records, colours_of(records))
    return gallery


def picture(records):
    (found,) = pictures(records)
    return found


def test_times_and_gaps_are_compared_where_all_solvers_have_them():
    records = [
        *(made("a", name, 8.0, gap=0.1) for name in ("one", "two", "three")),
        *(made("b", name, 9.0, gap=0.0) for name in ("one", "two")),
        made("no-bound", "one", 7.0),
        replace(made("crash", "one", None), verified=False, error="RuntimeError: x"),
    ]
    found = picture(records)
    caption, drawn = found.caption, found.svg
    assert "on the one instance that all 3 solvers here answered" in caption
    assert "on the 2 instances on which all 2 solvers here have one" in caption
    for label in ("times as bad as the best objective", "seconds / least seconds", "certified gap in per cent"):
        assert label in drawn
    assert re.findall(r">(a|b|no-bound|crash)</text>", drawn) == ["a", "b", "no-bound"]


def test_what_no_two_share_is_not_drawn():
    apart = [made("a", "one", 8.0), made("b", "two", 9.0)]
    found = picture(apart)
    assert "Time" not in found.caption
    assert "seconds / least" not in found.svg
    assert pictures(apart[:1]) == pictures([]) == []

"""Headlines compare a solver with a baseline and the proven limit over their common cases."""

from dataclasses import replace

import pytest

from optim.benchmarks.headline import headlines
from optim.benchmarks.records import Record


def record(solver, instance, objective, bound=None, **fields):
    given = {"suite": "auction", "problem": "auction", "seed": 0, "termination": "completed", "verified": True}
    return Record(solver=solver, instance=instance, objective=objective, bound=bound, seconds={}, **{**given, **fields})


RECORDS = [
    record("exact", "a", 4.0, 5.0),
    record("exact", "b", 8.0, 8.0),
    record("exact", "c", 100.0, 100.0),
    record("greedy", "a", 2.0),
    record("greedy", "b", 6.0),
]


def test_means_are_over_the_cases_of_both():
    (found,) = headlines(RECORDS)
    assert (found.suite, found.cases, found.ours_by, found.baseline_by) == ("auction", 2, "exact", "greedy")
    assert (found.ours, found.baseline, found.limit) == (6.0, 4.0, 6.5)


def test_unverified_records_do_not_count():
    (found,) = headlines([replace(RECORDS[0], verified=False), *RECORDS[1:]])
    assert (found.cases, found.ours, found.baseline, found.limit) == (1, 8.0, 6.0, 8.0)


def test_no_limit_where_a_case_has_none():
    (found,) = headlines([replace(RECORDS[0], bound=None), *RECORDS[1:]])
    assert found.limit is None


def test_a_study_has_its_limit_among_its_figures():
    figures = {"fifo": 50.0, "tiresias-gittins": 15.0}
    mine = [
        record(
            name,
            "philly",
            None,
            suite="cluster",
            problem="cluster",
            findings={"jct_mean_h": hours, "bound_jct_mean_h": 11.0},
        )
        for name, hours in figures.items()
    ]
    (found,) = headlines(mine)
    assert (found.ours, found.baseline, found.limit) == (15.0, 50.0, pytest.approx(11.0))


def test_no_headline_without_a_baseline():
    assert headlines(RECORDS[:3]) == []

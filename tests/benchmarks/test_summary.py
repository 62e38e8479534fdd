"""Figures over many records: means over the instances that all compared solvers solved, against plain arithmetic."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ttest_rel

from optim.benchmarks.summary import (
    compare_solvers,
    compare_with,
    named_by_options,
    performance_profile,
    shifted_geometric_mean,
    stopped_at_limits,
)
from tests.benchmarks.test_report import make_record


def geometric(values, shift):
    return math.prod(value + shift for value in values) ** (1 / len(values)) - shift


def by_name(records):
    return {one.solver: one for one in compare_solvers(records).solvers}


EASY, HARD = 9.0, 5.0


def test_a_solver_that_gave_up_hard_instances_gains_nothing_by_it():
    records = [make_record("all", name, EASY) for name in ("a", "b")]
    records += [make_record("all", "c", HARD), *(make_record("few", name, EASY) for name in ("a", "b"))]
    records.append(
        replace(make_record("few", "c", None), verified=False, error="RuntimeError: out of memory", bound=None)
    )
    found = compare_solvers(records)
    assert (found.cases, found.gap_cases, found.seconds_cases) == (3, 2, 2)
    one = by_name(records)
    assert one["all"].gap == one["few"].gap == pytest.approx(geometric([1 / 9, 1 / 9], 0.01))
    assert one["all"].worst_gap == pytest.approx(1.0)
    assert (one["few"].failed, one["few"].records, one["all"].failed) == (1, 3, 0)


def test_a_solver_without_bounds_is_compared_by_no_gap_and_stops_no_other_mean():
    records = [make_record("all", name, EASY) for name in "ab"]
    records += [replace(make_record("plain", name, EASY), bound=None, gap=None) for name in "ab"]
    found = compare_solvers(records)
    assert (found.gap_cases, found.seconds_cases) == (2, 2)
    assert by_name(records)["plain"].gap is None
    assert by_name(records)["all"].gap == pytest.approx(1 / 9)


def test_solvers_without_a_case_in_common_have_no_means():
    records = [make_record("one", "a", EASY), make_record("two", "b", EASY)]
    assert compare_solvers(records).gap_cases == 0
    assert {one.gap for one in compare_solvers(records).solvers} == {None}
    assert by_name(records)["one"].worst_gap == pytest.approx(1 / 9)


def test_seeds_and_marks_are_cases_of_their_own():
    records = [
        replace(make_record("one", "a", EASY), seed=seed, labels={"k": mark}) for seed in (0, 1) for mark in (1, 2)
    ]
    assert compare_solvers(records).cases == 4


def test_refused_timed_out_and_memory_are_counted():
    base = make_record("one", "a", EASY, memory_mb=10.0)
    records = [
        base,
        replace(base, instance="b", verified=False, memory_mb=30.0),
        replace(base, instance="c", termination="time_limit", memory_mb=20.0),
        replace(base, instance="d", termination="optimal", memory_mb=None),
    ]
    (one,) = compare_solvers(records).solvers
    assert (one.records, one.verified, one.refused, one.timed_out, one.optimal) == (4, 3, 1, 1, 1)
    assert (one.memory_mb, one.max_memory_mb) == (20.0, 30.0)
    assert compare_solvers(records).gap_cases == 3  # rejected instances have no gap


def test_seconds_are_over_what_all_answered_in_time_and_the_checker_accepted():
    base = make_record("slow", "a", EASY, wall_s=10.0, processor_s=12.0)
    quick = replace(base, solver="quick", wall_s=0.1, processor_s=0.2)
    records = [base, quick, replace(base, instance="refused"), replace(quick, instance="refused", verified=False)]
    records += [replace(base, instance="late"), replace(quick, instance="late", termination="time_limit")]
    found = compare_solvers(records)
    assert (found.cases, found.seconds_cases, found.processor_cases) == (3, 1, 1)
    one = by_name(records)
    assert (one["slow"].seconds, one["quick"].seconds) == (pytest.approx(10.0), pytest.approx(0.1))
    assert (one["slow"].processor_s, one["quick"].processor_s) == (pytest.approx(12.0), pytest.approx(0.2))
    hopeless = [base, replace(quick, verified=False, termination="time_limit")]
    assert by_name(hopeless)["quick"].seconds is None


OBJECTIVES = {"a": (50.0, 80.0, 60.0, 90.0), "b": (45.0, 80.0, 66.0, 81.0), "c": (10.0, None, None, None)}


def paired_records(problem="admission", bound=100.0):
    return [
        replace(make_record(name, f"i{number}", value), problem=problem, bound=bound)
        for name, values in OBJECTIVES.items()
        for number, value in enumerate(values)
    ]


def test_paired_differences_are_those_of_a_paired_t_test():
    found = {one.solver: one for one in compare_with(paired_records(), "a")}
    assert set(found) == {"b", "c"}
    expected = ttest_rel(OBJECTIVES["b"], OBJECTIVES["a"]).confidence_interval(0.95)
    gain = found["b"].difference
    assert (100 * gain.low, 100 * gain.high) == pytest.approx((expected.low, expected.high))
    assert (found["b"].cases, found["b"].better, found["b"].worse) == (4, 1, 2)
    assert found["b"].of_bound == pytest.approx(sum(OBJECTIVES["b"]) / 400)
    assert (found["c"].cases, found["c"].worse, found["c"].difference) == (1, 1, None)


def test_of_a_minimisation_the_smaller_objective_is_better():
    found = {one.solver: one for one in compare_with(paired_records("bidding", bound=40.0), "a")}
    assert (found["b"].better, found["b"].worse) == (2, 1)
    assert found["b"].of_bound == pytest.approx(sum(40 / value for value in OBJECTIVES["b"]) / 4)


def test_the_tightest_verified_bound_counts_and_none_means_the_best_objective():
    records = paired_records()
    records[0] = replace(records[0], bound=75.0)
    records[4] = replace(records[4], bound=60.0, verified=False)
    assert compare_with(records, "b")[0].cases == 3
    records = [replace(record, bound=None) for record in paired_records()]
    (b, c) = compare_with(records, "a")
    assert b.of_bound == pytest.approx((45 / 50 + 1 + 1 + 81 / 90) / 4)
    assert c.of_bound == pytest.approx(10 / 50)


def test_shifted_geometric_mean_of_equal_values_is_the_value():
    assert shifted_geometric_mean([2.5, 2.5, 2.5], shift=1.0) == pytest.approx(2.5)


def test_shift_keeps_values_near_zero_from_ruling_the_mean():
    noise = shifted_geometric_mean([1e-9, 10.0], shift=1.0), shifted_geometric_mean([1e-3, 10.0], shift=1.0)
    assert noise[0] == pytest.approx(noise[1], rel=1e-2)


def test_profile_starts_at_the_share_of_wins_and_ends_at_the_share_solved():
    profile = performance_profile({"a": [1.0, 1.0, 3.0, None], "b": [2.0, 1.0, 1.0, 5.0]})
    np.testing.assert_allclose(profile["a"][0], [1.0, 3.0])
    np.testing.assert_allclose(profile["a"][1], [0.5, 0.75])
    np.testing.assert_allclose(profile["b"][0], [1.0, 2.0])
    np.testing.assert_allclose(profile["b"][1], [0.75, 1.0])


def test_profile_leaves_out_instances_that_nobody_solved():
    assert performance_profile({"a": [1.0, None], "b": [1.0, None]})["a"][1].tolist() == [1.0]


def test_solvers_that_a_limit_stopped_are_named_with_it():
    nodes = {"termination": "node_limit", "options": {"max_nodes": 10, "max_cuts": None, "search": True}}
    records = [
        replace(make_record("exact", "one", 8.0), **nodes),
        replace(make_record("exact", "two", 8.0), termination="time_limit", time_limit_s=30.0),
        replace(make_record("exact", "three", 8.0), termination="optimal", time_limit_s=30.0, options=nodes["options"]),
        make_record("search", "one", 8.0),
    ]
    assert stopped_at_limits(records) == ["stopped by a limit: exact in 2 of 3 runs, on one, two (30 s, max_nodes=10)"]
    assert stopped_at_limits(records[2:]) == []


def test_names_state_only_options_that_differ_on_one_instance_with_one_seed():
    """The option `history` may differ by seed and instance; such runs still count as one solver."""

    def names(*runs):
        records = [
            replace(make_record("online", name, EASY), seed=seed, options=options) for name, seed, options in runs
        ]
        return [each.solver for each in named_by_options(records)]

    assert names(("a", 0, {"history": "x"}), ("a", 1, {"history": "y"}), ("b", 0, {"history": "z"})) == ["online"] * 3
    assert names(("a", 0, {"eps": 0.1, "history": "x"}), ("a", 0, {"eps": 0.2, "history": "x"}), ("b", 1, {})) == [
        "online (eps=0.1)",
        "online (eps=0.2)",
        "online",
    ]

"""Counters that can't be recounted are held to what they can be, however the run ended."""

from dataclasses import replace

import pytest

import optim
from optim.core.solution import CertificateKind, Termination


def refused(counts, ended=Termination.TIME_LIMIT):
    """Return the rows that are refused of a plan of two of six jobs, proven by a tree of five nodes."""
    instance, solution = optim.reference_instance("tiny-0"), optim.reference_solution("tiny-0")
    weaker = replace(solution.certificate, kind=CertificateKind.BOUND, statement="")
    given = replace(solution, termination=ended, certificate=weaker, stats=replace(solution.stats, counts=counts))
    return [found.row for found in optim.verify(instance, given).violations]


@pytest.mark.parametrize(
    "counts",
    [
        {"refused": 0.0},
        {"refused": 4.0},
        {"admitted": 2.0, "unfinished": 1.0, "late": 1.0, "never_started": 3.0},
        {"unfinished": 4.0},
        {"open": 3.0, "nodes": 5.0},
        {"promised": 6.0, "completed_on_standby": 2.0},
        {"master": 0.0, "lp_gap": 1e11, "columns": 5.0},
        {"tight_rows": 1.0, "refused_jobs": -1e-8},
        {"own": -3.5},
    ],
)
def test_accepts_what_a_run_cut_short_can_count(counts):
    assert refused(counts) == []


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("refused", 77.0),
        ("refused", 5.0),
        ("refused", 1.5),
        ("unfinished", 5.0),
        ("late", -1.0),
        ("never_started", 5.0),
        ("open", 1e308),
        ("open", 4.0),
        ("promised", 7.0),
        ("completed_on_standby", 3.0),
        ("columns", 0.5),
        ("master", -1.0),
        ("master", 1e9),
        ("guard_earned", 1e9),
        ("lp_gap", -0.5),
        ("tight_rows", 1.1),
        ("running_dual", -1.0),
    ],
)
def test_refuses_what_no_run_can_count(name, number):
    for ended in (Termination.TIME_LIMIT, Termination.COMPLETED):
        assert refused({name: number}, ended) == [f"counts [{name}]"]


def test_jobs_that_ran_for_nothing_or_never_are_all_that_earn_nothing():
    assert refused({"unfinished": 1.0, "never_started": 4.0}) == ["counts [unfinished]"]
    assert refused({"unfinished": 1.0, "never_started": 2.0}) == ["counts [unfinished]"]


def test_who_is_late_ran_for_nothing():
    assert refused({"unfinished": 1.0, "late": 2.0, "never_started": 3.0}) == ["counts [late]"]

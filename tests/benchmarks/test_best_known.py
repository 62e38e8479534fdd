"""The best known values of an instance, from a run and from the shipped solutions, and shares of them."""

from dataclasses import replace

import pytest

import optim
from optim.benchmarks.best_known import SHIPPED, best_known, instance_of
from optim.benchmarks.suite import Subject
from optim.benchmarks.summary import compare_with
from tests.benchmarks.test_report import make_record


def test_the_tightest_bound_and_the_best_objective_of_all_count_and_whose_they_are():
    own = replace(make_record("mine", "a", 8.0), bound=None, gap=None)
    loose, tight = (
        replace(make_record("loose", "a", 9.0), bound=20.0),
        replace(make_record("tight", "a", 5.0), bound=10.0),
    )
    refused = replace(make_record("liar", "a", 99.0), bound=1.0, verified=False)
    other = replace(make_record("tight", "b", 1.0), bound=2.0)
    known = best_known([own, loose, tight, refused, other])
    best = known[instance_of(own)]
    assert (best.objective, best.objective_by, best.bound, best.bound_by) == (9.0, "loose", 10.0, "tight")
    assert (best.to_best(own.objective), best.to_bound(own.objective)) == (pytest.approx(8 / 9), pytest.approx(0.8))
    assert str(best) == "best known objective 9 by loose, tightest bound 10 by tight"
    assert known[instance_of(other)].bound == 2.0


def test_shares_of_a_cost_are_at_most_1_too():
    records = [
        replace(make_record(name, "a", value), problem="bidding", bound=bound)
        for name, value, bound in (("mine", 4.0, None), ("own", 2.0, 1.0))
    ]
    best = best_known(records)[instance_of(records[0])]
    assert (best.to_best(4.0), best.to_bound(4.0)) == (0.5, 0.25)
    assert (best.to_best(None), best.to_best(-1.0), best.to_best(0.0)) == (None, None, 1.0)


def test_what_ships_counts_for_the_same_instance_alone():
    subject, shipped = Subject(optim.reference_instance("tiny-0")), optim.reference_solution("tiny-0")
    record = replace(make_record("mine", "tiny-0", 1.0), instance_digest=subject.digest, bound=None)
    best = best_known([record])[instance_of(record)]
    assert (best.objective, best.objective_by, best.bound_by) == (shipped.objective, SHIPPED, SHIPPED)
    namesake = replace(record, instance_digest="other")
    best = best_known([namesake])[instance_of(namesake)]
    assert (best.objective, best.objective_by, best.bound) == (1.0, "mine", None)


def test_paired_differences_go_by_the_same_bound_also_of_solvers_that_are_not_compared():
    records = [
        replace(make_record(name, case, value), bound=None)
        for case in "ab"
        for name, value in (("mine", 8.0), ("base", 6.0))
    ]
    earlier = [replace(make_record("prover", case, 1.0), bound=10.0) for case in "ab"]
    (one,) = compare_with(records, "base", best_known([*records, *earlier]))
    assert (one.of_bound, one.difference.mean) == (pytest.approx(0.8), pytest.approx(0.2))
    (alone,) = compare_with(records, "base")
    assert alone.of_bound == 1.0

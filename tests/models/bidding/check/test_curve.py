"""Points of a curve: counted, in order, no better than the bound, the decision's among them."""

from dataclasses import replace
from functools import cache

import pytest

import optim
from optim.models.bidding.check.exact_instance import VerifierContext, check_curve
from tests.support.bidding.small_markets import published_vector


@cache
def traced(name="published"):
    instance = published_vector() if name == "published" else optim.reference_instance(name)
    return instance, optim.solve(instance, "frontier")


def refused(changes=None, *, without=(), name="published"):
    """Return the rows that are refused once some counters are others, or left out."""
    instance, solution = traced(name)
    counts = {**solution.stats.counts, **(changes or {})}
    counts = {key: value for key, value in counts.items() if key not in without}
    given = replace(solution, stats=replace(solution.stats, counts=counts))
    return [found.row for found in optim.verify(instance, given).violations]


def last() -> int:
    return int(traced()[1].stats.counts["points"]) - 1


@pytest.mark.parametrize(
    "name",
    [
        "published",
        *(pytest.param(f"spot-tiny-{one}", marks=pytest.mark.prove) for one in ("any", "market", "windows")),
    ],
)
def test_a_traced_curve_is_accepted(name):
    _, solution = traced(name)
    assert solution.stats.counts["points"] > 1
    assert refused(name=name) == []


def test_points_are_as_many_as_are_said():
    assert last() > 3
    assert refused({"points": 2.0}) == refused({"points": last() + 2.0}) == ["counts [points]"]
    assert refused(without=["points"]) == refused({"points": 0.0}) == ["counts [points]"]
    assert refused({f"cost_{last() + 1}": 1.0}) == ["counts [points]"]
    assert refused(without=["work_2"]) == ["counts [points]"]
    assert refused(without=["cost_2", "work_2"]) == ["counts [points]"]


def test_costs_and_works_are_those_that_footprints_can_have():
    end = last()
    assert refused({f"cost_{end}": 0.01}) == [f"counts [cost_{end}]"]
    assert refused({f"cost_{end}": 1e6}) == [f"counts [cost_{end}]"]
    assert refused({f"work_{end}": 1e6}) == [f"counts [work_{end}]"]
    assert refused({"work_0": -1.0}) == ["counts [work_0]"]


def test_more_work_costs_more():
    counts = traced()[1].stats.counts
    assert refused({"cost_1": counts["cost_2"] + 1e-6}) == ["counts [cost_2]"]
    assert refused({"work_1": counts["work_0"] - 1e-12}) == []
    assert refused({"work_2": counts["work_1"] - 1e-6}) == ["counts [work_2]"]


def test_no_point_costs_less_a_unit_than_the_bound():
    counts, bound = traced()[1].stats.counts, traced()[1].bound
    own = next(i for i in range(last()) if counts[f"work_{i}"] == counts["work"])
    assert refused({f"cost_{own}": bound * counts["work"] * (1 - 1e-6)}) == [f"counts [cost_{own}]"]


def test_the_decision_is_a_point_of_its_curve():
    counts = traced()[1].stats.counts
    own = next(i for i in range(last()) if counts[f"work_{i}"] == counts["work"])
    assert refused({f"cost_{own}": counts[f"cost_{own}"] * 1.001}) == ["counts [points]"]
    assert refused({f"work_{own}": counts["work"] * 0.999}) == ["counts [points]"]


def test_work_below_what_is_asked_for_is_held_to_no_bound():
    facts = VerifierContext(instance=replace(published_vector(), min_work=2.0))
    cheap = {"points": 1.0, "cost_0": facts.instance.fixed_usd, "work_0": 1.0}
    assert check_curve(facts, cheap, 100.0, None) == []
    assert [found.row for found in check_curve(facts, {**cheap, "work_0": 2.0}, 100.0, None)] == ["counts [cost_0]"]


def test_a_file_without_a_curve_has_nothing_to_check():
    facts = VerifierContext(instance=published_vector())
    assert check_curve(facts, {}, None, None) == check_curve(facts, {"points": 0.0}, None, (1.0, 1.0)) == []

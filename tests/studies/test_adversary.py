"""The adversary: its instances are valid, its optimum is the optimum, and its findings have the stated ratio."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, target
from hypothesis import strategies as st
from optim_studies.adversary import (
    RANGES,
    RULES,
    AdversaryOptions,
    Sketch,
    SketchRanges,
    Wave,
    WorstCase,
    best_plan,
    draw_sketch,
    figures,
    neighbour,
    run_rule,
    search,
)

from optim.benchmarks.suite import SUITES, BenchRequest, Skipped
from optim.core.errors import InvalidOptionError, UnsupportedProblemError
from optim.core.progress import SilentProgress
from optim.core.stopping import IterationLimit, Never
from tests.support.admission.oracle import ilp_optimum, packing
from tests.support.random_records import random_records

BRIEF = AdversaryOptions(restarts=1, moves=6)
STRICT = [rule for rule, options in RULES.items() if options.strict]


def waves(ranges: SketchRanges) -> st.SearchStrategy[Wave]:
    """Draw waves of jobs that arrive in slot 0 or 1."""
    return st.builds(
        Wave,
        arrival=st.integers(0, 1),
        work=st.integers(1, ranges.work),
        most=st.sampled_from([1, 2]),
        demand=st.integers(1, ranges.demand),
        value=st.sampled_from([1.0, 3.0, 10.0, 30.0, ranges.value_spread]),
        copies=st.integers(1, ranges.copies),
    )


def sketches(kind: str) -> st.SearchStrategy[Sketch]:
    """Draw sketches of two slots and one server."""
    ranges = RANGES[kind]
    return st.builds(
        Sketch,
        horizon=st.just(2),
        servers=st.just(1),
        waves=st.lists(waves(ranges), min_size=1, max_size=ranges.waves).map(tuple),
        share=st.just(Fraction(ranges.demand, 100)),
    )


@pytest.mark.parametrize("kind", RANGES)
@given(seed=st.integers(0, 10**6))
def test_every_move_leads_to_a_valid_instance_inside_the_ranges(kind, seed):
    ranges, rng = RANGES[kind], np.random.default_rng(seed)
    sketch = draw_sketch(ranges, rng)
    for _ in range(5):
        sketch = neighbour(sketch, ranges, rng)
        assert 1 <= len(sketch.waves) <= ranges.waves
        for wave in sketch.waves:
            assert 0 <= wave.arrival <= wave.arrival + wave.patience < sketch.horizon <= ranges.horizon
            assert 1 <= wave.demand <= ranges.demand
            assert 1 <= wave.copies <= ranges.copies
            assert 1 <= wave.value <= ranges.value_spread
    instance = sketch.instance("drawn")
    assert instance.work.tolist() == [wave.work for wave in sketch.in_order() for _ in range(wave.copies)]


@given(sketches("coarse"))
def test_the_best_plan_is_the_optimum_of_the_packing_programme(sketch):
    doubled = replace(sketch, waves=(replace(sketch.waves[0], copies=2), *sketch.waves[1:4]))
    try:
        optimum, plan = best_plan(doubled)
    except UnsupportedProblemError:
        return
    instance = doubled.instance("doubled")
    assert plan.objective(instance) == pytest.approx(optimum)
    assert optimum == pytest.approx(ilp_optimum(packing(instance)))


@given(sketches("small"))
def test_no_sketch_breaks_the_promise_of_a_strict_rule(sketch):
    try:
        optimum, _ = best_plan(sketch)
    except UnsupportedProblemError:
        return
    instance = sketch.instance("drawn")
    for rule in STRICT:
        finding = WorstCase(sketch=sketch, rule=rule, objective=run_rule(instance, rule).objective, optimum=optimum)
        target(math.log(finding.ratio), label=f"ratio of {rule}")
        promised, is_proven = finding.promise
        assert is_proven
        assert finding.ratio <= promised * (1 + 1e-9)


def test_the_same_seed_finds_the_same_instance():
    first, second = (search("zero-start", "coarse", BRIEF, np.random.default_rng(3)) for _ in range(2))
    assert first.sketch == second.sketch
    assert first.ratio == second.ratio


def test_a_longer_search_never_ends_better_for_the_rule():
    short = search("exponential", "coarse", AdversaryOptions(restarts=1, moves=5), np.random.default_rng(0))
    long = search("exponential", "coarse", AdversaryOptions(restarts=1, moves=25), np.random.default_rng(0))
    assert long.ratio >= short.ratio


def test_a_search_that_is_stopped_tells_what_it_has():
    finding = search("paper", "small", AdversaryOptions(), np.random.default_rng(0), IterationLimit(3))
    assert finding.evaluations < 10
    assert finding.objective == pytest.approx(run_rule(finding.instance, "paper").objective)


@pytest.mark.parametrize(("options", "cause"), [({"restarts": 0}, "restarts"), ({"moves": -1}, "moves")])
def test_refuses_a_search_of_no_length(options, cause):
    with pytest.raises(InvalidOptionError, match=cause):
        AdversaryOptions(**options)


def test_the_suite_attacks_every_rule_on_every_kind_of_jobs():
    work = list(SUITES.get("adversary").build(BenchRequest()))
    assert {(piece.labels["rule"], piece.labels["jobs"]) for piece in work} == {
        (rule, kind) for rule in RULES for kind in RANGES
    }


def test_the_suite_leaves_out_solvers_that_are_no_online_rule():
    work = list(SUITES.get("adversary").build(BenchRequest(solvers=("fifo",))))
    assert all(isinstance(piece, Skipped) for piece in work)


def test_a_record_holds_the_worst_instance_with_both_plans_verified():
    request = BenchRequest(options={"restarts": 1, "moves": 3})
    piece = next(iter(SUITES.get("adversary").build(request)))
    record = piece.run(Never(), SilentProgress())
    assert record.error is None
    assert record.verified
    assert record.findings["worst_ratio"] == pytest.approx(record.findings["optimum"] / record.findings["online"])
    assert record.findings["promised"] > 1
    assert record.options == {"restarts": 1, "moves": 3}


def test_a_picture_is_drawn_of_records_that_found_a_ratio_alone():
    pytest.importorskip("matplotlib")
    found = {"worst_ratio": 2.0, "promised": 3.0, "proven": True}
    record = replace(random_records()[0], findings=found, labels={"rule": "paper", "jobs": "small"})
    without = replace(record, findings={})
    assert figures([without]) == []
    (figure,) = figures([without, record])
    assert figures([record])[0].svg == figure.svg

"""The properties of the online algorithm detect ten faulty versions, each with one fault."""

from functools import cache

import pytest

from optim.models.admission.codec import ConstantDocument, StepDocument, TableDocument
from optim.models.admission.instance import AdmissionInstance
from tests.support.admission.online_checks import CHECKS, failing
from tests.support.admission.online_mutants import MUTANTS
from tests.support.admission.online_observation import STRICT_OPTIONS, TRUE_PARTS, Ground, observe
from tests.support.admission.strategies import JobSketch, ServerSketch, density_ladder, make_instance

KILLERS = {
    "accept-all": {"increments", "payoff", "ratio", "restriction_is_idle"},
    "prices without the slot index": {"blocking", "prices_follow_own_use", "restriction_is_idle"},
    "U too small by 10": {"blocking", "dual_feasible", "restriction_is_idle", "dual_bound"},
    "price reaches U at c": {"blocking", "restriction_is_idle", "dual_feasible"},
    "recursion starts a slot late": {"best_response", "dual_bound", "ratio"},
    "recursion ends a slot early": {"best_response", "dual_bound", "ratio"},
    "delay counted a slot too short": {"best_response", "payoff"},
    "start of prices too high by 1000": {"ratio"},
    "cap on a job's share ignored": {"share"},
    "U too small, and residual capacity ignored": {"blocking", "capacity"},
}
"""Checks that each mutant fails on some instance, for either form of the price; the suite requires all of them."""


def contended() -> AdmissionInstance:
    """Three slots, two resources: early jobs of low value fill the capacity that later jobs of high value request."""
    return make_instance(
        jobs=[
            JobSketch(
                epochs=2,
                chunks=2,
                chunk_slots="0.5",
                worker=("1", "0.5"),
                ps=("0.5", "1"),
                utility=TableDocument([5.0, 4.0, 1.0]),
                copies=30,
            ),
            JobSketch(epochs=2, worker=("0.5", "1"), ps=("0.5", "1"), workers_per_ps="2", copies=40),
            JobSketch(arrival=1, worker=("1", "1"), ps=("1", "1"), utility=StepDocument(100.0, 0), copies=40),
            JobSketch(arrival=2, worker=("1", "1"), ps=("1", "1"), utility=ConstantDocument(300.0), copies=20),
            JobSketch(arrival=2, chunks=2, worker=("1", "1"), ps=("1", "1"), utility=ConstantDocument(300.0), copies=5),
        ],
        worker_servers=[ServerSketch(capacity=("10", "10")), ServerSketch(capacity=("7.5", "20"))],
        ps_servers=[ServerSketch(capacity=("10", "20"), count=2)],
        horizon=3,
        share="0.1",
    )


def equal_jobs() -> AdmissionInstance:
    """Jobs of one value, two for each place."""
    return make_instance(
        jobs=[JobSketch(copies=20)],
        worker_servers=[ServerSketch(capacity=("10",))],
        ps_servers=[ServerSketch(capacity=("20",))],
        horizon=1,
    )


@cache
def grounds() -> tuple[Ground, ...]:
    """Return the facts about the instances."""
    ladder = density_ladder(steps=2, factor=100.0, per_server=100)
    return tuple(Ground(instance=instance) for instance in (contended(), ladder, equal_jobs()))


@cache
def failures(mutant: str | None) -> dict[str, set[str]]:
    """Return the checks that a mutant (or the true algorithm) fails on any instance, by form of the price."""
    parts = TRUE_PARTS if mutant is None else MUTANTS[mutant]
    return {
        str(options.price): set().union(*(failing(observe(ground, options, parts)) for ground in grounds()))
        for options in STRICT_OPTIONS
        if options.unit_free
    }


def test_the_true_algorithm_passes_every_check():
    assert failures(None) == {"zero-start": set(), "exponential": set()}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_every_mutant_is_killed_by_the_checks_that_name_its_fault(mutant):
    for failed in failures(mutant).values():
        assert failed >= KILLERS[mutant]


def test_every_check_kills_a_mutant():
    killed_by = set().union(*(failed for mutant in MUTANTS for failed in failures(mutant).values()))
    assert killed_by == set(CHECKS)

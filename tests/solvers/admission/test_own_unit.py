"""Solvers don't depend on the unit of values: results are equal in utility units, thousandths and millions of them."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optim
from optim.core.arrays import SMALLEST_EXPONENT
from optim.core.driver import Monitor, Outcome, SolverState
from optim.core.progress import SilentProgress
from optim.core.stopping import SolveState
from optim.models.admission.data import TableUtility
from optim.models.admission.decision import PriceProof
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.scaling import in_unit, scaling, unscale
from tests.support.admission.tiny import tiny_instances

SCALES = (*(pytest.param(scale, marks=pytest.mark.prove) for scale in (0.5, 0.1, 1e-9)), 1e-4)
SOLVERS = {
    "column-generation": {},
    "search": {"num_moves": 2_000},
    "branch-and-price": {"search_moves": 2_000},
    "compact-milp": {},
    "exact": {"search_moves": 2_000},
}

BOUND_TOL = {"search": 1e-4, "compact-milp": 0.02}
"""`search` computes its bound to a tolerance; that of `compact-milp` comes from its plan, one of several optimal ones."""


def scaled(instance: AdmissionInstance, scale: float) -> AdmissionInstance:
    """Return an instance whose values are those of another times a factor."""
    rows = zip((instance.value * scale).tolist(), instance.jobs.arrival.tolist(), strict=True)
    utilities = tuple(TableUtility(table=tuple(row[arrival:])) for row, arrival in rows)
    return replace(instance, jobs=replace(instance.jobs, utilities=utilities, min_utility=np.zeros(instance.num_jobs)))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("solver", SOLVERS)
def test_gaps_and_plans_are_those_of_any_other_unit(solver: str, scale: float) -> None:
    instance = optim.reference_instance("tiny-0")
    small = scaled(instance, scale)
    usual, found = (optim.solve(given, solver, options=SOLVERS[solver], seed=0) for given in (instance, small))
    verdict = optim.verify(small, found)
    assert verdict.is_ok, verdict
    assert found.termination == usual.termination
    for name, tol in (("objective", 2e-6), ("bound", BOUND_TOL.get(solver, 2e-6))):
        wanted, got = getattr(usual, name), getattr(found, name)
        assert (wanted is None) == (got is None)
        assert wanted is None or math.isclose(got / scale, wanted, rel_tol=tol), name


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_reason_of_an_early_end_is_that_of_any_other_unit(solver: str) -> None:
    instance = optim.reference_instance("tiny-0")
    for given_instance in (instance, scaled(instance, 1e-8)):
        assert optim.solve(given_instance, solver, time_limit_s=0).termination == "time_limit"


@pytest.mark.parametrize(
    ("scale", "tol"),
    [
        (1e-4, 0.05),
        (1e-8, 1e-6),
        *(pytest.param(*row, marks=pytest.mark.prove) for row in ((1e-4, 1e-6), (1e-8, 0.05))),
    ],
)
def test_a_relative_gap_is_relative(scale: float, tol: float) -> None:
    found = optim.solve(scaled(optim.reference_instance("tiny-2"), scale), "branch-and-price", options={"tol": tol})
    assert found.gap is not None
    assert found.gap <= tol


@given(tiny_instances(), st.integers(1, 900))
def test_a_unit_is_a_power_of_two_and_changes_no_digit(instance: AdmissionInstance, halvings: int) -> None:
    small = scaled(instance, math.ldexp(1.0, -halvings))
    most, unit = float(small.value.max(initial=0.0)), scaling(small)
    assert unit == 1.0 if most >= 1.0 or most == 0.0 else math.frexp(unit)[0] == 0.5
    assert most == 0.0 or most >= 1.0 or 1.0 <= most / unit < 2.0
    assert np.array_equal(in_unit(small, unit).value * unit, small.value)
    assert np.array_equal(in_unit(small, unit).deadline, small.deadline)


def test_units_have_an_inverse() -> None:
    smallest = scaled(optim.reference_instance("tiny-0"), 1e-320)
    assert scaling(smallest) == math.ldexp(1.0, SMALLEST_EXPONENT)


def test_amounts_of_an_outcome_are_taken_back_and_shares_are_not() -> None:
    prices = PriceProof(worker_price=np.full((1, 1, 1), 8.0), ps_price=np.full((1, 1, 1), 4.0), payoff=np.array([2.0]))
    found = unscale(
        Outcome(objective=3.0, bound=5.0, proof=prices, counts={"master": 6.0, "lp_gap": 0.5, "columns": 7.0}), 0.25
    )
    assert (found.objective, found.bound) == (0.75, 1.25)
    assert found.counts == {"master": 1.5, "lp_gap": 0.5, "columns": 7.0}
    assert (found.proof.worker_price.item(), found.proof.ps_price.item(), found.proof.payoff.item()) == (2.0, 1.0, 0.5)


def test_rules_and_progress_are_told_the_instances_unit() -> None:
    told: list[SolveState] = []
    shown: list[dict[str, float | None]] = []

    class Told(SilentProgress):
        def update(self, done, figures):
            shown.append(dict(figures))

    class Rule:
        def __call__(self, state):
            told.append(state)

        def remaining_s(self, elapsed_s):
            return math.inf

    monitor = Monitor(Rule(), Told()).in_unit(2.0).in_unit(0.25)
    for part in (monitor, monitor.part()):
        part.is_over(SolverState(objective=4.0, bound=6.0))
        part.show(SolverState(objective=4.0, bound=6.0))
    assert [(state.objective, state.bound) for state in told] == [(2.0, 3.0), (2.0, 3.0)]
    assert [(figures["objective"], figures["bound"], figures["gap"]) for figures in shown] == [(2.0, 3.0, 0.5)] * 2


class Weighted(AdmissionInstance):
    """An instance whose values contain a weight that its utilities do not."""

    @property
    def value(self):
        return 2.0 * AdmissionInstance.value.func(self)


def test_a_weight_that_is_in_the_worths_already_never_counts_twice() -> None:
    plain = optim.reference_instance("tiny-0")
    twice = Weighted(**{field.name: getattr(plain, field.name) for field in fields(plain)})
    np.testing.assert_array_equal(in_unit(plain, 0.5).value, plain.value / 0.5)
    with pytest.raises(AssertionError, match="rescaled values differ"):
        in_unit(twice, 0.5)

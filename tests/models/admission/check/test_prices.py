"""Bounds proven by prices: the checker's best payoffs against an enumeration of all schedules."""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optim
from optim.core.solution import Certificate, CertificateKind, PointStatus, Termination
from optim.models.admission.check import check
from optim.models.admission.check.cuts import CutCheck
from optim.models.admission.check.exact_instance import ExactSum, read_exact_instance, round_up
from optim.models.admission.check.prices import check_prices
from optim.models.admission.check.schedules import FREE, Prices, min_payoff
from optim.models.admission.decision import Branch, BranchKind, PriceProof
from optim.models.admission.instance import AdmissionInstance
from tests.support.admission.enumeration import (
    Enumerator,
    Market,
    best_gain,
    meets,
    random_branch,
    random_market,
)
from tests.support.admission.plans import families, greedy_plan, proven_by, solution_of
from tests.support.admission.tiny import BY_HAND, job_document, tiny_instance, tiny_instances

CLOSE = 1e-9
"""Sums of a few dozen doubles in another order."""

SEEDS = st.integers(0, 2**32 - 1)


def needed(market: Market, job: int, restriction: Any = FREE, **kwargs: Any) -> float:
    """Return the payoff that the checker requires."""
    exact = read_exact_instance(market.instance)
    ps = market.worker_price if exact.is_shared else market.ps_price
    prices = Prices(worker=market.worker_price, ps=ps, charges={})
    return min_payoff(exact, exact.jobs[job], prices, restriction, **kwargs)


def proof_and_bound(market: Market) -> tuple[PriceProof, float]:
    """Return a valid proof, its payoffs by enumeration, and its bound."""
    enumerator = Enumerator(market.instance)
    payoff = [best_gain(market, [None, *enumerator.schedules(job)]) for job in range(market.instance.num_jobs)]
    return market.proof(payoff), sum(payoff) + market.rents()


def check_proof(market: Market, proof: Any, bound: Any, **fields: Any) -> Any:
    """Check a solution that claims only a bound."""
    return check(market.instance, solution_of(market.instance, None, **(proven_by(proof, bound) | fields)))


@given(tiny_instances(), SEEDS)
def test_needs_the_best_value_less_cost_over_all_stripped_schedules(instance: AdmissionInstance, seed: int) -> None:
    market = random_market(instance, np.random.default_rng(seed))
    enumerator = Enumerator(instance)
    for job in range(instance.num_jobs):
        expected = best_gain(market, list(enumerator.schedules(job)))
        assert needed(market, job) == pytest.approx(expected, rel=CLOSE, abs=CLOSE)
        assert needed(market, job) >= expected - 1e-12 * max(1.0, abs(expected))
        # Leaving out schedules of value at most `enough` changes no result above it.
        enough = abs(expected) / 2 if np.isfinite(expected) else 1.0
        assert max(enough, needed(market, job, enough=enough)) == pytest.approx(max(enough, expected), rel=CLOSE)


@given(tiny_instances(max_jobs=1, horizon=2), SEEDS)
def test_needs_no_less_where_schedules_may_be_wasteful(instance: AdmissionInstance, seed: int) -> None:
    market = random_market(instance, np.random.default_rng(seed))
    wasteful = best_gain(market, list(Enumerator(instance, is_stripped=False).schedules(0)))
    assert needed(market, 0) == pytest.approx(wasteful, rel=CLOSE, abs=CLOSE)


@given(tiny_instances(max_jobs=1), SEEDS)
def test_needs_the_best_of_the_schedules_that_branches_leave(instance: AdmissionInstance, seed: int) -> None:
    rng = np.random.default_rng(seed)
    market = random_market(instance, rng)
    left = list(Enumerator(instance).schedules(0))
    restriction = FREE
    for _ in range(3):
        branch, is_high = random_branch(instance, 0, rng), bool(rng.integers(2))
        restriction = restriction.narrowed(branch, is_high=is_high)
        left = [schedule for schedule in left if meets(schedule, branch, is_high=is_high)]
        expected = best_gain(market, left)
        assert needed(market, 0, restriction) == pytest.approx(expected, rel=CLOSE, abs=CLOSE)


@pytest.mark.parametrize("price", [0.0, 3.0, 0.1, 1 / 3])
def test_what_is_needed_is_never_less_than_the_exact_value_less_the_exact_cost(price: float) -> None:
    """A job of one worker-slot and value 10: the required payoff includes an allowance for rounding of sums of doubles."""
    instance = tiny_instance(job_document("a", minibatch_s=10, epochs=1, utility={"kind": "constant", "value": 10}))
    market = random_market(instance, np.random.default_rng(0), share_free=1.0)
    asked = replace(market, worker_price=np.full_like(market.worker_price, price))
    exact = best_gain(asked, list(Enumerator(instance).schedules(0)))
    assert 1e-16 * 10 < needed(asked, 0) - exact < 1e-13


def test_leaves_out_workers_that_finish_no_chunk() -> None:
    """Two worker-slots per chunk: the one worker that a branch requires in slot 0 must not work without effect."""
    instance = tiny_instance(
        job_document("a", minibatch_s=20, epochs=1, utility={"kind": "constant", "value": 10}),
        chunk_integral=True,
    )
    market = random_market(instance, np.random.default_rng(0), share_free=1.0)
    price = market.worker_price.copy()
    price[0, 0, 0] = 3.0
    branch = Branch(kind=BranchKind.WORKERS, job=0, value=0, server_class=0, slot=0)
    forced = FREE.narrowed(branch, is_high=True)
    assert needed(replace(market, worker_price=price), 0, forced) == pytest.approx(4.0)


@pytest.mark.parametrize("name", ["tiny-0", "tiny-1", "tiny-2"])
def test_accepts_payoffs_by_enumeration_on_reference_instances(name: str) -> None:
    instance = optim.reference_instance(name)
    proof, bound = proof_and_bound(random_market(instance, np.random.default_rng(0)))
    plan = greedy_plan(instance)
    found = check(instance, solution_of(instance, plan, **proven_by(proof, bound)))
    assert found.is_ok
    assert found.objective <= found.bound


@pytest.mark.parametrize("name", ["small-0", "medium-0"])
def test_accepts_any_prices_with_payoffs_as_large_as_the_values(name: str) -> None:
    instance = optim.reference_instance(name)
    market = random_market(instance, np.random.default_rng(1))
    payoff = instance.value.max(axis=1)
    found = check_proof(market, market.proof(payoff), float(payoff.sum()) + market.rents())
    assert found.is_ok


@pytest.mark.parametrize("trait", BY_HAND)
@pytest.mark.parametrize("seed", range(5))
def test_names_the_job_whose_payoff_is_too_low(trait: str, seed: int) -> None:
    market = random_market(BY_HAND[trait], np.random.default_rng(seed), scale=0.3)
    proof, bound = proof_and_bound(market)
    assert check_proof(market, proof, bound).is_ok
    job = int(np.argmax(proof.payoff))
    assert proof.payoff[job] > 0
    lower = proof.payoff.copy()
    lower[job] -= 1e-6
    found = check_proof(market, replace(proof, payoff=lower), bound)
    assert f"(21) payoff [job {market.instance.jobs.ids[job]}]" in [violation.row for violation in found.violations]
    assert found.bound == pytest.approx(bound, rel=CLOSE)


def test_lets_a_payoff_be_higher_than_it_needs_to_be() -> None:
    market = random_market(BY_HAND["plain"], np.random.default_rng(0))
    proof, bound = proof_and_bound(market)
    generous = replace(proof, payoff=proof.payoff + 1.0)
    found = check_proof(market, generous, bound + len(proof.payoff))
    assert found.is_ok
    assert found.bound == pytest.approx(bound + len(proof.payoff), rel=CLOSE)


def test_a_bound_is_all_that_is_added() -> None:
    exact = read_exact_instance(BY_HAND["plain"])
    market = random_market(BY_HAND["plain"], np.random.default_rng(0))
    proof, bound = proof_and_bound(market)
    findings = check_prices(exact, replace(proof, payoff=proof.payoff + 5.0), CutCheck(exact))
    assert float(findings.bound) == pytest.approx(bound + 5.0 * len(proof.payoff), rel=CLOSE)


def test_raises_a_payoff_that_lacks_no_more_than_rounding() -> None:
    market = random_market(BY_HAND["plain"], np.random.default_rng(0))
    proof, bound = proof_and_bound(market)
    found = check_proof(market, replace(proof, payoff=proof.payoff - 1e-12), bound)
    assert found.is_ok
    assert found.bound >= bound


def test_refuses_a_bound_that_claims_more_than_its_proof_and_accepts_one_that_claims_less() -> None:
    market = random_market(BY_HAND["plain"], np.random.default_rng(0))
    proof, bound = proof_and_bound(market)
    found = check_proof(market, proof, bound * (1 - 1e-8))
    assert [violation.row for violation in found.violations] == ["bound"]
    assert "claims more" in found.violations[0].message
    assert check_proof(market, proof, bound * (1 + 1e-8)).is_ok


@pytest.mark.parametrize("bound", [np.nan, np.inf, -np.inf, None])
def test_refuses_a_bound_that_is_no_number(bound: Any) -> None:
    market = random_market(BY_HAND["plain"], np.random.default_rng(0))
    assert families(check_proof(market, proof_and_bound(market)[0], bound).violations) == {"bound"}


@pytest.mark.parametrize("price", [np.nan, np.inf, -1e-12])
def test_names_the_price_that_is_no_price(price: float) -> None:
    market = random_market(BY_HAND["plain"], np.random.default_rng(0))
    proof, bound = proof_and_bound(market)
    prices = proof.worker_price.copy()
    prices[0, 2, 0] = price
    found = check_proof(market, replace(proof, worker_price=prices), bound)
    assert [violation.row for violation in found.violations] == ["price [gpu, worker servers gpus, slot 2]"]
    assert found.bound is None


@pytest.mark.parametrize("payoff", [np.nan, np.inf, -1e-6])
def test_names_the_payoff_that_is_no_payoff(payoff: float) -> None:
    market = random_market(BY_HAND["plain"], np.random.default_rng(0))
    proof, bound = proof_and_bound(market)
    payoffs = proof.payoff.copy()
    payoffs[1] = payoff
    found = check_proof(market, replace(proof, payoff=payoffs), bound)
    assert found.violations[0].row == "(21) payoff [job b]"


@pytest.mark.parametrize("field", ["worker_price", "ps_price", "payoff"])
def test_refuses_arrays_of_another_shape(field: str) -> None:
    market = random_market(BY_HAND["plain"], np.random.default_rng(0))
    proof, bound = proof_and_bound(market)
    found = check_proof(market, replace(proof, **{field: getattr(proof, field)[:-1]}), bound)
    assert [violation.row for violation in found.violations] == [f"price [{field}]"]


def test_refuses_what_is_no_proof() -> None:
    market = random_market(BY_HAND["plain"], np.random.default_rng(0))
    assert families(check_proof(market, "trust me", 1.0).violations) == {"certificate"}


def test_refuses_optimality_with_a_gap() -> None:
    instance = tiny_instance()
    plan = greedy_plan(instance)
    market = random_market(instance, np.random.default_rng(0), share_free=1.0)
    proof, bound = proof_and_bound(market)
    optimal = {"termination": Termination.OPTIMAL, **proven_by(proof, bound, CertificateKind.OPTIMALITY)}
    assert bound == plan.objective(instance)
    found = check(instance, solution_of(instance, plan, **optimal))
    assert found.is_ok
    assert len(found.proven) == 3
    wider = replace(proof, payoff=proof.payoff * (1 + 2e-6))
    optimal |= proven_by(wider, bound * (1 + 2e-6), CertificateKind.OPTIMALITY)
    found = check(instance, solution_of(instance, plan, **optimal))
    assert [violation.row for violation in found.violations] == ["certificate"]
    assert len(found.proven) == 2


def test_refuses_optimality_without_a_plan() -> None:
    market = random_market(BY_HAND["plain"], np.random.default_rng(0))
    proof, bound = proof_and_bound(market)
    claims = proven_by(proof, bound, CertificateKind.OPTIMALITY) | {"termination": Termination.OPTIMAL}
    optimal = solution_of(market.instance, None, **claims)
    assert families(check(market.instance, optimal).violations) == {"certificate"}


def test_refuses_a_proof_that_is_called_feasibility_alone() -> None:
    market = random_market(BY_HAND["plain"], np.random.default_rng(0))
    proof, bound = proof_and_bound(market)
    certificate = Certificate(kind=CertificateKind.FEASIBLE_ONLY, statement="", proof=proof)
    found = check_proof(market, proof, bound, certificate=certificate)
    assert families(found.violations) == {"certificate"}


def test_refuses_a_proof_without_a_dual_status() -> None:
    market = random_market(BY_HAND["plain"], np.random.default_rng(0))
    proof, bound = proof_and_bound(market)
    assert families(check_proof(market, proof, bound, dual=PointStatus.NONE).violations) == {"dual status"}


@pytest.mark.parametrize("scale", [1e-320, 1e-300, 1e290, 1e308])
def test_survives_prices_of_any_size(scale: float) -> None:
    instance = BY_HAND["plain"]
    market = random_market(instance, np.random.default_rng(0), share_free=0.0)
    extreme = replace(market, worker_price=np.minimum(market.worker_price, 1.0) * scale)
    for job in range(instance.num_jobs):
        most = float(instance.value[job].max())
        assert needed(extreme, job) <= most * (1 + 1e-12)
        assert (needed(extreme, job) < 0) == (scale > 1)


def test_prices_a_job_that_can_never_be_finished_at_nothing() -> None:
    instance = tiny_instance(job_document("a", epochs=10**6, chunks=10**3, minibatch_s=10**6))
    market = random_market(instance, np.random.default_rng(0))
    assert needed(market, 0) == -np.inf


@given(st.lists(st.tuples(st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 10**15)), max_size=6))
def test_sums_doubles_without_rounding_and_rounds_up_once(terms: list[tuple[float, int]]) -> None:
    total = ExactSum()
    for value, factor in terms:
        total.add(value, factor)
    expected = sum((Fraction(value) * factor for value, factor in terms), Fraction(0))
    assert total.total == expected
    rounded = round_up(expected)
    if np.isfinite(rounded):
        assert Fraction(rounded) >= expected
        smaller = math.nextafter(rounded, -math.inf)
        assert smaller == -math.inf or Fraction(smaller) < expected

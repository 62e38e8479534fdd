"""The theorems' constants: their table, eps exactly, and which conditions hold where."""

import math
import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from optim_studies.packing_programme import enumerate_schedules

from optim.core.errors import InvalidOptionError, UnsupportedProblemError
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.online import FUNCTIONS, PriceKind
from optim.solvers.admission.posted_prices.online_run import run_online
from optim.solvers.admission.posted_prices.price_functions import (
    ExponentialPrice,
    PriceFloorRule,
    RatioTheorem,
    SideRanges,
    ZeroStartPrice,
    job_value_stats,
    price_ranges,
    theorem_of,
)
from optim.solvers.admission.posted_prices.theorems import (
    RatioClaim,
    amplification,
    full_share,
    log_spread,
    max_share,
    ratio_claim,
)
from tests.support.admission.strategies import small_job_instances
from tests.support.admission.tiny import BY_HAND, job_document, tiny_instance, tiny_instances

MAX_SCHEDULES = 2_000

TABLE = {
    1e3: {0.001: 6.9, 0.01: 7.2, 0.02: 7.6, 0.05: 8.8, 0.1: 11.5, 0.2: 23, 0.3: 61, 0.5: 2.0e3},
    1e6: {0.001: 13.9, 0.01: 15.0, 0.02: 16.3, 0.05: 21.4, 0.1: 36, 0.2: 153, 0.3: 1.2e3, 0.5: 2.0e6},
    1e9: {0.001: 21.0, 0.01: 23.3, 0.02: 26.3, 0.05: 39.5, 0.1: 90, 0.2: 884, 0.3: 2.4e4, 0.5: 2.0e9},
}
"""A of the strict exponential price by U / L and eps, to two or three digits, computed once by other means."""


class LinearPrice:
    """A user's price function without a theorem."""

    full_at = 0.5

    def price(self, share, log_lower, log_upper):
        return np.where(np.isfinite(log_lower), np.exp(log_upper) * np.clip(share / self.full_at, 0.0, 1.0), 0.0)


class SteeperPrice(ExponentialPrice):
    """Another price function with the name of a proven one."""

    def price(self, share, log_lower, log_upper):
        return ExponentialPrice.price(self, np.sqrt(share), log_lower, log_upper)


class LowPrice(ZeroStartPrice):
    """A millionth of the proven price, with the name of its theorem."""

    theorem = RatioTheorem.ZERO_START

    def price(self, share, log_lower, log_upper):
        return 1e-6 * ZeroStartPrice.price(self, share, log_lower, log_upper)


class PlainPrice(ZeroStartPrice):
    """The proven price by powers instead of logarithms."""

    theorem = RatioTheorem.ZERO_START

    def price(self, share, log_lower, log_upper):
        scale, level = np.exp(log_lower), np.clip(share / self.full_at, 0, 1)
        return np.where(scale > 0, scale * ((1 + np.exp(log_upper - log_lower)) ** level - 1), 0.0)


class DippedPrice(ExponentialPrice):
    """The proven price, except for one interval."""

    theorem = RatioTheorem.EXPONENTIAL

    def price(self, share, log_lower, log_upper):
        return np.where((share > 0.4) & (share < 0.42), 0, ExponentialPrice.price(self, share, log_lower, log_upper))


class Unrelated(LinearPrice):
    """A theorem's name on a class that doesn't satisfy it."""

    theorem = RatioTheorem.ZERO_START


@pytest.mark.parametrize(("ratio", "eps"), [(ratio, eps) for ratio, row in TABLE.items() for eps in row])
def test_amplification_agrees_with_the_table(ratio: float, eps: float) -> None:
    expected = TABLE[ratio][eps]
    found = amplification(math.log(ratio), eps, ExponentialPrice(full_at=1 - eps))
    digits = 2 if expected in (61, 36, 90, 2.0e3, 2.0e6, 2.0e9, 1.2e3, 2.4e4, 23, 6.9, 7.2, 7.6, 8.8) else 3
    assert float(f"{found:.{digits}g}") == pytest.approx(expected, rel=10.0 ** (1 - digits) / 2)


def test_amplification_tends_to_the_papers_constant() -> None:
    assert amplification(math.log(1e6), 0.0, ExponentialPrice()) == pytest.approx(math.log(1e6))
    assert amplification(math.log(1e6), 1e-9, ExponentialPrice()) == pytest.approx(math.log(1e6), rel=1e-6)
    assert amplification(math.log(1e6), 0.0, ZeroStartPrice()) == pytest.approx(math.log1p(1e6))
    assert amplification(math.log(1e300), 0.9, ExponentialPrice(full_at=0.1)) == math.inf


@given(tiny_instances())
def test_eps_is_the_largest_share_that_any_schedule_takes_of_a_row(instance: AdmissionInstance) -> None:
    try:
        listed = enumerate_schedules(instance, limit=MAX_SCHEDULES)
    except UnsupportedProblemError:
        assume(False)
    shares = [
        Fraction(amount, listed.capacity[row]) for schedule in listed.schedules for row, amount in schedule.use.items()
    ]
    # eps may count a slot that no schedule can use fully, so it may be too large, but never too small.
    assert max_share(instance) >= max(shares, default=Fraction(0))


def test_eps_is_exact() -> None:
    job = job_document("a", worker=[0.1, 0], ps=[0, 0.3], chunks=3, ps_mbps=3)
    instance = tiny_instance(
        job, worker_servers=[{"type": "w", "capacity": [0.7, 0], "count": 1}],
        ps_servers=[{"type": "p", "capacity": [0, 5], "count": 1}],
    )  # fmt: skip
    assert max_share(instance) == Fraction(3, 7)


def test_eps_counts_pairs_on_shared_servers() -> None:
    instance = BY_HAND["shared-capped"]
    assert max_share(instance) == Fraction(1, 2)


def test_a_job_that_fits_nowhere_does_not_count() -> None:
    small = job_document("small", chunks=1, epochs=1)
    hopeless = job_document("hopeless", worker=[2, 0], epochs=9)
    servers = [{"type": "w", "capacity": [8, 0], "count": 1}]
    hosts = [{"type": "p", "capacity": [0, 8], "count": 1}]
    instance = tiny_instance(small, hopeless, worker_servers=servers, ps_servers=hosts)
    assert max_share(instance) == Fraction(1, 8)


def claim(instance: AdmissionInstance, lower: PriceFloorRule, *, full_at: float | None = None) -> RatioClaim:
    worth = job_value_stats(instance)
    full = full_share(instance) if full_at is None else full_at
    is_zero_start = lower in (PriceFloorRule.UNIT_FREE_LAMBDA, PriceFloorRule.SUMMED_LAMBDA)
    function = ZeroStartPrice(full_at=full) if is_zero_start else ExponentialPrice(full_at=full)
    return ratio_claim(instance, price_ranges(instance, lower, stats=worth), function, stats=worth)


def failing(found: RatioClaim) -> list[str]:
    return [condition.name for condition in found.conditions if not condition.holds]


@given(
    st.booleans().flatmap(lambda is_shared: small_job_instances(is_shared=is_shared)), st.sampled_from(PriceFloorRule)
)
def test_all_conditions_hold_for_strict_prices_and_capped_jobs(
    instance: AdmissionInstance, lower: PriceFloorRule
) -> None:
    found = claim(instance, lower)
    assert failing(found) == []
    assert found.holds
    assert found.ratio >= 1.0
    assert "competitive ratio" in found.statement


CAPPED = tiny_instance(
    job_document("a"),
    worker_servers=[{"type": "w", "capacity": [20, 0], "count": 1}],
    ps_servers=[{"type": "p", "capacity": [0, 20], "count": 1}],
)


def test_prices_that_reach_u_at_the_capacity_fail_the_third_condition() -> None:
    found = claim(CAPPED, PriceFloorRule.UNIT_FREE_LAMBDA, full_at=1.0)
    assert failing(found) == ["C3"]
    assert "C3" in found.statement


def test_a_u_that_is_too_small_fails_the_second_condition() -> None:
    bounds = price_ranges(CAPPED, PriceFloorRule.UNIT_FREE_LAMBDA).scaled(upper=0.1)
    assert failing(ratio_claim(CAPPED, bounds, ZeroStartPrice(full_at=full_share(CAPPED)))) == ["C2"]


@pytest.mark.parametrize("lower", [PriceFloorRule.SIMPLE_L, PriceFloorRule.UNIT_FREE_LAMBDA])
def test_a_lower_scale_that_is_too_large_fails_the_fifth_condition(lower: PriceFloorRule) -> None:
    bounds = price_ranges(CAPPED, lower).scaled(lower=100.0)
    kind = ExponentialPrice if lower is PriceFloorRule.SIMPLE_L else ZeroStartPrice
    assert "C5" in failing(ratio_claim(CAPPED, bounds, kind(full_at=full_share(CAPPED))))


def test_a_job_that_may_take_a_whole_server_fails_the_first_condition() -> None:
    instance = BY_HAND["plain"]
    assert "C1" in failing(claim(instance, PriceFloorRule.UNIT_FREE_L, full_at=1.0))
    with pytest.raises(InvalidOptionError, match="max_share_per_server"):
        full_share(instance)


def test_ratios_follow_from_the_amplification() -> None:
    first, second = claim(CAPPED, PriceFloorRule.SIMPLE_L), claim(CAPPED, PriceFloorRule.UNIT_FREE_LAMBDA)
    assert first.ratio == 2 * first.amplification
    assert second.ratio == second.amplification + max(1.0, second.amplification)
    assert second.initial_dual == 0.0
    assert first.initial_dual > 0.0


def test_bounds_of_nobody_have_no_amplification() -> None:
    nothing = SideRanges(log_lower=np.full((1, 1, 1), -np.inf), log_upper=np.full((1, 1, 1), -np.inf))
    assert log_spread(nothing) == -math.inf
    assert amplification(log_spread(nothing), 0.1, ZeroStartPrice()) == 0.0
    nobody = tiny_instance(job_document("a", worker=[9, 0]))
    found = ratio_claim(nobody, price_ranges(nobody, PriceFloorRule.UNIT_FREE_LAMBDA), ZeroStartPrice())
    assert found.holds
    assert found.ratio == 1.0


@pytest.mark.parametrize("function", [LinearPrice(), SteeperPrice(full_at=0.5)], ids=["linear", "steeper"])
def test_a_price_without_a_theorem_of_its_own_is_labelled_with_none(function) -> None:
    instance = tiny_instance(job_document("a"), job_document("b"))
    bounds = price_ranges(instance, PriceFloorRule.UNIT_FREE_L)
    assert theorem_of(function) is None
    with pytest.raises(InvalidOptionError, match=f"no theorem gives a competitive ratio for {type(function).__name__}"):
        ratio_claim(instance, bounds, function)
    assert run_online(instance, bounds=bounds, function=function).decisions


@pytest.mark.parametrize(
    ("form", "lower", "fails", "said"),
    [
        (LowPrice, PriceFloorRule.UNIT_FREE_LAMBDA, ["C3"], "C3 fails: LowPrice prices .*, and the zero-start curve "),
        (
            DippedPrice,
            PriceFloorRule.UNIT_FREE_L,
            ["C3"],
            r"C3 fails: DippedPrice prices 0, .* where 0\.4\d* of the capacity",
        ),
        (PlainPrice, PriceFloorRule.UNIT_FREE_LAMBDA, [], "C3 holds: U is reached at 0.9"),
    ],
)
def test_prices_off_the_theorems_curve_fail_the_third_condition(form, lower, fails, said) -> None:
    found = ratio_claim(CAPPED, price_ranges(CAPPED, lower), form(full_at=full_share(CAPPED)))
    assert failing(found) == fails
    assert re.search(said, str(found.conditions[2]))


@pytest.mark.parametrize(
    ("function", "remedy"),
    [(LinearPrice(), "state its theorem"), (Unrelated(), "derive it from ZeroStartPrice or Exp")],
)
def test_a_price_without_a_claim_is_told_what_it_lacks(function, remedy) -> None:
    with pytest.raises(InvalidOptionError, match=remedy):
        ratio_claim(CAPPED, price_ranges(CAPPED, PriceFloorRule.UNIT_FREE_LAMBDA), function)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda share: np.where(share > 0, np.nan, 1.0), "finite numbers of at least 0, got nan at a used share"),
        (lambda share: np.full(share.shape, -1.0), "got -1.0 at a used share of 0"),
        (lambda share: share.sum(axis=-1), "must have the shares' shape"),
        (lambda share: "dear", "must be numbers, got str"),
        (lambda share: np.full(share.shape, np.inf), "got inf"),
    ],
)
def test_prices_that_are_none_are_refused_by_class_and_value(given, said) -> None:
    class Mine:
        def price(self, share, log_lower, log_upper):
            return given(share)

    bounds = price_ranges(CAPPED, PriceFloorRule.UNIT_FREE_LAMBDA)
    with pytest.raises(InvalidOptionError, match=f"'Mine': prices .*{said}"):
        run_online(CAPPED, bounds=bounds, function=Mine())


def test_the_two_proven_prices_state_their_theorem_and_their_scales() -> None:
    stated = {kind: theorem_of(form()).value for kind, form in FUNCTIONS.items()}
    assert stated == {PriceKind.ZERO_START: "zero-start", PriceKind.EXPONENTIAL: "exponential"}
    scales = {
        (form.unit_free_scale.value, form.simple_scale.value, form.paper_scale.value) for form in FUNCTIONS.values()
    }
    assert scales == {("unit-free-lambda", "summed-lambda", "summed-lambda"), ("unit-free-l", "simple-l", "paper-l")}

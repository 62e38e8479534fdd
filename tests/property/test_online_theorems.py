"""The competitive ratio of the strict online algorithm: the steps of its proof, and the limits of its validity."""

import numpy as np
import pytest
from hypothesis import example, given, reject
from hypothesis import strategies as st

from optim.core.arrays import FloatArray
from optim.models.admission.codec import ConstantDocument
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.online import OnlineOptions, make_bounds, make_function
from optim.solvers.admission.posted_prices.online_run import run_online
from optim.solvers.admission.posted_prices.price_functions import (
    ExponentialPrice,
    PriceFunction,
    PriceRanges,
    SideRanges,
    ZeroStartPrice,
)
from optim.solvers.admission.posted_prices.theorems import ratio_claim
from tests.support.admission.online_checks import CHECKS
from tests.support.admission.online_mutants import MUTANTS
from tests.support.admission.online_observation import STRICT_OPTIONS, Ground, observe
from tests.support.admission.strategies import JobSketch, ServerSketch, ladders, make_instance, small_job_instances

UNIT_FREE = [options for options in STRICT_OPTIONS if options.unit_free]

ROUNDING = 1e-12
"""Relative rounding of one price."""


def check_all(ground: Ground, options: OnlineOptions) -> None:
    """Run a strict variant, require every check, and require that the solver's claim agrees."""
    seen = observe(ground, options)
    for check in CHECKS.values():
        try:
            check(seen)
        except OverflowError:
            reject()  # too many schedules to list
    bounds = make_bounds(ground.instance, options, np.random.default_rng(0), ground.worth)
    claim = ratio_claim(ground.instance, bounds, make_function(ground.instance, options), stats=ground.worth)
    assert claim.holds
    assert float(claim.eps) == pytest.approx(seen.eps)
    assert claim.ratio == pytest.approx(seen.factor if seen.is_zero_start else 2 * seen.factor)


@given(small_job_instances())
def test_both_theorems_hold_step_by_step_where_jobs_are_small(instance):
    ground = Ground(instance=instance)
    for options in STRICT_OPTIONS:
        check_all(ground, options)


PRICED_AT_ITS_VALUE = make_instance(
    jobs=[JobSketch(), JobSketch(chunks=2), JobSketch(), JobSketch(ps=("0.5",), utility=ConstantDocument(10.0))],
    worker_servers=[ServerSketch(capacity=("10",))] * 2, ps_servers=None, horizon=1, share="0.2",
)  # fmt: skip
"""The second job's cost is its value but for rounding, from zero-start prices."""


@given(small_job_instances(is_shared=True))
@example(instance=PRICED_AT_ITS_VALUE)
def test_both_theorems_hold_on_shared_servers(instance):
    ground = Ground(instance=instance)
    for options in UNIT_FREE:
        check_all(ground, options)


@given(ladders())
def test_both_theorems_hold_on_the_density_ladder(instance):
    ground = Ground(instance=instance)
    assert ground.eps <= 0.01
    for options in UNIT_FREE:
        check_all(ground, options)


@given(ladders())
def test_accepting_everything_falls_through_the_bound_on_the_density_ladder(instance):
    ground = Ground(instance=instance)
    for options in UNIT_FREE:
        seen = observe(ground, options, MUTANTS["accept-all"])
        bound = seen.factor if seen.is_zero_start else 2 * seen.factor
        assert seen.lp / seen.objective >= 100 > bound


@given(
    st.floats(-50, 50),
    st.floats(0, 100),
    st.lists(st.floats(0, 1.2), min_size=2, max_size=8),
    st.sampled_from([1.0, 0.9, 0.5]),
)
def test_prices_never_fall_with_utilisation_and_reach_u_where_they_should(log_lower, spread, shares, full_at):
    share = np.sort(np.array([*shares, 0.0, full_at, 1.0]))
    lower, upper = np.full(len(share), log_lower), np.full(len(share), log_lower + spread)
    for function, start in (
        (ExponentialPrice(full_at=full_at), np.exp(log_lower)),
        (ZeroStartPrice(full_at=full_at), 0.0),
    ):
        price = function.price(share, lower, upper)
        assert (np.diff(price) >= -ROUNDING * price[1:]).all()
        assert price[0] == pytest.approx(start, rel=ROUNDING)
        np.testing.assert_allclose(price[share >= full_at], np.exp(upper[0]), rtol=ROUNDING)


def two_jobs(value: float) -> AdmissionInstance:
    """One server, one slot; two jobs that take 0.6 of it each, the second with `value` times the value of the first."""
    jobs = [JobSketch(worker=("0.6",), ps=("0",), utility=ConstantDocument(worth)) for worth in (1.0, value)]
    server = [ServerSketch(capacity=("1",))]
    return make_instance(jobs=jobs, worker_servers=server, ps_servers=server, horizon=1)


def posted(lower: float, upper: float) -> PriceRanges:
    """Price ranges with the given bounds for the worker's row; PS hosts are free of charge."""
    row: FloatArray = np.zeros((1, 1, 1))
    nothing = SideRanges(log_lower=row - np.inf, log_upper=row - np.inf)
    return PriceRanges(worker=SideRanges(log_lower=row + np.log(lower), log_upper=row + np.log(upper)), ps=nothing)


@pytest.mark.parametrize(("value", "claimed"), [(10, 8.4), (100, 13.0), (1000, 17.6), (1e6, 31.4)])
def test_twice_alpha_is_no_bound_where_a_job_takes_more_than_half_a_server(value, claimed):
    """A documented limit: the paper's ratio 2 ln(U / L) assumes jobs that are small relative to a server."""
    run = run_online(two_jobs(value), bounds=posted(0.25, value / 0.6), function=ExponentialPrice())
    twice_alpha = 2 * np.log(4 * value / 0.6)
    assert twice_alpha == pytest.approx(claimed, abs=0.05)
    assert [decision.is_accepted for decision in run.decisions] == [True, False]
    assert run.decisions[0].payoff == pytest.approx(0.85)
    assert value / run.objective > twice_alpha


def test_the_running_dual_is_no_bound_where_the_theorems_conditions_fail():
    run = run_online(two_jobs(1000.0), bounds=posted(0.25, 1000 / 0.6), function=ExponentialPrice())
    assert run.final_dual == pytest.approx(50, abs=0.5)
    assert run.final_dual < 1000


@pytest.mark.parametrize("function", [ExponentialPrice(full_at=0.4), ZeroStartPrice(full_at=0.4)])
def test_the_strict_price_keeps_the_ratio_of_its_theorem_even_there(function: PriceFunction):
    """With eps = 0.6 the first job raises the price to U, and A is so large that the bound is weak."""
    value, lower, upper, eps = 1000.0, 0.25, 1000 / 0.6, 0.6
    run = run_online(two_jobs(value), bounds=posted(lower, upper), function=function)
    spread = upper / lower + (1.0 if isinstance(function, ZeroStartPrice) else 0.0)
    growth = (spread ** (eps / (1 - eps)) - 1) / eps
    assert value / run.objective <= 2 * growth

"""The exact method against the plain programme, which HiGHS solves."""

import numpy as np
import pytest

from optim.models.bidding.programme import parametric_model, supports_programme
from optim.solvers.lp.highs import CompiledModel, solve_with_highs
from optim.solvers.solve import solve
from tests.support.bidding.small_markets import best_of_all, drawn, hour_instance

REL_TOL = 1e-6
"""Proven gap to the optimum, relative."""


@pytest.mark.parametrize("seed", [*range(7), *(pytest.param(seed, marks=pytest.mark.prove) for seed in range(7, 12))])
def test_agrees_with_the_plain_programme_by_highs(seed):
    instance = drawn(seed)
    if supports_programme(instance) is not None or not np.isfinite(best_of_all(instance)):
        pytest.skip("without a linear form, or without work")
    exact = solve(instance, "dinkelbach")
    outcome = solve_with_highs(CompiledModel(parametric_model(instance, exact.objective, pieces=200)))
    assert outcome.bound <= 1e-9
    assert outcome.objective >= -2e-3 * max(instance.fixed_usd, 0.1)  # tangents overrate the work a little


@pytest.mark.parametrize("seed", range(10))
def test_where_all_adds_up_greedy_and_the_exact_method_agree_with_the_plain_programme(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 7))
    instance = hour_instance(
        np.sort(rng.integers(0, 3, size)),
        rng.uniform(0.01, 0.3, size),
        rng.uniform(0.1, 2.0, size),
        max_count=rng.integers(1, 5, size).tolist(),
        fixed_usd=0.4,
    )
    greedy, exact = (solve(instance, name).objective for name in ("greedy", "dinkelbach"))
    assert greedy == pytest.approx(exact, rel=REL_TOL)
    plain = solve_with_highs(CompiledModel(parametric_model(instance, exact)))
    assert plain.objective == pytest.approx(0.0, abs=REL_TOL)

"""Joint limits may have any unit: a cap of 5 instances equals one of 5e-10 with 1e-10 per instance."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.driver import Outcome
from optim.models.bidding.data import Caps
from optim.models.bidding.instance import LARGEST
from optim.models.files import verify
from optim.solvers.bidding.outcome import cap_units, in_units, unscale
from optim.solvers.solve import solve
from tests.support.bidding.small_markets import best_of_all, hour_instance, varied

SOLVERS = ("dinkelbach", "greedy", "frontier")


def in_other_unit(instance, scale):
    caps = instance.caps
    return replace(instance, caps=replace(caps, weight=caps.weight * scale, limit=caps.limit * scale))


@pytest.mark.parametrize("scale", [1.0, 1e-4, 1e-10])
@pytest.mark.parametrize("solver", SOLVERS)
def test_a_cap_of_five_instances_allows_five(solver, scale):
    instance = hour_instance([0], [0.1], [1.0], max_count=100, fixed_usd=1.0)
    capped = replace(instance, caps=Caps(names=("c",), weight=np.array([[scale]]), limit=np.array([5 * scale])))
    found = solve(capped, solver)
    assert verify(capped, found).is_ok
    assert found.decision.counts.tolist() == [5]


@given(st.integers(0, 10**6), st.sampled_from([2.0**-40, 1e-10]))
def test_the_best_footprint_and_its_proof_are_those_of_any_other_unit(seed, scale):
    instance = varied(seed)
    small = in_other_unit(instance, scale)
    best, found = best_of_all(instance), solve(small, "dinkelbach")
    assert verify(small, found).is_ok
    if np.isfinite(best):
        assert found.objective == pytest.approx(best, rel=1e-6, abs=1e-12)
    else:
        assert found.decision is None


def test_units_are_powers_of_two_and_prices_come_back():
    caps = Caps(names=("a", "b", "c", "d"), weight=np.full((4, 1), 0.25), limit=np.array([0.0, 0.75, 1.0, 1e-300]))
    instance = replace(hour_instance([0], [0.1], [1.0], fixed_usd=1.0), caps=caps)
    units = cap_units(instance)
    assert units.tolist() == [1.0, 0.5, 1.0, 2.0**-997]
    assert in_units(instance, units).caps.limit.tolist() == [0.0, 1.5, 1.0, 1e-300 * 2.0**997]
    assert in_units(instance, units).caps.weight[:, 0].tolist() == [0.25, 0.5, 0.25, LARGEST]
    proof = solve(hour_instance([0], [0.1], [1.0], fixed_usd=1.0), "dinkelbach").certificate.proof
    priced = replace(proof, multipliers=(replace(proof.multipliers[0], cap=np.array([1.0, 2.0, 3.0, 0.0])),))
    assert unscale(Outcome(proof=priced), units).proof.multipliers[0].cap.tolist() == [1.0, 4.0, 3.0, 0.0]
    assert unscale(Outcome(), units) == Outcome()

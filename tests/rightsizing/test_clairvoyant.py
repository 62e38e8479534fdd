"""Bounds against enumeration of all plans, and claims against a checker that looks at the series alone."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optim.models.containers.clairvoyance import check_clairvoyant
from optim.rightsizing import Measure, Slo, make_plan, make_world, measure
from optim.rightsizing.clairvoyant import claim_of, clairvoyant
from optim.rightsizing.comparison import charged_allocation, risk_of
from optim.rightsizing.engine import Restarts
from optim.workloads.containers import ContainerOptions, generate_containers
from tests.support.containers.worlds import drawn_worlds, series_of

CHARGES = {"checkpoint_s": 120.0, "startup_s": 15.0}
CHEAP = Restarts(**CHARGES)


def least_total(world, wanted, column, allowed):
    """Least total of any plan with a given number of violations, by enumeration, with the restarts of this resource only."""
    cells = [
        (place, cycle) for place in range(world.num_containers) for cycle in range(1, world.num_cycles)
        if world.samples[place, cycle]
    ]  # fmt: skip
    share = 0.95 if wanted.measure is Measure.UNDER_TIME else 1.0
    menus = [sorted({0.0, *(share * world.by_cycle[cell][: world.samples[cell], column])}) for cell in cells]
    best = np.inf
    for chosen in itertools.product(*menus):
        plan = np.full((*world.samples.shape, 2), 1e6)
        plan[:, 0, column] = np.minimum(world.first, world.limit)[:, column]
        for cell, level in zip(cells, chosen, strict=True):
            plan[*cell, column] = min(level, world.limit[cell[0], column])
        plan[world.samples == 0] = 0.0
        outcome = measure(world, plan, wanted.restarts)
        if risk_of(world, outcome, wanted)["risk"][column] <= allowed + 1e-12:
            best = min(best, charged_allocation(outcome, wanted)[:, column].sum())
    return best


@pytest.mark.prove
@pytest.mark.parametrize("kind", list(Measure))
@pytest.mark.parametrize("seed", range(2))
def test_no_plan_beats_the_bound_and_the_plan_is_one_of_them(kind, seed):
    rng = np.random.default_rng(seed)
    arrays = [rng.integers(1, 9, size=(int(rng.integers(5, 9)), 2)) * 1.0 for _ in range(3)]
    series = series_of(arrays, limit=np.array([[7.0, 9.0], [9.0, 9.0], [8.0, np.nan]]))
    world = make_world(series, series_of(arrays[:2]), cycle_s=45.0)
    for allowed in (0.02, 0.3, 0.7):
        wanted = Slo(measure=kind, kills=allowed, throttled=allowed, under_time=allowed, **CHARGES)
        found = clairvoyant(world, wanted)
        risk = risk_of(world, measure(world, found.allocation, CHEAP), wanted)["risk"]
        for column in range(2):
            budget = max(allowed, risk[column])  # where a limit or the first cycle causes more violations than allowed
            best = least_total(world, wanted, column, budget)
            assert found.bound[column] <= best * (1 + 1e-9)
            assert best <= found.total[:, column].sum() * (1 + 1e-9)


@settings(max_examples=15)
@given(world=drawn_worlds(), name=st.sampled_from(["prev-step-max", "current-step-max"]),
       multiplier=st.floats(0, 3))  # fmt: skip
def test_policies_never_beat_the_bound_at_their_own_harm(world, name, multiplier):
    outcome = measure(world, make_plan(world, name).allocate(np.full(2, multiplier)), CHEAP)
    risk = risk_of(world, outcome, Slo())["risk"]
    for column, share in enumerate(risk.tolist()):
        if not 0 < share < 1:
            continue
        wanted = Slo(kills=share, throttled=share, **CHARGES)
        bound = clairvoyant(world, wanted).bound[column]
        assert bound <= charged_allocation(outcome, wanted)[:, column].sum() * (1 + 1e-9) + 1e-9


@pytest.fixture(scope="module")
def generated():
    """Forty generated containers, and a world of them."""
    series = generate_containers(ContainerOptions(num_containers=40), seed=5)
    return series, make_world(series, series.select([0, 1, 2]))


@pytest.mark.parametrize("kind", list(Measure))
@pytest.mark.parametrize("is_harmless", [False, True])
def test_the_checker_proves_bounds_and_attained_plans_from_the_series_alone(generated, kind, is_harmless):
    series, world = generated
    wanted = Slo(measure=kind)
    found = clairvoyant(world, wanted, is_harmless=is_harmless)
    for column in (0, 1):
        claim = claim_of(series, world, found, wanted, column)
        claim = replace(claim, allowed=0.0) if is_harmless else claim
        assert check_clairvoyant(series, claim) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bound": 1.001}, "proves a bound of"),
        ({"price": 0.5}, "proves a bound of"),
        ({"price": 2.0}, "proves a bound of"),
        ({"total": 0.999}, "totals"),
        ({"allowed": 0.2}, "the plan's violations are"),
        ({"first": 1.1}, "in cycle 0"),
    ],
)
@pytest.mark.parametrize("column", [0, 1])
def test_the_checker_refuses_what_is_not_proven(generated, change, message, column):
    series, world = generated
    wanted = Slo(kills=0.05)
    claim = claim_of(series, world, clairvoyant(world, wanted), wanted, column)
    ((name, factor),) = change.items()
    assert any(
        message in text for text in check_clairvoyant(series, replace(claim, **{name: factor * getattr(claim, name)}))
    )


def test_the_checker_refuses_plans_that_are_short_costly_or_above_a_limit(generated):
    series, world = generated
    wanted = Slo()
    claim = claim_of(series, world, clairvoyant(world, wanted), wanted, 1)
    assert check_clairvoyant(series, replace(claim, plan={**claim.plan, 3: ()})) == [
        "the plan has a wrong number of cycles for segment 3"
    ]
    much = {segment: (plan[0], *(1e9 for _ in plan[1:])) for segment, plan in claim.plan.items()}
    wrong = " ".join(check_clairvoyant(series, replace(claim, plan=much)))
    assert "an invalid amount, 1e+09" in wrong
    assert "above the bound" in wrong

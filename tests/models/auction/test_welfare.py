"""The mixed-integer programmes and the hull relaxation against enumeration and against the solvers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import UnsupportedProblemError
from optim.models.auction.data import Locality
from optim.models.auction.welfare import explicit_model
from optim.solvers.lp.highs import CompiledModel, solve_with_highs
from optim.solvers.solve import solve
from optim.workloads.auction.generator import GeneratorOptions, generate
from tests.support.auction.builders import auction
from tests.support.auction.enumeration import optimum
from tests.support.auction.patterns import hull_bound, maximal_patterns, pattern_model
from tests.support.auction.strategies import auctions, named_auctions

TOL = 1e-6
"""The gap of HiGHS."""


def value(model):
    return solve_with_highs(CompiledModel(model), options={"mip_rel_gap": 0.0, "mip_abs_gap": 1e-9}).objective or 0.0


@given(auctions())
def test_the_explicit_programme_is_the_problem(instance):
    if len(instance.bids):
        assert value(explicit_model(instance)) == pytest.approx(optimum(instance), abs=TOL)


@given(named_auctions())
def test_the_explicit_programme_keeps_to_named_machines(instance):
    if len(instance.bids):
        assert value(explicit_model(instance)) == pytest.approx(optimum(instance), abs=TOL)


@given(auctions(), st.lists(st.integers(0, 4), min_size=1, max_size=3))
def test_the_pattern_programme_is_the_problem_where_machines_have_one_slot(drawn, free):
    """Bundles within slots, machines, racks and anywhere, on machines of two racks."""
    places = [(k % 2, [gpus]) for k, gpus in enumerate(free)]
    bids = [
        [
            (int(gpus), Locality(level).name.lower(), 1 / rho)
            for app, gpus, level, rho in zip(
                drawn.bids.app.tolist(), drawn.bids.gpus, drawn.bids.locality.tolist(), drawn.bids.rho, strict=True
            )
            if app == i
        ]
        for i in range(drawn.num_apps)
    ]
    instance = auction(places, *bids)
    if len(instance.bids):
        assert value(pattern_model(instance)) == pytest.approx(optimum(instance), abs=TOL)


@pytest.mark.parametrize("allocated_share", [0.0, 0.35])
@pytest.mark.parametrize("seed", range(1, 5))  # HiGHS takes half a minute on seed 0, free: all GPUs are used
def test_the_pattern_programme_agrees_with_the_exact_solver(seed, allocated_share):
    options = GeneratorOptions(num_apps=8, num_gpus=32, num_machines=4, allocated_share=allocated_share, gangs="any")
    instance = generate(options, seed)
    assert solve(instance, "exact").objective == pytest.approx(value(pattern_model(instance)), abs=TOL)


def test_both_programmes_agree_on_racks_partly_held():
    instance = generate(GeneratorOptions(num_apps=6, num_gpus=24, num_machines=6, allocated_share=0.3), 2)
    exact = solve(instance, "exact").objective
    assert value(explicit_model(instance)) == pytest.approx(exact, abs=TOL)
    assert value(pattern_model(instance)) == pytest.approx(exact, abs=TOL)


@given(auctions())
def test_the_hull_bounds_the_optimum(instance):
    assert hull_bound(instance) >= optimum(instance) - 1e-9


@pytest.mark.parametrize("seed", range(5))
def test_the_linear_relaxation_bounds_the_optimum_and_lies_below_the_hull(seed):
    instance = generate(GeneratorOptions(num_apps=10, num_gpus=48, num_machines=6), seed)
    relaxed = value(pattern_model(instance, is_integer=False))
    assert solve(instance, "exact").objective <= relaxed + TOL
    assert relaxed <= hull_bound(instance) + TOL


def test_a_hull_leaves_out_rows_below_the_line_between_their_neighbours():
    instance = auction([4], [(1, "slot", 1.1), (2, "slot", 4.0), (4, "slot", 5.0)])
    hull = hull_bound(instance)
    assert hull == pytest.approx(float(instance.weight.max()))
    assert hull_bound(auction([1], [(1, "slot", 1.1), (2, "slot", 4.0)])) == pytest.approx(
        float(instance.weight[1]) / 2
    )


def test_eight_gpus_have_twenty_two_patterns():
    assert len(maximal_patterns(8, list(range(1, 9)))) == 22


def test_patterns_refuse_what_they_can_not_say():
    with pytest.raises(UnsupportedProblemError, match="use explicit_model"):
        pattern_model(auction([(0, [2, 2])], [(1, "slot", 2.0)]))


@pytest.mark.parametrize(
    "instance",
    [
        auction([4, 4], [({0: 1}, 2.0), (2, "machine", 3.0)]),
        auction([(0, [2, 2])], [(2, "machine", 3.0)]),
    ],
    ids=["one row names its machines", "machines of two slots"],
)
def test_patterns_are_refused_wherever_they_can_not_say_it(instance):
    with pytest.raises(UnsupportedProblemError, match="use explicit_model"):
        pattern_model(instance)

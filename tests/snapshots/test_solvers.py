"""Results of every solver on small instances of all forms, under its default options and others."""

import numpy as np
import pytest

import optim
from optim.core.stopping import IterationLimit
from optim.simulation.cluster.comparison import bound
from optim.solvers.bidding.zones import least_cost
from optim.solvers.cluster.time_shares import (
    finish_time_shares,
    finish_time_shares_by_programmes,
    max_min_shares,
    price_shares,
)
from tests.solvers.cluster.test_time_shares import drawn as share_problem
from tests.support.admission.seeded import seeded_instance
from tests.support.admission.tiny import BY_HAND
from tests.support.auction.all_forms import auctions_of_all_forms
from tests.support.bidding.small_markets import drawn, published_vector, varied, with_survival
from tests.support.small_clusters import queue
from tests.support.snapshots import answer, assert_snapshot, line
from tests.support.spot.zones import drawn as zones

ADMISSION = {
    "column-generation": ({}, {"warm_start": False}),
    "search": ({"num_moves": 600, "first_cycle": 400}, {"num_moves": 200, "chains": 1, "dives": False}),
    "branch-and-price": ({"search_moves": 60}, {"tol": 0.02, "max_nodes": 3, "search_moves": 0}),
    "compact-milp": ({}, {"mip_gap": 0.1}),
    "exact": ({"search_moves": 60}, {"parallel": False, "max_nodes": 3, "search_moves": 0}),
    "online": (
        {},
        {"price": "exponential", "bounds": "paper"},
        {"strict": True, "bounds": "estimated", "sample_share": 0.5},
    ),
    "online-learned": ({},),
    "fifo": ({}, {"min_workers": 2, "max_workers": 4}),
    "drf": ({},),
    "rrh": ({}, {"rate": 0.1, "alpha": 0.9, "threshold": 2.0}, {"max_workers": 4}),
    "dorm": ({}, {"theta1": 0.4, "theta2": 0.3, "max_waiting": 2}),
}
SLOW = ("column-generation", "search", "branch-and-price", "exact", "dorm", "online-learned")
AUCTION = {
    "exact": ({}, {"payments": "closed", "rule": "nearest"}),
    "greedy": ({}, {"moves": 0, "rule": "lottery"}),
}
BIDDING = {
    "dinkelbach": ({}, {"tol": 0.05, "heuristic": True}),
    "exchange": ({}, {"bound": False}),
    "frontier": ({"max_points": 6, "tol": 1e-3},),
    "greedy": ({}, {"bound": False}),
}


def solved(instance, solver, options, **more):
    """Return a line: instance, options, termination, objective, bound, and certificate."""
    found = answer(optim.solve, instance, solver, options=options, seed=1, **more)
    if isinstance(found, str):
        return line(instance.name, options, found)
    kind = found.certificate.kind if found.certificate else None
    bound = None if solver == "online-learned" else found.bound  # its prices hang on the processor
    return line(instance.name, options, found.termination, found.objective, bound, kind)


@pytest.mark.parametrize("solver", [pytest.param(one, marks=[pytest.mark.prove] * (one in SLOW)) for one in ADMISSION])
def test_admission(solver):
    first, *others = ADMISSION[solver]
    tiny, *seeded = optim.reference_instance("tiny-0"), *map(seeded_instance, range(3, 32, 8))
    if solver == "compact-milp":  # its time on tiny-0 is limited
        tiny = BY_HAND["capped"]
    lines = [solved(one, solver, first) for one in (tiny, BY_HAND["shared-capped"], BY_HAND["by-slot"])]
    if solver not in ("compact-milp", "branch-and-price", "exact"):
        lines += [solved(one, solver, first, stop=IterationLimit(40)) for one in seeded]
    assert_snapshot("solvers-admission", solver, [*lines, *(solved(tiny, solver, options) for options in others)])


@pytest.mark.parametrize("solver", AUCTION)
def test_auction(solver):
    lines = [solved(one, solver, options) for options in AUCTION[solver] for one in auctions_of_all_forms()]
    assert_snapshot("solvers-auction", solver, lines)


@pytest.mark.parametrize("solver", BIDDING)
def test_bidding(solver):
    instances = [published_vector(), *(form(seed) for seed in range(3) for form in (drawn, varied, with_survival))]
    first, *others = BIDDING[solver]
    step = 4 if solver == "frontier" else 1
    lines = [solved(one, solver, first) for one in instances[::step]]
    lines += [solved(one, solver, options) for options in others for one in instances[:: 3 * step]]
    assert_snapshot("solvers-bidding", solver, lines)


def test_least_costs_over_zones():
    lines = []
    for seed in range(20):
        found = least_cost(*zones(seed, ticks=11), 0)
        steps = [f"{'spot' if one.is_spot else 'on-demand'} in {one.zone}" for one in found.plan]
        lines.append(line(f"seed {seed}", found.usd, "; ".join(steps), width=10))
    assert_snapshot("solvers-bidding", "least cost over zones", lines)


def test_bounds_of_clusters():
    lines = [line(f"seed {seed}", bound(*queue(seed), 7)["bounds"], width=10) for seed in range(12)]
    assert_snapshot("solvers-cluster", "bounds of makespan, slowdown and mean completion", lines)


@pytest.mark.parametrize("rule", [max_min_shares, finish_time_shares, finish_time_shares_by_programmes, price_shares])
def test_time_shares(rule):
    found = [rule(share_problem(seed, 2 + seed, kinds=2 + seed % 2)) for seed in range(6)]
    values = [np.sum(one) if rule is price_shares else one.value for one in found]
    assert_snapshot(
        "solvers-cluster", rule.__name__, [line(f"seed {k}", one, width=10) for k, one in enumerate(values)]
    )

"""What posted prices, their ranges and the theorems on them come to, against a record: see `tests.support.golden`."""

import numpy as np
import pytest

import optim
from optim.core.errors import OptimError
from optim.solvers.admission.online import OnlineOptions, make_bounds, make_function
from optim.solvers.admission.posted_prices.online_run import TiedSearch, draw_tie_order, run_online
from optim.solvers.admission.posted_prices.price_functions import (
    PriceFloorRule,
    first_jobs,
    job_value_stats,
    paper_value_stats,
    price_ranges,
    sample_jobs,
)
from optim.solvers.admission.posted_prices.theorems import max_share
from optim.solvers.admission.pricing.servers import ResidualSearch
from tests.support.admission.seeded import seeded_instance as of_all_traits
from tests.support.admission.slot_runs import seeded_instance
from tests.support.admission.tiny import BY_HAND, job_document, tiny_instance
from tests.support.golden import check

OPTIONS = (
    {},
    {"price": "exponential"},
    {"strict": True, "eps": 0.2},
    {"price": "exponential", "strict": True},
    {"price": "exponential", "bounds": "paper"},
    {"bounds": "estimated", "sample_share": 0.5, "unit_free": False},
    {"price": "exponential", "bounds": "first", "sample_share": 0.4, "unit_free": False, "upper_scale": 2.0},
    {"lower_scale": 0.1},
)


def decided(instance, **fields):
    """Decide on all jobs in order; return what each decision saw and did, and the claims that then hold."""
    options, rng = OnlineOptions(**fields), np.random.default_rng(3)
    try:
        bounds, function = make_bounds(instance, options, rng), make_function(instance, options)
    except OptimError as error:
        return type(error).__name__
    run = run_online(instance, bounds=bounds, function=function, keeps_prices=True)
    steps = [
        (one.job, one.is_accepted, one.payoff, one.dual_step, one.primal_step, one.worker_price, one.ps_price)
        for one in run.decisions
    ]
    return steps, run.initial_dual, run.final_dual, run.objective, run.largest_step_ratio, bounds


def ranges(instance):
    """Return all ranges of an instance, of some of its jobs, too, and what the theorems say of them."""
    worth, rng = job_value_stats(instance), np.random.default_rng(0)
    found = [worth, paper_value_stats(instance, worth), max_share(instance)]
    found += [sample_jobs(instance, 0.5, rng), first_jobs(instance, 0.5)]
    for scale in PriceFloorRule:
        found.append(price_ranges(instance, scale))
        found.append(price_ranges(instance, scale, stats=worth.of(first_jobs(instance, 0.6)), has_paper_values=True))
    return found


def claimed(instance, **fields):
    """Return what the theorems say of a run."""
    try:
        return optim.solve(instance, "online", options=fields)
    except OptimError as error:
        return type(error).__name__


def tied(instance):
    """Decide with ties broken in orders that are drawn."""
    bounds, function = (
        make_bounds(instance, OnlineOptions(), np.random.default_rng(0)),
        make_function(instance, OnlineOptions()),
    )
    found = []
    for seed in range(4):
        order = draw_tie_order(instance, np.random.default_rng(seed))
        finder = TiedSearch(instance, ResidualSearch(instance), order, job_value_stats(instance))
        found += [order, run_online(instance, bounds=bounds, function=function, finder=finder, order=order.jobs).plan]
    return found


def speedups():
    """Return the ranges of jobs whose speed-ups bend, some with hardly any slots left."""
    found = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        jobs = []
        for i in range(3):
            gains = rng.choice([0.0, 0.3, 0.6, 1.0], 3)
            chunks, arrival = 1 + len(gains), int(rng.integers(0, 4))
            speedup = [1.0, *(1.0 + np.cumsum(gains)).tolist()]
            jobs.append(job_document(f"j{i}", arrival=arrival, chunks=chunks, epochs=1, speedup=speedup, minibatch_s=4))
        found.append(ranges(tiny_instance(*jobs, chunk_integral=seed % 3 == 0)))
    return found


RUNS = {
    "tiny": lambda: [decided(optim.reference_instance(f"tiny-{k}"), **fields) for k in (0, 2) for fields in OPTIONS],
    "by-hand": lambda: [decided(one, **fields) for one in BY_HAND.values() for fields in OPTIONS[:5]],
    "drawn": lambda: [decided(seeded_instance(seed), **OPTIONS[seed % len(OPTIONS)]) for seed in range(24)],
    "traits": lambda: [decided(of_all_traits(seed), **OPTIONS[seed % len(OPTIONS)]) for seed in range(32)],
    "ranges-traits": lambda: [ranges(of_all_traits(seed)) for seed in range(0, 32, 2)],
    "claims-traits": lambda: [claimed(of_all_traits(seed), **OPTIONS[seed // 2 % 4]) for seed in range(32)],
    "speedups": speedups,
    "claims": lambda: [claimed(one, **fields) for one in BY_HAND.values() for fields in OPTIONS[:4]],
    "ranges": lambda: [ranges(seeded_instance(seed)) for seed in range(12)],
    "ties": lambda: [tied(seeded_instance(seed)) for seed in range(8)],
}


@pytest.mark.parametrize("name", RUNS)
def test_does_what_the_golden_record_says(name):
    check("solvers/admission/posted_prices", name, RUNS[name])

"""Everything that small instances, prices, bills and estimates of spot markets tell, compared with what is kept."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from optim.models.bidding.check.exact_instance import VerifierContext
from optim.models.bidding.codec import bid_columns
from optim.models.bidding.cost_per_work import describe, evaluate, evaluate_many, footprint_load
from optim.models.bidding.data import EvictionTerm, HourOutlook, LastingCapacity, survival_probability
from optim.models.bidding.decision import FootprintPlan
from optim.models.bidding.market.billing import AMAZON, End, FixedPrice, Lease, lease_lines
from optim.models.bidding.market.evictions import (
    EvictionOptions,
    crossings,
    crossings_of_bid,
    fit_evictions,
    usable_hours,
)
from optim.models.bidding.market.lifetimes import AvailabilityTrace, Lifetimes, fit_hazards
from optim.models.bidding.market.prices import Market, PricePath, history_of
from optim.models.bidding.problem import PROBLEM
from optim.models.bidding.programme import charnes_cooper_model, parametric_model, supports_programme, tangents
from optim.statistics import wilson
from tests.support.bidding.random_proofs import random_tree
from tests.support.bidding.small_markets import CURVES, all_footprints, lasting, published_vector, varied
from tests.support.kept import assert_kept, by_name, outcome, parts
from tests.support.told_programme import told_programme
from tests.support.variants import answers

KEPT = Path(__file__).parent / "kept"
SEEDS = range(24)


@pytest.fixture(scope="module")
def instances():
    """Instances of every form, half of them with capacity that must last."""
    return [(seed, (lasting if seed % 2 else varied)(seed)) for seed in SEEDS]


def test_what_instances_and_footprints_tell(instances):
    found = []
    for seed, one in instances:
        rng = np.random.default_rng(seed)
        counts = rng.integers(0, 3, one.num_bids)
        plan, proof = FootprintPlan.of(counts), random_tree(VerifierContext(instance=one), rng)
        documents = [PROBLEM.decision_to_json(one, plan), PROBLEM.proof_to_json(one, proof)]
        plain = json.loads(json.dumps(documents))
        told = {
            "documents": documents, "columns": [bid_columns(one), plan.columns(one)], "picture": plan.picture(),
            "value": evaluate(one, counts), "values": evaluate_many(one, all_footprints(one)[:20]),
            "kept": survival_probability(one, counts), "form": supports_programme(one),
            "instance": PROBLEM.document_from_instance(one),
            "again": [PROBLEM.decision_from_json(one, plain[0]), PROBLEM.proof_from_json(one, plain[1])],
        }  # fmt: skip
        figures = {**describe(one), **{f"load {name}": value for name, value in footprint_load(one, plan).items()}}
        found.append({**parts(one), **parts(one.outlook), **told, **figures})
    assert_kept(KEPT / "instances.json", by_name(found))


def test_programmes(instances):
    models = [
        outcome(lambda make, given: told_programme(make(given)), make, one)
        for one in (published_vector(), *(instances[k][1] for k in (0, 2, 4, 8)))
        for make in (charnes_cooper_model, lambda given: parametric_model(given, 0.125, pieces=4))
    ]
    lines = [tangents(curve, most, 5) for curve in CURVES for most in (0.5, 4.0, 20.0)]
    assert_kept(KEPT / "programmes.json", {"models": models, "tangents": lines})


@pytest.mark.parametrize("seed", [3, 10, 13])
def test_what_is_said_of_documents_with_one_field_changed(seed, instances):
    def said(document):
        one = outcome(PROBLEM.read_instance, json.dumps(document).encode())
        return one if isinstance(one, str) else [describe(one), one.bids, one.caps]

    document = json.loads(PROBLEM.write_instance(instances[seed][1]))
    assert_kept(KEPT / f"documents-{seed}.json", answers(document, said, 1))


def history(seed):
    """Return three markets' prices over two days, with gaps."""
    rng = np.random.default_rng(seed)
    paths = [
        PricePath(time_s=np.cumsum(rng.integers(60, 9000, 40)), price_micro=1000 * rng.integers(20, 80, 40))
        for _ in range(3)
    ]
    markets = [Market(instance_type=f"t{k}", zone="z", on_demand_micro=90_000, rate=1.0 + k) for k in range(3)]
    return history_of(markets, paths, gap_s=8000)


def test_price_histories_and_crossings():
    found = []
    for seed in range(2):
        past = history(seed)
        path, times = past.paths[0], np.arange(0, 200_000, 7001)
        spot = [(t, t + 500) for t in range(past.begin_s, past.end_s, 5000)]
        told = {
            "path": [[path.price_at(t), outcome(path.index_at, t), path.first_above(t, 50_000)] for t in times.tolist()],
            "censor": outcome(past.censor_after, times), "touches": [past.touches_gap(*one) for one in spot],
            "volatility": past.volatility(), "some": past.with_markets([2, 0]), "between": past.between(20_000, 90_000),
            "crossings": [crossings(path, np.array([0, 1000, 20_000]), at_equal=equal) for equal in (False, True)],
            "of bid": [crossings_of_bid(path, bid) for bid in (30_000, 60_000)],
        }  # fmt: skip
        found.append({**parts(past), **told})
    assert_kept(KEPT / "histories.json", by_name(found))


def test_eviction_tables():
    options = [
        EvictionOptions(), EvictionOptions(step_s=300),
        EvictionOptions(deltas_micro=(0, 1000, 30_000)),
    ]  # fmt: skip
    found = []
    for seed, given in enumerate(options):
        table = fit_evictions(history(seed), given)
        rows = [table.row(int(delta)) for delta in table.deltas_micro]
        at = [
            [table.probability(1, row, t), table.usable_h(1, row, t)] for row in rows for t in (0, 59, 90, 1800, 3600)
        ]
        found.append({**parts(table), "at": at, "hours": usable_hours(table.survival[0])})
    intervals = wilson(np.array([0.0, 0.2, 0.5, 1.0]), np.array([1.0, 7.0, 50.0, 400.0]))
    wrong = [outcome(EvictionOptions, **one) for one in ({"step_s": 0}, {"deltas_micro": (2, 1)})]
    assert_kept(KEPT / "evictions.json", {**by_name(found), "intervals": intervals, "wrong": wrong})


def test_hazards_and_availability():
    rng = np.random.default_rng(0)
    spells = Lifetimes(
        kinds=("a", "b"), kind=rng.integers(0, 2, 40), start_s=rng.uniform(0, 200_000, 40),
        length_s=rng.uniform(60, 90_000, 40), is_lost=rng.random(40) < 0.6,
    )  # fmt: skip
    hazards = fit_hazards(spells)
    at = [
        [hazards.cumulative(kind, start, until, age), hazards.survival(kind, start, until, age)]
        for kind in (0, 1) for start in (0.0, 30_000.0) for until in (600.0, 90_000.0) for age in (0.0, 4000.0)
    ]  # fmt: skip
    trace = AvailabilityTrace(
        zone="z", resource="r", time_s=np.array([0, 600, 1500]), is_available=np.array([True, False, True]),
        price_micro=np.array([5, 6, 7]), on_demand_micro=9, end_s=1900,
    )  # fmt: skip
    prices = [trace.price_at(t) for t in (-1, 0, 599, 600, 1600, 5000)]
    assert_kept(
        KEPT / "hazards.json", {"hazards": hazards, "at": at, "trace": trace, "prices": prices, "size": len(trace)}
    )


def test_bills_of_every_rule():
    path = history(1).paths[1]
    start = int(path.time_s[2])
    found = {}
    for rule in AMAZON:
        for end in End:
            leases = [
                Lease(market="m", count=count, granted_s=start, ended_s=start + held, end=end)
                for held in (0, 1, 59, 60, 61, 3599, 3600, 3601, 7200, 20_000)
                for count in (1, 3)
            ]
            lines = [
                outcome(lease_lines, lease, prices, rule) for lease in leases for prices in (path, FixedPrice(90_001))
            ]
            found[f"{rule} {end}"] = lines
    early = outcome(lease_lines, Lease(market="m", count=1, granted_s=0, ended_s=9, end=End.RETURNED), path, AMAZON[0])
    assert_kept(KEPT / "bills.json", {**found, "early": early})


def test_which_numbers_are_in_range_and_which_forms_are_linear():
    shocks = lasting(1).lasting.shocks
    usual = {"shocks": shocks, "capacity": np.array([1]), "least": 2, "probability": 0.5}
    ranges = {
        "least": (0, 1, 4096, 4097),
        "probability": (0.0, 1e-9, 1.0, 1.1),
        "capacity": ([-1], [0], [4096], [4097]),
    }
    asked = {
        f"{name} {value}": outcome(LastingCapacity, **{**usual, name: np.array(value) if name == "capacity" else value})
        for name, values in ranges.items()
        for value in values
    }
    linear = {}
    for seed in range(0, 12, 2):
        for loss, change in ((0.0, 0.0), (0.1, 0.0), (0.0, 0.1)):
            one = replace(varied(seed), eviction_loss_h=loss, change_loss_h=change)
            terms = EvictionTerm if isinstance(one.outlook, HourOutlook) else (None,)
            forms = [one if term is None else replace(one, outlook=replace(one.outlook, term=term)) for term in terms]
            linear[f"{seed} {loss} {change}"] = [supports_programme(form) for form in forms]
    assert_kept(KEPT / "ranges.json", {**asked, **linear})

"""What the checker says of many footprints, multipliers, covers and trees, most of them wrong: all of it is kept."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from optim.core.solution import Certificate, CertificateKind, PointStatus, Sense, Solution, Termination
from optim.models.bidding.check import check
from optim.models.bidding.check.claims import BiddingClaims
from optim.models.bidding.check.exact_instance import (
    VerifierContext,
    footprint_value,
    min_rate_for,
    tangent_slope,
    useful_rate,
)
from optim.models.bidding.check.tree import _min_cost, check_form, checked_covers, keeps_enough, kept, leaf_bound
from optim.models.bidding.decision import FootprintPlan
from tests.support.bidding.random_proofs import random_box, random_covers, random_multipliers, random_tree
from tests.support.bidding.small_markets import CURVES, lasting, varied
from tests.support.kept import assert_kept, by_name, outcome, verdict

KEPT = Path(__file__).parent / "kept"
SEEDS = range(80)


@pytest.fixture(scope="module")
def instances():
    """Instances of every form, half of them with capacity that must last."""
    return [(seed, (lasting if seed % 2 else varied)(seed)) for seed in SEEDS]


def test_every_part_of_the_checker_by_itself(instances):
    found = []
    for seed, instance in instances:
        rng, facts = np.random.default_rng(seed), VerifierContext(instance=instance)
        counts, covers = rng.integers(0, 3, instance.num_bids), random_covers(instance, rng)
        checked = checked_covers(instance, covers) if covers else None
        multipliers, boxes = (
            [random_multipliers(facts, rng) for _ in range(3)],
            [random_box(facts, rng) for _ in range(3)],
        )
        pairs = list(zip(multipliers, boxes, strict=True))
        told = {
            "facts": facts, "value": footprint_value(facts, counts.tolist()), "covers": checked,
            "kept": instance.lasting and [kept(instance, instance.lasting, counts), keeps_enough(instance, counts)],
            "form": [check_form(facts, x) for x in multipliers],
            "leaf": [outcome(leaf_bound, facts, box, x, 0.25, least) for x, box in pairs for least in (0.0, 1.5)],
            "why": BiddingClaims(facts, None).why_feasible() if seed < 4 else None,
        }  # fmt: skip
        found.append(told)
    assert_kept(KEPT / "parts.json", by_name(found))


def test_verdicts_on_footprints_and_proofs(instances):
    found = {}
    for seed, instance in instances:
        rng, facts = np.random.default_rng(seed), VerifierContext(instance=instance)
        counts = rng.integers(0, 3, instance.num_bids)
        cost, work = footprint_value(facts, counts.tolist())
        solution = Solution(
            problem="bidding", instance=instance.name, solver="by-hand", sense=Sense.MINIMISE,
            termination=Termination.COMPLETED, decision=FootprintPlan.of(counts), objective=cost / work if work > 0 else 0.5,
            primal=PointStatus.FEASIBLE, dual=PointStatus.FEASIBLE, bound=9.0,
            certificate=Certificate(kind=CertificateKind.BOUND, statement="", proof=random_tree(facts, rng)),
        )  # fmt: skip
        found[f"{seed}"] = verdict(check(instance, solution))
    assert_kept(KEPT / "verdicts.json", found)


def test_curves():
    rates = [0.0, 0.5, 1.0, 2.0, 4.0, 5.0, 8.0, 9.0, 11.0]
    found = {
        f"{number}": [[useful_rate(curve, v), tangent_slope(curve, v), min_rate_for(curve, v / 2)] for v in rates]
        for number, curve in enumerate(CURVES)
    }
    assert_kept(KEPT / "curves.json", found)


def test_least_costs_of_what_works():
    found = {}
    for seed in range(12):
        one = replace(varied(seed), fixed_rate=0.0)
        for idle in range(min(2, one.num_bids)):
            rate = np.where(np.arange(one.num_bids) == idle, 0.0, one.bids.rate)
            facts = VerifierContext(instance=replace(one, bids=replace(one.bids, rate=rate)))
            found[f"{seed} {idle}"] = [_min_cost(facts), BiddingClaims(facts, None).why_feasible()]
    assert_kept(KEPT / "costs.json", found)

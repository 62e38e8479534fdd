"""The chance constraint: figures by hand, files, and rejected values."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from optim.core.errors import InvalidProblemError
from optim.models.bidding.data import SurvivalConstraint, survival_probability
from optim.models.bidding.decision import FootprintPlan
from optim.models.bidding.instance import BiddingInstance
from optim.models.bidding.market.lifetimes import CommonShocks
from optim.models.bidding.problem import PROBLEM
from tests.support.bidding.small_markets import all_footprints, kept_by_outcomes, with_survival

BIDS = [
    {"market": "a", "max_count": 4, "price_usd": 0.1, "evicted": 0.2, "usable_h": 0.9},
    {"market": "b", "max_count": 4, "price_usd": 0.3, "evicted": 0.0, "usable_h": 1.0},
]


def two_markets(**fields):
    """Return two markets, each lost within the hour with probability one half by an independent cause."""
    half = float(np.log(2))
    return BiddingInstance.from_bids(
        BIDS, survival={"min_capacity": 2, "probability": 0.6, "by_market": [half, half], **fields}
    )


def test_the_probability_is_that_of_hand_figures():
    instance = two_markets()
    for counts, expected in (([2, 0], 0.5), ([2, 2], 0.75), ([1, 1], 0.25), ([1, 3], 0.5), ([1, 0], 0.0)):
        assert survival_probability(instance, np.array(counts)) == pytest.approx(expected)
    both = two_markets(zone=[0, 0], by_zone=[float(np.log(4))])
    assert survival_probability(both, np.array([2, 2])) == pytest.approx(0.75 / 4)
    assert survival_probability(two_markets(capacity=[1, 2]), np.array([0, 1])) == pytest.approx(0.5)
    assert survival_probability(replace(instance, survival=None), np.zeros(2, dtype=np.int64)) == 1.0


def test_the_probability_is_that_of_all_outcomes():
    for seed in range(12):
        instance = with_survival(seed)
        counts = all_footprints(instance)[-1]
        assert survival_probability(instance, counts) == pytest.approx(
            kept_by_outcomes(instance, counts[None])[0], abs=1e-12
        )


def test_a_file_holds_what_must_last():
    for seed in range(6):
        instance = with_survival(seed)
        document = PROBLEM.document_from_instance(instance)
        again = PROBLEM.instance_from_document(msgspec.json.decode(msgspec.json.encode(document), type=type(document)))
        one, other = instance.survival, again.survival
        assert (one.min_capacity, one.probability) == (other.min_capacity, other.probability)
        assert (one.capacity == other.capacity).all()
        for name in ("own", "zone", "by_zone", "region", "by_region"):
            assert (getattr(one.shocks, name) == getattr(other.shocks, name)).all()


def test_figures_tell_what_is_asked_and_what_is_kept():
    instance = two_markets()
    assert (PROBLEM.describe(instance)["survival"], PROBLEM.describe(instance)["survival_probability"]) == (2, 0.6)
    figures = PROBLEM.decision_figures(instance, FootprintPlan.of([2, 2]))
    assert figures["kept_probability"] == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"min_capacity": 5000}, "survival.min_capacity must be between 1 and 4096, got 5000"),
        ({"probability": 0.0}, "survival.probability must be above 0 and at most 1, got 0"),
        ({"probability": 1.5}, "survival.probability must be above 0"),
        ({"capacity": [1, 9999]}, r"survival.capacity\[1\] must be between 0 and 4096, got 9999"),
        ({"capacity": [1]}, "survival.capacity must hold one value for each of the 2 bids"),
        ({"by_market": [0.1]}, "survival.zone and survival.by_market must have one value for each of the 2 markets"),
        ({"by_market": [0.1, -1.0]}, "finite and at least 0"),
        ({"zone": [0, 2], "by_zone": [0.1]}, r"every zone must be a number from 0 to 0, got \[0, 2\]"),
        (
            {"zone": [0, 0], "by_zone": [0.1], "region": [3], "by_region": [0.1]},
            "every region must be a number from 0 to 0",
        ),
    ],
)
def test_refuses_what_contradicts_itself(fields, text):
    with pytest.raises(InvalidProblemError, match=text):
        two_markets(**fields)


def test_a_model_of_its_own_is_refused_like_a_file():
    shocks = CommonShocks(
        zone=np.zeros(1, dtype=np.int64), region=np.zeros(1, dtype=np.int64), own=np.zeros(1), by_zone=np.zeros(1),
        by_region=np.zeros(1),
    )  # fmt: skip
    with pytest.raises(InvalidProblemError, match="capacity"):
        SurvivalConstraint(shocks=shocks, capacity=np.array([-1]), min_capacity=1, probability=0.5)

"""Wrappers around policies, one in another too, do what they did before."""

from itertools import product
from pathlib import Path

import pytest

from tests.support.cluster_worlds import told
from tests.support.kept import assert_kept

KEPT = Path(__file__).parent / "kept"

AROUND = {
    "fail-early": {"fail-early.trial_s": 200, "fail-early.share": 0.2},
    "isolate": {"isolate.wide": 2, "isolate.share": 0.4},
    "patience": {"patience.wait_s": 300, "patience.most_slowdown": 1.2},
    "stop-at-gain": {"stop-at-gain.least_gain": 0.02, "stop-at-gain.check_s": 900},
    "patience+isolate": {"patience.wait_s": 900},
    "stop-at-gain+fail-early": {"stop-at-gain.least_gain": 0.01, "stop-at-gain.check_s": 1100, "fail-early.share": 0.3},
}


@pytest.mark.prove
@pytest.mark.parametrize(("around", "world"), list(product(AROUND, ("plain", "failing", "shared"))))
def test_a_wrapped_policy_does_what_it_did(around, world):
    found = {
        inner: [told(f"{around}+{inner}", world, given) for given in ({}, AROUND[around])]
        for inner in ("srsf", "yarn-cs")
        if inner == "srsf" or "stop" not in around
    }
    assert_kept(KEPT / f"{around}-{world}.json", found)

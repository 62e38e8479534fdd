"""The study of greedy's gap: means without a proof are no bounds."""

import numpy as np
import pytest
from optim_studies.greedy_gap import FAMILIES, SPEC

import optim
from optim.benchmarks.runner import plan_work
from optim.benchmarks.suite import BenchRequest
from optim.core.progress import SilentProgress
from optim.core.stopping import Interruption, Never
from optim.workloads.auction.generator import generate

NUMBER = 2


@pytest.fixture(scope="module")
def records():
    """Study two auctions a family."""
    work = plan_work([SPEC], BenchRequest(options={"instances": NUMBER, "moves": 20}, seeds=(3,))).work
    return {piece.labels["family"]: piece.run(Never(), SilentProgress()) for piece in work}


def test_each_family_has_a_verified_record_without_objective_or_bound(records):
    assert list(records) == list(FAMILIES)
    for record in records.values():
        assert record.verified
        assert record.has_answer
        assert (record.objective, record.bound, record.gap, record.load) == (None, None, None, None)
        assert record.findings["mean_greedy"] <= record.findings["mean_exact"] + 1e-9
        assert set(record.measures) == {"gap_log", "gap_share"}


def test_findings_are_those_of_the_auctions_drawn(records):
    auctions = [generate(FAMILIES["free"], 3 * NUMBER + k) for k in range(NUMBER)]
    greedy = [optim.solve(auction, "greedy", options={"moves": 20}, seed=3).objective for auction in auctions]
    exact = [optim.solve(auction, "exact", seed=3).objective for auction in auctions]
    found, gaps = records["free"].findings, np.subtract(exact, greedy)
    assert found["mean_greedy"] == pytest.approx(np.mean(greedy), rel=1e-12)
    assert found["mean_exact"] == pytest.approx(np.mean(exact), rel=1e-12)
    assert found["median_gap"] == pytest.approx(np.median(gaps), abs=1e-12)
    assert found["optimal"] == np.mean(gaps <= 1e-9)
    quantiles = records["free"].measures["gap_share"]
    assert quantiles["1.0"] == pytest.approx(max(gaps / exact), abs=1e-12)


def test_a_study_that_is_told_to_stop_says_that_it_did_not_end():
    (piece, *_) = plan_work([SPEC], BenchRequest(options={"instances": 3, "moves": 0})).work
    stop = Interruption()
    stop.request()
    record = piece.run(stop, SilentProgress())
    assert (record.termination, record.iterations) == ("interrupted", 1)

"""The study of divisible markets: the batch agrees with Clarabel, and `seconds` contains only measured times."""

from types import SimpleNamespace

import numpy as np
import pytest
from optim_studies import fractional
from optim_studies.divisible_market import market_of
from optim_studies.fractional import SPEC

from optim.benchmarks.runner import plan_work
from optim.benchmarks.suite import BenchRequest
from optim.core.progress import SilentProgress
from optim.core.stopping import Never
from optim.workloads.auction.generator import GeneratorOptions, generate


def test_a_value_above_clarabels_is_a_problem(monkeypatch):
    own = fractional._by_clarabel

    def low(*words):
        kept, seconds, value = own(*words)
        return kept, seconds, value - 0.01

    monkeypatch.setattr(fractional, "_by_clarabel", low)
    (piece,) = plan_work([SPEC], BenchRequest(options={"apps": 3, "machines": 2, "compared": 2})).work
    record = piece.run(Never(), SilentProgress())
    assert not record.verified
    assert "exceeds Clarabel's" in str(record)


def test_the_batch_agrees_with_clarabel_and_claims_no_objective_of_the_auction():
    (piece,) = plan_work([SPEC], BenchRequest(options={"apps": 3, "machines": 2, "compared": 2})).work
    record = piece.run(Never(), SilentProgress())
    assert record.verified
    assert record.measures["error"] <= 1e-3
    assert record.measures["value"] <= record.measures["value_bound"]
    assert record.findings["compared"] == 2
    assert (record.objective, record.bound, record.gap, record.certificate) == (None, None, None, None)
    assert record.seconds["verify"] < record.wall_s


def test_clarabels_seconds_are_scaled_up_to_all_problems(monkeypatch):
    """2 s for the problem of all, and 3 s for each of two without an app, of which there are four: 2 + 4 * 3."""
    market = market_of(generate(GeneratorOptions(num_apps=4, num_gpus=16, num_machines=2, bids="named"), 0))
    solved = []

    def solve_cone(programme):
        solved.append(programme)
        return SimpleNamespace(speed=np.ones(4), value=1.5, solver_s=2.0 if len(solved) == 1 else 3.0)

    monkeypatch.setattr(fractional, "solve_cone", solve_cone)
    shares, seconds, value = fractional._by_clarabel(market, 2, SilentProgress())
    assert (sorted(shares), seconds, value) == ([0, 3], pytest.approx(14.0), 1.5)

"""The study of divisible markets: the batch agrees with Clarabel, and only seconds that passed are called so."""

from optim.benchmarks.runner import plan_work
from optim.benchmarks.spec import BenchRequest
from optim.benchmarks.suites.fractional import SPEC
from optim.core.progress import SilentProgress
from optim.core.stopping import Never


def test_a_value_above_clarabels_is_a_problem(monkeypatch):
    from optim.benchmarks.suites import fractional

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

"""The study `forecast`: every axis, with and without the guard, and its picture."""

import pytest

from optim.benchmarks.runner import plan_work
from optim.benchmarks.spec import BenchRequest
from optim.benchmarks.suites.forecast import SPEC
from optim.core.progress import SilentProgress
from optim.core.stopping import Never

SMALLEST = {"jobs": 8, "slots": 6, "servers": 2, "days": 1, "moves": 2}


@pytest.mark.prove
def test_every_curve_is_measured_verified_and_drawn() -> None:
    work = plan_work([SPEC], BenchRequest(options=SMALLEST)).work
    records = [piece.run(Never(), SilentProgress()) for piece in work]
    assert [record.labels["axis"] for record in records] == ["days", "error", "load"]
    found = {record.labels["axis"]: record.findings for record in records}
    assert found["days"]["x"] == [0, 1]
    assert found["error"]["x"] == [0.1, 1.0, 10.0]
    assert found["load"]["x"] == [2.0, 4.0, 8.0]
    assert found["days"]["guarded"][0] is None
    for record in records:
        assert record.verified, record.violations
        assert all(0 <= share <= 1 + 1e-9 for share in record.findings["unguarded"])
        # Where the guard is on, a wrong forecast never earns less than half of the servers by the paper's rule alone.
        assert all(share > 0 for share in record.findings["guarded"] if share is not None)
    (figure,) = SPEC.figures(records)
    assert "<svg" in figure.svg


def test_the_axis_of_wrong_prices_has_both_curves_and_a_picture() -> None:
    (piece,) = (
        piece for piece in plan_work([SPEC], BenchRequest(options=SMALLEST)).work if piece.labels["axis"] == "error"
    )
    record = piece.run(Never(), SilentProgress())
    assert record.verified, record.violations
    assert record.findings["x"] == [0.1, 1.0, 10.0]
    assert all(share > 0 for share in record.findings["guarded"])
    (figure,) = SPEC.figures([record])
    assert "<svg" in figure.svg

"""The study `forecast`: every axis, with and without the guard, and its plot."""

from types import SimpleNamespace

import pytest
from optim_studies import forecast
from optim_studies.forecast import SPEC

from optim.benchmarks.runner import plan_work
from optim.benchmarks.suite import BenchRequest
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


def test_the_load_is_of_half_as_many_and_twice_as_many_jobs_a_server(monkeypatch) -> None:
    def measured(options, x, today, known):
        return x, today.worker_servers.num_servers, today.num_jobs

    monkeypatch.setattr(forecast, "measured", measured)
    monkeypatch.setattr(forecast.PriceForecast, "fit", lambda *_, **__: None)
    options = forecast.ForecastStudyOptions(jobs=12, slots=6, servers=6)
    assert list(forecast.curve(options, "load", 0)) == [(1.0, 12, 12), (2.0, 6, 12), (4.0, 3, 12)]
    one = forecast.ForecastStudyOptions(jobs=12, slots=6, servers=1)
    assert [point[:2] for point in forecast.curve(one, "load", 0)] == [(6.0, 2), (12.0, 1), (12.0, 1)]


def test_the_axis_of_wrong_prices_has_both_curves_and_a_picture(monkeypatch) -> None:
    monkeypatch.setattr("optim.report.plots.as_svg", lambda *_: "<svg>")  # writing takes longest
    (piece,) = (
        piece for piece in plan_work([SPEC], BenchRequest(options=SMALLEST)).work if piece.labels["axis"] == "error"
    )
    record = piece.run(Never(), SilentProgress())
    assert record.verified, record.violations
    assert record.findings["x"] == [0.1, 1.0, 10.0]
    assert all(share > 0 for share in record.findings["guarded"])
    (figure,) = SPEC.figures([record])
    assert "<svg" in figure.svg


def test_a_day_on_which_the_rule_earns_nothing_is_told_as_nothing(monkeypatch) -> None:
    found = {"column-generation": SimpleNamespace(bound=8.0), "online": SimpleNamespace(objective=0.0)}
    monkeypatch.setattr(forecast, "solve", lambda today, solver, **_: found[solver])
    monkeypatch.setattr(forecast, "run_day", lambda *_: SimpleNamespace(objective=2.0))
    options = forecast.ForecastStudyOptions(**SMALLEST)
    point = forecast.measured(options, 3.0, forecast.draw(options, 1, 0)[0], None)
    assert (point.x, point.unguarded, point.guarded, point.paper) == (3.0, 0.25, None, 0.0)

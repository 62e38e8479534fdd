"""The study of forecast densities: scores on held-out data, for generated and recorded series."""

import numpy as np
import pytest
from optim_studies import densities
from optim_studies.densities import CONTINUATIONS, DensityOptions, moments_to_forecast

from optim.benchmarks.suite import SUITES, BenchRequest
from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.core.progress import SilentProgress
from optim.core.stopping import Never

TINY = {"containers": 12, "moments": 10, "paths": 8, "steps": 6}


def works(**request):
    return list(SUITES.get("densities").build(BenchRequest(**request)))


@pytest.mark.parametrize(
    "way", ["increments", "linear", *(pytest.param(way, marks=pytest.mark.prove) for way in CONTINUATIONS)]
)
def test_a_row_holds_the_mean_score_of_each_horizon(way):
    (work,) = works(solvers=(way,), options=TINY)
    record = work.run(Never(), SilentProgress())
    assert record.verified, record.error
    by_horizon = record.measures["by_horizon"]
    assert (len(by_horizon), record.parameters["moments"]) == (6, 10)
    assert record.findings["crps_1"] == by_horizon[0]
    assert record.findings["crps_4"] == by_horizon[3]
    assert record.findings["mean"] == pytest.approx(np.mean(by_horizon))
    assert np.mean(record.measures["by_resource"]) == pytest.approx(record.findings["mean"])
    assert by_horizon[0] > 0


def test_nothing_that_is_fitted_on_is_forecast(tmp_path):
    given = moments_to_forecast(DensityOptions(**TINY), 0)
    known = {row.tobytes() for row in np.round(given.training.values, 9)}
    assert not any(row.tobytes() in known for row in np.round(given.held_out.values[given.ends], 9))
    assert (given.held_out.place[given.ends] >= 7).all()
    for end, observed in zip(given.ends, given.observed, strict=True):
        assert np.array_equal(observed, given.held_out.values[end + 1 : end + 7])
        assert given.held_out.segment[end] == given.held_out.segment[end + 6]
    path = tmp_path / "one.csv"
    path.write_text("container,time_s,cpu\n" + "".join(f"a,{15 * k},{k % 7}\n" for k in range(60)))
    single = moments_to_forecast(DensityOptions(**TINY | {"series": str(path)}), 0)
    assert (len(single.training.values), len(single.held_out.values)) == (30, 30)
    with pytest.raises(InvalidProblemError, match="no held-out series has 48 samples"):
        moments_to_forecast(DensityOptions(**TINY | {"series": str(path), "steps": 40}), 0)


@pytest.mark.parametrize("request_", [{"solvers": ("vpa",)}, {"options": {"paths": 1}}, {"options": {"steps": 0}}])
def test_refuses_other_ways_and_options(request_):
    with pytest.raises(InvalidOptionError):
        works(**request_)


def test_one_score_that_is_not_finite_is_a_problem(monkeypatch):
    (work,) = works(solvers=("increments",), options=TINY)
    monkeypatch.setattr(densities, "density_scores", lambda *_: np.array([[1.0, np.nan]] * 6))
    record = work.run(Never(), SilentProgress())
    assert not record.verified
    assert record.violations == ["a score isn't finite"]

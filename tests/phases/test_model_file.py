"""Damaged files of models: for every array or header, one line reports it, and no part of the file is used."""

import json

import numpy as np
import pytest

from optim.core.archives import Field, check_fields
from optim.core.errors import InvalidProblemError
from optim.phases import PhaseModel
from optim.workloads.containers import ContainerOptions, generate_containers

KINDS = {
    "window-statistics": {},
    "whitened": {"encoder": "window-statistics", "encoder_options": {"spread": "whitened"}},
    "raw-window": {"has_logarithm": False},
    "crbm": {"encoder_options": {"num_epochs": 2}},
    "pooled crbm": {"encoder": "crbm", "encoder_options": {"num_epochs": 2, "spread": "none"}},
    "paper's crbm": {"encoder": "crbm", "encoder_options": {"num_epochs": 2, "pooling": 1, "output": "probability"}},
    "hmm": {"encoder_options": {"num_restarts": 2}},
    "levels": {"encoder": "hmm", "encoder_options": {"num_restarts": 2, "is_autoregressive": False, "num_states": 3}},
}
QUICK = ("window-statistics", "hmm")
NEVER_NEGATIVE = {
    *("scaling.deviation", "linear.deviation", "weights", "runs.phase", "runs.dwell", "runs.offsets"),
    *(
        f"statistics.{name}"
        for name in ("count", "mean", "deviation", "within", "quantiles", "rising", "window_deviation")
    ),
}


@pytest.fixture(scope="module")
def series():
    return generate_containers(ContainerOptions(num_containers=10), seed=2)


@pytest.fixture(scope="module")
def saved(series, tmp_path_factory):
    """The arrays of a model's file by its type, fitted at the first request."""
    folder, known = tmp_path_factory.mktemp("models"), {}

    def arrays(kind):
        if kind not in known:
            made = PhaseModel(**{"encoder": kind, "num_phases": 3, **KINDS[kind]}).fit(series)
            made.save(folder / "model.npz")
            with np.load(folder / "model.npz") as archive:
                known[kind] = dict(archive)
        return dict(known[kind])

    return arrays


def refusal(path, arrays):
    """Return the error line for a file, "" if it is read."""
    np.savez(path, **arrays)
    said = ""
    try:
        PhaseModel.load(path)
    except InvalidProblemError as error:
        said = str(error)
    assert "\n" not in said
    return said


kinds = pytest.mark.parametrize(
    "kind", [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.prove) for kind in KINDS]
)


@pytest.mark.prove
@kinds
def test_whole_files_of_all_encoders_are_read(kind, saved, tmp_path):
    assert refusal(tmp_path / "model.npz", saved(kind)) == ""


def test_a_model_of_large_numbers_is_read(tmp_path, series):
    """Bytes instead of GiB."""
    from dataclasses import replace

    large = replace(series, values=series.values * 1e12)
    PhaseModel(encoder="window-statistics", num_phases=3, has_logarithm=False).fit(large).save(tmp_path / "model.npz")
    assert PhaseModel.load(tmp_path / "model.npz").num_phases_ == 3


@kinds
def test_numbers_that_no_model_has_are_refused_in_any_array(kind, saved, tmp_path):
    whole = saved(kind)
    for name, array in whole.items():
        if name == "header":
            continue
        for value in (np.nan, np.inf, -np.inf, 1e300, -1e300, -1.0):
            is_allowed = value == -1.0 and name not in NEVER_NEGATIVE
            if array.dtype.kind != "f" and not abs(value) < 1e18:
                continue
            if is_allowed or (name == "scaling.offset" and np.isnan(value)):
                continue
            spoilt = array.copy()
            spoilt.flat[spoilt.size // 2] = value
            said = refusal(tmp_path / "model.npz", {**whole, name: spoilt})
            assert said, (name, value)
            assert "not a phase model" in said


@kinds
def test_other_shapes_and_kinds_are_refused_in_any_array(kind, saved, tmp_path):
    whole = saved(kind)
    for name, array in whole.items():
        if name == "header":
            continue
        others = {
            "longer": np.concatenate([array, array[:1]]),
            "deeper": array[None],
            "flat": array.reshape(-1) if array.ndim > 1 else array.reshape(-1, 1),
            "empty": array[:0],
            "texts": np.full(array.shape, "x"),
            "complex": array.astype(complex),
            "one number": np.array(array.flat[0]),
        }
        for how, other in others.items():
            said = refusal(tmp_path / "model.npz", {**whole, name: other})
            assert said, (name, how)
    assert "'centres' is missing" in refusal(
        tmp_path / "model.npz", {name: array for name, array in whole.items() if name != "centres"}
    )
    assert "'more' is not a field of this format" in refusal(tmp_path / "model.npz", {**whole, "more": np.zeros(1)})


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda h: h["parameters"].update(interval_s=float("nan")), "interval_s"),
        (lambda h: h["parameters"].update(interval_s=-15.0), "interval_s"),
        (lambda h: h["parameters"].update(max_gap_s=1.0), "interval_s"),
        (lambda h: h["parameters"].update(smoothing=0), "smoothing"),
        (lambda h: h["parameters"].update(smoothing=1.5), "smoothing"),
        (lambda h: h["parameters"].update(anomaly_rate=2.0), "anomaly_rate"),
        (lambda h: h["parameters"].update(seed=-1), "seed"),
        (lambda h: h["parameters"].update(encoder="crbm"), "calibrations|is missing|belongs"),
        (lambda h: h.update(names=["only one"]), "shape"),
        (lambda h: h.update(names=[1, 2, 3]), "names"),
        (lambda h: h.update(order=0), "order"),
        (lambda h: h.update(order="2"), "order"),
        (lambda h: h.update(order_likelihoods=[float("inf")]), "order_likelihoods"),
        (lambda h: h.update(calibrations={}), "calibrations"),
        (lambda h: h["calibrations"].update(temper=h["calibrations"]["forecast-error"]), "calibrations"),
        (lambda h: h["calibrations"]["forecast-error"].update(threshold=float("nan")), "forecast-error"),
        (lambda h: h["calibrations"]["forecast-error"].update(deviation=-1.0), "forecast-error"),
        (lambda h: h["calibrations"]["forecast-error"].update(rate=2.0), "forecast-error"),
        (lambda h: h["calibrations"]["forecast-error"].update(num_containers=0), "forecast-error"),
        (lambda h: h["resources"].append(dict(h["resources"][0])), "resources"),
        (lambda h: h["resources"][0].update(name=""), "resources"),
        (lambda h: h["resources"][0].update(is_level="yes"), "resources"),
        (lambda h: h.update(resources=[]), "resources"),
    ],
)
def test_headers_that_no_model_has_are_refused(change, cause, saved, tmp_path):
    whole = saved("window-statistics")
    header = json.loads(whole["header"].tobytes())
    change(header)
    spoilt = np.frombuffer(json.dumps(header).encode(), np.uint8)
    said = refusal(tmp_path / "model.npz", {**whole, "header": spoilt})
    assert said
    import re

    assert re.search(cause, said), said


def test_parts_that_do_not_fit_each_other_are_refused(saved, tmp_path):
    whole = saved("hmm")
    changes = [
        ("runs.offsets", lambda a: a.__setitem__(0, 1)),
        ("runs.offsets", lambda a: a.__setitem__(-1, a[-1] + 1)),
        ("runs.offsets", lambda a: a.__setitem__(1, a[-1] + 1)),
        ("runs.phase", lambda a: a.__setitem__(0, 3)),
        ("statistics.quantiles", lambda a: a.__setitem__((0, 0), a[0, 0, ::-1].copy())),
        ("encoder.log_initial", lambda a: a.__isub__(1.0)),
        ("encoder.log_transition", lambda a: a.__setitem__(0, -5.0)),
        ("encoder.covariance", lambda a: a.__setitem__(0, -a[0])),
    ]
    for name, change in changes:
        spoilt = whole[name].copy()
        change(spoilt)
        assert name.rpartition(".")[2] in refusal(tmp_path / "model.npz", {**whole, name: spoilt})


def test_fields_are_what_they_say():
    fields = {
        "a": Field(shape=("n", 2), least=0.0),
        "b": Field(shape=("n",), is_whole=True),
        "c": Field(shape=(), may_lack=True),
    }
    good = {"a": np.ones((3, 2), np.float32), "b": np.arange(3), "c": np.array(np.nan)}
    check_fields(good, fields)
    check_fields(good, fields, n=3)
    wrong = {
        "shape": {"b": np.arange(4)},
        "from 0 to": {"a": -np.ones((3, 2))},
        "whole numbers": {"b": np.ones(3)},
        "must hold numbers": {"a": np.ones((3, 2), int)},
        "to 1e": {"c": np.array(1e300)},
    }
    for cause, change in wrong.items():
        with pytest.raises(ValueError, match=cause):
            check_fields({**good, **change}, fields)
    with pytest.raises(ValueError, match="shape"):
        check_fields(good, fields, n=4)


def test_a_command_ends_with_a_line(saved, tmp_path):
    from typer.testing import CliRunner

    from optim.cli.main import app

    whole = saved("window-statistics")
    np.savez(tmp_path / "model.npz", **{**whole, "centres": whole["centres"] * np.nan})
    result = CliRunner().invoke(app, ["phases", "graph", str(tmp_path / "model.npz")])
    assert result.exit_code == 2
    assert "'centres' must be from -1e+100 to 1e+100, got nan" in result.stderr

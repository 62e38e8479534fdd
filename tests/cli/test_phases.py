"""`optim phases`: models from generated and user-supplied series, JSON lines, the report, one line for bad input."""

import json

import pytest
from typer.testing import CliRunner

from optim.cli.main import app

RUNNER = CliRunner()


def run(*words):
    return RUNNER.invoke(app, ["phases", *map(str, words)])


def lines(result):
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model on disk, and the output of its fit."""
    path = tmp_path_factory.mktemp("phases") / "model.npz"
    result = run(
        *("fit", "--generate", 20, "--seed", 0, "--encoder", "window-statistics", "--phases", 4),
        *("--out", path, "--format", "json"),
    )
    return path, lines(result)


def test_fit_prints_a_row_a_phase_and_resource_and_a_summary(model):
    *rows, summary = model[1]
    assert [(row["phase"], row["resource"]) for row in rows[:3]] == [(0, "cpu"), (0, "memory"), (1, "cpu")]
    assert sum(row["share"] for row in rows) == pytest.approx(2.0)
    assert summary["phases"] == 4
    assert 0 < summary["ari"] < 1


def test_encode_labels_own_series(model, tmp_path):
    path = tmp_path / "own.csv"
    rows = [f"{name},{15 * k},{0.5 + 0.01 * k},{1.0}" for name in "ab" for k in range(20)]
    path.write_text("container,time_s,cpu,memory\n" + "\n".join(rows) + "\n")
    found = lines(run("encode", model[0], "--input", path, "--format", "json"))
    assert [row["container"] for row in found] == ["a", "b"]
    assert found[0]["phase"][:3] == [-1, -1, -1]
    assert min(found[0]["phase"][3:]) >= 0
    assert found[0]["phase"] == found[1]["phase"]
    assert len(found[0]["names"]) == 4


def test_graph_prints_an_edge_a_row(model):
    found = lines(run("graph", model[0], "--order", 1, "--format", "json"))
    starts = [row for row in found if row["from"] == "start"]
    assert sum(row["probability"] for row in starts) == pytest.approx(1.0)
    assert sum(row["count"] for row in starts) == 20


def test_report_is_one_page_with_pictures(model, tmp_path, monkeypatch):
    monkeypatch.setattr("optim.report.plots.as_svg", lambda *_: "<svg></svg>")  # writing takes longest
    out = tmp_path / "page.html"
    assert run("report", model[0], "--generate", 3, "--out", out).exit_code == 0
    page = out.read_text()
    assert page.count("<svg") == 4
    assert "http" not in page.replace("http-equiv", "")
    headings = (
        "Series by phase",
        "Transitions between phases",
        "Tree and prototypes",
        "Prototypes",
        "Forecasts",
        "Watching",
    )
    for heading in headings:
        assert heading in page
    assert "with repetitions written out" in page


def test_watching_tells_of_each_container_and_writes_an_updated_model(model, tmp_path):
    out = tmp_path / "new" / "model.npz"
    usual = run("watch", model[0], "--generate", 6, "--seed", 2, "--format", "json")
    assert "no model update is due" in usual.stderr
    rows = lines(usual)
    assert len(rows) == 6
    assert all(row["anomalies"] <= row["samples"] for row in rows)
    words = ("--generate", 12, "--generator-option", "noise=6", "--seed", 2)
    result = run("watch", model[0], *words, "--update", out, "--format", "json")
    odd = lines(result)
    assert odd[-1]["is_update_due"]
    first = next(row["container"] for row in odd if row["is_update_due"])
    assert f"a model update is due since container {first}\n" in result.stderr
    again = run("watch", out, *words)
    assert again.exit_code == 0
    assert "no model update is due" in again.stderr
    starts = [row for row in lines(run("graph", out, "--order", 1, "--format", "json")) if row["from"] == "start"]
    assert sum(row["count"] for row in starts) == 32


def test_forecasts_are_distributions_and_quantiles_by_series(model):
    found = lines(run("forecast", model[0], "--generate", 3, "--level", 0.9, "--format", "json"))
    assert len(found) == 3
    for row in found:
        for horizon in (1, 4, 20, 40):
            assert sum(row[f"in_{horizon}"].values()) == pytest.approx(1.0)
        assert row["in_1"][row["phase"]] == max(row["in_1"].values())
        assert 0 < row["cpu_p90"] < 10
    assert run("forecast", model[0], "--generate", 3, "--steps", 4).exit_code == 0


def test_methods_are_scored_by_horizon(model):
    found = lines(run("forecast", model[0], "--generate", 3, "--seed", 3, "--score", "--format", "json"))
    loss = {(row["method"], row["horizon"]): row["log_loss"] for row in found}
    brier = {(row["method"], row["horizon"]): row["brier"] for row in found}
    assert len(loss) == 16
    # A forecast without uncertainty eventually excludes a value that occurs; that loss is not clipped.
    assert loss["same", 40] is None
    assert brier["markov", 40] < brier["same", 40]
    assert loss["semi-markov", 1] < loss["semi-markov", 40]


@pytest.mark.parametrize(
    "encoders", ["raw-window", pytest.param("window-statistics,raw-window", marks=pytest.mark.prove)]
)
def test_score_prints_an_interval_an_encoder(encoders):
    words = ("--generate", 8, "--seeds", "0,1", "--encoder", encoders, "--phases", 4)
    found = lines(run("score", *words, "--format", "json"))
    assert [row["encoder"] for row in found] == encoders.split(",")
    for row in found:
        assert row["ari_low"] <= row["ari"] <= row["ari_high"]
        assert row["seeds"] == [0, 1]
        assert set(row["f1"]) == {"warmup", "load", "burst", "stable", "growth"}


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (("fit",), "either --input FILE or --generate N"),
        (("fit", "--generate", 5, "--encoder", "pca"), "unknown encoder"),
        (("fit", "--generate", 5, "--option", "speed=1"), "unknown option 'speed'"),
        (("fit", "--generate", 5, "--generator-option", "noise=-1"), "noise"),
        (("fit", "--input", "none.csv"), "none.csv"),
        (("encode", "none.npz", "--generate", 2), "none.npz"),
        (("score", "--option", "num_delays=3"), "ENCODER.NAME=VALUE"),
        (("score", "--encoder", "pca"), "unknown encoder"),
        (("watch", "none.npz", "--generate", 2), "none.npz"),
        (("score", "--generate", 5, "--confusion"), "--confusion requires --format json"),
    ],
)
def test_wrong_use_is_one_line_and_code_two(words, cause):
    refused(words, cause)


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (("watch", "--generate", 2, "--kind", "free-energy"), "it has: forecast-error"),
        (("watch",), "either --input FILE or --generate N"),
        (("forecast", "--generate", 2, "--method", "magic"), "method"),
        (("forecast", "--generate", 2, "--level", 2), "level must be in [0, 1]"),
        (("forecast", "--generate", 2, "--level", 0.9, "--score"), "--level and --score exclude each other"),
        (("report", "--generator-option", "noise=2"), "either --input FILE or --generate N"),
        (("encode", "--input", "OTHER"), "no resource 'memory'; choose from their resources: cpu"),
        (("watch", "--input", "OTHER"), "no resource 'memory'"),
        (("forecast", "--score", "--input", "SHORT"), "no series is longer"),
    ],
)
def test_what_a_model_cannot_do_is_one_line_and_code_two(model, tmp_path, words, cause):
    files = {"OTHER": "container,time_s,cpu\n" + "".join(f"a,{15 * k},1\n" for k in range(9))}
    files["SHORT"] = "container,time_s,cpu,memory\n" + "".join(f"a,{15 * k},1,{k}\n" for k in range(9))
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    refused((words[0], model[0], *(tmp_path / word if word in files else word for word in words[1:])), cause)


def refused(words, cause):
    result = run(*words)
    assert result.exit_code == 2
    assert cause in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1

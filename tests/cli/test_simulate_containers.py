"""`optim simulate containers`: rows per policy and resource, and one line for bad input."""

import json
import re

import pytest
from typer.testing import CliRunner

from optim.cli.main import app

RUNNER = CliRunner()
FEW = ["--generate", "12", "--test-share", "0.4", "--encoder", "truth"]
SMALL = [*FEW, "--resamples", "20"]


def run(*words):
    return RUNNER.invoke(app, ["simulate", "containers", *map(str, words)])


def test_rows_a_policy_and_resource_as_json():
    result = run("--policy", "phase-rule", "--policy", "vpa,prev-step-rules", "--seed", 0, "--format", "json", *SMALL)
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(row["policy"], row["resource"]) for row in rows] == [
        (policy, resource)
        for policy in ("phase-rule", "vpa", "prev-step-rules")
        for resource in ("cpu", "memory", "all")
    ]
    wanted = {
        "multiplier", "risk", "risk_low", "per_day", "per_day_high", "restart_h_per_day", "under_time", "total_allocation", "reduction", "reduction_low", "reduction_high", "kills", "changes",
    }  # fmt: skip
    assert all(wanted <= set(row) for row in rows)
    assert [row["reduction"] for row in rows[6:]] == [0.0, 0.0, 0.0]


def test_the_papers_measure_and_what_a_restart_costs_can_be_chosen():
    own = ("--policy", "prev-step-max", "--format", "json", *SMALL)
    rows = [[json.loads(line) for line in run(*own, *more).stdout.splitlines()] for more in (
        (), ("--require", "measure=under-time", "--require", "under_time=0.4"), ("--require", "kills=0.6"),
        ("--require", "kills=0.6", "--require", "startup_s=900"),
    )]  # fmt: skip
    assert rows[1][1]["risk"] == rows[1][1]["under_time"]
    assert rows[1][0]["multiplier"] < rows[0][0]["multiplier"]
    assert rows[2][1]["multiplier"] == rows[3][1]["multiplier"] < rows[0][1]["multiplier"]
    assert rows[3][1]["charge_over_demand"] > rows[2][1]["charge_over_demand"] > 0


@pytest.mark.parametrize(
    ("required", "told"),
    [
        (
            ("kills=0.2",),
            "guarantees only 20 %: give at least 19 for 5 % of samples throttled, or allow more",
        ),
        (
            ("kills=0.03", "throttled=0.2"),
            "guarantees only 20 %: give at least 33 for 3 % of cycles killed, or",
        ),
        (("kills=0.1",), "give at least 9 for 10 % of cycles killed and at least 19 for 5 % of"),
        (("kills=0.2", "throttled=0.2"), None),
        (("measure=under-time",), None),
    ],
)
def test_too_few_containers_to_tune_on_are_told_beside_the_figures_as_well(required, told):
    result = run("--policy", "static", *(word for each in required for word in ("--require", each)), *SMALL)
    assert result.exit_code == 0, result.output
    if told is None:
        assert "guarantee" not in result.output
        return
    assert "warning: tuning on 4 containers" in result.stderr
    assert told in result.stderr
    assert told in " ".join(result.stdout.split())
    words = [word for each in required for word in ("--require", each)]
    rows = [
        json.loads(line) for line in run("--policy", "static", *words, *SMALL, "--format", "json").stdout.splitlines()
    ]
    asked = {"cpu": 0.05, "memory": 0.01} | {
        {"kills": "memory", "throttled": "cpu"}[name]: float(value)
        for name, value in (each.split("=") for each in required)
    }
    for row in rows[:2]:
        assert row["required"] == asked[row["resource"]]
        assert (row["guaranteed"], row["num_tuned"]) == (max(asked[row["resource"]], 0.2), 4)


def test_containers_that_nothing_is_drawn_from_guarantee_nothing(tmp_path):
    """Of those to tune on some live for a cycle only: they are no draws."""
    path = tmp_path / "series.csv"
    rows = [f"{c},{15 * t},{1 + t % 3},{2 + c % 3}" for c in range(60) for t in range(30 if c % 3 else 90)]
    path.write_text("container,time_s,cpu,memory\n" + "\n".join(rows) + "\n")
    result = run("--input", path, "--policy", "static", "--resamples", 2)
    (number,) = re.findall(r"tuning on (\d+) containers guarantees", result.stderr)
    (tuned,) = re.findall(r"tuned on (\d+)", result.stderr)
    assert 0 < int(number) < int(tuned) / 2


def test_one_long_series_is_split_by_time(tmp_path):
    path = tmp_path / "series.csv"
    path.write_text(
        "container,time_s,cpu,memory\n" + "\n".join(f"a,{15 * t},{1 + t % 3},2" for t in range(1200)) + "\n"
    )
    result = run("--input", path, "--by-time", "--policy", "clairvoyant", "--resamples", 2, "--format", "json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout.splitlines()[1])["reduction"] == 0.0
    assert json.loads(result.stdout.splitlines()[1])["guaranteed"] is None
    assert "no guarantee: the halves of a series" in result.stderr
    assert "guarantees" not in result.stderr


def test_the_same_seed_prints_the_same():
    words = ("--policy", "phase-price", "--format", "json", "--seed", 3, *SMALL)
    assert run(*words).stdout == run(*words).stdout


@pytest.mark.parametrize(
    ("encoder", "words"),
    [
        ("raw-window", ("--encoder", "raw-window")),
        pytest.param("hmm", (), marks=pytest.mark.prove),  # the default
    ],
)
def test_phases_of_a_fitted_model_and_a_file_of_ones_own(tmp_path, encoder, words):
    path = tmp_path / "series.csv"
    rows = [f"{c},{15 * t},{1 + c % 2 + t % 3},{1 + t / 40}" for c in range(6) for t in range(90)]
    path.write_text("container,time_s,cpu,memory\n" + "\n".join(rows) + "\n")
    settings = ("--policy", "phase-price", "--num-phases", 2, "--resamples", 5, "--test-share", 0.5, "--format", "json")
    result = run("--input", path, *settings, *words)  # a table may truncate the name
    assert result.exit_code == 0, result.output
    assert "phase-price" in result.stdout
    assert f"2 phases by {encoder}" in result.stderr


def test_multipliers_are_taken_as_they_are():
    result = run("--policy", "prev-step-max", "--multipliers", "0,1,1.5", "--format", "json", *FEW)
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(row["multiplier"], row["resource"]) for row in rows] == [
        (multiplier, resource) for multiplier in (0, 1, 1.5) for resource in ("cpu", "memory")
    ]
    cpu = rows[::2]
    assert cpu[0]["risk"] > cpu[1]["risk"] > cpu[2]["risk"]
    assert rows[1]["kills"] > rows[3]["kills"] > rows[5]["kills"]


def test_the_report_draws_allocation_against_risk(tmp_path):
    out = tmp_path / "new" / "page.html"
    result = run("--policy", "phase-price,prev-step-rules,clairvoyant", "--report", out, *SMALL)
    assert result.exit_code == 0, result.output
    assert f"report written to {out}" in " ".join(result.stderr.split())
    assert "of cycles killed" in " ".join(result.stdout.split())  # the default target of the tuning
    page = out.read_text()
    assert page.count("<svg") == 1
    assert "http" not in page
    for text in ("Allocation against risk", "phase-price", "clairvoyant", "risk [%]"):
        assert text in page


def test_answers_of_prometheus_are_read(tmp_path):
    def answer(level):
        rows = [
            {"metric": {"pod": f"p{c}"}, "values": [[15 * t, str(level + c + t % 4)] for t in range(90)]}
            for c in range(4)
        ]
        return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": rows}})

    for name, level in (("cpu", 1), ("memory", 5)):
        (tmp_path / f"{name}.json").write_text(answer(level))
    given = [word for name in ("cpu", "memory") for word in ("--input", f"{name}={tmp_path / name}.json")]
    given += ["--unit", "cpu=cores", "--unit", "memory=GiB"]
    result = run(*given, "--policy", "prev-step-max", "--resamples", 2, "--test-share", 0.5, "--format", "json")
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["resource"] for row in rows] == ["cpu", "memory", "all"]
    # Demand repeats in each cycle, so the last cycle's demand is exact: the second half is covered.
    assert rows[1]["risk"] == 0.0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--policy", "best"), "unknown policy 'best'; "),
        (("--require", "under_time=1.5", "--policy", "static", *SMALL), "under_time must be in (0, 1), got 1.5"),
        (("--require", "kills=0", "--policy", "static", *SMALL), "kills must be in (0, 1), got 0"),
        (("--require", "checkpoint_s=0", "--policy", "static", *SMALL), "checkpoint_s must be positive"),
        (("--require", "measure=pain"), "pain"),
        (("--encoder", "none"), "encoder must be one of"),
        (("--test-share", "0"), "test_share must be in (0, 1), got 0.0"),
        (("--input", "absent.csv"), "absent.csv"),
        (("--input", "a.csv", "--generate", "4"), "--generate and --input exclude each other"),
        (("--input", "a.csv", "--generator-option", "noise=2"), "--generator-option requires --generate"),
        (("--input", "cpu=a.json", "--input", "cpu=b.json"), "given twice"),
        (("--generator-option", "noise=-1"), "noise"),
        (("--multipliers", "1,many"), "--multipliers must be numbers, got 'many'"),
        (("--multipliers", "-1", "--policy", "static", *SMALL), "multiplier must be at least 0"),
        (("--multipliers", "1", "--report", "a.html"), "omit --multipliers"),
        (("--multipliers", "1", "--resamples", "20"), "omit --resamples, --engine"),
        (("--multipliers", "1", "--processes", "2"), "--multipliers runs policies in this process"),
        (("--multipliers", "1", "--engine", "dask"), "--multipliers runs policies in this process"),
        (("--multipliers", "1", "--require", "kills=0.2"), "kills applies only to tuned policies"),
        (("--by-time", "--test-share", "0.4"), "omit --test-share"),
        (("--cycle-minutes", "nan", "--policy", "static", *SMALL), "cycle_s must be positive"),
        (("--cycle-minutes", "inf", "--policy", "static", *SMALL), "cycle_s must be positive"),
        (("--cycle-minutes", "0", "--policy", "static", *SMALL), "cycle_s must be positive"),
    ],
)
def test_wrong_use_is_one_line_and_two(words, message):
    result = run(*words)
    assert result.exit_code == 2
    assert message in result.stderr
    # Wrong use is reported before containers are drawn; messages of the containers come before the error.
    assert len(result.stderr.strip().splitlines()) == 1 or "absent.csv" in words


def test_the_table_has_one_row_per_policy_and_names_what_it_leaves_out():
    names = "autopilot,holt,knn,quantile-95,running-max,static,prev-step-max,current-step-max,level-price"
    result = run("--policy", f"{names},autopilot-ml,vpa,prev-step-rules,clairvoyant", *SMALL)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert len(result.output.splitlines()) <= 25
    shown = [line.split()[0] for line in lines if line.endswith((" met    ", " met")) or "missed" in line]
    assert shown[0] == "clairvoyant"
    assert {"vpa", "prev-step-rules"} <= set(shown)
    assert len(shown) == 11
    hidden = set(names.split(",")) | {"autopilot-ml"}
    assert all(name in lines[-1] for name in hidden - set(shown))
    assert "oracles that see future demand: clairvoyant" in result.stdout
    assert result.stdout.splitlines()[-1].endswith("--details; all values: --format json")

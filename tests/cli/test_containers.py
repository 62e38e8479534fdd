"""`optim containers recommend`: files in, requests and limits out."""

import csv
import gzip
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from optim.cli import containers
from optim.cli.main import app
from tests.support.public_traces import TRACE_DIR

RUNNER = CliRunner()


def run(*words):
    return RUNNER.invoke(app, ["containers", "recommend", *map(str, words)])


def test_metrics_in_json_out(tmp_path):
    path, out = tmp_path / "series.csv", tmp_path / "new" / "found.json"
    rows = [f"c{c},{15 * t},{1 + c % 2 + t % 3},{1 + t / 40}" for c in range(8) for t in range(120)]
    path.write_text("container,time_s,cpu,memory\n" + "\n".join(rows) + "\n")
    result = run("--input", path, "--cycle-minutes", 10, "--out", out)
    assert result.exit_code == 0, result.output
    assert "tuned on 4 containers" in result.stderr
    assert "8 containers written" in result.stderr
    found = json.loads(out.read_text())["containers"]
    assert [own["container"] for own in found] == [f"c{c}" for c in range(8)]
    # Memory grows by a GiB in ten minutes, of 3.975 now, and is to hold for all of them.
    assert all(4.975 <= own["amounts"]["memory"]["request"] < 8 for own in found)


@pytest.mark.parametrize("block", [1, 3, 4, 11])
def test_no_container_is_left_out_however_they_are_parted(block, monkeypatch):
    whole = run("--generate", 4, "--cycle-minutes", 10)
    monkeypatch.setattr(containers, "BLOCK", block)
    parted = run("--generate", 4, "--cycle-minutes", 10)
    assert parted.exit_code == 0, parted.output
    assert len(json.loads(parted.stdout)["containers"]) == 4
    assert parted.stdout == whole.stdout


def test_generated_containers_as_patches():
    result = run("--generate", 12, "--cycle-minutes", 10, "--format", "yaml", "--require", "kills=0.2")
    assert result.exit_code == 0, result.output
    assert result.stdout.count("kind: Pod") == 12
    assert "memory: " in result.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give either --input FILE or --generate N"),
        (("--generate", 1), "at least two containers of different pods"),
        (("--generate", 4, "--cycle-minutes", 0), "cycle_s must be positive"),
        (("--generate", 4, "--require", "kills=2"), "kills must be in"),
        (("--generate", 4, "--require", "measure=under-time"), "kills and throttled, not measure"),
        (("--generate", 4, "--require", "startup_s=9"), "kills and throttled, not startup_s"),
        (("--generate", 4, "--cycle-minutes", 0.1), "cycle_s must be at least the interval"),
        (("--input", "absent.csv"), "absent.csv"),
    ],
)
def test_wrong_use_is_one_line_and_two(words, message):
    result = run(*words)
    assert result.exit_code == 2
    assert message in result.stderr


REPORTS = TRACE_DIR / "reports"
TOO_FEW = "warning: 1 % of cycles killed cannot be guaranteed: that needs 99 calibration containers, about 198 containers in all, got"


def of_report(path):
    if not path.is_file():
        pytest.skip(f"{path.name} is not there; set OPTIM_TRACE_DIR to the folder that has reports/")
    return path


@pytest.mark.parametrize(
    ("case", "peak"), [("05-prom-restarted-pod", 1.2), ("06-prom-dup-scrape", 1.2), ("10-prom-cgroup-slices", 1.1)]
)
def test_reported_limits_are_not_below_what_containers_reach_every_hour(tmp_path, case, peak):
    given = []
    for name, resource in (("cpu", "cpu"), ("mem", "memory")):
        if case.startswith("10") and name == "cpu":
            continue
        packed = of_report(REPORTS / case / f"{name}.json.gz")
        (tmp_path / f"{name}.json").write_bytes(gzip.decompress(packed.read_bytes()))
        given += ["--input", f"{resource}={tmp_path / name}.json"]
    result = run(*given, "--interval", 60, "--require", "kills=0.01")
    assert result.exit_code == 0, result.output
    assert f"{TOO_FEW} 2 for calibration" in result.stderr
    document = json.loads(result.stdout)
    assert any("needs 99 calibration containers" in told for told in document["warnings"])
    assert len(document["containers"]) == 4
    for own in document["containers"]:
        memory = own["amounts"]["memory"]
        assert memory["limit"] >= peak - 1e-3
        assert memory["limit"] < 1.5 * peak
        assert memory["saving"] <= 0
        assert memory["expected_kills_per_day"] <= 0.24 * (1 + 1e-9)
        if "cpu" in own["amounts"]:
            assert own["amounts"]["cpu"]["request"] == pytest.approx(2.0)
    patches = run(*given, "--interval", 60, "--format", "yaml").stdout
    assert f"# {TOO_FEW}" in patches
    assert patches.count("# memory: forecast: ") == 4


@pytest.mark.parametrize("hours", [4, 6, 8])
def test_reported_containers_hold_the_next_hour_by_what_they_are_given(tmp_path, hours):
    path = of_report(REPORTS / "18-vpa-oom" / "metrics.csv")
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["container"] != "oom"]
    begin = min(float(row["time_s"]) for row in rows)
    peak, after, lines = {}, {}, ["container,time_s,cpu,memory"]
    for row in rows:
        time, name, memory = float(row["time_s"]) - begin, row["container"], float(row["memory"])
        if time < 3600 * hours:
            lines.append(f"{name},{time},{row['cpu']},{row['memory']}")
            peak[name] = max(peak.get(name, 0.0), memory)
        elif time < 3600 * (hours + 1):
            after[name] = max(after.get(name, 0.0), memory)
    known = tmp_path / "known.csv"
    known.write_text("\n".join(lines) + "\n")
    result = run("--input", known, "--interval", 60, "--require", "kills=0.01")
    assert result.exit_code == 0, result.output
    assert f"{TOO_FEW} 10 for calibration" in result.stderr
    amounts = {own["container"]: own["amounts"]["memory"] for own in json.loads(result.stdout)["containers"]}
    assert len(amounts) == 20
    assert all(amounts[name]["limit"] >= peak[name] for name in peak)
    assert sum(amounts[name]["limit"] < after[name] for name in after) <= 1  # of 20; before, up to 4
    assert np.mean([own["expected_kills_per_day"] for own in amounts.values()]) <= 0.24


def idle_table(path):
    rows = ["time_s,gpu,utilisation,namespace,user,job"]
    rows += [f"{600 * k},g{g},{0 if k > 1 else 90},ml,ann,long" for g in range(2) for k in range(12)]
    rows += [f"{7200 + 600 * k},g0,80,cv,bob,short" for k in range(3)]
    rows += [f"{600 * k},g9,0,,," for k in range(6)]
    path.write_text("\n".join(rows) + "\n")
    return path


def idle(*words):
    return RUNNER.invoke(app, ["containers", "idle", *map(str, words)])


def test_idle_gpus_by_user_namespace_and_job(tmp_path):
    result = idle("--input", idle_table(tmp_path / "use.csv"), "--below", "5,100", "--format", "json")
    assert result.exit_code == 0, result.output
    total, *rows = map(json.loads, result.stdout.splitlines())
    assert total["total"]["held_h"] == pytest.approx(4.5)
    assert total["free_gpu_h"] == pytest.approx(1.0)
    by_user = {row["name"]: row for row in rows if row.get("by") == "user"}
    assert by_user["ann"]["idle_h"] == pytest.approx([20 * 600 / 3600, 4.0])
    assert by_user["bob"]["idle_h"] == pytest.approx([0.0, 0.5])
    assert [row["name"] for row in rows if row.get("by") == "job"] == ["ml/long", "cv/short"]
    freed = {row["after_min"]: row["freed_gpu_h"] for row in rows if "after_min" in row}
    assert freed == {30.0: pytest.approx(2 * (100 - 30) / 60), 60.0: pytest.approx(2 * 40 / 60), 240.0: 0.0}


def test_queue_is_simulated_without_idle_gpus(tmp_path):
    path, jobs = idle_table(tmp_path / "use.csv"), tmp_path / "jobs.csv"
    jobs.write_text("id,submit,gpus,duration\nlong,0,2,7200\nshort,60,1,1800\n")
    result = idle("--input", path, "--gpus", "1x2", "--trace", jobs, "--after", 30, "--format", "json")
    assert result.exit_code == 0, result.output
    assert "2 of the 2 jobs in the trace have the name of a job in the series (2 jobs)" in result.stderr
    row = json.loads(result.stdout.splitlines()[-1])
    assert row["wait_others_held_h"] == pytest.approx((7200 - 60) / 3600)
    assert row["wait_others_h"] == pytest.approx((1200 + 1800 - 60) / 3600)
    table = idle("--input", path, "--gpus", "1x2")
    assert table.exit_code == 0, table.output
    assert "unallocated: 1.0 GPU-hours" in table.stdout
    assert "submitted when they first held a GPU" in table.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--trace", "jobs.csv"), "--trace requires --gpus"),
        (("--below", "none"), "--below must be numbers"),
        (("--below", "0"), "below must be in"),
        (("--max-gap", "0"), "max_gap_s must be in"),
        (("--by", "colour"), "unknown column of --by"),
        (("--gpus", "1x1"), "needs 2 GPUs"),
    ],
)
def test_wrong_use_of_idle_is_one_line_and_two(tmp_path, words, message):
    result = idle("--input", idle_table(tmp_path / "use.csv"), *words)
    assert result.exit_code == 2
    assert message in result.stderr

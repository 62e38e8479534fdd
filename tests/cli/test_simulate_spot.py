"""`optim simulate spot`: JSON lines with a summary, and one clear line for bad input."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from optim.cli.main import app
from optim.cli.simulate_spot import AvailabilityChoice, _shares
from tests.support.public_traces import TRACE_DIR

RUNNER = CliRunner()
HEADER = "timestamp,zone,instance_type,price_usd_per_hour\n"
SMALL = ["--starts", "2", "--job-hours", "2", "--option", "baseline=8", "--option", "max_spot=24", "--processes", "1"]


def run(*words):
    return RUNNER.invoke(app, ["simulate", "spot", *map(str, words)])


def lines(result):
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def files(tmp_path):
    """A price file of ten days that swings every half hour, and its on-demand prices."""
    rows = [
        f"2015-03-{1 + k // 48:02d}T{k % 48 // 2:02d}:{30 * (k % 2):02d}:00Z,z,c3.xlarge,{0.03 + 0.01 * (k % 3)}"
        for k in range(480)
    ]
    prices, on_demand = tmp_path / "prices.csv", tmp_path / "od.csv"
    prices.write_text(HEADER + "\n".join(rows) + "\n")
    on_demand.write_text("instance_type,on_demand_usd_per_hour\nc3.xlarge,0.21\n")
    return prices, on_demand


def test_rows_and_a_summary_a_policy_as_json(files):
    prices, on_demand = files
    result = run(
        "--prices", prices, "--on-demand", on_demand, "--policy", "proteus", "--policy", "oracle-paid",
        "--train-until", "2015-03-06", "--seed", 0, "--format", "json", *SMALL,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    rows = lines(result)
    assert [row["policy"] for row in rows] == ["proteus", "oracle-paid"] * 3
    wanted = {"policy", "start", "cost_usd", "hours", "work_done", "free_hours", "evictions"}
    assert all(wanted <= set(row) for row in rows[:4])
    for summary in rows[4:]:
        assert summary["summary"] is True
        assert summary["low"]["cost_usd"] <= summary["mean"]["cost_usd"] <= summary["high"]["cost_usd"]
    more = [rows[k]["cost_usd"] - rows[k + 1]["cost_usd"] for k in (0, 2)]
    paired = rows[4]["paired"]["oracle-paid"]
    assert paired["mean"] == pytest.approx(sum(more) / 2)
    assert (paired["starts"], paired["won"]) == (2, 0.0)


def test_prices_may_come_in_several_files(files, tmp_path):
    prices, on_demand = files
    header, *rows = prices.read_text().splitlines()
    parts = [tmp_path / "one.csv", tmp_path / "two.csv"]
    for part, mine in zip(parts, (rows[:200], rows[200:]), strict=True):
        part.write_text("\n".join([header, *mine, ""]))
    words = (
        "--on-demand",
        on_demand,
        "--policy",
        "standard",
        "--train-until",
        "2015-03-06",
        "--format",
        "json",
        *SMALL,
    )
    whole, apart = run("--prices", prices, *words), run("--prices", parts[1], "--prices", parts[0], *words)
    assert apart.exit_code == 0, apart.output
    assert apart.stdout == whole.stdout


def test_generated_prices_are_the_default_and_what_is_assumed_is_said():
    result = run("--policy", "on-demand", "--starts", 2, "--processes", 1)
    assert result.exit_code == 0, result.output
    assert "on-demand" in result.stdout
    assert "the job: 20 h of 64 c3.xlarge on demand" in result.stderr
    assert "billing aws-2009 (by the data's date; --billing chooses another): every started hour" in result.stderr
    assert "over the 2 starts that every policy finished" in result.stdout
    assert "268.8 ± 0 " in result.stdout  # equal bills have no spread


REPORTS = TRACE_DIR / "reports" / "11-aws-history"


@pytest.mark.skipif(not REPORTS.is_dir(), reason="the public reports aren't there; set OPTIM_TRACE_DIR")
@pytest.mark.parametrize("name", ["ok", "azid", "boto3", "catted", "dup", "list", "meta", "number", "page"])
def test_prices_that_a_person_downloads_today_are_billed_by_todays_rules(name):
    result = run(
        "--prices", REPORTS / f"{name}.json", "--on-demand", REPORTS / "od.csv", "--policy", "oracle", "--job-hours", 4,
        "--starts", 1, "--train-until", "2025-03-07" if name == "page" else "2025-03-04", "--option", "baseline=1",
        "--format", "json", "--processes", 1,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert lines(result)[0]["cost_usd"] >= 3.95
    assert lines(result)[0]["bound_usd"] >= 3.9
    assert "the job: 4 h of 1 p3.2xlarge" in result.stderr
    assert "billing aws-2017" in result.stderr


def test_a_table_sets_every_policy_beside_the_cheapest():
    result = run("--policy", "on-demand,standard-checkpoint,oracle-paid", *SMALL)
    assert "usd_more, cheaper_in: extra cost compared with standard-checkpoint" in result.stdout
    rows = [line for line in result.stdout.splitlines() if " 2 of 2 " in line]
    assert [row.split()[0] for row in rows] == ["oracle-paid", "standard-checkpoint", "on-demand"]
    assert " 100% " in rows[0]
    assert "%" not in rows[1]
    assert " 0% " in rows[2]
    assert ": --details; all values" in result.stdout
    assert "free_hours" in run("--policy", "on-demand,standard-checkpoint", "--details", *SMALL).stdout.splitlines()[2]


def test_only_the_markets_that_varied_most_are_kept(files):
    prices, on_demand = files
    text = prices.read_text()
    calm = "".join(line.replace(",z,", ",y,")[: line.rindex(",") + 1] + "0.05\n" for line in text.splitlines()[1:])
    prices.write_text(text + calm)
    words = (
        "--prices",
        prices,
        "--on-demand",
        on_demand,
        "--policy",
        "standard",
        "--train-until",
        "2015-03-06",
        *SMALL,
    )
    result = run(*words, "--volatile", 1, "--format", "json")
    assert result.exit_code == 0, result.output
    assert "1 markets" in result.stderr
    assert lines(result)[0]["cost_usd"] < 0.05 * 8 * 3
    refused = run(*words, "--volatile", 3)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "--volatile must be from 1 to the 2 markets" in refused.stderr


def test_a_product_and_a_rate_of_ones_own_reach_the_prices(files):
    prices, on_demand = files
    words = ("--prices", prices, "--on-demand", on_demand, "--policy", "on-demand", "--format", "json", *SMALL)
    refused = run(*words, "--product", "Windows")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "names no products" in refused.stderr
    prices.write_text(prices.read_text().replace("c3.xlarge", "q9.huge"))
    on_demand.write_text("instance_type,on_demand_usd_per_hour\nq9.huge,0.21\n")
    words = (*words, "--option", "baseline_type=q9.huge")
    assert "has no known rate of work" in run(*words).stderr
    on_demand.write_text("instance_type,on_demand_usd_per_hour,rate\nq9.huge,0.21,3\n")
    result = run(*words)
    assert result.exit_code == 0, result.output
    assert lines(result)[0]["work_done"] > 0


@pytest.fixture
def availability(tmp_path):
    """A zone's availability trace in the form with prices: one dollar per hour for every machine."""
    path = tmp_path / "availability.csv"
    rows = [
        f"{k},2023-02-{15 + k // 400} {k % 400 // 20:02d}:{k % 20 * 3:02d}:00,a,{int(k % 7 > 1)},1.0"
        for k in range(2000)
    ]
    path.write_text("tick,timestamp_local,zone,available,price_usd_per_hour\n" + "\n".join(rows) + "\n")
    return path


JOB = ("--job-hours", 4, "--deadline-hours", 12, "--starts", 3, "--format", "json")


def test_a_deadline_is_told_for_every_start(availability):
    words = ("--availability", availability, "--on-demand", "3.06", *JOB)
    result = run(*words, "--zone", "a")
    assert result.exit_code == 0, result.output
    rows = lines(result)
    assert len(rows) == 3 * 6 + 6
    assert {row["policy"] for row in rows} == {
        *("uniform-progress", "skynomad", "deadline-dp", "greedy-spot", "on-demand", "optimum")
    }
    assert all(row["deadline_met"] is True and row["billing"] == "aws-2017" for row in rows[:18])
    assert "billing aws-2017 (by the data's date" in result.stderr
    unknown = run(*words, "--zone", "nowhere")
    assert (unknown.exit_code, unknown.stdout) == (2, "")
    assert "unknown zone 'nowhere'; there are: a" in unknown.stderr


def test_what_a_machine_costs_on_demand_is_said_or_the_command_is_refused(availability, tmp_path):
    words = ("--availability", availability, "--zone", "a", "--policy", "on-demand", *JOB)
    dollars = [row["cost_usd"] for row in lines(run(*words, "--on-demand", "98.32"))[:3]]
    assert dollars == pytest.approx([98.32 * 4.1] * 3, abs=0.5)
    refused = run(*words)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "no on-demand price; give --on-demand" in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1
    for wrong in ("0", "-3", "nan", "inf"):
        result = run(*words, f"--on-demand={wrong}")
        assert (result.exit_code, result.stdout) == (2, "")
        assert "--on-demand must be a file, or USD per hour in [1e-6, 1e6]" in result.stderr
    types = tmp_path / "types.csv"
    types.write_text("instance_type,on_demand_usd_per_hour\np5.48xlarge,98.32\n")
    assert run(*words, "--on-demand", types).exit_code == 2  # the trace names no type
    text = availability.read_text().replace("\n", ",p5.48xlarge\n").replace("hour,p5.48xlarge", "hour,instance_type", 1)
    availability.write_text(text)
    assert [row["cost_usd"] for row in lines(run(*words, "--on-demand", types))[:3]] == dollars


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--policy", "clever"), "unknown policy 'clever'"),
        (("--job-hours", "-1"), "job_hours must be positive"),
        (("--option", "colour=red"), "unknown option 'colour'"),
        (("--train-until", "yesterday"), "--train-until must be a date like 2015-06-01, got 'yesterday'"),
        (("--train-until", "1999-01-01"), "--train-until"),
        (("--zone", "a"), "--zone requires --availability"),
        (("--deadline-hours", "6"), "a table with columns tick,timestamp_local,zone,available,price_usd_per_hour"),
        (("--changeover-hours", "0.5"), "--changeover-hours requires --availability"),
        (("--on-demand", "x.csv"), "requires --prices"),
        (("--prices", "x.csv"), "needs --on-demand"),
        (("--product", "Windows"), "requires --prices"),
        (("--gap-hours", "5"), "--gap-hours requires --prices"),
        (("--work", "gpus"), "--work requires --prices"),
        (
            ("--prices", "x.csv", "--on-demand", "{od}", "--work", "love"),
            "--work must be one of gpus, vcpus, got 'love'",
        ),
        (("--prices", "x.csv", "--on-demand", "{od}", "--gap-hours", "0"), "--gap-hours must be"),
        (("--availability", "x.csv", "--product", "Windows"), "excludes --prices"),
        (("--availability", "x.csv", "--gap-hours", "5"), "--volatile, --gap-hours and --work"),
        (("--availability", "x.csv", "--work", "gpus"), "--volatile, --gap-hours and --work"),
        (("--availability", "x.csv"), "needs --deadline-hours"),
        (("--availability", "x.csv", "--prices", "y.csv"), "excludes --prices"),
        (("--availability", "nowhere.csv", "--deadline-hours", "9", "--job-hours", "4"), "can't be read"),
        (
            ("--availability", "x.csv", "--deadline-hours", "9", "--policy", "proteus"),
            "unknown policy over zones 'proteus'",
        ),
    ],
)
def test_wrong_use_is_one_line(words, message, files):
    result = run(*(word.format(od=files[1]) for word in words))
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("2015-02-01T00:00:00Z,z,c3.xlarge,0.1", "back in time"),
        ("2015-03-20T00:00:00Z,z,c3.xlarge,-0.1", "must be at least"),
        ("2015-03-20T00:00:00Z,z,q9.huge,0.1", "no on-demand price"),
    ],
)
def test_bad_price_files_are_one_line(files, row, message):
    prices, on_demand = files
    prices.write_text(prices.read_text() + row + "\n")
    result = run("--prices", prices, "--on-demand", on_demand, *SMALL)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.fixture
def zones(tmp_path):
    """Two zones of two regions, three hours of ticks of six minutes, and the cost of moves between them."""
    rows = [
        f"{k},2023-02-15 {k // 10:02d}:{k % 10 * 6:02d}:00,{zone},{int((k + shift) % 9 > 2)},{price}"
        for zone, shift, price in (("us-west-2a", 0, 1.0), ("us-east-1b", 5, 0.5))
        for k in range(200)
    ]
    traces, egress = tmp_path / "zones.csv", tmp_path / "egress.csv"
    traces.write_text("tick,timestamp_local,zone,available,price_usd_per_hour\n" + "\n".join(rows) + "\n")
    egress.write_text("from,to,usd_per_gb,gb_per_s\nus-west-2,us-east-1,0.02,0.5\nus-east-1,us-west-2,0.02,\n")
    return traces, egress


def over_zones(files, *words):
    fixed = ("--availability", files[0], "--on-demand", "3", "--job-hours", 4, "--deadline-hours", 6, "--starts", 2)
    return run(*fixed, "--format", "json", *words)


def test_zones_are_run_with_moves_that_cost_beside_the_proven_least(zones):
    words = ("--zone", "us-west-2a,us-east-1b", "--option", "state_gb=50", "--egress", zones[1])
    result = over_zones(zones, *words, "--policy", "uniform-progress-zones,optimum")
    assert result.exit_code == 0, result.output
    rows = lines(result)
    assert [row["policy"] for row in rows] == ["uniform-progress-zones", "optimum"] * 3
    assert all(row["deadline_met"] and row["ratio_to_optimum"] >= 1.0 for row in rows[:4])
    assert rows[4]["paired"]["optimum"]["starts"] == 2
    everything = over_zones(zones, *words)
    assert everything.exit_code == 0, everything.output
    assert {row["policy"] for row in lines(everything)} >= {"skynomad", "adaptive-zones", "cheapest-zone", "on-demand"}


def test_starts_are_chosen_and_every_last_one_is_valid(zones):
    words = ("--zone", "us-west-2a", "--policy", "uniform-progress,optimum")
    result = over_zones(zones, *words, "--start", "2023-02-15T01:00", "--start", "2023-02-15T14:00:00")
    assert result.exit_code == 0, result.output
    rows = lines(result)
    starts = ["2023-02-15T01:00:00Z", "2023-02-15T14:00:00Z"]
    assert [row["start"] for row in rows[:4]] == [starts[0], starts[0], starts[1], starts[1]]
    assert all(row["deadline_met"] and row["ratio_to_optimum"] >= 1.0 for row in rows[:4])
    every = lines(over_zones(zones, "--zone", "us-west-2a", "--policy", "on-demand", "--every-start"))
    # 200 ticks of 6 minutes and a deadline of 60 of them: the last start is tick 140.
    assert [row["start"] for row in every[:-1]][-1] == starts[1]
    assert len(every) == 141 + 1
    whole = run(
        "--availability", zones[0], "--on-demand", "3", "--job-hours", 18, "--deadline-hours", 20, "--zone",
        "us-west-2a", "--policy", "on-demand", "--every-start", "--format", "json",
    )  # fmt: skip
    assert [row["start"] for row in lines(whole)[:-1]] == ["2023-02-15T00:00:00Z"]


@pytest.fixture
def windows(tmp_path):
    """Two recordings of a day in ticks of ten minutes, as JSON in which 1 means that no machines are available, and an invalid one."""
    folder = tmp_path / "windows"
    for name, gone in (("east/0", 4), ("east/1", 3)):
        path = folder / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        data = [int(tick % gone == 0) for tick in range(144)]
        path.write_text(json.dumps({"metadata": {"gap_seconds": 600}, "data": data}))
    return folder


ON_WINDOWS = (
    "--on-demand",
    "3",
    "--job-hours",
    4,
    "--deadline-hours",
    6,
    "--polarity",
    "unavailable",
    "--format",
    "json",
)


def test_each_file_of_a_folder_is_a_start_and_what_a_1_means_is_said(windows):
    words = ("--availability", windows, *ON_WINDOWS, "--every-file", "--policy", "uniform-progress,optimum")
    result = run(*words)
    assert result.exit_code == 0, result.output
    rows = lines(result)[:4]
    assert [row["file"] for row in rows] == ["east/0.json", "east/0.json", "east/1.json", "east/1.json"]
    assert {row["start"] for row in rows} == {"1970-01-01T00:00:00Z"}
    assert all(row["deadline_met"] and row["ratio_to_optimum"] >= 1 for row in rows)
    # Of 288 ticks 36 and 48 have no machines.
    assert (
        "availability: 1 = not available in JSON (--polarity unavailable); machines are available in 70.8% of the ticks"
        in result.stderr
    )
    slower = run(*words, "--option", "tick_s=1200")
    assert slower.exit_code == 0, slower.output
    assert "resampled to ticks of 1200 s: a tick is available if machines are available" in slower.stderr
    # Of six ticks every third has none: of three pairs two.
    assert "machines are available in 41.7% of the ticks" in slower.stderr


def test_files_learn_from_other_zones_than_those_they_name(windows, tmp_path):
    history = tmp_path / "history"
    for zone, step in (("east", 2), ("west", 3)):
        path = history / f"{zone}.json"
        path.parent.mkdir(exist_ok=True)
        data = [int(tick // step % 2) for tick in range(288)]
        path.write_text(json.dumps({"metadata": {"gap_seconds": 300}, "data": data}))
    words = ("--availability", windows, *ON_WINDOWS, "--every-file", "--policy", "deadline-dp,on-demand")
    result = run(*words, "--history", history)
    assert result.exit_code == 0, result.output
    assert "the history of east is ignored" in result.stderr
    assert "hazards of losing machines come from 1 zone, 24 h" in result.stderr
    assert "ticks of 300 s in the history are sampled every 600 s" in result.stderr
    assert result.stderr.count("hazards of losing machines") == 1
    (history / "west.json").write_text("{")
    assert "1 of 2 traces can't be used (--skip-bad leaves them out)" in run(*words, "--history", history).stderr
    nothing = run(*words, "--history", history, "--skip-bad")
    assert nothing.exit_code == 0, nothing.output
    assert "the prior, because the usable part of" in nothing.stderr
    (tmp_path / "table.csv").write_text(
        "tick,timestamp_local,zone,available,price_usd_per_hour\n0,2023-02-15,a,1,1.0\n"
    )
    assert run(*words, "--history", tmp_path / "table.csv").exit_code == 0  # it has the opposite convention


def test_a_single_recording_needs_no_zone_named(windows):
    path = windows / "east" / "0.json"
    result = run("--availability", path, *ON_WINDOWS, "--policy", "on-demand", "--every-start")
    assert result.exit_code == 0, result.output
    assert len(lines(result)) == 144 - 36 + 1 + 1


def test_bad_files_of_a_folder_are_named_and_left_out_only_if_asked_for(windows):
    (windows / "east" / "2.json").write_text('{"metadata": {"gap_seconds": 600}, "data": [3]}')
    (windows / "east" / "3\x1b[2J.json").write_text("[")
    words = ("--availability", windows, *ON_WINDOWS, "--every-file", "--policy", "on-demand")
    refused = run(*words)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "2 of 4 traces can't be used (--skip-bad leaves them out)" in refused.stderr
    assert "2.json: data[0]: is 3" in refused.stderr
    assert "\x1b[2J" not in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1
    result = run(*words, "--skip-bad")
    assert result.exit_code == 0, result.output
    assert [row["file"] for row in lines(result)[:-1]] == ["east/0.json", "east/1.json"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--polarity", "up"), "--polarity must be one of available, unavailable, got 'up'"),
        (("--every-file", "--every-start"), "--every-file starts once in each file"),
        (("--every-file", "--start", "2023-01-01"), "--every-file starts once in each file"),
        (("--every-file", "--deadline-hours", "25"), "144 ticks of 600 s are shorter than the deadline of 25 h"),
        (("--every-file", "--deadline-hours", "4"), "launch and work take 4.1 h; give at least that"),
        (("--every-file", "--option", "tick_s=0"), "tick_s must be"),
        (("--every-file", "--zone", "nowhere"), "no subfolder has a file of nowhere"),
        ((), "has no traces (.json, .json.gz, .csv, .csv.gz)"),
    ],
)
def test_wrong_use_of_folders_is_one_line(windows, words, message):
    result = run("--availability", windows, *ON_WINDOWS, *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_files_take_no_option_of_folders_and_json_a_polarity(windows, zones):
    for flag in ("--every-file", "--skip-bad"):
        refused = over_zones(zones, "--zone", "us-west-2a", flag)
        assert refused.exit_code == 2
        assert f"{flag} requires --availability FOLDER" in refused.stderr
    refused = run("--availability", windows, "--on-demand", "3", "--deadline-hours", 30, "--every-file")
    assert refused.exit_code == 2
    assert "the meaning of a 1 in a JSON trace must be given" in refused.stderr


def test_set_ups_of_any_length_and_rules_of_billing_change_the_bill(zones):
    words = ("--zone", "us-west-2a", "--policy", "on-demand", "--start", "2023-02-15T01:00")
    usd = {}
    for hours in (0.05, 0.1, 0.1666):
        (row, _) = lines(over_zones(zones, *words, "--changeover-hours", hours, "--billing", "per-second"))
        usd[hours] = row["cost_usd"]
    assert usd == {0.05: pytest.approx(3 * 4.05), 0.1: pytest.approx(3 * 4.1), 0.1666: pytest.approx(3 * (4 + 1 / 6))}
    (row, _) = lines(over_zones(zones, *words, "--changeover-hours", 0.05, "--billing", "whole-ticks"))
    assert (row["cost_usd"], row["billing"]) == (pytest.approx(3 * 4.1), "whole-ticks")
    (row, _) = lines(over_zones(zones, *words, "--changeover-hours", 0.05, "--billing", "aws-2009"))
    assert row["cost_usd"] == 15.0


def test_a_policy_of_ones_own_runs_by_file_and_class(zones, tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from optim.simulation.spot.zones import DeadlineGuard\n"
        "class Late(DeadlineGuard):\n    def choose(self, view):\n        return ()\n"
    )
    result = over_zones(zones, "--zone", "us-west-2a", "--policy", f"{mine}:Late", "--policy", "on-demand")
    assert result.exit_code == 0, result.output
    late, on_demand = lines(result)[:2]
    assert late["cost_usd"] == pytest.approx(on_demand["cost_usd"])
    assert late["hours"] > on_demand["hours"]
    assert late["deadline_met"]
    broken = tmp_path / "broken.py"
    broken.write_text("1 / 0\n")
    refused = over_zones(zones, "--zone", "us-west-2a", "--policy", f"{broken}:Late")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "ZeroDivisionError" in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--zone", "us-west-2a,nowhere"), "unknown zone 'nowhere'; there are: us-west-2a, us-east-1b"),
        (("--zone", "us-west-2a,us-east-1b", "--option", "state_gb=5"), "no moving cost is known"),
        (
            ("--zone", "us-west-2a,us-east-1b", "--deadline-hours", "4"),
            "launch and work take 4.1 h; give at least that",
        ),
        (("--zone", "us-west-2a,us-east-1b", "--policy", "uniform"), "unknown policy over zones 'uniform'"),
        (
            ("--zone", "us-west-2a", "--billing", "free"),
            "--billing must be one of aws-2009, aws-2017, per-second, whole",
        ),
        (("--zone", "us-west-2a", "--start", "noon"), "--start must be a date like 2015-06-01, got 'noon'"),
        (
            ("--zone", "us-west-2a", "--start", "2023-02-15T15"),
            "allow starts from 2023-02-15T00:00:00Z to 2023-02-15T14:00:00Z",
        ),
        (("--zone", "us-west-2a", "--start", "2023-02-15", "--every-start"), "exclude each other; give one"),
        (("--zone", "us-west-2a,us-east-1b", "--option", "colour=red"), "unknown option 'colour'"),
        (("--zone", "us-west-2a,us-east-1b", "--option", "machines=0"), "machines must be"),
        (("--zone", "us-west-2a,us-east-1b", "--deadline-hours", "40"), "the deadline of 40 h needs"),
        (("--zone", "us-west-2a", "--egress", "none.csv"), "can't be read"),
    ],
)
def test_wrong_use_of_zones_is_one_line(zones, words, message):
    result = over_zones(zones, *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_prices_without_a_currency_and_tables_without_a_pair_are_one_line(zones):
    words = ("--zone", "us-west-2a,us-east-1b", "--option", "state_gb=5", "--egress", zones[1])
    zones[1].write_text("from,to,usd_per_gb\nus-west-2,us-east-1,0.02\n")
    refused = over_zones(zones, *words)
    assert refused.exit_code == 2
    assert "egress.csv: no row from us-east-1 to us-west-2; add one" in refused.stderr
    zones[0].write_text(zones[0].read_text().replace("price_usd_per_hour", "price_per_hour", 1))
    refused = over_zones(zones, *words)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "column 'price_usd_per_hour' is missing" in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("starts", "hours", "names", "shares"),
    [(200, 20.0, ("proteus",), 1), (200, 20.0, ("./mine.py:Mine",), 200), (2, 1e6, (), 2), (9, float("nan"), (), 9)],
)
def test_short_runs_are_worth_no_process_and_a_policy_of_ones_own_may_take_any_time(starts, hours, names, shares):
    assert _shares(starts, hours, names, AvailabilityChoice()) == shares
    assert _shares(starts, hours, names, AvailabilityChoice(availability=Path("a.csv"))) == starts


def test_what_deadline_dp_learns_from_is_said(zones, tmp_path):
    words = ("--zone", "us-west-2a", "--policy", "deadline-dp,on-demand")
    without = over_zones(zones, *words)
    assert without.exit_code == 0, without.output
    assert "deadline-dp has no history and assumes that machines are lost with probability" in without.stderr
    rows = [
        f"availability,1,aws-1,{zone},v100_1,600,{tick},{tick // length % 2}\n"
        for zone, length in (("us-east-1a", 3), ("us-west-2a", 2))
        for tick in range(300)
    ]
    history = tmp_path / "history.csv"
    history.write_text("kind,nodes,campaign,zone,resource,gap_seconds,tick,value\n" + "".join(rows))
    learned = over_zones(zones, *words, "--history", history)
    assert learned.exit_code == 0, learned.output
    assert (
        "hazards of losing machines come from 2 zones, 100 h" in learned.stderr
    )  # its ticks begin in 1970, before the market's
    own = over_zones(zones, *words, "--history", zones[0])
    assert (
        "the history of us-west-2a is ignored, because it ends after the first possible start of a job there"
        in own.stderr
    )
    both = over_zones(zones, *words, "--history", history, "--history", zones[0])
    assert "hazards of losing machines come from 2 zones, 100 h" not in both.stderr
    assert "the history of us-west-2a is ignored" in both.stderr
    other = over_zones(zones, *words, "--history", zones[0], "--history", history)
    assert lines(other) == lines(both)
    assert {row["deadline_met"] for row in lines(learned) + lines(own) if "start" in row} == {True}


def test_a_history_in_which_no_spell_ends_leaves_the_prior(zones, tmp_path):
    history = tmp_path / "history.csv"
    rows = "".join(f"availability,1,aws-1,us-east-1a,v100_1,600,{tick},1\n" for tick in range(9))
    history.write_text("kind,nodes,campaign,zone,resource,gap_seconds,tick,value\n" + rows)
    result = over_zones(zones, "--zone", "us-west-2a", "--policy", "deadline-dp", "--history", history)
    assert result.exit_code == 0, result.output
    assert "come from the prior, because the usable part of" in result.stderr

"""`optim simulate training`: rows over time with the bill of the back-test, a plot, and no remaining process."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from optim.cli import simulate_training
from optim.cli.main import app
from optim.cli.output import print_json
from optim.simulation.emulation.lease_run import ReplayOptions, reference_run

RUNNER = CliRunner()
HEADER = "timestamp,zone,instance_type,price_usd_per_hour\n"
JOB = ["--job-hours", "3", "--option", "baseline=8", "--option", "max_spot=8", "--option", "checkpoint_min=3"]
SMALL = [*JOB, "--clocks", "40", "--hour-seconds", "0", "--max-processes", "3"]
PATIENCE_S = 600
"""Far more than any of these runs takes; only one that hangs meets it."""


def run(*words):
    return RUNNER.invoke(app, ["simulate", *map(str, words)])


def lines(result):
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def prices(tmp_path):
    """Ten days of a market whose price exceeds on-demand for ten minutes every two hours and a half."""
    rows = []
    for minutes in range(0, 14_400, 150):
        for at, price in ((minutes, 0.05), (minutes + 140, 0.5)):
            rows.append(f"2015-03-{1 + at // 1440:02d}T{at % 1440 // 60:02d}:{at % 60:02d}:00Z,z,c3.xlarge,{price}")
    file, on_demand = tmp_path / "prices.csv", tmp_path / "od.csv"
    file.write_text(HEADER + "\n".join(rows) + "\n")
    on_demand.write_text("instance_type,on_demand_usd_per_hour\nc3.xlarge,0.21\n")
    return ["--prices", file, "--on-demand", on_demand]


@pytest.mark.prove
def test_rows_have_the_back_tests_bill_and_the_picture_is_drawn(prices, tmp_path):
    picture = tmp_path / "run.png"
    words = [*prices, "--seed", 3, "--format", "json"]
    result = run("training", *words, *SMALL, "--picture", picture)
    assert result.exit_code == 0, result.output
    rows = [row for row in lines(result) if not row.get("summary")]
    summaries = {row["policy"]: row for row in lines(result) if row.get("summary")}
    wanted = {"policy", "hours", "machines", "clock", "loss", "bill_usd", "free_hours", "event"}
    assert all(wanted <= set(row) for row in rows)
    losses = reference_run(ReplayOptions(clocks=40, max_processes=3, seed=3), 40).losses
    assert [row["loss"] for row in rows] == [losses[row["clock"] - 1] if row["clock"] else None for row in rows]
    policies = ("--policy", "proteus", "--policy", "standard-checkpoint")
    spot = run("spot", *words, *JOB, *policies, "--starts", 1, "--processes", 1)
    for expected in lines(spot)[:2]:
        policy = expected["policy"]
        last = [row for row in rows if row["policy"] == policy][-1]
        assert last["event"] == "done"
        assert last["bill_usd"] == summaries[policy]["bill_usd"] == expected["cost_usd"]
        assert last["free_hours"] == pytest.approx(expected["free_hours"])
        assert summaries[policy]["is_exact"] is True
    assert summaries["standard-checkpoint"]["lost_clocks"] > 0
    assert summaries["proteus"]["lost_clocks"] == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--policy", "oracle"), "unknown policy to train by 'oracle'"),
        (("--picture", "x.gif"), "--picture must end in .png, .svg, .pdf, got x.gif"),
        (("--picture", "nowhere/x.png"), "there is no folder nowhere"),
        (("--hour-seconds", "-1"), "hour_s must be at least 0"),
        (("--max-processes", "1"), "more than max_processes 1"),
        (("--on-demand", "x.csv"), "requires --prices"),
        (("--prices", "x.csv"), "needs --on-demand"),
        (("--types", "9"), "num_types must be in [1, 5]"),
        (("--volatile", "9"), "--volatile must be from 1 to the"),
        (("--prices", "x.csv", "--types", "2"), "--types and --spikes require generated prices"),
        (("--prices", "x.csv", "--spikes", "2"), "omit them, or --prices"),
    ],
)
def test_wrong_use_is_one_line(words, message):
    result = run("training", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ([(True, True), (True, True)], 0),
        ([(True, True), (False, None)], 1),
        ([(False, None), (False, None)], 1),
        ([(True, True), (True, False)], 3),
        ([(False, None), (True, False)], 3),
    ],
)
def test_the_exit_code_tells_whether_all_are_done_and_none_differs(outcomes, code, monkeypatch):
    summaries = [SimpleNamespace(is_done=is_done, is_exact=is_exact) for is_done, is_exact in outcomes]
    monkeypatch.setattr("optim.simulation.emulation.timeline.record_start", lambda *_: [])
    monkeypatch.setattr("optim.cli.simulate_training._play", lambda *_: ([], summaries))
    assert run("training", "--format", "json").exit_code == code


def test_only_the_markets_that_varied_most_are_trained_on(prices, monkeypatch):
    worlds = []
    monkeypatch.setattr(
        "optim.simulation.emulation.timeline.record_start", lambda world, *_: worlds.append(world) or []
    )
    monkeypatch.setattr("optim.cli.simulate_training._play", lambda *_: ([], []))
    file = prices[1]
    calm = "".join(
        line.replace(",z,", ",y,").replace("0.5", "0.05") + "\n" for line in file.read_text().splitlines()[1:]
    )
    file.write_text(file.read_text() + calm)
    for words, names in (((), ["c3.xlarge@y", "c3.xlarge@z"]), (("--volatile", "1"), ["c3.xlarge@z"])):
        assert run("training", *prices, *words).exit_code == 0
        assert sorted(market.name for market in worlds.pop().history.markets) == names


def is_alive(process_id):
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children_of(process_id):
    """Return a process's children."""
    return {child for held in Path(f"/proc/{process_id}/task").glob("*/children") for child in held.read_text().split()}


def descendants(process_id):
    """Return a process's children, and theirs."""
    return [one for child in children_of(process_id) for one in (child, *descendants(child))]


HAS_CHILDREN = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are found in /proc")
STOPPED = ("training", "--hour-seconds", "1000", "--max-processes", "3", "--policy", "standard-agile",
           "--format", "json")  # fmt: skip


@HAS_CHILDREN
@pytest.mark.filterwarnings("ignore:Attempting to set identical")  # a plot of a run that has just begun
def test_ctrl_c_ends_all_machines_and_tells_what_is_done(tmp_path, monkeypatch):
    machines = []

    def print_and_stop(row):
        print_json(row)
        if not machines and row.processes:  # they are forked by a child that has imported all they need
            machines.extend({*descendants(os.getpid())} - children_of(os.getpid()))
            assert len(machines) >= row.processes
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(simulate_training, "print_json", print_and_stop)
    result = run(*STOPPED, "--picture", tmp_path / "run.svg")
    assert_stops_whole(result.exit_code, result.stderr, tmp_path / "run.svg")
    assert machines
    assert_end(machines)


@pytest.mark.prove
@HAS_CHILDREN
def test_ctrl_c_in_a_terminal_ends_all_processes_and_tells_what_is_done(tmp_path):
    picture = tmp_path / "run.svg"
    script = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\nfrom optim.cli.main import main\n"
    )
    running = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"{script}if __name__ == '__main__': main()",
            "simulate",
            *STOPPED,
            "--picture",
            picture,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    rows = [json.loads(running.stdout.readline()) for _ in range(2)]
    assert rows[1]["processes"] > 0
    children = descendants(running.pid)  # machines are forked by a child that has imported all they need
    assert len(children) > rows[1]["processes"]
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does: all processes of the group get it
    _, errors = running.communicate(timeout=PATIENCE_S)
    assert_stops_whole(running.returncode, errors, picture)
    assert_end(children)


def assert_stops_whole(code, errors, picture):
    """Check that an interrupted command reported it briefly and plotted the finished part."""
    assert code == 130
    assert "Traceback" not in errors
    assert "leaked" not in errors
    drawn = picture.read_text()
    assert all(f">{name}<" in drawn for name in ("standard-agile", "training loss", "bill in $", "free machine-hours"))


def assert_end(processes):
    """Wait until processes have ended."""
    end = time.monotonic() + PATIENCE_S
    while any(is_alive(process) for process in processes):
        assert time.monotonic() < end
        time.sleep(0.02)

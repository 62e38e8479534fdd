"""`optim profile` as a command."""

import json
import sys

import jax
import pytest
from msgspec import UNSET
from typer.testing import CliRunner

from optim.cli.main import app
from optim.cli.profile import _text
from optim.profiling.document import MeasuredValue, read_profiles
from optim.workloads.profiles import published_profiles

SMALL = ["--application", "logistic-regression", "--scale", "0.005", "--option", "repeats=3", "--accept-noise"]


@pytest.fixture(autouse=True)
def quick(tmp_path, monkeypatch):
    """Change to an empty folder, and reduce the measurements."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("optim.profiling.machine_benchmarks.last_level_cache", lambda: 2**18)
    monkeypatch.setattr("optim.profiling.machine_benchmarks.IN_CACHE_SIZES", (2**8, 2**9))
    monkeypatch.setattr("optim.profiling.machine_benchmarks.BEYOND_SETS", 2)
    monkeypatch.setattr("optim.profiling.machine_benchmarks.MAX_SET_BYTES", 2**20)
    monkeypatch.setattr("optim.profiling.machine_benchmarks.PUSHES", (1, 2))
    monkeypatch.setattr("optim.profiling.machine_benchmarks.SHAPES", ((32, 2, 2, 4), (64, 2, 2, 4)) * 2)
    monkeypatch.setattr("optim.profiling.measuring.START_PROGRAM", "pass")
    return tmp_path


@pytest.mark.prove
def test_writes_a_profile_that_instances_are_drawn_from(quick):
    result = CliRunner().invoke(app, ["profile", "--out", "profile.json", *SMALL])
    assert result.exit_code == 0, result.stderr
    found = read_profiles(quick / "profile.json")
    assert [job.name for job in found.jobs] == ["logistic-regression"]
    assert found.machine.cores >= 1
    assert found.machine.governor
    assert found.jobs[0].device == found.machine.device == jax.devices()[0].device_kind
    assert found.crbm is UNSET  # the phase encoder was not requested
    assert len(found.jobs[0].speed.coefficients) == 5
    assert "1 job profiles in profile.json" in result.stderr
    assert "logistic-regression" in result.stdout
    bench = ["bench", "admission", "--profile", "profile.json", "--jobs", "5", "--slots", "6", "--solver", "fifo"]
    drawn = CliRunner().invoke(app, [*bench, "--format", "json", "--no-report"])
    assert drawn.exit_code == 0, drawn.stderr
    assert json.loads(drawn.stdout)["verified"]


@pytest.mark.prove
def test_prints_the_profile_without_a_file():
    result = CliRunner().invoke(app, ["profile", *SMALL])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["schema"] == "optim/profile/1"


def test_profiles_a_script_of_ones_own(quick):
    (quick / "train.py").write_text(
        "import sys, time\n"
        "from optim.profiling import StepTimer\n"
        "timer = StepTimer(model=[0.0] * 1000)\n"
        "for step in range(6):\n"
        "    with timer:\n"
        "        time.sleep(0.02 / int(sys.argv[1]))\n"
    )
    words = ["--command", f"{sys.executable} train.py {{workers}}", "--workers", "1,2", "--name", "mine"]
    result = CliRunner().invoke(app, ["profile", *words, "--out", "own.json"])
    assert result.exit_code == 0, result.stderr
    (job,) = read_profiles(quick / "own.json").jobs
    assert (job.name, job.gradient_mb) == ("mine", 0.004)
    assert [point.workers for point in job.scaling] == [1, 2]
    assert "terms of the speed function that the data support: " in result.stderr


@pytest.mark.parametrize("load", [0.0, 64.0])
def test_a_script_that_ran_beside_other_work_is_said_to(load, monkeypatch):
    def profile_command(*_, **__):
        return published_profiles().jobs[0]

    monkeypatch.setattr("optim.profiling.commands.profile_command", profile_command)
    monkeypatch.setattr("optim.profiling.timing.present_load", lambda: load)
    result = CliRunner().invoke(app, ["profile", "--command", "x {workers}"])
    assert result.exit_code == 0, result.stderr
    assert ("other processes (load 64.0 on " in result.stderr) == (load > 0)


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (["--application", "chess"], "unknown application 'chess'"),
        (["--application", "mine:Mine"], "profile your own training by --command"),
        (["--scale", "0"], "--scale"),
        (["--option", "repeats=0"], "repeats"),
        (["--out", "none/profile.json"], "no folder"),
        (["--command", "python train.py"], "must contain {workers}"),
        (["--command", "x {workers}", "--workers", "1,two"], "each of --workers must be a whole number"),
        (["--command", "x {workers}", "--workers", "1," + "9" * 5000], "each of --workers must be a whole number"),
        (["--command", "x {workers}", "--workers", "2,3"], "--workers must include 1 and other numbers"),
        (
            ["--command", "x {workers}", "--seed", "1"],
            "omit --application, --scale, --device, --seed and --accept-noise",
        ),
        (["--command", "x {workers}", "--option", "repeats=3"], "repeats applies only to applications"),
        (["--option", "rounds=3"], "rounds applies only to scripts"),
        (
            ["--command", "x {workers}", "--application", "topic-model"],
            "omit --application, --scale, --device, --seed and --accept-noise",
        ),
        (
            ["--command", "x {workers}", "--scale", "0.5"],
            "omit --application, --scale, --device, --seed and --accept-noise",
        ),
        (
            ["--command", "x {workers}", "--device", "cpu"],
            "omit --application, --scale, --device, --seed and --accept-noise",
        ),
        (["--device", "abacus"], "'abacus' is not one of 'cpu', 'gpu'"),
        (
            ["--command", "x {workers}", "--accept-noise"],
            "omit --application, --scale, --device, --seed and --accept-noise",
        ),
        (["--command", "x {workers}", "--name", " "], "--name must not be empty"),
        (["--command", "x {workers} 'y"], "can't be split into words"),
        (["--workers", "1,2,3"], "require --command"),
        (["--name", "mine"], "require --command"),
    ],
)
def test_says_in_one_line_what_is_wrong(words, cause):
    result = CliRunner().invoke(app, ["profile", *words])
    assert result.exit_code == 2
    assert cause in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_device_that_jax_lacks_is_one_line():
    if jax.default_backend() == "gpu":
        pytest.skip("there is a GPU here")
    result = CliRunner().invoke(app, ["profile", "--device", "gpu", *SMALL])
    assert result.exit_code == 2
    assert result.stderr.startswith("optim: error: JAX has no gpu here and computes on ")
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("words", [[], ["--device", "cpu"]])
def test_measures_on_the_device_that_is_asked_for(words, monkeypatch):
    used = []

    def measure(*_, **__):
        used.append(jax.config.jax_default_device)
        return published_profiles()

    monkeypatch.setattr("optim.profiling.measuring.measure_profiles", measure)
    result = CliRunner().invoke(app, ["profile", *words, "--format", "json"])
    assert result.exit_code == 0, result.stderr
    assert used == [jax.devices(*words[1:])[0]]


def test_a_noisy_machine_is_refused(monkeypatch):
    monkeypatch.setattr("optim.profiling.machine_benchmarks.present_load", lambda: 64.0)
    result = CliRunner().invoke(app, ["profile", *SMALL[:-1]])
    assert result.exit_code == 2
    assert "too noisy" in result.stderr
    assert result.stdout == ""


def test_a_value_without_a_width_is_assumed():
    assert _text(MeasuredValue.exactly(1e4)) == "1e+04 (assumed)"
    assert _text(MeasuredValue(value=2.0, low=1.5, high=3.0)) == "2 (1.5-3)"

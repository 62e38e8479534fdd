"""A command loads only the modules that it uses; without an optional package, one line names the package to install."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from optim.cli.main import app

ROOT = Path(__file__).parents[2]
HEAVY = ("jax", "scipy.stats", "cvxpy", "pyomo", "pandas", "matplotlib", "networkx", "distributed", "sklearn", "torch")
SOLVE = ("solve", "small-0", "--solver", "search", "--time-limit", "1", "--format", "json")
BENCH = ("bench", "admission", "--instance", "tiny-0", "--solver", "fifo", "--no-report")
MOST_MIB = 150
"""Without the pages of libraries, whose number depends on the file cache of the system (70 to 111 MiB for LLVM)."""
SAYS_WHAT_IT_LOADED = """
import json, sys
from optim.cli.main import app
code = app({words!r}, standalone_mode=False)
from optim.core.limits import own_memory, peak_memory
mib = (peak_memory() - (own_memory("RssFile") or 0)) / 2**20
print(json.dumps({{"loaded": sorted({heavy!r} & sys.modules.keys()), "mib": mib, "code": int(code)}}))
"""


def run(words, blocked=(), cwd=None):
    """Run a command in a separate interpreter, in which some packages can't be imported."""
    block = "".join(f"import sys; sys.modules[{name!r}] = None\n" for name in blocked)
    code = block + SAYS_WHAT_IT_LOADED.format(words=list(words), heavy=set(HEAVY))
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env, cwd=cwd)


def told(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "words",
    [
        ("instance", "describe", "small-0"),
        ("solvers", "admission"),
        pytest.param(("instance", "generate", "admission", "--jobs", "3", "--out", "i.json"), marks=pytest.mark.prove),
        pytest.param(SOLVE, marks=pytest.mark.prove),  # may have to compile
        BENCH,
    ],
)
def test_a_command_on_admission_loads_nothing_heavy(words, tmp_path):
    found = told(run(words, cwd=tmp_path))
    assert found["loaded"] == []


def test_a_programme_in_pyomo_loads_pyomo_without_the_statistics_of_scipy(tmp_path):
    words = ("bench", "admission", "--instance", "tiny-0", "--solver", "compact-milp", "--no-report")
    assert told(run(words, cwd=tmp_path))["loaded"] == ["pyomo"]


@pytest.mark.prove
def test_searching_small_0_takes_little_memory_once_compiled():
    told(run(SOLVE))
    found = told(run(SOLVE))
    assert found["loaded"] == []
    assert found["mib"] < MOST_MIB


ABSENT = pytest.mark.parametrize(
    ("package", "words", "extra"),
    [
        ("pandas", ("simulate", "cluster", "--trace", "jobs.csv", "--gpus", "2x4"), "pandas"),
        ("pandas", ("simulate", "spot", "--prices", "jobs.csv", "--on-demand", "jobs.csv"), "pandas"),
        ("distributed", ("bench", "admission", "--instance", "tiny-0", "--engine", "dask"), "dask"),
        ("matplotlib", ("simulate", "containers", "--generate", "20", "--report", "page.html"), "plot"),
    ],
)
JOBS = "submit,duration,gpus\n0,60,1\n"


@ABSENT
def test_an_absent_package_costs_one_line_with_the_command_that_installs_it(
    package, words, extra, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("jobs.csv").write_text(JOBS)
    monkeypatch.setitem(sys.modules, package, None)
    done = CliRunner().invoke(app, words)
    assert_one_line(done.exit_code, done.stderr, extra)


@pytest.mark.prove
@ABSENT
def test_it_costs_one_line_where_nothing_is_loaded_yet(package, words, extra, tmp_path):
    (tmp_path / "jobs.csv").write_text(JOBS)
    done = run(words, (package,), cwd=tmp_path)
    assert "Traceback" not in done.stderr
    assert_one_line(told(done)["code"], done.stderr, extra)


def assert_one_line(code, errors, extra):
    """Check that one line gives the command that installs the missing package."""
    assert code == 2, errors
    assert f"pip install 'mlcluster-optim[{extra}]'" in errors
    assert len([line for line in errors.splitlines() if "error" in line]) == 1


@pytest.mark.prove
def test_a_benchmark_without_optional_packages_still_writes_its_report(tmp_path):
    words = ("bench", "admission", "--instance", "tiny-0", "--solver", "fifo", "--out", "results")
    found = told(run(words, ("pandas", "matplotlib", "distributed", "sklearn"), cwd=tmp_path))
    assert found["code"] == 0
    page = (tmp_path / "results" / "bench.html").read_text()
    assert "pip install" in page
    assert "tiny-0" in page

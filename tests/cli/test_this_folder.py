"""Files in the current folder are data: no process of a command imports code from there."""

import os
import shlex
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

OPTIM = Path(sys.executable).with_name("optim")
SCRIPT = """
import time
from optim.profiling import StepTimer

timer = StepTimer()
for _ in range(12):
    with timer:
        time.sleep(0.001)
"""
SERVER = """
import numpy as np
from optim_studies.kernels.server import ServerProcess

server = ServerProcess(np.zeros(16, np.float32), [np.ones(16, np.float32)], 0.1)
server.update()
server.close()
"""
COMMANDS = {
    "bench": "bench admission --instance tiny-0,small-0 --solver fifo --processes 2 --no-report",
    "bench in Dask": "bench admission --instance tiny-0,small-0 --solver fifo --engine dask --no-report",
    "cluster": "simulate cluster --generate themis --apps 4 --gpus 2x8 --policy srsf,fifo --processes 2",
    "spot": "simulate spot --starts 8 --job-hours 4 --processes 2",
    "containers": "simulate containers --generate 4 --processes 2",
    "training": "simulate training --clocks 10",
    "drill": "run --kill-servers 1",
    "application": "run --application matrix-factorisation --clocks 3",
    "profile": "profile --application matrix-factorisation --scale 0.01 --accept-noise --out p.json",
    "profile of a script": "profile --command 'SCRIPT {workers}' --workers 1,2 --out p.json",
}
QUICK = ("bench",)
"""Before a release all are run."""


@pytest.fixture
def planted(tmp_path):
    """Return a folder with a module of the name of every module of Python and of the packages; each leaves a mark if run."""
    folder = tmp_path / "data"
    folder.mkdir()
    for name in {*sys.stdlib_module_names, *packages_distributions()}:
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'marks')!r}, 'a').write({name!r} + '\\n')\n")
    return folder


def marks(planted):
    path = planted.parent / "marks"
    return path.read_text().split() if path.exists() else []


def test_the_planted_modules_would_run(planted):
    """Python 3.13 itself needs `linecache` for the code of -c; with a `linecache` in the folder it fails before."""
    subprocess.run([sys.executable, "-c", "import this"], cwd=planted, check=False, capture_output=True)
    assert {"this", "linecache"} & set(marks(planted))


def run(planted, words):
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONSAFEPATH", "PYTHONPATH")}
    done = subprocess.run(words, cwd=planted, env=environment, capture_output=True, text=True, check=False)
    print(done.stdout[-500:], done.stderr[-800:])
    assert marks(planted) == []
    assert done.returncode == 0


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.prove) for name in COMMANDS]
)
def test_no_command_runs_what_lies_in_its_folder(name, planted):
    script = planted.parent / "script.py"
    script.write_text(SCRIPT)
    words = [word.replace("SCRIPT", f"{sys.executable} {script}") for word in shlex.split(COMMANDS[name])]
    run(planted, [OPTIM, *words])


@pytest.mark.prove
def test_nor_does_the_server_that_kernels_are_compared_with(planted):
    run(planted, [sys.executable, "-P", "-c", SERVER])


def test_compiled_loops_are_not_taken_from_where_a_file_of_the_folder_says(planted):
    """Numba reads a settings file in the current folder, which may set the folder of compiled code."""
    for name in ("yaml", "_yaml"):
        (planted / f"{name}.py").unlink(missing_ok=True)
    (planted / ".numba_config.yaml").write_text(f"cache_dir: {planted / 'loops'}\n")
    code = "import numba; from optim.compiled import cache_folder; print(numba.config.CACHE_DIR, cache_folder())"
    environment = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=planted, env=environment, capture_output=True, text=True, check=True
    )
    read, used = done.stdout.split()
    assert read == str(planted / "loops")
    assert not used.startswith(read)

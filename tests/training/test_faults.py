"""Random faults: each run ends with the undisturbed parameters, or with one line that gives the cause, and leaves no process."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.training.fault_run import KINDS, digest, draw, undisturbed, words

ROOT = Path(__file__).parents[2]
PATIENCE_S = 240


def begun(fault, folder):
    command = [sys.executable, "-m", "tests.support.training.fault_run", *words(fault, str(folder))]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=ROOT, env=environment, text=True, start_new_session=True, **pipes)


def left_behind(session):
    """Return the processes of a session that still exist."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(folder.name)
    return found


def ends_well(seed, folder):
    """Inject a fault and return whether the run ended as required."""
    fault = draw(seed)
    running = begun(fault, folder)
    if fault.kind == "controller":
        assert running.stdout.readline() == "running\n"
        time.sleep(0.1 * fault.victim)
        os.kill(running.pid, signal.SIGKILL)
        running.communicate(timeout=PATIENCE_S)
        wait_until_gone(running.pid)
        running = begun(fault, folder)
    said, errors = running.communicate(timeout=PATIENCE_S)
    wait_until_gone(running.pid)
    if running.returncode == 0:
        found = said.split()[-1]
        assert found == digest(undisturbed(fault)), fault
    else:
        assert running.returncode == 2, (fault, errors)
        (line,) = errors.strip().splitlines()
        assert line.startswith("error: "), fault
        assert REASONS[fault.kind] in line, fault
    may_fail = fault.kind in ("exception", "memory") or (
        fault.kind == "nan" and (fault.is_lasting or fault.non_finite == "stop")
    )
    assert (running.returncode == 2) == may_fail, (fault, errors)


REASONS = {"nan": "isn't finite", "exception": "ArithmeticError: bad data", "memory": "no shared memory"}


def wait_until_gone(session):
    end = time.monotonic() + PATIENCE_S
    while left := left_behind(session):
        assert time.monotonic() < end, f"processes {left} are left behind"
        time.sleep(0.05)


def test_all_kinds_of_faults_are_drawn():
    drawn = [draw(seed) for seed in range(200)]
    assert {fault.kind for fault in drawn} == set(KINDS)
    assert {fault.kind for fault in drawn if fault.options["replay_mb"] == 1.0} == set(KINDS)


@pytest.mark.prove
@pytest.mark.parametrize("seed", range(200))
def test_a_random_fault_ends_with_the_undisturbed_parameters_or_one_line(seed, tmp_path):
    ends_well(seed, tmp_path)

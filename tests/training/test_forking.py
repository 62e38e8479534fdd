"""The start of machines' processes: they are never forked from a process whose state differs from that of a spawned one."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from optim.training.processes import Environment

ROOT = Path(__file__).parents[2]


def told(code, **environment):
    """Run code that prints in a separate interpreter, since a process has one fork server."""
    head = "import os, signal, multiprocessing.forkserver as server\nfrom optim.training.processes import context_of\n"
    head += "def way(): print(context_of().get_start_method())\n"
    surroundings = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    found = subprocess.run(
        [sys.executable, "-c", head + code], env=surroundings, stdout=subprocess.PIPE, text=True, check=True
    )
    return found.stdout.split()


def test_machines_are_forked():
    assert told("way(); way()") == ["forkserver", "forkserver"]


def test_machines_are_not_forked_from_what_somebody_else_started():
    assert told("server.ensure_running(); way()") == ["spawn"]


@pytest.mark.prove
def test_machines_are_not_forked_from_what_read_other_settings_as_it_was_imported():
    code = 'way(); os.environ["JAX_ENABLE_X64"] = "1"; way(); del os.environ["JAX_ENABLE_X64"]; way()'
    assert told(code) == ["forkserver", "spawn", "forkserver"]


@pytest.mark.prove
def test_machines_are_forked_from_another_one_when_the_first_was_killed():
    code = """
way()
first = server._forkserver._forkserver_pid
os.kill(first, signal.SIGKILL)
os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
os.environ["XLA_FLAGS"] = ""
way()
assert server._forkserver._forkserver_pid != first
"""
    assert told(code) == ["forkserver", "forkserver"]


def test_machines_are_spawned_where_the_folder_for_temporary_files_has_too_long_a_name_for_sockets(tmp_path):
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    assert told("way()", TMPDIR=str(folder)) == ["spawn"]
    assert list(folder.iterdir()) == []


def test_an_environment_is_taken_over_before_what_is_sent_after_it(monkeypatch):
    sent = pickle.dumps((Environment(os.environ | {"OPTIM_TOLD": "7"}), Reading()))
    monkeypatch.setenv("OPTIM_TOLD", "3")
    assert pickle.loads(sent) == (None, "7")


class Reading:
    """Stands for a module that reads a variable when it is imported."""

    def __reduce__(self):
        return os.getenv, ("OPTIM_TOLD",)

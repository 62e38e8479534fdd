"""Which lines a test file runs."""

import sys

import pytest

from tests.mutants import trace
from tests.mutants.line_map import line_sets

# A trace forks before any thread of its own; JAX, where another test has imported it, warns of that.
pytestmark = [pytest.mark.prove, pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")]

TESTED = """
from optim.core.errors import hint

def test_asks():
    assert hint("serach", ["online", "search"])

def test_asks_nothing():
    pass
"""
STARTING = {
    "python": ("import subprocess, sys", "subprocess.run([sys.executable, '-c', ''], check=True)", "starts {python}"),
    "worker": (
        "import multiprocessing",
        "multiprocessing.get_context('spawn').Process(target=len).start()",
        "starts multiprocessing",
    ),
    "git": ("import subprocess", "subprocess.run(['git', '--version'], check=True)", ""),
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Notes are kept here."""
    monkeypatch.setattr(trace, "TRACED", tmp_path)
    return tmp_path


def traced(folder, text):
    path = folder / "test_it.py"
    path.write_text(text)
    return trace.trace(str(path), trace.OPTIONS, 60.0)


def test_notes_what_each_test_runs_and_what_it_costs(folder):
    told = traced(folder, TESTED)
    first, second = told["tests"].values()
    module = "optim/core/errors.py"
    text = (trace.ROOT / module).read_text()
    line = text[: text.index("    near = ")].count("\n") + 1
    assert not told["unseen"]
    assert line in line_sets(first["lines"])[module] <= line_sets(told["lines"])[module]
    assert not second["lines"]
    assert 0 <= first["seconds"] + second["seconds"] <= told["seconds"]


@pytest.mark.parametrize("child", STARTING)
def test_a_file_that_starts_another_python_is_not_seen_whole(folder, child):
    imported, started, unseen = STARTING[child]
    told = traced(folder, f"{imported}\ndef test_it():\n    {started}\n")
    assert told["unseen"] == unseen.format(python=sys.executable)


def test_a_file_that_fails_is_not_seen_whole(folder):
    assert traced(folder, "def test_it():\n    assert False\n")["unseen"] == "ends with 1"

"""A loop's steps are timed with a simulated clock, and written to the expected file."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from optim.core.errors import InvalidOptionError
from optim.profiling import StepTimer
from optim.profiling.step_timer import FIRST_STEPS, FOLDER_VARIABLE, WRITE_SHARE

ROOT = Path(__file__).parents[2]


class Hand:
    """A clock that the test moves."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    """The clock at 0."""
    return Hand()


def test_a_context_times_a_step_and_nothing_between_two(clock):
    timer = StepTimer(clock=clock)
    for seconds in (2.0, 3.0):
        with timer:
            clock.now += seconds
        clock.now += 100.0
    assert timer.seconds == [2.0, 3.0]


def test_a_call_ends_a_step_that_began_when_the_last_one_ended(clock):
    timer = StepTimer(clock=clock)
    for seconds in (2.0, 3.0):
        clock.now += seconds
        timer()
    assert timer.seconds == [2.0, 3.0]


def test_workers_that_run_in_turn_count_as_the_slowest_of_them(clock):
    timer = StepTimer(clock=clock)
    with timer:
        for seconds in (2.0, 5.0, 3.0):
            with timer.alone():
                clock.now += seconds
        clock.now += 1.0
    assert timer.seconds == [6.0]
    assert timer.alone_s == [5.0]


def test_a_step_that_fails_is_not_counted(clock):
    timer = StepTimer(clock=clock)
    with pytest.raises(ZeroDivisionError), timer:
        raise ZeroDivisionError
    assert timer.seconds == []


def test_results_are_waited_for_before_the_clock_is_read(clock):
    class Result:
        """A result on a device, whose computation takes time."""

        def block_until_ready(self):
            clock.now += 7.0

    timer = StepTimer(clock=clock)
    timer({"loss": [Result()]})
    with timer, timer.alone(Result):
        pass
    assert timer.seconds == [7.0, 7.0]


def test_what_was_measured_lies_where_the_profile_looks(tmp_path, monkeypatch, clock):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    model = {"inner": np.zeros((3, 4), np.float32), "outer": [np.zeros(2)]}
    timer = StepTimer(model=model, samples=100, batch=10, epochs=2, clock=clock)
    with timer:
        clock.now += 1.5
    (path,) = tmp_path.iterdir()
    record = json.loads(path.read_text())
    assert record["seconds"] == [1.5]
    assert record["model_bytes"] == 48 + 16
    assert (record["samples"], record["batch"], record["epochs"]) == (100, 10, 2)
    assert record["host_bytes"] > 1e6
    assert record["schema"] == "optim/steps/1"


def test_elsewhere_nothing_is_written(tmp_path, monkeypatch, clock):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    StepTimer(clock=clock)()
    assert list(tmp_path.iterdir()) == []
    StepTimer(clock=clock, path="own.json")()
    assert [path.name for path in tmp_path.iterdir()] == ["own.json"]


def test_a_modules_parameters_are_counted_in_bytes(clock):
    class Module:
        """Stands for PyTorch's."""

        def parameters(self):
            return iter([np.zeros(5, np.float32), np.zeros((2, 2), np.float16)])

    assert StepTimer(model=Module(), clock=clock).record()["model_bytes"] == 28


def test_writing_belongs_to_no_step_and_takes_little_of_a_long_loop(clock, tmp_path):
    timer = StepTimer(clock=clock, path=tmp_path / "steps.json")
    written = []

    def write():
        clock.now += 0.5
        written.append(len(timer.seconds))

    timer.write = write
    for _ in range(FIRST_STEPS + 40):
        clock.now += 1.0
        timer()
    assert timer.seconds == [1.0] * (FIRST_STEPS + 40), "though half a second went into writing between steps"
    assert written[:FIRST_STEPS] == list(range(1, FIRST_STEPS + 1))
    assert len(written) - FIRST_STEPS == 40 // (WRITE_SHARE // 2)


def test_what_was_not_written_yet_is_when_the_script_ends(tmp_path):
    script = "from optim.profiling import StepTimer; t = StepTimer(path='steps.json')\nfor _ in range(500): t()"
    subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True
    )
    assert len(json.loads((tmp_path / "steps.json").read_text())["seconds"]) == 500


def test_counts_of_numpy_are_pythons_own(tmp_path):
    timer = StepTimer(samples=np.int64(64), batch=np.uint8(8), epochs=np.float32(2.5), path=tmp_path / "steps.json")
    timer()
    told = json.loads((tmp_path / "steps.json").read_text())
    assert (told["samples"], told["batch"], told["epochs"]) == (64, 8, 2.5)


def test_bytes_of_all_links_but_the_machines_own_are_counted_both_ways(tmp_path, monkeypatch):
    lines = "two lines\nof headings\n    lo: {0} 1 0 0 0 0 0 0 {0} 1 0 0 0 0 0 0\n"
    lines += "  eth0: {1} 5 0 0 0 0 0 0 {2} 5 0 0 0 0 0 0\nib0:{3} 5 0 0 0 0 0 0 {4} 5 0 0 0 0 0 0\n"
    links = tmp_path / "dev"
    monkeypatch.setattr("optim.profiling.step_timer.NETWORK", links)
    links.write_text(lines.format(7, 1000, 200, 30, 4))
    timer = StepTimer()
    links.write_text(lines.format(90_000, 1000 + 5000, 200 + 600, 30 + 70, 4 + 8))
    assert timer.record()["network_bytes"] == 5000 + 600 + 70 + 8


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch": 0},
        {"batch": -8},
        {"samples": 64.5},
        {"samples": "64"},
        {"epochs": 0},
        {"epochs": np.nan},
        {"epochs": np.inf},
    ],
)
def test_work_that_no_job_can_have_is_refused_where_it_is_stated(wrong):
    with pytest.raises(InvalidOptionError, match=f"{next(iter(wrong))} must be"):
        StepTimer(**wrong)


def test_the_device_is_named_by_the_framework_that_computes(monkeypatch):
    assert StepTimer().record()["device"] == jax.devices()[0].device_kind
    cuda = SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, max_memory_allocated=lambda: 7, utilization=lambda: 50,
        get_device_name=lambda: "a card",
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    found = StepTimer().record()
    assert (found["device"], found["devices"], found["device_bytes"], found["device_share"]) == ("a card", 1, 7, 0.5)
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.delitem(sys.modules, "jax")
    assert StepTimer().record()["device"] is None

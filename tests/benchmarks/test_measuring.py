"""Measuring a block from outside, and racing: implementations take turns, and slow ones drop out."""

import json
import platform
import subprocess
import sys
import time
from pathlib import Path

import pytest

from optim.benchmarks import measuring
from optim.benchmarks.measuring import MIN_ROUNDS, SIDE_S, Meter, medians, race
from optim.core.progress import SilentProgress
from optim.core.stopping import IterationLimit, Never

MIB = 1 << 20


def test_wall_seconds_pass_asleep_and_processor_seconds_do_not():
    with Meter() as asleep:
        time.sleep(0.1)
    assert 0.1 <= asleep.wall_s < 60, "since the block began"
    assert asleep.processor_s < 0.09
    with Meter() as busy:
        until = time.process_time() + 0.05
        while time.process_time() < until:
            pass
    assert busy.processor_s >= 0.05


MEASURED = f"""
import json, sys, threading
import numpy as np
from optim.benchmarks.measuring import Meter

def measure():
    told = []
    for taken in ({MIB}, 48 * {MIB}):
        with Meter() as meter:
            np.ones(taken, np.uint8)
        told.append(meter.memory_mb)
    print(json.dumps(told))
"""
"""A program that reports the memory of two blocks."""


def measured(program):
    """Return the memory of a program's two blocks in a separate process, without the effects of other tests."""
    code = f"{MEASURED}\n{program}"
    told = json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("this system doesn't report a process' peak")
    return told


def test_memory_is_what_the_block_took_and_not_what_the_process_ever_held():
    small, large = measured("held = np.ones(64 * 2**20, np.uint8)\ndel held\nmeasure()")
    assert small < 16
    assert 40 < large < 64


def test_memory_that_was_free_in_the_heap_is_counted():
    small, large = measured("held = [np.ones(30 * 2**20, np.uint8) for _ in range(3)]\ndel held\nmeasure()")
    assert 0.5 < small < 16
    assert 40 < large < 64


@pytest.mark.parametrize(
    "program",
    [
        "thread = threading.Thread(target=measure)\nthread.start()\nthread.join()",
        "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"  # with two threads, glibc tries another arena
        "try:\n    np.ones(2**60, np.uint8)\nexcept MemoryError:\n    measure()",
    ],
    ids=["in a thread", "after it was refused"],
)
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries manage memory otherwise")
def test_memory_is_unknown_where_what_is_free_is_kept(program):
    assert measured(program) == [None, None]


def test_memory_is_unknown_where_the_system_does_not_tell(monkeypatch, tmp_path):
    monkeypatch.setattr(measuring, "_CLEAR", tmp_path / "no" / "such")
    with Meter() as found:
        pass
    assert found.memory_mb is None
    assert found.figures == {"wall_s": found.wall_s, "processor_s": found.processor_s, "memory_mb": None}


@pytest.fixture
def lasting(monkeypatch):
    """Return a function that makes calls of given durations on a fake clock."""
    now = [0.0]
    monkeypatch.setattr("optim.benchmarks.measuring.time.perf_counter", lambda: now[0])

    def side(seconds):
        def call():
            now[0] += seconds

        return call

    return side


def test_a_slow_side_leaves_the_race_and_the_others_go_on(lasting):
    calls = {"ours": lasting(SIDE_S), "slow": lasting(SIDE_S), "fast": lasting(1e-3)}
    times = race(calls, 6, Never(), SilentProgress(), always=("ours",))
    assert {name: len(taken) for name, taken in times.items()} == {"ours": 6, "slow": MIN_ROUNDS, "fast": 6}
    assert medians(times)["slow"] == pytest.approx(SIDE_S)


def test_a_race_of_slow_sides_alone_is_over_once_they_have_taken_their_time(lasting):
    times = race({"only": lasting(1.0)}, 50, Never(), SilentProgress(), side_s=4.5)
    assert len(times["only"]) == 5


def test_a_race_ends_when_it_is_told_to(lasting):
    times = race({"only": lasting(1e-3)}, 50, IterationLimit(3), SilentProgress())
    assert len(times["only"]) == 4


def test_medians_are_of_the_wall_clock_or_of_the_processor():
    times = {"a": [(1.0, 10.0), (3.0, 30.0), (2.0, 50.0)]}
    assert medians(times) == {"a": 2.0}
    assert medians(times, 1) == {"a": 30.0}

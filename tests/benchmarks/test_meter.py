"""Measuring a block from outside."""

import time

import numpy as np
import pytest

from optim.benchmarks import meter
from optim.benchmarks.meter import Meter

MIB = 1 << 20


def test_wall_seconds_pass_asleep_and_processor_seconds_do_not():
    with Meter() as asleep:
        time.sleep(0.1)
    assert asleep.wall_s >= 0.1
    assert asleep.processor_s < 0.09
    with Meter() as busy:
        until = time.process_time() + 0.05
        while time.process_time() < until:
            pass
    assert busy.processor_s >= 0.05


def test_memory_is_what_the_block_took_and_not_what_the_process_ever_held():
    held = np.ones(64 * MIB, np.uint8)
    del held
    with Meter() as small:
        np.ones(MIB, np.uint8)
    if small.memory_mb is None:
        pytest.skip("this system doesn't tell a process' peak")
    assert small.memory_mb < 16
    with Meter() as large:
        held = np.ones(48 * MIB, np.uint8)
        del held
    assert 40 < large.memory_mb < 64


def test_memory_is_unknown_where_the_system_does_not_tell(monkeypatch, tmp_path):
    monkeypatch.setattr(meter, "_CLEAR", tmp_path / "no" / "such")
    with Meter() as found:
        pass
    assert found.memory_mb is None
    assert found.figures == {"wall_s": found.wall_s, "processor_s": found.processor_s, "memory_mb": None}

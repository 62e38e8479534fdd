"""Memory is the process' own, whoever started it."""

import resource
import subprocess
import sys

import numpy as np
import pytest

from optim.core import process_memory
from optim.core.process_memory import peak_memory_bytes, status_kib

TELLS = "from optim.core.process_memory import peak_memory_bytes; print(peak_memory_bytes())"
linux = pytest.mark.skipif(status_kib("VmHWM") is None, reason="the system tells no peak of a process' own")


@linux
def test_a_small_process_that_a_large_one_starts_is_small():
    held = np.ones(300 * 2**17)  # 300 MiB
    done = subprocess.run([sys.executable, "-c", TELLS], capture_output=True, text=True, check=True)
    assert 5e6 < int(done.stdout) < 0.5 * held.nbytes
    assert peak_memory_bytes() > held.nbytes


def test_where_the_system_tells_nothing_of_it_getrusage_does(monkeypatch, tmp_path):
    monkeypatch.setattr(process_memory, "_STATUS", tmp_path / "absent")
    assert status_kib("VmHWM") is None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    monkeypatch.setattr(sys, "platform", "linux")
    assert peak_memory_bytes() >= most
    monkeypatch.setattr(sys, "platform", "darwin")
    assert peak_memory_bytes() < most

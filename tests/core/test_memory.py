"""What memory and which caches a process is told of; what it holds is its own, whoever started it."""

import resource
import subprocess
import sys

import numpy as np
import pytest

from optim.core import limits

MIB = 2**20


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A system of the test's own: folders and files that say nothing until they are written."""
    monkeypatch.setattr(limits, "CACHES", tmp_path / "cache")
    monkeypatch.setattr(limits, "CONTROL_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(limits, "OWN_GROUP", tmp_path / "cgroup")
    monkeypatch.setattr(limits, "FREE_MEMORY", tmp_path / "meminfo")
    monkeypatch.setattr(limits, "OWN_MEMORY", tmp_path / "status")

    def write(path, text):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    return write


def test_the_largest_cache_of_the_first_core_counts(system):
    assert limits.last_level_cache() == 32 * MIB, "a usual size where the system doesn't tell"
    for name, size in (("index0", "48K"), ("index2", "2M"), ("index3", "33M\n")):
        system(f"cache/{name}/size", size)
    assert limits.last_level_cache() == 33 * MIB


def test_the_least_limit_of_all_groups_above_the_process_holds(system):
    system("meminfo", "MemTotal: 24000000 kB\nMemAvailable: 23000000 kB\n")
    assert limits.memory_allowed() == 23_000_000 * 1024
    system("meminfo", "MemAvailable: 9000000000000 kB\n")
    assert limits.memory_allowed() == 9_000_000_000_000 * 1024, "what is said to be free is asked of nobody else"
    system("meminfo", "MemAvailable: 23000000 kB\n")
    system("cgroup", "0::/pod/job\n")
    system("groups/memory.max", "max\n")
    system("groups/pod/job/memory.max", "max\n")
    assert limits.memory_allowed() == 23_000_000 * 1024, "no limit is none"
    system("groups/pod/memory.max", "4294967296\n")
    assert limits.memory_allowed() == 2**32
    system("groups/memory/pod/job/memory.limit_in_bytes", "1073741824\n")
    assert limits.memory_allowed() == 2**30, "the older version's files"


def test_the_machines_memory_counts_where_nothing_else_is_told(system):
    assert limits.memory_allowed() > 0


@pytest.mark.parametrize(("cache", "allowed", "size"), [(32, 24_000, 128), (480, 24_000, 1920), (480, 4_000, 1000)])
def test_a_working_set_is_four_caches_or_a_quarter_of_the_memory(cache, allowed, size):
    assert limits.working_set(cache * MIB, allowed * MIB) == size * MIB


TELLS = "from optim.core.limits import peak_memory; print(peak_memory())"


@pytest.mark.skipif(limits.own_memory("VmHWM") is None, reason="the system tells no peak of a process' own")
def test_a_small_process_that_a_large_one_starts_is_small():
    held = np.ones(300 * 2**17)  # 300 MiB
    done = subprocess.run([sys.executable, "-c", TELLS], capture_output=True, text=True, check=True)
    assert 5 * MIB < int(done.stdout) < 0.5 * held.nbytes
    assert limits.peak_memory() > held.nbytes


def test_what_the_process_holds_is_read_line_by_line(system):
    system("status", "Name:\tpython\nVmHWMs:\t 9 kB\nVmHWM:\t 7 kB\nVmRSS:\t 5 kB\n")
    assert (limits.own_memory("VmHWM"), limits.own_memory("VmRSS")) == (7 * 1024, 5 * 1024)
    assert limits.own_memory("VmSwap") is None
    assert limits.peak_memory() == 7 * 1024


def test_where_the_system_tells_nothing_of_it_getrusage_does(system, monkeypatch):
    del system
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    monkeypatch.setattr(sys, "platform", "linux")
    assert limits.peak_memory() >= most
    monkeypatch.setattr(sys, "platform", "darwin")
    assert limits.peak_memory() < most

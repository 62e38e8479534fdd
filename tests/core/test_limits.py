"""Limits of the readers, and the memory and caches that the operating system reports."""

import resource
import subprocess
import sys
from dataclasses import fields

import numpy as np
import pytest

from optim.core import limits
from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.core.limits import DEFAULTS, ReadLimits, check_drawn, check_limit, current_limits, read_limits


def test_the_defaults_are_above_what_is_promised():
    assert DEFAULTS.cells > 10_000 * 1_000
    assert DEFAULTS.rows > 10_000 * 40_320 > 300_000
    assert DEFAULTS.count >= 10_000
    assert DEFAULTS.document_bytes > 10_000 * 1_000 * 20
    assert DEFAULTS.table_bytes > 10_000 * 40_320 * 60


def test_limits_are_changed_inside_the_block_only():
    with read_limits(rows=5) as limits:
        assert limits == current_limits() == ReadLimits(rows=5)
        with read_limits(columns=7):
            assert current_limits() == ReadLimits(rows=5, columns=7)
        assert current_limits() == ReadLimits(rows=5)
    assert current_limits() == DEFAULTS


def test_unknown_limits_and_such_below_one_are_refused():
    with (
        pytest.raises(InvalidOptionError, match="unknown limit 'size'; there are: document_bytes"),
        read_limits(size=1),
    ):
        pass
    for field in fields(ReadLimits):
        with pytest.raises(InvalidOptionError, match=f"limit {field.name} must be at least 1, got 0"):
            ReadLimits(**{field.name: 0})
        assert getattr(ReadLimits(**{field.name: 1}), field.name) == 1


def test_a_limit_may_be_met_but_not_exceeded():
    with read_limits(count=3):
        check_limit("count", 3, "machines")
        with pytest.raises(InvalidProblemError, match=r"machines: at most 3 are read, got 4; .*optim --limit count=N"):
            check_limit("count", 4, "machines")


def test_what_is_drawn_may_meet_a_limit_and_not_exceed_it():
    with read_limits(count=3):
        check_drawn("count", 3, "num_jobs")
        with pytest.raises(
            InvalidOptionError, match=r"num_jobs: at most 3 are generated, got 4; .*optim --limit count=N"
        ):
            check_drawn("count", 4, "num_jobs")


def test_the_remedy_is_named_for_the_command_and_for_python():
    with pytest.raises(InvalidProblemError, match=r"'optim --limit rows=N' \(in Python: .*read_limits\(rows=N\)"):
        check_limit("rows", DEFAULTS.rows + 1, "table")


MIB = 2**20


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A fake operating system: folders and files that are empty until they are written."""
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
    assert limits.last_level_cache() == 32 * MIB, "a usual size where the system reports none"
    for name, size in (("index0", "48K"), ("index2", "2M"), ("index3", "33M\n")):
        system(f"cache/{name}/size", size)
    assert limits.last_level_cache() == 33 * MIB


def test_the_least_limit_of_all_groups_above_the_process_holds(system):
    system("meminfo", "MemTotal: 24000000 kB\nMemAvailable: 23000000 kB\n")
    assert limits.memory_allowed() == 23_000_000 * 1024
    system("meminfo", "MemAvailable: 9000000000000 kB\n")
    assert limits.memory_allowed() == 9_000_000_000_000 * 1024, "the stated free memory is asked only once"
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


@pytest.mark.skipif(limits.own_memory("VmHWM") is None, reason="the system reports no peak of a process")
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

"""Settings of the test run: the number of random examples, and their seed."""

import gc
import os
import re
import resource
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Machines that run tests may be busy, so no test depends on a time.
UNTIMED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("test", max_examples=25, **UNTIMED)
settings.register_profile("prove", max_examples=200, **UNTIMED)
settings.register_profile("dev", max_examples=10, **UNTIMED)

# Compiling is most of the cost of tests, and optimising is most of compiling. Tests marked `prove`, and all of
# `make prove`, run the code that users run.
QUICKLY_COMPILED = {
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "true",
    "JAX_ENABLE_COMPILATION_CACHE": "false",  # without a folder JAX would still serialise each program for its key
    "NUMBA_OPT": "1",
    "NUMBA_LOOP_VECTORIZE": "0",
    "NUMBA_SLP_VECTORIZE": "0",
}

GC_THRESHOLDS = (20_000, 20, 20)
"""Collect garbage less often than by default: reference counts free most objects of a test."""

settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "test"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the file of a run that may be stopped and resumed."""
    parser.addoption(
        "--resume", type=Path, metavar="FILE", help="record passed tests in FILE, and leave out the recorded ones"
    )


def is_quick(config: pytest.Config) -> bool:
    """Return whether a run compiles quickly: by its profile of Hypothesis, otherwise unless it selects tests marked `prove`."""
    profile = config.option.hypothesis_profile
    if profile is not None:
        return bool(profile != "prove")
    return re.search(r"(?<!or )\bnot prove\b", config.option.markexpr) is not None


@pytest.hookimpl(tryfirst=True)  # before Hypothesis reads the option; workers get the option of the main process
def pytest_configure(config: pytest.Config) -> None:
    """Draw one fresh seed for all properties of this run, unless a run is replayed; collect tests without garbage collection."""
    gc.disable()
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(secrets.randbelow(2**32))
    os.environ.setdefault("NUMBA_NRT_STATS", "1")  # a test counts the arrays that compiled loops leave behind
    if is_quick(config):
        for name, value in QUICKLY_COMPILED.items():
            os.environ.setdefault(name, value)  # JAX and Numba read these at import, in child processes as well
    if config.option.resume is not None:
        from tests.support.resume import Resume

        config.pluginmanager.register(Resume(config.option.resume))


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_setupnodes() -> None:
    """Compile loops once, before several workers would compile them side by side."""
    command = [sys.executable, "-m", "tests.support.warm_up"]
    if subprocess.run(command, cwd=Path(__file__).parents[1], check=False).returncode:
        raise pytest.UsageError(f"compiling failed: see what `{' '.join(command)}` says")


def pytest_collection_finish() -> None:
    """Collect garbage again, except for the objects that importing made."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()


class Forgetting:
    """Free compiled code of tests, which would add up to gigabytes, whenever the process has grown by a given amount."""

    growth_bytes = 250 * 2**20

    def __init__(self) -> None:
        self.max_bytes = self.resident_bytes() + self.growth_bytes

    @staticmethod
    def resident_bytes() -> int:
        """Return the memory of the process; without Linux' files, its maximum so far."""
        try:
            return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
        except OSError:
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def __call__(self) -> None:
        if "jax" in sys.modules and self.resident_bytes() > self.max_bytes:
            sys.modules["jax"].clear_caches()
            gc.collect()
            self.max_bytes = self.resident_bytes() + self.growth_bytes


@pytest.fixture(autouse=True, scope="session")
def wait_for_no_disk() -> Iterator[None]:
    """Don't wait until writes are on the disk: tests write thousands of small files, and needn't survive a power failure."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session")
def forgetting() -> Forgetting:
    """Create the fixture's state with the initial size of the process."""
    return Forgetting()


@pytest.fixture(autouse=True, scope="module")
def forget_what_jax_compiled(forgetting: Forgetting) -> Iterator[None]:
    """Check after each module whether the process has grown."""
    yield
    forgetting()


@pytest.fixture
def heeded_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt, also where a shell started the tests in the background and ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def pytest_report_header(config: pytest.Config) -> str:
    """Print the option that replays this run."""
    return f"random examples: profile {settings.get_current_profile_name()}, replay with {replay(config)}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the option again below the failures."""
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        terminalreporter.write_line(f"The same random examples: {replay(config)}", yellow=True)


def replay(config: pytest.Config) -> str:
    """Return the option that repeats this run's examples."""
    return f"--hypothesis-seed={config.option.hypothesis_seed}"

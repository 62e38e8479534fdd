"""A process that has imported what all tests import, and forks one child a test run: a run starts in no time.

Requests come as lines of JSON on the standard input: `{"arguments": [...], "limit_s": 60}`; the answer to each is a line
of JSON: `{"outcome": "passed" | "failed" | "timeout" | "broken", "test": "the test that failed first"}`.
"""

import gc
import json
import os
import signal
import sys
import time
import traceback
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path

IMPORTED = (
    "pytest", "hypothesis.strategies", "hypothesis.stateful", "numpy", "scipy.sparse", "scipy.optimize", "scipy.stats", "pandas",
    "jax.numpy", "numba", "highspy", "networkx", "msgspec", "typer.testing", "rich.progress", "_hypothesis_pytestplugin", "xdist.plugin", "nbmake.pytest_plugin",
)  # fmt: skip
POLL_S = 0.01


class FirstFailure:
    """Remembers the test that failed first."""

    test = ""

    def pytest_runtest_logreport(self, report):
        """Keep the first failing test's name."""
        if report.failed and not self.test:
            self.test = report.nodeid

    def pytest_collectreport(self, report):
        """A module that can't be collected fails, too."""
        if report.failed and not self.test:
            self.test = report.nodeid


def run_here(arguments: list[str], told: int) -> None:
    """Run pytest in this process and tell the outcome; never returns."""
    import pytest

    os.setpgid(0, 0)
    silent = os.open(os.environ.get("MUTANTS_LOG", os.devnull), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (0, 1, 2):
        os.dup2(silent, stream)
    first = FirstFailure()
    # Plug-ins imported before pytest started can't have their asserts rewritten, which hurts nobody.
    code = pytest.main(["-W", "ignore::pytest.PytestAssertRewriteWarning", *arguments], plugins=[first])
    # 1: tests failed; 2: interrupted, as by an error while collecting; 5: no tests.
    outcome = {0: "passed", 1: "failed", 2: "failed", 5: "passed"}.get(int(code), "broken")
    sys.stdout.flush()
    os.write(told, json.dumps({"outcome": outcome, "test": first.test}).encode())
    os._exit(0)


def run(arguments: list[str], limit_s: float) -> dict[str, str]:
    """Run pytest in a child, at most so long, and return what it told."""
    heard, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(heard)
        try:
            run_here(arguments, told)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(70)  # without an answer: "broken"
    os.close(told)
    end = time.monotonic() + limit_s
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if time.monotonic() > end:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(heard)
            return {"outcome": "timeout", "test": ""}
        time.sleep(POLL_S)
    answer = os.read(heard, 1 << 16)
    os.close(heard)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what a test has left running
    return json.loads(answer) if answer else {"outcome": "broken", "test": ""}


def main() -> None:
    """Answer requests until the input ends."""
    warnings.filterwarnings("ignore", message=".*fork.*")
    sys.path.insert(0, str(Path.cwd()))
    for name in IMPORTED:
        import_module(name)
    gc.freeze()  # children needn't walk over it
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(run(request["arguments"], request["limit_s"])), flush=True)


if __name__ == "__main__":
    main()

"""Resume a stopped run of tests: passed tests are recorded at once, and left out next time.

Skipped tests run again, since their requirements may be met by then.
"""

from pathlib import Path

import pytest


class Resume:
    """Record passed tests by name, in a file for one state of the sources.

    Parameters
    ----------
    path
        A line a test; made with its folder when the first test has passed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._passed: set[str] = set()
        self._is_noting = True

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Deselect the recorded tests."""
        noted = set(self._path.read_text().splitlines()) if self._path.exists() else set()
        left_out = [item for item in items if item.nodeid in noted]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if item.nodeid not in noted]

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Record nothing in a worker: the process that started it receives its reports as well."""
        self._is_noting = not hasattr(config, "workerinput")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record a passed test, after its fixtures have ended without errors."""
        if report.passed and report.when == "call":
            self._passed.add(report.nodeid)
        if self._is_noting and report.passed and report.when == "teardown" and report.nodeid in self._passed:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a") as file:
                file.write(report.nodeid + "\n")

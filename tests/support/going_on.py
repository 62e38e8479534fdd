"""Let a long run of tests go on where it stopped: tests that passed are noted at once, and left out next time."""

from pathlib import Path

import pytest


class GoingOn:
    """Notes by name what passed or was skipped, in a file that is of one state of the sources.

    Parameters
    ----------
    path
        A line a test; made with its folder when the first test has passed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._failed: set[str] = set()
        self._is_noting = True

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out what is noted."""
        noted = set(self._path.read_text().splitlines()) if self._path.exists() else set()
        left_out = [item for item in items if item.nodeid in noted]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if item.nodeid not in noted]

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Note nothing in a worker: its reports are told to the process that started it, too."""
        self._is_noting = not hasattr(config, "workerinput")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that has ended well, its fixtures' end included."""
        if report.failed:
            self._failed.add(report.nodeid)
        if self._is_noting and report.when == "teardown" and report.nodeid not in self._failed:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a") as file:
                file.write(report.nodeid + "\n")

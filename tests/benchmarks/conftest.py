"""The dummy solvers' fixtures for the tests of this folder; and whatever studies find in them is kept."""

import sys
from pathlib import Path

import pytest

from optim.benchmarks.study import AbstractStudy
from tests.support.kept import assert_kept

PLUGIN = str(Path(__file__).parent.parent / "plugin")
if PLUGIN not in sys.path:
    sys.path.insert(0, PLUGIN)

from dummy_fixtures import dummies, plugin_environment

__all__ = ["dummies", "plugin_environment"]

NOISY = ("crbm", "densities", "forecast", "fractional", "kernels", "phases", "recommendation", "time-shares", "traps")
"""Studies whose findings come from single precision, or from iterations that stop at a tolerance."""


@pytest.fixture(autouse=True)
def findings_are_kept(request, monkeypatch):
    """Compare what studies find in a test, in their order, with what is kept beside it."""
    found, run = [], AbstractStudy.run

    def told(work, stop, progress):
        record = run(work, stop, progress)
        if work.time_limit_s is None and record.termination == "completed" and work.suite not in NOISY:
            found.append(
                [record.instance, record.solver, record.labels, record.parameters, record.findings, record.violations]
            )
        return record

    monkeypatch.setattr(AbstractStudy, "run", told)
    yield
    if found:
        place = request.path
        assert_kept(place.parent / "kept" / f"{place.stem}.json", {request.node.name: found}, is_part=True)

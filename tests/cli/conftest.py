"""The dummy solvers' fixtures for the tests of this folder."""

import sys
from pathlib import Path

import pytest

from optim.core.registry import REGISTRY
from optim.models.catalogue import problem_names
from optim.solvers.solve import solvers_of

PLUGIN = str(Path(__file__).parent.parent / "plugin")
if PLUGIN not in sys.path:
    sys.path.insert(0, PLUGIN)

from dummy_fixtures import dummies, plugin_environment

__all__ = ["dummies", "plugin_environment"]


@pytest.fixture
def registry(monkeypatch):
    """Remove the solvers that a test registered."""
    for problem in problem_names():  # otherwise modules that a test loads first would be unloaded after it
        solvers_of(problem)
    monkeypatch.setattr(REGISTRY, "_items", dict(REGISTRY._items))

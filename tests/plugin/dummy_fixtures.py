"""Fixtures that make the dummy solvers known: in this process for one test, and in its children."""

import os
import sys
from pathlib import Path

import pytest
from dummy_solvers import DUMMIES
from dummy_suite import SPEC

from optim.benchmarks.suite import SUITES
from optim.core.registry import REGISTRY

FOLDER = Path(__file__).parent
INSTALLED = FOLDER / "installed"
"""Holds the entry points: on the path only where the dummies are meant to be found."""


@pytest.fixture
def dummies(monkeypatch):
    """Register the dummies here, for one test; spawned children find them as a plug-in."""
    for table in (REGISTRY, SUITES):
        list(table)  # installed solvers are registered before the plug-in can be found
    for name, kind in DUMMIES.items():
        solver = type(kind.__name__, (kind,), {"name": name, "problem": "admission"})()
        monkeypatch.setitem(REGISTRY._items, ("admission", name), solver)
    monkeypatch.setitem(SUITES._items, SPEC.name, SPEC)
    monkeypatch.setattr(sys, "path", [*sys.path, str(INSTALLED)])


@pytest.fixture
def plugin_environment():
    """Give the environment of a subprocess in which the dummy solvers are an installed plug-in."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    path = [str(FOLDER), str(INSTALLED), *filter(None, [environment.get("PYTHONPATH")])]
    return environment | {"PYTHONPATH": os.pathsep.join(path)}

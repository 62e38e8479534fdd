"""The dummy solvers' fixtures for the tests of this folder."""

import sys
from pathlib import Path

PLUGIN = str(Path(__file__).parent.parent / "plugin")
if PLUGIN not in sys.path:
    sys.path.insert(0, PLUGIN)

from dummy_fixtures import dummies, plugin_environment

__all__ = ["dummies", "plugin_environment"]

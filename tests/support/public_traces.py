"""Location of the public traces, which are not part of the repository; without them, tests that need them are skipped."""

import os
from pathlib import Path

import pytest

TRACE_DIR = Path(os.environ.get("OPTIM_TRACE_DIR", Path(__file__).resolve().parents[3] / "shared" / "data"))
"""Folder that holds the folders `cluster` and `spot` of the traces: OPTIM_TRACE_DIR, or a sibling of the repository."""


def trace_file(name: str) -> Path:
    """Return the path of a trace under `cluster`, or skip the test."""
    path = TRACE_DIR / "cluster" / name
    if not path.is_file():
        pytest.skip(f"the public trace {name} is not there; set OPTIM_TRACE_DIR to the folder that has it")
    return path


def spot_file(name: str) -> Path:
    """Return the path of a file under `spot`, or skip the test."""
    path = TRACE_DIR / "spot" / name
    if not path.is_file():
        pytest.skip(f"the public file {name} is not there; set OPTIM_TRACE_DIR to the folder that has it")
    return path


def small_file(folder: str, name: str) -> Path:
    """Return the path of a small table under `operators` or `reports`, or skip the test."""
    path = TRACE_DIR / folder / name
    if not path.is_file():
        pytest.skip(f"the small table {folder}/{name} is not there; set OPTIM_TRACE_DIR to the folder that has it")
    return path

"""The wheels and the source archive, built once from this tree."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = "import sys, uv_build; print(getattr(uv_build, 'build_' + sys.argv[1])(sys.argv[2]))"


def _built(kind: str, goal: Path, source: Path = ROOT) -> Path:
    """Build the wheel (sdist) of a folder with the backend that its pyproject.toml names; return its path."""
    # The backend's binary is next to this interpreter, which may not be on the path.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", BUILD, kind, str(goal)],
        cwd=source, env={**os.environ, "PATH": path}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return goal / done.stdout.strip().splitlines()[-1]


@pytest.fixture(name="wheel", scope="session")
def fixture_wheel(tmp_path_factory):
    return _built("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(name="sdist", scope="session")
def fixture_sdist(tmp_path_factory):
    return _built("sdist", tmp_path_factory.mktemp("sdist"))


@pytest.fixture(name="studies_wheel", scope="session")
def fixture_studies_wheel(tmp_path_factory):
    return _built("wheel", tmp_path_factory.mktemp("studies"), ROOT / "studies")

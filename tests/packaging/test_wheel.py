"""The wheel and the source archive hold the package, all of it and nothing else, and it runs from there."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(name="tracked", scope="module")
def fixture_tracked():
    """What git tracks of the package, as paths from the repository's root."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: there is nothing to compare with")
    listed = subprocess.run(["git", "ls-files", "optim"], cwd=ROOT, check=True, capture_output=True, text=True)
    return {path for path in listed.stdout.splitlines() if (ROOT / path).exists()}


def untracked() -> set[str]:
    """Files of a working tree that git neither tracks nor ignores: a wheel built from it holds them too."""
    command = ["git", "ls-files", "--others", "--exclude-standard", "optim"]
    return set(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines())


def test_the_wheel_holds_what_git_tracks(wheel, tracked):
    held = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("optim/") and not name.endswith("/")}
    assert held - untracked() == tracked


def test_the_wheel_holds_the_licence_and_no_other_package(wheel):
    opened = zipfile.ZipFile(wheel)
    names = opened.namelist()
    (metadata,) = (opened.read(name).decode() for name in names if name.endswith(".dist-info/METADATA"))
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    for file in ("LICENSE", "LICENCES.md"):
        assert f"\nLicense-File: {file}\n" in metadata
        (held,) = (opened.read(name) for name in names if name.endswith(f".dist-info/licenses/{file}"))
        assert held == (ROOT / file).read_bytes()
    assert {name.split("/")[0] for name in names} == {"optim", f"{'-'.join(wheel.name.split('-')[:2])}.dist-info"}


@pytest.mark.prove
def test_the_source_archive_holds_the_package_too(sdist, tracked):
    with tarfile.open(sdist) as opened:
        held = {
            name.split("/", 1)[1] for name in opened.getnames() if "/optim/" in name and not name.endswith("/optim")
        }
    assert tracked <= held


def test_runs_from_the_wheel_alone(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    script = (
        "import optim, pathlib, sys; assert pathlib.Path(optim.__file__).is_relative_to(pathlib.Path.cwd());"
        "from optim.cli.main import main; sys.argv[1:] = ['instance', 'describe', 'tiny-0']; main()"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "worker servers" in done.stdout or "jobs" in done.stdout

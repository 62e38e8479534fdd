"""The wheel and the source archive contain exactly the package, and it runs from there."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(name="tracked", scope="module")
def fixture_tracked():
    """The package's files tracked by git, as paths from the repository's root."""
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


def run_optim(folder, *words):
    """Run the command with a folder first on the path, and without the packages that this environment has in editable form."""
    script = (
        "import optim, pathlib, sys; assert pathlib.Path(optim.__file__).is_relative_to(sys.argv[1]);"
        "from optim.cli.main import main; del sys.argv[1]; main()"
    )
    env = {**os.environ, "PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-c", script, str(folder), *words]
    return subprocess.run(command, check=False, cwd=folder, env=env, capture_output=True, text=True)


@pytest.fixture(name="unpacked", scope="module")
def fixture_unpacked(wheel, tmp_path_factory):
    """Unpack the wheel of the library."""
    folder = tmp_path_factory.mktemp("unpacked")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


def test_describes_an_instance_from_the_wheel_alone(unpacked):
    done = run_optim(unpacked, "instance", "describe", "tiny-0")
    assert done.returncode == 0, done.stderr
    assert "worker servers" in done.stdout or "jobs" in done.stdout


@pytest.mark.prove
def test_benchmarks_from_the_wheel_alone(unpacked):
    """The suites of the solvers are part of the library, without a module of the studies."""
    script = "import sys; sys.modules['optim_studies'] = None\n"
    (unpacked / "sitecustomize.py").write_text(script)
    done = run_optim(unpacked, "bench", "auction", "--apps", "6", "--gpus", "16", "--machines", "4")
    (unpacked / "sitecustomize.py").unlink()
    assert done.returncode == 0, done.stderr
    assert "greedy" in done.stdout


@pytest.fixture(name="studies", scope="module")
def fixture_studies(studies_wheel):
    """Open the wheel of the studies."""
    return zipfile.ZipFile(studies_wheel)


def test_the_wheel_of_the_studies_holds_the_files_that_git_tracks(studies):
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: there is nothing to compare with")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "optim_studies"]
    listed = subprocess.run(command, cwd=ROOT / "studies", check=True, capture_output=True, text=True)
    names = {name for name in studies.namelist() if not name.endswith("/") and ".dist-info/" not in name}
    assert names == {path for path in listed.stdout.splitlines() if (ROOT / "studies" / path).exists()}
    assert "optim_studies/kernels/loops.c" in names


def test_the_wheel_of_the_studies_needs_the_library_of_its_version(studies):
    (metadata,) = (studies.read(name).decode() for name in studies.namelist() if name.endswith("/METADATA"))
    version = re.search(r"^Version: (.+)$", metadata, re.M)
    assert version is not None
    assert version[1] == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"\nRequires-Dist: mlcluster-optim[all]=={version[1]}\n" in metadata


def test_every_study_is_an_entry_point(studies):
    """A module that registers a suite is named in the group of the suites, under the name of its suite."""
    (text,) = (studies.read(name).decode() for name in studies.namelist() if name.endswith("/entry_points.txt"))
    assert text.startswith("[optim.suites]\n")
    named = set(re.findall(r"^[\w-]+ ?= ?([\w.]+)$", text, re.M))
    calls = re.compile(r"^(?:\w+ = )?register_(?:suite|study|solver_suite)\(", re.M)
    registering = {
        name.removesuffix(".py").replace("/", ".")
        for name in studies.namelist()
        if name.endswith(".py") and calls.search(studies.read(name).decode())
    }
    assert named == registering

"""A release's files install into an empty environment of every supported Python, and the command answers from there."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import optim
from tests.packaging.test_release_files import PROJECT

VERSIONS = ("3.11", "3.12", "3.13")
MOST_BYTES = 10**9
"""Of an installation without extras, byte code included."""
MOST_PACKAGES = 40
SCRIPT = """
import json, pathlib, sys
import cvxpy, highspy, jax, networkx, numpy, pyomo, optim
from importlib.metadata import distributions
instance = optim.reference_instance("tiny-0")
solution = optim.solve(instance, "compact-milp", seed=0)
print(json.dumps({
    "python": "%d.%d" % sys.version_info[:2],
    "is_inside": pathlib.Path(optim.__file__).is_relative_to(sys.prefix),
    "is_ok": optim.verify(instance, solution).is_ok,
    "objective": solution.objective,
    "packages": sorted({d.name.lower() for d in distributions()} - {"pip", "setuptools"}),
}))
"""


def run(words, folder):
    """Run a command in a folder, without the settings for Python in this process' environment."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)


def interpreter(version: str) -> str:
    """Return an interpreter of a version, or skip the test: on the path, or among pyenv's."""
    name = f"python{version}"
    folders = [Path(one) for one in os.environ.get("PATH", "").split(os.pathsep)]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for path in (*(folder / name for folder in folders), *sorted(pyenv.glob(f"{version}.*/bin/{name}"))):
        # Some only imitate an interpreter, or lack the parts of an environment.
        if path.exists() and run([path, "-c", "import venv, ensurepip"], path.parent).returncode == 0:
            return str(path)
    pytest.skip(f"no Python {version} with venv here")


@pytest.fixture(name="environment")
def fixture_environment(tmp_path):
    """Give a function that makes an empty environment of a version; it is removed afterwards, for it is large."""
    folder = tmp_path / "environment"

    def make(version):
        subprocess.run([interpreter(version), "-m", "venv", folder], check=True, capture_output=True)
        return folder

    yield make
    shutil.rmtree(folder, ignore_errors=True)


def install(environment, archive, folder):
    """Install an archive with its dependencies; skip the test if no package index answers."""
    pip = [environment / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    asked = run([*pip, "--dry-run", "--no-deps", "--retries", "0", "msgspec"], folder)
    if asked.returncode != 0:
        pytest.skip("no package index answers here")
    done = run([*pip, archive], folder)
    assert done.returncode == 0, done.stderr[-3000:]


def size_of(environment):
    """Return the bytes on disk of an environment's packages, without those of the installer."""
    (packages,) = environment.glob("lib/python3.*/site-packages")
    own = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence")
    ours = [path for path in packages.iterdir() if not path.name.startswith(own)]
    files = {path for one in ours for path in (one, *one.rglob("*"))}
    return sum(path.lstat().st_blocks * 512 for path in files)


@pytest.mark.prove
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_answers_from_a_fresh_environment(kind, version, environment, request, tmp_path):
    place = environment(version)
    install(place, request.getfixturevalue(kind), tmp_path)
    done = run([place / "bin" / "python", "-c", SCRIPT], tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["is_inside"]
    assert told["is_ok"]
    assert told["python"] == version
    assert told["objective"] == pytest.approx(optim.solve(optim.reference_instance("tiny-0"), "compact-milp").objective)
    assert len(told["packages"]) <= MOST_PACKAGES
    assert size_of(place) <= MOST_BYTES
    for words in (["--version"], ["instance", "describe", "small-0"], ["solvers", "bidding"]):
        assert run([place / "bin" / "optim", *words], tmp_path).returncode == 0


def test_every_supported_python_is_tried():
    named = {line.rsplit(" ", maxsplit=1)[1] for line in PROJECT["classifiers"] if ":: 3." in line}
    assert named == set(VERSIONS)


@pytest.mark.prove
def test_the_list_of_parts_names_what_a_release_installs(environment, tmp_path):
    """Made by its target, as for a release; the versions are the pinned ones, and every package states its licence."""
    root = Path(__file__).parents[2]
    install(environment("3.11"), "msgspec", tmp_path)  # or skip: no index answers
    goal = tmp_path / "sbom.json"
    done = run(["make", "sbom", f"SBOM={goal}"], root)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(goal.read_text())
    assert told["bomFormat"] == "CycloneDX"
    assert (told["metadata"]["component"]["name"], told["metadata"]["component"]["version"]) == (
        PROJECT["name"],
        PROJECT["version"],
    )
    parts = {part["name"].lower().replace("_", "-"): part for part in told["components"]}
    assert {"numpy", "highspy", "jax", "pandas", "matplotlib", "distributed"} <= set(parts)
    assert not {"pytest", "ruff", "mypy", "pip"} & set(parts), "tools are no parts"
    pins = dict(re.findall(r"^([\w.-]+)==([^ ]+)", (root / "constraints.txt").read_text(), re.M))
    assert {
        name: part["version"] for name, part in parts.items() if name in pins and part["version"] != pins[name]
    } == {}
    assert [name for name, part in parts.items() if not part.get("licenses")] == []
    assert str(root) not in goal.read_text()
    assert "://" not in "".join(str(part.get("purl", "")) for part in told["components"])

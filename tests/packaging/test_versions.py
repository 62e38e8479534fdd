"""Three sets of versions: for development, the oldest supported, and the newest that the index had."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

NOT_HELD = {"basedpyright", "mypy", "ruff", "uv-build"}
"""Linters and the builder: their versions don't change the installed files."""


def promised() -> list[Requirement]:
    """Return the dependencies of the package and its extras, without itself."""
    optional = PROJECT["optional-dependencies"].values()
    found = [Requirement(text) for texts in (PROJECT["dependencies"], *optional) for text in texts]
    return [one for one in found if one.name != PROJECT["name"]]


def pinned(name: str) -> list[Requirement]:
    """Return the pins of a set, with their conditions; hashes are on separate lines."""
    lines = (ROOT / name).read_text().splitlines()
    return [Requirement(line.rstrip(" \\")) for line in lines if line and not line.startswith(("#", " "))]


def version_of(pin: Requirement) -> Version:
    """Return the one version that a pin allows."""
    (only,) = pin.specifier
    assert only.operator == "=="
    return Version(only.version)


def test_the_oldest_set_is_what_is_promised_and_no_more() -> None:
    """torch is compared with where it is, and documents are built with the newest."""
    least = {
        canonicalize_name(one.name): Version(spec.version)
        for one in promised()
        for spec in one.specifier
        if spec.operator == ">="
    }
    outside = (
        NOT_HELD
        | {"torch"}
        | {canonicalize_name(Requirement(text).name) for text in PROJECT["optional-dependencies"]["docs"]}
    )
    oldest = {canonicalize_name(pin.name): version_of(pin) for pin in pinned("constraints-oldest.txt")}
    assert {name: oldest.get(name) for name in least if name not in outside} == {
        name: least[name] for name in least if name not in outside
    }
    assert set(oldest) <= set(least)


@pytest.mark.parametrize("name", ["constraints.txt", "constraints-newest.txt"])
@pytest.mark.parametrize("python", ["3.11.2", "3.11.9", "3.12.0", "3.13.0"])
def test_a_set_pins_everything_within_what_is_promised(name: str, python: str) -> None:
    """Packages that need another Python 3.11 than Debian's have a pin for that one as well."""
    here = {"python_version": python.rpartition(".")[0], "python_full_version": python}
    pins = [pin for pin in pinned(name) if pin.marker is None or pin.marker.evaluate(here)]
    versions = {canonicalize_name(pin.name): version_of(pin) for pin in pins}
    assert len(versions) == len(pins)
    of_any_platform = (pin for pin in pinned(name) if "platform" not in str(pin.marker))
    assert versions.keys() >= {canonicalize_name(pin.name) for pin in of_any_platform}
    wanted = {canonicalize_name(one.name): one.specifier for one in promised() if one.name != "torch"}
    assert {one: versions.get(one) for one, spec in wanted.items() if versions.get(one) not in spec} == {}


def test_the_command_is_documented_and_runs_before_a_release() -> None:
    makefile = (ROOT / "Makefile").read_text()
    proven = re.search(r"^prove:.*?\n\n", makefile, re.M | re.S)
    assert proven is not None
    for one in ("oldest", "newest"):
        assert f"$(MAKE) versions SET={one}" in proven[0]
        assert (ROOT / f"constraints-{one}.txt").exists()
    pythons = re.search(r"^PYTHONS = \$\(foreach one,([\d. ]+),", makefile, re.M)
    offered = [text.rpartition(" ")[2] for text in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", text)]
    assert pythons is not None
    assert pythons[1].split() == [offered[0], offered[-1]]
    assert "in $(or $(PYTHONS),$(PYTHON))" in proven[0]
    assert "`make versions SET=oldest`" in (ROOT / "CONTRIBUTING.md").read_text()


def hashes(name: str) -> dict[str, list[str]]:
    """Return the lines below each pin of a set."""
    text = (ROOT / name).read_text().replace(" \\\n", "\n")
    parts = [part.splitlines() for part in re.split(r"\n(?! )", text.strip())]
    return {pin: [line.strip() for line in lines] for pin, *lines in parts}


def test_every_pin_of_what_is_developed_with_has_the_hashes_of_its_files() -> None:
    found = hashes("constraints.txt")
    assert [pin for pin, lines in found.items() if not lines] == []
    wrong = [
        line for lines in found.values() for line in lines if not re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", line)
    ]
    assert wrong == []
    ends = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.endswith("\\")]
    assert len(ends) == len(found), "each pin goes on to its last hash"


def test_setting_up_takes_nothing_without_a_hash() -> None:
    makefile = (ROOT / "Makefile").read_text()
    steps = re.search(r"^\$\(STAMP\):.*?\n\n", makefile, re.M | re.S)
    assert steps is not None
    installs = [line for line in steps[0].splitlines() if "pip install" in line]
    assert installs
    for line in installs:
        assert "--no-deps" in line
        assert "--require-hashes" in line or (
            "--no-build-isolation" in line and line.endswith("--editable . --editable ./studies")
        )
    packages = {canonicalize_name(pin.name) for pin in pinned("constraints.txt")}
    assert "uv-build" in packages, "the builder is installed with the rest"


def test_no_set_names_where_an_index_is() -> None:
    for name in ("constraints.txt", "constraints-oldest.txt", "constraints-newest.txt", "Makefile", "pyproject.toml"):
        text = (ROOT / name).read_text()
        assert "index-url" not in text.replace("--no-emit-index-url", "")
        assert set(re.findall(r"://([\w.-]+)", text)) <= {"doi.org", "arxiv.org"}

"""The files of a release agree: package, changelog, citation."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_package_changelog_and_citation_name_one_version():
    changelog = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    citation = re.search(r"^version: (\S+)", (ROOT / "CITATION.cff").read_text(), re.M)
    assert changelog
    assert citation
    assert {changelog[1], citation[1]} == {PROJECT["version"]}


def test_links_are_public():
    links = re.findall(r"https?://([\w.-]+)", " ".join(PROJECT["urls"].values()))
    assert len(links) == len(PROJECT["urls"])
    assert set(links) <= {"doi.org", "arxiv.org"}


def test_every_supported_python_is_named():
    named = {line.rsplit(" ", maxsplit=1)[1] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)}
    assert named == {"3.11", "3.12", "3.13"}
    assert PROJECT["requires-python"] == f">={min(named)}"


def test_what_an_index_shows_links_to_nothing_beside_it():
    """An index shows only the page, so links to files and images would be broken."""
    page = (ROOT / PROJECT["readme"]).read_text()
    links = re.findall(r"\]\(([^)]+)\)|(?:src|href)=\"([^\"]+)", page)
    assert [one for pair in links for one in pair if one and not one.startswith("https://")] == []
    assert page.splitlines()[2:6] == (ROOT / "README.md").read_text().splitlines()[2:6]


def test_the_readme_is_a_page():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 250


def licences() -> dict[str, tuple[str, set[str]]]:
    """Return the rows of LICENCES.md: the licence of each package, and its extras."""
    rows = re.findall(r"^\| ([\w-]+) \| (.+?) \| ?(.*?) ?\|$", (ROOT / "LICENCES.md").read_text(), re.M)
    return {name: (licence, set(filter(None, extras.split(", ")))) for name, licence, extras in rows[1:]}


def test_every_package_that_is_needed_has_its_licence_named():
    wanted: dict[str, set[str]] = {Requirement(text).name: set() for text in PROJECT["dependencies"]}
    for extra, texts in PROJECT["optional-dependencies"].items():
        for text in texts if extra not in ("all", "dev") else ():
            name = Requirement(text).name
            if name != PROJECT["name"] and (name not in wanted or wanted[name]):
                wanted.setdefault(name, set()).add(extra)
    assert {name: extras for name, (_, extras) in licences().items()} == wanted


FAMILIES = {
    **{"BSD License": "BSD", "BSD": "BSD", "MIT License": "MIT"},
    **{"Apache License, Version 2.0": "Apache-2.0", "Apache Software License": "Apache-2.0"},
}
"""A licence in the form of older metadata, without a version."""


@pytest.mark.parametrize("name", licences())
def test_a_licence_is_the_one_that_the_package_states(name):
    try:
        stated = metadata(name)
    except PackageNotFoundError:
        pytest.skip(f"{name} is not installed")
    licence = licences()[name][0]
    classifiers = [text.rsplit(" :: ", 1)[1] for text in stated.get_all("Classifier") or [] if "License ::" in text]
    said = stated.get("License-Expression") or next(iter(classifiers), None) or stated.get("License", "")
    if name == "matplotlib":  # its separate licence, filed under Python's
        assert licence == "Matplotlib-1.3"
        assert "License agreement for matplotlib versions" in stated["License"]
        return
    assert said == licence or licence.startswith(FAMILIES.get(said, "nothing of the kind")), said


def test_the_licences_are_part_of_the_metadata():
    assert PROJECT["license"] == "Apache-2.0"
    assert PROJECT["license-files"] == ["LICENSE", "LICENCES.md"]
    assert "License ::" not in " ".join(PROJECT["classifiers"]), "an expression and a classifier exclude one another"

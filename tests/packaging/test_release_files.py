"""The files of a release say the same: package, changelog, citation."""

import re
import tomllib
from pathlib import Path

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
    """An index has the page alone: a link to a file, or a picture, would lead nowhere."""
    page = (ROOT / PROJECT["readme"]).read_text()
    links = re.findall(r"\]\(([^)]+)\)|(?:src|href)=\"([^\"]+)", page)
    assert [one for pair in links for one in pair if one and not one.startswith("https://")] == []
    assert page.splitlines()[2:6] == (ROOT / "README.md").read_text().splitlines()[2:6]


def test_the_readme_is_a_page():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 250

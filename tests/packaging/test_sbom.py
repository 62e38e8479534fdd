"""A release's list of parts: made by its command, complete, and without information about the build machine."""

import json
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.packaging.test_release_files import PROJECT, ROOT

EXTRAS = ("pandas", "plot", "dask", "learn", "testing")
"""Extras for users. Excluded are torch, which differs by processor and GPU, and developers' tools."""


@pytest.fixture(scope="module")
def listed(tmp_path_factory):
    """Return the command's output; an environment left by a stopped run has no effect."""
    path = tmp_path_factory.mktemp("sbom") / "sbom.json"
    left = ROOT / ".venv-released"
    (left / "bin").mkdir(parents=True, exist_ok=True)
    (left / "bin" / "python").symlink_to(sys.executable)
    words = ["make", "--directory", str(ROOT), "sbom", f"SBOM={path}", f"PYTHON={sys.executable}"]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if "No matching distribution" in done.stderr or "Could not find a version" in done.stderr:
        pytest.skip("no registry of packages can be reached")
    assert done.returncode == 0, done.stderr[-2000:]
    assert not left.exists()
    return path.read_text()


@pytest.mark.prove
def test_the_list_holds_each_part_as_it_is_pinned(listed):
    document = json.loads(listed)
    found = {canonicalize_name(part["name"]): part["version"] for part in document["components"]}
    pins = dict(re.findall(r"^([\w.-]+)==([^\s;\\]+)", (ROOT / "constraints.txt").read_text(), re.M))
    assert {name: pins[name] for name in found} == found
    texts = [*PROJECT["dependencies"], *(text for extra in EXTRAS for text in PROJECT["optional-dependencies"][extra])]
    asked = {
        canonicalize_name(need.name) for need in map(Requirement, texts) if not need.marker or need.marker.evaluate()
    }
    assert asked <= set(found)
    assert (document["bomFormat"], document["metadata"]["component"]["version"]) == ("CycloneDX", PROJECT["version"])


@pytest.mark.prove
def test_each_part_is_reached_from_the_package_and_nothing_else_is_there(listed):
    document = json.loads(listed)
    needs = {entry["ref"]: entry.get("dependsOn", []) for entry in document["dependencies"]}
    reached, waiting = set(), [document["metadata"]["component"]["bom-ref"]]
    while waiting:
        part = waiting.pop()
        if part not in reached:
            reached.add(part)
            waiting += needs[part]
    assert reached == set(needs)
    assert len(reached) == 1 + len(document["components"])


@pytest.mark.prove
def test_the_list_names_no_place_of_the_machine_that_made_it(listed):
    document = json.loads(listed)
    for folder in (ROOT, Path.home(), Path(sys.prefix)):
        assert str(folder) not in listed
    assert not re.search(r"file:|localhost|127\.0\.0\.1|timestamp|serialNumber", listed)
    links = [link for part in document["components"] for link in part.get("externalReferences", [])]
    assert links, "the package's pages are in it"
    assert all(link["comment"].startswith("from packaging metadata") for link in links), (
        "where it was fetched is the maker's affair"
    )
    hosts = {urlsplit(found).hostname for found in re.findall(r"https?://[^\"\s]+", listed)}
    assert all(host and "." in host and not re.fullmatch(r"[\d.:]+", host) for host in hosts)

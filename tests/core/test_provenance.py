"""The machine, versions and code that records name."""

import os
import platform
import subprocess
from importlib.metadata import version

import pytest

from optim.core import provenance


def test_versions_are_those_that_are_installed():
    versions = provenance.package_versions()
    assert versions["python"] == platform.python_version()
    assert versions["numpy"] == version("numpy")


def test_cores_are_all_that_the_machine_has():
    facts = provenance.machine_facts()
    assert facts["cpu_count"] == os.cpu_count()
    assert 1 <= facts["cpus_usable"] <= facts["cpu_count"]


@pytest.mark.parametrize(("known", "told"), [(7, 7), (None, 1)])
def test_cores_that_nobody_knows_are_one(known, told, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: known)
    assert provenance.machine_facts.__wrapped__()["cpu_count"] == told


def test_the_codes_digest_changes_with_any_line_of_any_module(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "PACKAGE_FOLDER", tmp_path)
    (tmp_path / "deep").mkdir()
    module = tmp_path / "deep" / "a.py"

    def digest(text, path=module):
        path.write_text(text)
        return provenance.code_digest.__wrapped__()

    first = digest("x = 1\n")
    assert digest("x = 2\n") != first == digest("x = 1\n")
    assert digest("", tmp_path / "b.py") != first


def test_the_commit_is_that_of_the_checkout_and_none_outside_one(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "PACKAGE_FOLDER", tmp_path / "optim")
    assert provenance.commit.__wrapped__() is None
    for command in (
        ["init", "-q"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x", "--allow-empty"],
    ):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    assert len(provenance.commit.__wrapped__()) == 40


@pytest.mark.parametrize(
    ("listed", "answered", "expected"),
    [
        ("processor : 0\nmodel name : Fast: 9000\n", "vague", "Fast: 9000"),
        ("processor : 0\n", "vague", "vague"),
        (None, "vague", "vague"),
        (None, "", "unknown"),
    ],
)
def test_the_processors_name_is_the_kernels_or_pythons_or_unknown(monkeypatch, listed, answered, expected):
    def read_text(path):
        if listed is None:
            raise FileNotFoundError(path)
        return listed

    monkeypatch.setattr(provenance.Path, "read_text", read_text)
    monkeypatch.setattr(platform, "processor", lambda: answered)
    assert provenance.cpu_name() == expected

"""What records say of the machine, the versions and the code that made them."""

import platform
import subprocess
from importlib.metadata import version

import pytest

from optim.core import provenance


def test_versions_are_those_that_are_installed():
    versions = provenance.package_versions()
    assert versions["python"] == platform.python_version()
    assert versions["numpy"] == version("numpy")


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

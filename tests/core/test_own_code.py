"""Classes of one's own, from files and other packages."""

from importlib.metadata import EntryPoint

import pytest

from optim.core.errors import InvalidOptionError
from optim.core.own_code import is_own, load_installed, load_own


class Base:
    """What is looked for."""


@pytest.mark.parametrize(
    ("name", "own"), [("./mine.py:Mine", True), ("/a/b.py:C", True), ("mine.py", False), ("drf", False)]
)
def test_a_name_with_a_file_is_ones_own(name, own):
    assert is_own(name) == own


def test_a_class_of_a_file_is_loaded_with_what_it_imports(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("class Mine(dict):\n    size = 3\n")
    assert load_own(f"{path}:Mine", dict, "a thing").size == 3


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (None, "there is no file"),
        ("x = 1", "isn't a thing; derive"),
        ("Mine = 3", "isn't a thing"),
        ("1/0", "ZeroDivisionError"),
        ("import sys; sys.exit(5)", "SystemExit: 5"),
        ("class", "SyntaxError"),
    ],
)
def test_what_is_no_class_of_that_kind_is_refused(tmp_path, content, cause):
    path = tmp_path / "mine.py"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InvalidOptionError, match=cause):
        load_own(f"{path}:Mine", Base, "a thing")


def test_nothing_is_found_where_no_package_names_it():
    assert load_installed("optim.nonsense", "mine", Base, "a thing") is None


def test_a_package_that_ends_the_process_as_it_is_imported_is_refused(tmp_path, monkeypatch):
    (tmp_path / "ending_policy.py").write_text("import sys; sys.exit(5)")
    monkeypatch.syspath_prepend(tmp_path)
    points = [EntryPoint("mine", "ending_policy:Mine", "optim.nonsense")]
    monkeypatch.setattr("optim.core.own_code.entry_points", lambda group, name: points)
    with pytest.raises(InvalidOptionError, match=r"ending_policy:Mine can't be loaded \(5\); mend or uninstall it"):
        load_installed("optim.nonsense", "mine", Base, "a thing")

"""User classes from files and other packages."""

import pickle
import sys
from importlib.metadata import EntryPoint

import pytest

from optim.core.errors import InvalidOptionError
from optim.core.user_code import (
    is_file_reference,
    load_class_from_file,
    load_installed,
    sendable,
    shortened,
    user_code_digest,
    where_user_code_failed,
)


class Base:
    """The base class that is searched for."""


@pytest.mark.parametrize(
    ("name", "own"),
    [("./mine.py:Mine", True), ("/a/b.py:C", True), ("mine.py", True), ("mine.py.gz", False), ("drf", False)],
)
def test_a_name_with_a_file_is_ones_own(name, own):
    assert is_file_reference(name) == own


def test_a_class_of_a_file_is_loaded_with_what_it_imports(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("class Mine(dict):\n    size = 3\n")
    assert load_class_from_file(f"{path}:Mine", dict, "a thing").size == 3


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (None, "there is no file"),
        ("x = 1", "mine.py has no class Mine; and none of its classes is a thing: derive one"),
        ("Mine = 3", "is not a thing"),
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
        load_class_from_file(f"{path}:Mine", Base, "a thing")


def test_a_file_without_a_class_is_told_which_it_has(tmp_path):
    path = tmp_path / "mine.py"
    for content, cause in (
        (
            "class Mine(dict):\n    pass",
            r"mine.py is a file: also name one of its classes \(./mine.py:Mine\); it has Mine",
        ),
        ("x = 1", "mine.py is a file: also name one of its classes; and none of its classes is a thing: derive one"),
    ):
        path.write_text(content)
        with pytest.raises(InvalidOptionError, match=cause):
            load_class_from_file(str(path), dict, "a thing")
        path.unlink()
    with pytest.raises(InvalidOptionError, match="there is no file"):
        load_class_from_file(str(path), dict, "a thing")


def test_a_module_beside_a_file_is_told_to_be_off_the_path(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("class Mine(dict):\n    pass\n")
    path = tmp_path / "other.py"
    path.write_text("from mine import Mine\n\nclass Other(Mine):\n    pass\n")
    with pytest.raises(InvalidOptionError, match=f"No module named 'mine'; its folder .* set PYTHONPATH={tmp_path}$"):
        load_class_from_file(f"{path}:Other", dict, "a thing")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert load_class_from_file(f"{path}:Other", dict, "a thing").__name__ == "Other"
    monkeypatch.delitem(sys.modules, "mine")


def test_nothing_is_found_where_no_package_names_it():
    assert load_installed("optim.nonsense", "mine", Base, "a thing") is None


def test_a_package_that_ends_the_process_as_it_is_imported_is_refused(tmp_path, monkeypatch):
    (tmp_path / "ending_policy.py").write_text("import sys; sys.exit(5)")
    monkeypatch.syspath_prepend(tmp_path)
    points = [EntryPoint("mine", "ending_policy:Mine", "optim.nonsense")]
    monkeypatch.setattr("optim.core.optional.entry_points", lambda group, name: points)
    with pytest.raises(
        InvalidOptionError, match=r"ending_policy:Mine\) cannot be loaded: SystemExit: 5; repair or uninstall it"
    ):
        load_installed("optim.nonsense", "mine", Base, "a thing")


@pytest.mark.parametrize(
    ("raised", "kind", "said"),
    [
        ("KeyError('gone')", KeyError, "KeyError: 'gone'"),
        ("Odd('so', 'odd')", RuntimeError, "Odd: so"),
        ("ValueError(lambda: 0)", RuntimeError, "ValueError: <function"),
    ],
)
def test_an_error_says_in_another_process_where_a_file_failed(tmp_path, raised, kind, said):
    """An unpickled exception has no traceback, but its message still names file and line."""
    path = tmp_path / "mine.py"
    path.write_text(
        "class Odd(Exception):\n    def __init__(self, one, two):\n        super().__init__(one)\n\n\n"
        f"class Mine:\n    def act(self):\n        raise {raised}\n"
    )
    own = load_class_from_file(f"{path}:Mine", object, "a class")
    try:
        own().act()
    except Exception as error:
        sent = pickle.loads(pickle.dumps(sendable(error)))
    assert type(sent) is kind
    assert where_user_code_failed(sent).startswith(f"{path}:8 in act: {said}")
    assert "line 8, in act" in "".join(sent.__notes__)


def test_an_error_of_no_file_is_sent_as_it_is():
    error = ValueError("plain")
    assert sendable(error) is error
    assert where_user_code_failed(error) is None
    assert not hasattr(error, "__notes__")


def test_a_class_that_is_not_there_is_told_with_those_that_are(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("class Wide(dict): pass\nclass Narrow(dict): pass\nclass Other: pass\n")
    with pytest.raises(InvalidOptionError, match=r"^mine\.py has no class Missing; it has Wide, Narrow$"):
        load_class_from_file(f"{path}:Missing", dict, "a thing")
    path.write_text("".join(f"class C{number}(dict): pass\n" for number in range(9)))
    with pytest.raises(InvalidOptionError, match=r"it has C0, C1, C2, C3, C4, C5, C6, C7, \.\.\.$"):
        load_class_from_file(f"{path}:Missing", dict, "a thing")


IMPORTS = {
    "helper.py": "import helper",
    "below/part.py": "from below import part",
    "below/__init__.py": "from below.part import x",
    "late.py": "def f():\n    from late import x",
}


@pytest.mark.parametrize("file", IMPORTS)
def test_an_own_file_has_another_digest_once_what_it_imports_from_its_folder_differs(tmp_path, file):
    path, other = tmp_path / "mine.py", tmp_path / file
    path.write_text(f"import numpy, json\n{IMPORTS[file]}\n")
    for each in IMPORTS:
        (tmp_path / each).parent.mkdir(exist_ok=True)
        (tmp_path / each).write_text("from . import deeper\n" if "part" in each else "x = 1\n")
    (tmp_path / "below/deeper.py").write_text("")
    (tmp_path / "unused.py").write_text("")
    before = user_code_digest(str(path))
    (tmp_path / "unused.py").write_text("x = 2\n")
    assert user_code_digest(str(path)) == before
    other.write_text("from . import deeper\nx = 2\n" if "part" in file else "x = 2\n")
    assert user_code_digest(str(path)) != before
    if "part" in file:
        before = user_code_digest(str(path))
        (tmp_path / "below/deeper.py").write_text("x = 3\n")
        assert user_code_digest(str(path)) != before


def test_own_files_that_import_each_other_have_a_digest(tmp_path):
    (tmp_path / "a.py").write_text("import b\n")
    (tmp_path / "b.py").write_text("import a\n")
    assert user_code_digest(str(tmp_path / "a.py")).startswith("sha256:")
    assert user_code_digest(str(tmp_path / "missing.py")) == ""


def test_a_text_that_is_cut_shows_it():
    assert shortened("a  b\nc") == "a b c"
    assert shortened("x" * 500) == "x" * 400 + "..."

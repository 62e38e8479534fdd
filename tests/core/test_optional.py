"""A missing package gives an error of one line, with the command that installs it."""

import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from optim.core import optional
from optim.core.errors import MissingDependencyError
from optim.core.optional import DISTRIBUTION, EXTRA_OF, check_installed, import_deferring, import_extra
from optim.rightsizing import learned_policies
from tests.support.containers.worlds import world_of

PYPROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("package", sorted(EXTRA_OF))
def test_the_line_names_an_extra_that_exists(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependencyError, match="reading CSV files needs") as raised:
        import_extra(package, "reading CSV files")
    extra = EXTRA_OF[package]
    assert str(raised.value).endswith(f"install it: pip install '{DISTRIBUTION}[{extra}]'")
    assert "\n" not in str(raised.value)
    assert PYPROJECT["name"] == DISTRIBUTION
    assert extra in PYPROJECT["optional-dependencies"]


def test_what_is_absent_is_known_before_it_is_needed(monkeypatch):
    check_installed("matplotlib", "--report")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingDependencyError, match=r"^--report needs matplotlib; install it: .*\[plot\]'$"):
        check_installed("matplotlib", "--report")


def test_what_is_there_is_returned():
    assert import_extra("pandas", "a frame").__name__ == "pandas"


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """A fast module that imports a slow one; the slow one counts how often it is loaded."""
    (tmp_path / "slow_one.py").write_text("import sys\nsys.loads_of_slow_one += 1\nanswer = 42\n")
    (tmp_path / "fast_one.py").write_text("import slow_one\nimport slow_one\nfound = lambda: slow_one.answer\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "loads_of_slow_one", 0, raising=False)
    yield
    for name in ("slow_one", "fast_one"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("modules")
def test_a_deferred_module_is_loaded_once_and_when_it_is_used():
    fast = import_deferring("fast_one", "slow_one")
    assert (sys.loads_of_slow_one, "slow_one" in sys.modules) == (0, False)
    assert [fast.found(), fast.found()] == [42, 42]
    assert (sys.loads_of_slow_one, sys.modules["slow_one"].answer) == (1, 42)


@pytest.mark.usefixtures("modules")
def test_a_module_that_is_loaded_is_not_deferred():
    slow = import_extra("slow_one", "a test")
    assert import_deferring("fast_one", "slow_one").slow_one is slow is sys.modules["slow_one"]


@pytest.mark.usefixtures("modules")
def test_a_module_that_another_one_uses_while_it_is_deferred_is_loaded(tmp_path):
    (tmp_path / "fast_one.py").write_text("from slow_one import answer\nimport slow_one\n")
    fast = import_deferring("fast_one", "slow_one")
    assert (fast.answer, sys.loads_of_slow_one, fast.slow_one is sys.modules["slow_one"]) == (42, 1, True)


@pytest.mark.usefixtures("modules")
def test_an_import_that_fails_leaves_no_deferred_module(tmp_path):
    (tmp_path / "fast_one.py").write_text("import slow_one\nimport does_not_exist\n")
    with pytest.raises(ModuleNotFoundError, match="does_not_exist"):
        import_deferring("fast_one", "slow_one")
    assert "slow_one" not in sys.modules


def test_policies_of_scikit_learn_name_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    world = world_of([np.ones((8, 2))], training=[np.ones((24, 2))])
    with pytest.raises(
        MissingDependencyError, match=r"^policy forest needs scikit-learn .*; install it: pip install '.*\[learn\]'$"
    ):
        learned_policies.Forest(world)


def test_nothing_else_words_what_is_missing():
    package = Path(optional.__file__).parents[1]
    raising = [path.name for path in package.rglob("*.py") if "raise MissingDependencyError" in path.read_text()]
    assert raising == []
    assert "install mlcluster-optim" not in "".join(path.read_text() for path in package.rglob("*.py"))

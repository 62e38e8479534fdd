"""A missing package gives an error of one line, with the command that installs it."""

import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from optim.core import optional
from optim.core.errors import MissingDependencyError
from optim.core.optional import DISTRIBUTION, EXTRA_OF, check_installed, import_extra
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

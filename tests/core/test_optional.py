"""A package that is absent costs one line with the command that installs it."""

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


@pytest.mark.parametrize(
    "fit",
    [
        lambda: learned_policies._fit(np.zeros((1, 1)), np.zeros((1, 1)), 0.5),
        lambda: learned_policies.Forest(
            world_of(
                [np.ones((8, 2))],
                training=[np.ones((24, 2))],
                training_labels=[np.zeros(24, int)],
                labels=[np.zeros(8, int)],
            )
        ),
    ],
    ids=["boosted-quantiles", "forest"],
)
def test_policies_of_scikit_learn_name_the_command(monkeypatch, fit):
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    with pytest.raises(
        MissingDependencyError, match=r"^policy \S+ needs scikit-learn .*; install it: pip install '.*\[learn\]'$"
    ):
        fit()


def test_nothing_else_words_what_is_missing():
    package = Path(optional.__file__).parents[1]
    raising = [path.name for path in package.rglob("*.py") if "raise MissingDependencyError" in path.read_text()]
    assert raising == []
    assert "install mlcluster-optim" not in "".join(path.read_text() for path in package.rglob("*.py"))

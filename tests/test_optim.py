"""What `import optim` gives: names that load on first use, and nothing that isn't there."""

import runpy
import sys
from importlib.metadata import version

import pytest

import optim
from optim.core.errors import InvalidProblemError


def test_every_public_name_is_there():
    assert {name for name in optim.__all__ if getattr(optim, name) is None} == set()
    assert set(optim.__all__) < set(dir(optim))


def test_the_version_is_that_of_the_distribution():
    assert optim.__version__ == version("mlcluster-optim")


def test_a_misspelt_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'optim' has no attribute 'slove'"):
        _ = optim.slove


def test_solver_names_are_those_that_solve_takes():
    names = optim.solver_names("admission")
    assert list(names) == sorted(names)
    assert {"online", "search", "branch-and-price"} <= set(names)
    assert "themis" not in names
    with pytest.raises(InvalidProblemError, match="known: admission, auction, bidding"):
        optim.solver_names("admision")


def test_python_dash_m_optim_is_the_command(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["optim", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("optim", run_name="__main__")
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"optim {version('mlcluster-optim')}\n"


@pytest.mark.prove
def test_type_checkers_find_a_misspelt_name(tmp_path):
    from mypy import api

    (tmp_path / "wrong.py").write_text("import optim\n\noptim.slove(None, 'online')\n")
    (tmp_path / "right.py").write_text("import optim\n\nnames: tuple[str, ...] = optim.solver_names('admission')\n")
    out, _, _ = api.run(["--strict", "--config-file=", "--follow-imports=silent", str(tmp_path)])
    assert 'Module has no attribute "slove"' in out
    assert "right.py" not in out

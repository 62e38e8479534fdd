"""Versions of what isn't installed, and plug-ins that can't be loaded."""

from importlib.metadata import EntryPoint, PackageNotFoundError

import pytest

import optim
from optim.core import installed
from optim.core.registry import SolverRegistry


@pytest.fixture
def fresh_versions():
    installed.installed_version.cache_clear()
    yield
    installed.installed_version.cache_clear()


def test_solving_needs_no_installation_of_the_library_itself(monkeypatch, fresh_versions):
    def version(name):
        if name == "mlcluster-optim":
            raise PackageNotFoundError(name)
        return "1"

    monkeypatch.setattr(installed, "version", version)
    found = optim.solve(optim.reference_instance("tiny-0"), "fifo").versions
    assert found["mlcluster-optim"] == "not installed"
    assert found["numpy"] == "1"


def test_versions_are_looked_up_once(monkeypatch, fresh_versions):
    asked = []
    monkeypatch.setattr(installed, "version", lambda name: asked.append(name) or "1")
    assert installed.installed_version("numpy") == installed.installed_version("numpy") == "1"
    assert asked == ["numpy"]


def test_a_plug_in_that_fails_is_named_and_the_others_serve(monkeypatch, caplog, tmp_path):
    (tmp_path / "broken_plug_in.py").write_text("import a_module_that_is_not_there\n")
    (tmp_path / "sound_plug_in.py").write_text("LOADED = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    points = [
        EntryPoint("broken", "broken_plug_in", "optim.solvers"),
        EntryPoint("sound", "sound_plug_in", "optim.solvers"),
    ]
    loaded = []
    monkeypatch.setattr(installed, "entry_points", lambda group: loaded.append(group) or points)
    assert list(SolverRegistry()) == []
    (line,) = caplog.messages
    assert "plug-in 'broken' (broken_plug_in) can't be loaded: ModuleNotFoundError" in line
    assert loaded == ["optim.solvers"]
    import sound_plug_in

    assert sound_plug_in.LOADED

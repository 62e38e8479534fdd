"""Versions of packages that aren't installed, and plug-ins that can't be loaded."""

import sys
from importlib import import_module
from importlib.metadata import EntryPoint, PackageNotFoundError

import pytest

import optim
from optim.core import optional
from optim.core.registry import REGISTRY, SolverRegistry


@pytest.fixture
def fresh_versions():
    optional.installed_version.cache_clear()
    yield
    optional.installed_version.cache_clear()


def test_solving_needs_no_installation_of_the_library_itself(monkeypatch, fresh_versions):
    def version(name):
        if name == "mlcluster-optim":
            raise PackageNotFoundError(name)
        return "1"

    monkeypatch.setattr(optional, "version", version)
    found = optim.solve(optim.reference_instance("tiny-0"), "fifo").versions
    assert found["mlcluster-optim"] == "not installed"
    assert found["numpy"] == "1"


def test_versions_are_looked_up_once(monkeypatch, fresh_versions):
    asked = []
    monkeypatch.setattr(optional, "version", lambda name: asked.append(name) or "1")
    assert optional.installed_version("numpy") == optional.installed_version("numpy") == "1"
    assert asked == ["numpy"]


SOUND = """
from optim.core.registry import register

class Sound:
    summary, options_type = "does nothing", dict

register("sound", problem="nothing")(Sound)
"""


@pytest.fixture
def plug_ins(monkeypatch, tmp_path):
    """Return a function that installs modules, given as texts, as plug-ins, and lists the available solvers."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(optional, "_REGISTERED_PLUGINS", [])

    def install(values, **modules):
        for name, text in modules.items():
            (tmp_path / f"{name}.py").write_text(text)
            monkeypatch.delitem(sys.modules, name, raising=False)
        points = [EntryPoint(value.partition(":")[0], value, "optim.solvers") for value in values]
        monkeypatch.setattr(optional, "entry_points", lambda group: points)
        registry = SolverRegistry()
        monkeypatch.setattr("optim.core.registry.register", registry.register)
        return [solver.name for solver in registry]

    return install


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("import a_module_that_is_not_there", "ModuleNotFoundError: No module named 'a_module_that_is_not_there'"),
        ("import sys; sys.exit(5)", "SystemExit: 5"),
    ],
)
def test_a_plug_in_that_fails_or_ends_the_process_is_named_and_the_others_serve(plug_ins, caplog, text, cause):
    assert plug_ins(["broken_plug_in", "sound_plug_in"], broken_plug_in=text, sound_plug_in=SOUND) == ["sound"]
    (line,) = caplog.messages
    assert (
        f"plug-in 'broken_plug_in' (broken_plug_in) cannot be loaded: {cause}; repair or uninstall it; it is skipped"
        in line
    )


def test_ctrl_c_while_a_plug_in_is_imported_goes_through(plug_ins):
    with pytest.raises(KeyboardInterrupt):
        plug_ins(["slow_plug_in"], slow_plug_in="raise KeyboardInterrupt")


@pytest.mark.parametrize(
    ("value", "what"),
    [("idle_plug_in:solve", "function"), ("idle_plug_in", "module"), ("idle_plug_in:Solver", "type")],
)
def test_a_plug_in_that_registers_nothing_is_named(plug_ins, caplog, value, what):
    assert plug_ins(
        [value, "sound_plug_in"], idle_plug_in="class Solver: pass\ndef solve(): pass", sound_plug_in=SOUND
    ) == ["sound"]
    (line,) = caplog.messages
    assert f"({value}) is a {what} and registers no solver and no suite; its entry point in optim.solvers must" in line


@pytest.mark.parametrize(
    "values",
    [
        ["sound_plug_in", "sound_plug_in"],
        ["sound_plug_in:Sound"],
        ["sound_outside"],
        ["sound_outside", "sound_plug_in"],
    ],
)
def test_a_plug_in_whose_package_has_registered_something_is_not_named(plug_ins, caplog, values):
    assert plug_ins(values, sound_plug_in=SOUND, sound_outside="import sound_plug_in") == ["sound"]
    assert caplog.messages == []


def test_a_plug_in_that_was_imported_by_hand_is_not_named(plug_ins, caplog, tmp_path, monkeypatch):
    monkeypatch.setattr(REGISTRY, "_items", {})
    (tmp_path / "plug_in_by_hand.py").write_text(SOUND)
    (tmp_path / "outside_by_hand.py").write_text("import plug_in_by_hand")
    import_module("outside_by_hand")
    assert plug_ins(["outside_by_hand"]) == []
    assert caplog.messages == []


def test_a_plug_in_that_imports_the_solvers_of_the_library_has_registered_none_of_its_own(plug_ins, caplog):
    text = SOUND.replace("class Sound:", "class Sound:\n    __module__ = 'optim.solvers.admission.fifo'")
    assert plug_ins(["importing_plug_in"], importing_plug_in=text) == ["sound"]
    assert "registers no solver" in caplog.text

"""Recompilation after edits, and caches that are damaged, full or unreachable, on two tiny loops."""

import importlib
import json
import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from optim import compiled as compile_cache
from optim.compiled import LoopCache, compiled, drop_oldest

INNER = """
from typing import NamedTuple
from optim.compiled import compiled

FACTOR = 2

class Pair(NamedTuple):
    left: int
    right: int

@compiled
def inner(x):
    '''Double.'''
    return FACTOR * x

@compiled
def apart(x):
    return x - 1
"""
OUTER = """
from optim.compiled import compiled
from inner import Pair, apart, inner

@compiled
def outer(x):
    return inner(x) + 1

@compiled
def of_pair(pair):
    return pair.left - pair.right

@compiled
def again(n):
    return 0 if n == 0 else 1 + again(n - 1)
"""
CALLS = {
    "outer": lambda module: module.outer(3),
    "of_pair": lambda module: module.of_pair(module.Pair(5, 3)),
    "apart": lambda module: module.apart(1),
    "again": lambda module: module.again(2),
}
ALL, ONE = list(CALLS), ["apart"]


def call(names: list[str]) -> dict[str, Any]:
    """Import the modules afresh and call some loops; return their results, and the loops that had to be compiled."""
    for name in ("inner", "outer"):
        sys.modules.pop(name, None)
    outer = importlib.import_module("outer")
    results = [CALLS[name](outer) for name in names]
    return {"results": results, "compiled": [name for name in names if getattr(outer, name).stats.cache_misses]}


def call_all() -> dict[str, Any]:
    """Call every loop."""
    return call(ALL)


class Modules:
    """Two modules of loops, and their cache, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = folder / "cache" / "mlcluster-optim"
        (folder / "inner.py").write_text(INNER)
        (folder / "outer.py").write_text(OUTER)

    @property
    def entries(self) -> list[Path]:
        return sorted(self.cache.glob("*.loop"))

    def edit(self, name: str, old: str, new: str) -> None:
        path = self.folder / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def run_apart(self, code: str, **environment: str) -> Any:
        """Run code that prints JSON in a separate process."""
        kept = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
        paths = os.pathsep.join([str(self.folder), *(path for path in sys.path if path)])
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            env={**kept, "PYTHONPATH": paths, **environment}, capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
        return json.loads(done.stdout)


@pytest.fixture
def modules(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(LoopCache, "may_write", True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(tmp_path)
    yield Modules(tmp_path)
    for name in ("inner", "outer"):
        sys.modules.pop(name, None)


def test_a_loop_becomes_machine_code_only_where_python_calls_it(modules):
    loop = compiled(lambda x: 2 * x + 1)
    assert compiled(lambda: loop(3))() == 7
    (result,) = loop.lowered.overloads.values()
    names = [function.name for function in result.library.get_defined_functions()]
    assert not any(name.startswith("_ZN7cpython") for name in names), names
    assert loop.overloads == {}
    assert len(modules.entries) == 1
    assert loop(4) == 9
    assert len(loop.lowered.overloads) == len(loop.overloads) == 1
    assert len(modules.entries) == 2


def test_a_loop_that_several_paths_reach_is_linked_with_what_it_raises(modules):
    @compiled
    def deepest(x):
        if x < 0:
            raise ValueError("negative")
        return np.zeros(x)

    middle = compiled(lambda x: len(deepest(x)) + 1)
    for outer in (compiled(lambda x: middle(x) + len(deepest(x))), compiled(lambda x: len(deepest(x)) + middle(x))):
        assert outer(3) == 7
        with pytest.raises(ValueError, match="negative"):
            outer(-1)


def test_numbers_that_callers_spell_out_compile_a_loop_once(modules):
    loop = compiled(lambda x, is_added=False: x + 1 if is_added else 2 * x)
    assert compiled(lambda: loop(3) + loop(4) + loop(5, True) + loop(6, is_added=False))() == 3 * 2 + 4 * 2 + 6 + 12
    assert sorted(str(kind.args) for kind in loop.lowered.nopython_signatures) == [
        "(int64, bool)",
        "(int64, omitted(default=False))",
    ]


def test_machine_code_of_other_optimisation_is_another_entry(modules, monkeypatch):
    loop = importlib.import_module("inner").inner
    signature, codegen = numba.typeof(1), loop.targetctx.codegen()
    paths = [loop._cache._path((signature,), codegen)]
    for name, value in (("OPT", 1), ("LOOP_VECTORIZE", 0), ("SLP_VECTORIZE", 1)):
        monkeypatch.setattr(numba.config, name, 7 + value)
        paths.append(loop._cache._path((signature,), codegen))
    assert len(set(paths)) == len(paths)


def test_an_edit_recompiles_what_depends_on_it_and_nothing_else(modules):
    assert call_all() == {"results": [7, 2, 0, 2], "compiled": ALL}
    assert call_all()["compiled"] == []
    modules.edit("inner.py", "'''Double.'''", "'''Return the double.'''  # a remark\n")
    assert call_all()["compiled"] == []
    modules.edit("inner.py", "FACTOR = 2", "FACTOR = 3")
    assert call_all() == {"results": [10, 2, 0, 2], "compiled": ["outer"]}
    modules.edit("inner.py", "return FACTOR * x", "return FACTOR * x * 2")
    assert call_all() == {"results": [19, 2, 0, 2], "compiled": ["outer"]}
    modules.edit("inner.py", "return x - 1", "return x - 2")
    assert call_all() == {"results": [19, 2, -1, 2], "compiled": ["apart"]}
    modules.edit("inner.py", "    left: int\n    right: int", "    right: int\n    left: int")
    assert call_all() == {"results": [19, -2, -1, 2], "compiled": ["of_pair"]}
    modules.edit("outer.py", "@compiled\ndef again", "@compiled(error_model='numpy')\ndef again")
    assert call_all()["compiled"] == ["again"]


def test_importing_makes_no_folder_and_sets_no_variable_and_what_is_compiled_then_another_process_loads(modules):
    code = """
        import json, os, pathlib
        before = dict(os.environ)
        import optim.solvers.admission, optim.solvers.auction, outer
        changed = [name for name in os.environ if os.environ[name] != before.get(name)]
        is_there = pathlib.Path(os.environ["XDG_CACHE_HOME"], "mlcluster-optim").exists()
        results = [outer.outer(3), outer.of_pair(outer.Pair(5, 3)), outer.apart(1), outer.again(2)]
        print(json.dumps([changed, is_there, results]))
    """
    assert modules.run_apart(code) == [[], False, [7, 2, 0, 2]]
    assert call_all() == {"results": [7, 2, 0, 2], "compiled": []}


def test_a_loop_that_is_loaded_after_a_caller_has_what_its_wrapper_needs(modules):
    """Arrays go to Python by a constant of the wrapper, which the caller's entry doesn't hold."""
    (modules.folder / "arrays.py").write_text(
        "import numpy as np\nfrom optim.compiled import compiled\n"
        "@compiled\ndef make(n):\n    return np.zeros(n)\n"
        "@compiled\ndef count(n):\n    if n < 0:\n        raise ValueError('negative')\n    return len(make(n))\n"
    )
    code = "import json, arrays; print(json.dumps([arrays.count(2), arrays.make(3).tolist()]))"
    for _ in range(2):
        assert modules.run_apart(code) == [2, [0.0, 0.0, 0.0]]


def test_the_users_own_folder_is_respected(modules, tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "own"))
    call(ONE)
    assert not modules.cache.exists()
    assert list((tmp_path / "own").rglob("*.loop"))


def change_a_byte(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


DAMAGES = [lambda content: b"", change_a_byte, lambda content: content[:200], lambda content: content[:10]]


@pytest.mark.parametrize("turn", [0, *(pytest.param(n, marks=pytest.mark.prove) for n in range(1, len(DAMAGES)))])
def test_damaged_entries_are_built_anew(modules, turn):
    """Each entry is damaged in another way, in rotation."""
    whole = call_all()
    before = modules.entries
    assert len(before) >= len(DAMAGES)
    for number, path in enumerate(before, start=turn):
        path.write_bytes(DAMAGES[number % len(DAMAGES)](path.read_bytes()))
    assert call_all() == whole
    assert modules.entries == before
    assert call_all()["compiled"] == []


def test_without_a_place_to_write_loops_run_and_one_line_says_so(modules, monkeypatch, caplog):
    (modules.folder / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(modules.folder / "file"))
    assert call(ONE) == {"results": [0], "compiled": ONE}
    assert call(ONE)["compiled"] == ONE
    (line,) = caplog.messages
    assert "compiled loops can't be stored" in line


def test_a_user_without_a_home_has_a_folder_of_their_own(modules, tmp_path, monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(compile_cache.Path, "home", homeless)
    monkeypatch.setattr(compile_cache.tempfile, "tempdir", str(tmp_path))
    assert call(ONE)["compiled"] == ONE
    assert call(ONE)["compiled"] == []
    folder = tmp_path / f"mlcluster-optim-{os.geteuid()}"
    assert list(folder.glob("*.loop"))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_that_is_made_is_the_users_alone(modules):
    before = os.umask(0)
    try:
        call(ONE)
    finally:
        os.umask(before)
    assert modules.entries
    assert stat.S_IMODE(modules.cache.stat().st_mode) == 0o700


def give_away(path, monkeypatch):
    """Let a path, but not its target, belong to another user than the current one."""
    own = os.geteuid()
    if own == 0:
        os.chown(path, 12345, -1, follow_symlinks=False)
    else:
        monkeypatch.setattr(compile_cache.os, "geteuid", lambda: own + 1)


def give_away_a_link(path, monkeypatch):
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")
    give_away(path, monkeypatch)


OPENED = {
    "all may write": (lambda path, _: path.chmod(0o777), "other users may write to"),
    "a group may write": (lambda path, _: path.chmod(0o770), "other users may write to"),
    "somebody else's": (give_away, "belongs to another user"),
    "somebody else's link": (give_away_a_link, "belongs to another user"),
}


@pytest.mark.parametrize("kind", OPENED)
def test_what_others_may_have_written_is_not_run_and_one_line_says_so(modules, monkeypatch, caplog, kind):
    act, cause = OPENED[kind]
    assert call(ONE)["compiled"] == ONE
    before = {path.name: path.stat().st_mtime_ns for path in modules.entries}
    act(modules.cache, monkeypatch)
    monkeypatch.setattr(compile_cache.pickle, "loads", None)
    assert call(ONE) == {"results": [0], "compiled": ONE}
    assert call(ONE)["compiled"] == ONE
    assert {path.name: path.stat().st_mtime_ns for path in modules.entries} == before
    (line,) = caplog.messages
    assert "compiled loops can't be stored" in line
    assert cause in line


def test_a_folder_of_the_systems_administrator_is_read(modules, monkeypatch):
    """Users who can change the programs may also have written the entries, as in an image with compiled loops."""
    assert call(ONE)["compiled"] == ONE
    if os.geteuid() == 0:
        monkeypatch.setattr(compile_cache.os, "geteuid", lambda: 12345)
    assert call(ONE)["compiled"] == []


def test_a_process_without_compiling_runs_the_functions_themselves(modules):
    code = """
        import json, outer
        print(json.dumps([outer.outer(3), type(outer.outer).__name__]))
    """
    assert modules.run_apart(code, NUMBA_DISABLE_JIT="1") == [7, "function"]


def test_what_is_kept_is_bounded_with_every_entry_written(modules, monkeypatch):
    monkeypatch.setattr(compile_cache, "MAX_BYTES", 1)
    assert call(ONE)["results"] == [0]
    assert modules.entries == []


def test_the_entries_used_longest_ago_go_first(tmp_path):
    for age, name in enumerate(["new", "middle", "older/old"]):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * 100)
        os.utime(path, (1_000_000 - age, 1_000_000 - age))
    drop_oldest(tmp_path, max_bytes=200)
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["middle", "new"]
    drop_oldest(tmp_path, max_bytes=199)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["new"]

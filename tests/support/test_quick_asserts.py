"""What a worker keeps of a test file is what pytest itself keeps of it."""

import importlib.util
import sys

from tests.support.quick_asserts import rewrite, share


def test_each_file_is_of_one_worker_and_all_have_as_much_to_do(tmp_path):
    paths = []
    for size in (5, 90, 7, 100, 95, 6):
        paths.append(tmp_path / f"test_{size}.py")
        paths[-1].write_text("#" * size)
    mine, others = (share(paths, worker, 2) for worker in (0, 1))
    assert [path.stem for path in mine] == ["test_100", "test_90", "test_6"]
    assert [path.stem for path in others] == ["test_95", "test_7", "test_5"]


def test_what_is_kept_is_what_pytest_keeps_and_stays(tmp_path, monkeypatch, pytestconfig):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    path = tmp_path / "test_small.py"
    path.write_text("def test_one():\n    value = 1\n    assert value == 2, value\n")
    hook = pytestconfig.pluginmanager.rewrite_hook
    spec = importlib.util.spec_from_file_location("test_small", path, loader=hook)
    hook.exec_module(importlib.util.module_from_spec(spec))
    (kept,) = (tmp_path / "__pycache__").iterdir()
    content = kept.read_bytes()
    kept.unlink()
    rewrite(path, pytestconfig)
    assert kept.read_bytes() == content
    made_at = kept.stat().st_mtime_ns
    rewrite(path, pytestconfig)
    assert kept.stat().st_mtime_ns == made_at
    path.write_text("def test_two():\n    assert False\n")
    rewrite(path, pytestconfig)
    assert kept.read_bytes() != content


def test_nothing_is_kept_where_byte_code_is_not(tmp_path, monkeypatch, pytestconfig):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    path = tmp_path / "test_small.py"
    path.write_text("def test_one():\n    assert True\n")
    rewrite(path, pytestconfig)
    assert list(tmp_path.iterdir()) == [path]

"""What each test worker would read from all sources, read once: assertions that pytest rewrites, numbers that Hypothesis tries."""

import sys
from pathlib import Path
from types import ModuleType

from _pytest.assertion import rewrite
from hypothesis.internal.constants_ast import constants_from_module

ROOT = Path(__file__).parents[2]


def read_sources() -> None:
    """Leave both where workers look for them: byte code beside the tests, numbers in Hypothesis' folder."""
    if not sys.dont_write_bytecode:
        for path in sorted((ROOT / "tests").rglob("*.py")):
            if path.name.startswith("test_") or path.name == "conftest.py":
                write_byte_code(path)
    for path in sorted((ROOT / "optim").rglob("*.py")):
        module = ModuleType("not imported")
        module.__file__ = str(path)
        constants_from_module(module)


def write_byte_code(path: Path) -> None:
    """Write a test module's byte code with its assertions rewritten, unless it is there."""
    folder = rewrite.get_cache_dir(path)
    kept = folder / (path.name[:-3] + rewrite.PYC_TAIL)
    if rewrite._read_pyc(path, kept) is None and rewrite.try_makedirs(folder):
        mark, code = rewrite._rewrite_test(path, None)
        rewrite._write_pyc(None, code, mark, kept)

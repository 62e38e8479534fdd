"""Let the workers of a run share what pytest does to test files before it imports them: each rewrites some of them.

Else every worker rewrites all of them, each at the same time as the others, which takes as long as collecting.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from _pytest.assertion.rewrite import (
    PYC_TAIL,
    _read_pyc,
    _rewrite_test,
    _write_pyc,
    assertstate_key,
    get_cache_dir,
    try_makedirs,
)


def share(paths: Sequence[Path], worker: int, num_workers: int) -> list[Path]:
    """Return a worker's files: by turns from the largest on, so that all workers have as much to do."""
    return sorted(paths, key=lambda path: (-path.stat().st_size, path))[worker::num_workers]


def rewrite(path: Path, config: pytest.Config) -> None:
    """Keep what pytest makes of a test file where pytest looks for it, unless it is there or can't be kept."""
    kept = get_cache_dir(path) / (path.stem + PYC_TAIL)
    if sys.dont_write_bytecode or _read_pyc(path, kept) is not None or not try_makedirs(kept.parent):
        return
    source_hash, code = _rewrite_test(path, config)
    _write_pyc(config.stash[assertstate_key], code, source_hash, kept)

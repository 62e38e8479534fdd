"""Which of XLA's flags the installed version knows: it ends the process at one that it doesn't."""

import importlib.util
import mmap
from collections.abc import Iterable
from pathlib import Path


def known_flags(flags: Iterable[str]) -> str:
    """Return those flags, written ``--name=value``, whose names stand in JAX's library, as XLA_FLAGS takes them; none without one."""
    spec = importlib.util.find_spec("jaxlib")
    folders = [] if spec is None or spec.submodule_search_locations is None else spec.submodule_search_locations
    libraries = [path for folder in folders for path in Path(folder).glob("*.so") if path.stat().st_size > 0]
    largest = max(libraries, key=lambda path: path.stat().st_size, default=None)
    if largest is None:
        return ""
    with largest.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        # The name alone: a help text of another flag may speak of one that is gone.
        return " ".join(flag for flag in flags if content.find(f"\0{_name(flag)}\0".encode()) >= 0)


def _name(flag: str) -> str:
    return flag.removeprefix("--").partition("=")[0]

"""Where compiled loops are cached: a folder named after the package's sources.

Numba renews a cached loop when its own file changes, and is blind to changes in the files that the loop
calls into: after an upgrade or an edit it may run old code, or fail to load. A folder a state of the
sources rules that out. It is chosen when solvers are first imported, and only if the user chose none.
"""

import hashlib
import os
import sys
from pathlib import Path

VARIABLE = "NUMBA_CACHE_DIR"
DIGITS = 16


def source_digest() -> str:
    """Return a digest of the package's files that hold compiled loops or the tuples they take."""
    root = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        text = path.read_bytes()
        if b"numba" in text or b"NamedTuple" in text:
            digest.update(str(path.relative_to(root)).encode() + text)
    return digest.hexdigest()[:DIGITS]


def choose_compile_cache() -> None:
    """Point Numba at this state's folder, unless the user has set NUMBA_CACHE_DIR or the folder can't be made."""
    if os.environ.get(VARIABLE):
        return
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = home / "mlcluster-optim" / source_digest()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    os.environ[VARIABLE] = str(folder)
    numba = sys.modules.get("numba")
    if numba is not None:
        numba.config.reload_config()

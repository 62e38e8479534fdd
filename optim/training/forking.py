"""How machines' processes are started: forked from one that has imported all they need, where that one suits them."""

import os
from collections.abc import Callable
from multiprocessing import forkserver, get_all_start_methods, get_context, util
from multiprocessing.context import ForkServerContext, SpawnContext

_PRELOADED = ["optim.training.preloaded"]

FOLDER = "OPTIM_FORK_SERVER_FOLDER"
"""The variable that tells a fork server where its socket lies."""

_READ_AT_IMPORT = (
    "CUDA_", "JAX_", "KMP_", "LD_", "MKL_", "NPY_", "NUMBA_", "NUMPY_", "OMP_", "OPENBLAS_", "PYTHON", "TF_", "XLA_",
)  # fmt: skip
"""How names of variables begin that libraries read when they are imported: a fork keeps what they found."""

_BEGUN: list[tuple[int, dict[str, str]]] = []
"""The fork servers that were started here, one after another: their process, and what their libraries found."""


def context_of(has_devices: bool) -> "SpawnContext | ForkServerContext":
    """Return how a process is started now: forked if that makes it what one that is spawned would be.

    What it is forked from is the interpreter's own fork server, and ends with it. One that was there before, or whose
    libraries saw other settings, doesn't suit; nor does one without devices where there shall be some. And there is none
    where its socket finds no room: names of sockets are short, and the folder for temporary files may have a long one.
    """
    if has_devices or "forkserver" not in get_all_start_methods() or not _has_server():
        return get_context("spawn")
    return get_context("forkserver")


def _has_server() -> bool:
    """Tell whether the fork server suits; start one if there is none, with this process's surroundings."""
    found = {name: value for name, value in os.environ.items() if name.startswith(_READ_AT_IMPORT)}
    before = _server_id()
    if before is not None and before not in (server for server, _ in _BEGUN):
        return False
    forkserver.set_forkserver_preload(_PRELOADED)
    try:
        os.environ[FOLDER] = util.get_temp_dir()
        forkserver.ensure_running()
    except OSError:
        return False
    finally:
        os.environ.pop(FOLDER, None)
    now = _server_id()
    if now is not None and now != before:
        _BEGUN.append((now, found))
    return (now, found) in _BEGUN[-1:]


def _server_id() -> int | None:
    """Return the process of the interpreter's fork server; None if it has none, or doesn't say."""
    return getattr(forkserver._forkserver, "_forkserver_pid", None)


class Environment(dict[str, str]):
    """Variables that a process takes for its own as soon as it reads them, before it imports what is sent after them."""

    def __reduce__(self) -> tuple[Callable[[dict[str, str]], None], tuple[dict[str, str]]]:
        """Travel as what to do."""
        return _adopt, (dict(self),)


def _adopt(environment: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)

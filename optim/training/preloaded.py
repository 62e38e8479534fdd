"""What every machine's process needs, imported once: new processes are forked from one that holds it.

Importing JAX takes most of a second of a core, a fork of what has imported it a hundredth. That is safe for as long as
nothing here starts JAX's backend, whose threads a fork would lose: importing doesn't.
"""

import atexit
import os
import shutil

import optim.training.applications
import optim.training.machine
import optim.training.server  # noqa: F401
from optim.training.processes import FOLDER


def _tidy(folder: str, own_id: int, controller_id: int) -> None:
    """Remove a socket's folder for a controller that was killed: what is forked from it ended already."""
    if os.getpid() == own_id and os.getppid() != controller_id:
        shutil.rmtree(folder, ignore_errors=True)


if folder := os.environ.pop(FOLDER, None):
    atexit.register(_tidy, folder, os.getpid(), os.getppid())

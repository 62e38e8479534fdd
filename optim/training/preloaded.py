"""Imports that every machine's process needs, loaded once in the process from which these processes are forked.

Importing JAX takes most of a second; forking a process that has imported it takes a hundredth of that. Forking is safe
until JAX's backend starts, because a fork would lose the backend's threads; importing JAX does not start the backend.
"""

import atexit
import os
import shutil

import optim.training.applications
import optim.training.machine
import optim.training.server  # noqa: F401
from optim.training.processes import FOLDER


def _tidy(folder: str, own_id: int, controller_id: int) -> None:
    """Remove the folder of the fork server's socket if the controller was killed; the forked processes have already ended."""
    if os.getpid() == own_id and os.getppid() != controller_id:
        shutil.rmtree(folder, ignore_errors=True)


if folder := os.environ.pop(FOLDER, None):
    atexit.register(_tidy, folder, os.getpid(), os.getppid())

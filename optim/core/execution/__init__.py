"""Pieces of work run one after the other, in several processes, or on a Dask cluster (`dask_engine`, an optional extra).

A task knows what is done with a piece; pieces are named, small when pickled, and can be done anywhere. An engine hands them
out and gives back what came of each. The driver alone writes results: pieces return records and touch no files.
"""

from importlib import import_module
from types import ModuleType

from optim.core.execution.parcels import SentOnce as SentOnce
from optim.core.execution.pieces import AbstractTask as AbstractTask
from optim.core.execution.pieces import Engine as Engine
from optim.core.execution.pieces import InThisProcess as InThisProcess
from optim.core.execution.pieces import in_order as in_order
from optim.core.execution.pieces import run_in_order as run_in_order
from optim.core.execution.processes import InProcesses as InProcesses
from optim.core.execution.processes import born_deaf_to_ctrl_c as born_deaf_to_ctrl_c
from optim.core.missing import require


def load_dask() -> ModuleType:
    """Return the module of the Dask engine.

    Raises
    ------
    MissingDependencyError
        If Dask isn't installed.
    """
    require("distributed", "the Dask engine")
    return import_module("optim.core.execution.dask_engine")


def local_engine(num_processes: int) -> Engine:
    """Return an engine of so many processes of this machine, of none beside this one where that is enough."""
    return InProcesses(num_processes) if num_processes > 1 else InThisProcess()

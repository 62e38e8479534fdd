"""Pieces of work run one after the other, in several processes, or on a Dask cluster (`dask_cluster`, an optional extra).

A task knows what is done with a piece; pieces are named, small when pickled, and can be done anywhere. An engine hands them
out and gives back what came of each. The driver alone writes results: pieces return records and touch no files.
"""

from importlib import import_module
from types import ModuleType

from optim.core.optional import import_extra
from optim.execution.processes import ProcessExecutor as ProcessExecutor
from optim.execution.processes import sigint_blocked as sigint_blocked
from optim.execution.tasks import AbstractTask as AbstractTask
from optim.execution.tasks import Broadcast as Broadcast
from optim.execution.tasks import Engine as Engine
from optim.execution.tasks import SerialExecutor as SerialExecutor
from optim.execution.tasks import in_order as in_order
from optim.execution.tasks import run_in_order as run_in_order


def load_dask() -> ModuleType:
    """Return the module of the Dask engine.

    Raises
    ------
    MissingDependencyError
        If Dask isn't installed.
    """
    import_extra("distributed", "the Dask engine")
    return import_module("optim.execution.dask_cluster")


def local_engine(num_processes: int) -> Engine:
    """Return an engine of so many processes of this machine, of none beside this one where that is enough."""
    return ProcessExecutor(num_processes) if num_processes > 1 else SerialExecutor()

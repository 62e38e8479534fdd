"""Execution of pieces of work serially, in several processes, or on a Dask cluster (`dask_cluster`, an optional extra).

A task defines the work on each piece. Pieces have names, are small when pickled, and can run in any process. An engine
distributes the pieces to workers and yields their results. Pieces return records and write no files; only the driver
(the process that started the run) writes results.
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
        If Dask is not installed.
    """
    import_extra("distributed", "the Dask engine")
    return import_module("optim.execution.dask_cluster")


def local_engine(num_processes: int) -> Engine:
    """Return an engine with `num_processes` local processes; with 1, the pieces run in this process."""
    return ProcessExecutor(num_processes) if num_processes > 1 else SerialExecutor()

"""Where pieces of work run: the options that every command with many pieces shares."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, ClassVar

from optim.cli.border import note
from optim.cli.parameters import MOST_PROCESSES, option
from optim.core.errors import InvalidOptionError

if TYPE_CHECKING:
    from optim.core.execution import Engine
    from optim.core.execution.dask_engine import InDask

WHERE = "Where it runs"
BYTES_IN_MB = 1e6


class EngineName(StrEnum):
    """What hands out pieces of work."""

    LOCAL = "local"
    DASK = "dask"


@dataclass(frozen=True, kw_only=True)
class EngineChoice:
    """Which engine, and how many workers it has."""

    engine: Annotated[EngineName, option("--engine", "Processes of this machine, or a Dask cluster.", panel=WHERE)] = (
        EngineName.LOCAL
    )
    processes: Annotated[
        int | None,
        option(
            "--processes", "How many pieces of work run at once (default: 1).", panel=WHERE, min=1, max=MOST_PROCESSES
        ),
    ] = None
    scheduler: Annotated[
        str | None, option("--scheduler", "An existing Dask scheduler; its workers do the work.", "ADDRESS", WHERE)
    ] = None
    dashboard: Annotated[bool, option("--dashboard", "Print the address of Dask's page.", panel=WHERE)] = False
    unless_said: ClassVar[int] = 1
    """Number of processes."""

    @contextmanager
    def opened(self, num_short: int | None = None) -> "Iterator[Engine]":
        """Give the engine; a cluster that was started for it ends with the block.

        Parameters
        ----------
        num_short
            How many pieces there are, where each takes less time than a process to begin: a few are done in this one.

        Raises
        ------
        InvalidOptionError
            If options contradict one another.
        MissingDependencyError
            If Dask isn't installed.
        EngineError
            If no scheduler answers.
        """
        from optim.core.execution import load_dask, local_engine

        if self.scheduler is not None and (self.processes or 1) > 1:
            raise InvalidOptionError(
                "--scheduler's cluster has its own number of workers; leave out --processes, or --scheduler"
            )
        processes = self.processes or self.unless_said
        if self.engine is EngineName.LOCAL and self.scheduler is None:
            if self.dashboard:
                raise InvalidOptionError("--dashboard is Dask's page; add --engine dask or --scheduler ADDRESS")
            is_few = num_short is not None and num_short < 2 * processes
            yield local_engine(1 if is_few else processes)
            return
        with load_dask().dask_cluster(self.scheduler, processes) as engine:
            if self.dashboard:
                note(f"Dask's page: {engine.page}")
            yield engine
            _tell(engine)


@dataclass(frozen=True, kw_only=True)
class PairChoice(EngineChoice):
    """The same, where two processes are the default."""

    processes: Annotated[
        int | None,
        option(
            "--processes", "How many pieces of work run at once (default: 2).", panel=WHERE, min=1, max=MOST_PROCESSES
        ),
    ] = None
    unless_said: ClassVar[int] = 2


def _tell(engine: "InDask") -> None:
    """Say how much was sent to workers beside the pieces themselves."""
    note(f"sent to workers once each: {engine.sent_bytes / BYTES_IN_MB:.3g} MB")

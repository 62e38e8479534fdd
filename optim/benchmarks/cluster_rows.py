"""Rows of policies on a cluster that are kept in a file, so that the same command goes on where it was stopped."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from optim.benchmarks.records import open_lines
from optim.core.documents import encode_line
from optim.core.progress import Progress
from optim.core.stopping import Interruption
from optim.execution import Engine, SerialExecutor
from optim.models.cluster.run_file import LoggedRun, load_run
from optim.simulation.cluster.comparison import Comparison, PolicyRequest

_LOG = logging.getLogger(__name__)


class CachedRow(msgspec.Struct, frozen=True):
    """A row, and what it is the result of."""

    key: str
    row: dict[str, Any]

    def to_json(self) -> bytes:
        """Return it as one line, without its end."""
        return encode_line(self)

    @classmethod
    def from_json(cls, line: bytes) -> "CachedRow":
        """Read a line."""
        return msgspec.json.decode(line, type=cls)


@dataclass(frozen=True, kw_only=True, eq=False)
class ProvidedRow:
    """A row with its key, its events as far as they are there, and whether it was kept from before.

    `is_again` says that it was kept, and had to be played again for its events.
    """

    key: str
    row: dict[str, Any]
    logged: LoggedRun | None
    is_kept: bool
    is_again: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class PolicyResultCache:
    """Where rows come from besides being played.

    Parameters
    ----------
    results
        File of finished rows; None to keep none.
    log
        File of events of an earlier run of the same command; None for none.
    need_events
        Whether rows alone don't do: what has no events in `log` is played again.
    engine
        Where policies are played; in this process by default.
    """

    results: Path | None = None
    log: Path | None = None
    need_events: bool = False
    engine: Engine = field(default_factory=SerialExecutor)

    def rows(
        self, task: Comparison, requests: Sequence[PolicyRequest], stop: Interruption, progress: Progress
    ) -> Iterator[ProvidedRow]:
        """Yield each policy's row in turn; once `stop` is requested, the rows that are there.

        Raises
        ------
        InvalidProblemError
            If the results file holds something else.
        NotAllowedError
            If another run holds it.
        """
        keys = [task.key(request) for request in requests]
        before = self._events(set(keys))
        with ExitStack() as stack:
            file = stack.enter_context(open_lines(self.results, CachedRow.from_json)) if self.results else None
            cached = {} if file is None else dict(file.records)
            is_kept = [key in cached and (not self.need_events or key in before) for key in keys]
            todo = [request for request, is_there in zip(requests, is_kept, strict=True) if not is_there]
            played = task.play(todo, self.engine, stop, progress)
            for key, is_there in zip(keys, is_kept, strict=True):
                if is_there:
                    yield ProvidedRow(key=key, row=cached[key].row, logged=before.get(key), is_kept=True)
                    continue
                result = next(played)
                if result is None:
                    continue
                row = result.row.flat()
                if file is not None and key not in cached:
                    file.append(CachedRow(key=key, row=row))
                yield ProvidedRow(key=key, row=row, logged=result.logged, is_kept=False, is_again=key in cached)

    def _events(self, keys: set[str]) -> dict[str, LoggedRun]:
        """Return the runs of an earlier log by their keys."""
        if self.results is None or self.log is None or not self.log.is_file():
            return {}
        record = load_run(self.log)
        logged_keys = record.settings.get("keys")
        if not isinstance(logged_keys, list) or len(logged_keys) != len(record.runs):
            return {}
        lost = [run.policy for key, run in zip(logged_keys, record.runs, strict=True) if key not in keys]
        if lost:
            _LOG.warning(
                "%s holds events of %s, too, which this command doesn't play and so doesn't keep; to keep them, name these policies "
                "as well, or another log",
                self.log,
                ", ".join(lost),
            )
        return {key: run for key, run in zip(logged_keys, record.runs, strict=True) if key in keys}

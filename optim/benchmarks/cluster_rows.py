"""Cache of policies' results in a file, one row per policy, so that an interrupted command can resume."""

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
    """A row with the key of its request."""

    key: str
    row: dict[str, Any]

    def to_json(self) -> bytes:
        """Return one line of JSON, without the line feed."""
        return encode_line(self)

    @classmethod
    def from_json(cls, line: bytes) -> "CachedRow":
        """Parse a line."""
        return msgspec.json.decode(line, type=cls)


@dataclass(frozen=True, kw_only=True, eq=False)
class ProvidedRow:
    """A row with its key, its events if available, and whether it comes from the cache.

    `is_again` is true for a cached row that was simulated again because its events were missing.
    """

    key: str
    row: dict[str, Any]
    logged: LoggedRun | None
    is_kept: bool
    is_again: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class PolicyResultCache:
    """Cache of rows and events.

    Parameters
    ----------
    results
        File of finished rows, or None.
    log
        File of events of an earlier run of the same command, or None.
    need_events
        Whether events are needed; rows without events in `log` are then simulated again.
    engine
        Engine that runs the policies; default: this process.
    """

    results: Path | None = None
    log: Path | None = None
    need_events: bool = False
    engine: Engine = field(default_factory=SerialExecutor)

    def rows(
        self, task: Comparison, requests: Sequence[PolicyRequest], stop: Interruption, progress: Progress
    ) -> Iterator[ProvidedRow]:
        """Yield each policy's row in turn; after `stop` is requested, only cached rows.

        Raises
        ------
        InvalidProblemError
            If the results file contains other data.
        NotAllowedError
            If another run has locked it.
        """
        keys = [task.key(request) for request in requests]
        before = self._events(set(keys))
        with ExitStack() as stack:
            file = None
            if self.results:
                file = stack.enter_context(open_lines(self.results, CachedRow.from_json, name="row of a policy"))
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
        """Return the runs of an earlier log by key."""
        if self.results is None or self.log is None or not self.log.is_file():
            return {}
        record = load_run(self.log)
        logged_keys = record.settings.get("keys")
        if not isinstance(logged_keys, list) or len(logged_keys) != len(record.runs):
            return {}
        lost = [run.policy for key, run in zip(logged_keys, record.runs, strict=True) if key not in keys]
        if lost:
            _LOG.warning(
                "%s also contains events of %s, which this command removes; to keep them, add these policies, or choose "
                "another log",
                self.log,
                ", ".join(lost),
            )
        return {key: run for key, run in zip(logged_keys, record.runs, strict=True) if key in keys}

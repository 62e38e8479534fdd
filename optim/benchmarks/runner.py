"""Run a list of work: what is in the results file already is taken from there, the rest is done."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from optim.benchmarks.compare import Difference, Selection, compare
from optim.benchmarks.machine import code_digest
from optim.benchmarks.record import Record
from optim.benchmarks.results_file import ResultsFile, open_results
from optim.benchmarks.spec import BenchRequest, BenchSpec, Skipped
from optim.benchmarks.work import AbstractWork
from optim.benchmarks.worker_processes import run_in_processes
from optim.core.errors import InvalidOptionError
from optim.core.progress import Progress, SilentProgress
from optim.core.status import Termination
from optim.core.stopping import Interruption


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkList:
    """What is to be run, and the pairs that can't be."""

    specs: tuple[BenchSpec, ...]
    request: BenchRequest
    work: tuple[AbstractWork, ...]
    skipped: tuple[Skipped, ...]

    def position(self, record: Record) -> int:
        """Return where the record's work stands in the list."""
        return next(position for position, piece in enumerate(self.work) if piece.key == record.key)

    def compare(self, records: Sequence[Record], golden: Sequence[Record]) -> list[Difference]:
        """Compare records with those golden rows that the request asks for."""
        own = {piece.subject.name for piece in self.work}
        selection = Selection(
            suites=tuple(spec.name for spec in self.specs),
            seeds=self.request.seeds,
            solvers=self.request.solvers,
            instances=None if self.request.sources is None and self.request.profile is None else tuple(own),
        )
        return compare(records, golden, selection)


def plan_work(specs: Sequence[BenchSpec], request: BenchRequest) -> WorkList:
    """Build the work of several suites; equal work is listed once.

    Raises
    ------
    InvalidOptionError
        If a suite doesn't have the size, or doesn't take the user's instances.
    """
    entries: list[AbstractWork | Skipped] = []
    for spec in specs:
        if request.size not in spec.sizes:
            raise InvalidOptionError(
                f"suite {spec.name!r} has no size {request.size!r}; it has: {', '.join(spec.sizes)}"
            )
        own = request.for_problem(spec.problem)
        if own.sources is not None and not spec.takes_instances:
            raise InvalidOptionError(
                f"suite {spec.name!r} has its own instances; leave out those you name, or the suite"
            )
        entries += spec.build(own)
    unique = {entry.key: entry for entry in entries if isinstance(entry, AbstractWork)}
    return WorkList(
        specs=tuple(specs),
        request=request,
        work=tuple(unique.values()),
        skipped=tuple(entry for entry in entries if isinstance(entry, Skipped)),
    )


def run_work(
    work: Sequence[AbstractWork],
    path: Path,
    *,
    is_resumed: bool = True,
    num_processes: int = 1,
    stop: Interruption | None = None,
    progress: Progress | None = None,
) -> Iterator[Record]:
    """Yield the record of each piece of work, first those that the results file holds already.

    A record is taken from the file if the same work was done by the same code and didn't end in an
    error. New ones are in the file before they are yielded. Work that is interrupted leaves no
    record, so that resuming does it whole.

    Parameters
    ----------
    work
        What to run.
    path
        The results file.
    is_resumed
        Whether records of the file may stand for work; otherwise they are made anew.
    num_processes
        How many processes run at once; with one, everything runs in this process.
    stop
        Stops the run when it is requested.
    progress
        Hears how many pieces of work are done.
    """
    stop = stop if stop is not None else Interruption()
    progress = progress if progress is not None else SilentProgress()
    asked = {piece.key for piece in work}

    def is_wanted(record: Record) -> bool:
        if record.key not in asked:
            return True
        return is_resumed and record.code == code_digest() and record.error is None

    with open_results(path, is_wanted) as results:
        for piece in work:
            if piece.key in results.records:
                yield results.records[piece.key]
        todo = [piece for piece in work if piece.key not in results.records]
        yield from _run_rest(todo, results, num_processes, stop, progress)


def _run_rest(
    todo: Sequence[AbstractWork],
    results: ResultsFile,
    num_processes: int,
    stop: Interruption,
    progress: Progress,
) -> Iterator[Record]:
    """Run and store what the file lacks."""
    if num_processes > 1 and len(todo) > 1:
        records = run_in_processes(todo, min(num_processes, len(todo)), stop, progress)
    else:
        records = _run_here(todo, stop, progress)
    for record in records:
        if record.termination == Termination.INTERRUPTED:
            continue
        results.append(record)
        yield record


def _run_here(todo: Sequence[AbstractWork], stop: Interruption, progress: Progress) -> Iterator[Record]:
    """Run one after the other in this process."""
    progress.start("benchmark", len(todo))
    for number, piece in enumerate(todo):
        if stop.is_requested:
            break
        inner = _Balanced(progress)
        inner.start(f"{piece.solver} on {piece.subject.name}")
        record = piece.run(stop, inner)
        inner.close()
        progress.update(number + 1)
        yield record
    progress.finish()


class _Balanced:
    """Pass news on, so that a solver that raises between `start` and `finish` leaves no task open."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._depth = 0

    def start(self, task: str, total: float | None = None) -> None:
        """Begin a task."""
        self._depth += 1
        self._progress.start(task, total)

    def update(self, completed: float, values: Mapping[str, float | None] | None = None) -> None:
        """Report steps of the present task."""
        if self._depth:
            self._progress.update(completed, values)

    def finish(self) -> None:
        """End the present task."""
        if self._depth:
            self._depth -= 1
            self._progress.finish()

    def close(self) -> None:
        """End all tasks that are open."""
        while self._depth:
            self.finish()

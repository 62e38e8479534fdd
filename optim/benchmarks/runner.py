"""Run a list of work, reusing records in the results file."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from optim.benchmarks.compare import Difference, Selection, compare
from optim.benchmarks.records import Record, open_results
from optim.benchmarks.suite import AbstractWork, BenchRequest, BenchSpec, Skipped
from optim.core.errors import InvalidOptionError, OptimError
from optim.core.progress import Progress, SilentProgress
from optim.core.provenance import code_digest
from optim.core.solution import Termination
from optim.core.stopping import Interruption, StoppingCriterion
from optim.core.user_code import format_exception_line
from optim.execution import AbstractTask, Engine, SerialExecutor


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkList:
    """The work to run, and the skipped pairs of solver and instance."""

    specs: tuple[BenchSpec, ...]
    request: BenchRequest
    work: tuple[AbstractWork, ...]
    skipped: tuple[Skipped, ...]

    def in_order(self, records: Iterable[Record]) -> list[Record]:
        """Sort records of this work in the order of the list."""
        position = {piece.key: number for number, piece in enumerate(self.work)}
        return sorted(records, key=lambda record: position[record.key])

    def compare(self, records: Sequence[Record], golden: Sequence[Record]) -> list[Difference]:
        """Compare records with the golden rows that match the request."""
        instances = {piece.subject.name for piece in self.work}
        selection = Selection(
            suites=tuple(spec.name for spec in self.specs),
            seeds=self.request.seeds,
            solvers=self.request.solvers,
            instances=None if self.request.sources is None and self.request.profile is None else tuple(instances),
        )
        return compare(records, golden, selection)


def plan_work(specs: Sequence[BenchSpec], request: BenchRequest) -> WorkList:
    """Build the work of several suites; equal work is listed once.

    Raises
    ------
    InvalidOptionError
        If a suite does not have the size, or does not accept the user's instances.
    """
    entries: list[AbstractWork | Skipped] = []
    for spec in specs:
        if request.size not in spec.sizes:
            raise InvalidOptionError(
                f"suite {spec.name!r} has no size {request.size!r}; it has: {', '.join(spec.sizes)}"
            )
        suited = request.for_problem(spec.problem)
        if suited.sources is not None and not spec.takes_instances:
            raise InvalidOptionError(
                f"suite {spec.name!r} accepts no other instances; omit your instances, or the suite"
            )
        entries += spec.build(suited)
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
    engine: Engine | None = None,
    stop: Interruption | None = None,
    progress: Progress | None = None,
) -> Iterator[Record]:
    """Yield the record of each piece of work, first those in the results file.

    A record of the file is reused if the same code did the same work without error. New records are written
    before they are yielded. Interrupted work leaves no record, so that a resumed run repeats it.

    Parameters
    ----------
    work
        The work to run.
    path
        The results file.
    is_resumed
        Whether to reuse records of the file.
    engine
        Execution engine; default: this process.
    stop
        Interruption of the run.
    progress
        Receives the number of finished pieces of work.
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
        for _, record in (engine or SerialExecutor()).run(_Benchmark(), todo, stop, progress):
            if record.termination == Termination.INTERRUPTED:
                continue
            results.append(record)
            yield record


class _Benchmark(AbstractTask[AbstractWork, Record]):
    """Run each piece of work; pieces of one problem use the same compiled loops."""

    @property
    def title(self) -> str:
        """Title of the progress display."""
        return "benchmark"

    def do(self, piece: AbstractWork, stop: StoppingCriterion, progress: Progress) -> Record:
        """Return the record of a piece; an exception becomes the record's error."""
        try:
            return piece.run(stop, progress)
        except Exception as error:  # a plug-in may raise anything; other work continues
            return piece.failed(str(error) if isinstance(error, OptimError) else format_exception_line(error))

    def lost(self, piece: AbstractWork, reason: str) -> Record:
        """Return the record of work whose process died."""
        return piece.failed(reason)

    def name(self, piece: AbstractWork) -> str:
        """Return the names of solver and instance."""
        return f"{piece.solver} on {piece.subject.name}"

    def is_failure(self, result: Record) -> bool:
        """Return whether the work raised, or its process died."""
        return result.error is not None

    def kind(self, piece: AbstractWork) -> str:
        """Return the problem."""
        return piece.subject.topic

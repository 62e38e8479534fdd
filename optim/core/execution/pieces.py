"""What engines run: tasks and their pieces; and the plainest engine, which runs them here one after the other."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from optim.core.errors import NotAllowedError
from optim.core.own_code import sendable, where_own_code_failed
from optim.core.progress import Progress, SilentProgress
from optim.core.stopping import Interruption, StoppingCriterion

Piece = TypeVar("Piece")
Result = TypeVar("Result")


class AbstractTask(ABC, Generic[Piece, Result]):
    """What is done with each piece of work.

    A task is pickled once a worker, with whatever all pieces need (a table of prices); a piece is sent each time it is handed
    out, but for what it holds of `SentOnce` (an instance that several pieces share). The same piece gives the same result
    wherever it runs.
    """

    @property
    @abstractmethod
    def title(self) -> str:
        """What is done, as progress shows it."""

    @abstractmethod
    def do(self, piece: Piece, stop: StoppingCriterion, progress: Progress) -> Result:
        """Return what comes of a piece. What this raises, the driver raises: it ends the run."""

    def lost(self, piece: Piece, reason: str) -> Result:
        """Return the result of a piece whose process died; called by the driver. Tasks whose results can't say so raise.

        Raises
        ------
        NotAllowedError
            Unless a task returns something.
        """
        raise NotAllowedError(f"{self.title}: {self.name(piece)[:40]} is lost: {reason}; use --processes 1")

    def name(self, piece: Piece) -> str:
        """Return a piece's name, as progress shows it."""
        return str(piece)

    def kind(self, piece: Piece) -> str:
        """Return what pieces have in common that a process does faster the second time, such as compiled loops."""
        del piece
        return ""

    def is_failure(self, result: Result) -> bool:
        """Return whether a result says that its piece failed, as progress counts it."""
        del result
        return False


def attempt(
    task: AbstractTask[Any, Result], piece: Any, stop: StoppingCriterion, progress: Progress
) -> tuple[Exception | None, Result | None]:
    """Return the error that a piece raised in a worker, which the driver is to raise, or its result.

    What a file of one's own raises to end a process costs its piece, not the worker: one `SystemExit` is an error like any
    other; one `KeyboardInterrupt`, which isn't the user's here, as workers don't hear Ctrl-C, is a lost piece.
    """
    try:
        return None, task.do(piece, stop, progress)
    except Exception as error:  # whatever it is, the driver raises it
        return sendable(error), None
    except (SystemExit, KeyboardInterrupt) as error:
        if (place := where_own_code_failed(error)) is None:
            raise
        if isinstance(error, SystemExit):
            return sendable(error), None
        try:
            return None, task.lost(piece, f"{place}; let it raise another error")
        except NotAllowedError:  # a task whose results can't say so
            return sendable(error), None


class Engine(Protocol):
    """Run pieces somewhere."""

    def run(
        self, task: AbstractTask[Piece, Result], pieces: Sequence[Piece], stop: Interruption, progress: Progress
    ) -> Iterator[tuple[int, Result]]:
        """Yield each piece's position and result as it is finished.

        Once `stop` is requested no piece is begun any more, those that run are asked to stop, and pieces that weren't begun
        are left out. However the iteration ends, nothing that the engine started is left running.
        """
        ...


def in_order(finished: Iterable[tuple[int, Result]]) -> Iterator[Result]:
    """Yield results by position, each as soon as all before it are there; after a gap what follows comes at the end."""
    early: dict[int, Result] = {}
    upcoming = 0
    for position, result in finished:
        early[position] = result
        while upcoming in early:
            yield early.pop(upcoming)
            upcoming += 1
    yield from (early[position] for position in sorted(early))


class InThisProcess:
    """Run pieces here, one after the other."""

    def run(
        self, task: AbstractTask[Piece, Result], pieces: Sequence[Piece], stop: Interruption, progress: Progress
    ) -> Iterator[tuple[int, Result]]:
        """Yield each piece's position and result, in order."""
        progress.start(task.title, len(pieces))
        for position, piece in enumerate(pieces):
            if stop.is_requested:
                break
            inner = _Balanced(progress)
            inner.start(task.name(piece))
            try:
                result = task.do(piece, stop, inner)
            finally:
                inner.close()
            progress.update(position + 1)
            yield position, result
        progress.finish()


def run_in_order(
    task: AbstractTask[Piece, Result],
    pieces: Sequence[Piece],
    engine: Engine | None = None,
    stop: Interruption | None = None,
    progress: Progress | None = None,
) -> Iterator[Result]:
    """Yield results in the order of their pieces; here, uninterrupted and silently unless something else is given."""
    running = (engine or InThisProcess()).run(task, pieces, stop or Interruption(), progress or SilentProgress())
    yield from in_order(running)


class _Balanced:
    """Pass news on, so that a piece that raises between `start` and `finish` leaves no task open."""

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

"""Tasks and their pieces, what travels to a worker once, and the serial executor.

Objects marked as `Broadcast` are left out of a piece's bytes; in their place stands the digest of their own, by which a worker
finds them among what it was sent before.
"""

import hashlib
import io
import os
import pickle
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from optim.core.errors import InvalidProblemError, NotAllowedError
from optim.core.progress import Progress, SilentProgress
from optim.core.stopping import Interruption, StoppingCriterion
from optim.core.user_code import sendable, where_user_code_failed

Piece = TypeVar("Piece")

Result = TypeVar("Result")


class AbstractTask(ABC, Generic[Piece, Result]):
    """What is done with each piece of work.

    A task is pickled once a worker, with whatever all pieces need (a table of prices); a piece is sent each time it is handed
    out, but for what it holds of `Broadcast` (an instance that several pieces share). The same piece gives the same result
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
        if (place := where_user_code_failed(error)) is None:
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


class SerialExecutor:
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
    running = (engine or SerialExecutor()).run(task, pieces, stop or Interruption(), progress or SilentProgress())
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


MAX_PARTS = 16
"""How many objects a worker keeps; those that it needed longest ago make room, and are sent again when they are needed."""


class Broadcast:
    """Mark objects that many pieces hold: a worker receives one once, however many of its pieces need it.

    They don't change while a run lasts.
    """


@dataclass(frozen=True, slots=True)
class PackedTask:
    """A piece as bytes, and the digests of what it needs beside."""

    content: bytes
    needs: tuple[str, ...] = ()


class Packer:
    """The driver's side: pack pieces, and keep what they need, as bytes by digest."""

    def __init__(self) -> None:
        self.parts: dict[str, bytes] = {}
        # Held with the object, whose identity is the key: so it can't be another's while the packer lives.
        self._digests: dict[int, tuple[Broadcast, str]] = {}

    def pack(self, thing: object, name: str) -> PackedTask:
        """Return a piece as bytes.

        Raises
        ------
        InvalidProblemError
            If it can't be pickled; the message has its name.
        """
        buffer, needs = io.BytesIO(), dict[str, None]()
        try:
            _Pickler(buffer, self, needs).dump(thing)
        except Exception as error:  # foreign classes may raise anything here
            what = " ".join(f"{type(error).__name__}: {error}".split())
            raise InvalidProblemError(
                f"{name} can't be sent to another process ({what}); define its classes at the top of a module, and "
                "leave out open files and locks; or run in this process"
            ) from error
        return PackedTask(buffer.getvalue(), tuple(needs))

    def digest(self, part: Broadcast) -> str:
        """Return the digest of an object's bytes, which are kept."""
        known = self._digests.get(id(part))
        if known is None:
            blob = pickle.dumps(part, protocol=pickle.HIGHEST_PROTOCOL)
            known = self._digests[id(part)] = part, hashlib.sha256(blob).hexdigest()
            self.parts[known[1]] = blob
        return known[1]


class _Pickler(pickle.Pickler):
    """Write what is marked as its digest."""

    def __init__(self, buffer: io.BytesIO, packer: Packer, needs: dict[str, None]) -> None:
        super().__init__(buffer, protocol=pickle.HIGHEST_PROTOCOL)
        self._packer, self._needs = packer, needs

    def persistent_id(self, obj: Any) -> str | None:
        """Return the digest of what is marked, None for all else."""
        if not isinstance(obj, Broadcast):
            return None
        digest = self._packer.digest(obj)
        self._needs[digest] = None
        return digest


def evict_lru(held: dict[str, Any], needs: Sequence[str]) -> None:
    """Forget what was needed longest ago, where too much is held; driver and worker do so alike, and so stay in step."""
    for digest in needs:
        held[digest] = held.pop(digest)
    while len(held) > max(MAX_PARTS, len(needs)):
        del held[next(iter(held))]


class Unpacker:
    """The worker's side: hold what was sent once, and give pieces back."""

    def __init__(self) -> None:
        self._parts: dict[str, Any] = {}
        self._lock = threading.Lock()  # a worker may have several threads

    def unpack(self, parcel: PackedTask, parts: Mapping[str, bytes]) -> tuple[Any, int]:
        """Return the piece, and how many bytes of `parts` were new.

        Parameters
        ----------
        parcel
            The piece.
        parts
            Of what it needs at least those that aren't held.
        """
        with self._lock:
            new = {digest: parts[digest] for digest in parcel.needs if digest not in self._parts}
            self._parts |= {digest: pickle.loads(blob) for digest, blob in new.items()}
            evict_lru(self._parts, parcel.needs)
            return _Unpickler(io.BytesIO(parcel.content), self._parts).load(), sum(map(len, new.values()))


class _Unpickler(pickle.Unpickler):
    """Read digests as what they stand for."""

    def __init__(self, buffer: io.BytesIO, parts: Mapping[str, Any]) -> None:
        super().__init__(buffer)
        self._parts = parts

    def persistent_load(self, pid: Any) -> Any:
        """Return what a digest stands for."""
        return self._parts[pid]


class ShardWorker(Broadcast, ABC):
    """What every worker of a crew holds. Shards are told by number; any worker can answer for any shard.

    The same question has the same answer wherever and however often it is asked, so that a worker that is lost costs time alone.
    """

    @abstractmethod
    def answer(self, shard: int, question: Any, own: Any) -> Any:
        """Return a shard's answer to a question that all are asked, with what it alone is told."""


class WorkerPool(Protocol):
    """Workers that hold a post."""

    def ask(self, question: Any, own: Mapping[int, Any]) -> dict[int, Any]:
        """Return the answer of each shard in `own`, by shard."""
        ...


class ThreadCrew:
    """Threads of this process share one post; they help as far as its work releases the interpreter's lock.

    Parameters
    ----------
    post
        What is asked; shards are asked at the same time.
    num_threads
        How many, as many as cores may be used by default.
    """

    def __init__(self, post: ShardWorker, num_threads: int | None = None) -> None:
        self._post = post
        self._threads = ThreadPoolExecutor(num_threads or len(os.sched_getaffinity(0)))

    def __enter__(self) -> "ThreadCrew":
        return self

    def __exit__(self, *exception: object) -> None:
        self._threads.shutdown()

    def ask(self, question: Any, own: Mapping[int, Any]) -> dict[int, Any]:
        """Return the answer of each shard in `own`, by shard."""
        answers = self._threads.map(lambda shard: self._post.answer(shard, question, own[shard]), own)
        return dict(zip(own, answers, strict=True))

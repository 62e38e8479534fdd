"""Tasks and their pieces, objects sent to each worker once, and the serial executor.

A pickled piece contains only the digests of its `Broadcast` objects, by which a worker finds the objects that it has
received.
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
    """The work to do on each piece.

    A task is pickled once per worker, with the data that all pieces share (such as a price table). A piece is sent each time
    it is assigned, without its `Broadcast` objects (such as an instance that several pieces share). Equal pieces give equal
    results in any process.
    """

    @property
    @abstractmethod
    def title(self) -> str:
        """Description of the task for progress displays."""

    @abstractmethod
    def do(self, piece: Piece, stop: StoppingCriterion, progress: Progress) -> Result:
        """Return the result of a piece. The driver raises any exception that this method raises, which ends the run."""

    def lost(self, piece: Piece, reason: str) -> Result:
        """Return the result of a piece whose process died; called by the driver.

        Raises
        ------
        NotAllowedError
            By default. A task whose results can represent a lost piece overrides this method.
        """
        raise NotAllowedError(f"{self.title}: {self.name(piece)[:40]} is lost: {reason}; use --processes 1")

    def name(self, piece: Piece) -> str:
        """Return a piece's name for progress displays."""
        return str(piece)

    def kind(self, piece: Piece) -> str:
        """Return the piece's kind: pieces of one kind share work in a process, such as compiled loops."""
        del piece
        return ""

    def is_failure(self, result: Result) -> bool:
        """Return whether a result is a failure, for progress displays."""
        del result
        return False


def attempt(
    task: AbstractTask[Any, Result], piece: Any, stop: StoppingCriterion, progress: Progress
) -> tuple[Exception | None, Result | None]:
    """Run a piece in a worker, and return the piece's error (which the driver raises) or result.

    User code that raises `SystemExit` or `KeyboardInterrupt` doesn't end the worker. `SystemExit` becomes an error. With
    `KeyboardInterrupt` the piece counts as lost; it doesn't come from the keyboard, since workers ignore Ctrl-C.
    """
    try:
        return None, task.do(piece, stop, progress)
    except Exception as error:  # the driver raises it
        return sendable(error), None
    except (SystemExit, KeyboardInterrupt) as error:
        if (place := where_user_code_failed(error)) is None:
            raise
        if isinstance(error, SystemExit):
            return sendable(error), None
        try:
            return None, task.lost(piece, f"{place}; raise an error other than KeyboardInterrupt")
        except NotAllowedError:  # the task's results cannot represent a lost piece
            return sendable(error), None


class Engine(Protocol):
    """Executor of pieces."""

    def run(
        self, task: AbstractTask[Piece, Result], pieces: Sequence[Piece], stop: Interruption, progress: Progress
    ) -> Iterator[tuple[int, Result]]:
        """Yield each piece's position and result as it finishes.

        After a request of `stop`, no further piece starts, running pieces are asked to stop, and waiting pieces are
        dropped. At the end of the iteration, for any reason, the engine ends all processes that it started.
        """
        ...


def in_order(finished: Iterable[tuple[int, Result]]) -> Iterator[Result]:
    """Yield results in order of position, each once all earlier results are available; after a gap, only at the end."""
    early: dict[int, Result] = {}
    upcoming = 0
    for position, result in finished:
        early[position] = result
        while upcoming in early:
            yield early.pop(upcoming)
            upcoming += 1
    yield from (early[position] for position in sorted(early))


class SerialExecutor:
    """Run pieces in this process, one after the other."""

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
    """Yield results in the order of their pieces; by default the run is serial, without interruption and progress."""
    running = (engine or SerialExecutor()).run(task, pieces, stop or Interruption(), progress or SilentProgress())
    yield from in_order(running)


class _Balanced:
    """Forward progress, and close tasks that a failed piece left open between `start` and `finish`."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._depth = 0

    def start(self, task: str, total: float | None = None) -> None:
        """Begin a task."""
        self._depth += 1
        self._progress.start(task, total)

    def update(self, completed: float, values: Mapping[str, float | None] | None = None) -> None:
        """Report steps of the current task."""
        if self._depth:
            self._progress.update(completed, values)

    def finish(self) -> None:
        """End the current task."""
        if self._depth:
            self._depth -= 1
            self._progress.finish()

    def close(self) -> None:
        """End all open tasks."""
        while self._depth:
            self.finish()


MAX_PARTS = 16
"""Maximum number of objects that a worker caches; the least recently used are evicted, and sent again when needed."""


class Broadcast:
    """Base of objects shared by many pieces; each worker receives such an object once.

    The objects must not change during a run.
    """


@dataclass(frozen=True, slots=True)
class PackedTask:
    """A pickled piece, and the digests of its `Broadcast` objects."""

    content: bytes
    needs: tuple[str, ...] = ()


class Packer:
    """Pickle pieces in the driver, and store the bytes of their `Broadcast` objects by digest."""

    def __init__(self) -> None:
        self.parts: dict[str, bytes] = {}
        # The value references the object, so that its id, the key, stays unique during the packer's life.
        self._digests: dict[int, tuple[Broadcast, str]] = {}

    def pack(self, thing: object, name: str) -> PackedTask:
        """Pickle a piece.

        Raises
        ------
        InvalidProblemError
            If the piece can't be pickled; the message gives its name.
        """
        buffer, needs = io.BytesIO(), dict[str, None]()
        try:
            _Pickler(buffer, self, needs).dump(thing)
        except Exception as error:  # classes of other packages may raise anything here
            what = " ".join(f"{type(error).__name__}: {error}".split())
            raise InvalidProblemError(
                f"{name} cannot be sent to another process ({what}); define its classes at the top of a module, and "
                "remove open files and locks; or run in this process"
            ) from error
        return PackedTask(buffer.getvalue(), tuple(needs))

    def digest(self, part: Broadcast) -> str:
        """Return the digest of an object's bytes, and store the bytes."""
        known = self._digests.get(id(part))
        if known is None:
            blob = pickle.dumps(part, protocol=pickle.HIGHEST_PROTOCOL)
            known = self._digests[id(part)] = part, hashlib.sha256(blob).hexdigest()
            self.parts[known[1]] = blob
        return known[1]


class _Pickler(pickle.Pickler):
    """Pickler that replaces `Broadcast` objects by their digests."""

    def __init__(self, buffer: io.BytesIO, packer: Packer, needs: dict[str, None]) -> None:
        super().__init__(buffer, protocol=pickle.HIGHEST_PROTOCOL)
        self._packer, self._needs = packer, needs

    def persistent_id(self, obj: Any) -> str | None:
        """Return the digest of a `Broadcast` object, None for other objects."""
        if not isinstance(obj, Broadcast):
            return None
        digest = self._packer.digest(obj)
        self._needs[digest] = None
        return digest


def evict_lru(held: dict[str, Any], needs: Sequence[str]) -> None:
    """Evict the least recently used objects beyond `MAX_PARTS`; driver and worker evict the same objects."""
    for digest in needs:
        held[digest] = held.pop(digest)
    while len(held) > max(MAX_PARTS, len(needs)):
        del held[next(iter(held))]


class Unpacker:
    """The worker's counterpart of `Packer`: caches `Broadcast` objects and unpickles tasks."""

    def __init__(self) -> None:
        self._parts: dict[str, Any] = {}
        self._lock = threading.Lock()  # a worker may have several threads

    def unpack(self, parcel: PackedTask, parts: Mapping[str, bytes]) -> tuple[Any, int]:
        """Return the piece, and the number of new bytes in `parts`.

        Parameters
        ----------
        parcel
            The pickled piece.
        parts
            Pickled `Broadcast` objects by digest: at least those of the piece that aren't cached.
        """
        with self._lock:
            new = {digest: parts[digest] for digest in parcel.needs if digest not in self._parts}
            self._parts |= {digest: pickle.loads(blob) for digest, blob in new.items()}
            evict_lru(self._parts, parcel.needs)
            return _Unpickler(io.BytesIO(parcel.content), self._parts).load(), sum(map(len, new.values()))


class _Unpickler(pickle.Unpickler):
    """Unpickler that replaces digests by their objects."""

    def __init__(self, buffer: io.BytesIO, parts: Mapping[str, Any]) -> None:
        super().__init__(buffer)
        self._parts = parts

    def persistent_load(self, pid: Any) -> Any:
        """Return the object of a digest."""
        return self._parts[pid]


class ShardWorker(Broadcast, ABC):
    """An object that every worker of a pool has, and that answers questions about the numbered shards of some data.

    Any worker can answer for any shard. Answers must be deterministic, so that the loss of a worker costs only time.
    """

    @abstractmethod
    def answer(self, shard: int, question: Any, own: Any) -> Any:
        """Return the answer of a shard to a question that all shards receive; `own` is the data of this shard."""


class WorkerPool(Protocol):
    """Workers that hold a `ShardWorker`."""

    def ask(self, question: Any, own: Mapping[int, Any]) -> dict[int, Any]:
        """Return the answers of the shards in `own`, by shard; the values of `own` are the shards' data."""
        ...


class ThreadCrew:
    """Threads of this process that share one `ShardWorker`; useful if its work releases the interpreter lock.

    Parameters
    ----------
    post
        The object that answers for all shards; several threads call it at the same time.
    num_threads
        Number of threads; by default the number of usable cores.
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

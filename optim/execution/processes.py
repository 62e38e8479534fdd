"""Execution of pieces of work in several processes; a process that crashes loses only its current piece.

Processes are spawned, not forked, because a fork would break the threads and compiled code of solvers. The
processes ignore Ctrl-C, which the driver handles, and end when the driver ends for any reason.
"""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import connection, resource_tracker, util
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, Generic

from optim.core.progress import COMPILING, Progress, SilentProgress
from optim.core.solution import Termination
from optim.core.stopping import Interruption, SolveState
from optim.core.user_code import sendable
from optim.execution.tasks import AbstractTask, Packer, Piece, Result, SerialExecutor, Unpacker, attempt, evict_lru

POLL_S = 0.2
"""Seconds between the driver's checks for an interruption."""

GRACE_S = 5.0
"""Seconds that a process may take to end by itself."""

SAFE_PATH = "PYTHONSAFEPATH"
"""Environment variable that removes the current folder from an interpreter's module path."""

_CONTEXT = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True)
class ProcessExecutor:
    """Run pieces in several processes of this machine.

    Pieces of one kind share compiled loops. A process takes pieces of one kind while there are any, so that no two
    processes compile the same loops at once. A process that dies is replaced.
    """

    num_processes: int

    def run(
        self, task: AbstractTask[Piece, Result], pieces: Sequence[Piece], stop: Interruption, progress: Progress
    ) -> Iterator[tuple[int, Result]]:
        """Yield each piece's position and result as it finishes; a single piece runs in this process."""
        if len(pieces) <= 1:
            yield from SerialExecutor().run(task, pieces, stop, progress)
            return
        # Shared values have no locks: a dying process would keep a lock, and semaphores survive a killed driver.
        asked_to_stop = _CONTEXT.RawValue("b", 0)
        queue = _Queue(task, pieces)
        workers: list[_Worker[Piece, Result]] = []
        packer = Packer()
        num_done = num_failed = 0
        shown: float | None = None
        progress.start(f"{task.title}, {self.num_processes} processes", len(pieces))
        try:
            for _ in range(min(self.num_processes, len(pieces))):
                workers.append(_Worker(task, asked_to_stop, packer))
                queue.serve(workers[-1], workers)
            while busy := {worker.pipe: worker for worker in workers if worker.position is not None}:
                if stop.is_requested:
                    asked_to_stop.value = 1
                    queue.clear()
                ready = connection.wait(list(busy), timeout=POLL_S)
                compiling = sum(worker.compiles.value for worker in busy.values())
                figures = {"running": len(busy), "compiling": compiling or None, "failed": num_failed or None}
                if figures["compiling"] != shown:
                    shown = figures["compiling"]
                    progress.update(num_done, figures)
                for pipe in ready:
                    worker = busy[pipe]  # type: ignore[index]  # `wait` returns some of its arguments
                    position, result = worker.receive()
                    yield position, result
                    num_done += 1
                    num_failed += task.is_failure(result)
                    progress.update(num_done, {**figures, "failed": num_failed or None})
                    if stop.is_requested or not queue:
                        continue
                    if not worker.process.is_alive():
                        workers.remove(worker)
                        worker.end()
                        workers.append(worker := _Worker(task, asked_to_stop, packer))
                    queue.serve(worker, workers)
        finally:
            for worker in workers:
                worker.end()
            progress.finish()


class _Worker(Generic[Piece, Result]):
    """A child process and its current piece."""

    def __init__(self, task: AbstractTask[Piece, Result], asked_to_stop: Any, packer: Packer) -> None:
        self.task, self.packer = task, packer
        self.held: dict[str, None] = {}
        self.pipe, child_pipe = _CONTEXT.Pipe()
        self.compiles = _CONTEXT.RawValue("b", 0)
        self.process: SpawnProcess = _CONTEXT.Process(
            target=_serve, args=(task, child_pipe, asked_to_stop, self.compiles), daemon=True
        )
        with sigint_blocked():
            self.process.start()
        child_pipe.close()
        self.position: int | None = None
        self.piece: Piece
        self.kind: str | None = None

    def give(self, position: int, piece: Piece) -> None:
        """Send a piece. If the process is already dead, `receive` detects this."""
        parcel = self.packer.pack(piece, self.task.name(piece))
        parts = {digest: self.packer.parts[digest] for digest in parcel.needs if digest not in self.held}
        self.held |= dict.fromkeys(parts)
        evict_lru(self.held, parcel.needs)
        self.position, self.piece, self.kind = position, piece, self.task.kind(piece)
        with suppress(OSError):
            self.pipe.send((parts, parcel))

    def receive(self) -> tuple[int, Result]:
        """Return position and result of the current piece, even if the process died, or raise the piece's exception."""
        assert self.position is not None
        position, self.position = self.position, None
        try:
            error, result = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            reason = f"its process ended with exit code {self.process.exitcode}"
            return position, self.task.lost(self.piece, reason)
        if error is not None:
            raise error
        return position, result

    def end(self) -> None:
        """End the process: an idle process exits by itself, which frees shared resources; a busy process is killed."""
        self.pipe.close()
        if self.position is None:
            self.process.join(timeout=GRACE_S)
        for kill in (self.process.terminate, self.process.kill):
            if self.process.is_alive():
                kill()
                self.process.join(timeout=GRACE_S)


class _Queue(Generic[Piece]):
    """Waiting pieces, by kind."""

    def __init__(self, task: AbstractTask[Piece, Any], pieces: Sequence[Piece]) -> None:
        self._waiting: dict[str, deque[tuple[int, Piece]]] = {}
        for position, piece in enumerate(pieces):
            self._waiting.setdefault(task.kind(piece), deque()).append((position, piece))

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def serve(self, worker: _Worker[Piece, Any], workers: Sequence[_Worker[Piece, Any]]) -> None:
        """Send a worker the next piece, if there is one."""
        if self._waiting:
            others = {other.kind for other in workers if other is not worker and other.kind is not None}
            worker.give(*self._take(worker.kind, others))

    def _take(self, own: str | None, others: Set[str]) -> tuple[int, Piece]:
        """Return a piece of the worker's kind `own`, else of a kind not among `others`, else of the first kind."""
        free = [kind for kind in self._waiting if kind not in others]
        kind = own if own in self._waiting else next(iter(free or self._waiting))
        entry = self._waiting[kind].popleft()
        if not self._waiting[kind]:
            del self._waiting[kind]
        return entry

    def clear(self) -> None:
        """Drop all waiting pieces."""
        self._waiting.clear()


class _SharedStop:
    """Stop when a shared number is not 0."""

    def __init__(self, asked: Any) -> None:
        self._asked = asked

    def __call__(self, state: SolveState) -> Termination | None:
        """Return whether a stop has been requested."""
        return Termination.INTERRUPTED if self._asked.value else None

    def remaining_s(self, elapsed_s: float) -> float:
        """Return 0 if a stop has been requested, else infinity."""
        return 0.0 if self._asked.value else float("inf")


def _serve(task: AbstractTask[Any, Any], pipe: Connection, asked_to_stop: Any, compiles: Any) -> None:
    """Run pieces as they arrive; `compiles.value` tells the driver whether this process is compiling."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    COMPILING.on_change = partial(setattr, compiles, "value")
    stop, progress, unpacker = _SharedStop(asked_to_stop), SilentProgress(), Unpacker()
    while True:
        try:
            parts, parcel = pipe.recv()
        except EOFError:
            return
        try:
            piece, _ = unpacker.unpack(parcel, parts)
        except Exception as raised:  # the driver raises it
            pipe.send((sendable(raised), None))
            continue
        pipe.send(attempt(task, piece, stop, progress))


def _die_with_parent() -> None:
    """End this process when the parent ends for any reason."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        last_word = threading.Timer(GRACE_S, os._exit, (1,))
        last_word.daemon = True
        last_word.start()
        # This removes named semaphores, which Python would otherwise report as leaked.
        util._run_finalizers(0)  # type: ignore[attr-defined]  # there is no public name
        os._exit(1)


@contextmanager
def sigint_blocked() -> Iterator[None]:
    """Start processes that ignore Ctrl-C from their beginning; the driver handles it.

    The processes do not import modules from the current folder, which may contain data.
    """
    with blind_to_this_folder():
        resource_tracker.ensure_running()  # if it started inside the block, it would unblock the signal
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def blind_to_this_folder() -> Iterator[None]:
    """Start interpreters whose module path lacks the current folder, which `-c` and `-m` would add."""
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(SAFE_PATH, None)
        else:
            os.environ[SAFE_PATH] = before

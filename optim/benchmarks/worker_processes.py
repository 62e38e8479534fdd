"""Run work in several processes, so that a solver that crashes takes only its own record with it.

Processes are spawned, not forked: solvers hold threads and compiled code that a fork would break.
Only the parent writes results. A child that dies is replaced, and its work gets a record that says so.
"""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterator, Sequence, Set
from contextlib import suppress
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Event

from optim.benchmarks.record import Record
from optim.benchmarks.work import AbstractWork
from optim.core.progress import Progress, SilentProgress
from optim.core.status import Termination
from optim.core.stopping import Interruption, SolveState

POLL_S = 0.2
"""How often the parent looks whether it was interrupted."""

GRACE_S = 5.0
"""How long an idle process may take to end by itself, seconds."""

_CONTEXT = multiprocessing.get_context("spawn")


class EventStop:
    """Stop when an event that several processes share is set."""

    def __init__(self, event: Event) -> None:
        self._event = event

    def __call__(self, state: SolveState) -> Termination | None:
        """Stop once the event is set."""
        return Termination.INTERRUPTED if self._event.is_set() else None

    def remaining_s(self, elapsed_s: float) -> float:
        """Return 0 once the event is set, infinity before."""
        return 0.0 if self._event.is_set() else float("inf")


class _Queue:
    """Work not yet given out. A process stays with a problem, so that no two compile the same loops at once."""

    def __init__(self, todo: Sequence[AbstractWork]) -> None:
        self._waiting: dict[str, deque[AbstractWork]] = {}
        for work in todo:
            self._waiting.setdefault(work.subject.problem.name, deque()).append(work)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def take(self, own: str | None, others: Set[str]) -> AbstractWork:
        """Return the next work of problem `own`; else of one no other process is at; else of the first."""
        free = [problem for problem in self._waiting if problem not in others]
        problem = own if own in self._waiting else next(iter(free or self._waiting))
        work = self._waiting[problem].popleft()
        if not self._waiting[problem]:
            del self._waiting[problem]
        return work

    def clear(self) -> None:
        """Give nothing out any more."""
        self._waiting.clear()


class _Worker:
    """A child process and the work it has in hand."""

    def __init__(self, event: Event) -> None:
        self.pipe, child_pipe = _CONTEXT.Pipe()
        self.process: SpawnProcess = _CONTEXT.Process(target=_serve, args=(child_pipe, event), daemon=True)
        self.process.start()
        child_pipe.close()
        self.work: AbstractWork | None = None
        self.problem: str | None = None

    def give(self, work: AbstractWork) -> None:
        """Hand over a piece of work; that the process is dead already shows when its record is fetched."""
        self.work = work
        self.problem = work.subject.problem.name
        with suppress(OSError):
            self.pipe.send(work)

    def receive(self) -> Record:
        """Return the record of the work in hand, also if the process died."""
        assert self.work is not None
        work, self.work = self.work, None
        try:
            record: Record = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            return work.failed(f"the process that ran it ended with exit code {self.process.exitcode}")
        return record

    def end(self) -> None:
        """End the process: by itself where it waits for work, which frees what libraries share; else at once."""
        self.pipe.close()
        if self.work is None:
            self.process.join(timeout=GRACE_S)
        if self.process.is_alive():
            self.process.terminate()
        self.process.join()


def run_in_processes(
    todo: Sequence[AbstractWork], num_processes: int, stop: Interruption, progress: Progress
) -> Iterator[Record]:
    """Yield records in the order in which they are finished.

    Once `stop` is requested, no work is begun any more, and what runs is asked to stop.
    """
    event = _CONTEXT.Event()
    queue = _Queue(todo)
    workers: list[_Worker] = []
    num_done = 0
    progress.start(f"benchmark, {num_processes} processes", len(todo))
    try:
        workers += [_Worker(event) for _ in range(num_processes)]
        for worker in workers:
            worker.give(queue.take(None, _problems_of(workers)))
        while any(worker.work is not None for worker in workers):
            if stop.is_requested:
                event.set()
                queue.clear()
            busy = {worker.pipe: worker for worker in workers if worker.work is not None}
            for pipe in connection.wait(list(busy), timeout=POLL_S):
                worker = busy[pipe]  # type: ignore[index]
                yield worker.receive()
                num_done += 1
                progress.update(num_done)
                if not worker.process.is_alive():
                    worker.end()
                    workers[workers.index(worker)] = worker = _Worker(event)
                if queue:
                    worker.give(queue.take(worker.problem, _problems_of(workers)))
    finally:
        for worker in workers:
            worker.end()
        progress.finish()


def _problems_of(workers: Sequence[_Worker]) -> Set[str]:
    return {worker.problem for worker in workers if worker.problem is not None}


def _serve(pipe: Connection, event: Event) -> None:
    """Run pieces of work as they come; the parent alone listens to Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    while True:
        try:
            work: AbstractWork = pipe.recv()
        except EOFError:
            return
        pipe.send(work.run(EventStop(event), SilentProgress()))


def _die_with_parent() -> None:
    """End this process as soon as the parent is gone, however it went."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)

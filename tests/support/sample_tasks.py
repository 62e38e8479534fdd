"""Tasks whose names describe them, and a listener to their progress."""

import os
import signal
import time
from pathlib import Path

from optim.core.progress import COMPILING, SilentProgress
from optim.core.stopping import SolveState
from optim.execution import AbstractTask

HEARD = "heard"
"""A file's name."""


class Squares(AbstractTask[object, object]):
    """Square numbers; a text such as "die" runs the method `_die` instead, which raises, dies, waits or misuses progress."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder

    @property
    def title(self) -> str:
        return "squares"

    def do(self, piece, stop, progress):
        if not isinstance(piece, str):
            return piece * piece
        return getattr(self, f"_{piece.partition(' ')[0]}")(stop, progress)

    def lost(self, piece, reason):
        return f"{piece}: {reason}"

    def kind(self, piece):
        return piece.partition(" ")[2] if isinstance(piece, str) else "number"

    def _divide(self, stop, progress):
        progress.start("inner", 2)
        return 1 // 0

    def _die(self, stop, progress):
        os._exit(7)

    def _hog(self, stop, progress):
        """Take more and more memory, slowly enough to be seen."""
        held = []
        while len(held) < 200:
            held.append(bytearray(b"x" * 20_000_000))
            time.sleep(0.05)
        return "never full"

    def _open(self, stop, progress):
        progress.start("inner", 2)
        progress.start("innermost", 2)

    def _over(self, stop, progress):
        for _ in range(4):
            progress.finish()

    def _wait(self, stop, progress):
        """Report the start, then wait for the request to stop."""
        if self.folder is not None:
            (self.folder / str(os.getpid())).touch()
        left_s = stop.remaining_s(0.0)  # read first: the stop may come between two readings
        while stop(SolveState(elapsed_s=0.0)) is None:
            assert left_s == float("inf")
            time.sleep(0.005)
            left_s = stop.remaining_s(0.0)
        return f"stopped, {stop.remaining_s(0.0):g} s left"

    def _compile(self, stop, progress):
        """Report compilation until the listener's file confirms it."""
        COMPILING.begin("a loop")
        while not (self.folder / HEARD).exists():
            time.sleep(0.005)
        COMPILING.end("a loop")
        return "compiled"

    def _deaf(self, stop, progress):
        os.kill(os.getpid(), signal.SIGINT)
        return "heard nothing"


class RecordedProgress:
    """Record the progress reports."""

    def __init__(self) -> None:
        self.news: list[str] = []
        self.depth = self.least = 0

    def start(self, task, total=None):
        self.news.append(f"start {task} {total}")
        self.depth += 1

    def update(self, completed, values=None):
        self.news.append(f"update {completed}")

    def finish(self):
        self.news.append("finish")
        self.depth -= 1
        self.least = min(self.least, self.depth)


class InterruptedEngine:
    """Several processes when Ctrl-C comes: some tasks are complete, in any order, some are cut, others never begun."""

    def __init__(self, *ended):
        self.ended = ended

    def run(self, task, pieces, stop, progress):
        for position, is_done in self.ended:
            yield position, task.do(pieces[position], lambda _: None, SilentProgress()) if is_done else None

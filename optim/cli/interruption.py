"""Ctrl-C: the first asks the running solve to stop and keep its best, the second aborts."""

import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType

from optim.cli.border import note
from optim.cli.exit_code import ExitCode
from optim.core.stopping import Interruption

GRACE_S = 1.0
"""How long a second Ctrl-C waits for the main thread, which may be inside a solver's compiled code."""

SHOW_CURSOR = b"\x1b[?25h"


@contextmanager
def listening(hint: str) -> Iterator[Interruption]:
    """Give a stopping rule that the first Ctrl-C triggers; a second one within the block aborts.

    Python runs signal handlers only between two of its own instructions, never while a solver's
    compiled code runs. So a thread reads the signals from a pipe, which the system fills at once.

    Parameters
    ----------
    hint
        What the first Ctrl-C prints: what happens next.
    """
    interruption = Interruption()
    with _reading_signals(partial(_watch, interruption=interruption, hint=hint), _SecondRaises()):
        yield interruption


@contextmanager
def ending_at_once() -> Iterator[None]:
    """Let the first Ctrl-C end the command, where there is nothing to keep yet.

    It ends without cleaning up: libraries that are interrupted while they load or compile may crash in that.
    """
    with _reading_signals(_end, _ignore):
        yield


@contextmanager
def _reading_signals(read: Callable[[int], None], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Have a thread read signals from the end of a pipe; the handler is what the main thread does besides."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    watcher = threading.Thread(target=read, args=(read_end,), daemon=True)
    old_descriptor = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    old_handler = signal.signal(signal.SIGINT, handler)
    watcher.start()
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, old_handler)
        signal.set_wakeup_fd(old_descriptor)
        os.close(write_end)
        watcher.join()
        os.close(read_end)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Leave a signal to the thread that reads it."""


def _end(read_end: int) -> None:
    """End the process at the first Ctrl-C, unless the pipe is closed before."""
    while received := os.read(read_end, 1):
        if received[0] == signal.SIGINT:
            note("interrupted")
            if sys.stderr.isatty():
                os.write(2, SHOW_CURSOR)  # bars hide it
            os._exit(ExitCode.INTERRUPTED)


class _SecondRaises:
    """Handle SIGINT in the main thread: nothing at first (the watcher acts), then KeyboardInterrupt."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        if self._count > 1:
            raise KeyboardInterrupt


def _watch(read_end: int, interruption: Interruption, hint: str) -> None:
    """Read signals until the pipe is closed."""
    while received := os.read(read_end, 1):
        if received[0] != signal.SIGINT:
            continue
        if not interruption.is_requested:
            interruption.request()
            note(f"stopping; {hint} (Ctrl-C again to abort)")
            continue
        is_over, _, _ = select.select([read_end], [], [], GRACE_S)
        if not is_over:
            note("aborted")
            os._exit(ExitCode.INTERRUPTED)

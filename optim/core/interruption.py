"""Ctrl-C in a program that calls the library: a running solve ends between two steps, and what it found is not lost."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from optim.core.solution import Solution
from optim.core.status import Termination
from optim.core.stopping import Interruption


class SolveInterrupted(KeyboardInterrupt):
    """Ctrl-C came during a solve, and ended it unless it came to its end by itself: its `termination` tells which.

    A program that wants to end ends in both cases, in the middle of a loop of short solves, too.

    Parameters
    ----------
    solution
        What the solver had found by then: its best decision and bound, with its certificate.

    Examples
    --------
    >>> import optim
    >>> try:
    ...     solution = optim.solve(optim.reference_instance("tiny-0"), "online")
    ... except optim.SolveInterrupted as interrupted:
    ...     solution = interrupted.solution
    >>> solution.objective > 0
    True
    """

    def __init__(self, solution: Solution) -> None:
        is_cut_short = solution.termination is Termination.INTERRUPTED
        said = "was interrupted; its solution so far" if is_cut_short else "came to its end after Ctrl-C; its solution"
        super().__init__(
            f"solver {solution.solver!r} {said} (objective {solution.objective}, "
            f"bound {solution.bound}) is the exception's `solution`"
        )
        self.solution = solution


@contextmanager
def stopping_at_ctrl_c() -> Iterator[Interruption]:
    """Give a stopping rule that the first Ctrl-C triggers; the second raises KeyboardInterrupt at once.

    Where somebody else handles Ctrl-C already, and in threads, to which Python sends no signals, nothing is changed.
    """
    interruption = Interruption()
    is_ours = threading.current_thread() is threading.main_thread()
    if not is_ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield interruption
        return

    def ask(number: int, frame: FrameType | None) -> None:
        del number, frame
        if interruption.is_requested:
            raise KeyboardInterrupt
        interruption.request()

    signal.signal(signal.SIGINT, ask)
    try:
        yield interruption
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)

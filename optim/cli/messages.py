"""Exit codes, and single lines on stderr: remarks, log lines."""

import logging
import sys
import traceback
from enum import IntEnum

from optim.core.text import printable


class ExitCode(IntEnum):
    """What a finished command tells its caller."""

    DONE = 0
    """Done and verified; a verified solution or bound at a limit counts."""
    NOTHING = 1
    """No solution or bound, or work left undone."""
    WRONG_USE = 2
    """Wrong use or bad input; one line on stderr says what and how to mend it."""
    REFUSED = 3
    """The checker refused a certificate."""
    REGRESSION = 4
    """A comparison with stored results found a regression."""
    INTERRUPTED = 130
    """Stopped by Ctrl-C."""
    CLOSED_PIPE = 141
    """The reader of stdout went away."""


MAX_CHARACTERS = 600
"""Of a line on stderr: the longest listing of options has some 500."""


def one_line(text: str, most: int = MAX_CHARACTERS) -> str:
    """Return a text as one line for a terminal: nothing in it steers the terminal, and a long one lacks its middle."""
    text = printable(" ".join(text.split()))
    rest = most // 3
    return text if len(text) <= most else f"{text[: most - rest - 3]}...{text[-rest:]}"


def info(message: str) -> None:
    """Print a remark on stderr."""
    print(one_line(f"optim: {message}"), file=sys.stderr)  # noqa: T201 - the command's own voice


SPOKEN = ("optim.benchmarks", "optim.workloads")
"""Parts whose remarks are always shown: what was left out of a trace, what is run again."""


class _StderrLines(logging.Handler):
    """Write each message as a line, and a trace whole; stderr is looked up each time, for a progress display may stand in."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write the message, and below it the trace of an error that it is about."""
        lines = [one_line(f"optim: {record.getMessage()}")]
        if record.exc_info:
            trace = "".join(traceback.format_exception(record.exc_info[1]))
            lines += [printable(line) for line in trace.splitlines()]
        sys.stderr.write("\n".join((*lines, "")))


def show_logs(is_verbose: bool) -> None:
    """Send the library's log to stderr: warnings, and with `is_verbose` everything.

    Warnings of Python and NumPy are remarks for developers: they are shown with `is_verbose` only.
    """
    logging.captureWarnings(True)
    levels = {"optim": logging.WARNING, "py.warnings": logging.CRITICAL, **dict.fromkeys(SPOKEN, logging.INFO)}
    for name, level in levels.items():
        logging.getLogger(name).setLevel(logging.DEBUG if is_verbose else level)
    for name in ("optim", "py.warnings"):
        logger = logging.getLogger(name)
        logger.handlers = [handler for handler in logger.handlers if not isinstance(handler, _StderrLines)]
        logger.addHandler(_StderrLines())

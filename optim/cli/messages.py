"""Exit codes, and one-line messages on stderr."""

import logging
import sys
import traceback
from enum import IntEnum

from optim.core.text import printable


class ExitCode(IntEnum):
    """Exit status of a command."""

    DONE = 0
    """Done and verified, also if a time or node limit stopped the solve after a verified solution or bound."""
    NOTHING = 1
    """No solution or bound, or incomplete work."""
    WRONG_USE = 2
    """Wrong use or bad input; one line on stderr names the fault and the correction."""
    REFUSED = 3
    """The checker refused a certificate."""
    REGRESSION = 4
    """A comparison with stored results found a regression."""
    INTERRUPTED = 130
    """Stopped by Ctrl-C."""
    CLOSED_PIPE = 141
    """The program that reads stdout closed the pipe."""


MAX_CHARACTERS = 700
"""Maximum length of a line on stderr; the longest listing, of reference instances, has about 610 characters."""


def one_line(text: str, most: int = MAX_CHARACTERS) -> str:
    """Return a text as one line without terminal control characters; cut the middle of a text longer than `most`.

    The cuts are between words, unless this would shorten the beginning or the end by half or more.
    """
    text = printable(" ".join(text.split()))
    if len(text) <= most:
        return text
    rest = most // 3
    first, last = text[: most - rest - 3], text[-rest:]
    start, end = first.rfind(" ") + 1, last.find(" ")
    return f"{first[:start] if 2 * start > len(first) else first}...{last[end:] if 0 <= 2 * end < rest else last}"


def info(message: str) -> None:
    """Print a one-line message on stderr."""
    print(one_line(f"optim: {message}"), file=sys.stderr)  # noqa: T201 - output of the command


SPOKEN = ("optim.benchmarks", "optim.workloads")
"""Packages whose INFO messages are always shown; they report, for example, omitted jobs of a trace or repeated solves."""


class _StderrLines(logging.Handler):
    """Write each message as one line, followed by the traceback if there is one.

    The handler looks up `sys.stderr` for each record, because a progress display may replace it.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Write the message, then the traceback of its exception."""
        lines = [one_line(f"optim: {record.getMessage()}")]
        if record.exc_info:
            trace = "".join(traceback.format_exception(record.exc_info[1]))
            lines += [printable(line) for line in trace.splitlines()]
        sys.stderr.write("\n".join((*lines, "")))


def show_logs(is_verbose: bool) -> None:
    """Send the library's log to stderr: warnings, or every message with `is_verbose`.

    Warnings of Python and NumPy address developers, so only `is_verbose` shows them.
    """
    logging.captureWarnings(True)
    levels = {"optim": logging.WARNING, "py.warnings": logging.CRITICAL, **dict.fromkeys(SPOKEN, logging.INFO)}
    for name, level in levels.items():
        logging.getLogger(name).setLevel(logging.DEBUG if is_verbose else level)
    for name in ("optim", "py.warnings"):
        logger = logging.getLogger(name)
        logger.handlers = [handler for handler in logger.handlers if not isinstance(handler, _StderrLines)]
        logger.addHandler(_StderrLines())

"""Log lines of the library on stderr; only the command sets up logging, the library never does."""

import logging
import sys
import traceback

from optim.cli.border import one_line
from optim.core.text import printable

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

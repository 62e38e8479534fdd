"""Log lines of the library on stderr; only the command sets up logging, the library never does."""

import logging
import sys

from optim.cli.border import one_line

SPOKEN = ("optim.benchmarks", "optim.workloads")
"""Parts whose remarks are always shown: what was left out of a trace, what is run again."""


class _StderrLines(logging.Handler):
    """Write each message as a line; stderr is looked up each time, for a progress display may stand in."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write the message."""
        sys.stderr.write(one_line(f"optim: {self.format(record)}") + "\n")


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

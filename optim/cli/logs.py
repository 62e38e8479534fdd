"""Log lines of the library on stderr; only the command sets up logging, the library never does."""

import logging
import sys

SPOKEN = ("optim.benchmarks", "optim.workloads")
"""Parts whose remarks are always shown: what was left out of a trace, what is run again."""


class _StderrLines(logging.Handler):
    """Write each message as a line; stderr is looked up each time, for a progress display may stand in."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write the message."""
        sys.stderr.write(f"optim: {' '.join(self.format(record).split())}\n")


def show_logs(is_verbose: bool) -> None:
    """Send the library's log to stderr: warnings, and with `is_verbose` everything."""
    logger = logging.getLogger("optim")
    for handler in [handler for handler in logger.handlers if isinstance(handler, _StderrLines)]:
        logger.removeHandler(handler)
    logger.addHandler(_StderrLines())
    logger.setLevel(logging.DEBUG if is_verbose else logging.WARNING)
    for name in SPOKEN:
        logging.getLogger(name).setLevel(logging.DEBUG if is_verbose else logging.INFO)

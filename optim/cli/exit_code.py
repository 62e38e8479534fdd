"""Exit codes of the command, stable from release to release."""

from enum import IntEnum


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

"""In what form gradients are pushed, and what becomes of those that are no numbers."""

from enum import StrEnum


class Compression(StrEnum):
    """What of a gradient is pushed."""

    NONE = "none"
    """All, as it is."""
    INT8 = "int8"
    """In 255 levels of the largest entry, rounded at random without bias: a quarter of the bytes on a network."""
    TOP_K = "top-k"
    """The share of entries that is largest in magnitude, as they are; the others are left out."""


class Pushes(StrEnum):
    """Whether gradients are pushed whole or by rows."""

    AUTO = "auto"
    """By rows where few aren't zero: as measured, gradient by gradient; a server applies them so where its platform is faster then."""
    DENSE = "dense"
    """Whole, always."""
    ROWS = "rows"
    """By rows wherever the application and the rule allow it."""


class NonFinite(StrEnum):
    """What becomes of a gradient or loss that is infinite or not a number."""

    STOP = "stop"
    """The run ends with a line that names machine, partition and clock."""
    SKIP = "skip"
    """The clock goes on without the partition, whose data counts for nothing in it."""
    REFUSE = "refuse"
    """It is computed once more, on another machine where there is one; if that is no better, the run ends."""

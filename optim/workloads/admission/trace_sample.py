"""Which jobs of a trace are taken: a sample of the busiest window."""

from dataclasses import dataclass

import numpy as np

from optim.core.errors import InvalidOptionError
from optim.models.admission.instance import IntArray
from optim.workloads.admission.trace_options import TraceOptions
from optim.workloads.traces.job_table import JobTable


@dataclass(frozen=True, kw_only=True, eq=False)
class TraceSample:
    """Jobs drawn from a window.

    Parameters
    ----------
    rows
        Rows of the table, in order of submission; shape (sample,).
    arrival
        Arrival slots: the first slot that begins at or after the submission; shape (sample,).
    start_s
        Submission that opens the window, on the trace's own clock; slot 0 begins then.
    submissions
        Jobs that the window holds.
    """

    rows: IntArray
    arrival: IntArray
    start_s: float
    submissions: int


def draw_sample(table: JobTable, options: TraceOptions, rng: np.random.Generator) -> TraceSample:
    """Draw jobs uniformly, without replacement, from a window as long as the horizon.

    A job may not start before its submission, so it arrives in the first slot that begins afterwards; the
    window holds the submissions whose arrival slot is within the horizon. Without a given start it is the
    window with the most of them, the earliest of several (all jobs of one clock).

    Parameters
    ----------
    table
        At least one job.
    options
        `num_jobs`, `num_slots`, `slot_minutes`, `window_start_s`.
    rng
        Source of chance.

    Raises
    ------
    InvalidOptionError
        If no job is submitted in the window that was asked for.
    """
    clock, start = _busiest_window(table, options)
    slot = np.ceil((table.submit_s - start) / options.slot_s)
    inside = np.flatnonzero((table.clock == clock) & (slot >= 0) & (slot < options.num_slots))
    if not len(inside):
        raise InvalidOptionError(
            f"window_start_s: no job is submitted in the window from {start:g} s; choose another start"
        )
    drawn = rng.choice(inside, size=min(options.num_jobs, len(inside)), replace=False)
    # Rows settle the order of jobs that were submitted together.
    rows = drawn[np.lexsort((drawn, table.submit_s[drawn]))]
    return TraceSample(rows=rows, arrival=slot[rows].astype(np.int64), start_s=float(start), submissions=len(inside))


def _busiest_window(table: JobTable, options: TraceOptions) -> tuple[int, float]:
    """Return clock and start of the window."""
    length = (options.num_slots - 1) * options.slot_s
    best: tuple[int, int, float] | None = None
    for clock in np.unique(table.clock).tolist():
        times = np.sort(table.submit_s[table.clock == clock])
        starts = times if options.window_start_s is None else np.array([options.window_start_s])
        inside = np.searchsorted(times, starts + length, side="right") - np.searchsorted(times, starts)
        first = int(np.argmax(inside))
        if best is None or inside[first] > best[0]:
            best = (int(inside[first]), clock, float(starts[first]))
    if best is None:
        raise InvalidOptionError("a sample needs at least one job")
    return best[1], best[2]

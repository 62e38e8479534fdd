"""What a watcher of a back-test sees: the machines that are held at a moment, and how far the job is."""

from collections.abc import Callable
from dataclasses import dataclass

from optim.simulation.spot.policy import LiveLease


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """A lease at a moment.

    Parameters
    ----------
    lease
        The lease as it is now; its number stays.
    is_working
        Whether its start-up is over and its machines do work; those that only hold the state never do.
    is_warned
        Whether the price has crossed its bid, and it will be gone two minutes after that.
    """

    lease: LiveLease
    is_working: bool
    is_warned: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Where a run stands once all that is due at a time has happened.

    Parameters
    ----------
    time_s
        The time.
    holdings
        What is held, the machines on demand first.
    work_done, work_saved
        Work that counts, and how much of it the last complete checkpoint holds.
    rate, resumes_s
        From `resumes_s` on `rate` units of work are done an hour, until the next moment.
    """

    time_s: int
    holdings: tuple[Holding, ...]
    work_done: float
    work_saved: float
    rate: float
    resumes_s: int


Watcher = Callable[[Moment], None]
"""Told every moment, in order of time; several may have the same time, of which the last holds."""


def watch_nothing(moment: Moment) -> None:
    """Let it pass."""
    del moment

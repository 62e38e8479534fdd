"""What a suite is: a frozen specification that turns a request into a list of work."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from optim.benchmarks.record import Record
from optim.benchmarks.sources import InstanceSource, profiled
from optim.benchmarks.work import AbstractWork

SMALL = "small"
"""The size that every suite has: together all suites at this size take under three minutes on two cores."""

FULL = "full"
"""The size of published figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRequest:
    """What the user asked of a suite; None stands for the suite's own choice.

    Parameters
    ----------
    size
        One of the suite's sizes.
    sources
        Instances to use in place of the suite's own.
    profile
        Job profiles, a file or ``published``, from which suites draw instances where `sources` says nothing.
    solvers
        Names of solvers, in order.
    seeds
        Each piece of work is done once for each seed.
    time_limit_s
        Wall-clock limit of one solve in seconds.
    options
        Solver options by name; a name ``solver.option`` is meant for that solver alone.
    histories
        Earlier days a day for solvers that learn: shipped ones, or else drawn; those that ship by default.
    folder
        Where drawn days are kept.
    """

    size: str = SMALL
    sources: tuple[InstanceSource, ...] | None = None
    profile: str | None = None
    solvers: tuple[str, ...] | None = None
    seeds: tuple[int, ...] = (0,)
    time_limit_s: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    histories: int | None = None
    folder: Path = Path("results")

    def for_problem(self, problem: str) -> "BenchRequest":
        """Return the request with the instances that a suite of this problem draws from the profiles, if any."""
        if self.profile is None or self.sources is not None:
            return self
        return replace(self, sources=(profiled(self.profile, problem),))


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A pair of solver and instance that can't be run, with the reason."""

    suite: str
    instance: str
    solver: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A picture of the report.

    Parameters
    ----------
    title, caption
        What it shows, and how to read it.
    svg
        The picture, as made by `optim.benchmarks.pictures.plots.as_svg`.
    """

    title: str
    caption: str
    svg: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchSpec:
    """A suite of benchmarks.

    Parameters
    ----------
    name
        What the user types; the suite of a problem's name is that problem's usual one.
    problem
        Which problem its instances belong to.
    summary
        One line for people.
    build
        Turn a request into work, and into pairs that are left out with a reason.
    sizes
        Sizes it can be run at, `SMALL` first.
    takes_instances
        Whether the user may give other instances.
    columns
        Labels and parameters worth a column of the table.
    figures
        Draw the suite's own pictures from its records.
    """

    name: str
    problem: str
    summary: str
    build: Callable[[BenchRequest], Iterable[AbstractWork | Skipped]]
    sizes: tuple[str, ...] = (SMALL,)
    takes_instances: bool = False
    columns: tuple[str, ...] = ()
    figures: Callable[[Sequence[Record]], Sequence[Figure]] | None = None

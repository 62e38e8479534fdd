"""Options that several sub-commands share, executors among them, and how their texts are read."""

import inspect
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import wraps
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from optim.cli.messages import info
from optim.cli.output import OutputFormat
from optim.core.errors import InvalidOptionError
from optim.core.options import OptionText
from optim.models.catalogue import problem_named, problem_names

if TYPE_CHECKING:
    from optim.execution import Engine
    from optim.execution.dask_cluster import DaskExecutor

INSTANCES = "Instances"

MAX_THINGS = 1_000_000
"""Of a kind in an instance that is generated."""

MAX_PROCESSES = 1_000
"""At once."""

WRITTEN = ("out", "results", "log", "jobs_csv", "report", "picture", "write_golden")
"""Names of parameters that say where something is written."""

MAX_DIGITS = 18
"""Of a whole number, so that 64 bits hold it."""


def option(flags: str, said: str, metavar: str | None = None, panel: str | None = None, **more: Any) -> Any:
    """Return an option: its flags (with commas), its help, what stands for its value, and the panel it is shown in."""
    return typer.Option(*flags.split(","), help=said, metavar=metavar, rich_help_panel=panel, **more)


def grouped(command: Callable[..., Any]) -> Callable[..., Any]:
    """Let a command take several options as one object: each parameter that is a dataclass stands for its fields."""
    signature = inspect.signature(command)
    groups: dict[str, Any] = {
        name: entry.annotation for name, entry in signature.parameters.items() if is_dataclass(entry.annotation)
    }
    parameters: list[inspect.Parameter] = []
    for name, entry in signature.parameters.items():
        if name not in groups:
            parameters.append(entry)
            continue
        for field in fields(groups[name]):
            kind, default = inspect.Parameter.KEYWORD_ONLY, field.default
            parameters.append(inspect.Parameter(field.name, kind, default=default, annotation=field.type))

    @wraps(command)
    def run(*words: Any, **given: Any) -> Any:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        return command(*words, **given)

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # what Typer reads
    run.__annotations__ = {entry.name: entry.annotation for entry in parameters}
    return run


FormatOption = Annotated[OutputFormat, option("--format", "A table, or one JSON object a line.")]

DetailsOption = Annotated[bool, option("--details", "Print all columns and rows of the table.", panel="Output")]

SeedOption = Annotated[int, option("--seed", "Same seed, same answer.", min=0)]

TimeLimitOption = Annotated[
    float | None, option("--time-limit", "Wall-clock limit of a solve in seconds.", "S", "Solving")
]

OutOption = Annotated[Path | None, option("--out", "Where to write; .gz is compressed.", "FILE")]

InstanceOptionsOption = Annotated[
    list[str] | None,
    option(
        "--instance-option",
        "An option of the generator or of the trace's reader; repeat for several.",
        "NAME=VALUE",
        INSTANCES,
    ),
]


def _number(flag: str, said: str) -> Any:
    return option(flag, said, panel=INSTANCES, min=1, max=MAX_THINGS)


@dataclass(frozen=True, kw_only=True)
class JobSizes:
    """Sizes of an admission instance, or of the sample of a trace."""

    jobs: Annotated[int | None, _number("--jobs", "Number of jobs.")] = None
    slots: Annotated[int | None, _number("--slots", "Number of time slots.")] = None
    worker_servers: Annotated[int | None, _number("--worker-servers", "Number of worker servers.")] = None
    ps_servers: Annotated[int | None, _number("--ps-servers", "Number of parameter servers' hosts.")] = None


@dataclass(frozen=True, kw_only=True)
class Sizes(JobSizes):
    """Sizes of an instance of any problem."""

    apps: Annotated[int | None, _number("--apps", "Number of apps (auction).")] = None
    gpus: Annotated[int | None, _number("--gpus", "Number of GPUs (auction).")] = None
    machines: Annotated[int | None, _number("--machines", "Number of machines (auction).")] = None


FORMATS = "csv (the default), sacct, philly, pollux, gavel, alibaba, tiresias, muri or helios."
"""Of traces: what help says, without loading their readers."""


@dataclass(frozen=True, kw_only=True)
class TraceChoice:
    """A public trace and how it is read."""

    trace: Annotated[Path | None, option("--trace", "Sample the jobs of a public trace.", "FILE", INSTANCES)] = None
    trace_format: Annotated[
        str | None,
        option("--trace-format", FORMATS, "NAME", INSTANCES),
    ] = None
    slot_minutes: Annotated[
        float | None, option("--slot-minutes", "Length of a slot in minutes (traces).", "M", INSTANCES)
    ] = None


def split_list(texts: Iterable[str] | None) -> tuple[str, ...]:
    """Return the entries of a list given by repeating an option or with commas.

    Raises
    ------
    InvalidOptionError
        If the option is given but has no entry, as from a shell variable that isn't set: that doesn't mean all of them. Or if an
        entry comes twice.
    """
    given = list(texts or ())
    entries = (entry.strip() for text in given for entry in text.split(","))
    listed = tuple(entry for entry in entries if entry)
    for entry, count in Counter(listed).items():
        if count > 1:
            raise InvalidOptionError(f"{entry[:60]!r} is given twice; give it once")
    if given and not listed:
        msg = f"a list of names was given as {given[0]!r}, without any name; name one, or leave the option out"
        raise InvalidOptionError(msg)
    return listed


def split_seeds(texts: Iterable[str] | None) -> tuple[int, ...]:
    """Return a list of seeds, (0,) where none is given.

    Raises
    ------
    InvalidOptionError
        If one isn't a whole number of at least 0.
    """
    return tuple(whole_number(text, "--seed") for text in split_list(texts)) or (0,)


def whole_number(text: str, flag: str) -> int:
    """Return the number that a text writes.

    Raises
    ------
    InvalidOptionError
        If it isn't a whole number of at least 0.
    """
    if not (text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS):
        raise InvalidOptionError(f"{flag} must be a whole number of at least 0, got {text!r}")
    return int(text)


def split_options(texts: Iterable[str] | None, flag: str = "--option") -> dict[str, str]:
    """Return options given as ``NAME=VALUE``; values are `OptionText`, which is parsed.

    Raises
    ------
    InvalidOptionError
        If a text has no equals sign, or a name comes twice.
    """
    options: dict[str, str] = {}
    for text in texts or ():
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise InvalidOptionError(f"{flag} must be NAME=VALUE, got {text!r}")
        if name.strip() in options:
            raise InvalidOptionError(f"{flag} {name.strip()} is given twice; leave one out")
        options[name.strip()] = OptionText(value.strip())
    return options


def check_out(path: Path | None) -> None:
    """Find out whether a result can be written, before it is made.

    Raises
    ------
    InvalidProblemError
        If it can't.
    """
    from optim.core.files import check_folder

    if path is not None:
        check_folder(path)


def check_inputs_stay(given: Mapping[str, Any]) -> None:
    """Raise if a command was told to write to a file that it also reads, or twice to one.

    Parameters
    ----------
    given
        Values of its parameters by name.

    Raises
    ------
    InvalidOptionError
        Naming the two.
    """
    written = {name: given[name] for name in WRITTEN if given.get(name) is not None}
    for name, place in written.items():
        flag = f"--{name.replace('_', '-')}"
        for other, value in given.items():
            both = f"{flag} and {other.replace('_', '-')}"
            if other in written and other != name and _is_same(place, value):
                raise InvalidOptionError(f"{both} name one file, {place}; give each its own")
            if other not in written and any(_is_same(place, word) for word in _words(value)):
                raise InvalidOptionError(f"{flag} would write over {place}, which is read; choose another file")


def _words(value: Any) -> Iterator[str]:
    """Yield all in a parameter's value that may be a file: entries of lists, and what stands after an equals sign."""
    if isinstance(value, (str, PurePath)):
        for entry in {str(value), *str(value).split(",")}:
            yield from (entry, entry.partition("=")[2])
    elif isinstance(value, (list, tuple)):
        for entry in value:
            yield from _words(entry)


def _is_same(one: Any, other: Any) -> bool:
    """Tell whether two paths are one regular file, by whatever name, or would be."""
    try:
        if os.path.exists(one):
            return bool(os.path.isfile(one) and os.path.samefile(one, other))
        return bool(os.path.abspath(one) == os.path.abspath(other))
    except (OSError, ValueError):
        return False


def check_time_limit(seconds: float | None) -> float | None:
    """Return the limit.

    Raises
    ------
    InvalidOptionError
        If it is negative or not finite.
    """
    if seconds is not None and not (seconds >= 0 and math.isfinite(seconds)):
        raise InvalidOptionError(f"--time-limit must be at least 0 seconds and finite, got {seconds}")
    return seconds


def split_problem(words: Sequence[str], names: Sequence[str]) -> tuple[str | None, tuple[str, ...]]:
    """Split ``[PROBLEM] FILE ...`` into the problem, if one is named, and as many files as `names`.

    Raises
    ------
    InvalidOptionError
        If there are too few or too many words, or the problem is unknown.
    """
    wanted = " ".join(names)
    if len(words) == len(names):
        return None, tuple(words)
    if len(words) == len(names) + 1:
        return problem_named(words[0]).name, tuple(words[1:])
    raise InvalidOptionError(f"expected [PROBLEM] {wanted}, got {len(words)} words: {' '.join(words)}")


def check_problem(expected: str | None, actual: str, name: str) -> None:
    """Raise if a file belongs to another problem than the one named.

    Raises
    ------
    InvalidOptionError
        Naming both; the problem's name may simply be left out.
    """
    if expected is not None and expected != actual:
        known = ", ".join(problem_names())
        raise InvalidOptionError(
            f"{name} is an instance of {actual!r}, not of {expected!r}; leave the name out (known: {known})"
        )


WHERE = "Where it runs"

BYTES_IN_MB = 1e6


class EngineName(StrEnum):
    """What hands out pieces of work."""

    LOCAL = "local"
    DASK = "dask"


@dataclass(frozen=True, kw_only=True)
class EngineChoice:
    """Which engine, and how many workers it has."""

    engine: Annotated[EngineName, option("--engine", "Processes of this machine, or a Dask cluster.", panel=WHERE)] = (
        EngineName.LOCAL
    )
    processes: Annotated[
        int | None,
        option(
            "--processes", "How many pieces of work run at once (default: 1).", panel=WHERE, min=1, max=MAX_PROCESSES
        ),
    ] = None
    scheduler: Annotated[
        str | None, option("--scheduler", "An existing Dask scheduler; its workers do the work.", "ADDRESS", WHERE)
    ] = None
    dashboard: Annotated[bool, option("--dashboard", "Print the address of Dask's page.", panel=WHERE)] = False
    unless_said: ClassVar[int] = 1
    """Number of processes."""

    @contextmanager
    def opened(self, num_short: int | None = None) -> "Iterator[Engine]":
        """Give the engine; a cluster that was started for it ends with the block.

        Parameters
        ----------
        num_short
            How many pieces there are, where each takes less time than a process to begin: a few are done in this one.

        Raises
        ------
        InvalidOptionError
            If options contradict one another.
        MissingDependencyError
            If Dask isn't installed.
        EngineError
            If no scheduler answers.
        """
        from optim.execution import load_dask, local_engine

        if self.scheduler is not None and (self.processes or 1) > 1:
            raise InvalidOptionError(
                "--scheduler's cluster has its own number of workers; leave out --processes, or --scheduler"
            )
        processes = self.processes or self.unless_said
        if self.engine is EngineName.LOCAL and self.scheduler is None:
            if self.dashboard:
                raise InvalidOptionError("--dashboard is Dask's page; add --engine dask or --scheduler ADDRESS")
            is_few = num_short is not None and num_short < 2 * processes
            yield local_engine(1 if is_few else processes)
            return
        with load_dask().dask_cluster(self.scheduler, processes) as engine:
            if self.dashboard:
                info(f"Dask's page: {engine.page}")
            yield engine
            _report_workers(engine)


@dataclass(frozen=True, kw_only=True)
class PairChoice(EngineChoice):
    """The same, where two processes are the default."""

    processes: Annotated[
        int | None,
        option(
            "--processes", "How many pieces of work run at once (default: 2).", panel=WHERE, min=1, max=MAX_PROCESSES
        ),
    ] = None
    unless_said: ClassVar[int] = 2


def _report_workers(engine: "DaskExecutor") -> None:
    """Say how much was sent to workers beside the pieces themselves."""
    info(f"sent to workers once each: {engine.sent_bytes / BYTES_IN_MB:.3g} MB")

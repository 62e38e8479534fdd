"""Options that several sub-commands share, the parsing of their values, and the choice of an executor."""

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
"""Maximum number of jobs, slots, servers, apps, GPUs or machines in a generated instance."""

MAX_PROCESSES = 1_000
"""Maximum number of concurrent processes."""

WRITTEN = ("out", "results", "log", "jobs_csv", "report", "picture", "write_golden")
"""Names of parameters that are output paths."""

MAX_DIGITS = 18
"""Maximum digits of an integer, so that it fits 64 bits."""


def option(flags: str, said: str, metavar: str | None = None, panel: str | None = None, **more: Any) -> Any:
    """Return a Typer option; `flags` are separated by commas, `said` is its help."""
    return typer.Option(*flags.split(","), help=said, metavar=metavar, rich_help_panel=panel, **more)


def grouped(command: Callable[..., Any]) -> Callable[..., Any]:
    """Expand each parameter whose annotation is a dataclass into one option per field."""
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


FormatOption = Annotated[OutputFormat, option("--format", "Output format; json prints one object per line.")]

DetailsOption = Annotated[bool, option("--details", "Print all columns and rows.", panel="Output")]

SeedOption = Annotated[int, option("--seed", "Random seed.", min=0)]

TimeLimitOption = Annotated[
    float | None, option("--time-limit", "Wall-clock limit per solve, in seconds.", "S", "Solving")
]

OutOption = Annotated[Path | None, option("--out", "Output file; a name ending in .gz is compressed.", "FILE")]

InstanceOptionsOption = Annotated[
    list[str] | None,
    option(
        "--instance-option",
        "An option of the generator or the trace reader; repeatable.",
        "NAME=VALUE",
        INSTANCES,
    ),
]


def _number(flag: str, said: str) -> Any:
    return option(flag, said, panel=INSTANCES, min=1, max=MAX_THINGS)


@dataclass(frozen=True, kw_only=True)
class JobSizes:
    """Sizes of an admission instance, generated or sampled from a trace."""

    jobs: Annotated[int | None, _number("--jobs", "Number of jobs.")] = None
    slots: Annotated[int | None, _number("--slots", "Number of time slots.")] = None
    worker_servers: Annotated[int | None, _number("--worker-servers", "Number of worker servers.")] = None
    ps_servers: Annotated[int | None, _number("--ps-servers", "Number of parameter-server hosts.")] = None


@dataclass(frozen=True, kw_only=True)
class Sizes(JobSizes):
    """Sizes of an instance of any problem."""

    apps: Annotated[int | None, _number("--apps", "Number of apps (auction).")] = None
    gpus: Annotated[int | None, _number("--gpus", "Number of GPUs (auction).")] = None
    machines: Annotated[int | None, _number("--machines", "Number of machines (auction).")] = None


FORMATS = "csv (the default), sacct, philly, pollux, gavel, alibaba, tiresias, muri or helios."
"""Trace formats, listed here so that help does not load their readers."""


@dataclass(frozen=True, kw_only=True)
class TraceChoice:
    """A public trace and its format."""

    trace: Annotated[Path | None, option("--trace", "Sample the jobs of a public trace.", "FILE", INSTANCES)] = None
    trace_format: Annotated[
        str | None,
        option("--trace-format", FORMATS, "NAME", INSTANCES),
    ] = None
    slot_minutes: Annotated[
        float | None, option("--slot-minutes", "Length of a slot in minutes (traces).", "M", INSTANCES)
    ] = None


def split_list(texts: Iterable[str] | None) -> tuple[str, ...]:
    """Return the entries of a list that is given by repeating an option, with commas, or both.

    Raises
    ------
    InvalidOptionError
        If the option is given without an entry (as from an unset shell variable), or an entry is given twice.
    """
    given = list(texts or ())
    entries = (entry.strip() for text in given for entry in text.split(","))
    listed = tuple(entry for entry in entries if entry)
    for entry, count in Counter(listed).items():
        if count > 1:
            raise InvalidOptionError(f"{entry[:60]!r} is given twice; give it once")
    if given and not listed:
        msg = f"expected a list of names, got {given[0]!r}; give at least one name, or omit the option"
        raise InvalidOptionError(msg)
    return listed


def split_seeds(texts: Iterable[str] | None) -> tuple[int, ...]:
    """Return the seeds, by default (0,).

    Raises
    ------
    InvalidOptionError
        If a seed is not a whole number of at least 0.
    """
    return tuple(whole_number(text, "--seed") for text in split_list(texts)) or (0,)


def whole_number(text: str, flag: str) -> int:
    """Parse a whole number of at least 0.

    Raises
    ------
    InvalidOptionError
        If the text is something else.
    """
    if not (text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS):
        raise InvalidOptionError(f"{flag} must be a whole number of at least 0, got {text!r}")
    return int(text)


def split_options(texts: Iterable[str] | None, flag: str = "--option", *, once: str = "give it once") -> dict[str, str]:
    """Return options given as ``NAME=VALUE``; values are `OptionText`, which is parsed later.

    Parameters
    ----------
    once
        Remedy in the error for a name that is given twice.

    Raises
    ------
    InvalidOptionError
        If a text has no equals sign, or a name is given twice.
    """
    options: dict[str, str] = {}
    for text in texts or ():
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise InvalidOptionError(f"{flag} must be NAME=VALUE, got {text!r}")
        if name.strip() in options:
            raise InvalidOptionError(f"{flag} {name.strip()} is given twice; {once}")
        options[name.strip()] = OptionText(value.strip())
    return options


def check_out(path: Path | None) -> None:
    """Check before the computation that a result can be written.

    Raises
    ------
    InvalidProblemError
        If the folder is not writable.
    """
    from optim.core.files import check_folder

    if path is not None:
        check_folder(path)


def check_inputs_stay(given: Mapping[str, Any]) -> None:
    """Raise if a command would write to a file that it also reads, or write two results to one file.

    Parameters
    ----------
    given
        Values of the command's parameters, by name.

    Raises
    ------
    InvalidOptionError
        If there is such a conflict; the message names both options.
    """
    written = {name: given[name] for name in WRITTEN if given.get(name) is not None}
    for name, place in written.items():
        flag = f"--{name.replace('_', '-')}"
        for other, value in given.items():
            both = f"{flag} and {other.replace('_', '-')}"
            if other in written and other != name and _is_same(place, value):
                raise InvalidOptionError(f"{both} name the same file, {place}; choose different files")
            if other not in written and any(_is_same(place, word) for word in _words(value)):
                raise InvalidOptionError(f"{flag} would overwrite the input file {place}; choose another file")


def _words(value: Any) -> Iterator[str]:
    """Yield every part of a parameter's value that may be a file: list entries, and the text after an equals sign."""
    if isinstance(value, (str, PurePath)):
        for entry in {str(value), *str(value).split(",")}:
            yield from (entry, entry.partition("=")[2])
    elif isinstance(value, (list, tuple)):
        for entry in value:
            yield from _words(entry)


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two paths name the same regular file, which may not exist yet."""
    try:
        if os.path.exists(one):
            return bool(os.path.isfile(one) and os.path.samefile(one, other))
        return bool(os.path.abspath(one) == os.path.abspath(other))
    except (OSError, ValueError):
        return False


def check_time_limit(seconds: float | None) -> float | None:
    """Return a time limit in seconds, None for no limit.

    Raises
    ------
    InvalidOptionError
        If the limit is negative or not finite.
    """
    if seconds is not None and not (seconds >= 0 and math.isfinite(seconds)):
        raise InvalidOptionError(f"--time-limit must be at least 0 seconds and finite, got {seconds}")
    return seconds


def split_problem(words: Sequence[str], names: Sequence[str]) -> tuple[str | None, tuple[str, ...]]:
    """Split ``[PROBLEM] FILE ...`` into the problem (None if omitted) and as many files as `names`.

    Raises
    ------
    InvalidOptionError
        If there are too few or too many arguments, or the problem is unknown.
    """
    wanted = " ".join(names)
    if len(words) == len(names):
        return None, tuple(words)
    if len(words) == len(names) + 1:
        return problem_named(words[0]).name, tuple(words[1:])
    raise InvalidOptionError(f"expected [PROBLEM] {wanted}, got {len(words)} arguments: {' '.join(words)}")


def check_problem(expected: str | None, actual: str, name: str) -> None:
    """Raise if a file belongs to a problem other than `expected`.

    Raises
    ------
    InvalidOptionError
        If the file belongs to another problem; the message names both problems.
    """
    if expected is not None and expected != actual:
        known = ", ".join(problem_names())
        raise InvalidOptionError(
            f"{name} is an instance of {actual!r}, not of {expected!r}; omit the problem's name (known: {known})"
        )


WHERE = "Execution"

BYTES_IN_MB = 1e6


class EngineName(StrEnum):
    """Execution engines."""

    LOCAL = "local"
    DASK = "dask"


@dataclass(frozen=True, kw_only=True)
class EngineChoice:
    """Execution engine and number of workers."""

    engine: Annotated[EngineName, option("--engine", "Local processes, or a Dask cluster.", panel=WHERE)] = (
        EngineName.LOCAL
    )
    processes: Annotated[
        int | None,
        option("--processes", "Number of concurrent tasks (default: 1).", panel=WHERE, min=1, max=MAX_PROCESSES),
    ] = None
    scheduler: Annotated[
        str | None, option("--scheduler", "Address of an existing Dask scheduler.", "ADDRESS", WHERE)
    ] = None
    dashboard: Annotated[bool, option("--dashboard", "Print the address of Dask's dashboard.", panel=WHERE)] = False
    unless_said: ClassVar[int] = 1
    """Default number of processes."""

    @contextmanager
    def opened(self, num_short: int | None = None) -> "Iterator[Engine]":
        """Yield the engine; a Dask cluster that is started for it ends with the block.

        Parameters
        ----------
        num_short
            Number of tasks, if each takes less time than the start of a process; a few such tasks run in this process.

        Raises
        ------
        InvalidOptionError
            If options contradict one another.
        MissingDependencyError
            If Dask is not installed.
        EngineError
            If the scheduler does not answer.
        """
        from optim.execution import load_dask, local_engine

        if self.scheduler is not None and (self.processes or 1) > 1:
            raise InvalidOptionError(
                "the cluster of --scheduler sets the number of workers; omit --processes, or --scheduler"
            )
        processes = self.processes or self.unless_said
        if self.engine is EngineName.LOCAL and self.scheduler is None:
            if self.dashboard:
                raise InvalidOptionError("--dashboard requires Dask; add --engine dask or --scheduler ADDRESS")
            is_few = num_short is not None and num_short < 2 * processes
            yield local_engine(1 if is_few else processes)
            return
        with load_dask().dask_cluster(self.scheduler, processes) as engine:
            if self.dashboard:
                info(f"Dask dashboard: {engine.page}")
            yield engine
            _report_workers(engine)


@dataclass(frozen=True, kw_only=True)
class PairChoice(EngineChoice):
    """The options of `EngineChoice`, with two processes by default."""

    processes: Annotated[
        int | None,
        option("--processes", "Number of concurrent tasks (default: 2).", panel=WHERE, min=1, max=MAX_PROCESSES),
    ] = None
    unless_said: ClassVar[int] = 2


def _report_workers(engine: "DaskExecutor") -> None:
    """Print the size of the shared data that the workers received."""
    info(f"shared data sent to workers: {engine.sent_bytes / BYTES_IN_MB:.3g} MB")

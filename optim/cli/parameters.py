"""Options that several sub-commands share, and how their texts are read."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from optim.cli.output import OutputFormat
from optim.core.errors import InvalidOptionError
from optim.models.catalogue import problem_named, problem_names

INSTANCES = "Instances"
MOST_THINGS = 1_000_000
"""Of a kind in an instance that is generated."""
MOST_DIGITS = 18
"""Of a whole number, so that 64 bits hold it."""

FormatOption = Annotated[OutputFormat, typer.Option("--format", help="A table, or one JSON object a line.")]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Same seed, same answer.")]
TimeLimitOption = Annotated[
    float | None,
    typer.Option(
        "--time-limit", metavar="S", help="Wall-clock limit of a solve in seconds.", rich_help_panel="Solving"
    ),
]
SolverOptionsOption = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="NAME=VALUE", help="A solver option; repeat for several."),
]
OutOption = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Where to write; .gz is compressed.")]

JobsOption = Annotated[
    int | None, typer.Option("--jobs", min=1, max=MOST_THINGS, help="Number of jobs.", rich_help_panel=INSTANCES)
]
SlotsOption = Annotated[
    int | None, typer.Option("--slots", min=1, max=MOST_THINGS, help="Number of time slots.", rich_help_panel=INSTANCES)
]
WorkerServersOption = Annotated[
    int | None,
    typer.Option(
        "--worker-servers", min=1, max=MOST_THINGS, help="Number of worker servers.", rich_help_panel=INSTANCES
    ),
]
PsServersOption = Annotated[
    int | None,
    typer.Option(
        "--ps-servers", min=1, max=MOST_THINGS, help="Number of parameter servers' hosts.", rich_help_panel=INSTANCES
    ),
]
AppsOption = Annotated[
    int | None,
    typer.Option("--apps", min=1, max=MOST_THINGS, help="Number of apps (auction).", rich_help_panel=INSTANCES),
]
GpusOption = Annotated[
    int | None,
    typer.Option("--gpus", min=1, max=MOST_THINGS, help="Number of GPUs (auction).", rich_help_panel=INSTANCES),
]
MachinesOption = Annotated[
    int | None,
    typer.Option("--machines", min=1, max=MOST_THINGS, help="Number of machines (auction).", rich_help_panel=INSTANCES),
]
TraceOption = Annotated[
    Path | None,
    typer.Option("--trace", metavar="FILE", help="Sample the jobs of a public trace.", rich_help_panel=INSTANCES),
]
TraceFormatOption = Annotated[
    str | None,
    typer.Option("--trace-format", metavar="NAME", help="philly, gavel or alibaba.", rich_help_panel=INSTANCES),
]
SlotMinutesOption = Annotated[
    float | None,
    typer.Option(
        "--slot-minutes", metavar="M", help="Length of a slot in minutes (traces).", rich_help_panel=INSTANCES
    ),
]
InstanceOptionsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--instance-option",
        metavar="NAME=VALUE",
        help="An option of the generator or of the trace's reader; repeat for several.",
        rich_help_panel=INSTANCES,
    ),
]


def split_list(texts: Iterable[str] | None) -> tuple[str, ...]:
    """Return the entries of a list given by repeating an option or with commas, each once."""
    entries = (entry.strip() for text in texts or () for entry in text.split(","))
    return tuple(dict.fromkeys(entry for entry in entries if entry))


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
    if not (text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS):
        raise InvalidOptionError(f"{flag} must be a whole number of at least 0, got {text!r}")
    return int(text)


def split_options(texts: Iterable[str] | None, flag: str = "--option") -> dict[str, str]:
    """Return options given as ``NAME=VALUE``.

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
        options[name.strip()] = value.strip()
    return options


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

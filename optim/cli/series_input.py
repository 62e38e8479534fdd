"""Series of containers that a command is given: files, or a number to draw."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from optim.cli.border import note
from optim.cli.parameters import option, split_list, split_options
from optim.core.errors import InvalidOptionError

if TYPE_CHECKING:
    from optim.models.containers.series import ContainerSeries

SERIES, PHASES = "Series", "Phases"

EncoderOption = Annotated[str | None, option("--encoder", "Encoder of phases, or truth.", "NAME", PHASES)]
NumPhasesOption = Annotated[int | None, option("--phases,--num-phases", "Else chosen by rule.", panel=PHASES, min=1)]


GeneratorOption = Annotated[
    list[str] | None, option("--generator-option", "A knob of the generator.", "NAME=VALUE", SERIES)
]


@dataclass(frozen=True, kw_only=True)
class FileChoice:
    """Files of series, and what they don't say themselves."""

    input_: Annotated[
        list[str] | None,
        option(
            "--input",
            "CSV, or answers of Prometheus (.json), one a resource; repeat for several.",
            "[NAME=]FILE",
            SERIES,
        ),
    ] = None
    unit: Annotated[
        list[str] | None,
        option("--unit", "Unit of a resource where the file doesn't tell: memory=bytes.", "NAME=UNIT", SERIES),
    ] = None
    counter: Annotated[
        list[str] | None, option("--counter", "A resource that counts up, where likewise: cpu.", "NAME", SERIES)
    ] = None
    drop_incomplete: Annotated[
        bool, option("--drop-incomplete", "Go on though most containers lack a resource.", panel=SERIES)
    ] = False
    generator_option: GeneratorOption = None


@dataclass(frozen=True, kw_only=True)
class SeriesChoice(FileChoice):
    """Files of series, or a number to draw."""

    generate: Annotated[int | None, option("--generate", "Draw N containers instead.", "N", SERIES, min=1)] = None

    @property
    def is_given(self) -> bool:
        """Whether there are any series."""
        return bool(self.input_ or self.generate is not None or self.generator_option)


def read_or_draw(
    choice: FileChoice, generate: int | None, seed: int, *, interval_s: float | None = None
) -> "ContainerSeries":
    """Read the files of ``--input``, or draw as many containers as ``--generate`` says, on a grid of `interval_s`.

    What the files' reader remarks is said.

    Raises
    ------
    InvalidOptionError
        If neither or both are given, or options don't go together.
    """
    from optim.core.options import build_options
    from optim.workloads.containers import ContainerOptions, generate_containers

    if generate is None and not choice.input_:
        raise InvalidOptionError("give either --input FILE or --generate N")
    if generate is not None:
        if choice.input_:
            raise InvalidOptionError("--generate and --input exclude each other; give one")
        if choice.unit or choice.counter or choice.drop_incomplete:
            raise InvalidOptionError("--unit, --counter and --drop-incomplete go with --input FILE")
        grid = {} if interval_s is None else {"interval_s": interval_s}
        own = {**grid, **split_options(choice.generator_option), "num_containers": generate}
        return generate_containers(build_options(ContainerOptions, own), seed)
    if choice.generator_option:
        raise InvalidOptionError("--generator-option goes with --generate N")
    series = read_input(choice)
    for remark in series.remarks:
        note(remark)
    return series


def read_input(choice: FileChoice) -> "ContainerSeries":
    """Read the files of ``--input``.

    Raises
    ------
    InvalidOptionError
        If several files aren't all answers of Prometheus, or a resource comes twice.
    """
    from optim.workloads.containers import read_containers, read_prometheus

    given = choice.input_ or []
    units = split_options(choice.unit, "--unit")
    counters = split_list(choice.counter)
    files: dict[str, str] = {}
    for place, text in enumerate(given):
        name, sign, path = text.partition("=")
        key = name if sign else f"#{place}"
        if key in files:
            raise InvalidOptionError(f"--input {key}= is given twice; one file a resource")
        files[key] = path if sign else text
    if all(path.removesuffix(".gz").endswith(".json") for path in files.values()):
        return read_prometheus(files, units=units, counters=counters, drop_incomplete=choice.drop_incomplete)
    if len(given) > 1:
        raise InvalidOptionError("several --input must all be answers of Prometheus (.json); join CSV files first")
    if counters:
        raise InvalidOptionError("--counter goes with answers of Prometheus (.json); a table holds rates")
    return read_containers(next(iter(files.values())), units=units, drop_incomplete=choice.drop_incomplete)

"""Series of containers that a command is given: files, or a number to draw."""

from typing import TYPE_CHECKING, Annotated

from optim.cli.parameters import option, split_options
from optim.core.errors import InvalidOptionError

if TYPE_CHECKING:
    from optim.models.containers.series import ContainerSeries

SERIES, PHASES = "Series", "Phases"

InputOption = Annotated[
    list[str] | None,
    option(
        "--input", "CSV, or answers of Prometheus (.json), one a resource; repeat for several.", "[NAME=]FILE", SERIES
    ),
]
GenerateOption = Annotated[
    int | None,
    option("--generate", "Draw N containers instead.", "N", SERIES, min=1),
]
GeneratorOption = Annotated[
    list[str] | None,
    option("--generator-option", "A knob of the generator.", "NAME=VALUE", SERIES),
]
EncoderOption = Annotated[str | None, option("--encoder", "Encoder of phases, or truth.", "NAME", PHASES)]
NumPhasesOption = Annotated[int | None, option("--phases,--num-phases", "Else chosen by rule.", panel=PHASES, min=1)]


def read_or_draw(
    given: list[str] | None,
    generate: int | None,
    generator_option: list[str] | None,
    seed: int,
    *,
    interval_s: float | None = None,
) -> "ContainerSeries":
    """Read the files of ``--input``, or draw as many containers as ``--generate`` says, on a grid of `interval_s`.

    Raises
    ------
    InvalidOptionError
        If neither or both are given, or options don't go together.
    """
    from optim.core.options import build_options
    from optim.workloads.containers import ContainerOptions, generate_containers

    if generate is None and not given:
        raise InvalidOptionError("give either --input FILE or --generate N")
    if generate is not None:
        if given:
            raise InvalidOptionError("--generate and --input exclude each other; give one")
        grid = {} if interval_s is None else {"interval_s": interval_s}
        own = {**grid, **split_options(generator_option), "num_containers": generate}
        return generate_containers(build_options(ContainerOptions, own), seed)
    if generator_option:
        raise InvalidOptionError("--generator-option goes with --generate N")
    return read_input(given or [])


def read_input(given: list[str]) -> "ContainerSeries":
    """Read the files of ``--input``.

    Raises
    ------
    InvalidOptionError
        If several files aren't all answers of Prometheus, or a resource comes twice.
    """
    from optim.workloads.containers import read_containers, read_prometheus

    files: dict[str, str] = {}
    for place, text in enumerate(given):
        name, sign, path = text.partition("=")
        key = name if sign else f"#{place}"
        if key in files:
            raise InvalidOptionError(f"--input {key}= is given twice; one file a resource")
        files[key] = path if sign else text
    if all(path.removesuffix(".gz").endswith(".json") for path in files.values()):
        return read_prometheus(files)
    if len(given) > 1:
        raise InvalidOptionError("several --input must all be answers of Prometheus (.json); join CSV files first")
    return read_containers(next(iter(files.values())))

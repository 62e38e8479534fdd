"""Inputs of sub-commands, read or generated: jobs of a cluster, spot prices, series of containers."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from optim.cli.messages import info
from optim.cli.parameters import FORMATS, option, split_list, split_options
from optim.core.errors import InvalidOptionError, InvalidProblemError, check_choices, check_in

if TYPE_CHECKING:
    from optim.models.bidding.market.prices import PriceHistory
    from optim.models.cluster.cluster import Cluster
    from optim.models.cluster.workload import Workload
    from optim.models.containers.series import ContainerSeries
    from optim.workloads.prices.availability_files import OnDemand
    from optim.workloads.prices.price_generator import PriceOptions

JOBS = "Jobs and cluster"

GENERATORS = ("philly", "themis")


@dataclass(frozen=True, kw_only=True)
class JobChoice:
    """Jobs to simulate."""

    trace: Annotated[Path | None, option("--trace", "Read jobs from a trace.", "FILE", JOBS)] = None
    trace_format: Annotated[str | None, option("--trace-format", FORMATS, "NAME", JOBS)] = None
    generate: Annotated[
        str | None, option("--generate", "Generate jobs: philly (bursts) or themis (arriving apps).", "NAME", JOBS)
    ] = None
    jobs: Annotated[int | None, option("--jobs", "Number of jobs, the earliest first.", panel=JOBS, min=1)] = None
    apps: Annotated[int | None, option("--apps", "Number of apps of --generate themis.", panel=JOBS, min=1)] = None
    since: Annotated[str | None, option("--from", "Use only jobs submitted on or after this date.", "DATE", JOBS)] = (
        None
    )


def take(given: dict[str, str], prefix: str) -> dict[str, str]:
    """Remove the options with a prefix from a mapping, and return them without the prefix."""
    names = [name for name in given if name.startswith(prefix)]
    return {name.removeprefix(prefix): given.pop(name) for name in names}


def load_or_generate_jobs(
    choice: JobChoice,
    cluster: "Cluster",
    selecting: Mapping[str, str],
    own: Mapping[str, Mapping[str, str]],
    seed: int,
) -> "Workload":
    """Return the jobs of a trace or a generator.

    Parameters
    ----------
    choice, cluster
        The command's options, and the cluster to run on.
    selecting
        Further options that select jobs, as in `Selection`.
    own
        Options of the trace reader (`trace`) and of the generator (`generate`).
    seed
        Random seed of the generator and the selection.

    Raises
    ------
    InvalidOptionError
        If options exclude each other, or one is unknown or out of its range.
    InvalidProblemError
        If the trace is invalid, or no job is selected.
    """
    from optim.core.options import build_options
    from optim.workloads.cluster.jobs import Selection, cluster_jobs

    _check(choice, selecting, own)
    said: dict[str, Any] = {"first": choice.jobs, "since": choice.since, "seed": seed, **selecting}
    selection = build_options(Selection, said)
    if choice.trace is not None:
        from optim.workloads.traces.formats import DEFAULT_FORMAT, read_jobs
        from optim.workloads.traces.job_table import ReadOptions, by_one_name

        table = read_jobs(
            choice.trace,
            choice.trace_format or DEFAULT_FORMAT,
            build_options(ReadOptions, by_one_name(own["trace"], "trace.")),
        )
        return cluster_jobs(table, selection, cluster)
    if choice.generate == "philly":
        from optim.workloads.cluster.generator import PhillyOptions, draw_jobs

        number = {} if choice.jobs is None else {"jobs": choice.jobs}
        return cluster_jobs(
            draw_jobs(build_options(PhillyOptions, {**number, **own["generate"]}), seed), selection, cluster
        )
    from optim.workloads.cluster.themis_apps import ThemisOptions, draw_apps

    number = {} if choice.apps is None else {"apps": choice.apps}
    return draw_apps(build_options(ThemisOptions, {**number, **own["generate"]}), seed)


def _check(choice: JobChoice, selecting: Mapping[str, str], own: Mapping[str, Mapping[str, str]]) -> None:
    """Raise if options exclude each other."""
    if (choice.trace is None) == (choice.generate is None):
        raise InvalidOptionError(f"give either --trace FILE or --generate NAME ({' or '.join(GENERATORS)})")
    if choice.generate is not None and choice.generate not in GENERATORS:
        raise InvalidOptionError(f"--generate must be {' or '.join(GENERATORS)}, got {choice.generate[:40]!r}")
    is_drawn, is_themis = choice.generate is not None, choice.generate == "themis"
    for name, is_given, goes_with, is_there in (
        ("--trace-format", choice.trace_format is not None, "--trace", not is_drawn),
        ("--from", choice.since is not None, "--trace", not is_drawn),
        ("--option trace.NAME", bool(own["trace"]), "--trace", not is_drawn),
        ("--option generate.NAME", bool(own["generate"]), "--generate", is_drawn),
        ("--apps", choice.apps is not None, "--generate themis", is_themis),
        ("--jobs", choice.jobs is not None, "--trace or --generate philly", not is_themis),
        *((f"--option {name}", True, "--trace or --generate philly", not is_themis) for name in selecting),
    ):
        if is_given and not is_there:
            raise InvalidOptionError(f"{name} requires {goes_with}; omit {name}")


PRICES = "Prices"

MAX_USD = 1e6
"""Upper limit of a price in USD per hour."""


@dataclass(frozen=True, kw_only=True)
class PriceChoice:
    """Price files, and the end of the training period."""

    prices: Annotated[
        list[Path] | None,
        option("--prices", "Prices as CSV or a cloud's price list; repeatable; default: generated.", "FILE", PRICES),
    ] = None
    on_demand: Annotated[
        str | None,
        option(
            "--on-demand",
            "File of on-demand prices; with --availability also USD per hour or an instance type.",
            "FILE|USD",
            PRICES,
        ),
    ] = None
    product: Annotated[
        str | None, option("--product", "Product in a cloud's price list; default: Linux/UNIX.", "NAME", PRICES)
    ] = None
    train_until: Annotated[
        str | None, option("--train-until", "End of the prices that policies learn from.", "DATE", PRICES)
    ] = None
    volatile: Annotated[
        int | None,
        option("--volatile", "Use only the N markets with the most volatile prices in training.", "N", PRICES),
    ] = None
    gap_hours: Annotated[
        float | None,
        option(
            "--gap-hours",
            "Hours without price changes that count as missing data; default: 3, or 25 for calm markets.",
            "H",
            PRICES,
        ),
    ] = None
    work: Annotated[
        str | None,
        option("--work", "Unit of machine speed: gpus or vcpus; default: the one that all types have.", "NAME", PRICES),
    ] = None


def load_or_generate_prices(choice: PriceChoice, options: "PriceOptions", seed: int) -> "PriceHistory":
    """Return the prices of `choice`, with on-demand prices, or generated prices if no file is given.

    Raises
    ------
    InvalidOptionError
        If options exclude each other, or on-demand prices are missing.
    """
    from optim.core.files import read_bytes
    from optim.workloads.bidding.instances import Work
    from optim.workloads.prices.price_files import SNAPSHOTS, provider_in, read_on_demand, read_prices, read_rates
    from optim.workloads.prices.price_generator import generate_prices

    if not choice.prices:
        if choice.on_demand is not None:
            raise InvalidOptionError("--on-demand requires --prices FILE or --availability FILE")
        for name in ("product", "gap_hours", "work"):
            if getattr(choice, name) is not None:
                raise InvalidOptionError(f"--{name.replace('_', '-')} requires --prices FILE")
        return generate_prices(options, seed)
    if choice.on_demand is None and not all(
        path.is_file() and provider_in(read_bytes(path)) in SNAPSHOTS for path in choice.prices
    ):
        raise InvalidOptionError("--prices needs --on-demand FILE, with the on-demand price of each type")
    prices: dict[str, int] = {}
    rates: dict[str, float] = {}
    if choice.on_demand is not None:
        prices, rates = read_on_demand(choice.on_demand), read_rates(choice.on_demand)
    check_in("(0, 1e6]", {"--gap-hours": choice.gap_hours})
    if choice.work is not None:
        check_choices({"--work": choice.work}, {"--work": [work.value for work in Work]})
    gap_s = None if choice.gap_hours is None else round(3600 * choice.gap_hours)
    work = None if choice.work is None else Work(choice.work)
    return read_prices(choice.prices, prices, rates=rates, product=choice.product, gap_s=gap_s, work=work)


def on_demand_of(text: str | None) -> "OnDemand":
    """Return ``--on-demand`` in micro-dollars per hour: one price for a number or an instance type, prices by type for a file.

    Raises
    ------
    InvalidOptionError
        If a number is not a positive price.
    """
    from optim.models.bidding.market.prices import MICRO
    from optim.workloads.prices.availability_files import LIST_PRICES
    from optim.workloads.prices.price_files import read_on_demand

    if text is None:
        return None
    if text in LIST_PRICES:
        return LIST_PRICES[text]
    try:
        usd = float(text)
    except ValueError:
        return read_on_demand(text)
    if not 1 / MICRO <= usd <= MAX_USD:
        raise InvalidOptionError(f"--on-demand must be a file, or USD per hour in [1e-6, 1e6], got {text}")
    return round(usd * MICRO)


def split_time(train_until: str | None) -> int | None:
    """Return ``--train-until`` as seconds since 1970, or None."""
    return None if train_until is None else time_of(train_until, "--train-until")


def time_of(text: str, flag: str) -> int:
    """Return the seconds since 1970 of an option's date.

    Raises
    ------
    InvalidOptionError
        If the text is not a date.
    """
    from optim.workloads.prices.price_files import parse_times

    try:
        return int(parse_times(flag, "date", [text])[0])
    except InvalidProblemError as error:
        raise InvalidOptionError(f"{flag} must be a date like 2015-06-01, got {text!r}") from error


SERIES, PHASES = "Series", "Phases"

EncoderOption = Annotated[
    str | None,
    option("--encoder", "Encoder that finds phases; truth: the true phases of generated series.", "NAME", PHASES),
]

NumPhasesOption = Annotated[
    int | None, option("--phases,--num-phases", "Number of phases; default: chosen from the data.", panel=PHASES, min=1)
]

GeneratorOption = Annotated[
    list[str] | None, option("--generator-option", "An option of the generator; repeatable.", "NAME=VALUE", SERIES)
]


@dataclass(frozen=True, kw_only=True)
class FileChoice:
    """Files of series, and metadata that they lack."""

    input_: Annotated[
        list[str] | None,
        option(
            "--input",
            "CSV file, or Prometheus responses (.json), one per resource; repeatable.",
            "[NAME=]FILE",
            SERIES,
        ),
    ] = None
    unit: Annotated[
        list[str] | None,
        option("--unit", "Unit of a resource if the file lacks it, such as memory=bytes.", "NAME=UNIT", SERIES),
    ] = None
    counter: Annotated[
        list[str] | None, option("--counter", "A resource that is a counter (Prometheus), such as cpu.", "NAME", SERIES)
    ] = None
    drop_incomplete: Annotated[
        bool,
        option("--drop-incomplete", "Drop containers that lack a resource, even if most do.", panel=SERIES),
    ] = False
    generator_option: GeneratorOption = None


@dataclass(frozen=True, kw_only=True)
class SeriesChoice(FileChoice):
    """Files of series, or a number of containers to generate."""

    generate: Annotated[
        int | None, option("--generate", "Generate N containers instead of reading files.", "N", SERIES, min=1)
    ] = None

    @property
    def is_given(self) -> bool:
        """Whether series are given or to be generated."""
        return bool(self.input_ or self.generate is not None or self.generator_option)


def load_or_generate_series(
    choice: FileChoice, generate: int | None, seed: int, *, interval_s: float | None = None
) -> "ContainerSeries":
    """Read the files of ``--input`` and print the reader's remarks, or generate `generate` containers every `interval_s`.

    Raises
    ------
    InvalidOptionError
        If neither ``--input`` nor `generate` is given, or options exclude each other.
    """
    from optim.core.options import build_options
    from optim.workloads.containers import ContainerOptions, generate_containers

    if generate is None and not choice.input_:
        raise InvalidOptionError("give either --input FILE or --generate N")
    if generate is not None:
        if choice.input_:
            raise InvalidOptionError("--generate and --input exclude each other; give one")
        if choice.unit or choice.counter or choice.drop_incomplete:
            raise InvalidOptionError("--unit, --counter and --drop-incomplete require --input FILE")
        grid = {} if interval_s is None else {"interval_s": interval_s}
        own = {**grid, **split_options(choice.generator_option), "num_containers": generate}
        return generate_containers(build_options(ContainerOptions, own), seed)
    if choice.generator_option:
        raise InvalidOptionError("--generator-option requires --generate N")
    series = read_input(choice)
    for remark in series.remarks:
        info(remark)
    return series


def read_input(choice: FileChoice) -> "ContainerSeries":
    """Read the files of ``--input``.

    Raises
    ------
    InvalidOptionError
        If several files are not all Prometheus responses, or a resource is given twice.
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
            raise InvalidOptionError(f"--input {key}= is given twice; give one file per resource")
        files[key] = path if sign else text
    if all(path.removesuffix(".gz").endswith(".json") for path in files.values()):
        return read_prometheus(files, units=units, counters=counters, drop_incomplete=choice.drop_incomplete)
    if len(given) > 1:
        raise InvalidOptionError("several --input files must all be Prometheus responses (.json); join CSV files first")
    if counters:
        raise InvalidOptionError("--counter requires Prometheus responses (.json); CSV files must contain rates")
    return read_containers(next(iter(files.values())), units=units, drop_incomplete=choice.drop_incomplete)

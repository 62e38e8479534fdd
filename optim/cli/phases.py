"""`optim phases`: find phases in container metrics, describe them, and watch containers against a model."""

import warnings
from pathlib import Path
from typing import Annotated

import typer

from optim.cli.border import listening
from optim.cli.inputs import SERIES, GeneratorOption, SeriesChoice, load_or_generate_series
from optim.cli.messages import ExitCode, info
from optim.cli.output import OutputFormat, print_fields, print_json, print_rows, print_table, terminal_progress
from optim.cli.parameters import (
    EngineChoice,
    FormatOption,
    SeedOption,
    grouped,
    option,
    split_list,
    split_options,
    split_seeds,
)
from optim.core.errors import InvalidOptionError
from optim.core.files import prepare_folder
from optim.core.optional import check_installed

ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="A model that 'optim phases fit' wrote.")]

LEVEL = 0.95

MAX_STEPS = 5760
"""Maximum horizon: one day of samples every 15 s; longer forecasts would equal the long-run shares of phases."""


@grouped
def watch(
    model: ModelArgument,
    *,
    files: SeriesChoice,
    kind: Annotated[
        str | None,
        option(
            "--kind",
            "Score: surprise (hmm), free-energy (crbm), forecast-error; default: the first of these that the model has.",
            "NAME",
        ),
    ] = None,
    update: Annotated[
        Path | None, option("--update", "Update the model with these containers, and write it to FILE.", "FILE")
    ] = None,
    seed: SeedOption = 0,
    output: FormatOption = OutputFormat.TABLE,
) -> ExitCode:
    """Score the anomaly of containers, and report when the model should be updated; print one row per container."""
    from optim.phases.model import PhaseModel
    from optim.phases.rows import watch as look

    if update is not None:
        prepare_folder(update)
    fitted = PhaseModel.load(model)
    series = load_or_generate_series(files, files.generate, seed)
    readings = look(fitted, series, kind)
    header = ("container", "samples", "anomalies", "score", "excess", "drift_sum", "is_update_due")
    print_rows(readings, output, header)
    due = next((reading.container for reading in readings if reading.is_update_due), None)
    info("no model update is due" if due is None else f"a model update is due since container {due}")
    if update is not None:
        fitted.partial_fit(series).save(update)
        info(f"updated model written to {update}")
    return ExitCode.DONE


@grouped
def forecast(
    model: ModelArgument,
    *,
    files: SeriesChoice,
    method: Annotated[
        str | None, option("--method", "Method: markov, semi-markov (default), prototype or same.", "NAME")
    ] = None,
    steps: Annotated[int, option("--steps", "Horizon in samples.", "N", min=1, max=MAX_STEPS)] = 40,
    level: Annotated[float, option("--level", "Demand quantile to report.", "SHARE")] = LEVEL,
    score: Annotated[
        bool,
        option("--score", "Instead of forecasting, score the methods on these series, one row per method and horizon."),
    ] = False,
    seed: SeedOption = 0,
    output: FormatOption = OutputFormat.TABLE,
) -> ExitCode:
    """Forecast phases and demands after the end of each series; print one row per series."""
    from optim.phases.forecasting import ForecastMethod
    from optim.phases.model import PhaseModel
    from optim.phases.rows import forecast_rows, score_rows

    if score and level != LEVEL:
        raise InvalidOptionError("--level and --score exclude each other; give one")
    fitted = PhaseModel.load(model)
    series = load_or_generate_series(files, files.generate, seed)
    if score:
        rows = score_rows(fitted, series, steps, list(ForecastMethod) if method is None else [method])
    else:
        rows = forecast_rows(fitted, series, steps, level, method or ForecastMethod.SEMI_MARKOV)
    if output is OutputFormat.TABLE:
        rows = [{name: _likely(value) for name, value in row.items()} for row in rows]
    print_rows(rows, output)
    return ExitCode.DONE


def _likely(value: object) -> object:
    """Return the most likely phase of a forecast with its probability; return other values unchanged."""
    if not isinstance(value, dict):
        return value
    name = max(value, key=lambda key: value[key])
    return f"{name} {value[name]:.2f}"


app = typer.Typer(name="phases", help="Find phases in the resource usage of containers.", no_args_is_help=True)

MODEL = "Model"


@app.callback()
def phases() -> None:
    """Find phases in the resource usage of containers."""


@app.command()
@grouped
def fit(
    *,
    files: SeriesChoice,
    encoder: Annotated[
        str | None, option("--encoder", "Encoder; default: the best in benchmarks.", "NAME", MODEL)
    ] = None,
    option: Annotated[
        list[str] | None, option("--option", "An option of the encoder; repeatable.", "NAME=VALUE", MODEL)
    ] = None,
    num_phases: Annotated[
        int | None, option("--phases", "Number of phases; default: chosen on held-out containers.", "K", MODEL, min=1)
    ] = None,
    resource: Annotated[
        list[str] | None, option("--resource", "Resources to use; default: all.", "NAME", MODEL)
    ] = None,
    interval: Annotated[float, option("--interval", "Sampling interval in seconds.", "S", MODEL)] = 15.0,
    max_gap: Annotated[
        float, option("--max-gap", "Longest gap in seconds within a series; longer gaps split it.", "S", MODEL)
    ] = 60.0,
    smoothing: Annotated[int, option("--smoothing", "Window of majority smoothing, in labels.", "N", MODEL, min=1)] = 1,
    out: Annotated[Path | None, option("--out", "Model file to write (.npz).", "FILE")] = None,
    seed: SeedOption = 0,
    output: FormatOption = OutputFormat.TABLE,
) -> ExitCode:
    """Fit a model, and print one row per phase and resource."""
    from optim.phases.model import DEFAULT_ENCODER, PhaseModel
    from optim.phases.rows import phase_rows, summary_of

    if out is not None:
        prepare_folder(out)
    series = load_or_generate_series(files, files.generate, seed)
    model = PhaseModel(
        encoder=encoder or DEFAULT_ENCODER,
        encoder_options=split_options(option) or None,
        num_phases=num_phases,
        resources=split_list(resource) or None,
        interval_s=interval,
        max_gap_s=max_gap,
        smoothing=smoothing,
        seed=seed,
    )
    with terminal_progress() as progress, warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        progress.start(f"fit {model.encoder}")
        model.fit(series)
        progress.finish()
    for warning in heard:
        info(str(warning.message))
    if out is not None:
        model.save(out)
    summary = summary_of(model, series)
    print_rows(phase_rows(model), output)
    if output is OutputFormat.JSON:
        print_json(summary)
    else:
        print_fields(summary)
    return ExitCode.DONE


@app.command()
@grouped
def encode(
    model: ModelArgument,
    *,
    files: SeriesChoice,
    seed: SeedOption = 0,
    output: FormatOption = OutputFormat.TABLE,
) -> ExitCode:
    """Label series with phases; print one row per segment of a container between gaps."""
    from optim.phases.model import PhaseModel
    from optim.phases.rows import legend, sequence_rows

    fitted = PhaseModel.load(model)
    rows = sequence_rows(fitted, load_or_generate_series(files, files.generate, seed))
    if output is OutputFormat.JSON:
        rows = [{**row, "names": fitted.names_} for row in rows]
    print_rows(rows, output, ("container", "start_s", "samples", "anomalies", "sequence"), title=legend(fitted))
    return ExitCode.DONE


@app.command()
def graph(
    model: ModelArgument,
    *,
    order: Annotated[
        int | None, option("--order", "Number of successive phases in a node; default: order of the model.", "M", min=1)
    ] = None,
    output: FormatOption = OutputFormat.TABLE,
) -> ExitCode:
    """Print the transition graph of phases, one row per edge."""
    from optim.phases.model import PhaseModel
    from optim.phases.rows import edge_rows, legend

    fitted = PhaseModel.load(model)
    title = f"order {order or fitted.order_}; {legend(fitted)}"
    print_rows(edge_rows(fitted, order), output, ("from", "to", "count", "probability"), title=title)
    return ExitCode.DONE


@app.command()
@grouped
def report(
    model: ModelArgument,
    *,
    files: SeriesChoice,
    out: Annotated[Path, option("--out", "Report to write (HTML).", "FILE")] = Path("phases.html"),
    seed: SeedOption = 0,
) -> ExitCode:
    """Write an HTML report with plots of the model and of series, if given."""
    check_installed("matplotlib", "a report")
    from optim.phases.model import PhaseModel
    from optim.report.phases import write_phase_report

    prepare_folder(out)
    fitted = PhaseModel.load(model)
    series = load_or_generate_series(files, files.generate, seed) if files.is_given else None
    write_phase_report(fitted, series, out)
    info(f"report written to {out}")
    return ExitCode.DONE


@app.command()
@grouped
def score(
    *,
    generate: Annotated[
        int, option("--generate", "Containers to generate; a fifth is for testing.", "N", SERIES, min=3)
    ] = 500,
    generator_option: GeneratorOption = None,
    seeds: Annotated[list[str] | None, option("--seeds", "Seeds; default: 0 to 4.", "N,N,...")] = None,
    encoder: Annotated[list[str] | None, option("--encoder", "Encoders; default: all.", "NAME,NAME,...")] = None,
    option: Annotated[
        list[str] | None, option("--option", "An option of an encoder; repeatable.", "ENCODER.NAME=VALUE")
    ] = None,
    num_phases: Annotated[int, option("--phases", "Phases to fit; default: the true number.", "K", min=1)] = 5,
    smoothing: Annotated[int, option("--smoothing", "Window of majority smoothing, in labels.", "N", min=1)] = 1,
    test_drift: Annotated[float, option("--test-drift", "Generator option `drift` of the test containers.", "X")] = 0.0,
    confusion: Annotated[
        bool, option("--confusion", "Print one row per seed with the confusion matrix (JSON).")
    ] = False,
    where: EngineChoice,
    output: FormatOption = OutputFormat.TABLE,
) -> ExitCode:
    """Score encoders on generated containers with known phases; print means over seeds, one row per encoder."""
    from optim.core.options import build_options
    from optim.phases.encoders import ENCODERS, make_encoder
    from optim.rightsizing.phase_recovery import RecoveryTask, summarise
    from optim.workloads.containers import ContainerOptions

    if confusion and output is OutputFormat.TABLE:
        raise InvalidOptionError("--confusion requires --format json; add it, or omit --confusion")
    names = split_list(encoder) or tuple(ENCODERS)
    own = _encoder_options(option, names)
    for name in names:
        make_encoder(name, own.get(name))
    options = build_options(ContainerOptions, {**split_options(generator_option), "num_containers": generate})
    chosen = split_seeds(seeds) if seeds else tuple(range(5))
    task = RecoveryTask(
        options=options,
        num_phases=num_phases,
        encoder_options=own,
        test_drift=test_drift,
        parameters={"smoothing": smoothing},
    )
    summaries = []
    with (
        terminal_progress() as progress,
        listening("finished encoders will be printed") as interruption,
        where.opened() as engine,
    ):
        for rows in task.by_encoder(names, chosen, engine, interruption, progress):
            summaries.append(summarise(rows))
            if output is OutputFormat.JSON:
                for shown in (*(rows if confusion else ()), summaries[-1]):
                    print_json(shown)
    if output is OutputFormat.TABLE and summaries:
        header = ("encoder", "ari", "low", "high", "inner", "ami", *(f"f1 {name}" for name in summaries[-1].f1))
        table = [
            [row.encoder, row.ari, row.ari_low, row.ari_high, row.ari_inner, row.ami, *row.f1.values()]
            for row in summaries
        ]
        seeds_text = ", ".join(map(str, chosen))
        print_table(header, table, title=f"adjusted Rand index and 95 % interval (Student's t) over seeds {seeds_text}")
    return ExitCode.INTERRUPTED if interruption.is_requested else ExitCode.DONE


app.command()(watch)

app.command()(forecast)


def _encoder_options(texts: list[str] | None, names: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """Return options by encoder from ``ENCODER.NAME=VALUE``."""
    found: dict[str, dict[str, str]] = {}
    for key, value in split_options(texts).items():
        encoder, dot, name = key.partition(".")
        if not dot or encoder not in names:
            raise InvalidOptionError(
                f"--option must be ENCODER.NAME=VALUE, where ENCODER is one of {', '.join(names)}; got {key!r}"
            )
        found.setdefault(encoder, {})[name] = value
    return found

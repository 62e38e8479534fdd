"""`optim phases watch`: are containers still those that a model was fitted on; `optim phases forecast`: what comes next."""

from pathlib import Path
from typing import Annotated, Any

import typer

from optim.cli.border import note
from optim.cli.exit_code import ExitCode
from optim.cli.output import OutputFormat, print_json, print_table
from optim.cli.parameters import FormatOption, SeedOption
from optim.cli.series_input import GenerateOption, GeneratorOption, InputOption, read_or_draw
from optim.core.files import prepare_folder

ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="A model that 'optim phases fit' wrote.")]
HORIZONS = (1, 4, 20, 40)
"""Samples ahead that forecasts are shown and scored at."""

MOST_STEPS = 5760
"""A day at 15 s; beyond it a forecast is the phases' long-run shares."""


def watch(
    model: ModelArgument,
    *,
    input_: InputOption = None,
    generate: GenerateOption = None,
    generator_option: GeneratorOption = None,
    kind: Annotated[
        str, typer.Option("--kind", metavar="NAME", help="Score: forecast-error, or free-energy (crbm).")
    ] = "forecast-error",
    update: Annotated[
        Path | None,
        typer.Option("--update", metavar="FILE", help="Take the containers in, and write the updated model."),
    ] = None,
    seed: SeedOption = 0,
    output: FormatOption = OutputFormat.TABLE,
) -> ExitCode:
    """Say how usual containers are, and when the model should be updated: a row a container, in their order."""
    from optim.phases.model import PhaseModel
    from optim.phases.watching import watch as look

    if update is not None:
        prepare_folder(update)
    fitted = PhaseModel.load(model)
    series = read_or_draw(input_, generate, generator_option, seed)
    readings = look(fitted, series, kind)
    if output is OutputFormat.JSON:
        for reading in readings:
            print_json(reading)
    else:
        header = ("container", "samples", "anomalies", "score", "excess", "drift_sum", "is_update_due")
        print_table(header, [[getattr(reading, name) for name in header] for reading in readings])
    due = next((reading.container for reading in readings if reading.is_update_due), None)
    note("no update is due" if due is None else f"an update is due since container {due}")
    if update is not None:
        fitted.partial_fit(series).save(update)
        note(f"updated model written to {update}")
    return ExitCode.DONE


def forecast(
    model: ModelArgument,
    *,
    input_: InputOption = None,
    generate: GenerateOption = None,
    generator_option: GeneratorOption = None,
    method: Annotated[
        str | None,
        typer.Option("--method", metavar="NAME", help="markov, semi-markov (default), prototype or same."),
    ] = None,
    steps: Annotated[int, typer.Option("--steps", min=1, max=MOST_STEPS, metavar="N", help="Samples ahead.")] = 40,
    level: Annotated[
        float, typer.Option("--level", metavar="SHARE", help="Of the next samples' demand: the quantile shown.")
    ] = 0.95,
    score: Annotated[
        bool, typer.Option("--score", help="Instead, score the methods on these series: a row a method and horizon.")
    ] = False,
    seed: SeedOption = 0,
    output: FormatOption = OutputFormat.TABLE,
) -> ExitCode:
    """Forecast the phases and demands that follow the end of each series: a row a series."""
    from optim.phases.forecasting import ForecastMethod, score_table
    from optim.phases.model import PhaseModel
    from optim.phases.runs import runs_of

    fitted = PhaseModel.load(model)
    series = read_or_draw(input_, generate, generator_option, seed)
    phased = fitted.label(series)
    rows: list[dict[str, Any]] = []
    if score:
        runs = runs_of(phased.labels, phased.series.lengths, fitted.min_dwell)
        methods = list(ForecastMethod) if method is None else [method]
        horizons = tuple(horizon for horizon in HORIZONS if horizon <= steps) or (steps,)
        for name, horizon, loss, brier in score_table(fitted.forecaster, runs, horizons, methods):
            rows.append({"method": name, "horizon": horizon, "log_loss": loss, "brier": brier})
    else:
        ahead = fitted.forecast(phased.series, steps, method or ForecastMethod.SEMI_MARKOV)
        demand = fitted.demand_quantile(phased.series, level, steps, method or ForecastMethod.SEMI_MARKOV)
        for segment, own in enumerate(phased.series.segments()):
            now = int(phased.labels[own][-1])
            is_known = now >= 0
            rows.append(
                {
                    "container": phased.series.containers[segment],
                    "phase": fitted.names_[now] if is_known else None,
                    **{
                        f"in_{horizon}": dict(zip(fitted.names_, ahead[segment, horizon - 1].tolist(), strict=True))
                        if is_known
                        else None
                        for horizon in HORIZONS
                        if horizon <= steps
                    },
                    **{
                        f"{resource.name}_p{100 * level:g}": float(demand[segment, place]) if is_known else None
                        for place, resource in enumerate(fitted.resources_)
                    },
                }
            )
    if output is OutputFormat.JSON:
        for row in rows:
            print_json(row)
    else:
        print_table(tuple(rows[0]), [[_likely(value) for value in row.values()] for row in rows])
    return ExitCode.DONE


def _likely(value: object) -> object:
    """Return the likeliest phase of a forecast with its probability; anything else as it is."""
    if not isinstance(value, dict):
        return value
    name = max(value, key=lambda key: value[key])
    return f"{name} {value[name]:.2f}"

"""`optim phases watch`: are containers still those that a model was fitted on; `optim phases forecast`: what comes next."""

from pathlib import Path
from typing import Annotated

import typer

from optim.cli.border import note
from optim.cli.exit_code import ExitCode
from optim.cli.output import OutputFormat, print_rows
from optim.cli.parameters import FormatOption, SeedOption, grouped, option
from optim.cli.series_input import SeriesChoice, read_or_draw
from optim.core.errors import InvalidOptionError
from optim.core.files import prepare_folder

ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="A model that 'optim phases fit' wrote.")]
LEVEL = 0.95
MOST_STEPS = 5760
"""A day at 15 s; beyond it a forecast is the phases' long-run shares."""


@grouped
def watch(
    model: ModelArgument,
    *,
    files: SeriesChoice,
    kind: Annotated[
        str | None,
        option(
            "--kind",
            "Score: surprise (hmm), free-energy (crbm), forecast-error; default: the first that there is.",
            "NAME",
        ),
    ] = None,
    update: Annotated[
        Path | None, option("--update", "Take the containers in, and write the updated model.", "FILE")
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
    series = read_or_draw(files, files.generate, seed)
    readings = look(fitted, series, kind)
    header = ("container", "samples", "anomalies", "score", "excess", "drift_sum", "is_update_due")
    print_rows(readings, output, header)
    due = next((reading.container for reading in readings if reading.is_update_due), None)
    note("no update is due" if due is None else f"an update is due since container {due}")
    if update is not None:
        fitted.partial_fit(series).save(update)
        note(f"updated model written to {update}")
    return ExitCode.DONE


@grouped
def forecast(
    model: ModelArgument,
    *,
    files: SeriesChoice,
    method: Annotated[
        str | None, option("--method", "markov, semi-markov (default), prototype or same.", "NAME")
    ] = None,
    steps: Annotated[int, option("--steps", "Samples ahead.", "N", min=1, max=MOST_STEPS)] = 40,
    level: Annotated[float, option("--level", "Of the next samples' demand: the quantile shown.", "SHARE")] = LEVEL,
    score: Annotated[
        bool, option("--score", "Instead, score the methods on these series: a row a method and horizon.")
    ] = False,
    seed: SeedOption = 0,
    output: FormatOption = OutputFormat.TABLE,
) -> ExitCode:
    """Forecast the phases and demands that follow the end of each series: a row a series."""
    from optim.phases.forecasting import ForecastMethod
    from optim.phases.model import PhaseModel
    from optim.phases.rows import forecast_rows, score_rows

    if score and level != LEVEL:
        raise InvalidOptionError("--level is of a forecast, which --score doesn't print; leave one of them out")
    fitted = PhaseModel.load(model)
    series = read_or_draw(files, files.generate, seed)
    if score:
        rows = score_rows(fitted, series, steps, list(ForecastMethod) if method is None else [method])
    else:
        rows = forecast_rows(fitted, series, steps, level, method or ForecastMethod.SEMI_MARKOV)
    if output is OutputFormat.TABLE:
        rows = [{name: _likely(value) for name, value in row.items()} for row in rows]
    print_rows(rows, output)
    return ExitCode.DONE


def _likely(value: object) -> object:
    """Return the likeliest phase of a forecast with its probability; anything else as it is."""
    if not isinstance(value, dict):
        return value
    name = max(value, key=lambda key: value[key])
    return f"{name} {value[name]:.2f}"

"""`optim containers`: what containers should ask for."""

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from optim.cli.inputs import SERIES, SeriesChoice, load_or_generate_series
from optim.cli.messages import ExitCode, info
from optim.cli.output import print_document
from optim.cli.parameters import SeedOption, grouped, option, split_options
from optim.core.errors import InvalidOptionError
from optim.core.files import prepare_folder, write_bytes

if TYPE_CHECKING:
    from optim.models.containers.series import ContainerSeries

app = typer.Typer(name="containers", help="What containers should ask for.", no_args_is_help=True)
BLOCK = 100
"""Series that are looked at together."""
REQUIRED = frozenset({"kills", "throttled"})
"""What recommendations keep of all that may be required of policies."""


class Form(StrEnum):
    """How recommendations are written."""

    JSON = "json"
    YAML = "yaml"


@app.callback()
def containers() -> None:
    """Say what containers should ask for; nothing here talks to a cluster."""


@app.command("recommend")
@grouped
def recommend(
    *,
    files: SeriesChoice,
    form: Annotated[Form, option("--format", "json (one object), or yaml: patches for kubectl.")] = Form.JSON,
    out: Annotated[Path | None, option("--out", "Write here instead of stdout.", "FILE")] = None,
    require: Annotated[
        list[str] | None, option("--require", "kills, throttled: shares that are allowed.", "NAME=VALUE")
    ] = None,
    cycle_minutes: Annotated[float, option("--cycle-minutes", "How long a recommendation is to hold.", "M")] = 60.0,
    interval_s: Annotated[float, option("--interval,--interval-s", "Grid of the series.", "S", SERIES)] = 15.0,
    max_gap_s: Annotated[float, option("--max-gap,--max-gap-s", "Longest gap bridged.", "S", SERIES)] = 60.0,
    seed: SeedOption = 0,
) -> ExitCode:
    """Recommend requests and limits for the next cycle of each container, from what similar ones needed."""
    from optim.core.options import build_options
    from optim.rightsizing.recommendation import Recommender, RecommendOptions, as_json, as_yaml, recommend_blocks
    from optim.rightsizing.tuning import Slo

    required = split_options(require, "--require")
    wanted = build_options(Slo, required)
    for name in required:
        if name not in REQUIRED:
            raise InvalidOptionError(f"recommendations are tuned to kills and throttled, not {name}; leave it out")
    options = RecommendOptions(
        cycle_s=60.0 * cycle_minutes,
        interval_s=interval_s,
        max_gap_s=max_gap_s,
        requirement=wanted,
    )
    if out is not None:
        prepare_folder(out)
    series = load_or_generate_series(files, files.generate, seed, interval_s=interval_s)
    recommender = Recommender(series, options, seed)
    info(recommender.promise())
    found = list(recommend_blocks(recommender, _blocks(series)))
    for warning in recommender.warnings(found):
        info(f"warning: {warning}")
    text = (as_json if form is Form.JSON else as_yaml)(found, recommender)
    if out is None:
        print_document(text, is_json=form is Form.JSON)
    else:
        write_bytes(out, text.encode())
        info(f"{len(found)} containers written to {out}")
    return ExitCode.DONE


def _blocks(series: "ContainerSeries") -> Iterator["ContainerSeries"]:
    """Yield the series of some containers at a time."""
    import numpy as np

    number = series.container_index
    for begin in range(0, int(number[-1]) + 1, BLOCK):
        yield series.select(np.flatnonzero((number >= begin) & (number < begin + BLOCK)))

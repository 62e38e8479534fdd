"""`optim phases`: find phases in what containers consume, and look at them."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optim.cli import phases_watch
from optim.cli.border import note
from optim.cli.exit_code import ExitCode
from optim.cli.output import OutputFormat, print_fields, print_json, print_table
from optim.cli.parameters import FormatOption, SeedOption, split_list, split_options, split_seeds
from optim.cli.phases_watch import ModelArgument
from optim.cli.progress import terminal_progress
from optim.cli.series_input import SERIES, GenerateOption, GeneratorOption, InputOption, read_or_draw
from optim.core.errors import InvalidOptionError
from optim.core.files import prepare_folder

if TYPE_CHECKING:
    from optim.models.containers.series import ContainerSeries
    from optim.phases.model import PhaseModel

app = typer.Typer(name="phases", help="Find phases in what containers consume.", no_args_is_help=True)

MODEL = "Model"


@app.callback()
def phases() -> None:
    """Find phases in what containers consume."""


@app.command()
def fit(
    *,
    input_: InputOption = None,
    generate: GenerateOption = None,
    generator_option: GeneratorOption = None,
    encoder: Annotated[
        str | None, typer.Option("--encoder", metavar="NAME", help="Default: the best one.", rich_help_panel=MODEL)
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="An option of the encoder.", rich_help_panel=MODEL),
    ] = None,
    num_phases: Annotated[
        int | None,
        typer.Option("--phases", min=1, metavar="K", help="Default: by gain and stability.", rich_help_panel=MODEL),
    ] = None,
    resource: Annotated[
        list[str] | None,
        typer.Option("--resource", metavar="NAME", help="Resources to use; default: all.", rich_help_panel=MODEL),
    ] = None,
    interval: Annotated[
        float, typer.Option("--interval", metavar="S", help="Grid in seconds.", rich_help_panel=MODEL)
    ] = 15.0,
    max_gap: Annotated[
        float, typer.Option("--max-gap", metavar="S", help="Longer gaps split a series.", rich_help_panel=MODEL)
    ] = 60.0,
    smoothing: Annotated[
        int, typer.Option("--smoothing", min=1, metavar="N", help="Majority of N labels.", rich_help_panel=MODEL)
    ] = 1,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Where to write the model (.npz).")] = None,
    seed: SeedOption = 0,
    output: FormatOption = OutputFormat.TABLE,
) -> ExitCode:
    """Fit a model: a row a phase and resource."""
    from optim.phases.model import DEFAULT_ENCODER, PhaseModel

    if out is not None:
        prepare_folder(out)
    series = read_or_draw(input_, generate, generator_option, seed)
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
        note(str(warning.message))
    if out is not None:
        model.save(out)
    _print_model(model, series, output)
    return ExitCode.DONE


@app.command()
def encode(
    model: ModelArgument,
    *,
    input_: InputOption = None,
    generate: GenerateOption = None,
    generator_option: GeneratorOption = None,
    seed: SeedOption = 0,
    output: FormatOption = OutputFormat.TABLE,
) -> ExitCode:
    """Label series: a row a container without gaps, or a part of one between gaps."""
    from optim.phases.compression import pack
    from optim.phases.model import PhaseModel
    from optim.phases.runs import runs_of

    fitted = PhaseModel.load(model)
    series = read_or_draw(input_, generate, generator_option, seed)
    phased = fitted.label(series)
    scores = fitted.anomaly_scores(phased.series)
    threshold = fitted.calibrations_["forecast-error"].threshold
    runs = runs_of(phased.labels, phased.series.lengths, fitted.min_dwell)
    rows: list[dict[str, Any]] = []
    for segment, own in enumerate(phased.series.segments()):
        part = runs.phase[runs.offsets[segment] : runs.offsets[segment + 1]]
        rows.append(
            {
                "container": phased.series.containers[segment],
                "start_s": float(phased.series.time_s[own][0]),
                "interval_s": fitted.interval_s,
                "samples": own.stop - own.start,
                "sequence": " ".join(pack(part.tolist())),
                "anomalies": int((scores[own] > threshold).sum()),
                "phase": phased.labels[own].tolist(),
            }
        )
    if output is OutputFormat.JSON:
        for row in rows:
            print_json({**row, "names": fitted.names_})
    else:
        header = ("container", "start_s", "samples", "anomalies", "sequence")
        print_table(header, [[row[name] for name in header] for row in rows], title=_legend(fitted))
    return ExitCode.DONE


@app.command()
def graph(
    model: ModelArgument,
    *,
    order: Annotated[
        int | None, typer.Option("--order", min=1, metavar="M", help="Phases a node; default: the model's.")
    ] = None,
    output: FormatOption = OutputFormat.TABLE,
) -> ExitCode:
    """Show which phase follows which: a row an edge."""
    from optim.phases.model import PhaseModel

    fitted = PhaseModel.load(model)
    found = fitted.graph(order)
    rows = [
        {
            "from": found.nodes[source]["label"],
            "to": found.nodes[target]["label"],
            "count": edge["count"],
            "probability": edge["probability"],
        }
        for source, target, edge in found.edges(data=True)
    ]
    if output is OutputFormat.JSON:
        for row in rows:
            print_json(row)
    else:
        title = f"order {order or fitted.order_}; {_legend(fitted)}"
        print_table(("from", "to", "count", "probability"), [list(row.values()) for row in rows], title=title)
    return ExitCode.DONE


@app.command()
def report(
    model: ModelArgument,
    *,
    input_: InputOption = None,
    generate: GenerateOption = None,
    generator_option: GeneratorOption = None,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The page.")] = Path("phases.html"),
    seed: SeedOption = 0,
) -> ExitCode:
    """Write a page with pictures; series are drawn if some are given."""
    from optim.benchmarks.pictures.phase_report import write_phase_report
    from optim.phases.model import PhaseModel

    prepare_folder(out)
    fitted = PhaseModel.load(model)
    is_given = input_ or generate is not None
    series = read_or_draw(input_, generate, generator_option, seed) if is_given else None
    write_phase_report(fitted, series, out)
    note(f"report written to {out}")
    return ExitCode.DONE


@app.command()
def score(
    *,
    generate: Annotated[
        int, typer.Option("--generate", min=3, metavar="N", help="Containers; a fifth tests.", rich_help_panel=SERIES)
    ] = 500,
    generator_option: GeneratorOption = None,
    seeds: Annotated[
        list[str] | None, typer.Option("--seeds", metavar="N,N,...", help="Seeds; default: 0 to 4.")
    ] = None,
    encoder: Annotated[
        list[str] | None, typer.Option("--encoder", metavar="NAME,NAME,...", help="Default: all.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="ENCODER.NAME=VALUE", help="An option of an encoder; repeat for several."),
    ] = None,
    num_phases: Annotated[
        int, typer.Option("--phases", min=1, metavar="K", help="Phases to fit; default: as many as there are.")
    ] = 5,
    smoothing: Annotated[int, typer.Option("--smoothing", min=1, metavar="N", help="Majority of N labels.")] = 1,
    test_drift: Annotated[float, typer.Option("--test-drift", metavar="X", help="Drift of the test containers.")] = 0.0,
    confusion: Annotated[bool, typer.Option("--confusion", help="Also a row a seed, with the confusion.")] = False,
    output: FormatOption = OutputFormat.TABLE,
) -> ExitCode:
    """Score encoders on generated containers whose phases are known: a row an encoder, means over seeds."""
    from optim.benchmarks.studies.phase_recovery import recover, summarise
    from optim.core.options import build_options
    from optim.phases.encoders import ENCODERS, make_encoder
    from optim.workloads.containers import ContainerOptions

    names = split_list(encoder) or tuple(ENCODERS)
    own = _encoder_options(option, names)
    for name in names:
        make_encoder(name, own.get(name))
    options = build_options(ContainerOptions, {**split_options(generator_option), "num_containers": generate})
    chosen = split_seeds(seeds) if seeds else tuple(range(5))
    table: list[list[object]] = []
    with terminal_progress() as progress:
        progress.start("score", len(names) * len(chosen))
        for place, name in enumerate(names):
            rows = []
            for seed in chosen:
                rows.append(
                    recover(
                        *(options, name, seed),
                        num_phases=num_phases,
                        encoder_options=own.get(name),
                        test_drift=test_drift,
                        smoothing=smoothing,
                    )
                )
                progress.update(place * len(chosen) + len(rows))
                if confusion and output is OutputFormat.JSON:
                    print_json(rows[-1])
            summary = summarise(rows)
            if output is OutputFormat.JSON:
                print_json(summary)
            table.append(
                [
                    name,
                    summary.ari,
                    summary.ari_low,
                    summary.ari_high,
                    summary.ari_inner,
                    summary.ami,
                    *summary.f1.values(),
                ]
            )
        progress.finish()
    if output is OutputFormat.TABLE:
        header = ("encoder", "ari", "low", "high", "inner", "ami", *(f"f1 {name}" for name in summary.f1))
        print_table(
            header, table, title=f"adjusted Rand index and 95 % interval over seeds {', '.join(map(str, chosen))}"
        )
    return ExitCode.DONE


app.command()(phases_watch.watch)
app.command()(phases_watch.forecast)


def _encoder_options(texts: list[str] | None, names: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """Return options by encoder from ``ENCODER.NAME=VALUE``."""
    found: dict[str, dict[str, str]] = {}
    for key, value in split_options(texts).items():
        encoder, dot, name = key.partition(".")
        if not dot or encoder not in names:
            raise InvalidOptionError(f"--option must be ENCODER.NAME=VALUE with one of {', '.join(names)}, got {key!r}")
        found.setdefault(encoder, {})[name] = value
    return found


def _legend(model: "PhaseModel") -> str:
    return "phases: " + ", ".join(f"{place} {name}" for place, name in enumerate(model.names_))


def _print_model(model: "PhaseModel", series: "ContainerSeries", output: OutputFormat) -> None:
    """Print a row a phase and resource, and what there is to say of the whole."""
    found = model.statistics_
    rows: list[dict[str, Any]] = []
    for phase, name in enumerate(model.names_):
        for place, resource in enumerate(model.resources_):
            rows.append(
                {
                    "phase": phase,
                    "name": name,
                    "share": float(found.share[phase]),
                    "dwell_mean": float(model.forecaster.dwells.mean[phase]),
                    "resource": resource.name,
                    "unit": resource.unit,
                    "mean": float(found.mean[phase, place]),
                    "deviation": float(found.deviation[phase, place]),
                    "p95": float(found.quantile(0.95)[phase, place]),
                    "max": float(found.quantile(1.0)[phase, place]),
                }
            )
    ranked = model.prototypes()
    summary = {
        "encoder": model.encoder,
        "phases": model.num_phases_,
        "order": model.order_,
        "sequences": len(ranked.coverage),
        "prototypes": len(ranked.paths),
        "anomaly_threshold": model.calibrations_["forecast-error"].threshold,
        "ari": _agreement(model, series),
    }
    if output is OutputFormat.JSON:
        for row in rows:
            print_json(row)
        print_json(summary)
        return
    print_table(tuple(rows[0]), [list(row.values()) for row in rows])
    print_fields(summary)


def _agreement(model: "PhaseModel", series: "ContainerSeries") -> float | None:
    """Return the adjusted Rand index on the series fitted on, where the truth is known."""
    from optim.phases.agreement import adjusted_rand_index

    phased = model.label(series)
    truth = phased.series.phase
    if truth is None:
        return None
    known = (phased.labels >= 0) & (truth >= 0)
    return adjusted_rand_index(truth[known], phased.labels[known]) if len(known) else None

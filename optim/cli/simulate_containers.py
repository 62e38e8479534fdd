"""`optim simulate containers`: allocations of containers, policy by policy, at equal risk."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from optim.cli.border import note
from optim.cli.exit_code import ExitCode
from optim.cli.interruption import listening
from optim.cli.output import OutputFormat, print_rows, print_table
from optim.cli.parameters import FormatOption, SeedOption, option, split_list
from optim.cli.progress import terminal_progress
from optim.cli.series_input import SERIES, EncoderOption, GeneratorOption, InputOption, NumPhasesOption, read_or_draw
from optim.core.errors import InvalidOptionError
from optim.core.files import prepare_folder

if TYPE_CHECKING:
    from optim.core.progress import Progress
    from optim.core.stopping import Interruption
    from optim.simulation.containers.comparison import Row
    from optim.simulation.containers.trade_off import TradePoint
    from optim.simulation.containers.world import World

NUM_GENERATED = 500
FEW = 20
"""Series, from which on intervals over containers are taken seriously."""
HEADER = (
    *("policy", "resource", "multiplier", "under_time", "total_allocation", "unit", "reduction", "95 % interval"),
    *("over_share", "oom", "changes"),
)
POINTS = (
    *("policy", "resource", "multiplier", "under_time", "allocation_over_demand"),
    *("over_share", "under_share", "oom", "changes"),
)


def containers(
    *,
    policy: Annotated[list[str] | None, option("--policy", "Repeat for several; default: all.", "NAME")] = None,
    risk: Annotated[float, option("--risk", "Under-provisioned time that all are tuned to.", "SHARE")] = 0.05,
    resamples: Annotated[int, option("--resamples", "Resamples of containers for intervals.", min=1)] = 1000,
    cycle_minutes: Annotated[float, option("--cycle-minutes", "Minutes between decisions.", "M")] = 10.0,
    multiplier: Annotated[
        list[str] | None, option("--multipliers", "Don't tune: a row a policy, resource and multiplier.", "M,M,...")
    ] = None,
    report: Annotated[
        Path | None, option("--report", "Also write a page with allocation against risk as curves.", "FILE")
    ] = None,
    input_: InputOption = None,
    generate: Annotated[
        int | None, option("--generate", f"Containers to generate (default {NUM_GENERATED}).", panel=SERIES, min=2)
    ] = None,
    generator_option: GeneratorOption = None,
    test_share: Annotated[float, option("--test-share", "Containers that policies run on.", "SHARE", SERIES)] = 0.2,
    interval_s: Annotated[float, option("--interval,--interval-s", "Grid of the series.", "S", SERIES)] = 15.0,
    max_gap_s: Annotated[float, option("--max-gap,--max-gap-s", "Longest gap bridged.", "S", SERIES)] = 60.0,
    encoder: EncoderOption = None,
    num_phases: NumPhasesOption = None,
    seed: SeedOption = 0,
    output: FormatOption = OutputFormat.TABLE,
) -> ExitCode:
    """Tune policies to the same under-provisioned time and compare what they allocate: a row a policy and resource."""
    from optim.phases.estimator import DEFAULT_ENCODER
    from optim.simulation.containers.catalogue import NEED_PHASES, policy_names
    from optim.simulation.containers.comparison import check_comparison
    from optim.simulation.containers.preparation import WorldOptions, prepare_world

    names = split_list(policy) or policy_names()
    values = _multipliers(multiplier)
    check_comparison(names, risk, resamples)
    options = WorldOptions(
        encoder=encoder or DEFAULT_ENCODER,
        num_phases=num_phases,
        test_share=test_share,
        interval_s=interval_s,
        max_gap_s=max_gap_s,
        cycle_s=60.0 * cycle_minutes,
    )
    if values and report is not None:
        raise InvalidOptionError("--report draws tuned policies; leave --multipliers out, or --report")
    if report is not None:
        prepare_folder(report)
    number = NUM_GENERATED if generate is None and not input_ else generate
    series = read_or_draw(input_, number, generator_option, seed, interval_s=interval_s)
    with terminal_progress() as progress, listening("the rows so far are printed") as interruption:
        world = prepare_world(series, options, seed, has_phases=not NEED_PHASES.isdisjoint(names))
        _tell(world, options.encoder)
        progress.start(f"{len(names)} policies", len(names))
        if values:
            _at_multipliers(world, names, values, output, progress, interruption)
        else:
            _at_equal_risk(world, names, (risk, resamples, seed), report, output, progress, interruption)
        progress.finish()
    return ExitCode.INTERRUPTED if interruption.is_requested else ExitCode.DONE


def _tell(world: "World", encoder: str) -> None:
    """Say on how many series policies run."""
    note(
        f"policies run on {world.num_containers} series and learn from {world.training.num_segments} others"
        + (f"; {world.num_phases} phases by {encoder}" if world.num_phases else "")
    )
    if world.num_containers < FEW:
        note(f"{world.num_containers} series are too few for intervals over containers to mean much: give more")


def _at_equal_risk(
    world: "World",
    names: Sequence[str],
    settings: tuple[float, int, int],
    report: Path | None,
    output: OutputFormat,
    progress: "Progress",
    interruption: "Interruption",
) -> None:
    """Print the tuned policies' rows, and write the report of those that were compared."""
    from optim.simulation.containers.comparison import compare_policies
    from optim.simulation.containers.trade_off import trade_curve

    risk, resamples, seed = settings
    rows: list[Row] = []
    points: list[TradePoint] = []
    found = compare_policies(world, names, risk=risk, num_resamples=resamples, seed=seed, done=progress.update)
    for group in found:
        rows += group
        if output is OutputFormat.JSON:
            print_rows(group, output)
        if report is not None:
            points += trade_curve(world, group[0].policy)
        if interruption.is_requested:
            break
    if output is OutputFormat.TABLE:
        title = f"at {100 * risk:g} % under-provisioned time; reduction against prev-step-rules"
        print_table(HEADER, [_cells(row) for row in rows], title=title)
    if report is not None:
        from optim.benchmarks.pictures.container_report import write_container_report

        write_container_report(rows, points, risk, report)
        note(f"report written to {report}")


def _at_multipliers(
    world: "World",
    names: Sequence[str],
    multipliers: Sequence[float],
    output: OutputFormat,
    progress: "Progress",
    interruption: "Interruption",
) -> None:
    """Print the policies' rows at given multipliers."""
    from optim.simulation.containers.trade_off import trade_points

    points: list[TradePoint] = []
    for number, name in enumerate(names, start=1):
        fresh = trade_points(world, name, multipliers)
        points += fresh
        if output is OutputFormat.JSON:
            print_rows(fresh, output)
        progress.update(number)
        if interruption.is_requested:
            break
    if output is OutputFormat.TABLE:
        print_rows(points, output, POINTS, title="untuned")


def _multipliers(texts: list[str] | None) -> tuple[float, ...]:
    from optim.simulation.containers.trade_off import check_multipliers

    values = []
    for text in split_list(texts):
        try:
            values.append(float(text))
        except ValueError:
            raise InvalidOptionError(f"--multipliers must be numbers, got {text!r}") from None
    check_multipliers(values)
    return tuple(values)


def _cells(row: "Row") -> list[object]:
    shown = {
        "unit": row.unit if row.is_reached else f"{row.unit}, risk not met",
        "95 % interval": f"{row.reduction_low:.3f} to {row.reduction_high:.3f}",
    }
    return [shown[name] if name in shown else getattr(row, name) for name in HEADER]

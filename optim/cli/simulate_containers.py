"""`optim simulate containers`: compare the container allocations of policies at equal risk."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from optim.cli.border import ending_at_once, listening
from optim.cli.commands import complete_policy
from optim.cli.inputs import SERIES, EncoderOption, FileChoice, NumPhasesOption, load_or_generate_series
from optim.cli.messages import ExitCode, info
from optim.cli.output import OutputFormat, print_line, print_rows, print_table, terminal_progress
from optim.cli.parameters import (
    DetailsOption,
    EngineChoice,
    FormatOption,
    SeedOption,
    grouped,
    option,
    split_list,
    split_options,
)
from optim.core.errors import InvalidOptionError
from optim.core.files import prepare_folder
from optim.core.optional import check_installed

if TYPE_CHECKING:
    from optim.core.progress import Progress
    from optim.core.stopping import Interruption
    from optim.rightsizing.comparison import Row, TradePoint
    from optim.rightsizing.tuning import Slo
    from optim.rightsizing.world import CalibrationTestSplit, World


NUM_GENERATED = 500
RESAMPLES, TEST_SHARE = 1000, 0.2
TUNED_TO = frozenset({"kills", "throttled", "under_time"})
"""Requirements that apply to tuned policies only; the others also affect metrics without tuning."""
REQUIRE = (
    "Requirement to tune to: kills, throttled (shares), checkpoint_s, startup_s; or measure=under-time, under_time."
)
FEW = 20
"""Minimum number of series for meaningful intervals over containers."""
HEADER = (
    *("policy", "resource", "multiplier", "risk %", "per container-day", "total_allocation", "unit", "saving %"),
    *("kills", "throttled_time", "under_time", "changes"),
)
MIN_WANTED = (
    *("changes", "under_time", "throttled_time", "multiplier"),
    *("unit", "total_allocation", "per container-day", "kills"),
)
BRIEF_HEADER = (
    "policy",
    "saving %",
    "cpu saving %",
    "memory saving %",
    "kills per day",
    "throttled h per day",
    "target",
)
"""Columns printed without `--details`."""
MAX_BRIEF_ROWS = 11
"""Maximum rows without `--details`, including `ALWAYS_SHOWN` and the bounds."""
REFERENCE = "prev-step-rules"
ALWAYS_SHOWN = (REFERENCE, "vpa")
POINTS = (
    *("policy", "resource", "multiplier", "risk", "under_time", "allocation_over_demand"),
    *("over_share", "under_share", "kills", "throttled_time", "changes"),
)


MultipliersOption = Annotated[
    list[str] | None,
    option(
        "--multipliers",
        "Multipliers to measure without tuning: one row per policy, resource and multiplier.",
        "M,M,...",
    ),
]
ReportOption = Annotated[
    Path | None, option("--report", "Write an HTML report with curves of allocation against risk.", "FILE")
]
PolicyOption = Annotated[
    list[str] | None,
    option(
        "--policy",
        "Policies, or ./mine.py:MyPolicy; repeatable; default: all.",
        "NAME",
        autocompletion=complete_policy("containers"),
    ),
]
TestShareOption = Annotated[float, option("--test-share", "Share of containers to test on.", "SHARE", SERIES)]
ByTimeOption = Annotated[
    bool, option("--by-time", "Train on the first half of each series, test on the second.", panel=SERIES)
]


@grouped
def containers(
    *,
    policy: PolicyOption = None,
    require: Annotated[list[str] | None, option("--require", REQUIRE, "NAME=VALUE")] = None,
    resamples: Annotated[
        int, option("--resamples", "Bootstrap resamples for intervals.", min=1, max=100_000)
    ] = RESAMPLES,
    cycle_minutes: Annotated[float, option("--cycle-minutes", "Minutes between decisions.", "M")] = 10.0,
    multiplier: MultipliersOption = None,
    report: ReportOption = None,
    files: FileChoice,
    generate: Annotated[
        int | None, option("--generate", f"Containers to generate (default {NUM_GENERATED}).", panel=SERIES, min=2)
    ] = None,
    test_share: TestShareOption = TEST_SHARE,
    by_time: ByTimeOption = False,
    interval_s: Annotated[
        float, option("--interval,--interval-s", "Sampling interval in seconds.", "S", SERIES)
    ] = 15.0,
    max_gap_s: Annotated[
        float,
        option("--max-gap,--max-gap-s", "Longest gap in seconds that is filled with the last sample.", "S", SERIES),
    ] = 60.0,
    encoder: EncoderOption = None,
    num_phases: NumPhasesOption = None,
    where: EngineChoice,
    details: DetailsOption = False,
    seed: SeedOption = 0,
    output: FormatOption = OutputFormat.TABLE,
) -> ExitCode:
    """Tune policies to equal shares of kills and throttling, and compare their allocations on other containers."""
    from optim.core.options import build_options
    from optim.phases.model import DEFAULT_ENCODER
    from optim.rightsizing.comparison import check_comparison
    from optim.rightsizing.policy import BOUNDS, need_phases, policy_names
    from optim.rightsizing.tuning import Slo
    from optim.rightsizing.world import WorldOptions, prepare_split

    values = _multipliers(multiplier)
    names = split_list(policy) or (policy_names() if values else (*policy_names(), *BOUNDS))
    check_comparison(names, resamples)
    required = split_options(require, "--require")
    wanted = build_options(Slo, required)
    _check_untuned(values, required, is_placed=resamples != RESAMPLES or where != EngineChoice())
    _check_split(by_time, test_share)
    options = WorldOptions(
        encoder=encoder or DEFAULT_ENCODER,
        num_phases=num_phases,
        test_share=test_share,
        is_by_time=by_time,
        interval_s=interval_s,
        max_gap_s=max_gap_s,
        cycle_s=60.0 * cycle_minutes,
    )
    _prepare(report, values)
    number = NUM_GENERATED if generate is None and not files.input_ else generate
    series = load_or_generate_series(files, number, seed, interval_s=interval_s)
    with terminal_progress() as progress:
        with ending_at_once():  # before the engine starts processes
            trial = prepare_split(series, options, seed, has_phases=need_phases(names))
        short = _guaranteed_only(trial, wanted)
        _print_summary(trial, options.encoder, short)
        with listening("finished rows will be printed") as interruption, where.opened() as engine:
            if values:
                _at_multipliers(trial.test, names, wanted, values, output, progress, interruption)
            else:
                running: dict[str, Any] = {"engine": engine, "stop": interruption, "progress": progress, "seed": seed}
                running |= {"num_resamples": resamples}
                _at_equal_risk(trial, names, wanted, short, running, report, output, has_details=details)
    return ExitCode.INTERRUPTED if interruption.is_requested else ExitCode.DONE


def _check_untuned(multipliers: Sequence[float], required: Mapping[str, str], *, is_placed: bool) -> None:
    """Raise if ``--multipliers`` is combined with options of tuned policies."""
    if not multipliers:
        return
    for name in required:
        if name in TUNED_TO:
            raise InvalidOptionError(f"--require {name} applies only to tuned policies; omit it, or omit --multipliers")
    if is_placed:
        raise InvalidOptionError(
            "--multipliers runs policies in this process and prints no intervals; omit --resamples, --engine, "
            "--processes, --scheduler and --dashboard"
        )


def _check_split(by_time: bool, test_share: float) -> None:
    """Raise if ``--by-time`` is combined with ``--test-share``."""
    if by_time and test_share != TEST_SHARE:
        raise InvalidOptionError("--by-time tests on the second half of each series; omit --test-share")


def _prepare(report: Path | None, multipliers: Sequence[float]) -> None:
    """Check before the simulation that the report can be drawn and written."""
    if report is None:
        return
    if multipliers:
        raise InvalidOptionError("--report requires tuned policies; omit --multipliers, or --report")
    check_installed("matplotlib", "--report")
    prepare_folder(report)


def _print_summary(trial: "CalibrationTestSplit", encoder: str, short: str) -> None:
    """Print the numbers of series for testing, tuning and training, and warn if they are too few."""
    world, tuned = trial.test, trial.calibration
    info(
        f"policies are tested on {world.num_containers} series, tuned on {tuned.num_containers} and trained on "
        f"{world.training.num_segments}" + (f"; {world.num_phases} phases by {encoder}" if world.num_phases else "")
    )
    if world.num_containers < FEW:
        info(f"{world.num_containers} series are too few for meaningful intervals over containers; give at least {FEW}")
    if short:
        info(f"warning: {short}")


def _guaranteed_only(trial: "CalibrationTestSplit", wanted: "Slo") -> str:
    """Describe the guarantee if it is weaker than the requirement; otherwise return ""."""
    from optim.rightsizing.tuning import num_drawn, num_needed

    if not wanted.is_charged:
        return ""  # the paper's measure has no guarantee on other containers
    if trial.is_by_time:
        return "no guarantee: the halves of a series are not exchangeable (--by-time)"
    number, is_level = num_drawn(trial.calibration), trial.calibration.is_level
    asked = (
        (is_level.any(), wanted.kills, "cycles killed"),
        (not is_level.all(), wanted.throttled, "samples throttled"),
    )
    lacking = [
        f"at least {num_needed(share)} for {100 * share:.3g} % of {what}"
        for is_there, share, what in asked
        if is_there and number < num_needed(share)
    ]
    if not lacking:
        return ""
    return f"tuning on {number} containers guarantees only {100 / (number + 1):.3g} %: give {' and '.join(lacking)}, or allow more"


def _at_equal_risk(
    trial: "CalibrationTestSplit",
    names: Sequence[str],
    wanted: "Slo",
    short: str,
    running: dict[str, Any],
    report: Path | None,
    output: OutputFormat,
    *,
    has_details: bool,
) -> None:
    """Tune and compare policies, print their rows, and write the report."""
    from optim.rightsizing.comparison import compare_policies, trade_curve
    from optim.rightsizing.policy import BOUNDS

    rows: list[Row] = []
    points: list[TradePoint] = []
    for group in compare_policies(trial, names, wanted, **running):
        rows += group
        if output is OutputFormat.JSON:
            print_rows(group, output)
        if report is not None and group[0].policy not in BOUNDS:
            points += trade_curve(trial.test, group[0].policy, wanted)
    required = f"{_required(wanted)} ({short})" if short else _required(wanted)
    if output is OutputFormat.TABLE:
        title = f"tuned to {required} on other containers; saving compared with {REFERENCE}; 95 % intervals: bootstrap"
        if has_details:
            print_table(HEADER, [_cells(row) for row in rows], title=title, min_wanted=MIN_WANTED)
        else:
            _print_brief(rows, title)
    if report is not None:
        from optim.report.containers import write_container_report

        write_container_report(rows, points, required, report)
        info(f"report written to {report}")


def _print_brief(rows: "Sequence[Row]", title: str) -> None:
    """Print one row per policy, bounds first, then by saving; list the omitted policies."""
    from optim.core.policies import clairvoyant_names
    from optim.rightsizing.comparison import ALL_RESOURCES
    from optim.rightsizing.policy import BOUNDS

    by_policy: dict[str, dict[str, Row]] = {}
    for row in rows:
        by_policy.setdefault(row.policy, {})[row.resource] = row
    ranked = sorted(by_policy, key=lambda name: (name not in BOUNDS, -by_policy[name][ALL_RESOURCES].reduction))
    needed = [name for name in ranked if name in (*ALWAYS_SHOWN, *BOUNDS)]
    others = [name for name in ranked if name not in needed][: max(0, MAX_BRIEF_ROWS - len(needed))]
    shown = [name for name in ranked if name in (*needed, *others)]
    print_table(BRIEF_HEADER, [_brief_cells(name, by_policy[name]) for name in shown], title=title)
    oracles = [name for name in shown if name in clairvoyant_names("containers")]
    if oracles:
        print_line(f"oracles that see future demand: {', '.join(oracles)}")
    hidden = [name for name in ranked if name not in shown]
    more = f"{len(hidden)} more policies ({', '.join(hidden)}), and " if hidden else ""
    print_line(f"{more}allocations and risks per resource: --details; all values: --format json")


def _brief_cells(policy: str, by_resource: "Mapping[str, Row]") -> list[object]:
    """Return a policy's cells: savings with intervals, and violations per container-day."""
    from optim.rightsizing.comparison import ALL_RESOURCES

    resources = [row for name, row in by_resource.items() if name != ALL_RESOURCES]

    def saving(name: str) -> str:
        row = by_resource.get(name)
        return "" if row is None else f"{100 * row.reduction:.1f}"

    def per_day(unit: str) -> float | None:
        return next(
            (round(row.per_day, 2) for row in resources if row.per_day_unit == unit and row.per_day is not None), None
        )

    missed = [row.resource for row in resources if not row.is_reached]
    target = f"missed: {', '.join(missed)}" if missed else "met"
    both = by_resource[ALL_RESOURCES]
    return [
        policy,
        f"{saving(ALL_RESOURCES)} [{100 * both.reduction_low:.1f}, {100 * both.reduction_high:.1f}]",
        saving("cpu"),
        saving("memory"),
        per_day("kills"),
        per_day("h throttled"),
        target,
    ]


def _required(wanted: "Slo") -> str:
    """Describe the requirement that policies are tuned to."""
    if not wanted.is_charged:
        return f"{100 * wanted.under_time:g} % under-provisioned time"
    return f"{100 * wanted.kills:g} % of cycles killed, {100 * wanted.throttled:g} % of samples throttled"


def _at_multipliers(
    world: "World",
    names: Sequence[str],
    wanted: "Slo",
    multipliers: Sequence[float],
    output: OutputFormat,
    progress: "Progress",
    interruption: "Interruption",
) -> None:
    """Print the rows of policies at given multipliers."""
    from optim.rightsizing.comparison import trade_points

    points: list[TradePoint] = []
    progress.start(f"{len(names)} policies", len(names))
    for number, name in enumerate(names, start=1):
        fresh = trade_points(world, name, wanted, multipliers)
        points += fresh
        if output is OutputFormat.JSON:
            print_rows(fresh, output)
        progress.update(number)
        if interruption.is_requested:
            break
    progress.finish()
    if output is OutputFormat.TABLE:
        print_rows(points, output, POINTS, title="untuned")


def _multipliers(texts: list[str] | None) -> tuple[float, ...]:
    from optim.rightsizing.comparison import check_multipliers

    values = []
    for text in split_list(texts):
        try:
            values.append(float(text))
        except ValueError:
            raise InvalidOptionError(f"--multipliers must be numbers, got {text!r}") from None
    check_multipliers(values)
    return tuple(values)


def _cells(row: "Row") -> list[object]:
    saving = f"{100 * row.reduction:.1f} [{100 * row.reduction_low:.1f}, {100 * row.reduction_high:.1f}]"
    shown = {
        "unit": row.unit if row.is_reached else f"{row.unit}, not met",
        "risk %": f"{100 * row.risk:.2f} [{100 * row.risk_low:.2f}, {100 * row.risk_high:.2f}]",
        "per container-day": ""
        if row.per_day is None
        else f"{row.per_day:.2f} [{row.per_day_low:.2f}, {row.per_day_high:.2f}] {row.per_day_unit}",
        "saving %": saving if row.most is None else f"{saving}, bound {100 * row.most:.2f}",
    }
    return [shown[name] if name in shown else getattr(row, name) for name in HEADER]

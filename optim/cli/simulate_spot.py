"""`optim simulate spot`: simulate bidding policies for training jobs on spot markets, from random starts."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from optim.cli.border import listening
from optim.cli.commands import complete_policy
from optim.cli.inputs import PriceChoice, load_or_generate_prices, on_demand_of, split_time, time_of
from optim.cli.messages import ExitCode, info
from optim.cli.output import OutputFormat, print_json, print_line, print_table, terminal_progress
from optim.cli.parameters import (
    DetailsOption,
    FormatOption,
    PairChoice,
    SeedOption,
    grouped,
    option,
    split_list,
    split_options,
)
from optim.core.errors import InvalidOptionError
from optim.core.limits import check_drawn
from optim.core.user_code import is_file_reference

if TYPE_CHECKING:
    from optim.models.bidding.market.billing import Billing
    from optim.models.bidding.market.spells import SpellHazards
    from optim.models.bidding.market.zones import ZoneMarket
    from optim.simulation.spot.backtest import Row, StartRows, Summary, ZoneStarts
    from optim.workloads.prices.availability_files import Egress, SpellHistory, ZoneOptions

SHARE_HOURS = 3000.0
"""Simulated job hours that take as long as the start of a process."""
ROUNDING = 1e-12
"""Relative half-width below which an interval is printed as ± 0, because only rounding errors separate the values."""
MAX_LINES = 12
"""Maximum number of printed remarks about learned lifetimes; files of one zone share a remark."""
DEADLINES = "Availability and a deadline"
SHOWN = ("cost_usd", "hours", "ratio_to_oracle_paid", "ratio_to_optimum")
"""Columns of the table, each with its 95 % interval."""
MORE_SHOWN = ("evictions", "ratio_to_on_demand", "cost_per_work", "free_hours")
"""Columns that `--details` adds."""


@dataclass(frozen=True, kw_only=True)
class AvailabilityChoice:
    """A trace of availability, and the deadline."""

    availability: Annotated[
        Path | None, option("--availability", "Availability per zone: a file, or a folder of files.", "FILE", DEADLINES)
    ] = None
    polarity: Annotated[
        str | None, option("--polarity", "Meaning of 1 in JSON files: available or unavailable.", "WORD", DEADLINES)
    ] = None
    every_file: Annotated[bool, option("--every-file", "Start once in each file of the folder.", None, DEADLINES)] = (
        False
    )
    skip_bad: Annotated[bool, option("--skip-bad", "Skip invalid files of the folder.", None, DEADLINES)] = False
    zone: Annotated[
        list[str] | None,
        option("--zone", "Zones in the order in which to request machines; repeatable.", "NAME", DEADLINES),
    ] = None
    deadline_hours: Annotated[float | None, option("--deadline-hours", "Hours until the deadline.", "H", DEADLINES)] = (
        None
    )
    changeover_hours: Annotated[float, option("--changeover-hours", "Hours lost per launch.", "H", DEADLINES)] = 0.1
    egress: Annotated[
        Path | None, option("--egress", "File of transfer prices between regions.", "FILE", DEADLINES)
    ] = None
    history: Annotated[
        list[Path] | None,
        option(
            "--history",
            "Availability of other zones or earlier times, for deadline-dp; repeatable.",
            "FILE",
            DEADLINES,
        ),
    ] = None
    every_start: Annotated[
        bool, option("--every-start", "Start at every tick early enough for the deadline.", None, DEADLINES)
    ] = False


@grouped
def spot(
    *,
    prices: PriceChoice,
    trace: AvailabilityChoice,
    policy: Annotated[
        list[str] | None,
        option(
            "--policy",
            "Policies; repeatable; prices, one zone and several zones have different defaults.",
            "NAME",
            autocompletion=complete_policy("spot", "zones"),
        ),
    ] = None,
    job_hours: Annotated[float, option("--job-hours", "Hours of the job without interruptions.", "H")] = 20.0,
    starts: Annotated[int, option("--starts", "Number of random starts.", min=1)] = 200,
    start: Annotated[list[str] | None, option("--start", "Start time, instead of random; repeatable.", "DATE")] = None,
    billing: Annotated[
        str | None,
        option("--billing", "aws-2009, aws-2017, per-second or whole-ticks; default: by the data's date.", "RULE"),
    ] = None,
    settings: Annotated[list[str] | None, option("--option", "An option of the job; repeatable.", "NAME=VALUE")] = None,
    where: PairChoice,
    details: DetailsOption = False,
    seed: SeedOption = 0,
    output: FormatOption = OutputFormat.TABLE,
) -> ExitCode:
    """Simulate policies from the same starts, and print one row per policy with 95 % intervals of the means."""
    from optim.core.policies import default_names

    check_drawn("count", starts, "--starts")
    names, rule = split_list(policy), _billing(billing)
    begins = tuple(time_of(text, "--start") for text in start or ())
    hint = "finished rows will be printed"
    with (
        terminal_progress() as progress,
        listening(hint) as interruption,
        where.opened(num_short=_shares(starts, job_hours, names, trace)) as engine,
    ):
        running = {"starts": starts, "seed": seed, "engine": engine, "stop": interruption, "progress": progress}
        if trace.availability is not None:
            if prices != PriceChoice(on_demand=prices.on_demand):
                raise InvalidOptionError(
                    "--availability excludes --prices, --product, --train-until, --volatile, --gap-hours and --work"
                )
            given = {"job_hours": job_hours, **split_options(settings)}
            entries = _deadlines(trace, prices.on_demand, names, given, running, rule=rule, begins=begins)
        else:
            _check_absent(trace)
            given = {"job_hours": job_hours, **split_options(settings)}
            entries = _backtest(prices, names or default_names("spot"), given, running, rule=rule, begins=begins)
        rows: list[Row] = []
        lost = 0
        for entry in entries:
            if entry.error is not None:
                lost += 1
                info(f"start {entry.index} is skipped: {entry.error}")
            for row in entry.rows:
                rows.append(row)
                if output is OutputFormat.JSON:
                    print_json(row)
        was_stopped = interruption.is_requested
    hours = trace.deadline_hours
    window_s = None if trace.availability is None or hours is None else round(hours * 3600)
    _summaries(rows, output, window_s, has_details=details)
    if was_stopped:
        return ExitCode.INTERRUPTED
    return ExitCode.NOTHING if lost else ExitCode.DONE


AVAILABILITY = (
    "a table with columns tick,timestamp_local,zone,available,price_usd_per_hour, which this package does not contain "
    "(docs: Use your own prices)"
)


def _check_absent(trace: AvailabilityChoice) -> None:
    """Raise if options of an availability trace are given without a trace."""
    for field in fields(trace):
        if getattr(trace, field.name) != field.default:
            raise InvalidOptionError(f"--{field.name.replace('_', '-')} requires --availability FILE: {AVAILABILITY}")


def _shares(starts: int, job_hours: float, names: tuple[str, ...], trace: AvailabilityChoice) -> int:
    """Return the run time in units of the time that a new process needs, at most `starts`; `starts` if it is unknown."""
    if trace.availability is not None or any(is_file_reference(name) for name in names):
        return starts
    return int(min(starts, starts * job_hours / SHARE_HOURS))


def _backtest(
    prices: PriceChoice,
    names: tuple[str, ...],
    given: dict[str, object],
    running: dict[str, Any],
    *,
    rule: "Billing | None",
    begins: tuple[int, ...],
) -> "Iterator[StartRows]":
    """Read or generate prices, split them into training and test, and simulate."""
    from optim.core.options import build_options
    from optim.simulation.spot.backtest import make_world, run_backtest
    from optim.simulation.spot.policies import check_policies
    from optim.simulation.spot.policy import SpotOptions
    from optim.workloads.prices.price_generator import PriceOptions

    check_policies(names)
    options = build_options(SpotOptions, given)
    history = load_or_generate_prices(prices, PriceOptions(), running["seed"])
    world = make_world(history, split_time(prices.train_until), options, volatile=prices.volatile, billing=rule)
    entries = run_backtest(world, names, begins=begins, **running)
    info(
        f"{world.history.num_markets} markets, {len(history.gaps)} gaps in the prices; "
        f"policies learn from prices before the test period, and run on prices after its start"
    )
    info(
        f"the job: {options.job_hours:g} h of {options.baseline} {world.baseline.instance_type} on demand "
        "(--job-hours, --option baseline, --option baseline_type)"
    )
    _note_billing(world.billing, is_chosen=rule is not None)
    return entries


def _deadlines(
    choice: AvailabilityChoice,
    on_demand: str | None,
    names: tuple[str, ...],
    given: dict[str, object],
    running: dict[str, Any],
    *,
    rule: "Billing | None",
    begins: tuple[int, ...],
) -> "Iterator[StartRows]":
    """Read traces of one or several zones, and simulate under a deadline."""
    from optim.core.options import build_options
    from optim.models.bidding.market.prices import HOUR_S
    from optim.simulation.spot.backtest import default_zone_policies, run_over_files, run_over_zones
    from optim.simulation.spot.policies import check_policies
    from optim.workloads.prices.availability_files import (
        ZoneOptions,
        market_of,
        read_availability,
        read_egress,
        read_windows,
    )
    from optim.workloads.prices.trace_files import polarity_named

    zones = split_list(choice.zone)
    check_policies(names, "zones")
    if choice.deadline_hours is None:
        raise InvalidOptionError("--availability needs --deadline-hours H")
    if choice.every_start and begins:
        raise InvalidOptionError("--every-start and --start exclude each other; give one")
    if choice.every_file and (choice.every_start or begins):
        raise InvalidOptionError("--every-file starts once in each file; omit --start and --every-start")
    path, is_folder = choice.availability or Path(), (choice.availability or Path()).is_dir()
    for name in ("every_file", "skip_bad"):
        if getattr(choice, name) and not is_folder:
            raise InvalidOptionError(
                f"--{name.replace('_', '-')} requires --availability FOLDER; {path} is not a folder"
            )
    told: dict[str, Any] = {
        "on_demand_micro": on_demand_of(on_demand),
        "polarity": polarity_named(choice.polarity),
        "skip_bad": choice.skip_bad,
    }
    hours = {"deadline_hours": choice.deadline_hours, "changeover_hours": choice.changeover_hours}
    options = build_options(ZoneOptions, {**given, **hours})
    egress = None if choice.egress is None else read_egress(choice.egress)
    if choice.every_file:
        least_s = round(options.deadline_hours * HOUR_S)
        windows = read_windows(path, zones, least_s=least_s, tick_s=options.tick_s, **told)
        names = names or default_zone_policies(max(1, len(zones)))
        worlds: list[tuple[str, ZoneStarts]] = []
        lines: dict[str, None] = {}
        history = _history(choice)
        for file, market in windows:
            hazards, said = _hazards(history, choice, market, names, file)
            lines |= dict.fromkeys(said)
            worlds.append((file, replace(_starts(market, options, egress, rule), hazards=hazards)))
        for line in list(lines)[:MAX_LINES]:
            info(line)
        _note_market([market for _, market in windows], choice, options)
        _note_billing(worlds[0][1].billing, is_chosen=rule is not None)
        running.pop("starts")
        return run_over_files(worlds, names, **running)
    traces = read_availability(path, **told)
    if not zones and len(traces) > 1:
        raise InvalidOptionError(f"--availability needs --zone NAME; zones in the file: {', '.join(traces)}")
    zones = zones or tuple(traces)
    market = market_of(traces, zones, options.tick_s)
    world = _starts(market, options, egress, rule)
    if choice.every_start:
        world = replace(world, firsts=tuple(range(world.num_starts)))
    elif begins:
        world = replace(world, firsts=tuple(world.first_at(time_s) for time_s in begins))
    names = names or default_zone_policies(len(zones))
    hazards, said = _hazards(_history(choice), choice, market, names)
    entries = run_over_zones(replace(world, hazards=hazards), names, **running)
    for line in said:
        info(line)
    _note_market([market], choice, options)
    _note_billing(world.billing, is_chosen=rule is not None)
    return entries


def _starts(
    market: "ZoneMarket", options: "ZoneOptions", egress: "Egress | None", rule: "Billing | None"
) -> "ZoneStarts":
    """Return the starts of a job on a market."""
    from optim.models.bidding.market.billing import billing_at
    from optim.simulation.spot.backtest import ZoneStarts
    from optim.workloads.prices.availability_files import job_of

    job, billing = job_of(market, options, egress), rule or billing_at(int(market.time_s[0]))
    return ZoneStarts(market=market, job=job, billing=billing, probe_s=options.probe_s)


def _note_market(markets: "list[ZoneMarket]", choice: AvailabilityChoice, options: "ZoneOptions") -> None:
    """Print how the traces were read: the meaning of 1, the share of available ticks, and resampling."""
    from optim.workloads.prices.trace_files import Polarity, polarity_named

    polarity = polarity_named(choice.polarity) or Polarity.AVAILABLE
    share = sum(int(m.is_available.sum()) for m in markets) / sum(m.is_available.size for m in markets)
    flag = "" if choice.polarity is None else f" in JSON (--polarity {polarity.value})"
    info(f"availability: {polarity.text}{flag}; machines are available in {share:.1%} of the ticks")
    if options.tick_s is not None:
        info(
            f"the traces are resampled to ticks of {options.tick_s} s: a tick is available if machines are available "
            "during all of it, and has the price at its beginning"
        )


def _history(choice: AvailabilityChoice) -> "SpellHistory | None":
    """Read the history from which the lifetimes of machines are learned, if given."""
    from optim.workloads.prices.availability_files import SpellHistory, read_history
    from optim.workloads.prices.trace_files import polarity_named

    if not choice.history:
        return None
    told: dict[str, Any] = {"polarity": polarity_named(choice.polarity), "skip_bad": choice.skip_bad}
    return SpellHistory([trace for path in choice.history for trace in read_history(path, **told).traces])


def _hazards(
    history: "SpellHistory | None",
    choice: AvailabilityChoice,
    market: "ZoneMarket",
    names: tuple[str, ...],
    file: str = "",
) -> "tuple[SpellHazards | None, tuple[str, ...]]":
    """Learn the hazards of losing machines from the history of spells (times of availability); also return remarks to print."""
    if history is None:
        text = f"deadline-dp has no history and assumes that machines are lost {PRIOR_TEXT}; give --history FILE"
        return None, (text,) if "deadline-dp" in names else ()
    hazards, said = history.learn(market, file)
    files = ", ".join(map(str, choice.history or ()))
    prior = f"the prior, because the usable part of {files} has no loss: machines are lost {PRIOR_TEXT}"
    source = hazards.source or prior
    return hazards, (f"hazards of losing machines come from {source}", *said)


PRIOR_TEXT = "with probability 0.3 / k^0.75 in a tick of 600 s after k ticks"


def _billing(name: str | None) -> "Billing | None":
    """Return the billing rule with this name, None for no name."""
    from optim.core.errors import check_choices
    from optim.models.bidding.market.billing import Billing

    if name is None:
        return None
    check_choices({"--billing": name}, {"--billing": [rule.value for rule in Billing]})
    return Billing(name)


def _note_billing(billing: "Billing", *, is_chosen: bool) -> None:
    why = "" if is_chosen else " (by the data's date; --billing chooses another)"
    info(f"billing {billing.value}{why}: {billing.text}")


def _summaries(rows: "list[Row]", output: OutputFormat, window_s: int | None, *, has_details: bool) -> None:
    """Print one row per policy, cheapest first, compared with the cheapest policy that does not see the future."""
    from optim.core.policies import clairvoyant_names
    from optim.simulation.spot.backtest import summarise_all

    summaries = summarise_all(rows, window_s)
    if output is OutputFormat.JSON:
        for summary in summaries.values():
            print_json(summary)
        return
    names = (*SHOWN, *MORE_SHOWN) if has_details else SHOWN
    shown = [name for name in names if any(summary.mean[name] is not None for summary in summaries.values())]
    common = max((summary.common for summary in summaries.values()), default=0)
    kind = "Student's t" if window_s is None else "by cluster: one cluster of starts per span of a deadline's length"
    never = [name for name, summary in summaries.items() if not summary.done]
    if never:
        info(f"{', '.join(never)}: no start finished the job, and the means exclude them")
    oracles = (*clairvoyant_names("spot"), *clairvoyant_names("zones"))
    ranked = sorted(summaries, key=lambda name: _cost(summaries[name]))
    cheapest = next((name for name in ranked if name not in oracles and summaries[name].done), "")
    header, body = ["policy", "done", *shown], [_shown(summaries[name], shown) for name in ranked]
    if any(cheapest in own.paired for own in summaries.values()):
        header += ["usd_more", "cheaper_in"]
        pairs = [summaries[name].paired.get(cheapest) for name in ranked]
        body = [
            [*cells, *(("", "") if pair is None else (_spread(pair.mean, pair.high), _share(pair.won)))]
            for cells, pair in zip(body, pairs, strict=True)
        ]
    print_table(
        header, body, title=f"mean and 95 % interval ({kind}) over the {common} starts that every policy finished"
    )
    if len(header) > len(shown) + 2:
        print_line(
            f"usd_more, cheaper_in: extra cost compared with {cheapest} from the same start, and share of starts where the policy costs less"
        )
    known = [name for name in ranked if name in oracles]
    if known:
        print_line(f"oracles that see the future (not usable in practice): {', '.join(known)}")
    if not has_details:
        print_line(f"more columns ({', '.join(MORE_SHOWN)}): --details; all values per start: --format json")
    redrawn = max((summary.redrawn for summary in summaries.values()), default=0)
    if redrawn:
        starts = "1 start" if redrawn == 1 else f"{redrawn} starts"
        info(f"{starts} overlapped a gap in the prices and {'was' if redrawn == 1 else 'were'} drawn again")


def _cost(summary: "Summary") -> float:
    """Return the mean cost in USD, infinite if unknown."""
    mean = summary.mean["cost_usd"]
    return float("inf") if mean is None else mean


def _shown(summary: "Summary", names: list[str]) -> list[object]:
    cells: list[object] = [summary.policy, f"{summary.done} of {summary.starts}"]
    return cells + [_spread(summary.mean[name], summary.high[name]) for name in names]


def _spread(mean: float | None, high: float | None) -> str:
    if mean is None:
        return ""
    if high is None:
        return f"{mean:.4g}"
    half = high - mean
    return f"{mean:.4g} ± {half if half > ROUNDING * abs(mean) else 0.0:.2g}"


def _share(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"

"""`optim simulate cluster`: simulate policies on the jobs of a trace or a generator, and compare them with a lower bound."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from optim.cli.border import listening
from optim.cli.cluster_forecast import StartChoice, print_forecast
from optim.cli.cluster_outcomes import (
    OutcomeChoice,
    exit_code_of,
    named,
    print_policies,
    print_stops,
)
from optim.cli.cluster_settings import SettingsChoice, other_request, play_what_if, print_configuration
from optim.cli.cluster_sizes import DEFAULT_GPUS, play_sizes, print_assumed_sizes, read_sizes, sizes_of
from optim.cli.commands import complete_policy
from optim.cli.inputs import JOBS, JobChoice, load_or_generate_jobs, take
from optim.cli.messages import ExitCode, info
from optim.cli.output import (
    OutputFormat,
    print_json,
    print_line,
    print_rows,
    print_stacked,
    print_table,
    terminal_progress,
)
from optim.cli.parameters import (
    DetailsOption,
    EngineChoice,
    FormatOption,
    SeedOption,
    check_out,
    grouped,
    option,
    split_list,
    split_options,
)
from optim.core.errors import InvalidOptionError, InvalidProblemError, UnsupportedProblemError
from optim.core.optional import check_installed

if TYPE_CHECKING:
    from optim.benchmarks.cluster_rows import PolicyResultCache
    from optim.core.progress import Progress
    from optim.core.stopping import Interruption
    from optim.execution import Engine
    from optim.models.cluster.cluster import Cluster
    from optim.models.cluster.run_file import RunRecord
    from optim.models.cluster.workload import Workload
    from optim.simulation.cluster.comparison import Comparison, PolicyRequest
    from optim.simulation.cluster.options import EngineOptions

SHOWN = (
    *(
        "jct_mean_h",
        "ratio_to_bound",
        "wait_mean_h",
        "wait_fragmented_share",
        "utilisation",
        "preemptions",
        "unfinished",
    ),
    *("jct_p95_h", "makespan_h", "makespan_ratio_to_bound", "slowdown_max"),
    *("wait_max_1_h", "wait_max_2_4_h", "wait_max_5_8_h", "wait_max_above_8_h"),
    *("rho_max", "rho_share_above_1", "rho_space_max", "rho_space_share_above_1", "rho_static_max"),
)
"""Columns of the table in order: main metrics, further times, fairness. JSON contains all metrics."""
LOST = ("name", "jobs", "stopped_jobs", "preemptions", "crashes", "lost_gpu_hours", "lost_share")
LOST_SHOWN = 20
"""Maximum rows of lost work in a table; JSON contains all."""
GANGS = {"1": "1", "2_4": "2 to 4", "5_8": "5 to 8", "above_8": "above 8"}
"""Gang-size classes: suffix of column names and printed text."""
PROMISE_COLUMNS = ("policy", "gang", "until a start is reserved", "until the reserved start", "without GPUs, all jobs")
BOTH_QUEUES = "(backfill): a job may overtake one that does not fit; (strict): only with --option backfill=true"
OUTPUT = "Output"
SELECTING = ("oversized", "failures", "checkpoints")
"""Names in `--option` that select jobs, rather than set an option of the simulator."""


PolicyOption = Annotated[
    list[str] | None,
    option(
        "--policy",
        "Policies, or ./mine.py:MyPolicy; repeatable or comma-separated; default: all compiled policies.",
        "NAME",
        autocompletion=complete_policy("cluster"),
    ),
]


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """Outputs besides the table."""

    results: Annotated[
        Path | None, option("--results", "Store finished rows; the same command resumes from them.", "FILE", OUTPUT)
    ] = None
    log: Annotated[Path | None, option("--log", "Write all events (.npz) for `optim verify`.", "FILE", OUTPUT)] = None

    report: Annotated[Path | None, option("--report", "Write an HTML report with plots.", "FILE", OUTPUT)] = None
    lost_by: Annotated[
        list[str] | None,
        option("--lost-by", "Print lost work by vc, partition, user, model, status, gang or job.", "NAME", OUTPUT),
    ] = None
    study: Annotated[bool, option("--study", "Print the tables of the Philly study for each run.", panel=OUTPUT)] = (
        False
    )
    details: DetailsOption = False

    def published_clusters(self, given: dict[str, str]) -> list[Path]:
        """Return the files of published clusters that the study compares with a run's jobs.

        Raises
        ------
        InvalidOptionError
            If `given` has another option of the study, a file is missing, or `--study` is not given.
        """
        paths = [Path(name) for name in split_list([given.pop("clusters")] if "clusters" in given else [])]
        if given:
            raise InvalidOptionError(f"unknown option study.{next(iter(given))[:40]}; the only one is study.clusters")
        if paths and not self.study:
            raise InvalidOptionError("study.clusters requires --study; add it")
        for path in paths:
            if not path.is_file():
                raise InvalidOptionError(f"study.clusters={path} is not a file; give the path of a summary")
        return paths

    @property
    def asked(self) -> "dict[str, Any]":
        """Requested outputs, by option name."""
        return {"--results": self.results, "--log": self.log, "--report": self.report, "--study": self.study}

    def check(self) -> None:
        """Check before the simulation that all outputs can be written."""
        from optim.models.cluster.lost_work import check_columns

        check_columns(split_list(self.lost_by))
        if self.report is not None:
            check_installed("matplotlib", "--report")
        for path in (self.results, self.log, self.report):
            check_out(path)

    def source(self, engine: "Engine", *, need_events: bool) -> "PolicyResultCache":
        """Return the object that provides rows from stored results, from logs or from new simulations."""
        from optim.benchmarks.cluster_rows import PolicyResultCache

        need_events |= self.study or bool(self.lost_by) or self.log is not None or self.report is not None
        return PolicyResultCache(results=self.results, log=self.log, need_events=need_events, engine=engine)


@grouped
def cluster(
    *,
    choice: JobChoice,
    gpus: Annotated[
        str | None,
        option(
            "--gpus",
            f"Machines x GPUs per machine, or a topology file; several sizes with commas (default {DEFAULT_GPUS}).",
            "60x8",
            JOBS,
        ),
    ] = None,
    outages: Annotated[Path | None, option("--outages", "Planned machine outages (csv).", "FILE", JOBS)] = None,
    policy: PolicyOption = None,
    every_policy: Annotated[bool, option("--every-policy", "Run all policies that support these jobs.")] = False,
    wrap: Annotated[
        list[str] | None,
        option(
            "--wrap",
            "Wrappers of every policy, the outermost first; repeatable or comma-separated.",
            "NAME",
            autocompletion=complete_policy("wrappers"),
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        option(
            "--option",
            "Simulator option; POLICY.NAME, generate.NAME or trace.NAME for the policy, generator or trace; repeatable.",
            "NAME=VALUE",
        ),
    ] = None,
    bound_steps: Annotated[
        int, option("--bound-steps", "Steps of the price search for the lower bound.", min=0, max=100_000)
    ] = 100,
    settings_choice: SettingsChoice,
    start: StartChoice,
    where: EngineChoice,
    outputs: Outputs,
    outcomes: OutcomeChoice,
    seed: SeedOption = 0,
    output: FormatOption = OutputFormat.TABLE,
) -> ExitCode:
    """Simulate policies on the same jobs; print lower bounds and one row per policy. `optim verify` replays --log files."""
    from optim.core.policies import default_names, shipped_names
    from optim.models.cluster.run_file import RunRecord
    from optim.simulation.cluster.comparison import Comparison, bound, split_settings

    if outcomes.list_:
        print_policies(output)
        return ExitCode.DONE
    outputs.check()
    alone = outputs.asked | {
        "--state": start.state,
        "--what-if": settings_choice.what_if,
        "--jobs-csv": outcomes.jobs_csv,
    }
    start.check(
        {name: value for name, value in outputs.asked.items() if name != "--report"}
        | {
            "--lost-by": outputs.lost_by,
            "--waits": outcomes.waits,
            "--limits": outcomes.limits,
            "--compare": outcomes.compare,
        }
        | {"--what-if": settings_choice.what_if, "--write-config": settings_choice.write_config}
    )
    worlds = read_sizes(sizes_of(gpus), alone)
    world = worlds[0][1]
    given = split_options(settings)
    own = {name: take(given, f"{name}.") for name in ("trace", "generate")}
    own_state = {name: take(given, f"{name}.") for name in ("state", "forecast")}
    published = outputs.published_clusters(take(given, "study."))
    selecting: dict[str, str] = {name: given.pop(name) for name in SELECTING if name in given}
    begun = start.load(choice, world, selecting, own, own_state, seed)
    jobs = load_or_generate_jobs(choice, world, selecting, own, seed) if begun is None else begun.jobs
    jobs.check_fits(world)
    chosen = split_list(policy) or split_list(
        [settings_choice.default_policy] if settings_choice.default_policy else []
    )
    if every_policy and chosen:
        raise InvalidOptionError("--every-policy and --policy exclude each other; give one")
    usual = shipped_names("cluster") if every_policy else default_names("cluster")
    names = ["+".join((*split_list(wrap), name)) for name in chosen or usual]
    settings_choice.check(
        names,
        outputs.asked
        | {
            "--lost-by": outputs.lost_by,
            "--jobs-csv": outcomes.jobs_csv,
            "--waits": outcomes.waits,
            "--limits": outcomes.limits,
        },
    )
    outcomes.check(names)
    own_then = settings_choice.take_own(given, names)
    options, requests = split_settings(given, names)
    options = replace(options, planned=_planned(outages, world, jobs))
    task = Comparison(jobs, world, options, seed, present=None if begun is None else begun.present)
    if every_policy:
        requests = _playable(task, requests)
    if settings_choice.what_if is not None:
        requests = (*requests, other_request(requests[0], settings_choice.what_if, own_then))
    settings_choice.check_playable(task, requests)
    if settings_choice.write_config is not None:
        return print_configuration(task, requests[0], settings_choice.write_config)
    is_forecast = begun is not None and start.forecast is not None
    has_table = output is OutputFormat.TABLE and not (is_forecast or len(worlds) > 1 or settings_choice.what_if)
    _print_header(jobs, world, seed, hours=", by time limits," if is_forecast else "", warns=not has_table)
    print_assumed_sizes(gpus, is_own=choice.trace is not None or start.state is not None)
    if begun is not None and is_forecast:
        return print_forecast(begun, task, requests, outcomes.jobs_csv, outputs.report, where, output)
    for warning in task.warnings(requests):
        info(f"warning: {warning}")
    for line in task.notes(requests):
        info(line)
    with (
        terminal_progress() as progress,
        listening("finished rows will be printed") as interruption,
        where.opened() as engine,
    ):
        if len(worlds) > 1:
            return play_sizes(task, worlds, requests, engine, bound_steps, (interruption, progress, output))
        is_bounded = settings_choice.what_if is None or outputs.log is not None
        claims = bound(jobs, world, bound_steps, interruption, progress) if is_bounded else {}
        record = RunRecord(
            jobs=jobs,
            cluster=world,
            overhead_us=options.overhead_us,
            settings={
                "seed": seed,
                **_asked(choice, gpus or DEFAULT_GPUS, own, outages),
                **selecting,
                **given,
                **_of_time(jobs, start),
            },
            **claims,
        )
        if settings_choice.what_if is not None:
            code, runs = play_what_if(task, requests, engine, (interruption, progress, output))
            if runs:
                keys = [task.key(request) for request in requests]
                other = {"what_if": str(settings_choice.what_if), "what_if_options": own_then}
                known = {"keys": keys} if len(set(keys)) == len(keys) else {}
                record = replace(record, runs=runs, settings=record.settings | other | known)
                outcomes.print_outputs(record, output, seed)
                _write(record, outputs, output, published)
            return code
        task.least_jct_h, task.least_makespan_h = (record.bounds[name] for name in ("jct_mean_h", "makespan_h"))
        if output is OutputFormat.JSON:
            first = {"bounds": record.bounds, "jct_mean_h_price_bound_limit": record.price_bound_limit_h}
            print_json(first | {"jobs": len(jobs), "gpu_hours": jobs.gpu_hours} | _said(record))
        source = outputs.source(engine, need_events=outcomes.need_events or bool(jobs.recorded.any()))
        rows, record = _play(task, requests, record, source, (interruption, progress, output))
    if output is OutputFormat.TABLE:
        _print_rows(record, rows, options, has_details=outputs.details)
    elif record.runs and jobs.recorded.any():
        from optim.models.cluster.recorded import distance, recorded_remark, recorded_row

        remark = recorded_remark(jobs, world, record.bounds["jct_mean_h"])
        print_json(
            {"recorded_row": recorded_row(jobs), "distance": distance(jobs, record.runs[0]), "recorded_remark": remark}
        )
    outcomes.print_outputs(record, output, seed)
    _write(record, outputs, output, published)
    return exit_code_of(rows, len(requests))


def _playable(task: "Comparison", requests: "tuple[PolicyRequest, ...]") -> "tuple[PolicyRequest, ...]":
    """Return the policies that support these jobs; print why the others do not."""
    found = []
    for request in requests:
        try:
            task.check([request])
        except (InvalidOptionError, UnsupportedProblemError, InvalidProblemError) as error:
            info(f"{request.name} is skipped: {error}")
            continue
        found.append(request)
    if not found:
        raise UnsupportedProblemError("no policy supports these jobs; the lines above give the reasons")
    return tuple(found)


def _print_rows(
    record: "RunRecord", rows: list[dict[str, Any]], options: "EngineOptions", *, has_details: bool
) -> None:
    """Print the lower bounds and one row per policy; with details all columns and the limit of price bounds."""
    from optim.models.cluster.recorded import distance, distance_line, recorded_remark, recorded_row, room_left

    least = ["lower bound", *(record.bounds.get(name) for name in SHOWN)]
    head = [least]
    if has_details and (limit := record.price_bound_limit_h) is not None:
        dual = {"jct_mean_h": limit, "ratio_to_bound": limit / record.bounds["jct_mean_h"]}
        head.append(["limit of price bounds", *(dual.get(name) for name in SHOWN)])
    if (recorded := recorded_row(record.jobs)) is not None:
        head.append([recorded["policy"], *(recorded.get(name) for name in SHOWN)])
    body = [*head, *([named(row), *(row[name] for name in SHOWN)] for row in rows)]
    title = f"{len(record.jobs)} jobs on {record.cluster.num_gpus} GPUs"
    if recorded is not None and record.runs:
        print_line(distance_line(distance(record.jobs, record.runs[0])))
    if warning := record.jobs.missing:
        print_line(f"warning: {warning}")
    if remark := recorded_remark(record.jobs, record.cluster, record.bounds["jct_mean_h"]):
        print_line(f"warning: {remark}")
    left_out = print_stacked(("policy", *SHOWN), body, title=title, is_brief=not has_details)
    if not has_details:
        columns = f"{len(left_out)} more columns ({left_out[0]} to {left_out[-1]}), " if left_out else ""
        print_line(f"{columns}reserved starts, stops: --details")
    if record.jobs.recorded_wait is not None:
        count, hours = record.jobs.recorded_wait
        print_line(
            f"recorded: mean wait {hours:.3f} h over the {count:,} jobs with a recorded start" + room_left(record)
        )
    if {row.get("queue") for row in rows} >= {"strict", "backfill"}:
        print_line(BOTH_QUEUES)
    if has_details:
        _print_promises(rows)
    print_stops(rows, options, has_details=has_details)


def _print_promises(rows: list[dict[str, Any]]) -> None:
    """Print, per gang size, the maximum times until a start is reserved, until the reserved start, and without GPUs."""
    body = [
        [
            row["policy"],
            GANGS[name],
            row[f"{row['policy']}.reserved_wait_max_{name}_h"],
            promised,
            row[f"wait_max_{name}_h"],
        ]
        for row in rows
        for name in GANGS
        if (promised := row.get(f"{row['policy']}.promised_wait_max_{name}_h")) is not None
    ]
    if not body:
        return
    print_table(PROMISE_COLUMNS, body, title="maximum times since submission of jobs with reserved starts, in hours")
    for row in rows:
        if (late := row.get(f"{row['policy']}.started_late")) is not None:
            reserved, hours = row[f"{row['policy']}.reserved_jobs"], row[f"{row['policy']}.late_max_h"]
            said = f", by at most {hours:.3g} h: jobs exceeded their estimates, or machines failed" if late else ""
            print_line(
                f"{row['policy']}: {late:,.0f} of {reserved:,.0f} reserved jobs started later than first reserved{said}"
            )


def _planned(path: Path | None, world: "Cluster", jobs: "Workload") -> "tuple[tuple[int, int, int], ...]":
    """Return the planned outages, and print their number."""
    if path is None:
        return ()
    from optim.workloads.cluster.outages import read_outages

    planned = read_outages(path, world, jobs.begin)
    machines = len({machine for machine, _, _ in planned})
    info(f"{len(planned)} planned outages of {machines} of {world.num_machines} machines")
    return planned


def _asked(choice: JobChoice, gpus: str, own: "dict[str, dict[str, str]]", outages: Path | None) -> "dict[str, Any]":
    """Return the options of jobs and machines, for log, report and JSON."""
    asked = {name: value for name, value in (asdict(choice) | {"outages": outages}).items() if value is not None}
    options = {f"{kind}.{name}": value for kind, given in own.items() for name, value in given.items()}
    return {name: str(value) if isinstance(value, Path) else value for name, value in asked.items()} | {
        "gpus": gpus,
        **options,
    }


def _of_time(jobs: "Workload", start: StartChoice) -> dict[str, Any]:
    """Return the date of time 0 and the initial state, if they are known."""
    begin = {} if jobs.begin is None else {"begin": jobs.begin.isoformat()}
    return begin | ({} if start.state is None else {"state": str(start.state)})


def _said(record: "RunRecord") -> "dict[str, Any]":
    """Return the skipped rows (with GPU-hours if known), notes, the recorded mean wait, and all options."""
    from optim.models.cluster.workload import UNFINISHED

    jobs = record.jobs
    left_out = {
        reason: {"rows": count, "gpu_hours": jobs.dropped_gpu_h.get(reason)}
        | ({"at_least": True} if reason == UNFINISHED else {})
        for reason, count in jobs.dropped.items()
    }
    recorded = None
    if jobs.recorded_wait is not None:
        recorded = {"jobs": jobs.recorded_wait[0], "wait_mean_h": jobs.recorded_wait[1]}
    warning = jobs.missing
    notes = [*([f"warning: {warning}"] if warning else []), *jobs.notes]
    return {"left_out": left_out, "notes": notes, "recorded": recorded, "settings": record.settings}


def _write(record: "RunRecord", outputs: Outputs, output: OutputFormat, published: "list[Path]") -> None:
    """Write the requested log and report, and print lost work and the study."""
    if outputs.log is not None:
        from optim.models.cluster.run_file import save_run

        save_run(record, outputs.log)
    if outputs.report is not None:
        from optim.report.cluster import write_cluster_report

        write_cluster_report(record, outputs.report, has_study=outputs.study)
    for by in split_list(outputs.lost_by):
        _print_lost(record, by, output)
    if outputs.study:
        _print_study(record, output, published)


def _print_lost(record: "RunRecord", by: str, output: OutputFormat) -> None:
    """Print the work that stops cost each group of jobs, per policy."""
    from optim.models.cluster.lost_work import lost_rows

    for run in record.runs:
        rows = lost_rows(record.jobs, record.cluster, run, by)
        if output is OutputFormat.JSON:
            for row in rows:
                print_json({"policy": run.policy, "lost_by": by, **asdict(row)})
            continue
        shown = [row for row in rows if row.stopped_jobs or row.lost_gpu_hours][:LOST_SHOWN]
        title = f"{run.policy}: lost work by {by}" + (
            f", the {LOST_SHOWN} that lost most" if len(shown) == LOST_SHOWN else ""
        )
        if shown:
            print_rows(shown, output, LOST, title=title)
        else:
            print_line(f"{run.policy}: no job was stopped")


def _print_study(record: "RunRecord", output: OutputFormat, published: "list[Path]") -> None:
    """Print the tables of the Philly study for each run, with the jobs of published clusters for comparison."""
    from optim.simulation.cluster.philly_study import calibration, philly_study

    is_drawn = record.settings.get("failures") == "study"
    for run in record.runs:
        tables = philly_study(record.jobs, record.cluster, run, is_drawn=is_drawn)
        if published:
            tables = (*tables, calibration(record.jobs, record.cluster, run, published))
        for table in tables:
            if output is OutputFormat.JSON:
                print_json(
                    {
                        "policy": run.policy,
                        "study": table.name,
                        "note": table.note,
                        "header": table.header,
                        "rows": table.rows,
                    }
                )
                continue
            print_line(f"{run.policy}: {table.title}")
            if table.rows:
                print_table(table.header, table.rows)
            if table.note:
                print_line(f"  {table.note}")
            print_line()


def _print_header(jobs: "Workload", world: "Cluster", seed: int, *, hours: str, warns: bool) -> None:
    """Print the simulation's size, with the remark `hours` on the GPU-hours, notes and, if `warns`, a warning of omitted jobs."""
    left_out = f"; {jobs.left_out}" if jobs.left_out else ""
    info(
        f"{len(jobs)} jobs, {jobs.gpu_hours:,.0f} GPU-hours{hours or ','} on {world.num_gpus} GPUs{left_out}; seed {seed}"
    )
    apps = len(set(jobs.app.tolist()))
    if apps < len(jobs):
        info(f"finish-time fairness is measured over {apps} apps; an app ends with its last job")
    if warns and jobs.missing:
        info(f"warning: {jobs.missing}")
    for line in jobs.notes:
        info(line)


def _play(
    task: "Comparison",
    requests: "tuple[PolicyRequest, ...]",
    record: "RunRecord",
    source: "PolicyResultCache",
    running: tuple["Interruption", "Progress", OutputFormat],
) -> "tuple[list[dict[str, Any]], RunRecord]":
    """Return rows and the record with their events; for JSON, print each row as soon as it is finished."""
    stop, progress, output = running
    rows: list[dict[str, Any]] = []
    kept = again = 0
    for given in source.rows(task, requests, stop, progress):
        rows.append(given.row)
        kept += given.is_kept
        again += given.is_again
        if given.logged is not None:
            settings = {**record.settings, "keys": [*record.settings.get("keys", []), given.key]}
            record = replace(record, runs=(*record.runs, given.logged), settings=settings)
        if output is OutputFormat.JSON:
            print_json(given.row)
    if kept:
        info(f"{kept} rows were reused from earlier runs")
    if again:
        what = "the study or the report" if source.log is None else f"--log {source.log}"
        info(f"{again} stored rows were simulated again, because {what} needs events and no log contains them")
    return rows, record

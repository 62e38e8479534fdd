"""`optim simulate cluster`: jobs of a trace on a cluster of GPUs, policy by policy, beside what no schedule could beat."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from optim.cli.border import fail, note
from optim.cli.exit_code import ExitCode
from optim.cli.interruption import listening
from optim.cli.output import OutputFormat, print_json, print_table
from optim.cli.parameters import FormatOption, SeedOption, check_out, option, split_list, split_options
from optim.cli.progress import terminal_progress

JOBS = "Jobs and cluster"
SHOWN = (
    *("jct_mean_h", "ratio_to_bound", "jct_p95_h", "queue_mean_h", "makespan_h", "slowdown_max", "rho_max"),
    *("rho_share_above_1", "rho_space_max", "rho_space_share_above_1", "utilisation", "overhead_gpu_hours"),
    *("wait_fragmented_share", "preemptions"),
)


def cluster(
    *,
    trace: Annotated[Path, option("--trace", "Jobs of a trace.", "FILE", JOBS)],
    trace_format: Annotated[str, option("--trace-format", "How it is written.", "NAME", JOBS)] = "csv",
    jobs: Annotated[int | None, option("--jobs", "The first so many in time.", panel=JOBS, min=1)] = None,
    gpus: Annotated[str, option("--gpus", "Machines x GPUs.", "60x8", JOBS)] = "60x8",
    policy: Annotated[
        list[str] | None,
        option("--policy", "Repeat or commas, or ./mine.py:MyPolicy; default: all compiled ones.", "NAME"),
    ] = None,
    settings: Annotated[
        list[str] | None,
        option("--option", "Of the engine, or of a policy as POLICY.NAME=VALUE; repeat for several.", "NAME=VALUE"),
    ] = None,
    bound_steps: Annotated[int, option("--bound-steps", "Steps of the search for prices.", min=0)] = 60,
    log: Annotated[Path | None, option("--log", "Where to write every event (.npz).", "FILE")] = None,
    seed: SeedOption = 0,
    output: FormatOption = OutputFormat.TABLE,
) -> ExitCode:
    """Play policies on the same jobs: a row each, the bounds first; `optim verify` replays what --log writes."""
    from optim.models.cluster.run_file import RunRecord, save_run
    from optim.models.cluster.world import Cluster
    from optim.simulation.cluster.catalogue import INDEX_POLICIES
    from optim.simulation.cluster.comparison import bound, compare, split_settings
    from optim.workloads.cluster.jobs import Selection, cluster_jobs
    from optim.workloads.traces.formats import read_jobs
    from optim.workloads.traces.job_table import ReadOptions

    check_out(log)
    world = Cluster.grid(gpus)
    given = split_options(settings)
    selection = Selection(first=jobs, oversized=given.pop("oversized", "refuse"), num_gpus=world.num_gpus)
    played = cluster_jobs(read_jobs(trace, trace_format, ReadOptions()), selection)
    played.check_fits(world)
    names = split_list(policy) or tuple(INDEX_POLICIES)
    options, policies = split_settings(given, names, played)
    left_out = "".join(f"; {count} left out: {reason}" for reason, count in played.dropped.items())
    note(f"{len(played)} jobs, {played.gpu_hours:,.0f} GPU-hours, on {world.num_gpus} GPUs{left_out}; seed {seed}")
    rows = []
    with terminal_progress() as progress, listening("the rows so far are kept") as interruption:
        record = RunRecord(
            jobs=played,
            cluster=world,
            overhead_us=options.overhead_us,
            settings={"seed": seed, **given},
            **bound(played, world, bound_steps, interruption),
        )
        if output is OutputFormat.JSON:
            print_json({"bounds": record.bounds})
        for row, logged in compare(played, world, policies, options, seed, record, progress, interruption):
            rows.append(row.flat())
            record = replace(record, runs=(*record.runs, logged))
            if output is OutputFormat.JSON:
                print_json(rows[-1])
    if output is OutputFormat.TABLE:
        least = ["no schedule beats", *(record.bounds.get(name) for name in SHOWN)]
        body = [least, *([row["policy"], *(row[name] for name in SHOWN)] for row in rows)]
        print_table(("policy", *SHOWN), body, title=f"{len(played)} jobs on {gpus} GPUs", least_wanted=SHOWN[:4:-1])
    if log is not None:
        save_run(record, log)
    return _ending(rows, len(policies))


def _ending(rows: list[dict[str, Any]], wanted: int) -> ExitCode:
    """Tell whether all policies were played, and every job done or sent away."""
    unfinished = [row["policy"] for row in rows if row["unfinished"]]
    if len(rows) < wanted:
        return ExitCode.INTERRUPTED
    return fail(f"{', '.join(unfinished)} left jobs unfinished", ExitCode.NOTHING) if unfinished else ExitCode.DONE

"""`optim run`: play an admission or auction solution with real training jobs, or kill their servers for a drill."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from optim.cli.border import fail, note
from optim.cli.completion import complete_instance
from optim.cli.exit_code import ExitCode
from optim.cli.interruption import listening
from optim.cli.output import OutputFormat, print_json, print_line, print_rows
from optim.cli.parameters import MOST_PROCESSES, MOST_THINGS, FormatOption, SeedOption, grouped, option
from optim.cli.run_application import ApplicationRun, PushChoice, train_application
from optim.cli.run_rounds import RoundChoice, tell_rounds
from optim.core.errors import InvalidOptionError, UnsupportedProblemError

SLOT_S, GRADIENT_S, PROCESSES, CORES = 4.0, 0.05, 64, 1.6
CLOCKS, WORKERS, RATE = 50, 2, 0.1

FilesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        autocompletion=complete_instance,
        metavar="INSTANCE SOLUTION",
        help="An admission or auction instance (file or name) and its solution.",
    ),
]


@grouped
def run(
    files: FilesArgument = None,
    *,
    slot_seconds: Annotated[float, option("--slot-seconds", "What a slot lasts here.", "S")] = SLOT_S,
    gradient_seconds: Annotated[
        float, option("--gradient-seconds", "Least time from one push of a worker to its next.", "S")
    ] = GRADIENT_S,
    max_processes: Annotated[
        int, option("--max-processes", "Most processes at once.", min=1, max=MOST_PROCESSES)
    ] = PROCESSES,
    cores: Annotated[float, option("--cores", "Cores that all workers hold themselves to together.", "N")] = CORES,
    kill_servers: Annotated[
        int | None,
        option("--kill-servers", "A drill instead: kill N active servers of a job.", "N", min=1, max=MOST_PROCESSES),
    ] = None,
    application: Annotated[
        str | None, option("--application", "Train this instead: a name, or a class of one's own.", "NAME|MODULE:CLASS")
    ] = None,
    data: Annotated[Path | None, option("--data", "Data of one's own for it (docs/training.md).", "FILE")] = None,
    clocks: Annotated[int, option("--clocks", "Clocks that it is trained for.", min=1, max=MOST_THINGS)] = CLOCKS,
    workers: Annotated[
        int, option("--workers", "Worker processes; the first one also serves.", min=1, max=MOST_PROCESSES)
    ] = WORKERS,
    rate: Annotated[float, option("--rate", "Learning rate of Adagrad; of a topic model's descent, at most 1.")] = RATE,
    checkpoint: Annotated[
        Path | None, option("--checkpoint", "Folder of checkpoints; a run goes on from the newest one.", "FOLDER")
    ] = None,
    pushes: PushChoice,
    leases: RoundChoice,
    seed: SeedOption = 0,
    output: FormatOption = OutputFormat.TABLE,
) -> ExitCode:
    """Train the jobs of an admission solution, or an auction's leases, on this machine: planned against realised completion.

    Every worker and every parameter server is a process; they change each slot as the solution says. A job's work, sizes and
    speed are the instance's own, at the scale of time that --slot-seconds sets; workers hold themselves to shares of cores.
    An auction's slot is its lease, a GPU is a worker, and the slowdown of its placement is time that it waits for its link. With
    --rounds the arbiter awards lease after lease: processes stop at a checkpoint, and others go on from it.
    Exit code 3 if a job's result isn't that of an undisturbed run, bit for bit.
    """
    _check_alone(files, application, kill_servers, leases)
    if not files and (slot_seconds, gradient_seconds, max_processes, cores) != (SLOT_S, GRADIENT_S, PROCESSES, CORES):
        raise InvalidOptionError(
            "--slot-seconds, --gradient-seconds, --max-processes and --cores are of INSTANCE SOLUTION; leave them out"
        )
    if application is not None:
        asked = ApplicationRun(
            name=application,
            data=data,
            clocks=clocks,
            workers=workers,
            rate=rate,
            checkpoint=checkpoint,
            seed=seed,
            pushes=pushes,
        )
        return train_application(asked, output)
    drilled = PushChoice() if kill_servers is None else PushChoice(replay_mb=pushes.replay_mb)
    if (data, checkpoint, pushes, clocks, workers, rate) != (None, None, drilled, CLOCKS, WORKERS, RATE):
        raise InvalidOptionError(
            "--data, --clocks, --workers, --rate, --checkpoint and how to push, from --staleness to --replay-mb, belong to "
            "--application NAME; add it, or leave them out"
        )
    if kill_servers is not None:
        return _drill(kill_servers, pushes.replay_mb, seed, output)
    if files is None or len(files) != 2:
        raise InvalidOptionError(f"expected INSTANCE SOLUTION, got {len(files or ())} words; or use --kill-servers N")
    from optim.simulation.live.job_plan import PlanOptions

    plan = PlanOptions(
        slot_s=slot_seconds, gradient_s=gradient_seconds, max_processes=max_processes, cores=cores, seed=seed
    )
    return _play(files[0], files[1], plan, leases, output)


def _check_alone(
    files: list[str] | None, application: str | None, kill_servers: int | None, leases: RoundChoice
) -> None:
    """Raise if what trains a job of its own is given a plan to play besides."""
    is_played = bool(files) or leases != RoundChoice()
    if application is not None and (is_played or kill_servers is not None):
        raise InvalidOptionError(
            "--application is trained alone; leave INSTANCE, SOLUTION, --rounds, --fairness and --kill-servers out"
        )
    if kill_servers is not None and is_played:
        out = " ".join(files or ["--rounds and --fairness"])
        raise InvalidOptionError(f"--kill-servers trains a job of its own; leave {out} out")


def _play(instance_name: str, solution_path: str, options: Any, leases: RoundChoice, output: OutputFormat) -> ExitCode:
    """Play a solution and print a row for each job or app."""
    from optim.benchmarks.sources import find_instance
    from optim.models.catalogue import problem_of
    from optim.models.files import load_solution, verify

    instance = find_instance(instance_name)
    problem = problem_of(instance).name
    if problem not in ("admission", "auction"):
        raise UnsupportedProblemError(
            f"{instance_name} is neither an admission instance nor an auction: only those say who trains when; a bidder's "
            "leases are played by `optim simulate training`"
        )
    if leases != RoundChoice() and (problem == "admission" or leases.rounds == 1):
        raise InvalidOptionError(
            "--rounds N and --fairness are of an auction's rounds of leases, two at least; leave them out"
        )
    solution = load_solution(solution_path, instance)
    if solution.decision is None:
        return fail(f"{solution_path} holds no plan to play", ExitCode.NOTHING)
    violations = verify(instance, solution).violations
    if violations:
        return fail(f"{solution_path}: {len(violations)} claims don't hold, first: {violations[0]}", ExitCode.REFUSED)
    with listening("all jobs end where they are") as interruption:
        asked: dict[str, Any] = {
            "is_stopped": lambda: interruption.is_requested,
            "on_slot": lambda slot: note(f"{'slot' if problem == 'admission' else 'lease'} {slot}"),
        }
        if leases.rounds > 1:
            return tell_rounds(instance, solution.decision, options, leases, asked, output)
        asked["on_held"] = lambda seconds: note(f"the clock stood still for {seconds:.1f} s, while processes started")
        rows = _play_plan(instance, problem, solution.decision, options, asked)
    if output is OutputFormat.JSON:
        for row in rows:
            print_json({"instance": instance.name, "seed": options.seed, **asdict(row)})
    else:
        unit = "slots" if problem == "admission" else "leases"
        print_rows([_shown(row) for row in rows], output, title=f"completion in {unit} from the beginning")
    _tell(instance, problem, rows, options)
    if interruption.is_requested:
        return ExitCode.INTERRUPTED
    if any(row.is_exact is False for row in rows):
        return fail("a job's result differs from that of an undisturbed run", ExitCode.REFUSED)
    return ExitCode.DONE if all(row.realised_slots is not None for row in rows) else ExitCode.NOTHING


def _play_plan(instance: Any, problem: str, decision: Any, options: Any, asked: Any) -> Any:
    """Return a row for each job of an admission plan, or for each app with a lease."""
    if problem == "admission":
        from optim.simulation.live.plan_run import run_plan

        return run_plan(instance, decision, options, **asked)
    from optim.simulation.live.auction_run import run_leases

    return run_leases(instance, decision, options, **asked)


def _tell(instance: Any, problem: str, rows: Any, options: Any) -> None:
    """Say how what was planned lies to what was realised, and what that does to utility."""
    from optim.simulation.live.auction_run import log_welfare
    from optim.simulation.live.plan_run import summary_of

    own_s = instance.slot_micro_s / 1e6 if problem == "admission" else 60.0 * instance.lease_min
    what = "slot" if problem == "admission" else "lease"
    note(f"scale of time: a {what} of {own_s:g} s lasts {options.slot_s:g} s here, {options.slot_s / own_s:.3g} of it")
    found = summary_of(rows)
    if found.median_error is not None:
        note(
            f"error of completion: median {found.median_error:.1%}, p90 {found.p90_error:.1%}, most {found.max_error:.1%}, "
            f"mean {found.mean_error:+.1%}; {found.unfinished} of {found.jobs} {'jobs' if problem == 'admission' else 'apps'} not done"
        )
    if problem == "admission":
        note(f"utility planned {found.planned_utility:.6g}, realised {found.realised_utility:.6g}")
    elif (welfare := log_welfare(rows)) is not None:
        note(f"log welfare of the apps with leases planned {welfare[0]:.6g}, realised {welfare[1]:.6g}")


def _shown(row: Any) -> dict[str, object]:
    """Return a job's row as people want to see it."""
    is_done = row.realised_slots is not None
    return {
        "job": row.job, "application": row.application, "planned": row.planned_slots, "realised": row.realised_slots,
        "late": row.realised_slots - row.planned_slots if is_done else None, "error": row.error, "utility planned": row.planned_utility,
        "utility realised": row.realised_utility, "clocks": row.clocks, "changes": row.changes,
        "first loss": row.first_loss, "last loss": row.last_loss, "exact": row.is_exact,
        **({"GPUs": row.gpus, "in one": row.placement} if hasattr(row, "gpus") else {}),
    }  # fmt: skip


def _drill(kills: int, replay_mb: float, seed: int, output: OutputFormat) -> ExitCode:
    """Kill active servers and print a row for each."""
    from optim.kernels.parameter_server import Adagrad
    from optim.training.applications import LogisticRegression
    from optim.training.drill import DrillOptions, kill_servers
    from optim.training.options import ClusterOptions

    application = LogisticRegression(num_observations=800, num_features=40, num_partitions=4, seed=seed)
    cluster = ClusterOptions(num_shards=2, sync_every=3, replay_mb=replay_mb)
    rows = []
    for row in kill_servers(application, Adagrad(learning_rate=0.1), cluster, DrillOptions(kills=kills, seed=seed)):
        rows.append(row)
        if output is OutputFormat.JSON:
            print_json(asdict(row))
    if output is OutputFormat.TABLE:
        print_rows([asdict(row) for row in rows], output)
        print_line(f"{sum(row.is_equal for row in rows)} of {len(rows)} runs on have the undisturbed run's losses")
    if all(row.is_equal for row in rows):
        return ExitCode.DONE
    return fail("a loss differs from the undisturbed run's", ExitCode.REFUSED)

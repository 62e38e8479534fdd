"""`optim run`: play an admission solution with real training jobs, or kill their servers for a drill."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from optim.cli.border import fail, note
from optim.cli.exit_code import ExitCode
from optim.cli.interruption import listening
from optim.cli.output import OutputFormat, print_json, print_line, print_table
from optim.cli.parameters import FormatOption, SeedOption
from optim.core.errors import InvalidOptionError, UnsupportedProblemError


def run(
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="INSTANCE SOLUTION", help="An admission instance (file or name) and its solution."),
    ] = None,
    *,
    slot_seconds: Annotated[float, typer.Option("--slot-seconds", metavar="S", help="What a slot lasts here.")] = 4.0,
    gradient_seconds: Annotated[
        float,
        typer.Option("--gradient-seconds", metavar="S", help="Least time of a gradient; 0 for as fast as cores allow."),
    ] = 0.05,
    max_processes: Annotated[int, typer.Option("--max-processes", min=1, help="Most processes at once.")] = 64,
    kill_servers: Annotated[
        int | None,
        typer.Option("--kill-servers", metavar="N", min=1, help="A drill instead: kill N active servers of a job."),
    ] = None,
    seed: SeedOption = 0,
    output: FormatOption = OutputFormat.TABLE,
) -> ExitCode:
    """Train the jobs of an admission solution on this machine: planned against realised completion.

    Every worker and every parameter server is a process; they change each slot as the solution says. Exit code 3 if a
    job's result isn't that of an undisturbed run, bit for bit.
    """
    if kill_servers is not None:
        if files:
            raise InvalidOptionError(f"--kill-servers trains a job of its own; leave {' '.join(files)} out")
        return _drill(kill_servers, seed, output)
    if files is None or len(files) != 2:
        raise InvalidOptionError(f"expected INSTANCE SOLUTION, got {len(files or ())} words; or use --kill-servers N")
    return _play(files[0], files[1], _plan_options(slot_seconds, gradient_seconds, max_processes, seed), output)


def _plan_options(slot_s: float, gradient_s: float, max_processes: int, seed: int) -> Any:
    from optim.simulation.live.job_plan import PlanOptions

    return PlanOptions(slot_s=slot_s, gradient_s=gradient_s, max_processes=max_processes, seed=seed)


def _play(instance_name: str, solution_path: str, options: Any, output: OutputFormat) -> ExitCode:
    """Play a solution and print a row for each job."""
    from optim.benchmarks.sources import find_instance
    from optim.models.catalogue import problem_of
    from optim.models.files import load_solution, verify
    from optim.simulation.live.plan_run import run_plan

    instance = find_instance(instance_name)
    if problem_of(instance).name != "admission":
        raise UnsupportedProblemError(f"{instance_name} isn't an admission instance: only those say who trains when")
    solution = load_solution(solution_path, instance)
    if solution.decision is None:
        return fail(f"{solution_path} holds no plan to play", ExitCode.NOTHING)
    violations = verify(instance, solution).violations
    if violations:
        return fail(f"{solution_path}: {len(violations)} claims don't hold, first: {violations[0]}", ExitCode.REFUSED)
    with listening("all jobs end where they are") as interruption:
        rows = run_plan(
            instance,
            solution.decision,
            options,
            is_stopped=lambda: interruption.is_requested,
            on_slot=lambda slot: note(f"slot {slot}"),
        )
    if output is OutputFormat.JSON:
        for row in rows:
            print_json({"instance": instance.name, "seed": options.seed, **asdict(row)})
    else:
        _print_jobs(rows)
    if interruption.is_requested:
        return ExitCode.INTERRUPTED
    if any(row.is_exact is False for row in rows):
        return fail("a job's result differs from that of an undisturbed run", ExitCode.REFUSED)
    return ExitCode.DONE if all(row.realised_slots is not None for row in rows) else ExitCode.NOTHING


def _print_jobs(rows: Any) -> None:
    header = ("job", "application", "planned", "realised", "late", "utility planned", "utility realised", "clocks",
              "changes", "first loss", "last loss", "exact")  # fmt: skip
    print_table(
        header,
        [
            (
                row.job,
                row.application,
                row.planned_slots,
                row.realised_slots,
                None if row.realised_slots is None else row.realised_slots - row.planned_slots,
                row.planned_utility,
                row.realised_utility,
                row.clocks,
                row.changes,
                row.first_loss,
                row.last_loss,
                row.is_exact,
            )
            for row in rows
        ],
        title="completion in slots from the beginning",
    )


def _drill(kills: int, seed: int, output: OutputFormat) -> ExitCode:
    """Kill active servers and print a row for each."""
    from optim.kernels.parameter_server import Adagrad
    from optim.training.applications import LogisticRegression
    from optim.training.drill import DrillOptions, kill_servers
    from optim.training.options import ClusterOptions

    application = LogisticRegression(num_observations=800, num_features=40, num_partitions=4, seed=seed)
    cluster = ClusterOptions(num_shards=2, sync_every=3)
    rows = []
    for row in kill_servers(application, Adagrad(learning_rate=0.1), cluster, DrillOptions(kills=kills, seed=seed)):
        rows.append(row)
        if output is OutputFormat.JSON:
            print_json(asdict(row))
    if output is OutputFormat.TABLE:
        names = tuple(asdict(rows[0]))
        print_table(names, [tuple(asdict(row).values()) for row in rows])
        print_line(f"{sum(row.is_equal for row in rows)} of {len(rows)} runs on have the undisturbed run's losses")
    if all(row.is_equal for row in rows):
        return ExitCode.DONE
    return fail("a loss differs from the undisturbed run's", ExitCode.REFUSED)

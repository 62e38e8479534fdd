"""`optim run`: execute a solution with real training jobs, run lease rounds, or train one application."""

import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optim.cli.border import error_exit, listening
from optim.cli.commands import complete_instance
from optim.cli.messages import ExitCode, info
from optim.cli.output import OutputFormat, print_json, print_line, print_rows
from optim.cli.parameters import MAX_PROCESSES, MAX_THINGS, FormatOption, SeedOption, grouped, option
from optim.core.errors import InvalidOptionError, OptimError, UnsupportedProblemError, check_in
from optim.training.messages import NonFinite, Pushes

if TYPE_CHECKING:
    from optim.kernels.parameter_server import AbstractOptimiser
    from optim.simulation.emulation.job_run import PlanOptions
    from optim.training.application import Application

SHOWN = 10
"""Clocks per row of the table."""


@dataclass(frozen=True, kw_only=True)
class PushChoice:
    """Options of workers' pushes to the servers."""

    staleness: Annotated[
        int,
        option(
            "--staleness", "Clocks that a worker may be ahead of the slowest; 0 gives bit-identical results.", min=0
        ),
    ] = 0
    pushes: Annotated[Pushes, option("--pushes", "Push rows or dense gradients; auto chooses by density.")] = (
        Pushes.AUTO
    )
    non_finite: Annotated[
        NonFinite,
        option("--non-finite", "Infinite or NaN gradients: stop, skip them, or refuse and recompute them once."),
    ] = NonFinite.STOP
    replay_mb: Annotated[
        float,
        option(
            "--replay-mb",
            "MB of memory for pushes that are replayed if a server dies; also for --kill-servers.",
            "MB",
            min=0.0,
        ),
    ] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationRun:
    """Options of training one application."""

    name: str
    data: Path | None
    clocks: int
    workers: int
    rate: float
    checkpoint: Path | None
    seed: int
    pushes: "PushChoice"

    def __post_init__(self) -> None:
        check_in("(0, inf)", self, "rate")


def train_application(asked: ApplicationRun, output: OutputFormat) -> ExitCode:
    """Train with worker processes, and print one row per clock (JSON) or per ten clocks."""
    from optim.training.processes import Processes
    from optim.training.stages import ClusterOptions, Fixed, Stage
    from optim.training.trainer import Action, Event, Trainer, resumable

    application, optimiser = chosen(asked)
    options = ClusterOptions(num_shards=1, policy=Fixed(fixed=Stage.TRADITIONAL), **asdict(asked.pushes))
    names = tuple(f"worker-{k}" for k in range(asked.workers))
    with (
        Processes(application, options, max_machines=asked.workers) as processes,
        listening("the last checkpoint stays" if asked.checkpoint else "progress is lost without --checkpoint") as stop,
    ):
        if asked.checkpoint is None:
            trainer = Trainer(application, optimiser, options, processes)
        else:
            trainer = resumable(application, optimiser, options, processes, asked.checkpoint)
            if trainer.clock:
                info(f"resuming from clock {trainer.clock} of {asked.checkpoint}")
        events = [Event(clock=0, action=Action.ADD_RELIABLE, machines=names)]
        losses: tuple[float, ...] = ()
        while trainer.clock < asked.clocks and not stop.is_requested:
            record = trainer.run(min(asked.clocks, (trainer.clock // SHOWN + 1) * SHOWN), events)
            losses, events = record.losses, []
        if asked.checkpoint is not None and losses:
            trainer.controller.save()
            while trainer.controller.saved_clock < trainer.clock:
                trainer.step()
    losses = losses or tuple(trainer.controller.flow.losses)
    rows = [{"clock": clock, "loss": loss} for clock, loss in enumerate(losses)]
    if output is OutputFormat.JSON:
        for row in rows:
            print_json({"application": asked.name, "seed": asked.seed, **row})
    else:
        print_rows(
            [row for row in rows if row["clock"] % SHOWN == 0 or row is rows[-1]],
            output,
            title="mean loss before each clock",
        )
    return ExitCode.INTERRUPTED if stop.is_requested else ExitCode.DONE


def chosen(asked: ApplicationRun) -> "tuple[Application, AbstractOptimiser]":
    """Return the application, with the user's data if given, and a suitable optimiser.

    Raises
    ------
    InvalidOptionError
        If the application is unknown, or accepts no data file.
    """
    from optim.kernels.parameter_server import Adagrad, Sgd
    from optim.training.applications import APPLICATIONS

    own: Application
    if asked.name not in APPLICATIONS:
        own = _user_application(asked)
    elif asked.data is None:
        own = APPLICATIONS[asked.name](seed=asked.seed)
    else:
        own = APPLICATIONS[asked.name].from_file(str(asked.data.resolve()), seed=asked.seed)
    if asked.name == "topic-model":  # the rate is the step size along the natural gradient, hence at most 1
        return own, Sgd(learning_rate=min(asked.rate, 1.0))
    # Stale updates add up only if the optimiser has no state, so staleness requires SGD.
    return own, (Sgd if asked.pushes.staleness else Adagrad)(learning_rate=asked.rate)


def _importable(place: str) -> str:
    """Return the name of the module `./file.py` or MODULE, and extend `sys.path` so that it can be imported, also by workers."""
    file = Path(place)
    is_file = file.suffix == ".py"
    folder = str((file.parent if is_file else Path()).resolve())
    if folder not in sys.path:
        sys.path.append(folder)  # at the end, so that no file of the folder hides a module
    return file.stem if is_file else place


def _user_application(asked: ApplicationRun) -> "Application":
    """Return an instance of the user's application class; exceptions of its code become InvalidOptionError."""
    from optim.core.user_code import format_exception_line
    from optim.training.application import check_application
    from optim.training.applications import APPLICATIONS

    place, _, name = asked.name.rpartition(":")
    if not (place and name.isidentifier()):
        raise InvalidOptionError(
            f"unknown application {asked.name!r}; known: {', '.join(APPLICATIONS)}, or ./FILE.py:CLASS or MODULE:CLASS"
        )
    try:
        found = getattr(import_module(_importable(place)), name)
    except (ImportError, AttributeError) as error:
        raise InvalidOptionError(
            f"--application {asked.name}: {error}; give ./FILE.py:CLASS, or a module of this folder or of PYTHONPATH"
        ) from error
    except (Exception, SystemExit) as error:  # user code may raise anything
        raise InvalidOptionError(
            f"--application {asked.name}: {format_exception_line(error)}; correct the module"
        ) from error
    try:
        own: Application = found() if asked.data is None else found(str(asked.data))
        check_application(own)
        own.initial_parameters()
    except OptimError:
        raise
    except (Exception, SystemExit) as error:
        raise InvalidOptionError(
            f"--application {asked.name}: {format_exception_line(error)}; correct the class"
        ) from error
    return own


@dataclass(frozen=True, kw_only=True)
class RoundChoice:
    """Number of lease rounds, and their fairness."""

    rounds: Annotated[
        int,
        option(
            "--rounds",
            "Number of rounds of leases; the first executes the solution, later rounds are new auctions.",
            min=1,
            max=MAX_THINGS,
        ),
    ] = 1
    fairness: Annotated[
        float, option("--fairness", "In later rounds only the worst-off apps bid, a share 1 - F of all apps.", "F")
    ] = 0.8


def run_rounds(
    instance: Any,
    decision: Any,
    options: "PlanOptions",
    choice: RoundChoice,
    asked: Mapping[str, Any],
    output: OutputFormat,
) -> ExitCode:
    """Run rounds of leases, and print one row per lease and one per app."""
    from optim.simulation.emulation.lease_rounds import RoundOptions, play_rounds, total_error

    rounds = RoundOptions(rounds=choice.rounds, fairness=choice.fairness)
    with tempfile.TemporaryDirectory(prefix="optim-leases-") as folder:
        rows, apps = play_rounds(instance, decision, options, rounds, Path(folder), **asked)
    if output is OutputFormat.JSON:
        for fields in (*map(asdict, rows), *map(asdict, apps)):
            print_json({"instance": instance.name, "seed": options.seed, **fields})
    else:
        print_rows([asdict(row) for row in rows], output, title="serial GPU minutes per lease")
        print_rows([asdict(row) for row in apps], output, title="all rounds: planned in the first round, and realised")
    own_s = 60.0 * instance.lease_min
    info(
        f"time scale: a lease of {own_s:g} s runs in {options.slot_s:g} s (factor {options.slot_s / own_s:.3g}); the clock stops while "
        f"processes start between leases ({max((row.start_s for row in rows), default=0.0):.1f} s at most)"
    )
    for number in sorted({row.round for row in rows}):
        own = [row for row in rows if row.round == number]
        info(f"round {number}: {_work(own)} by {len(own)} apps, {sum(row.gpus for row in own)} GPUs")
    if (error := total_error(rows)) is not None:
        info(f"all leases: {_work(rows)}, error {error:+.1%}")
    done = [row for row in apps if row.realised_rho is not None]
    if done:
        planned = [row.planned_rho for row in done if row.planned_rho is not None]
        info(
            f"{len(done)} of {len(apps)} apps done, {sum(row.planned_rho is not None for row in apps)} planned; largest rho of finished "
            f"apps: {max(row.realised_rho for row in done if row.realised_rho is not None):.4g}"
            + (f", planned {max(planned):.4g}" if planned else "")
        )
    if asked["is_stopped"]():
        return ExitCode.INTERRUPTED
    if any(row.is_exact is False for row in apps):
        return error_exit("an app's result differs from that of an undisturbed run", ExitCode.REFUSED)
    return ExitCode.DONE


def _work(rows: Any) -> str:
    planned, realised = (sum(getattr(row, name) for row in rows) for name in ("planned_min", "realised_min"))
    return f"{planned:.6g} serial GPU minutes planned, {realised:.6g} realised"


SLOT_S, GRADIENT_S, PROCESSES, CORES = 4.0, 0.05, 64, 1.6

CLOCKS, WORKERS, RATE = 50, 2, 0.1

FilesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        autocompletion=complete_instance,
        metavar="INSTANCE SOLUTION",
        help="An admission or auction instance (file or name), and a solution file.",
    ),
]


@grouped
def run(
    files: FilesArgument = None,
    *,
    slot_seconds: Annotated[
        float, option("--slot-seconds", "Real duration of a slot or lease, in seconds.", "S")
    ] = SLOT_S,
    gradient_seconds: Annotated[
        float, option("--gradient-seconds", "Minimum time between two pushes of a worker, in seconds.", "S")
    ] = GRADIENT_S,
    max_processes: Annotated[
        int, option("--max-processes", "Maximum number of concurrent processes.", min=1, max=MAX_PROCESSES)
    ] = PROCESSES,
    cores: Annotated[float, option("--cores", "Processor cores that all workers share.", "N")] = CORES,
    kill_servers: Annotated[
        int | None,
        option(
            "--kill-servers",
            "Chaos test without INSTANCE: train a job and kill N active servers.",
            "N",
            min=1,
            max=MAX_PROCESSES,
        ),
    ] = None,
    application: Annotated[
        str | None,
        option(
            "--application",
            "Application that all jobs train; without INSTANCE, train only this application, also from MODULE:CLASS.",
            "NAME|MODULE:CLASS",
        ),
    ] = None,
    data: Annotated[
        Path | None, option("--data", "Training data for the application (docs/training.md).", "FILE")
    ] = None,
    clocks: Annotated[int, option("--clocks", "Clocks to train the application.", min=1, max=MAX_THINGS)] = CLOCKS,
    workers: Annotated[
        int, option("--workers", "Worker processes; the first is also the parameter server.", min=1, max=MAX_PROCESSES)
    ] = WORKERS,
    rate: Annotated[float, option("--rate", "Learning rate; for topic-model at most 1.")] = RATE,
    checkpoint: Annotated[
        Path | None, option("--checkpoint", "Folder of checkpoints; training resumes from the newest.", "FOLDER")
    ] = None,
    pushes: PushChoice,
    leases: RoundChoice,
    seed: SeedOption = 0,
    output: FormatOption = OutputFormat.TABLE,
) -> ExitCode:
    """Execute an admission or auction solution with real training processes, and compare planned with realised completion.

    Every worker and parameter server is a process; they change in each slot according to the solution.
    A job has the work, sizes and speed of the instance, on the time scale of --slot-seconds.
    Each worker limits itself to a share of the cores.
    In an auction, a slot is a lease, a GPU is a worker, and the placement slowdown is waiting time for the link.
    With --rounds, the arbiter awards further leases; jobs move between them by checkpoints.
    Exit code 3 if a job's result differs in any bit from that of an undisturbed run.
    """
    _check_alone(files, application, kill_servers, leases)
    if not files and (slot_seconds, gradient_seconds, max_processes, cores) != (SLOT_S, GRADIENT_S, PROCESSES, CORES):
        raise InvalidOptionError(
            "--slot-seconds, --gradient-seconds, --max-processes and --cores require INSTANCE SOLUTION; omit them"
        )
    if application is not None and not files:
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
            "--data, --clocks, --workers, --rate, --checkpoint, --staleness, --pushes, --non-finite and --replay-mb "
            "require --application NAME without INSTANCE SOLUTION"
        )
    if kill_servers is not None:
        return _drill(kill_servers, pushes.replay_mb, seed, output)
    if files is None or len(files) != 2:
        raise InvalidOptionError(
            f"expected INSTANCE SOLUTION, got {len(files or ())} arguments; or use --kill-servers N"
        )
    from optim.simulation.emulation.job_run import PlanOptions

    plan = PlanOptions(
        slot_s=slot_seconds,
        gradient_s=gradient_seconds,
        max_processes=max_processes,
        cores=cores,
        seed=seed,
        application=application,
    )
    return _play(files[0], files[1], plan, leases, output)


def _check_alone(
    files: list[str] | None, application: str | None, kill_servers: int | None, leases: RoundChoice
) -> None:
    """Raise if ``--application`` alone or ``--kill-servers`` is combined with a solution or lease rounds."""
    is_played = bool(files) or leases != RoundChoice()
    if application is not None and ((is_played and not files) or kill_servers is not None):
        raise InvalidOptionError(
            "--application without INSTANCE SOLUTION excludes --rounds, --fairness and --kill-servers; omit them"
        )
    if kill_servers is not None and is_played:
        out = " ".join(files or ["--rounds and --fairness"])
        raise InvalidOptionError(f"--kill-servers trains a built-in job; omit {out}")


def _play(instance_name: str, solution_path: str, options: Any, leases: RoundChoice, output: OutputFormat) -> ExitCode:
    """Execute a solution and print one row per job or app."""
    from optim.models.catalogue import problem_of
    from optim.models.files import load_solution, verify
    from optim.workloads.instances import find_instance

    instance = find_instance(instance_name)
    problem = problem_of(instance).name
    if problem not in ("admission", "auction"):
        raise UnsupportedProblemError(
            f"{instance_name} is neither an admission nor an auction instance; for bidding use "
            "'optim simulate training'"
        )
    if leases != RoundChoice() and (problem == "admission" or leases.rounds == 1):
        raise InvalidOptionError(
            "--rounds and --fairness require an auction, and --fairness at least two rounds; omit them"
        )
    solution = load_solution(solution_path, instance)
    if solution.decision is None:
        return error_exit(f"{solution_path} contains no plan to execute", ExitCode.NOTHING)
    violations = verify(instance, solution).violations
    if violations:
        return error_exit(f"{solution_path}: {len(violations)} violations, first: {violations[0]}", ExitCode.REFUSED)
    if problem == "admission" and options.application is None:
        from optim.simulation.emulation.job_run import IN_TURN

        info(f"jobs train built-in applications in turn: {', '.join(IN_TURN)}; --application names one for all jobs")
    with listening("all jobs end now") as interruption:
        asked: dict[str, Any] = {
            "is_stopped": lambda: interruption.is_requested,
            "on_slot": lambda slot: info(f"{'slot' if problem == 'admission' else 'lease'} {slot}"),
        }
        if leases.rounds > 1:
            return run_rounds(instance, solution.decision, options, leases, asked, output)
        asked["on_paused"] = lambda seconds: info(f"the clock stopped for {seconds:.1f} s while processes started")
        rows = _play_plan(instance, problem, solution.decision, options, asked)
    if output is OutputFormat.JSON:
        for row in rows:
            print_json({"instance": instance.name, "seed": options.seed, **asdict(row)})
    else:
        unit = "slots" if problem == "admission" else "leases"
        print_rows([_shown(row) for row in rows], output, title=f"completion in {unit} from the start")
    _print_summary(instance, problem, rows, options)
    if interruption.is_requested:
        return ExitCode.INTERRUPTED
    if any(row.is_exact is False for row in rows):
        return error_exit("a job's result differs from that of an undisturbed run", ExitCode.REFUSED)
    return ExitCode.DONE if all(row.realised_slots is not None for row in rows) else ExitCode.NOTHING


def _play_plan(instance: Any, problem: str, decision: Any, options: Any, asked: Any) -> Any:
    """Return one row per job of an admission plan, or per app with a lease."""
    if problem == "admission":
        from optim.simulation.emulation.plan_run import run_plan

        return run_plan(instance, decision, options, **asked)
    from optim.simulation.emulation.auction_run import run_leases

    return run_leases(instance, decision, options, **asked)


def _print_summary(instance: Any, problem: str, rows: Any, options: Any) -> None:
    """Print the errors of planned completion, and the planned and realised utility."""
    from optim.simulation.emulation.auction_run import log_welfare
    from optim.simulation.emulation.plan_run import summary_of

    own_s = instance.slot_micro_s / 1e6 if problem == "admission" else 60.0 * instance.lease_min
    what = "slot" if problem == "admission" else "lease"
    info(f"time scale: a {what} of {own_s:g} s runs in {options.slot_s:g} s (factor {options.slot_s / own_s:.3g})")
    found = summary_of(rows)
    if found.median_error is not None:
        info(
            f"completion error: median {found.median_error:.1%}, p90 {found.p90_error:.1%}, maximum {found.max_error:.1%}, "
            f"mean {found.mean_error:+.1%}; {found.unfinished} of {found.jobs} {'jobs' if problem == 'admission' else 'apps'} unfinished"
        )
    if problem == "admission":
        info(f"utility: planned {found.planned_utility:.6g}, realised {found.realised_utility:.6g}")
    elif (welfare := log_welfare(rows)) is not None:
        info(f"log welfare of the apps with leases: planned {welfare[0]:.6g}, realised {welfare[1]:.6g}")


def _shown(row: Any) -> dict[str, object]:
    """Return the printed columns of a job or app."""
    is_done = row.realised_slots is not None
    return {
        "job": row.job, "application": row.application, "planned": row.planned_slots, "realised": row.realised_slots,
        "late": row.realised_slots - row.planned_slots if is_done else None, "error": row.error, "utility planned": row.planned_utility,
        "utility realised": row.realised_utility, "clocks": row.clocks, "changes": row.changes,
        "first loss": row.first_loss, "last loss": row.last_loss, "exact": row.is_exact,
        **({"GPUs": row.gpus, "in one": row.placement} if hasattr(row, "gpus") else {}),
    }  # fmt: skip


def _drill(kills: int, replay_mb: float, seed: int, output: OutputFormat) -> ExitCode:
    """Kill active servers, and print one row per kill."""
    from optim.kernels.parameter_server import Adagrad
    from optim.training.applications import LogisticRegression
    from optim.training.drill import DrillOptions, kill_servers
    from optim.training.stages import ClusterOptions

    application = LogisticRegression(num_observations=800, num_features=40, num_partitions=4, seed=seed)
    cluster = ClusterOptions(num_shards=2, sync_every=3, replay_mb=replay_mb)
    rows = []
    for row in kill_servers(application, Adagrad(learning_rate=0.1), cluster, DrillOptions(kills=kills, seed=seed)):
        rows.append(row)
        if output is OutputFormat.JSON:
            print_json(asdict(row))
    if output is OutputFormat.TABLE:
        print_rows([asdict(row) for row in rows], output)
        print_line(
            f"{sum(row.is_equal for row in rows)} of {len(rows)} recovered runs have the same training losses as the undisturbed run"
        )
    if all(row.is_equal for row in rows):
        return ExitCode.DONE
    return error_exit(
        "the training losses of a recovered run differ from those of the undisturbed run", ExitCode.REFUSED
    )

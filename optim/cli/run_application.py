"""`optim run --application`: train one application, on data of one's own, with checkpoints that survive everything."""

from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from optim.cli.border import note
from optim.cli.exit_code import ExitCode
from optim.cli.interruption import listening
from optim.cli.output import OutputFormat, print_json, print_rows
from optim.cli.parameters import option
from optim.core.errors import InvalidOptionError, OptimError
from optim.core.ranges import check_in
from optim.training.forms import Compression, NonFinite, Pushes

if TYPE_CHECKING:
    from optim.kernels.parameter_server import AbstractOptimiser
    from optim.training.application import Application

SHOWN = 10
"""Clocks between two rows of the table."""


@dataclass(frozen=True, kw_only=True)
class PushChoice:
    """How workers push."""

    staleness: Annotated[int, option("--staleness", "Clocks that a worker may be ahead; 0 keeps all bits.", min=0)] = 0
    delay_compensation: Annotated[
        float, option("--delay-compensation", "Strength of correcting late gradients.", min=0.0)
    ] = 0.0
    compression: Annotated[Compression, option("--compression", "What of gradients is pushed.")] = Compression.NONE
    top_share: Annotated[float, option("--top-share", "Of the entries, that top-k pushes.", "SHARE")] = 0.1
    feedback: Annotated[bool, option("--feedback", "Add what top-k left out to the next push.")] = False
    pushes: Annotated[Pushes, option("--pushes", "By rows or whole; auto: as their density says.")] = Pushes.AUTO
    non_finite: Annotated[
        NonFinite,
        option("--non-finite", "Gradients that are infinite or no number: stop, skip them, or refuse them once."),
    ] = NonFinite.STOP
    devices: Annotated[int, option("--devices", "Of the server, over which a shard is spread.", min=1)] = 1
    replay_mb: Annotated[
        float,
        option("--replay-mb", "Kept pushes, replayed when a server dies; also for --kill-servers.", "MB", min=0.0),
    ] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationRun:
    """What is asked for: the options of the command."""

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
        usual, own = PushChoice(), self.pushes
        if own.top_share != usual.top_share and own.compression is not Compression.TOP_K:
            raise InvalidOptionError("--top-share is of --compression top-k; add it, or leave --top-share out")
        if own.delay_compensation and not own.staleness:
            raise InvalidOptionError(
                "--delay-compensation corrects late gradients, and none is without --staleness N; add it, or leave it out"
            )


def train_application(asked: ApplicationRun, output: OutputFormat) -> ExitCode:
    """Train with worker processes, and print a row for each clock (JSON) or every tenth."""
    from optim.training.options import ClusterOptions
    from optim.training.processes import Processes
    from optim.training.stages import Fixed, Stage
    from optim.training.trainer import Action, Event, Trainer, resumable

    application, optimiser = chosen(asked)
    options = ClusterOptions(num_shards=1, policy=Fixed(fixed=Stage.TRADITIONAL), **asdict(asked.pushes))
    names = tuple(f"worker-{k}" for k in range(asked.workers))
    with (
        Processes(application, options, max_machines=asked.workers) as processes,
        listening("the last checkpoint stays" if asked.checkpoint else "nothing is kept without --checkpoint") as stop,
    ):
        if asked.checkpoint is None:
            trainer = Trainer(application, optimiser, options, processes)
        else:
            trainer = resumable(application, optimiser, options, processes, asked.checkpoint)
            if trainer.clock:
                note(f"going on from clock {trainer.clock} of {asked.checkpoint}")
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
    """Return the application, on the user's data if there is some, and a rule that suits it.

    Raises
    ------
    InvalidOptionError
        If there is no such application, or it takes no file.
    """
    from optim.kernels.parameter_server import Adagrad, Sgd
    from optim.training.applications import APPLICATIONS

    if asked.name in APPLICATIONS:
        kind = APPLICATIONS[asked.name]
        own = (
            kind(seed=asked.seed) if asked.data is None else kind.from_file(str(asked.data.resolve()), seed=asked.seed)
        )
        is_descent = asked.name == "topic-model"  # its gradient is a natural one: the rate says how far to go along it
        if is_descent:
            return own, Sgd(learning_rate=min(asked.rate, 1.0))
        # What a worker hasn't seen applied yet simply adds only without slots.
        return own, (Sgd if asked.pushes.staleness else Adagrad)(learning_rate=asked.rate)
    rule = (Sgd if asked.pushes.staleness else Adagrad)(learning_rate=asked.rate)
    return _own(asked), rule


def _own(asked: ApplicationRun) -> "Application":
    """Return an application of the user's own, made by code that may fail in any way."""
    from optim.core.own_code import in_a_line
    from optim.training.application import check_application
    from optim.training.applications import APPLICATIONS

    module, _, name = asked.name.partition(":")
    if not (module and name.isidentifier()):
        raise InvalidOptionError(
            f"unknown application {asked.name!r}; there are: {', '.join(APPLICATIONS)}, and MODULE:CLASS for one's own"
        )
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InvalidOptionError(f"--application {asked.name}: {error}; the module must be on PYTHONPATH") from error
    except (Exception, SystemExit) as error:  # anything may happen in somebody else's module
        raise InvalidOptionError(f"--application {asked.name}: {in_a_line(error)}; mend the module") from error
    try:
        own: Application = found() if asked.data is None else found(str(asked.data))
        check_application(own)
        own.initial_parameters()
    except OptimError:
        raise
    except (Exception, SystemExit) as error:
        raise InvalidOptionError(f"--application {asked.name}: {in_a_line(error)}; mend the class") from error
    return own

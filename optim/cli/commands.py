"""The sub-commands: where each lives, and what its help ends with. One is loaded when it is called, for that takes its time."""

from functools import cache, partial
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from optim.cli.examples import EXAMPLES
from optim.cli.parameters import check_inputs_stay


class Listed(NamedTuple):
    """A sub-command by its module and attribute, and what the list of commands says of it."""

    module: str
    attribute: str
    help: str


COMMANDS = {
    "bench": Listed("optim.cli.bench", "bench", "Run suites: every solver on every instance, each answer verified."),
    "solve": Listed(
        "optim.cli.solve",
        "solve",
        "Solve an instance. What is printed and written is verified; exit code 3 if the checker refuses it.",
    ),
    "verify": Listed(
        "optim.cli.verify",
        "verify",
        "Recompute every claim of a solution from the instance alone, or replay a logged run; exit code 3 if one doesn't hold.",
    ),
    "profile": Listed(
        "optim.cli.profile",
        "profile",
        "Measure training jobs on this machine: tau, e, b, B, speed functions, scaling, slowdown by placement.",
    ),
    "instance": Listed("optim.cli.instance", "app", "Make, convert and describe instances."),
    "phases": Listed("optim.cli.phases", "app", "Find phases in what containers consume."),
    "containers": Listed("optim.cli.containers", "app", "What containers should ask for."),
    "simulate": Listed("optim.cli.simulate", "app", "Run policies in a simulated world."),
    "run": Listed(
        "optim.cli.run",
        "run",
        "Train the jobs of an admission solution, or an auction's leases, on this machine: planned against realised completion.",
    ),
    "solvers": Listed(
        "optim.cli.solvers",
        "solvers",
        "List the solvers of each problem with their options and defaults, or explain the options of one solver.",
    ),
    "info": Listed(
        "optim.cli.info",
        "info",
        "Show versions, processor and devices, and what problems, solvers, suites and instances there are.",
    ),
}


def stub(name: str) -> Any:
    """Return what stands for a sub-command in lists."""
    return TyperCommand(name=name, help=COMMANDS[name].help)


@cache
def load(name: str) -> Any:
    """Return a sub-command with its examples; built once a process, for that takes ten times as long as reading words."""
    listed = COMMANDS[name]
    found = getattr(import_module(listed.module), listed.attribute)
    app = found
    if not isinstance(found, typer.Typer):
        app = typer.Typer(add_completion=False)
        app.command(name)(found)
    app._add_completion = False  # the root's own completion is that of all
    command: Any = typer.main.get_command(app)
    _end_with_examples(command, name)
    return command


def _invoke(run: Any, context: Any) -> Any:
    """Run a command once it is clear that it writes over nothing that it reads."""
    check_inputs_stay(context.params)
    return run(context)


def _end_with_examples(command: Any, path: str) -> None:
    """Let the help of a command, and of those below it, end with its examples, and have it leave its inputs alone."""
    if isinstance(command, TyperGroup):
        for name, each in command.commands.items():
            _end_with_examples(each, f"{path} {name}")
        return
    command.invoke = partial(_invoke, command.invoke)
    if path in EXAMPLES:
        lines = [f"optim {path} {words}".rstrip().replace("[", "\\[") for words in EXAMPLES[path]]
        command.epilog = "\n\n".join(["Examples:", *lines])

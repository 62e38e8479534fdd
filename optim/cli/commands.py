"""The sub-commands: their modules, the examples in their help, and shell completion."""

import pkgutil
import re
from collections.abc import Callable, Iterable
from functools import cache, partial
from importlib import import_module
from importlib.resources import files
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from optim.cli.parameters import check_inputs_stay
from optim.core.optional import installed_names
from optim.workloads.traces.sacct_command import COMMAND as SACCT

EXAMPLES: dict[str, tuple[str, str, str]] = {
    "bench": (
        "",
        "admission --instance small-0,small-1 --solver online,search --time-limit 10",
        "auction --apps 64 --gpus 256 --machines 32 --seed 0,1,2 --format json",
    ),
    "solve": (
        "small-0 --solver search --time-limit 10",
        "auction-tiny-0 --out s.json",
        "mine.json --solver branch-and-price --options-file options.toml",
    ),
    "verify": ("small-0 s.json", "admission mine.json s.json", "run.npz"),
    "profile": (
        "--out profile.json",
        "--application matrix-factorisation --scale 0.02 --out profile.json",
        "--command 'python train.py --workers {workers}' --workers 1,2 --name mine --out mine.json",
    ),
    "run": ("tiny-0 s.json", "tiny-0 s.json --slot-seconds 2 --cores 1", "--kill-servers 5"),
    "solvers": ("", "admission search", "bidding --format json"),
    "info": ("", "--format json", "--format table"),
    "instance generate": (
        "admission --jobs 20 --slots 24 --out i.json",
        "auction --apps 6 --gpus 16 --machines 4 --seed 3 --out a.json.gz",
        "bidding --profile published --out b.json",
    ),
    "instance convert": (
        "--trace mine.csv --trace-format csv --jobs 100 --slots 168 --slot-minutes 60 --out i.json",
        "--trace jobs.csv.gz --trace-format philly --jobs 50 --slots 96 --out i.json",
        "i.json --out i.json.gz",
    ),
    "instance describe": ("small-0", "mine.json", "prices.json --format json"),
    "instance schema": ("admission", "auction", "bidding"),
    "simulate cluster": (
        "--generate themis --apps 20 --gpus 4x8 --policy srsf,tiresias",
        "--trace mine.csv --gpus 4x8 --policy fifo,srtf,las --log run.npz",
        "--generate philly --jobs 500 --gpus 8x8 --policy fifo --report page.html",
    ),
    "simulate spot": (
        "--starts 50 --job-hours 10",
        "--prices prices.csv.gz --on-demand on_demand.csv.gz --policy proteus --policy on-demand --train-until 2015-06-01",
        "--availability zones.csv --on-demand 3.06 --zone us-west-2a --job-hours 48 --deadline-hours 52",
    ),
    "simulate training": (
        "",
        "--policy proteus --job-hours 6 --picture run.png",
        "--no-warning --clocks 60",
    ),
    "simulate containers": (
        "",
        "--generate 200 --policy phase-price --policy vpa",
        "--input cpu=cpu.json --input memory=mem.json --report page.html",
    ),
    "simulate packing": ("", "--jobs 60 --servers 3", "--risk 0.01 --solver search --time-limit 10"),
    "containers recommend": (
        "--generate 20 --cycle-minutes 30 --out recommended.json",
        "--input metrics.csv --format yaml --out patches.yaml",
        "--input cpu=cpu.json --input memory=mem.json --cycle-minutes 30",
    ),
    "containers idle": (
        "--input gpu_util.json",
        "--input gpu_util.json --below 5,20 --after 30,60 --format json",
        "--input gpu_util.csv --by user --gpus 60x8 --trace jobs.csv",
    ),
    "phases fit": (
        "--generate 400 --phases 5 --out model.npz",
        "--input metrics.csv --out model.npz",
        "--input cpu=cpu.json --input memory=mem.json --encoder hmm --out model.npz",
    ),
    "phases encode": (
        "model.npz --input metrics.csv",
        "model.npz --generate 10",
        "model.npz --generate 10 --format json",
    ),
    "phases graph": ("model.npz", "model.npz --format json", "other.npz"),
    "phases report": (
        "model.npz --out page.html",
        "model.npz --generate 10 --out page.html",
        "model.npz --input metrics.csv --out page.html",
    ),
    "phases score": ("", "--encoder hmm,crbm --seeds 0,1,2", "--generate 100 --format json"),
    "phases watch": (
        "model.npz --input metrics.csv",
        "model.npz --generate 20",
        "model.npz --generate 20 --format json",
    ),
    "phases forecast": (
        "model.npz --input metrics.csv",
        "model.npz --generate 5",
        "model.npz --generate 5 --format json",
    ),
}

Complete = Callable[[str], list[str]]

_REGISTERED = re.compile(r"""^@register\("([^"]+)", problem="([^"]+)"\)""", re.MULTILINE)


def matching(names: Callable[[], Iterable[str]]) -> Complete:
    """Return a completer for a name, or for the last of several comma-separated names."""

    def complete(incomplete: str) -> list[str]:
        done, comma, begun = incomplete.rpartition(",")
        taken = set(done.split(","))
        return [f"{done}{comma}{name}" for name in sorted(names()) if name.startswith(begun) and name not in taken]

    return complete


def registered_solvers() -> tuple[str, ...]:
    """Return the names of all solvers, parsed from their source files, because importing them takes seconds."""
    from optim.models.catalogue import problem_names

    found = set()
    for problem in problem_names():
        for path in (files("optim") / "solvers" / problem).iterdir():
            if path.name.endswith(".py"):
                found |= {name for name, _ in _REGISTERED.findall(path.read_text(encoding="utf-8"))}
    return tuple(sorted(found))


def suite_names() -> tuple[str, ...]:
    """Return the names of the suites, from file names and plug-ins' entry points."""
    folder = files("optim") / "benchmarks" / "suites"
    shipped = {module.name.replace("_", "-") for module in pkgutil.iter_modules([str(folder)])}
    return tuple(sorted(shipped | set(installed_names("optim.suites"))))


def instance_names() -> tuple[str, ...]:
    """Return the names of the reference instances."""
    from optim.models.reference import reference_names

    return reference_names()


def problems() -> tuple[str, ...]:
    """Return the names of the problems."""
    from optim.models.catalogue import problem_names

    return problem_names()


def policies(*worlds: str) -> tuple[str, ...]:
    """Return the names of the policies of the given worlds."""
    from optim.core.policies import policy_names

    return tuple(sorted({name for world in worlds for name in policy_names(world)}))


complete_solver = matching(registered_solvers)

complete_suite = matching(suite_names)

complete_instance = matching(instance_names)

complete_problem = matching(problems)

complete_problem_or_instance = matching(lambda: (*problems(), *instance_names()))


def complete_policy(*worlds: str) -> Complete:
    """Return a completer for the policies of the given worlds."""
    return matching(partial(policies, *worlds))


class Listed(NamedTuple):
    """Module and attribute of a sub-command, and its help in the list of commands."""

    module: str
    attribute: str
    help: str


COMMANDS = {
    "bench": Listed(
        "optim.cli.bench",
        "bench",
        "Run benchmark suites: every solver on every instance, with verified solutions.",
    ),
    "solve": Listed(
        "optim.cli.solve",
        "solve",
        "Solve an instance, verify the solution, and print it; exit code 3 if the checker refuses it.",
    ),
    "verify": Listed(
        "optim.cli.verify",
        "verify",
        "Recompute every claim of a solution from the instance, or replay a logged run; exit code 3 if a claim is false.",
    ),
    "profile": Listed(
        "optim.cli.profile",
        "profile",
        "Profile training jobs on this machine: step times, bandwidths, speed functions, scaling, placement slowdown.",
    ),
    "instance": Listed("optim.cli.instance", "app", "Generate, convert and describe instances."),
    "phases": Listed("optim.cli.phases", "app", "Find phases in the resource usage of containers."),
    "containers": Listed(
        "optim.cli.containers", "app", "Recommend container requests and limits, and report idle GPUs."
    ),
    "simulate": Listed("optim.cli.simulate", "app", "Run policies in a simulation."),
    "run": Listed(
        "optim.cli.run",
        "run",
        "Execute an admission or auction solution with real training processes, and compare planned with realised completion.",
    ),
    "solvers": Listed(
        "optim.cli.solvers",
        "solvers",
        "List the solvers of each problem with their options and defaults, or explain the options of one solver.",
    ),
    "info": Listed(
        "optim.cli.info",
        "info",
        "Show versions, processor, devices, and the available problems, solvers, suites and instances.",
    ),
}

NOTES = {"simulate cluster": (f"Jobs of a Slurm cluster, for --trace and --state:\n\n{SACCT}",)}
"""Paragraphs before the examples of a sub-command."""


def stub(name: str) -> Any:
    """Return a placeholder with the help of a sub-command, without importing its module."""
    return TyperCommand(name=name, help=COMMANDS[name].help)


@cache
def load(name: str) -> Any:
    """Return a sub-command with its examples; cached, because building it takes ten times as long as parsing."""
    listed = COMMANDS[name]
    found = getattr(import_module(listed.module), listed.attribute)
    app = found
    if not isinstance(found, typer.Typer):
        app = typer.Typer(add_completion=False)
        app.command(name)(found)
    app._add_completion = False  # the root command provides completion
    command: Any = typer.main.get_command(app)
    _end_with_examples(command, name)
    return command


def _invoke(run: Any, context: Any) -> Any:
    """Run a command after checking that it overwrites none of its inputs."""
    check_inputs_stay(context.params)
    return run(context)


def _end_with_examples(command: Any, path: str) -> None:
    """Add examples to the help of a command and its sub-commands, and check that a call overwrites no input."""
    if isinstance(command, TyperGroup):
        for name, each in command.commands.items():
            _end_with_examples(each, f"{path} {name}")
        return
    command.invoke = partial(_invoke, command.invoke)
    if path in EXAMPLES:
        lines = [f"optim {path} {words}".rstrip().replace("[", "\\[") for words in EXAMPLES[path]]
        command.epilog = "\n\n".join([*NOTES.get(path, ()), "Examples:", *lines])

"""The console entry: `optim` and its sub-commands."""

from typing import Annotated

import typer

from optim.cli.border import OptimGroup, open_missing_streams
from optim.cli.messages import show_logs
from optim.cli.output import be_quiet, print_line
from optim.cli.parameters import split_options, whole_number
from optim.core.limits import read_limits

app = typer.Typer(
    name="optim",
    cls=OptimGroup,
    help="Optimisation for machine-learning clusters: solve, certify, verify, benchmark.",
    epilog="Exit codes: 0 done and verified, 1 no result or incomplete work, 2 wrong use or bad input, "
    "3 certificate refused, 4 regression, 130 interrupted, 141 output pipe closed.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        import optim

        print_line(f"optim {optim.__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print all log messages to stderr.")] = False,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            "--limit",
            metavar="NAME=N",
            help="Raise a limit on input size (names: docs/reference/limits.md); repeatable.",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Hide progress.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and exit."),
    ] = False,
) -> None:
    """Optimisation for machine-learning clusters: solve, certify, verify, benchmark."""
    del version  # the option's callback has handled it
    show_logs(verbose)
    be_quiet(quiet)
    limits = split_options(limit, "--limit")
    context.with_resource(read_limits(**{name: whole_number(text, "--limit") for name, text in limits.items()}))


def main() -> None:
    """Run the command line and end the process with its exit code."""
    open_missing_streams()
    app()

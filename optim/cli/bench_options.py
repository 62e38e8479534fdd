"""The options of `optim bench` that no other sub-command has."""

from pathlib import Path
from typing import Annotated

import typer

from optim.cli.parameters import INSTANCES

SOLVING, RESULTS = "Solving", "Results"

SuitesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[SUITE]...", help="Suites or problems; all suites if none is given."),
]
SuiteOption = Annotated[
    list[str] | None,
    typer.Option("--suite", "--study", metavar="NAME", help="A suite (study) of the problem; repeat or commas."),
]
SizeOption = Annotated[
    str, typer.Option("--size", help="Size of the suite's own instances.", rich_help_panel=INSTANCES)
]
InstanceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--instance",
        metavar="NAME",
        help="A file, or a reference instance's name; repeat or commas.",
        rich_help_panel=INSTANCES,
    ),
]
ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="FILE",
        help="Job profiles (`optim profile` writes them), or 'published': generated jobs are of their kinds.",
        rich_help_panel=INSTANCES,
    ),
]
SeedsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--seed",
        metavar="N",
        help="Same seed, same answer; repeat or commas. Default: 0.",
        rich_help_panel=SOLVING,
    ),
]
SolversOption = Annotated[
    list[str] | None,
    typer.Option("--solver", metavar="NAME", help="Repeat or commas. Default: the suite's.", rich_help_panel=SOLVING),
]
BenchSolverOptionsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=VALUE",
        help="An option for all solvers that know it, or SOLVER.NAME=VALUE; repeat for several.",
        rich_help_panel=SOLVING,
    ),
]
ProcessesOption = Annotated[
    int, typer.Option("--processes", min=1, help="How many solves run at once.", rich_help_panel=SOLVING)
]
OutFolderOption = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="Folder of results and report.", rich_help_panel=RESULTS)
]
ResultsOption = Annotated[
    Path | None,
    typer.Option("--results", metavar="FILE", help="JSON lines. Default: DIR/bench.jsonl.", rich_help_panel=RESULTS),
]
ReportOption = Annotated[
    Path | None,
    typer.Option("--report", metavar="FILE", help="HTML page. Default: DIR/bench.html.", rich_help_panel=RESULTS),
]
NoReportOption = Annotated[bool, typer.Option("--no-report", help="Write no page.", rich_help_panel=RESULTS)]
ResumeOption = Annotated[
    bool,
    typer.Option(
        "--resume/--no-resume", help="Take over what the same code has done already.", rich_help_panel=RESULTS
    ),
]
CompareOption = Annotated[
    str | None,
    typer.Option(
        "--compare",
        metavar="GOLDEN",
        help="A results file, or the name of shipped golden results; exit code 4 on a regression.",
        rich_help_panel=RESULTS,
    ),
]
WriteGoldenOption = Annotated[
    Path | None,
    typer.Option(
        "--write-golden",
        metavar="FILE",
        help="Store the results to compare with later.",
        rich_help_panel=RESULTS,
    ),
]

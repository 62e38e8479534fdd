"""The options of `optim bench` that no other sub-command has."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from optim.cli.completion import complete_instance, complete_solver, complete_suite
from optim.cli.parameters import INSTANCES, option
from optim.core.errors import InvalidOptionError

SOLVING, RESULTS = "Solving", "Results"
PROFILES = "Job profiles (`optim profile` writes them), or 'published': generated jobs are of their kinds."
OPTIONS = "An option for all solvers that know it, or SOLVER.NAME=VALUE; repeat for several."
GOLDEN = (
    "One of --solver: paired differences with intervals. Or a results file, or the name of shipped golden results; "
    "exit code 4 on a regression, also of merged results."
)

Several = list[str] | None
SuitesArgument = Annotated[
    Several,
    typer.Argument(
        autocompletion=complete_suite, metavar="[SUITE]...", help="Suites or problems; default: all suites."
    ),
]


@dataclass(frozen=True, kw_only=True)
class SuiteChoice:
    """Which suites, of which size, on which instances."""

    suite: Annotated[
        Several,
        option(
            "--suite,--study",
            "A suite (study) of the problem; repeat or commas.",
            "NAME",
            autocompletion=complete_suite,
        ),
    ] = None
    size: Annotated[str, option("--size", "Size of the suite's own instances.", panel=INSTANCES)] = "small"
    instance: Annotated[
        Several,
        option(
            "--instance",
            "A file, or a reference instance's name; repeat or commas.",
            "NAME",
            INSTANCES,
            autocompletion=complete_instance,
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class SolveChoice:
    """Which solvers, and how they are run."""

    solver: Annotated[
        Several,
        option("--solver", "Repeat or commas. Default: the suite's.", "NAME", SOLVING, autocompletion=complete_solver),
    ] = None
    settings: Annotated[Several, option("--option", OPTIONS, "NAME=VALUE", SOLVING)] = None
    seed: Annotated[
        Several, option("--seed", "Same seed, same answer; repeat or commas. Default: 0.", "N", SOLVING)
    ] = None
    time_limit: Annotated[
        float | None, option("--time-limit", "Wall-clock limit of a solve in seconds.", "S", SOLVING)
    ] = None
    history: Annotated[
        Several,
        option("--history", "Earlier days, or a forecast, for online-learned; repeat or commas.", "FILE", SOLVING),
    ] = None
    histories: Annotated[
        int | None,
        option("--histories", "Earlier days of each instance: shipped, or else drawn.", "N", SOLVING, min=0, max=1_000),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ResultsChoice:
    """Where results go, and what they are compared with."""

    out: Annotated[Path, option("--out", "Folder of results and report.", "DIR", RESULTS)] = Path("results")
    results: Annotated[Path | None, option("--results", "JSON lines. Default: DIR/bench.jsonl.", "FILE", RESULTS)] = (
        None
    )
    report: Annotated[Path | None, option("--report", "HTML page. Default: DIR/bench.html.", "FILE", RESULTS)] = None
    no_report: Annotated[bool, option("--no-report", "Write no page.", panel=RESULTS)] = False
    rows: Annotated[bool, option("--rows", "Print every row, however many.", panel=RESULTS)] = False
    resume: Annotated[
        bool, option("--resume/--no-resume", "Take over what the same code has done already.", panel=RESULTS)
    ] = True
    merge: Annotated[
        Path | None,
        option(
            "--merge", "Run nothing: join this and the files named after it, print and compare them.", "FILE", RESULTS
        ),
    ] = None
    compare: Annotated[str | None, option("--compare", GOLDEN, "GOLDEN", RESULTS)] = None
    write_golden: Annotated[
        Path | None, option("--write-golden", "Store the results to compare with later.", "FILE", RESULTS)
    ] = None

    def check(self) -> None:
        """Refuse to be told where a page goes that isn't written."""
        if self.no_report and self.report is not None:
            raise InvalidOptionError("--no-report writes no page; leave it out, or --report")

    @property
    def results_path(self) -> Path:
        """Where records are kept."""
        return self.results if self.results is not None else self.out / "bench.jsonl"

    @property
    def report_path(self) -> Path | None:
        """Where the page goes, None for no page."""
        return None if self.no_report else self.report if self.report is not None else self.out / "bench.html"

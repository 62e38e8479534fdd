"""`optim instance`: generate, convert and describe instances, and print the schema of their files."""

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Annotated

import typer

from optim.cli.bench import PROFILES
from optim.cli.commands import complete_problem, complete_problem_or_instance
from optim.cli.messages import ExitCode, info
from optim.cli.output import OutputFormat, print_document, print_one, print_rows
from optim.cli.parameters import (
    FormatOption,
    InstanceOptionsOption,
    JobSizes,
    OutOption,
    SeedOption,
    Sizes,
    TraceChoice,
    check_out,
    check_problem,
    grouped,
    option,
    split_options,
    split_problem,
)
from optim.core.errors import InvalidOptionError

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

app = typer.Typer(name="instance", help="Generate, convert and describe instances.", no_args_is_help=True)

PRICED = "bidding"
"""The problem that price lists belong to."""

ProblemArgument = Annotated[
    str, typer.Argument(autocompletion=complete_problem, metavar="PROBLEM", help="Name of the problem.")
]


@app.command()
@grouped
def generate(
    problem: ProblemArgument,
    *,
    sizes: Sizes,
    instance_option: InstanceOptionsOption = None,
    profile: Annotated[str | None, option("--profile", PROFILES, "FILE")] = None,
    seed: SeedOption = 0,
    out: OutOption = None,
) -> ExitCode:
    """Generate an instance from calibrated distributions, and write it to --out or stdout."""
    from optim.models.catalogue import problem_named
    from optim.workloads.instances import InstanceRequest, generated

    problem_named(problem)
    check_out(out)
    request = InstanceRequest(
        **asdict(sizes),
        options=split_options(instance_option, "--instance-option"),
        problem=problem,
        profile=profile,
    )
    (source,) = request.sources() or (generated({}, problem),)
    return _deliver(source.load(seed), out, seed)


@app.command()
@grouped
def convert(
    words: Annotated[list[str] | None, typer.Argument(metavar="[PROBLEM] [FILE]", help="An instance file.")] = None,
    *,
    trace: TraceChoice,
    sizes: JobSizes,
    instance_option: InstanceOptionsOption = None,
    seed: SeedOption = 0,
    out: OutOption = None,
) -> ExitCode:
    """Convert a public trace or an instance file to an instance, and write it to --out or stdout."""
    from optim.models.catalogue import problem_named, problem_names, problem_of
    from optim.workloads.instances import InstanceRequest

    check_out(out)
    names = list(words or ())
    problem = problem_named(names.pop(0)).name if names and names[0] in problem_names() else None
    sources = InstanceRequest(
        names=tuple(names),
        **asdict(trace),
        **asdict(sizes),
        options=split_options(instance_option, "--instance-option"),
    ).sources()
    if len(names) > 1 or sources is None or (not names and trace.trace is None):
        raise InvalidOptionError("convert needs one file, or --trace FILE")
    instance = sources[0].load(seed)
    check_problem(problem, problem_of(instance).name, names[0] if names else str(trace.trace))
    return _deliver(instance, out, seed)


@app.command()
def describe(
    words: Annotated[
        list[str],
        typer.Argument(
            autocompletion=complete_problem_or_instance,
            metavar="[PROBLEM] INSTANCE",
            help="An instance file, a price list of Amazon, Azure or Google, or the name of a reference instance.",
        ),
    ],
    output: FormatOption = OutputFormat.TABLE,
) -> ExitCode:
    """Print summary statistics of an instance, or the contents of a cloud's price list."""
    from optim.benchmarks.suite import Subject
    from optim.workloads.instances import find_instance
    from optim.workloads.prices.price_files import ListedKind, describe_list, is_price_list

    problem, (name,) = split_problem(words, ("INSTANCE",))
    if is_price_list(name):
        if problem not in (None, PRICED):
            raise InvalidOptionError(
                f"{name} is a price list, for {PRICED!r}, not for {problem!r}; omit the problem's name"
            )
        print_rows(describe_list(name), output, [field.name for field in fields(ListedKind)], title=name)
        return ExitCode.DONE
    subject = Subject(find_instance(name))
    check_problem(problem, subject.problem.name, name)
    known = {"problem": subject.problem.name, "name": subject.name, "digest": subject.digest}
    print_one({**known, **subject.parameters}, output)
    return ExitCode.DONE


@app.command()
def schema(problem: ProblemArgument) -> ExitCode:
    """Print the JSON Schema of a problem's instance files."""
    from optim.core.documents import encode
    from optim.models.catalogue import problem_named

    print_document(encode(problem_named(problem).json_schema()).decode(), is_json=True)
    return ExitCode.DONE


def _deliver(instance: "Any", out: "Path | None", seed: int) -> ExitCode:
    """Write an instance to a file or to stdout, and print its name and remarks to stderr."""
    from optim.models.catalogue import problem_of
    from optim.models.files import save

    if out is None:
        print_document(problem_of(instance).write_instance(instance).decode(), is_json=True)
    else:
        save(instance, out)
    info(f"{instance.name}, seed {seed}{f', written to {out}' if out is not None else ''}")
    if said := problem_of(instance).remarks(instance)[0]:
        info(said)
    return ExitCode.DONE

"""Jobs of a cluster as the command line asks for them: from a trace, or drawn."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from optim.cli.parameters import option
from optim.core.errors import InvalidOptionError

if TYPE_CHECKING:
    from optim.models.cluster.workload import Workload
    from optim.models.cluster.world import Cluster

JOBS = "Jobs and cluster"
GENERATORS = ("philly", "themis")
DEFAULT_FORMAT = "csv"

VIRTUAL_CLUSTER = "virtual_cluster"
CLUSTER_NAMES = (VIRTUAL_CLUSTER, "partition", "vc", "group")
"""What traces, and so their users, call virtual clusters."""


@dataclass(frozen=True, kw_only=True)
class JobChoice:
    """Which jobs are played."""

    trace: Annotated[Path | None, option("--trace", "Jobs of a trace.", "FILE", JOBS)] = None
    trace_format: Annotated[str | None, option("--trace-format", "How it is written (default: csv).", "NAME", JOBS)] = (
        None
    )
    generate: Annotated[
        str | None, option("--generate", "Draw jobs: philly (bursts), or themis (apps that arrive).", "NAME", JOBS)
    ] = None
    jobs: Annotated[int | None, option("--jobs", "The first so many in time.", panel=JOBS, min=1)] = None
    apps: Annotated[int | None, option("--apps", "Apps of --generate themis.", panel=JOBS, min=1)] = None
    since: Annotated[str | None, option("--from", "Jobs submitted from then on.", "DATE", JOBS)] = None


def take(given: dict[str, str], prefix: str) -> dict[str, str]:
    """Take the options with a prefix out of a mapping, and return them without it."""
    names = [name for name in given if name.startswith(prefix)]
    return {name.removeprefix(prefix): given.pop(name) for name in names}


def read_or_draw(
    choice: JobChoice,
    cluster: "Cluster",
    selecting: Mapping[str, str],
    own: Mapping[str, Mapping[str, str]],
    seed: int,
) -> "Workload":
    """Return the jobs.

    Parameters
    ----------
    choice, cluster
        What was asked for, and where it is to run.
    selecting
        Options of the selection besides what `choice` says.
    own
        Options of the reader (`trace`) and of the generator (`generate`).
    seed
        Of what is drawn.

    Raises
    ------
    InvalidOptionError
        If options don't go together, or one is unknown or out of its range.
    InvalidProblemError
        If the trace is bad, or no job is left.
    """
    from optim.core.options import build_options
    from optim.workloads.cluster.jobs import Selection, cluster_jobs

    _check(choice, selecting, own)
    said: dict[str, Any] = {"first": choice.jobs, "since": choice.since, "seed": seed, **selecting}
    selection = build_options(Selection, said)
    if choice.trace is not None:
        from optim.workloads.traces.formats import read_jobs
        from optim.workloads.traces.job_table import ReadOptions

        table = read_jobs(
            choice.trace, choice.trace_format or DEFAULT_FORMAT, build_options(ReadOptions, _by_one_name(own["trace"]))
        )
        return cluster_jobs(table, selection, cluster)
    if choice.generate == "philly":
        from optim.workloads.cluster.philly_jobs import PhillyOptions, draw_jobs

        number = {} if choice.jobs is None else {"jobs": choice.jobs}
        return cluster_jobs(
            draw_jobs(build_options(PhillyOptions, {**number, **own["generate"]}), seed), selection, cluster
        )
    from optim.workloads.cluster.themis_apps import ThemisOptions, draw_apps

    number = {} if choice.apps is None else {"apps": choice.apps}
    return draw_apps(build_options(ThemisOptions, {**number, **own["generate"]}), seed)


def _by_one_name(given: Mapping[str, str]) -> dict[str, str]:
    """Return a reader's options with the virtual cluster under one name, whatever a trace's column calls it."""
    called = [name for name in given if name in CLUSTER_NAMES]
    if len(called) > 1:
        raise InvalidOptionError(f"trace.{called[0]} and trace.{called[1]} mean the same; give one of them")
    return {VIRTUAL_CLUSTER if name in CLUSTER_NAMES else name: value for name, value in given.items()}


def _check(choice: JobChoice, selecting: Mapping[str, str], own: Mapping[str, Mapping[str, str]]) -> None:
    """Refuse what doesn't go together."""
    if (choice.trace is None) == (choice.generate is None):
        raise InvalidOptionError(f"give either --trace FILE or --generate {' or '.join(GENERATORS)}")
    if choice.generate is not None and choice.generate not in GENERATORS:
        raise InvalidOptionError(f"--generate must be {' or '.join(GENERATORS)}, got {choice.generate[:40]!r}")
    is_drawn, is_themis = choice.generate is not None, choice.generate == "themis"
    for name, is_given, goes_with, is_there in (
        ("--trace-format", choice.trace_format is not None, "--trace", not is_drawn),
        ("--from", choice.since is not None, "--trace", not is_drawn),
        ("--option trace.NAME", bool(own["trace"]), "--trace", not is_drawn),
        ("--option generate.NAME", bool(own["generate"]), "--generate", is_drawn),
        ("--apps", choice.apps is not None, "--generate themis", is_themis),
        ("--jobs", choice.jobs is not None, "--trace or --generate philly", not is_themis),
        *((f"--option {name}", True, "--trace or --generate philly", not is_themis) for name in selecting),
    ):
        if is_given and not is_there:
            raise InvalidOptionError(f"{name} goes with {goes_with} only; leave it out")

"""Comparison of cluster sizes: the time that more machines save, compared with the time that another policy saves."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optim.cli.cluster_outcomes import exit_code_of, named, print_stops
from optim.cli.messages import ExitCode, info
from optim.cli.output import OutputFormat, print_json, print_line, print_table
from optim.cli.parameters import split_list
from optim.core.errors import InvalidOptionError

if TYPE_CHECKING:
    from optim.core.progress import Progress
    from optim.core.stopping import Interruption
    from optim.execution import Engine
    from optim.models.cluster.cluster import Cluster
    from optim.simulation.cluster.comparison import Comparison, PolicyRequest

SHOWN = ("jct_mean_h", "ratio_to_bound", "jct_p95_h", "wait_mean_h", "utilisation", "unfinished")


DEFAULT_GPUS = "60x8"
"""Cluster if none is given."""


def sizes_of(gpus: str | None) -> tuple[str, ...]:
    """Return the sizes that ``--gpus`` gives, `DEFAULT_GPUS` without it."""
    return (gpus or DEFAULT_GPUS,) if gpus is None or Path(gpus).is_file() else tuple(split_list([gpus]))


def print_assumed_sizes(gpus: str | None, *, is_own: bool) -> None:
    """Print the assumed cluster if the user gives jobs but no `--gpus`, and the meaning of a plain number in `--gpus`."""
    if gpus is None and is_own:
        machines, each = map(int, DEFAULT_GPUS.split("x"))
        info(f"no --gpus: simulated on {DEFAULT_GPUS} ({machines * each} GPUs); give the size of your cluster")
    for text in sizes_of(gpus):
        if text.isdecimal():
            info(
                f"--gpus {text} is read as {text}x1: {text} machines of one GPU; one machine of {text} GPUs is 1x{text}"
            )


def read_sizes(texts: Sequence[str], refused: Mapping[str, Any]) -> "tuple[tuple[str, Cluster], ...]":
    """Return the text and the cluster of each size, smallest first.

    Raises
    ------
    InvalidOptionError
        If several sizes are given with an option of `refused`, have different GPU types or partitions, or the same number
        of GPUs.
    """
    from optim.workloads.cluster.topology import read_cluster

    if len(texts) < 2:
        return tuple((text, read_cluster(text)) for text in texts)
    given = [name for name, value in refused.items() if value]
    if given:
        raise InvalidOptionError(f"--gpus with several sizes excludes {', '.join(given)}; omit them")
    worlds = sorted(((text, read_cluster(text)) for text in texts), key=lambda world: world[1].num_gpus)
    if len({(world.kinds, world.gpu_types, world.partitions) for _, world in worlds}) > 1:
        raise InvalidOptionError("all sizes of --gpus must have the same types and partitions, in the same order")
    if any(one.num_gpus == other.num_gpus for (_, one), (_, other) in pairwise(worlds)):
        raise InvalidOptionError("--gpus has two sizes with the same number of GPUs; give each once")
    return tuple(worlds)


def play_sizes(
    task: "Comparison",
    worlds: "Sequence[tuple[str, Cluster]]",
    requests: "Sequence[PolicyRequest]",
    engine: "Engine",
    bound_steps: int,
    running: "tuple[Interruption, Progress, OutputFormat]",
) -> ExitCode:
    """Simulate the policies on each size, and compare the effect of more machines with that of other policies."""
    from optim.simulation.cluster.comparison import Comparison, bound

    stop, progress, output = running
    rows: list[dict[str, Any]] = []
    for text, world in worlds:
        least = bound(task.jobs, world, bound_steps, stop, progress)["bounds"]["jct_mean_h"]
        each = Comparison(task.jobs, world, task.options, task.seed, least)
        each.check(requests)
        if output is OutputFormat.TABLE:
            rows.append({"gpus": text, "policy": "lower bound", "jct_mean_h": least})
        for result in each.play(requests, engine, stop, progress):
            if result is not None:
                rows.append({"gpus": text, **result.row.flat()})
                if output is OutputFormat.JSON:
                    print_json(rows[-1])
    played = [row for row in rows if row["policy"] != "lower bound"]
    if output is OutputFormat.TABLE:
        print_table(
            ("gpus", "policy", *SHOWN),
            [
                [row["gpus"], named(row) if "preemptions" in row else row["policy"], *(row.get(name) for name in SHOWN)]
                for row in rows
            ],
        )
        print_stops(played, task.options)
        for line in worth_of_machines(played, worlds):
            print_line(line)
    return exit_code_of(played, len(worlds) * len(requests))


def worth_of_machines(rows: Sequence[Mapping[str, Any]], worlds: "Sequence[tuple[str, Cluster]]") -> list[str]:
    """Describe the time that more machines save under the first policy, and that other policies save without them."""
    mean = {(row["gpus"], row["policy"]): float(row["jct_mean_h"]) for row in rows}
    names = list(dict.fromkeys(row["policy"] for row in rows))
    said = []
    for (small, fewer), (large, more) in pairwise(worlds):
        if (small, names[0]) not in mean or (large, names[0]) not in mean:
            continue
        now, then = mean[small, names[0]], mean[large, names[0]]
        count = more.num_machines - fewer.num_machines
        added = "1 more machine" if count == 1 else f"{count} more machines"
        said.append(
            f"{small} to {large} ({added}) under {names[0]}: {now:.2f} h to {then:.2f} h on average ({then - now:+.2f} h)"
        )
        for name in names[1:]:
            if (small, name) in mean:
                other = mean[small, name]
                what = "more than" if other < then else "as much as" if other == then else "less than"
                verdict = f"saves {what} the machines" if other < now else "no saving"
                said.append(
                    f"  {name} instead of {names[0]} on {small}: {other:.2f} h ({other - now:+.2f} h), {verdict}"
                )
    return said

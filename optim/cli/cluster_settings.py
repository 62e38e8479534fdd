"""Settings of real schedulers in `optim simulate cluster`: comparison with them (`--what-if`), and export (`--write-config`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from optim.cli.cluster_outcomes import named, print_stops
from optim.cli.inputs import take
from optim.cli.messages import ExitCode, info
from optim.cli.output import OutputFormat, print_document, print_json, print_line, print_stacked
from optim.cli.parameters import option
from optim.core.errors import InvalidOptionError, UnsupportedProblemError, check_choices
from optim.models.cluster.policy_names import OTHER_SETTINGS

if TYPE_CHECKING:
    from optim.core.progress import Progress
    from optim.core.stopping import Interruption
    from optim.execution import Engine
    from optim.models.cluster.run_file import LoggedRun
    from optim.simulation.cluster.comparison import Comparison, PolicyRequest, SimulationResult

SYSTEMS = ("kueue", "slurm")
PANEL = "Settings of a real scheduler"
SHOWN = (
    *("jct_mean_h", "wait_mean_h", "jct_p95_h", "utilisation", "preemptions", "unfinished", "makespan_h"),
    *("wait_max_1_h", "wait_max_2_4_h", "wait_max_5_8_h", "wait_max_above_8_h"),
)
COLUMNS = (
    *("queue", "quota_now", "quota_then", "jobs", "wait_mean_h_now", "wait_mean_h_then", "wait_less", "wait_more"),
    *(
        "borrowed_gpu_hours_now",
        "borrowed_gpu_hours_then",
        "stopped_now",
        "stopped_then",
        "starved_h_now",
        "starved_h_then",
    ),
)


PAIRED = ("--log", "--jobs-csv", "--waits", "--limits", "--lost-by")
"""Outputs of both runs that can be combined with ``--what-if``."""


@dataclass(frozen=True, kw_only=True)
class SettingsChoice:
    """Input and output of a real scheduler's settings."""

    what_if: Annotated[
        Path | None, option("--what-if", "Queues (YAML) or slurm.conf to compare with --policy.", "FILE", PANEL)
    ] = None
    write_config: Annotated[
        str | None, option("--write-config", "Print --policy as settings of kueue or slurm.", "NAME", PANEL)
    ] = None

    @property
    def default_policy(self) -> str | None:
        """Policy to simulate if one of these options is given without ``--policy``; None without these options."""
        if self.what_if is None and self.write_config is None:
            return None
        from optim.simulation.cluster.what_if import settings_of

        return next(iter(settings_of(self.what_if))) if self.what_if is not None else "hierarchical-quota"

    def take_own(self, given: dict[str, str], names: "list[str]") -> dict[str, str]:
        """Remove the options ``POLICY.NAME=VALUE`` for the policy of ``--what-if`` from `given`, and return them.

        If `names`, the policies to simulate, contain this policy, the options apply to both runs, and stay in `given`.
        """
        other = self.default_policy
        return {} if self.what_if is None or other in names else take(given, f"{other}.")

    def check(self, names: "list[str]", written: "dict[str, Any]") -> None:
        """Check that the options are compatible with the other options of the command.

        Raises
        ------
        InvalidOptionError
            If several policies are named, both options are given, or an output in `written` is requested; ``--what-if``
            allows the outputs in `PAIRED`.
        """
        asked = [
            flag
            for flag, value in (("--what-if", self.what_if), ("--write-config", self.write_config))
            if value is not None
        ]
        if not asked:
            return
        if self.write_config is not None:
            check_choices({"--write-config": self.write_config}, {"--write-config": SYSTEMS})
        if len(asked) > 1:
            raise InvalidOptionError("--what-if and --write-config exclude each other; give one")
        if len(names) > 1:
            raise InvalidOptionError(
                f"{asked[0]} takes one policy, got {', '.join(names)[:80]}; give one with --policy"
            )
        if self.what_if is not None and not self.what_if.is_file():
            raise InvalidOptionError(f"--what-if {self.what_if} is not a file; give queues in YAML, or a slurm.conf")
        for flag, value in written.items():
            if value and not (self.what_if is not None and flag in PAIRED):
                raise InvalidOptionError(f"{flag} and {asked[0]} exclude each other; omit one")

    def check_playable(self, task: "Comparison", requests: "Sequence[PolicyRequest]") -> None:
        """Check that both policies support the jobs; errors of ``--what-if`` name its file.

        Raises
        ------
        InvalidOptionError
            If options are wrong.
        UnsupportedProblemError
            If a policy does not support these jobs.
        """
        if self.what_if is None:
            task.check(requests)
            return
        task.check(requests[:1])
        try:
            task.check(requests[1:])
        except UnsupportedProblemError as error:
            raise UnsupportedProblemError(f"--what-if {self.what_if}: {error}") from error


def print_configuration(task: "Comparison", request: "PolicyRequest", name: str) -> ExitCode:
    """Print a policy as settings of a scheduler, and its untranslatable parts to stderr."""
    from optim.simulation.cluster.operator_settings import System, settings_for

    found = settings_for(System(name), request.build(task.jobs), task.jobs, task.cluster)
    for line in found.untranslated:
        info(f"not translated: {line}")
    print_document(found.text)
    return ExitCode.DONE


def other_request(now: "PolicyRequest", path: Path, own: "Mapping[str, str]") -> "PolicyRequest":
    """Return the request for a settings file's policy: options `own`, and those of `now` if it is the same policy."""
    from optim.simulation.cluster.comparison import PolicyRequest
    from optim.simulation.cluster.what_if import settings_of

    ((name, option_name),) = settings_of(path).items()
    kept = dict(now.options) if now.name == name else {}
    return PolicyRequest(name=name, options=tuple(sorted({**kept, **own, option_name: path}.items())))


def play_what_if(
    task: "Comparison",
    requests: "Sequence[PolicyRequest]",
    engine: "Engine",
    running: "tuple[Interruption, Progress, OutputFormat]",
) -> "tuple[ExitCode, tuple[LoggedRun, ...]]":
    """Simulate two policies, print a comparison paired by job, and return both runs; none after an interruption."""
    from optim.simulation.cluster.what_if import PairedRuns, quotas_of

    stop, progress, output = running
    now, then = task.play(requests, engine, stop, progress)
    if now is None or then is None:
        return ExitCode.INTERRUPTED, ()
    quotas = [quotas_of(request.build(task.jobs), task.jobs, task.cluster) for request in requests]
    found = PairedRuns(
        jobs=task.jobs, now=now.logged.log, then=then.logged.log, quotas_now=quotas[0], quotas_then=quotas[1]
    )
    runs = (("now", now), ("then", then))
    if output is OutputFormat.JSON:
        for name, each in runs:
            print_json({"run": name, **each.row.flat()})
        for row in found.rows():
            print_json(row)
        print_json(found.summary())
    else:
        _print_paired(runs, found.rows(), found.summary(), f"{len(task.jobs)} jobs on {task.cluster.num_gpus} GPUs")
        print_stops([each.row.flat() for _, each in runs], task.options)
    unfinished = [name for name, each in runs if each.row.metrics.unfinished]
    if unfinished:
        info(f"{' and '.join(unfinished)} left jobs unfinished")
    second = then.logged
    if second.policy == now.logged.policy:
        second = replace(second, policy=f"{second.policy}{OTHER_SETTINGS}")
    return ExitCode.NOTHING if unfinished else ExitCode.DONE, (now.logged, second)


def _print_paired(
    runs: "tuple[tuple[str, SimulationResult], ...]", rows: list[dict[str, Any]], summary: dict[str, Any], title: str
) -> None:
    """Print both runs, the queues, and a summary."""
    flat = [(name, each.row.flat()) for name, each in runs]
    print_stacked(
        ("run", "policy", *SHOWN),
        [[name, named(row), *(row[key] for key in SHOWN)] for name, row in flat],
        title=title,
    )
    shown = [name for name in COLUMNS if name in COLUMNS[:1] or any(row[name] is not None for row in rows)]
    title = "queues: now (--policy), then (--what-if)"
    print_stacked(tuple(shown), [[row[name] for name in shown] for row in rows], title=title)
    less, more = (
        f"{_jobs(summary[f'wait_{side}'])} {side} ({summary[f'wait_{side}_h']:,.1f} h in total)"
        for side in ("less", "more")
    )
    print_line(f"{less}, {more}, {summary['wait_same']:,} unchanged; mean wait {summary['wait_mean_h_change']:+.3f} h")
    for side in ("less", "more"):
        moved = ", ".join(
            f"{each['job'][:30]}{each['queue'] and ' (' + each['queue'][:20] + ')'} {each['wait_h_change']:+.2f} h"
            for each in summary[f"most_{side}"]
        )
        if moved:
            print_line(f"waits that {'decrease' if side == 'less' else 'increase'} most: {moved}")
    for key, what in (("borrowed_gpu_hours", "GPU-hours borrowed"), ("stopped", "jobs stopped for others")):
        values = [summary[f"{key}_{run}"] for run, _ in runs]
        if any(value is not None for value in values):
            print_line(
                f"{what}: {', '.join(f'{_figure(value)} {run}' for value, (run, _) in zip(values, runs, strict=True))}"
            )
    if all(row["quota_now"] is None and row["quota_then"] is None for row in rows):
        return
    for key, what in (
        ("over_quota", "queues temporarily over quota"),
        ("starved", "queues whose unused quota could run one of their waiting jobs"),
    ):
        shown = [summary[f"{key}_{run}"] for run, _ in runs]
        names = ["unknown" if each is None else ", ".join(each) or "none" for each in shown]
        print_line(f"{what}: {names[0]} now; {names[1]} then")


def _jobs(count: int) -> str:
    return "1 job waits" if count == 1 else f"{count:,} jobs wait"


def _figure(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"

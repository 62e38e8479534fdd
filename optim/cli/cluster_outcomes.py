"""Further outputs of `optim simulate cluster`: differences, waits, jobs, and the list of policies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from optim.cli.border import error_exit
from optim.cli.messages import ExitCode
from optim.cli.output import OutputFormat, print_json, print_line, print_rows, show_default, write_rows
from optim.cli.parameters import check_out, option, split_list
from optim.core.errors import InvalidOptionError
from optim.models.cluster.policy_names import marked

if TYPE_CHECKING:
    from optim.models.cluster.run_file import RunRecord
    from optim.models.cluster.workload import Workload
    from optim.simulation.cluster.options import EngineOptions

PANEL = "Output"
MAX_GROUPS = 20
"""Maximum number of users or partitions in a table; those with the longest waits come first."""


@dataclass(frozen=True, kw_only=True)
class OutcomeChoice:
    """Outputs about jobs and differences."""

    jobs_csv: Annotated[
        Path | None,
        option(
            "--jobs-csv", "Write one row per job and policy, or per pending job with --forecast (CSV).", "FILE", PANEL
        ),
    ] = None
    waits: Annotated[bool, option("--waits", "Print waits by user, account, partition and gang.", panel=PANEL)] = False
    limits: Annotated[
        bool,
        option(
            "--limits", "Print run-time quantiles, to choose limits, by user, account, partition and gang.", panel=PANEL
        ),
    ] = False
    compare: Annotated[
        list[str] | None,
        option("--compare", "Print differences to this policy with 95 % intervals.", "NAME", PANEL),
    ] = None
    list_: Annotated[
        bool, option("--list", "List policies with options and oracle inputs, without simulating.", panel=PANEL)
    ] = False

    @property
    def need_events(self) -> bool:
        """Whether an output needs the events of a run."""
        return bool(self.jobs_csv is not None or self.waits or self.compare)

    def check(self, names: list[str]) -> None:
        """Check before the simulation that all outputs are possible.

        Raises
        ------
        InvalidOptionError
            If a policy of ``--compare`` is not simulated, or is the only one.
        """
        check_out(self.jobs_csv)
        for name in split_list(self.compare):
            if name not in names:
                raise InvalidOptionError(
                    f"--compare {name[:40]} must be a simulated policy: {', '.join(names)[:120]}; add it to --policy"
                )
            if len(names) < 2:
                raise InvalidOptionError(
                    f"--compare {name[:40]} requires a second simulated policy; add one to --policy"
                )

    def print_outputs(self, record: "RunRecord", output: OutputFormat, seed: int) -> None:
        """Print and write the requested outputs."""
        if self.limits:
            _print_limits(record.jobs, output)
        if self.waits:
            _print_waits(record, output)
        for name in split_list(self.compare):
            _print_differences(record, name, output, seed)
        if self.jobs_csv is not None:
            from optim.models.cluster.per_job import job_rows

            jobs, world = record.jobs, record.cluster
            write_rows(self.jobs_csv, [row for run in record.runs for row in job_rows(jobs, world, run, jobs.begin)])


STOPPED = {
    "keeps-all": "keeps all its work",
    "checkpoint": "loses its work since its last checkpoint (checkpoint_min={checkpoint_min:g})",
    "restart": "loses all its work",
}
PREEMPTS = "* stops running jobs: each {what}; restart overhead {overhead_s:g} s (--option overhead_s, preempted)"
OTHERWISE = "  preempted=checkpoint: a stopped job loses its work since the last checkpoint (checkpoint_min={checkpoint_min:g}); preempted=restart: all its work"


def named(row: "Mapping[str, Any]") -> str:
    """Return a row's policy with its queue rule (strict or backfill), and a mark if it stopped running jobs."""
    queue = f" ({row['queue']})" if row.get("queue") else ""
    return marked(f"{row['policy']}{queue}", row["preemptions"])


def print_stops(rows: "Sequence[Mapping[str, Any]]", options: "EngineOptions", *, has_details: bool = True) -> None:
    """Print the work that a stop costs if a policy stopped running jobs; with details also for other values of `preempted`."""
    if not any(row["preemptions"] for row in rows):
        return
    said = {"overhead_s": options.overhead_s, "checkpoint_min": options.checkpoint_min}
    keeps = has_details and options.preempted == "keeps-all"
    what = STOPPED[options.preempted].format(**said)
    print_line(PREEMPTS.format(what=what, **said))
    if keeps:
        print_line(OTHERWISE.format(**said))


def exit_code_of(rows: list[dict[str, Any]], wanted: int) -> ExitCode:
    """Return DONE if all rows are finished and every job ended or was rejected."""
    if len(rows) < wanted:
        return ExitCode.INTERRUPTED
    unfinished = dict.fromkeys(row["policy"] for row in rows if row["unfinished"])
    if not unfinished:
        return ExitCode.DONE
    why = {row["halted"]: row["policy"] for row in reversed(rows) if row.get("halted")}
    said = "".join(f"; {policy}: {text}" for text, policy in why.items())
    return error_exit(f"{', '.join(unfinished)} left jobs unfinished{said}", ExitCode.NOTHING)


def _print_waits(record: "RunRecord", output: OutputFormat) -> None:
    from optim.models.cluster.per_job import GROUPS, outcomes_of, wait_rows

    for run in record.runs:
        waits = outcomes_of(record.jobs, record.cluster, run).wait_us
        for by in GROUPS:
            rows = wait_rows(record.jobs, waits, by)
            title = f"{marked(run.policy, run.metrics.preemptions)}: waits by {by}, hours"
            _print_groups(rows, output, title, {"policy": run.policy, "waits_by": by})


def _print_limits(jobs: "Workload", output: OutputFormat) -> None:
    from optim.models.cluster.per_job import GROUPS, limit_rows

    for by in GROUPS:
        title = f"50, 90, 95 and 99 % quantiles of run times by {by}, hours"
        _print_groups(limit_rows(jobs, by), output, title, {"limits_by": by})


def _print_groups(rows: list[dict[str, Any]], output: OutputFormat, title: str, about: dict[str, Any]) -> None:
    """Print one row per group: all as JSON with the fields of `about`, or the first `MAX_GROUPS` as a table."""
    if output is OutputFormat.JSON:
        for row in rows:
            print_json({**about, **row})
    elif rows:
        print_rows(rows[:MAX_GROUPS], output, title=title)
        if len(rows) > MAX_GROUPS:
            print_line(f"{len(rows) - MAX_GROUPS} more: --format json")


def _print_differences(record: "RunRecord", name: str, output: OutputFormat, seed: int) -> None:
    from optim.simulation.cluster.differences import difference

    baseline = next((run for run in record.runs if run.policy == name), None)
    if baseline is None:
        return
    for run in record.runs:
        if run is baseline:
            continue
        found = difference(record.jobs, run, baseline, seed)
        if output is OutputFormat.JSON:
            hours = found.hours
            interval = [hours.low, hours.high] if hours.low > float("-inf") else None
            print_json(
                {
                    "policy": found.policy,
                    "baseline": found.baseline,
                    "jct_mean_h_more": hours.mean,
                    "interval_h": interval,
                }
                | {"weeks": hours.blocks, "is_told": hours.is_told}
            )
        else:
            shown = replace(
                found,
                policy=marked(found.policy, run.metrics.preemptions),
                baseline=marked(found.baseline, baseline.metrics.preemptions),
            )
            print_line(str(shown))


UNITS = {
    "_s": "s",
    "_us": "us",
    "_min": "min",
    "_h": "h",
    "_hours": "h",
    "_gpu_s": "GPU-s",
    "_weeks": "weeks",
    "_days": "days",
}
"""Units by suffix of an option's name."""


def unit_of(name: str) -> str:
    """Return the unit in an option's name, "" if it has none."""
    return next((UNITS[end] for end in sorted(UNITS, key=len, reverse=True) if name.endswith(end)), "")


def sees_of(policy: Any) -> str:
    """Return the job data that a policy sees but a real scheduler does not, as text."""
    return str(getattr(policy, "needs", "")) or "nothing"


def print_policies(output: OutputFormat) -> None:
    """Print per registered policy its summary and oracle inputs, and per option its default, unit and meaning."""
    import numpy as np

    from optim.benchmarks.records import plain
    from optim.core.options import option_meanings, options_as_dict
    from optim.core.policies import policies_of
    from optim.models.cluster.workload import Workload
    from optim.simulation.cluster.catalogue import make_policy

    jobs = Workload(submit_us=np.zeros(1, int), gpus=np.ones(1, int), duration_us=np.ones(1, int))
    for name, entry in policies_of("cluster").items():
        meanings, options = option_meanings(entry.options_type), entry.options_type()
        sees = sees_of(make_policy(name, jobs))
        listed = [
            {"option": each, "default": default, "unit": unit_of(each), "meaning": meanings.get(each, "")}
            for each, default in plain(options_as_dict(options)).items()
        ]
        if output is OutputFormat.JSON:
            print_json(
                {"policy": name, "summary": entry.summary, "source": entry.source, "sees": sees, "options": listed}
            )
            continue
        print_line(f"{name}: {entry.summary}")
        print_line(f"  oracle inputs (unknown to a real scheduler): {sees}")
        for row in listed:
            unit = f" {row['unit']}" if row["unit"] else ""
            print_line(f"  {name}.{row['option']}={show_default(row['default'])}{unit}: {row['meaning']}")

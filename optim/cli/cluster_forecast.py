"""`optim simulate cluster --state`: simulate from a cluster's current state, and forecast starts of pending jobs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from optim.cli.border import listening
from optim.cli.inputs import JOBS, JobChoice
from optim.cli.messages import ExitCode, info
from optim.cli.output import OutputFormat, print_rows, terminal_progress, write_rows
from optim.cli.parameters import option
from optim.core.errors import InvalidOptionError, InvalidProblemError

if TYPE_CHECKING:
    from optim.cli.parameters import EngineChoice
    from optim.core.arrays import FloatArray
    from optim.models.cluster.cluster import Cluster
    from optim.models.cluster.present import Present
    from optim.models.cluster.workload import Workload
    from optim.simulation.cluster.comparison import Comparison, PolicyRequest
    from optim.simulation.cluster.forecast import Forecast, ForecastOptions, History
    from optim.simulation.cluster.forecast_calibration import Calibration

COLUMNS = ("job", "user", "partition", "gpus", "waited_h", "start_10", "start_50", "start_90")
FEW = 8
"""Number of draws that together take about as long as the start of a process."""

MAX_ROWS = 40
"""Maximum pending jobs in the table; the CSV file and JSON contain all."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Begun:
    """A state from which a simulation begins: jobs, their current machines and run-time limits, past jobs, date of time 0."""

    jobs: "Workload"
    present: "Present"
    limit_s: "FloatArray"
    history: "History | None"
    options: "ForecastOptions"
    begin: datetime
    seed: int

    def date(self, time_us: float) -> str:
        """Return the date in UTC of a time in microseconds since time 0."""
        return (self.begin + timedelta(microseconds=round(float(time_us)))).strftime("%Y-%m-%dT%H:%M:%S")


@dataclass(frozen=True, kw_only=True)
class StartChoice:
    """The initial state of the simulation."""

    state: Annotated[
        Path | None,
        option("--state", "Initial state: output of squeue --json, sacct -P or kubectl -o json.", "FILE", JOBS),
    ] = None
    forecast: Annotated[
        int | None,
        option("--forecast", "Forecast starts of pending jobs from N random draws.", "N", JOBS, min=1, max=10_000),
    ] = None

    def check(self, outputs: Mapping[str, Any]) -> None:
        """Check that ``--forecast`` is not combined with the outputs in `outputs`.

        Raises
        ------
        InvalidOptionError
            If ``--forecast`` is combined with one of `outputs`.
        """
        given = [name for name, value in outputs.items() if value]
        if self.forecast is not None and given:
            raise InvalidOptionError(
                f"--forecast prints only starts of pending jobs (--jobs-csv and --report write them); omit {given[0]}"
            )

    def load(
        self,
        choice: JobChoice,
        cluster: "Cluster",
        selecting: Mapping[str, str],
        own: Mapping[str, Mapping[str, str]],
        own_state: Mapping[str, dict[str, str]],
        seed: int,
    ) -> Begun | None:
        """Return the jobs of the state (None without ``--state``); ``--trace`` then gives past jobs.

        Raises
        ------
        InvalidOptionError
            If options exclude each other.
        InvalidProblemError
            If a file is invalid, or the state does not fit this cluster.
        """
        given = [f"{kind}.{name}" for kind, names in own_state.items() for name in names]
        if self.state is None:
            if self.forecast is not None or given:
                wrong = "--forecast" if self.forecast is not None else f"--option {given[0][:40]}"
                raise InvalidOptionError(f"{wrong} requires --state FILE; add it")
            return None
        from optim.core.options import build_options
        from optim.simulation.cluster.forecast import ForecastOptions
        from optim.workloads.cluster.queue_states import begin_from, read_queue_state
        from optim.workloads.traces.job_table import EPOCH
        from optim.workloads.traces.queue_state import NO_REQUEST

        if choice.generate is not None:
            raise InvalidOptionError("--generate and --state exclude each other; give past jobs as --trace FILE")
        now = own_state["state"].pop("now", None)
        if own_state["state"]:
            raise InvalidOptionError(
                f"unknown option state.{next(iter(own_state['state']))[:40]}; the only one is state.now"
            )
        queue = read_queue_state(self.state, now)
        jobs, present, limit_s = begin_from(queue, cluster)
        draws = {} if self.forecast is None else {"draws": self.forecast}
        begun = Begun(
            jobs=jobs,
            present=present,
            limit_s=limit_s,
            history=_history(self.state, choice, cluster, selecting, own, queue.now_s),
            options=build_options(ForecastOptions, {**own_state["forecast"], **draws}),
            begin=EPOCH + timedelta(seconds=min(job.submit_s for job in queue.jobs)),
            seed=seed,
        )
        running, pending = len(present.starts), int(present.is_pending(jobs).sum())
        unknown = queue.dropped.get(NO_REQUEST, 0)
        if unknown and not pending:
            raise InvalidProblemError(
                f"{self.state}: no pending job states its GPUs; print the column ReqTRES (sacct --format)"
            )
        left_out = f", {unknown} of them left out: their GPUs are unknown (print ReqTRES)"
        info(
            f"state at {begun.date(present.now_us)} UTC: {running} running {'job' if running == 1 else 'jobs'}, {pending + unknown} pending"
            f"{left_out if unknown else ''}"
        )
        if self.forecast is None:
            return _with_means(begun)
        if begun.history is None:
            raise InvalidOptionError("--forecast draws run times from past jobs; give a trace with --trace FILE")
        return begun


def _with_means(begun: Begun) -> Begun:
    """Set each job's run time to the mean of similar past jobs that ran longer than the job has run so far, if there are any."""
    import numpy as np

    from optim.models.cluster.workload import US
    from optim.simulation.cluster.forecast import estimated

    if begun.history is None:
        info(
            "run times are unknown: using limits, or one more hour for jobs without limit; give past jobs with --trace"
        )
        return begun
    held = begun.present.held_us(len(begun.jobs))
    known = begun.history.run_times(begun.jobs, begun.present)
    traits = begun.history.traits_of(begun.jobs, begun.present)
    mean = known.mean_s(traits, held / US)
    mean = np.fmin(mean, np.where(begun.limit_s * US > held, begun.limit_s, np.inf))
    info(
        "run times: means of past jobs by user, partition and size, given the time already run; --forecast N draws them"
    )
    lasting = np.maximum(held + 1, np.rint(mean * US).astype(np.int64))
    jobs = estimated(begun.jobs, known, traits, held)
    return replace(begun, jobs=replace(jobs, duration_us=lasting))


def _history(
    state: Path,
    choice: JobChoice,
    cluster: "Cluster",
    selecting: Mapping[str, str],
    own: Mapping[str, Mapping[str, str]],
    now_s: float,
) -> "History | None":
    """Return the past jobs of the trace, or of a state that also lists ended jobs; None if there are none."""
    import numpy as np

    from optim.core.options import build_options
    from optim.models.cluster.workload import US
    from optim.simulation.cluster.forecast import History
    from optim.workloads.cluster.jobs import Selection, cluster_jobs
    from optim.workloads.cluster.queue_states import is_table_of_jobs
    from optim.workloads.traces.formats import DEFAULT_FORMAT, read_jobs
    from optim.workloads.traces.job_table import EPOCH, ReadOptions, by_one_name

    options = build_options(ReadOptions, by_one_name(own["trace"], "trace."))
    said: dict[str, Any] = {"oversized": "drop", **selecting, "since": choice.since, "first": choice.jobs}
    if choice.trace is not None:
        table = read_jobs(choice.trace, choice.trace_format or DEFAULT_FORMAT, options)
    elif is_table_of_jobs(state):
        try:
            table = read_jobs(state, "sacct", options)
        except InvalidProblemError:
            return None
        if not len(table):
            return None
    else:
        return None
    past = cluster_jobs(table, build_options(Selection, said), cluster)
    last_us = int((past.submit_us + past.duration_us).max())
    now_us = last_us if past.begin is None else round((now_s - (past.begin - EPOCH).total_seconds()) * US)
    if now_us < int(past.submit_us[-1]):
        raise InvalidOptionError(
            "past jobs (--trace) must be submitted before the time of the state; remove later jobs, or give a later time by state.now"
        )
    return History(jobs=past, run_us=past.duration_us, has_ended=np.ones(len(past), np.bool_), now_us=now_us)


def print_forecast(
    begun: Begun,
    task: "Comparison",
    requests: "tuple[PolicyRequest, ...]",
    jobs_csv: Path | None,
    report: Path | None,
    where: "EngineChoice",
    output: OutputFormat,
) -> ExitCode:
    """Forecast the starts of pending jobs under each policy, and print and write them."""
    from optim.simulation.cluster.forecast import forecast
    from optim.simulation.cluster.forecast_calibration import calibrate

    assert begun.history is not None
    found: list[tuple[str, Forecast]] = []
    told: list[str] = []
    with (
        terminal_progress() as progress,
        listening("finished draws will be used") as stop,
        where.opened(num_short=begun.options.draws // FEW) as executor,
    ):
        for request in requests:
            if stop.is_requested:
                break
            about = (begun.jobs, begun.present, task.cluster, request.build, begun.history)
            how: dict[str, Any] = {
                "options": begun.options, "engine": task.options, "limit_s": begun.limit_s, "seed": begun.seed,
                "executor": executor, "stop": stop, "progress": progress,
            }  # fmt: skip
            made = forecast(*about, **how)
            known = calibrate(*about, **how)
            found.append((request.name, replace(made, spread=known.spread)))
            told.append(f"{request.name}: {calibration_text(known)}")
    for line in told:
        info(line)
    rows: list[dict[str, Any]] = []
    for name, made in found:
        own = forecast_rows(begun, name, made)
        rows += own
        title = f"{name}: {len(own)} pending jobs, {len(made.start_us)} draws"
        print_rows(own if output is OutputFormat.JSON else own[:MAX_ROWS], output, COLUMNS, title=title)
        if output is OutputFormat.TABLE and len(own) > MAX_ROWS:
            info(f"{len(own) - MAX_ROWS} more pending jobs: --jobs-csv FILE or --format json")
    if jobs_csv is not None:
        write_rows(jobs_csv, rows)
    if report is not None:
        from optim.report.cluster_forecast import write_forecast_report

        write_forecast_report(begun.jobs, begun.present, begun.begin, found, told, report)
    is_cut = len(found) < len(requests) or len(found[-1][1].start_us) < begun.options.draws
    return ExitCode.INTERRUPTED if is_cut else ExitCode.DONE


def calibration_text(known: "Calibration") -> str:
    """Describe the calibration of the start ranges on past times."""
    if not known.moments:
        return f"ranges are not calibrated: {known.reason}"
    as_drawn = f"at {known.moments} past times, drawn ranges contained {known.held:.0%} of the starts"
    if not known.spread:
        return f"ranges are calibrated: {as_drawn}"
    return f"ranges are calibrated: {as_drawn}; waits are stretched (standard deviation of the logarithm: {known.spread:g})"


def forecast_rows(begun: Begun, policy: str, made: "Forecast") -> list[dict[str, Any]]:
    """Return one row per pending job: its identity, waiting time, and quantiles of its start as UTC dates."""
    from optim.models.cluster.workload import US

    jobs = begun.jobs
    rows = []
    for row, starts in zip(made.rows.tolist(), made.quantiles_us().T, strict=True):
        told = {f"start_{level}": begun.date(start) for level, start in zip((10, 50, 90), starts, strict=True)}
        waited = (begun.present.now_us - int(jobs.submit_us[row])) / US / 3600
        rows.append(
            {
                "policy": policy,
                "job": jobs.ids[row],
                "user": jobs.users[jobs.user[row]],
                "partition": jobs.groups[jobs.group[row]],
                "gpus": int(jobs.gpus[row]),
                "waited_h": round(waited, 4),
                **told,
            }
        )
    return rows

"""Traces that are one table with one row per job: the user's, Tiresias', Muri's, Helios' and Acme's."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optim.core.arrays import FloatArray, TextArray
from optim.core.errors import InvalidProblemError
from optim.core.optional import import_extra as require_package
from optim.models.cluster.workload import ELSEWHERE, UNFINISHED
from optim.workloads.csv_columns import (
    header_of,
    read_columns,
    refuse,
    require_all_fields,
    require_columns,
    require_whole,
)
from optim.workloads.traces.job_table import (
    NO_GPU,
    NO_WORK,
    STILL,
    JobTable,
    ReadOptions,
    first_words,
    gpu_hours_of,
    is_elsewhere,
    leave_out,
    read_spans,
    read_times,
    waits_until,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainForm:
    """Names of the columns of one format.

    Parameters
    ----------
    submit, gpus, duration
        Required columns of submission times, GPUs and run times.
    start
        Column of the times at which jobs started in the recorded cluster, in the form of `submit`; optional, and
        empty where a start is unknown.
    estimate
        Column of run times that users stated; optional, and empty where there is none.
    second
        Number of the file's time units per second.
    texts
        Optional text columns, by the field of `JobTable` that they fill; `ids` is the field of the jobs' names.
    counts
        Optional integer columns, by the field of `JobTable` that they fill.
    cpus, memory_gb
        vCPUs and memory of all workers of the job; optional.
    computing, iteration
        Time per step that the job computes on the GPU, and time per step; optional.
    ignored
        Further columns of the published tables, which are ignored without a remark; None for all other columns.
    """

    submit: str = "submit"
    gpus: str = "gpus"
    duration: str = "duration"
    start: str = ""
    estimate: str = ""
    second: float = 1.0
    texts: Mapping[str, str] = field(
        default_factory=lambda: {
            "ids": "id",
            "virtual_cluster": "vc",
            **{name: name for name in ("user", "model", "status", "app", "account", "qos", "gpu_type")},
        }
    )
    counts: Mapping[str, str] = field(
        default_factory=lambda: {"priority": "priority", "min_gpus": "min_gpus", "max_gpus": "max_gpus"}
    )
    cpus: str = "cpus"
    memory_gb: str = "memory_gb"
    computing: str = ""
    iteration: str = ""
    ignored: tuple[str, ...] | None = None


CHECKPOINT, NO_CHECKPOINT = "checkpoint_min", "none"
"""Column of the minutes between a job's checkpoints, and its text for none; an empty field means the simulation's option."""
PARTITION, STATE = "partition", "state"
"""Other names of the columns of virtual clusters and of status in the user's table."""
BAR = "|"
STEP_TIME = "step_time"
"""Column of the times per step in equal parts of a job's steps, separated by colons, for jobs with an adaptive batch size."""
MOST_STEP_TIME, MOST_PARTS = 1e9, 1_000
LONGEST_MIN = 1e6
"""Maximum number of minutes between checkpoints: two years."""
OWN = PlainForm(ignored=(), start="start", estimate="estimate")
_SIMULATED: dict[str, Any] = {
    "submit": "submit_time",
    "gpus": "num_gpu",
    "texts": {"ids": "job_id", "model": "model_name"},
}
TIRESIAS = PlainForm(**_SIMULATED)
MURI = PlainForm(**_SIMULATED, second=1000.0, computing="resource_time_1", iteration="iteration_time")
"""Muri's times are milliseconds. Muri's second resource is taken for the GPU: the first resource takes long in jobs
that load data or simulate environments (ShuffleNet, DQN), the third in large gangs."""
HELIOS = PlainForm(
    submit="submit_time",
    gpus="gpu_num",
    start="start_time",
    texts={"ids": "job_id", "virtual_cluster": "vc", "user": "user", "status": "state", "model": "type"},
    counts={},
    cpus="cpu_num",
    memory_gb="",
)
"""Helios' job logs (`cluster_log.csv`; S-Lab-System-Group/HeliosData, README.md), and Acme's of the same form, whose `type` is a
type of work such as Pretrain (InternLM/AcmeTrace, README.md). Jobs without GPUs are dropped and counted."""


def read_plain(path: str | Path, options: ReadOptions, form: PlainForm = OWN) -> JobTable:
    """Read a table of jobs.

    The user's table has these columns; only the first three are required:

    - `submit` (s, any origin, or dates and times), `gpus`, `duration` (s, or h:m:s);
    - `id` (rows with equal names are attempts of one job), `vc` or `partition`, `user`, `model`, `status` or `state`, `app`,
      `account`, `qos` (quality of service), `priority`;
    - `start` (in the form of `submit`; gives the recorded wait) and `estimate` (the run time that the user stated, in the form of
      `duration`, or empty);
    - `gpu_type` (all types that the job may run on, separated by bars), `min_gpus` and `max_gpus` (other GPU counts that it may use);
    - `checkpoint_min` (minutes between checkpoints, or "none");
    - `step_time` (times per step in equal parts of the steps, such as 1:1:0.5, for an adaptive batch size);
    - `cpus` and `memory_gb` (of all workers of the job; 0 if absent).

    Rows without GPUs or run time, and jobs whose status is running or pending, are dropped and counted. A note lists
    the other columns.

    Raises
    ------
    InvalidProblemError
        If a column is missing, a field isn't a number, is negative, or isn't an integer number of GPUs, or a row lacks fields.
    """
    header = header_of(path)
    if form is OWN:
        _check_own(path, header)
    texts = {name: column for name, column in form.texts.items() if column in header}
    if form is OWN:
        others = {"virtual_cluster": PARTITION, "status": STATE}
        texts |= {name: other for name, other in others.items() if name not in texts and other in header}
    counts = {name: column for name, column in form.counts.items() if column in header}
    amounts = [name for name in (form.cpus, form.memory_gb, form.computing, form.iteration) if name in header]
    starts = [name for name in (form.start, form.estimate) if name in header]
    steps = [name for name in (CHECKPOINT, STEP_TIME) if form is OWN and name in header]
    texts_read = (form.duration, *texts.values(), *starts, *steps)
    columns = read_columns(path, (form.gpus, *counts.values(), *amounts), texts_read)
    require_all_fields(path)
    submit, begin, remarks = read_times(path, form.submit, form.second)
    status = columns[texts["status"]] if "status" in texts else np.full(len(submit), "", dtype=object)
    is_open = np.isin([word.upper() for word in first_words(status).tolist()], STILL)
    duration = read_spans(path, form.duration, columns[form.duration], is_due=~is_open) / form.second
    for column in (form.gpus, *amounts):
        require_columns(path, columns, column, least=0.0)
    gpus = require_whole(path, form.gpus, columns[form.gpus])
    clusters = columns[texts["virtual_cluster"]] if "virtual_cluster" in texts else np.full(len(gpus), "", dtype=object)
    out = {
        ELSEWHERE: is_elsewhere(clusters, options),
        UNFINISHED: is_open,
        NO_GPU: gpus < 1,
        NO_WORK: duration <= 0,
    }
    kept, dropped = leave_out(out)
    waited = _waited(path, form.start, columns, submit, begin, kept) if form.start in starts else None
    estimate = None
    if form.estimate in starts:
        stated = columns[form.estimate]
        estimate = read_spans(path, form.estimate, stated, is_due=stated != "")
        refuse(path, form.estimate, estimate == 0, "expected a time above 0, or an empty field for no estimate", stated)
    named: dict[str, Any] = {name: columns[column][kept] for name, column in texts.items()}
    alike = () if "ids" in texts or form is not OWN else _alike({**columns, form.submit: submit}, kept)
    ids = named.pop("ids", np.array([f"row-{row}" for row in range(len(gpus))], dtype=object)[kept])
    has_room = bool({form.cpus, form.memory_gb} & set(columns))
    return JobTable(
        ids=tuple(map(str, ids.tolist())),
        submit_s=submit[kept],
        workers=gpus[kept],
        duration_s=duration[kept],
        clock=np.zeros(len(kept), dtype=np.int64),
        demand=_demand(columns, gpus, form)[kept] if has_room else None,
        busy=_busy(columns, form)[kept] if form.computing in columns and form.iteration in columns else None,
        estimate_s=None if estimate is None else estimate[kept],
        waited_s=None if waited is None else waited[kept],
        checkpoint_s=_checkpoints(path, columns[CHECKPOINT])[kept] if CHECKPOINT in steps else None,
        step_time=_step_times(path, columns[STEP_TIME])[kept] if STEP_TIME in steps else None,
        begin=begin,
        rows_read=len(gpus),
        dropped=dropped,
        dropped_gpu_h=gpu_hours_of(out, gpus * duration),
        has_partitions=texts.get("virtual_cluster") == PARTITION,
        notes=(*remarks, *alike, *_unread(header, texts, counts, form)),
        **named,
        **_counts(path, columns, counts, kept),
    )


def _alike(columns: Mapping[str, NDArray[Any]], kept: NDArray[np.int64]) -> tuple[str, ...]:
    """Return a remark on equal rows, which count as separate jobs if the table has no names."""
    pd = require_package("pandas", "reading traces")

    count = int(pd.DataFrame({name: values[kept] for name, values in columns.items()}).duplicated().sum())
    rows = "1 row is" if count == 1 else f"{count} rows are"
    said = f"{rows} equal to an earlier one in all columns read, and count as separate jobs; name jobs in a column id"
    return (f"{said} to count each once",) if count else ()


def _waited(
    path: str | Path,
    column: str,
    columns: Mapping[str, NDArray[Any]],
    submit: FloatArray,
    begin: datetime | None,
    kept: NDArray[np.int64],
) -> FloatArray | None:
    """Return the waiting time of each remaining row in seconds, NaN where no start is recorded."""
    texts = columns[column]
    is_due = np.isin(np.arange(len(texts)), kept) & (texts != "")
    waited = waits_until(path, column, texts, submit, begin, is_due=is_due)
    if waited is not None:
        refuse(path, column, waited < 0, "expected a time not before the submission", texts)
    return waited


def _check_own(path: str | Path, header: tuple[str, ...]) -> None:
    """Raise InvalidProblemError for a table in another format, or without a header."""
    if len(header) == 1 and BAR in header[0] and "JobID" in header[0]:
        raise InvalidProblemError(f"{path}: this is the output of sacct -P; read it with --trace-format sacct")
    if header and all(any(sign.isdigit() for sign in name[:1]) for name in header[:3]):
        raise InvalidProblemError(
            f"{path}: the header is missing; the first row must name the columns, such as submit,gpus,duration"
        )


def _step_times(path: str | Path, texts: TextArray) -> FloatArray:
    """Return times per step in equal parts of each job's steps, shape (jobs, parts); an empty text is a constant speed."""
    known: dict[str, list[float]] = {}
    for text in set(texts.tolist()):
        try:
            known[text] = [float(part) for part in text.split(":")] if text else [1.0]
        except ValueError:
            known[text] = [-1.0]
    # The least common multiple lets every job have the same number of parts.
    parts = math.lcm(*{len(times) for times in known.values()})
    is_wrong = np.array([not all(0 < each <= MOST_STEP_TIME for each in known[text]) for text in texts.tolist()])
    refuse(path, STEP_TIME, is_wrong, "expected times per step above 0, separated by colons, such as 1:1:0.5", texts)
    if parts > MOST_PARTS:
        raise InvalidProblemError(
            f"{path}: column {STEP_TIME!r}: the least common multiple of the jobs' numbers of parts is {parts}, above {MOST_PARTS}; "
            "give all jobs the same number of parts"
        )
    return np.array([np.repeat(known[text], parts // len(known[text])) for text in texts.tolist()])


def _checkpoints(path: str | Path, texts: TextArray) -> FloatArray:
    """Return seconds between checkpoints, 0 for none, NaN for an empty field."""
    pd = require_package("pandas", "reading traces")

    is_said, is_none = texts != "", texts == NO_CHECKPOINT
    minutes = pd.to_numeric(pd.Series(texts), errors="coerce").to_numpy(dtype=np.float64)
    is_wrong = is_said & ~is_none & ~((minutes > 0) & (minutes <= LONGEST_MIN))
    refuse(path, CHECKPOINT, is_wrong, f"expected minutes above 0, or {NO_CHECKPOINT}", texts)
    return np.where(is_none, 0.0, np.where(is_said, 60.0 * minutes, np.nan))


def _unread(
    header: tuple[str, ...], texts: Mapping[str, str], counts: Mapping[str, str], form: PlainForm
) -> tuple[str, ...]:
    """Return a remark on the ignored columns, with the known column that each resembles."""
    if form.ignored is None:
        return ()
    own = {CHECKPOINT, STEP_TIME} if form is OWN else set()
    fixed = {form.submit, form.gpus, form.duration, form.start, form.estimate, form.cpus, form.memory_gb, *own}
    known = {*fixed, *form.texts.values(), PARTITION, STATE, *form.counts.values()}
    read = {*fixed, *texts.values(), *counts.values()}
    unread = [name for name in header if name not in {*read, *form.ignored}]
    said = []
    for name in unread:
        near = get_close_matches(name.lower(), [each for each in known if each not in header], n=1)
        said.append(name[:40] + (f" (is {near[0]} meant?)" if near else ""))
    return (f"columns that are not read: {', '.join(said)}",) if said else ()


def _counts(
    path: str | Path, columns: Mapping[str, NDArray[Any]], counts: Mapping[str, str], kept: NDArray[np.int64]
) -> dict[str, Any]:
    """Return the integer columns by the field of `JobTable` that they fill."""
    for name, column in counts.items():
        require_columns(path, columns, column, least=-np.inf if name == "priority" else 1.0)
    return {name: require_whole(path, column, columns[column])[kept] for name, column in counts.items()}


def _demand(columns: Mapping[str, NDArray[Any]], gpus: NDArray[np.int64], form: PlainForm) -> FloatArray:
    """Return the GPUs, vCPUs and memory of each job's workers, one worker per GPU; shape (jobs, 3)."""
    none, held = np.zeros(len(gpus)), np.maximum(1, gpus)
    cpus, memory = (columns[name] / held if name in columns else none for name in (form.cpus, form.memory_gb))
    return np.stack([np.ones(len(gpus)), cpus, memory], axis=1)


def _busy(columns: Mapping[str, NDArray[Any]], form: PlainForm) -> FloatArray:
    """Return the share of each job's step time that computes on the GPU, at least 0.001."""
    share = columns[form.computing] / np.maximum(columns[form.iteration], 1e-9)
    return np.asarray(np.clip(share, 1e-3, 1.0))

"""Conversion of a trace's table to jobs for the cluster simulation, with the GPU types that they may use."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

import numpy as np

from optim.core.arrays import FloatArray, IntArray, TextArray
from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.models.cluster.cluster import UNNAMED, Cluster
from optim.models.cluster.philly import STATUSES
from optim.models.cluster.workload import EARLIER, ELSEWHERE, PPM, US, WHOLE_MILLI, Workload, counted
from optim.workloads.cluster.generator import REASON_NAMES, draw_outcomes
from optim.workloads.traces.job_table import JobTable, seconds_of

EITHER = "|"
"""Separator between the types that one job may run on."""

NAMES_SHOWN = 5

REMEDY = "or leave such jobs out with --option oversized=drop"


def run_times_by_type(table: JobTable, cluster: Cluster, order: IntArray, notes: list[str]) -> FloatArray | None:
    """Return the ratio of each job's run time on each GPU type of the cluster to its recorded run time.

    The ratio is NaN for types that the job may not use; None if all jobs run on all types at the same speed.

    Parameters
    ----------
    table, cluster
        Jobs, and the cluster to run them on.
    order
        Rows to simulate.
    notes
        List to which remarks on ignored records are added.

    Raises
    ------
    InvalidProblemError
        If the trace has run times by type, but lacks one of the cluster's types.
    """
    if table.has_partitions and not cluster.partitions:
        _say_lost_partitions(table, order, notes)
    if cluster.kinds == UNNAMED:
        _say_lost_types(table, order, notes)
        return None
    ratio = np.ones((len(table), len(cluster.kinds))) if table.type_ratio is None else _told(table, cluster)
    may_run = _by_type(table, cluster) & _by_partition(table, cluster)
    if table.type_ratio is None and may_run[order].all():
        if len(cluster.kinds) > 1 and (table.gpu_type is None or not (table.gpu_type[order] != "").any()):
            notes.append(f"no GPU type is recorded: every job runs on any of {_list(cluster.kinds)}, at the same speed")
        return None
    unknown = int((table.gpu_type[order] == "").sum()) if table.gpu_type is not None else 0
    if unknown:
        said = "job records no GPU type: it runs" if unknown == 1 else "jobs record no GPU type: they run"
        notes.append(f"{unknown} {said} on any GPU")
    return np.where(may_run, ratio, np.nan)


def check_types(table: JobTable, cluster: Cluster, rows: IntArray) -> None:
    """Raise InvalidProblemError for the jobs in `rows`, which may run on no GPU of the cluster.

    Raises
    ------
    InvalidProblemError
        If `rows` isn't empty; the message gives the first job's request and the cluster's types or partitions.
    """
    if not len(rows):
        return
    known = {name.casefold() for name in cluster.names_of_gpus}
    row = int(rows[0])
    asked = "" if table.gpu_type is None else str(table.gpu_type[row])
    if asked and not known & _alternatives(asked):
        raise InvalidProblemError(
            f"{_jobs(table, rows)} GPU type {asked[:40]!r}, but the cluster has {_list(cluster.names_of_gpus)}; name it in the "
            f"topology, {REMEDY}"
        )
    partition = "" if table.virtual_cluster is None else str(table.virtual_cluster[row])
    there = sorted({name for names in cluster.partitions for name in names})
    raise InvalidProblemError(
        f"{_jobs(table, rows)} partition {partition[:40]!r}{f' with GPU type {asked[:40]!r}' if asked else ''}, but the cluster "
        f"has partitions {_list(there)}; add such machines to the topology, {REMEDY}"
    )


def _jobs(table: JobTable, rows: IntArray) -> str:
    more = f" (and {len(rows) - 1} others like it)" if len(rows) > 1 else ""
    return f"job {table.ids[int(rows[0])][:40]}{more} asks for"


def _told(table: JobTable, cluster: Cluster) -> FloatArray:
    """Return the run-time ratios that a trace records for the cluster's GPU types."""
    missing = [name for name in cluster.names_of_gpus if name not in table.types]
    if missing or table.type_ratio is None:
        raise InvalidProblemError(
            f"GPU type {missing[0][:40]!r} has no throughput in the trace (there are: {', '.join(table.types)}); "
            "name another in the cluster's topology"
        )
    return np.asarray(table.type_ratio[:, [table.types.index(name) for name in cluster.names_of_gpus]])


def _alternatives(text: str) -> set[str]:
    return {part.strip().casefold() for part in text.split(EITHER)}


def _by_type(table: JobTable, cluster: Cluster) -> "np.typing.NDArray[np.bool_]":
    """Return the cluster's types that each job's recorded GPU type allows, ignoring case; shape (jobs, types)."""
    may_run = np.ones((len(table), len(cluster.kinds)), np.bool_)
    if table.gpu_type is not None:
        for text in set(table.gpu_type.tolist()) - {""}:
            is_one = np.array([name.casefold() in _alternatives(text) for name in cluster.names_of_gpus])
            may_run[table.gpu_type == text] = is_one
    return may_run


def _by_partition(table: JobTable, cluster: Cluster) -> "np.typing.NDArray[np.bool_]":
    """Return the cluster's types that each job's partition allows, all in a cluster without partitions; shape (jobs, types)."""
    may_run = np.ones((len(table), len(cluster.kinds)), np.bool_)
    if cluster.partitions and table.virtual_cluster is not None and not table.names_queues:
        for text in set(table.virtual_cluster.tolist()) - {""}:
            may_run[table.virtual_cluster == text] = np.array([text in names for names in cluster.partitions])
    return may_run


def _say_lost_types(table: JobTable, order: IntArray, notes: list[str]) -> None:
    """Add a note on recorded GPU types, which a cluster without type names ignores."""
    if table.gpu_type is None:
        return
    said = _counted(table.gpu_type[order])
    if said:
        notes.append(
            f"recorded GPU types ({said}) are ignored: the cluster has no types, so that every job runs on any GPU; "
            "give a topology that names them (--gpus FILE.json)"
        )


def _say_lost_partitions(table: JobTable, order: IntArray, notes: list[str]) -> None:
    """Add a note on recorded partitions, which a cluster without partitions ignores."""
    said = "" if table.virtual_cluster is None else _counted(table.virtual_cluster[order])
    if said:
        notes.append(
            f"recorded partitions ({said}) are ignored: the cluster has none, so that their jobs run on any machine of their GPU type, except under "
            "policies by virtual cluster; give a topology that assigns machines to partitions"
        )


def _counted(texts: TextArray) -> str:
    """Return a list of the distinct names with their numbers of jobs, most frequent first; "" if there are fewer than two."""
    counts = Counter(texts.tolist())
    counts.pop("", None)
    return _list([f"{name} for {count}" for name, count in counts.most_common()]) if len(counts) > 1 else ""


def _list(names: "list[str] | tuple[str, ...]") -> str:
    shown = [name[:30] for name in names[:NAMES_SHOWN]]
    return ", ".join(shown) + (", ..." if len(names) > NAMES_SHOWN else "")


OVERSIZED, NO_TYPE = "jobs larger than the cluster", "jobs that no GPU of the cluster can run"

MIB_A_GB = 1024.0
"""MiB per GB."""

DRAWN = "drawn"
"""Word that marks random outcomes in the notes."""


class Oversized(StrEnum):
    """Treatment of gangs larger than the cluster."""

    REFUSE = "refuse"
    DROP = "drop"


class Failures(StrEnum):
    """Treatment of outcomes that the trace doesn't record."""

    NONE = "none"
    STUDY = "study"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Options on which of a trace's jobs are simulated, and on data that the trace lacks.

    Parameters
    ----------
    first
        Number of jobs to simulate, the earliest ones; None for all.
    since
        Simulate only jobs submitted from this date on, or from this second of the trace's clock; None for all jobs.
    oversized
        Treatment of gangs larger than the cluster.
    checkpoints
        Minutes between checkpoints by virtual cluster or partition, NAME:MINUTES or NAME:none for jobs that restart from scratch,
        separated by commas; a column of the table takes precedence. None to use the run's rules.
    failures
        Whether to draw status and failures from tables 6 and 7 of the Philly study.
    seed
        Seed of these draws.

    Raises
    ------
    InvalidOptionError
        If a value is outside its range.
    """

    first: int | None = None
    since: str | None = None
    oversized: Oversized = Oversized.REFUSE
    checkpoints: str | None = None
    failures: Failures = Failures.NONE
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the values."""
        for name, kind in (("oversized", Oversized), ("failures", Failures)):
            if getattr(self, name) not in list(kind):
                raise InvalidOptionError(f"{name} must be {' or '.join(kind)}, got {getattr(self, name)[:40]!r}")
        if self.first is not None and self.first < 1:
            raise InvalidOptionError(f"the number of jobs must be at least 1, got {self.first}")
        _ = self.checkpoint_min

    @property
    def checkpoint_min(self) -> Mapping[str, float]:
        """Minutes between checkpoints by virtual cluster, 0 for none.

        Raises
        ------
        InvalidOptionError
            If the option `checkpoints` has another form.
        """
        found = {}
        for part in self.checkpoints.split(",") if self.checkpoints else ():
            name, _, text = part.strip().rpartition(":")
            try:
                minutes = 0.0 if text == "none" else float(text)
            except ValueError:
                minutes = -1.0
            if not name or not (0 < minutes <= 1e6 or text == "none"):
                raise InvalidOptionError(
                    f"checkpoints must be NAME:MINUTES or NAME:none, separated by commas, got {part[:40]!r}"
                )
            found[name] = minutes
        return found


def cluster_jobs(table: JobTable, selection: Selection, cluster: Cluster | None = None) -> Workload:
    """Return the jobs in the order of their submission; times are rounded to microseconds.

    Parameters
    ----------
    table
        Jobs of a trace.
    selection
        Selection of the jobs.
    cluster
        The cluster to run them on; `oversized` decides on larger gangs. As far as the cluster names GPU types and
        partitions, jobs run only on their recorded types and partitions, with the recorded run time per type. None for
        any cluster.

    Raises
    ------
    InvalidProblemError
        If no job is left, the remaining jobs are on several clocks, the trace lacks run times on one of the cluster's GPU types,
        or a job asks for a missing type or partition and `oversized` doesn't drop it.
    InvalidOptionError
        If `since` is neither a date nor a number, or is a date although the trace has none.
    """
    order = np.argsort(table.submit_s, kind="stable")
    dropped, dropped_gpu_h = dict(table.dropped), dict(table.dropped_gpu_h)
    gpu_h = table.workers * table.duration_s / 3600
    notes = list(table.notes)
    if selection.since is not None:
        is_late = table.submit_s[order] >= seconds_of(table.begin, selection.since)
        dropped_gpu_h[EARLIER] = float(gpu_h[order[~is_late]].sum())
        order, dropped[EARLIER] = order[is_late], int((~is_late).sum())
    ratio = None if cluster is None else run_times_by_type(table, cluster, order, notes)
    if ratio is not None and cluster is not None:
        can_run = np.isfinite(ratio[order]).any(axis=1)
        if selection.oversized == Oversized.REFUSE and table.type_ratio is None:
            check_types(table, cluster, order[~can_run])
        dropped_gpu_h[NO_TYPE] = float(gpu_h[order[~can_run]].sum())
        order, dropped[NO_TYPE] = order[can_run], int((~can_run).sum())
    if selection.oversized == Oversized.DROP and cluster is not None:
        fits = table.workers[order] <= (cluster.num_gpus if ratio is None else _usable_gpus(ratio[order], cluster))
        dropped_gpu_h[OVERSIZED] = float(gpu_h[order[~fits]].sum())
        order, dropped[OVERSIZED] = order[fits], int((~fits).sum())
    _check_clock(table, order)
    order = order[: selection.first]
    if not len(order):
        said = counted(dropped)
        raise InvalidProblemError(
            f"no job of the trace is left (of {table.rows_read} rows: {said or 'none left out'}){_remedy(dropped)}"
        )
    submit, duration, kinds = table.submit_s[order], table.duration_s[order], None
    notes.extend(_remarks(table.submit_s, submit))
    if ratio is not None:
        fastest = np.nanmin(ratio[order], axis=1)
        duration = duration * fastest
        kinds = np.nan_to_num(np.ceil(ratio[order] / fastest[:, None] * PPM)).astype(np.int64)
    duration_us = np.maximum(1, np.rint(duration * US)).astype(np.int64)
    columns = (
        _columns(table, order)
        | _checkpoints(table, order, selection)
        | ({} if kinds is None else {"gpu_type_slowdown_ppm": kinds})
    )
    if selection.failures == Failures.STUDY:
        columns |= _outcomes(table, table.workers[order], duration_us, selection.seed, notes)
    share = columns.get("share_milli")
    if share is not None and (share < WHOLE_MILLI).any():
        parts = int((share < WHOLE_MILLI).sum())
        jobs = "1 job asks" if parts == 1 else f"{parts} jobs ask"
        notes.append(f"{jobs} for part of a GPU: rounded up to full GPUs unless sharing=true")
    return Workload(
        submit_us=np.rint((submit - submit[0]) * US).astype(np.int64),
        gpus=table.workers[order],
        duration_us=duration_us,
        ids=tuple(table.ids[row] for row in order.tolist()),
        dropped={reason: count for reason, count in dropped.items() if count},
        dropped_gpu_h={reason: held for reason, held in dropped_gpu_h.items() if held > 0},
        notes=tuple(notes),
        begin=None if table.begin is None else table.begin + timedelta(seconds=float(submit[0])),
        recorded_wait=_recorded_wait(None if table.waited_s is None else table.waited_s[order]),
        **columns,
    )


def _checkpoints(table: JobTable, order: IntArray, selection: Selection) -> dict[str, IntArray]:
    """Return the work between checkpoints by job, if the table or the selection gives any.

    Raises
    ------
    InvalidOptionError
        If a virtual cluster that the selection names has no job.
    """
    by_cluster = selection.checkpoint_min
    clusters = np.full(len(order), "", object) if table.virtual_cluster is None else table.virtual_cluster[order]
    seconds = np.full(len(order), np.nan) if table.checkpoint_s is None else table.checkpoint_s[order]
    for name, minutes in by_cluster.items():
        is_in = clusters == name
        if not is_in.any():
            raise InvalidOptionError(
                f"checkpoints: no job is in {name[:40]!r} (there are: {_list(sorted({str(each) for each in clusters} - {''})) or 'none'})"
            )
        seconds = np.where(is_in & np.isnan(seconds), 60.0 * minutes, seconds)
    if np.isnan(seconds).all():
        return {}
    own = np.where(seconds > 0, np.maximum(1, np.rint(np.nan_to_num(seconds) * US)), 0)
    return {"checkpoint_us": np.where(np.isnan(seconds), -1, own).astype(np.int64)}


def _remedy(dropped: Mapping[str, int]) -> str:
    """Return a phrase with the changes that would keep at least one job, given the number of dropped jobs by reason."""
    ways = {
        EARLIER: "an earlier date (--from)",
        ELSEWHERE: "another virtual cluster",
        OVERSIZED: "a larger cluster",
        NO_TYPE: "a cluster that has their types of GPU",
    }
    chosen = [way for reason, way in ways.items() if dropped.get(reason)]
    return (
        f"; choose {' or '.join(chosen)}"
        if chosen
        else ": only finished jobs of full GPUs of one type can be simulated"
    )


def _recorded_wait(waited_s: FloatArray | None) -> tuple[int, float] | None:
    """Return the number of jobs with a recorded wait, and its mean in hours; negative waits count as unrecorded."""
    known = np.zeros(0) if waited_s is None else waited_s[np.isfinite(waited_s) & (waited_s >= 0)]
    return (len(known), float(known.mean()) / 3600) if len(known) else None


def _check_clock(table: JobTable, order: IntArray) -> None:
    """Raise InvalidProblemError for jobs on several clocks, whose times can't be compared."""
    clocks = len(np.unique(table.clock[order]))
    if clocks <= 1:
        return
    names = () if table.virtual_cluster is None else _named(table.virtual_cluster[order])[0]
    shown = [name[:20] for name in names[:NAMES_SHOWN]] + ["..."] * (len(names) > NAMES_SHOWN)
    known = f" (there are: {', '.join(shown)})" if names else ""
    raise InvalidProblemError(
        f"the trace's jobs are on {clocks} separate clocks, so that their times can't be compared; choose one virtual cluster "
        f"by trace.virtual_cluster=NAME{known}, or keep only one in the file"
    )


def _remarks(read_s: FloatArray, played_s: FloatArray) -> list[str]:
    """Return remarks on rows that aren't in order of time, and on simulated jobs with equal submission times."""
    remarks = []
    if (np.diff(read_s) < 0).any():
        remarks.append("the rows weren't in the order of time and were sorted")
    doubled = len(played_s) - len(np.unique(played_s))
    if doubled:
        jobs = "1 job was" if doubled == 1 else f"{doubled} jobs were"
        remarks.append(f"{jobs} submitted at the same time as another: they keep the order of their rows")
    return remarks


def _columns(table: JobTable, order: IntArray) -> dict[str, Any]:
    """Return the optional fields of a workload that the table has."""
    columns: dict[str, Any] = {}
    for column, names, texts in (
        ("group", "groups", table.virtual_cluster),
        ("user", "users", table.user),
        ("model", "models", table.model),
        ("status", "statuses", table.status),
        ("account", "accounts", table.account),
        ("qos", "qos_names", table.qos),
    ):
        if texts is not None:
            columns |= dict(zip((names, column), _named(texts[order]), strict=True))
    if table.app is not None:
        columns["app"] = _apps(table.app[order])
    if table.demand is not None:
        share, cpus, memory = table.demand[order].T
        columns["share_milli"] = np.clip(np.ceil(share * WHOLE_MILLI - 1e-6), 1, WHOLE_MILLI).astype(np.int64)
        columns["cpu_milli"] = np.ceil(cpus * 1000 - 1e-6).astype(np.int64)
        columns["memory_mib"] = np.ceil(memory * MIB_A_GB - 1e-6).astype(np.int64)
    if table.busy is not None:
        columns["busy_milli"] = np.clip(np.rint(table.busy[order] * WHOLE_MILLI), 1, WHOLE_MILLI).astype(np.int64)
    if table.step_time is not None:
        mean = table.step_time[order].mean(axis=1, keepdims=True)
        columns["step_time_milli"] = np.maximum(1, np.rint(1000 * table.step_time[order] / mean)).astype(np.int64)
    if table.slowdown is not None:
        columns["slowdown_ppm"] = np.ceil(table.slowdown[order] * PPM - 1e-6).astype(np.int64)
    for name in ("priority", "min_gpus", "max_gpus", "loss"):
        if getattr(table, name) is not None:
            columns[name] = getattr(table, name)[order]
    if table.failed_s is not None:
        failed = table.failed_s[order]
        columns["fails_us"] = np.where(np.isnan(failed), -1, np.rint(np.nan_to_num(failed) * US)).astype(np.int64)
    if table.failed_attempts is not None:
        columns["tries"] = np.maximum(1, table.failed_attempts[order])
    if table.waited_s is not None:
        waited = np.where(np.isfinite(table.waited_s[order]), table.waited_s[order], -1.0)
        columns["recorded_wait_us"] = np.where(waited >= 0, np.rint(waited * US), -1).astype(np.int64)
    if table.estimate_s is not None:
        stated = np.nan_to_num(table.estimate_s[order])
        columns["estimate_us"] = np.where(stated > 0, np.maximum(1, np.rint(stated * US)), 0).astype(np.int64)
    if table.good_s is not None:
        columns["good_us"] = np.rint(table.good_s[order] * US).astype(np.int64)
    return columns


def _named(texts: TextArray) -> tuple[tuple[str, ...], IntArray]:
    """Return the distinct names, and the index of each job's name among them."""
    names, number = np.unique(texts.astype(str), return_inverse=True)
    return tuple(names.tolist()), number.astype(np.int64)


def _apps(texts: TextArray) -> IntArray:
    """Return the index of each job's app; each job without an app is a separate app."""
    names, app = _named(texts)
    alone = np.flatnonzero(texts == "")
    app[alone] = len(names) + np.arange(len(alone))
    return np.asarray(np.unique(app, return_inverse=True)[1], np.int64)


def _usable_gpus(ratio: FloatArray, cluster: Cluster) -> FloatArray:
    """Return the number of GPUs of the types that each job can run on; shape (jobs,)."""
    there = np.bincount(cluster.kind, weights=cluster.gpus, minlength=len(cluster.kinds))
    return np.asarray(np.isfinite(ratio) @ there)


def _outcomes(table: JobTable, gpus: IntArray, duration_us: IntArray, seed: int, notes: list[str]) -> Mapping[str, Any]:
    """Return drawn status and failures, unless the trace records outcomes."""
    if table.status is not None:
        notes.append("the trace records how jobs ended: no outcomes were drawn")
        return {}
    drawn = draw_outcomes(gpus, duration_us, seed)
    notes.append(f"status and failures are {DRAWN} from tables 6 and 7 of the Philly study")
    return {
        "status": drawn.status,
        "statuses": STATUSES,
        "reason": drawn.reason + 1,
        "reasons": ("", *REASON_NAMES),
        "fails_us": drawn.fails_us,
        "tries": drawn.tries,
        "good_us": np.where(drawn.fails_us >= 0, 0, -1),
    }

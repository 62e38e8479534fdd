"""Tables of the Philly study for any trace and policy, compared with the published values."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import Event, EventLog
from optim.models.cluster.metrics import HOUR_US
from optim.models.cluster.philly import (
    BUCKET_NAMES,
    BUCKETS,
    DELAYED_JOBS,
    FAILURES,
    FRAGMENTATION_SHARE_OF_WAITING,
    SPREAD_UTILISATION,
    STATUS_SHARES,
    UTILISATION,
)
from optim.models.cluster.run_file import LoggedRun
from optim.models.cluster.waiting import CAUSES, WaitingSpells, last_times, quotas, waiting
from optim.models.cluster.workload import US, Workload
from optim.workloads.traces.summaries import ClusterSummary, read_summaries

MINUTE_US = HOUR_US / 60

NOT_IN_TRACE = "not in this trace"

DRAWN = "drawn"

EARLY_MIN = 10.0
"""Minutes for which the fail-early scheme first runs a multi-GPU job on one GPU."""

STATUS_OF = {
    **dict.fromkeys(("passed", "pass", "completed", "succeeded"), "passed"),
    **dict.fromkeys(("killed", "cancelled", "preempted", "timeout", "deadline"), "killed"),
    "": "",
}
"""The study's status for each status in traces; all other values count as unsuccessful."""


@dataclass(frozen=True, kw_only=True)
class StudyTable:
    """A table of the study.

    Parameters
    ----------
    name, title
        Identifier, and title.
    header, rows
        Column names and values; None for missing values.
    note
        Remark for readers; empty if none.
    """

    name: str
    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    note: str = ""


def statuses(jobs: Workload, told: str) -> StudyTable:
    """Table 6: jobs and GPU-time by the jobs' final status."""
    header = ("status", "jobs", "jobs_share", "published_jobs", "gpu_time_share", "published_gpu_time")
    title = "GPU-time by status (table 6)"
    names = np.array([STATUS_OF.get(name.lower(), "unsuccessful") for name in jobs.statuses], dtype=object)[jobs.status]
    if not (names != "").any():
        return StudyTable(name="statuses", title=title, header=header, rows=(), note=NOT_IN_TRACE)
    time = jobs.gpus * jobs.duration_us.astype(float)
    rows = []
    for name in dict.fromkeys((*STATUS_SHARES, *sorted(set(names.tolist())))):
        mine = names == name
        shares = STATUS_SHARES.get(name, (None, None))
        rows.append((name or "(unknown)", int(mine.sum()), float(mine.mean()), shares[0],
                     float(time[mine].sum() / time.sum()), shares[1]))  # fmt: skip
    return StudyTable(name="statuses", title=title, header=header, rows=tuple(rows), note=told)


def failures(jobs: Workload, told: str) -> StudyTable:
    """Table 7: failures by reason."""
    header = ("reason", "class", "retry_helps", "jobs", "jobs_share", "published", "fails_p50_min", "published_p50",
              "fails_p90_min", "published_p90", "gpu_time_share")  # fmt: skip
    title = "Failures (table 7)"
    failed = jobs.fails_us >= 0
    if not failed.any():
        return StudyTable(name="failures", title=title, header=header, rows=(), note=NOT_IN_TRACE)
    time = jobs.gpus * jobs.duration_us.astype(float)
    all_jobs = sum(reason.jobs for reason in FAILURES.values())
    rows = []
    for number, name in enumerate(jobs.reasons):
        mine = failed & (jobs.reason == number)
        if not mine.any():
            continue
        known = FAILURES.get(name)
        half, nine = np.percentile(jobs.fails_us[mine] / MINUTE_US, [50, 90])
        rows.append(
            (
                name or "(unknown)",
                str(known.kind) if known else None,
                known.is_transient if known else None,
                int(mine.sum()),
                float(mine.sum() / failed.sum()),
                known.jobs / all_jobs if known else None,
                float(half),
                known.p50_min if known else None,
                float(nine),
                known.p90_min if known else None,
                float(time[mine].sum() / time[failed].sum()),
            )
        )
    rows.sort(key=lambda row: (-int(str(row[3])), str(row[0])))
    return StudyTable(name="failures", title=title, header=header, rows=tuple(rows), note=told)


def failing_early(jobs: Workload, told: str) -> StudyTable:
    """Table for the study's third lesson: GPU-time saved by trials on a pool of single GPUs and by omitting retries."""
    header = ("measure", "jobs", "gpu_hours_saved", "gpu_hours_spent", "share_of_all_gpu_hours")
    title = f"Savings of fail-early: the first {EARLY_MIN:g} minutes of jobs of several GPUs on one GPU"
    failed = jobs.fails_us >= 0
    if not failed.any():
        return StudyTable(name="failing-early", title=title, header=header, rows=(), note=NOT_IN_TRACE)
    time = jobs.gpus * jobs.duration_us.astype(float) / HOUR_US
    once = np.where(failed, jobs.fails_us, 0) / HOUR_US
    several, early = jobs.gpus > 1, jobs.fails_us <= EARLY_MIN * MINUTE_US
    caught = failed & several & early
    trial = np.minimum(EARLY_MIN * MINUTE_US, jobs.duration_us) / HOUR_US
    known = [FAILURES.get(name) for name in jobs.reasons]
    is_useless = np.array([reason is not None and not reason.is_transient for reason in known])[jobs.reason]
    retried = failed & is_useless & ~caught & (jobs.fails_us < jobs.duration_us)
    rows = [
        ("caught in the pool", caught, float(time[caught].sum()), float(trial[several].sum())),
        ("no retry where it is useless", retried, float((time - jobs.gpus * once)[retried].sum()), 0.0),
    ]
    return StudyTable(
        name="failing-early",
        title=title,
        header=header,
        rows=tuple(
            (name, int(which.sum()), saved, spent, (saved - spent) / float(time.sum()))
            for name, which, saved, spent in rows
        ),
        note=f"{told}; an estimate without simulation, in which successful multi-GPU jobs take {EARLY_MIN:g} minutes "
        f"longer. --wrap fail-early simulates the scheme",
    )


HEADER = (
    *("cluster", "gpu_jobs", "gpus_mean", "gpus_p50", "run_mean_s", "run_p50_s", "wait_mean_s", "wait_p50_s"),
    *("done", "killed", "failed", "done_gpu_time", "killed_gpu_time", "failed_gpu_time"),
)

STATUSES = ("passed", "killed", "unsuccessful")


def calibration(jobs: Workload, cluster: Cluster, run: LoggedRun, files: Sequence[Path]) -> StudyTable:
    """Return statistics of a run's jobs, followed by those of the clusters in some summary files.

    Parameters
    ----------
    jobs, cluster, run
        Workload, cluster, and logged run. All time that a job spends without its GPUs counts as waiting.
    files
        Summary files published with the traces of Helios and Acme.

    Raises
    ------
    InvalidProblemError
        If a file is not such a summary.
    """
    published = [summary for path in files for summary in read_summaries(path)]
    return StudyTable(
        name="calibration",
        title="Jobs compared with published clusters",
        header=HEADER,
        rows=(_own(jobs, cluster, run), *map(_published, published)),
        note="published: Hu et al., SC 2021 and NSDI 2024, from their summary files; shares of jobs and of GPU-time",
    )


def _own(jobs: Workload, cluster: Cluster, run: LoggedRun) -> tuple[object, ...]:
    spells = waiting(jobs, cluster, run.log, last_times(run.log, len(jobs)), run.rules)
    waited = np.bincount(spells.job, spells.end_us - spells.begin_us, len(jobs)) / US
    seconds = jobs.duration_us / US
    status = np.array([STATUS_OF.get(name.lower(), "unsuccessful") for name in jobs.statuses], dtype=object)[
        jobs.status
    ]
    shares: list[float | None] = [None] * 6
    if (status != "").any():
        is_told = status != ""
        weights = (is_told.astype(float), is_told * jobs.gpus * seconds)
        shares = [float(each[status == name].sum() / each.sum()) for each in weights for name in STATUSES]
    return (
        *("this run", len(jobs), float(jobs.gpus.mean()), float(np.median(jobs.gpus))),
        *(float(seconds.mean()), float(np.median(seconds)), float(waited.mean()), float(np.median(waited))),
        *shares,
    )


def _published(summary: ClusterSummary) -> tuple[object, ...]:
    return (
        *(summary.id, summary.gpu_job_num, summary.avg_gpu_num, summary.med_gpu_num),
        *(summary.avg_run_time_gpu, summary.med_run_time_gpu, summary.avg_que_time_gpu, summary.med_que_time_gpu),
        *(summary.complete_rate_gpu, summary.cancel_rate_gpu, summary.fail_rate_gpu),
        *(summary.gpu_time_shares or (None, None, None)),
    )


MACHINES = ((1, 1), (2, 2), (3, 4), (5, 8), (9, 2**20))

MEASURED_SIZES = (1, 4, 8, 16)


def philly_study(jobs: Workload, cluster: Cluster, run: LoggedRun, *, is_drawn: bool = False) -> tuple[StudyTable, ...]:
    """Return the study's tables for a run.

    Parameters
    ----------
    jobs, cluster, run
        Workload, cluster, and logged run.
    is_drawn
        Whether the jobs' outcomes were sampled rather than read from the trace.

    References
    ----------
    Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", USENIX ATC 2019.
    """
    spells = waiting(jobs, cluster, run.log, last_times(run.log, len(jobs)), run.rules)
    bucket = np.searchsorted([most for _, most in BUCKETS], jobs.gpus)
    told = DRAWN if is_drawn else "as recorded in the trace"
    return (
        _waiting_by_gang(bucket, spells, len(jobs)),
        _waiting_by_cluster(jobs, cluster, run, spells),
        _locality(jobs, run.log, bucket, spells),
        _utilisation(jobs, run.log),
        statuses(jobs, told),
        failures(jobs, told),
        failing_early(jobs, told),
        _left_out(jobs, cluster, run),
    )


def _per_job(spells: WaitingSpells, count: int) -> FloatArray:
    """Return each job's waiting time by cause in microseconds; shape (jobs, causes)."""
    waited = np.zeros((count, spells.cause_us.shape[1]))
    np.add.at(waited, spells.job, spells.cause_us)
    return waited


def _waiting_by_gang(bucket: IntArray, spells: WaitingSpells, count: int) -> StudyTable:
    """Table 2: jobs by the main cause of their wait: fair share, fragmentation or queue order."""
    waited = _per_job(spells, count)
    causes = np.column_stack([waited[:, 0] + waited[:, 2], waited[:, 1], waited[:, 3]])
    longest, fragmented, all_time = causes.argmax(axis=1), causes[:, 1], causes.sum(axis=1)
    rows = []
    for number, name in enumerate(BUCKET_NAMES):
        mine = bucket == number
        delayed = mine & (all_time > 0)
        fair, by_room, by_order = np.bincount(longest[delayed], minlength=3).tolist()
        published = DELAYED_JOBS.get(name)
        rows.append(
            (
                name,
                int(mine.sum()),
                fair,
                by_room,
                by_order,
                _share(by_room, int(delayed.sum())),
                None if published is None else published[1] / sum(published),
                _mean(waited.sum(axis=1)[mine]) / HOUR_US,
                _share(float(fragmented[mine].sum()), float(all_time[mine].sum())),
            )
        )
    total = _share(float(fragmented.sum()), float(all_time.sum()))
    shown = "-" if total is None else f"{total:.3f}"
    return StudyTable(
        name="waiting-by-gang",
        title="Waiting by gang and cause (table 2)",
        header=("gang", "jobs", "fair_share", "fragmentation", "queue_order", "fragmentation_share", "published",
                "wait_mean_h", "fragmented_time_share"),
        rows=tuple(rows),
        note=f"fragmentation causes {shown} of all waiting time; published: about {FRAGMENTATION_SHARE_OF_WAITING}",
    )  # fmt: skip


def _waiting_by_cluster(jobs: Workload, cluster: Cluster, run: LoggedRun, spells: WaitingSpells) -> StudyTable:
    """Table of each virtual cluster's share of the work and of the waiting time."""
    waited, quota = _per_job(spells, len(jobs)), quotas(jobs, cluster, run.rules)
    work = jobs.gpus * jobs.duration_us.astype(float) / HOUR_US
    rows = []
    for number, name in enumerate(jobs.groups):
        mine = jobs.group == number
        total = waited[mine].sum()
        rows.append(
            (
                name or "(none)",
                int(mine.sum()),
                float(work[mine].sum()),
                float(quota[number]) if run.rules.knows_quotas else None,
                _mean(waited[mine].sum(axis=1)) / HOUR_US,
                *(_share(float(waited[mine, cause].sum()), float(total)) for cause in range(len(CAUSES))),
            )
        )
    return StudyTable(
        name="waiting-by-virtual-cluster",
        title="Virtual clusters",
        header=(
            "virtual_cluster",
            "jobs",
            "gpu_hours",
            "quota_gpus",
            "wait_mean_h",
            "over_quota",
            "fragmented",
            "full",
            "queue_order",
        ),
        rows=tuple(rows),
        note=(
            "quotas are those of the policy: from its option, or in proportion to the trace's GPU-hours"
            if run.rules.knows_quotas
            else f"{run.policy} has no quotas, so no job waits for one"
        )
        + "; jobs without a virtual cluster form a separate one",
    )


def _locality(jobs: Workload, log: EventLog, bucket: IntArray, spells: WaitingSpells) -> StudyTable:
    """Figure 4: number of machines at a job's start by its waiting time."""
    first, machines = _first_starts(log)
    waited = np.full(len(jobs), np.nan)
    order = np.argsort(spells.begin_us, kind="stable")[::-1]
    waited[spells.job[order]] = (spells.end_us - spells.begin_us)[
        order
    ] / MINUTE_US  # assigned from the latest spell to the first, so that each job's first spell remains
    rows = []
    for number in (2, 3):
        for least, most in MACHINES:
            mine = first[(bucket[first] == number) & (machines >= least) & (machines <= most)]
            if len(mine):
                half, nine = np.percentile(waited[mine], [50, 90])
                span = f"{least}" if least == most else f"{least}-{most}" if most < 2**20 else f">{least - 1}"
                rows.append((BUCKET_NAMES[number], span, len(mine), float(half), float(nine)))
    return StudyTable(
        name="locality",
        title="Machines at the first start, and the wait before it in minutes (figure 4)",
        header=("gang", "machines", "jobs", "first_start_p50_min", "first_start_p90_min"),
        rows=tuple(rows),
        note="published: jobs of 5-8 GPUs with short waits are spread over 2 to 8 servers, those with long waits get "
        "one server",
    )


def _utilisation(jobs: Workload, log: EventLog) -> StudyTable:
    """Model of tables 3 to 5: utilisation by job size, reduced for jobs that are spread over more machines."""
    sizes = np.array(MEASURED_SIZES)
    nearest = np.abs(np.log2(jobs.gpus)[:, None] - np.log2(sizes)).argmin(axis=1)
    base = np.array([UTILISATION[f"{size} GPU"][3] for size in MEASURED_SIZES])
    spread = sorted(SPREAD_UTILISATION)
    factor = np.array([SPREAD_UTILISATION[number][0] for number in spread]) / SPREAD_UTILISATION[spread[0]][0]
    start, machines = _starts(log)
    held = _held_us(log)[start] * log.width[start]
    job = log.job[start]
    model = base[nearest[job]] * np.interp(machines, spread, factor)
    rows = []
    for number, size in enumerate(MEASURED_SIZES):
        mine = nearest[job] == number
        total = float(held[mine].sum())
        rows.append(
            (
                f"{size} GPU",
                total / HOUR_US,
                _share(float(held[mine] @ machines[mine]), total),
                _share(float(held[mine] @ model[mine]), total),
                UTILISATION[f"{size} GPU"][3],
            )
        )
    total = float(held.sum())
    rows.append(("all", total / HOUR_US, _share(float(held @ machines), total), _share(float(held @ model), total),
                 UTILISATION["all"][3]))  # fmt: skip
    return StudyTable(
        name="utilisation",
        title="GPU utilisation by placement, per cent (tables 3 to 5)",
        header=("nearest_size", "gpu_hours", "machines_mean", "model", "published"),
        rows=tuple(rows),
        note="a model, not a measurement: the published mean of the nearest size, times the mean on as many servers divided "
        "by the mean on 2 servers",
    )


def _left_out(jobs: Workload, cluster: Cluster, run: LoggedRun) -> StudyTable:
    """Table of quantities that the study omits: preemption, cost of checkpoints, and scale."""
    log, metrics = run.log, run.metrics
    stopped = log.job[log.kind == Event.PREEMPT]
    days = max(metrics.makespan_h / 24, 1e-9)
    rows: Sequence[tuple[str, float]] = (
        ("preemptions", len(stopped)),
        ("share of jobs preempted", len(np.unique(stopped)) / len(jobs)),
        ("maximum preemptions of a job", float(np.bincount(stopped, minlength=1).max())),
        ("GPU-hours lost to restarts", metrics.overhead_gpu_hours),
        ("share of GPU-time lost to restarts", metrics.overhead_gpu_hours / metrics.gpu_hours),
        ("GPUs", cluster.num_gpus),
        ("jobs", len(jobs)),
        ("decisions per day", len(log) / days),
    )
    return StudyTable(
        name="left-out",
        title="Omitted by the study: preemption, cost of checkpoints, scale",
        header=("figure", "value"),
        rows=tuple(rows),
    )


def _starts(log: EventLog) -> tuple[IntArray, IntArray]:
    """Return the start events, and the number of machines of each."""
    start = np.flatnonzero(log.kind == Event.START)
    event = np.repeat(np.arange(len(log)), np.diff(log.first))
    pairs = np.unique(event * (int(log.machine.max(initial=0)) + 1) + log.machine)
    machines = np.bincount(pairs // (int(log.machine.max(initial=0)) + 1), minlength=len(log))
    return start, machines[start]


def _first_starts(log: EventLog) -> tuple[IntArray, IntArray]:
    """Return the jobs that started, and the number of machines of each job's first start."""
    start, machines = _starts(log)
    job, at = np.unique(log.job[start], return_index=True)
    return job, machines[at]


def _held_us(log: EventLog) -> FloatArray:
    """Return the time from each event to the next event of its job."""
    order = np.argsort(log.job, kind="stable")
    stop = np.full(len(log), int(log.time_us[-1]), np.int64)
    is_same = log.job[order][1:] == log.job[order][:-1]
    stop[order[:-1][is_same]] = log.time_us[order[1:][is_same]]
    return np.asarray(stop - log.time_us, float)


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _mean(values: FloatArray) -> float:
    return float(values.mean()) if len(values) else 0.0

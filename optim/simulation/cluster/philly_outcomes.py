"""How jobs ended, why those failed that did, and what failing early would save: tables of the Philly study."""

from dataclasses import dataclass

import numpy as np

from optim.models.cluster.metrics import HOUR_US
from optim.models.cluster.philly_tables import FAILURES, STATUS_SHARES
from optim.models.cluster.workload import Workload

MINUTE_US = HOUR_US / 60
NOT_IN_TRACE = "not in this trace"
DRAWN = "drawn"
EARLY_MIN = 10.0
"""Minutes of a job of several GPUs that failing early plays on one GPU first."""
STATUS_OF = {
    **dict.fromkeys(("passed", "pass", "completed", "succeeded"), "passed"),
    **dict.fromkeys(("killed", "cancelled", "preempted", "timeout", "deadline"), "killed"),
    "": "",
}
"""The study's status of what traces write; whatever else they write counts as unsuccessful."""


@dataclass(frozen=True, kw_only=True)
class StudyTable:
    """One table.

    Parameters
    ----------
    name, title
        A word for programs, a line for people.
    header, rows
        Names and values, None where there is none.
    note
        What a reader should know; empty if nothing.
    """

    name: str
    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    note: str = ""


def statuses(jobs: Workload, told: str) -> StudyTable:
    """Table 6: jobs and GPU-time by how jobs ended."""
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
                name or "(not told)",
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
    """Account for the third lesson: what a pool of single GPUs, and no retry where it is useless, would save."""
    header = ("measure", "jobs", "gpu_hours_saved", "gpu_hours_spent", "share_of_all_gpu_hours")
    title = f"What failing early saves: the first {EARLY_MIN:g} minutes of jobs of several GPUs on one GPU"
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
        note=f"{told}; an account of the jobs as they are: good jobs of several GPUs wait {EARLY_MIN:g} minutes more. "
        "--wrap fail-early plays it",
    )

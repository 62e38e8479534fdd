"""The schedule that a trace records, compared with a simulated policy and with the lower bound."""

from typing import Any

import numpy as np

from optim.models.cluster.cluster import Cluster
from optim.models.cluster.run_file import LoggedRun, RunRecord
from optim.models.cluster.waiting import last_times
from optim.models.cluster.workload import US, Workload

RECORDED = "as recorded"
AGREEMENT = 0.1
"""Largest relative deviation of the simulated from the recorded mean completion time that counts as agreement."""
BACKFILLING = "easy"
"""The policy that models ``sched/backfill``, Slurm's default."""
BOUND_TOL = 1e-9
"""Relative rounding error of mean completion times."""


def recorded_row(jobs: Workload) -> dict[str, Any] | None:
    """Return the metrics of the recorded schedule, None if no start is recorded; the makespan requires all starts."""
    known = jobs.recorded
    if not known.any():
        return None
    hours = 3600 * US
    wait, run = jobs.recorded_wait_us[known], jobs.duration_us[known]
    completion = (wait + run) / hours
    row: dict[str, Any] = {
        "policy": RECORDED if known.all() else f"{RECORDED} ({int(known.sum()):,} jobs)",
        "jct_mean_h": float(completion.mean()),
        "jct_p95_h": float(np.percentile(completion, 95)),
        "wait_mean_h": float(wait.mean()) / hours,
        "slowdown_max": float(((wait + run) / run).max()),
    }
    if known.all():
        row["makespan_h"] = float((jobs.submit_us + jobs.recorded_wait_us + jobs.duration_us).max()) / hours
    return row


def distance(jobs: Workload, run: LoggedRun) -> dict[str, Any]:
    """Return the mean completion times of a run and of the recorded schedule, and their ratio minus 1.

    The means are over the jobs with a recorded start that the run completed.
    """
    known = jobs.recorded & run.log.is_done(len(jobs))
    hours = 3600 * US
    simulated = float((last_times(run.log, len(jobs)) - jobs.submit_us)[known].mean()) / hours if known.any() else 0.0
    recorded = float((jobs.recorded_wait_us + jobs.duration_us)[known].mean()) / hours if known.any() else 0.0
    return {
        "policy": run.policy,
        "jobs": int(known.sum()),
        "simulated_jct_mean_h": simulated,
        "recorded_jct_mean_h": recorded,
        "relative": simulated / recorded - 1 if recorded else 0.0,
    }


def distance_line(found: dict[str, Any]) -> str:
    """Describe the deviation of the current policy from the recorded schedule."""
    verdict = "they agree"
    if abs(found["relative"]) > AGREEMENT:
        remedy = "and put the policy closest to yours first (easy for sched/backfill)"
        if found["policy"] == BACKFILLING:
            remedy = "then the policy and its options,"
        verdict = (
            f"{found['policy']} does not behave like your cluster: check --gpus (number and types of GPUs), {remedy} before you "
            "trust a what-if"
        )
    return (
        f"mean completion of the {found['jobs']:,} jobs with a recorded start: simulated {found['simulated_jct_mean_h']:.3g} h "
        f"under {found['policy']} (taken as the current policy), recorded {found['recorded_jct_mean_h']:.3g} h "
        f"({round(100 * found['relative']):+d} %): {verdict}"
    )


def recorded_remark(jobs: Workload, world: Cluster, least_h: float) -> str:
    """Return a remark if the recorded mean completion time is below its lower bound `least_h` for this cluster; else ""."""
    row = recorded_row(jobs)
    if row is None or not jobs.recorded.all() or row["jct_mean_h"] >= least_h * (1 - BOUND_TOL):
        return ""
    most = max_recorded_gpus(jobs)
    gpus = f"up to {most} GPUs at once" if most > world.num_gpus else "other types, partitions or run times"
    return (
        f"the recorded mean, {row['jct_mean_h']:.3g} h, is below the lower bound for {world.num_gpus} GPUs: "
        f"the recording used {gpus}; correct --gpus first"
    )


def room_left(record: RunRecord) -> str:
    """Return a text with the largest possible reduction of the recorded mean completion time, and the least possible mean wait.

    The bound on the mean completion time implies both. The text is "" unless all jobs have a recorded start. The wait is
    completion minus run time, so that restarts count. The wait is left out if jobs may use more GPUs than their gang and
    so run faster.
    """
    row, least_h = recorded_row(record.jobs), record.bounds["jct_mean_h"]
    if row is None or not record.jobs.recorded.all() or row["jct_mean_h"] <= least_h:
        return ""
    jobs = record.jobs
    wait_h = least_h - float(jobs.duration_us.mean()) / (3600 * US)
    least_wait = f", or has a mean wait below {wait_h:.3g} h (restarts included)"
    is_rigid = not (jobs.max_gpus > jobs.gpus).any()
    return f"; no schedule lowers the mean completion by more than {row['jct_mean_h'] - least_h:.3g} h" + (
        least_wait if wait_h > 0 and is_rigid else ""
    )


def max_recorded_gpus(jobs: Workload) -> int:
    """Return the maximum number of GPUs that jobs with a recorded start held at once, each for its run time."""
    known = jobs.recorded
    start = (jobs.submit_us + jobs.recorded_wait_us)[known]
    times = np.concatenate([start + jobs.duration_us[known], start])  # at one time, ends come before starts
    change = np.concatenate([-jobs.gpus[known], jobs.gpus[known]])
    return int(change[np.argsort(times, kind="stable")].cumsum().max(initial=0))

"""Public traces of GPU clusters as admission instances."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from optim.core.errors import InvalidProblemError
from optim.models.admission.instance import MICRO, AdmissionInstance
from optim.models.admission.reach import earliest_completion
from optim.workloads.admission.trace_instance import map_sample
from optim.workloads.admission.trace_options import TraceOptions
from optim.workloads.admission.trace_sample import TraceSample, draw_sample
from optim.workloads.traces.formats import TRACE_FORMATS, read_jobs
from optim.workloads.traces.job_table import JobTable

__all__ = ["TRACE_FORMATS", "TraceOptions", "TraceSummary", "read_trace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """What was taken from a trace, and what was left.

    Parameters
    ----------
    trace_format, rows_read, dropped
        Format, rows of the file, and how many of them were left out, by reason.
    window_start_s, window_submissions
        Where the window begins on the trace's clock, and how many jobs were submitted in it.
    num_jobs, schedulable_jobs
        Size of the sample, and how many of its jobs finish before the horizon if they have the cluster
        for themselves.
    sampled_gpu_slots, gpu_slots, cluster_gpu_slots
        GPU-slots that all sampled jobs need, that the schedulable ones need, and that the cluster has.
    cut_jobs
        Jobs whose run time was cut (`TraceOptions.max_duration_s`).
    invented
        What the trace doesn't say and the options or a draw do, one phrase each.
    notes
        What else to know, one line each.
    """

    trace_format: str
    rows_read: int
    dropped: Mapping[str, int]
    window_start_s: float
    window_submissions: int
    num_jobs: int
    schedulable_jobs: int
    sampled_gpu_slots: float
    gpu_slots: float
    cluster_gpu_slots: float
    cut_jobs: int
    invented: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def covered(self) -> float:
        """Share of the sampled GPU-slots that the schedulable jobs hold."""
        return self.gpu_slots / self.sampled_gpu_slots if self.sampled_gpu_slots else 0.0

    @property
    def lines(self) -> tuple[str, ...]:
        """What was read, how it fits the cluster, what is invented, and the notes: a line each."""
        cut = f"; {self.cut_jobs} run times cut" if self.cut_jobs else ""
        return (
            f"{self.trace_format}: {self.rows_read} rows read, left out: {_left_out(self.dropped)}; "
            f"window from {self.window_start_s:.0f} s with {self.window_submissions} submissions",
            f"{self.num_jobs} sampled, {self.schedulable_jobs} can finish alone; these need {self.gpu_slots:.0f} of the "
            f"{self.sampled_gpu_slots:.0f} sampled GPU-slots ({self.covered:.0%}), the cluster has "
            f"{self.cluster_gpu_slots:.0f}{cut}",
            f"invented: {', '.join(self.invented)}",
            *self.notes,
        )

    def __str__(self) -> str:
        return "; ".join(self.lines)


def read_trace(
    path: str | Path, trace_format: str, options: TraceOptions, seed: int
) -> tuple[AdmissionInstance, TraceSummary]:
    """Sample an admission instance from a trace.

    A job that held G GPUs for d seconds becomes one of W = G ceil(d / slot) worker-slots with
    N = `chunks_per_gpu` G: it may run faster than it did, or slower. Its utility, which no trace states, is
    drawn by the options. Sending gradients is part of the run time, so that e = 0, and b / B alone says how
    many PSs the workers need. The cluster's size follows `TraceOptions.cluster_share`. What is invented is listed
    in the summary.

    Parameters
    ----------
    path
        File of jobs, CSV, plain or gzip.
    trace_format
        One of `TRACE_FORMATS`.
    options
        What to take, and what the trace doesn't say.
    seed
        Same file, options and seed, same instance.

    Returns
    -------
    tuple
        The instance and what was taken and left out.

    Raises
    ------
    InvalidProblemError
        If the file is bad, no job is left, or fewer than `min_schedulable` of the sample can finish alone.
    InvalidOptionError
        If the format is unknown, the window empty, or slots are too short for the run times.
    """
    table = read_jobs(path, trace_format, options.reading)
    if not len(table):
        raise InvalidProblemError(f"{path}: no job is left of {table.rows_read} rows: {_left_out(table.dropped)}")
    sample_rng, utility_rng, server_rng = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(3))
    sample = draw_sample(table, options, sample_rng)
    name = f"{trace_format}-{len(sample.rows)}-{options.num_slots}-{options.slot_minutes:g}min-{seed}"
    instance = map_sample(name, table, sample, options, (utility_rng, server_rng))
    summary = _summary(trace_format, table, sample, instance, options)
    if summary.schedulable_jobs < options.min_schedulable * summary.num_jobs:
        horizon_h = options.num_slots * options.slot_minutes / 60
        median_h = float(np.median(table.duration_s[sample.rows])) / 3600
        raise InvalidProblemError(
            f"{path}: only {summary.schedulable_jobs} of {summary.num_jobs} sampled jobs can finish before the horizon even "
            f"alone: it is {options.num_slots} slots of {options.slot_minutes:g} min, {horizon_h:.3g} h, and half of them run "
            f"{median_h:.3g} h or longer; raise --slots or --slot-minutes, or --worker-servers where gangs don't fit"
        )
    return instance, summary


def _summary(
    trace_format: str,
    table: JobTable,
    sample: TraceSample,
    instance: AdmissionInstance,
    options: TraceOptions,
) -> TraceSummary:
    can_finish = earliest_completion(instance) >= 0
    gpu_slots = instance.work * instance.jobs.worker_demand[:, 0] / MICRO
    servers = instance.worker_servers
    limit = np.inf if options.max_duration_s is None else options.max_duration_s
    return TraceSummary(
        trace_format=trace_format,
        rows_read=table.rows_read,
        dropped=table.dropped,
        window_start_s=sample.start_s,
        window_submissions=sample.submissions,
        num_jobs=instance.num_jobs,
        schedulable_jobs=int(can_finish.sum()),
        sampled_gpu_slots=float(gpu_slots.sum()),
        gpu_slots=float(gpu_slots[can_finish].sum()),
        cluster_gpu_slots=float(np.einsum("ct,c->", servers.capacity[:, :, 0], servers.count)) / MICRO,
        cut_jobs=int((table.duration_s[sample.rows] > limit).sum()),
        invented=_invented(table, options),
        notes=table.notes,
    )


def _invented(table: JobTable, options: TraceOptions) -> tuple[str, ...]:
    """Return what the trace doesn't say and the instance does."""
    found = [
        "utilities",
        f"up to {options.chunks_per_gpu:g} workers a GPU held",
        f"PSs of {options.ps_vcpu:g} vCPUs and {options.ps_memory_gb:g} GB",
        f"bandwidth (one PS for {options.workers_per_ps} workers)",
    ]
    if table.demand is None:
        found.append(f"workers' {options.worker_vcpu:g} vCPUs and {options.worker_memory_gb:g} GB")
    if table.nodes is None:
        found.append(f"servers of {options.gpus_per_server} GPUs and of {options.pss_per_server} PSs")
    return tuple(found)


def _left_out(dropped: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {reason}" for reason, number in dropped.items() if number) or "none"

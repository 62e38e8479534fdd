"""Sampled jobs of a trace, and a cluster for them, as an admission instance."""

import math

import numpy as np

from optim.core.errors import InvalidOptionError
from optim.models.admission.instance import MICRO, AdmissionInstance, FloatArray, IntArray, Jobs
from optim.workloads.admission.trace_cluster import cluster_of_nodes, most_gpus_held, uniform_cluster
from optim.workloads.admission.trace_options import TraceOptions
from optim.workloads.admission.trace_sample import TraceSample
from optim.workloads.traces.job_table import JobTable

TRACE_RESOURCES = ("gpu", "vcpu", "memory_gb")
"""Resource types of instances that come from traces."""

WORKER_MBPS = 1000
"""b; only its ratio to B matters, since run times already hold the time of communication (e = 0)."""


def map_sample(
    name: str,
    table: JobTable,
    sample: TraceSample,
    options: TraceOptions,
    rngs: tuple[np.random.Generator, np.random.Generator],
) -> AdmissionInstance:
    """Return the instance of a sample.

    A job that held G GPUs for d seconds becomes one of W = G ceil(d / slot) worker-slots: E = ceil(d / slot)
    epochs of N chunks, of which each takes a worker G / N of a slot.

    Parameters
    ----------
    name
        The instance's name.
    table, sample
        Jobs of the trace, and which of them to take.
    options
        What the trace doesn't say.
    rngs
        Sources of chance for utilities and for servers.

    Raises
    ------
    InvalidOptionError
        If slots are so short that W can't be met exactly in micro-seconds.
    InvalidProblemError
        If the trace has fewer servers than the options ask for.
    """
    jobs = _jobs(table, sample, options, rngs[0])
    work = table.workers[sample.rows] * jobs.epochs
    gpus = _default_gpus(table, sample, float(work @ jobs.worker_demand[:, 0]) / MICRO, options)
    if table.nodes is None:
        servers = uniform_cluster(gpus, options)
    else:
        servers = cluster_of_nodes(table.nodes, gpus, jobs.worker_demand / MICRO, options, rngs[1])
    instance = AdmissionInstance(
        name=name,
        horizon=options.num_slots,
        slot_micro_s=options.slot_micro_s,
        resources=TRACE_RESOURCES,
        jobs=jobs,
        worker_servers=servers[0],
        ps_servers=servers[1],
    )
    if (instance.work != work).any():
        raise InvalidOptionError(
            f"slot_minutes must be longer for run times of up to {int(jobs.epochs.max())} slots, got "
            f"{options.slot_minutes:g}: their work is no whole number of micro-seconds"
        )
    return instance


def _jobs(table: JobTable, sample: TraceSample, options: TraceOptions, rng: np.random.Generator) -> Jobs:
    workers = table.workers[sample.rows]
    size = len(workers)
    duration = table.duration_s[sample.rows]
    if options.max_duration_s is not None:
        duration = np.minimum(duration, options.max_duration_s)
    slots = np.maximum(1, np.ceil(duration / options.slot_s)).astype(np.int64)
    chunks = np.maximum(1, np.floor(options.chunks_per_gpu * workers)).astype(np.int64)
    shortest = -(-workers * slots // chunks)
    target_delay = np.round(shortest * rng.uniform(*options.target_delay, size=size), 3)
    one = np.array([options.worker_gpu, options.worker_vcpu, options.worker_memory_gb])
    demand = np.tile(one, (size, 1)) if table.demand is None else table.demand[sample.rows]
    ps = np.array([0.0, options.ps_vcpu, options.ps_memory_gb])
    ones = np.ones(size, dtype=np.int64)
    return Jobs(
        ids=tuple(table.ids[row] for row in sample.rows.tolist()),
        arrival=sample.arrival,
        epochs=slots,
        chunks=chunks,
        minibatches=ones,
        minibatch_micro_s=options.slot_micro_s * workers // chunks,
        gradient_micro_mb=0 * ones,
        worker_micro_mbps=WORKER_MBPS * MICRO * ones,
        ps_micro_mbps=options.workers_per_ps * WORKER_MBPS * MICRO * ones,
        segment_offset=np.arange(size + 1),
        segment_start=0 * ones,
        worker_demand=_micro(demand),
        ps_demand=_micro(np.tile(ps, (size, 1))),
        utilities=options.utilities.draw(target_delay, rng),
        min_utility=np.full(size, np.nan),
    )


def _default_gpus(table: JobTable, sample: TraceSample, gpu_slots: float, options: TraceOptions) -> int:
    """Return the GPUs of a cluster of the trace's own ratio, or of a share of the sample's GPU-slots."""
    if options.cluster_share is not None:
        return max(1, math.ceil(options.cluster_share * gpu_slots / options.num_slots))
    held = most_gpus_held(table, int(table.clock[sample.rows[0]]))
    return max(1, math.ceil(held * len(sample.rows) / sample.submissions))


def _micro(quantities: FloatArray) -> IntArray:
    """Return demands in 1e-6 units, rounded up: a worker takes at least what the trace says."""
    micro: IntArray = np.ceil(np.round(quantities * MICRO, 3)).astype(np.int64)
    return micro

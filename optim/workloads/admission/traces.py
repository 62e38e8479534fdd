"""Public traces of GPU clusters as admission instances."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidOptionError, InvalidProblemError, check_in
from optim.core.limits import check_limit
from optim.models.admission.data import MICRO, Jobs, ServerClasses
from optim.models.admission.instance import AdmissionInstance
from optim.models.cluster.workload import counted
from optim.workloads.admission.generator import UtilityMix, check_range
from optim.workloads.traces.formats import TRACE_FORMATS, read_jobs
from optim.workloads.traces.job_table import JobTable, NodeTable, ReadOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """Selection from a trace, and assumptions for data that it lacks.

    Parameters
    ----------
    num_jobs
        Size of the sample; a window with fewer jobs is taken in full.
    num_slots, slot_minutes
        Horizon in slots, and the length of a slot.
    num_worker_servers, num_ps_servers
        Numbers of servers; None for a cluster sized by `cluster_share` and `ps_per_gpu`.
    cluster_share
        GPU-slots of the cluster, as a multiple of those that all sampled jobs need. None to scale the trace's maximum
        of GPUs in use at once by the sampled share of the window's submissions.
    ps_per_gpu
        PSs that the default cluster can host per GPU. A job of one recorded GPU that runs as two workers needs one PS.
    gpus_per_server, pss_per_server
        Workers (PSs) that fit on one of the default cluster's servers.
    chunks_per_gpu
        Maximum workers N of a job, as a multiple of its recorded GPUs.
    workers_per_ps
        B / b: workers that one PS serves.
    worker_gpu, worker_vcpu, worker_memory_gb, ps_vcpu, ps_memory_gb
        Demands of one worker and one PS, if the trace lacks them; a default server always fits
        `gpus_per_server` or `pss_per_server` of these.
    target_delay
        Range of theta3 as a multiple of the job's shortest duration, drawn uniformly.
    utilities
        Classes of utilities and their shares.
    max_duration_s
        Bound to which longer run times are cut; None for no cut. Run times of the Philly list include failed
        attempts, and 48 hours and 60 days are common cuts.
    window_start_s
        First submission time of the window; None for the window with the most submissions.
    virtual_cluster
        Use only the jobs of this virtual cluster; None for all.
    min_schedulable
        Minimum share of the sample that must be able to finish alone in the cluster.
    gpu_type
        GPU type (a column of Gavel's throughput table) whose speeds give the run times of Gavel's jobs.
    throughputs, nodes
        Files of Gavel's throughput table and of Alibaba's node list. None to look for the published file name in the
        trace's folder.

    Raises
    ------
    InvalidOptionError
        If an option is out of its range.
    """

    num_jobs: int = 100
    num_slots: int = 96
    slot_minutes: float = 15.0
    num_worker_servers: int | None = None
    num_ps_servers: int | None = None
    cluster_share: float | None = None
    ps_per_gpu: float = 0.5
    gpus_per_server: int = 2
    pss_per_server: int = 2
    chunks_per_gpu: float = 2.0
    workers_per_ps: int = 4
    worker_gpu: float = 1.0
    worker_vcpu: float = 4.0
    worker_memory_gb: float = 16.0
    ps_vcpu: float = 2.0
    ps_memory_gb: float = 8.0
    target_delay: tuple[float, float] = (1.0, 4.0)
    utilities: UtilityMix = field(default_factory=UtilityMix)
    max_duration_s: float | None = None
    window_start_s: float | None = None
    virtual_cluster: str | None = None
    min_schedulable: float = 0.5
    gpu_type: str = "v100"
    throughputs: Path | None = None
    nodes: Path | None = None

    def __post_init__(self) -> None:
        check_in("[1, inf)", self, "num_jobs", "num_slots", "num_worker_servers", "num_ps_servers")
        check_in("[1, inf)", self, "gpus_per_server", "pss_per_server", "workers_per_ps")
        check_in("(0, inf)", self, "slot_minutes", "cluster_share", "ps_per_gpu", "chunks_per_gpu")
        check_in("(0, inf)", self, "worker_gpu", "max_duration_s")
        check_in("[0, inf)", self, "worker_vcpu", "worker_memory_gb", "ps_vcpu", "ps_memory_gb")
        check_in("[0, 1]", self, "min_schedulable")
        if self._exact_slot.denominator != 1:
            raise InvalidOptionError(f"slot_minutes must be an integer number of microseconds, got {self.slot_minutes}")
        check_range("target_delay", self.target_delay, least=0.0)

    @property
    def reading(self) -> ReadOptions:
        """Options for the functions that read traces."""
        return ReadOptions(
            virtual_cluster=self.virtual_cluster,
            gpu_type=self.gpu_type,
            throughputs=self.throughputs,
            nodes=self.nodes,
        )

    @property
    def slot_s(self) -> float:
        """Length of a slot in seconds."""
        return self.slot_micro_s / MICRO

    @property
    def slot_micro_s(self) -> int:
        """Length of a slot in microseconds, an integer."""
        return int(self._exact_slot)

    @property
    def _exact_slot(self) -> Fraction:
        """Length of a slot in microseconds, from the option's exact decimal."""
        return Fraction(str(self.slot_minutes)) * 60 * MICRO


@dataclass(frozen=True, kw_only=True, eq=False)
class TraceSample:
    """Jobs sampled from a window.

    Parameters
    ----------
    rows
        Row number of each sampled job in the trace's table, in order of submission; shape (sample,).
    arrival
        Arrival slots: the first slot that begins at or after the submission; shape (sample,).
    start_s
        First submission of the window, on the trace's clock; slot 0 begins then.
    submissions
        Number of jobs in the window.
    """

    rows: IntArray
    arrival: IntArray
    start_s: float
    submissions: int


def draw_sample(table: JobTable, options: TraceOptions, rng: np.random.Generator) -> TraceSample:
    """Sample jobs uniformly, without replacement, from a window as long as the horizon.

    A job may not start before its submission, so it arrives in the first slot that begins afterwards; the
    window has the submissions whose arrival slot is within the horizon. By default it is the window with the most
    submissions on one clock (see `JobTable`), the earliest of several.

    Parameters
    ----------
    table
        Jobs of a trace, at least one.
    options
        `num_jobs`, `num_slots`, `slot_minutes`, `window_start_s`.
    rng
        Source of randomness.

    Raises
    ------
    InvalidOptionError
        If no job is submitted in the requested window.
    """
    clock, start = _busiest_window(table, options)
    slot = np.ceil((table.submit_s - start) / options.slot_s)
    inside = np.flatnonzero((table.clock == clock) & (slot >= 0) & (slot < options.num_slots))
    if not len(inside):
        raise InvalidOptionError(
            f"window_start_s: no job is submitted in the window from {start:g} s; choose another start"
        )
    drawn = rng.choice(inside, size=min(options.num_jobs, len(inside)), replace=False)
    # The row number breaks ties between jobs with equal submission times.
    rows = drawn[np.lexsort((drawn, table.submit_s[drawn]))]
    return TraceSample(rows=rows, arrival=slot[rows].astype(np.int64), start_s=float(start), submissions=len(inside))


def _busiest_window(table: JobTable, options: TraceOptions) -> tuple[int, float]:
    """Return clock and start of the window with the most submissions, or of the requested window."""
    length = (options.num_slots - 1) * options.slot_s
    best: tuple[int, int, float] | None = None
    for clock in np.unique(table.clock).tolist():
        times = np.sort(table.submit_s[table.clock == clock])
        starts = times if options.window_start_s is None else np.array([options.window_start_s])
        inside = np.searchsorted(times, starts + length, side="right") - np.searchsorted(times, starts)
        first = int(np.argmax(inside))
        if best is None or inside[first] > best[0]:
            best = (int(inside[first]), clock, float(starts[first]))
    if best is None:
        raise InvalidOptionError("the trace has no job; a sample needs at least one")
    return best[1], best[2]


MOST = 0.5
"""Minimum share of the jobs whose workers must fit on a usable node of a trace."""


def max_gpus_held(table: JobTable, clock: int) -> float:
    """Return the maximum of GPUs that the jobs of one clock use at once if each starts at its submission.

    The number indicates the size of the trace's cluster. A job that ends when another begins doesn't overlap with the
    latter.
    """
    own = table.clock == clock
    gpus = table.workers[own] * (1.0 if table.demand is None else table.demand[own, 0])
    times = np.concatenate([table.submit_s[own], table.submit_s[own] + table.duration_s[own]])
    change = np.concatenate([gpus, -gpus])
    held = np.cumsum(change[np.lexsort((change, times))])
    return float(held.max(initial=0.0))


def uniform_cluster(gpus: int, options: TraceOptions) -> tuple[ServerClasses, ServerClasses]:
    """Return servers on which the options' workers and PSs fit without remainder.

    Parameters
    ----------
    gpus
        Workers that the cluster should host, unless `num_worker_servers` is set.
    options
        Demands, sizes of servers, and numbers of servers if set.

    Raises
    ------
    InvalidProblemError
        If the number of servers exceeds the limit on counts.
    """
    worker = np.array([options.worker_gpu, options.worker_vcpu, options.worker_memory_gb])
    ps = np.array([0.0, options.ps_vcpu, options.ps_memory_gb])
    sides = []
    for name, unit, total, largest, number in (
        ("workers", worker, gpus, options.gpus_per_server, options.num_worker_servers),
        ("ps", ps, num_ps(gpus, options), options.pss_per_server, options.num_ps_servers),
    ):
        sizes = [largest] * number if number is not None else _even_sizes(total, largest)
        counts = sorted(Counter(sizes).items(), reverse=True)
        sides.append(_classes([(f"{name}-{size}", unit * size, count) for size, count in counts], options))
    return sides[0], sides[1]


def cluster_of_nodes(
    nodes: NodeTable, gpus: int, demand: FloatArray, options: TraceOptions, rng: np.random.Generator
) -> tuple[ServerClasses, ServerClasses]:
    """Sample servers from the trace's nodes: nodes with GPUs host workers, nodes without host PSs.

    Nodes are sampled without replacement: as many as the options state, or else until they have `gpus` GPUs (or can
    host the PSs for these GPUs). Meanwhile, nodes larger than the missing rest are skipped. Nodes with GPUs that are
    too small for most of the jobs' workers are never used.

    Parameters
    ----------
    nodes
        The trace's nodes.
    gpus
        GPUs that the cluster should have, unless `num_worker_servers` is set.
    demand
        Demand of one worker of each job, shape (jobs, resources).
    options
        Demands of PSs, and numbers of servers if set.
    rng
        Source of randomness.

    Raises
    ------
    InvalidProblemError
        If the list has no usable node with GPUs, no node without GPUs, or fewer nodes than the options request.
    """
    has_gpu = nodes.capacity[:, 0] > 0
    fits_most = (demand[:, None, :] <= nodes.capacity[None]).all(axis=2).mean(axis=0) >= MOST
    ps = np.array([0.0, options.ps_vcpu, options.ps_memory_gb])
    with np.errstate(divide="ignore", invalid="ignore"):
        hosted = np.floor(np.where(ps > 0, nodes.capacity / ps, np.inf).min(axis=1))
    sides = []
    for name, which, size, total, number in (
        (
            "num_worker_servers",
            np.flatnonzero(has_gpu & fits_most),
            nodes.capacity[:, 0],
            gpus,
            options.num_worker_servers,
        ),
        ("num_ps_servers", np.flatnonzero(~has_gpu), hosted, num_ps(gpus, options), options.num_ps_servers),
    ):
        order = rng.permutation(which)
        if number is not None and number > len(order):
            raise InvalidProblemError(
                f"{name} must be at most {len(order)}, the number of usable nodes in the trace, got {number}"
            )
        chosen = _until_full(order, size, total) if number is None else order[:number]
        if not len(chosen):
            raise InvalidProblemError(f"the node list has no usable node for {name}; give a list with usable nodes")
        sides.append(_grouped(nodes, chosen, options))
    return sides[0], sides[1]


def num_ps(gpus: int, options: TraceOptions) -> int:
    """Return the number of PSs that the default cluster hosts."""
    return max(1, math.ceil(options.ps_per_gpu * gpus))


def _even_sizes(total: int, largest: int) -> list[int]:
    """Split a total over as few servers of size `largest` or less as possible; their sizes differ by at most one."""
    number = math.ceil(total / largest)
    check_limit("count", number, "servers for a trace's jobs")
    return [total // number + (k < total % number) for k in range(number)]


def _until_full(order: IntArray, size: FloatArray, total: int) -> IntArray:
    """Return servers whose sizes add up to at least `total`, or all servers.

    Servers are taken in order, except those larger than the missing rest. If they don't suffice, the smallest of the
    skipped servers are added.
    """
    chosen: list[int] = []
    missing = float(total)
    for server in order.tolist():
        if 0 < size[server] <= missing:
            chosen.append(server)
            missing -= size[server]
    left = sorted((size[server], place, server) for place, server in enumerate(order.tolist()) if size[server] > 0)
    for _, _, server in left:
        if missing <= 0:
            break
        if server not in chosen:
            chosen.append(server)
            missing -= size[server]
    return np.array(chosen, dtype=np.int64)


def _grouped(nodes: NodeTable, which: IntArray, options: TraceOptions) -> ServerClasses:
    """Return sampled nodes grouped into classes of equal nodes, by type, the most frequent class of a type first."""
    counts = Counter((nodes.kind[k], tuple(nodes.capacity[k].tolist())) for k in which.tolist())
    ordered = sorted(counts.items(), key=lambda entry: (entry[0][0], -entry[1], entry[0][1]))
    return _classes([(kind, np.array(capacity), count) for (kind, capacity), count in ordered], options)


def _classes(rows: list[tuple[str, FloatArray, int]], options: TraceOptions) -> ServerClasses:
    capacity = np.array([np.floor(np.round(row[1] * MICRO, 3)) for row in rows], dtype=np.int64)
    return ServerClasses(
        types=tuple(row[0] for row in rows),
        capacity=np.repeat(capacity[:, None, :], options.num_slots, axis=1),
        count=np.array([row[2] for row in rows], dtype=np.int64),
    )


TRACE_RESOURCES = ("gpu", "vcpu", "memory_gb")
"""Resources of instances from traces."""

UNITS = ("GPUs", "vCPUs", "GB of memory")
"""Units of `TRACE_RESOURCES`."""

WORKER_MBPS = 1000
"""Bandwidth b of a worker; only its ratio to a PS's bandwidth B matters, since run times include communication (e = 0)."""


def map_sample(
    name: str,
    table: JobTable,
    sample: TraceSample,
    options: TraceOptions,
    rngs: tuple[np.random.Generator, np.random.Generator],
) -> AdmissionInstance:
    """Return the instance of a sample.

    A job with G GPUs for d seconds becomes one of W = G ceil(d / slot) worker-slots: E = ceil(d / slot)
    epochs of N chunks, each of which takes a worker G / N of a slot.

    Parameters
    ----------
    name
        The instance's name.
    table, sample
        Jobs of the trace, and those to use.
    options
        Assumptions for data that the trace lacks.
    rngs
        Sources of randomness for utilities and for servers.

    Raises
    ------
    InvalidOptionError
        If slots are so short that W isn't exact in microseconds.
    InvalidProblemError
        If the trace has fewer servers than the options request.
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
            f"{options.slot_minutes:g}: their work isn't an integer number of microseconds"
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
    """Return the number of GPUs of the default cluster (see `TraceOptions.cluster_share`)."""
    if options.cluster_share is not None:
        return max(1, math.ceil(options.cluster_share * gpu_slots / options.num_slots))
    held = max_gpus_held(table, int(table.clock[sample.rows[0]]))
    return max(1, math.ceil(held * len(sample.rows) / sample.submissions))


def _micro(quantities: FloatArray) -> IntArray:
    """Return demands in units of 1e-6, rounded up so that a worker gets at least the recorded amount."""
    micro: IntArray = np.ceil(np.round(quantities * MICRO, 3)).astype(np.int64)
    return micro


__all__ = ["TRACE_FORMATS", "TraceOptions", "TraceSummary", "read_trace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """Summary of the used and dropped parts of a trace.

    Parameters
    ----------
    trace_format, rows_read, dropped
        Format, rows of the file, and numbers of dropped rows by reason.
    window_start_s, window_submissions
        Beginning of the window on the trace's clock, and number of submissions in it.
    num_jobs, schedulable_jobs
        Size of the sample, and number of its jobs that would finish before the horizon alone in the cluster.
    sampled_gpu_slots, gpu_slots, cluster_gpu_slots
        GPU-slots that all sampled jobs need, that the schedulable ones need, and that the cluster has.
    cut_jobs
        Jobs whose run time was cut (`TraceOptions.max_duration_s`).
    invented
        Assumed data that the trace lacks, from options or random draws, one phrase each.
    notes
        Further remarks, one line each.
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
        """Share of the sampled GPU-slots that the schedulable jobs need."""
        return self.gpu_slots / self.sampled_gpu_slots if self.sampled_gpu_slots else 0.0

    @property
    def lines(self) -> tuple[str, ...]:
        """Lines on the rows read, the fit to the cluster, the assumed data, and the notes."""
        cut = f"; {self.cut_jobs} run times cut" if self.cut_jobs else ""
        return (
            f"{self.trace_format}: {self.rows_read} rows read, left out: {_left_out(self.dropped)}; "
            f"window from {self.window_start_s:.0f} s with {self.window_submissions} submissions",
            f"{self.num_jobs} sampled, {self.schedulable_jobs} can finish alone; these need {self.gpu_slots:.0f} of the "
            f"{self.sampled_gpu_slots:.0f} sampled GPU-slots ({self.covered:.0%}), the cluster has "
            f"{self.cluster_gpu_slots:.0f}{cut}",
            f"assumed: {', '.join(self.invented)}",
            *self.notes,
        )

    def __str__(self) -> str:
        return "; ".join(self.lines)


def read_trace(
    path: str | Path, trace_format: str, options: TraceOptions, seed: int
) -> tuple[AdmissionInstance, TraceSummary]:
    """Sample an admission instance from a trace.

    A job with G GPUs for d seconds becomes one of W = G ceil(d / slot) worker-slots with N = `chunks_per_gpu` G, so
    that it may run faster or slower than recorded. The job's utility, which no trace records, is drawn according to the
    options. Sending gradients is part of the run time, so that e = 0, and b / B alone determines the number of PSs. The
    cluster's size follows `TraceOptions.cluster_share`. The summary lists the assumed data.

    Parameters
    ----------
    path
        File of jobs, CSV, plain or gzip.
    trace_format
        One of `TRACE_FORMATS`.
    options
        Selection, and assumptions for data that the trace lacks.
    seed
        Equal files, options and seeds give equal instances.

    Returns
    -------
    tuple
        The instance, and a summary of the used and dropped parts.

    Raises
    ------
    InvalidProblemError
        If the file is invalid, no job is left, or fewer than `min_schedulable` of the sample can finish alone.
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
        if too_small := _too_small(instance, options, has_nodes=table.nodes is not None):
            raise InvalidProblemError(
                f"{path}: only {summary.schedulable_jobs} of {summary.num_jobs} sampled jobs can run at all: {too_small}"
            )
        horizon_h = options.num_slots * options.slot_minutes / 60
        median_h = float(np.median(table.duration_s[sample.rows])) / 3600
        raise InvalidProblemError(
            f"{path}: only {summary.schedulable_jobs} of {summary.num_jobs} sampled jobs can finish before the horizon even if "
            f"each runs alone: the horizon is {options.num_slots} slots of {options.slot_minutes:g} min, {horizon_h:.3g} h, and half of the "
            f"jobs run {median_h:.3g} h or longer; raise --slots or --slot-minutes, or --worker-servers where gangs don't fit"
        )
    return instance, summary


def _too_small(instance: AdmissionInstance, options: TraceOptions, *, has_nodes: bool) -> str:
    """Return a message on the resource that all servers lack for most jobs that can't finish, with a remedy; "" for none."""
    stuck = instance.jobs.worker_demand[instance.earliest_completion < 0] / MICRO
    largest = instance.worker_servers.capacity.max(axis=(0, 1)) / MICRO
    lacks = stuck > largest
    if not len(stuck) or lacks.any(axis=1).mean() <= MOST:
        return ""
    at = int(lacks.sum(axis=0).argmax())
    name, most = TRACE_RESOURCES[at], float(stuck[:, at].max())
    said = f"one worker needs up to {most:g} {UNITS[at]}, but the largest server has {largest[at]:g}"
    if has_nodes or at == 0:
        return f"{said}; choose larger nodes, or jobs that ask for less"
    least = math.ceil(float((stuck / [options.worker_gpu, options.worker_vcpu, options.worker_memory_gb]).max()))
    return f"{said}; enlarge servers with --instance-option worker_{name}={most:g} (per GPU of a server) or gpus_per_server={least}"


def _summary(
    trace_format: str,
    table: JobTable,
    sample: TraceSample,
    instance: AdmissionInstance,
    options: TraceOptions,
) -> TraceSummary:
    can_finish = instance.earliest_completion >= 0
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
    """Return the instance's data that the trace lacks."""
    found = [
        "utilities",
        f"up to {options.chunks_per_gpu:g} workers per recorded GPU",
        f"PSs of {options.ps_vcpu:g} vCPUs and {options.ps_memory_gb:g} GB",
        f"bandwidth (one PS for {options.workers_per_ps} workers)",
    ]
    if table.demand is None:
        found.append(f"workers' {options.worker_vcpu:g} vCPUs and {options.worker_memory_gb:g} GB")
    if table.nodes is None:
        found.append(f"servers of {options.gpus_per_server} GPUs and of {options.pss_per_server} PSs")
    return tuple(found)


def _left_out(dropped: Mapping[str, int]) -> str:
    return counted(dropped) or "none"

"""Generator of admission instances: the paper's ranges, bursty arrivals, heavy tails cut at the horizon."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from itertools import count, islice
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidOptionError, check_in
from optim.core.limits import check_drawn
from optim.models.admission.data import MEGABITS_THERE_AND_BACK, MICRO, Jobs, ServerClasses, SigmoidUtility
from optim.models.admission.instance import AdmissionInstance

DAY_S = 86_400

PEAK_S = 14 * 3600
"""Second of the day with the highest arrival rate; the horizon starts at midnight."""


def draw_arrivals(
    num_jobs: int, num_slots: int, slot_s: float, *, swing: float, burstiness: float, rng: np.random.Generator
) -> IntArray:
    """Draw ascending arrival slots.

    The rate of slot t is ``(1 + swing cos(2 pi (t slot_s - peak) / day)) G_t`` with independent gamma factors
    G_t of mean 1 and variance `burstiness`; given the number of arrivals, they are independent
    draws with probabilities proportional to the rate. Over many slots of mean rate m the variance of a slot's
    count is about ``m + m^2 (burstiness + swing^2 / 2)``.

    Parameters
    ----------
    num_jobs, num_slots, slot_s
        Number of jobs, number of slots in which they may arrive, and a slot's length in seconds.
    swing
        Relative amplitude of the daily wave, in [0, 1].
    burstiness
        Variance of the rate factor, at least 0; 0 gives a Poisson process.
    rng
        Source of randomness.

    Returns
    -------
    IntArray
        Arrival slot of each job, ascending, shape (jobs,).

    Examples
    --------
    >>> import numpy as np
    >>> draw_arrivals(4, 10, 3600.0, swing=0.5, burstiness=0.3, rng=np.random.default_rng(0)).shape
    (4,)
    """
    seconds = (np.arange(num_slots) + 0.5) * slot_s
    rate = 1.0 + swing * np.cos(2.0 * math.pi * (seconds - PEAK_S) / DAY_S)
    if burstiness > 0:
        rate = rate * rng.gamma(1.0 / burstiness, burstiness, size=num_slots)
    if rate.sum() <= 0:
        rate = np.ones(num_slots)
    drawn: IntArray = np.sort(rng.choice(num_slots, size=num_jobs, p=rate / rate.sum()))
    return drawn


def draw_durations(
    median: float, sigma: float, shortest: float, longest: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Draw from log-normal distributions truncated on both sides, by inversion.

    Parameters
    ----------
    median, sigma
        Median and standard deviation of the logarithm, before truncation.
    shortest
        Minimum duration.
    longest
        Maximum duration per job, shape (jobs,); a value below `shortest` replaces the minimum as well.
    rng
        Source of randomness.

    Returns
    -------
    FloatArray
        Durations in the unit of the limits, shape (jobs,).

    Examples
    --------
    >>> import numpy as np
    >>> longest = np.array([2.0, 8.0])
    >>> bool((draw_durations(4.0, 2.0, 1.0, longest, np.random.default_rng(0)) <= longest).all())
    True
    """
    least = np.minimum(shortest, longest)
    with np.errstate(divide="ignore"):
        low, high = (ndtr(np.log(limit / median) / sigma) for limit in (least, longest))
    quantile = low + (high - low) * rng.random(len(longest))
    drawn: FloatArray = np.clip(median * np.exp(sigma * ndtri(quantile)), least, longest)
    return drawn


RESOURCES = ("gpu", "vcpu", "memory_gb", "storage_gb")
"""Resource types of generated instances."""

SERVER_TYPES: Mapping[str, tuple[float, ...]] = MappingProxyType(
    {
        "p2.xlarge": (1, 4, 61, 200),
        "p2.8xlarge": (8, 32, 488, 800),
        "p2.16xlarge": (16, 64, 732, 1600),
        "g3.4xlarge": (1, 16, 122, 200),
        "g3.8xlarge": (2, 32, 244, 400),
        "g3.16xlarge": (4, 64, 488, 800),
        "c4.large": (0, 2, 3.75, 50),
        "c4.xlarge": (0, 4, 7.5, 100),
        "c4.2xlarge": (0, 8, 15, 200),
        "c4.4xlarge": (0, 16, 30, 400),
        "c4.8xlarge": (0, 36, 60, 800),
    }
)
"""Resources of one server by type, in the order of `RESOURCES`. GPUs, vCPUs and memory are the vendor's; these types have
no local disks, so storage is attached."""

GPU_TYPES = ("p2.xlarge", "p2.8xlarge", "p2.16xlarge", "g3.4xlarge", "g3.8xlarge", "g3.16xlarge")

CPU_TYPES = ("c4.2xlarge", "c4.4xlarge", "c4.8xlarge")
"""Default PS hosts; the smaller C4 types can't host one PS of the usual demands."""


def check_types(name: str, types: tuple[str, ...]) -> None:
    """Raise InvalidOptionError unless there is at least one type, and all are known."""
    unknown = [kind for kind in types if kind not in SERVER_TYPES]
    if not types or unknown:
        found = repr(unknown[0]) if unknown else "none"
        raise InvalidOptionError(f"{name} must list at least one of {', '.join(SERVER_TYPES)}, got {found}")


def draw_servers(types: tuple[str, ...], num_servers: int, num_slots: int, rng: np.random.Generator) -> ServerClasses:
    """Draw each server's type uniformly; types without a server are left out."""
    drawn = np.bincount(rng.integers(len(types), size=num_servers), minlength=len(types))
    counts = {name: number for name, number in zip(types, drawn.tolist(), strict=True) if number}
    capacity = np.array([np.rint(np.array(SERVER_TYPES[name]) * MICRO) for name in counts], dtype=np.int64)
    return ServerClasses(
        types=tuple(counts),
        capacity=np.repeat(capacity.reshape(-1, 1, len(RESOURCES)), num_slots, axis=1),
        count=np.array(list(counts.values()), dtype=np.int64),
    )


def merged(first: ServerClasses, second: ServerClasses) -> ServerClasses:
    """Return one pool of servers that both workers and PSs may use."""
    return ServerClasses(
        types=first.types + second.types,
        capacity=np.concatenate([first.capacity, second.capacity]),
        count=np.concatenate([first.count, second.count]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilityMix:
    """Distribution of the jobs' utilities f(d) = theta1 / (1 + exp(theta2 (d - theta3))).

    Parameters
    ----------
    insensitive, sensitive, critical
        Weights of the time-insensitive, time-sensitive and time-critical jobs; they need not add up to 1.
    theta1
        Range of the priority theta1, drawn uniformly.
    sensitive_theta2, critical_theta2
        Ranges of the urgency theta2, drawn uniformly, of time-sensitive and of time-critical jobs; others have 0.

    Raises
    ------
    InvalidOptionError
        If a weight is negative, all are 0, or a range decreases or starts below 0.

    References
    ----------
    Bao, Peng, Wu, Li, "Online Job Scheduling in Distributed Machine Learning Clusters", INFOCOM 2018,
    DOI 10.1109/INFOCOM.2018.8486422, evaluation section (the classes and their shares).
    """

    insensitive: float = 10.0
    sensitive: float = 55.0
    critical: float = 35.0
    theta1: tuple[float, float] = (1.0, 100.0)
    sensitive_theta2: tuple[float, float] = (0.01, 1.0)
    critical_theta2: tuple[float, float] = (4.0, 6.0)

    def __post_init__(self) -> None:
        weights = (self.insensitive, self.sensitive, self.critical)
        if not all(0 <= weight < float("inf") for weight in weights) or sum(weights) <= 0:
            raise InvalidOptionError(f"class weights must be at least 0, one of them positive, got {weights}")
        for name in ("theta1", "sensitive_theta2", "critical_theta2"):
            check_range(name, getattr(self, name), least=0.0)

    def draw(self, theta3: FloatArray, rng: np.random.Generator) -> tuple[SigmoidUtility, ...]:
        """Draw one utility per target delay, rounded to few digits.

        Parameters
        ----------
        theta3
            Target delays in slots, shape (jobs,).
        rng
            Source of randomness.
        """
        weights = np.array([self.insensitive, self.sensitive, self.critical])
        kind = rng.choice(3, size=len(theta3), p=weights / weights.sum())
        priority = rng.uniform(*self.theta1, size=len(theta3))
        urgency = np.stack(
            [
                np.zeros(len(theta3)),
                rng.uniform(*self.sensitive_theta2, size=len(theta3)),
                rng.uniform(*self.critical_theta2, size=len(theta3)),
            ]
        )
        return tuple(
            SigmoidUtility(theta1=round(first, 2), theta2=round(second, 3), theta3=third)
            for first, second, third in zip(
                priority.tolist(),
                urgency[kind, np.arange(len(theta3))].tolist(),
                theta3.tolist(),
                strict=True,
            )
        )


def check_range(name: str, limits: tuple[float, float], *, least: float, is_open: bool = False) -> None:
    """Raise InvalidOptionError unless a range (low, high) has low <= high and starts at `least` or above."""
    low, high = limits
    starts_well = low > least if is_open else low >= least
    if not (starts_well and low <= high < float("inf")):
        sign = ">" if is_open else ">="
        raise InvalidOptionError(f"{name} must be a range (low, high) with low {sign} {least:g}, got {limits}")


PROFILED_SIZES = {"num_jobs": 40, "num_slots": 30, "num_worker_servers": 6, "num_ps_servers": 6}
"""Default sizes of instances whose jobs follow measured profiles."""

MAX_CHUNKS = 100

MIN_CHUNKS = 5
"""The paper's minimum of N, the maximum number of workers of a job, for clusters of ten servers or more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorOptions:
    """Sizes and distributions of a generated admission instance.

    Ranges are (low, high), both included, and uniform unless stated otherwise.

    Parameters
    ----------
    num_jobs, num_slots, num_worker_servers, num_ps_servers
        Numbers of jobs, of slots, and of servers for workers and for PSs.
    slot_s
        Length of a slot in seconds.
    chunks
        Range of N, the maximum number of workers of a job. None for the paper's 5 to 100 or, with H < 10 worker
        servers, min(5, H) to H^2, so that small clusters get small jobs.
    epochs, minibatches, gradient_mb, worker_mbps, ps_mbps
        Ranges of E (epochs), M (mini-batches per chunk), e (gradient size), b and B (bandwidths of a worker and of a
        PS).
    communication
        Range of the share of a mini-batch's drawn time that communication may take. Where it would take more, the
        generator raises b, then lowers e.
    worker_gpu, worker_vcpu, worker_memory_gb, ps_vcpu, ps_memory_gb, storage_gb
        Integer ranges of the demands.
    target_delay
        Integer range of theta3 in slots.
    duration_median, duration_sigma
        Median, and standard deviation of the logarithm, of the jobs' shortest durations (with all N workers, in slots).
        They are log-normal, truncated below at `shortest` and above at the minimum of theta3, a third of the horizon,
        and the remaining slots.
    shortest
        Lower limit of the shortest durations, in slots.
    utilities
        Classes of utilities and their shares.
    arrival_span
        Share of the horizon, from its start, in which jobs arrive.
    arrival_swing, arrival_burstiness
        Amplitude of the daily wave and variance of the slots' random rate (`draw_arrivals`).
    worker_types, ps_types
        Server types; each server's type is drawn uniformly.
    shared_servers
        Whether workers and PSs may use all servers.
    chunk_integral, max_share_per_server, min_utility
        See `AdmissionInstance`.
    min_schedulable
        Jobs that can't finish even alone are redrawn until at least this share of jobs can.
    draw_work
        For jobs from profiles that state their work: whether each job's share of this work is its drawn duration over
        `duration_median`, instead of 1. None to follow the profiles (`is_work_drawn`), or to use all work without this field.

    Raises
    ------
    InvalidOptionError
        If an option is out of its range.

    Notes
    -----
    Ranges and classes are those of the paper's evaluation. Drawing E, M and tau from them independently
    makes most jobs last longer than the horizon, so the generator draws the shortest duration and derives tau from it.
    The tail is that of Philly's run times: the mean of a log-normal distribution is exp(sigma^2 / 2) times its median,
    and the published mean and median give sigma = 2.46 (the traces of Helios and Acme-Seren give similar values).
    Truncation removes work that can't finish in time. The median is set so that the remaining durations resemble those
    of the reference instances.

    References
    ----------
    Bao, Peng, Wu, Li, INFOCOM 2018, DOI 10.1109/INFOCOM.2018.8486422 (ranges, classes, server types).
    Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", USENIX ATC
    2019; Hu et al., "Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU
    Datacenters", SC 2021, arXiv 2109.01313; Hu et al., "Characterization of Large Language Model
    Development in the Datacenter", NSDI 2024 (mean and median run times; daily wave of submissions).
    """

    num_jobs: int = 200
    num_slots: int = 100
    num_worker_servers: int = 50
    num_ps_servers: int = 50
    slot_s: float = 3600.0
    chunks: tuple[int, int] | None = None
    epochs: tuple[int, int] = (50, 200)
    minibatches: tuple[int, int] = (10, 100)
    gradient_mb: tuple[float, float] = (30.0, 575.0)
    worker_mbps: tuple[int, int] = (100, 5_000)
    ps_mbps: tuple[int, int] = (5_000, 20_000)
    communication: tuple[float, float] = (0.2, 0.6)
    worker_gpu: tuple[int, int] = (0, 4)
    worker_vcpu: tuple[int, int] = (1, 10)
    worker_memory_gb: tuple[int, int] = (2, 32)
    ps_vcpu: tuple[int, int] = (1, 10)
    ps_memory_gb: tuple[int, int] = (2, 32)
    storage_gb: tuple[int, int] = (5, 10)
    target_delay: tuple[int, int] = (1, 15)
    duration_median: float = 100.0
    duration_sigma: float = 2.46
    shortest: float = 0.9
    utilities: UtilityMix = field(default_factory=UtilityMix)
    arrival_span: float = 0.9
    arrival_swing: float = 0.55
    arrival_burstiness: float = 0.35
    worker_types: tuple[str, ...] = GPU_TYPES
    ps_types: tuple[str, ...] = CPU_TYPES
    shared_servers: bool = False
    chunk_integral: bool = False
    max_share_per_server: float | None = None
    min_utility: float = 0.01
    min_schedulable: float = 0.6
    draw_work: bool | None = None

    def __post_init__(self) -> None:
        check_in("[0, inf)", self, "num_jobs", "arrival_burstiness")
        check_in("[1, inf)", self, "num_slots", "num_worker_servers", "num_ps_servers")
        check_in("(0, 1e9]", self, "slot_s")
        check_in("(0, inf)", self, "duration_median", "duration_sigma", "shortest")
        check_in("[0, 1]", self, "arrival_swing", "min_utility", "min_schedulable")
        check_in("(0, 1]", self, "arrival_span", "max_share_per_server")
        for name in ("epochs", "minibatches", "gradient_mb", "worker_mbps", "ps_mbps", "target_delay"):
            check_range(name, getattr(self, name), least=0.0, is_open=True)
        demands = ("worker_gpu", "worker_vcpu", "worker_memory_gb", "ps_vcpu", "ps_memory_gb", "storage_gb")
        for name in (*demands, "communication"):
            check_range(name, getattr(self, name), least=0.0)
        if self.chunks is not None:
            check_range("chunks", self.chunks, least=1.0)
        if not self.communication[1] < 1:
            raise InvalidOptionError(f"communication must be below 1, got {self.communication}")
        if (Fraction(str(self.slot_s)) * MICRO).denominator != 1:
            raise InvalidOptionError(f"slot_s must have at most 6 decimal places, got {self.slot_s}")
        if self.worker_mbps[1] > self.ps_mbps[0]:
            raise InvalidOptionError(
                f"worker_mbps must not exceed ps_mbps anywhere, got {self.worker_mbps} and {self.ps_mbps}: "
                "a PS must serve at least one worker"
            )
        check_types("worker_types", self.worker_types)
        check_types("ps_types", self.ps_types)

    @property
    def chunk_range(self) -> tuple[int, int]:
        """Range of N for this many worker servers."""
        if self.chunks is not None:
            return self.chunks
        servers = self.num_worker_servers
        return min(MIN_CHUNKS, servers), min(MAX_CHUNKS, servers * servers)


HORIZON_SHARE = 1 / 3
"""Upper limit of the shortest durations, as a share of the horizon."""

KILO = 1_000
"""Micro-megabytes per kilobyte: gradients are integer kilobytes."""


def draw_jobs(options: GeneratorOptions, arrival: IntArray, rng: np.random.Generator) -> Jobs:
    """Draw one job per arrival."""
    size = len(arrival)
    epochs, chunks, minibatches = (
        rng.integers(low, high, size=size, endpoint=True)
        for low, high in (options.epochs, options.chunk_range, options.minibatches)
    )
    target_delay = rng.integers(*options.target_delay, size=size, endpoint=True)
    slots_left = options.num_slots - arrival
    longest = np.minimum(np.minimum(target_delay, options.num_slots * HORIZON_SHARE), slots_left)
    duration = draw_durations(options.duration_median, options.duration_sigma, options.shortest, longest, rng)
    seconds = duration * options.slot_s / (epochs * minibatches)
    gradient, rate = _draw_communication(options, seconds, rng)
    compute = seconds * MICRO - MEGABITS_THERE_AND_BACK * MICRO * gradient / rate
    width = len(str(max(size - 1, 0)))
    return Jobs(
        ids=tuple(f"job-{i:0{width}d}" for i in range(size)),
        arrival=arrival,
        epochs=epochs,
        chunks=chunks,
        minibatches=minibatches,
        minibatch_micro_s=np.maximum(np.floor(compute), 0).astype(np.int64),
        gradient_micro_mb=gradient,
        worker_micro_mbps=rate,
        utilities=options.utilities.draw(target_delay.astype(np.float64), rng),
        ps_micro_mbps=rng.integers(*options.ps_mbps, size=size, endpoint=True) * MICRO,
        segment_offset=np.arange(size + 1, dtype=np.int64),
        segment_start=np.zeros(size, dtype=np.int64),
        worker_demand=_draw_demands(
            size, (options.worker_gpu, options.worker_vcpu, options.worker_memory_gb, options.storage_gb), rng
        ),
        ps_demand=_draw_demands(size, ((0, 0), options.ps_vcpu, options.ps_memory_gb, options.storage_gb), rng),
        min_utility=np.full(size, np.nan),
    )


def _exchange(jobs: Jobs, which: IntArray, others: Jobs) -> Jobs:
    """Return the jobs, each of one segment, with those at the indices `which` replaced by `others`; names stay."""
    changed: dict[str, Any] = {}
    for name in {each.name for each in fields(jobs)} - {"ids", "segment_offset", "segment_start"}:
        column = getattr(jobs, name)
        if isinstance(column, np.ndarray):
            changed[name] = column.copy()
            changed[name][which] = getattr(others, name)
        elif column:
            by_place = dict(zip(which.tolist(), getattr(others, name), strict=True))
            changed[name] = tuple(by_place.get(place, entry) for place, entry in enumerate(column))
    return replace(jobs, **changed)


def _draw_communication(
    options: GeneratorOptions, seconds: FloatArray, rng: np.random.Generator
) -> tuple[IntArray, IntArray]:
    """Draw gradient sizes e and bandwidths b such that sending takes at most a drawn share of a mini-batch's `seconds`."""
    size = len(seconds)
    gradient = rng.uniform(*options.gradient_mb, size=size)
    drawn_rate = rng.integers(*options.worker_mbps, size=size, endpoint=True)
    allowed = seconds * rng.uniform(*options.communication, size=size)
    with np.errstate(divide="ignore"):
        needed = np.ceil(MEGABITS_THERE_AND_BACK * gradient / allowed)
    rate = np.clip(needed, drawn_rate, options.worker_mbps[1])
    most = allowed * rate / MEGABITS_THERE_AND_BACK
    kilobytes = np.floor(np.minimum(gradient, most) * KILO)
    return kilobytes.astype(np.int64) * KILO, rate.astype(np.int64) * MICRO


def _draw_demands(size: int, ranges: tuple[tuple[int, int], ...], rng: np.random.Generator) -> IntArray:
    """Draw integer demands in units of 1e-6, shape (jobs, resources)."""
    return np.stack([rng.integers(low, high, size=size, endpoint=True) for low, high in ranges], axis=1) * MICRO


__all__ = ["GeneratorOptions", "generate"]

DrawJobs = Callable[[GeneratorOptions, IntArray, np.random.Generator], Jobs]

MAX_ROUNDS = 50
"""Maximum rounds of redrawing jobs that can't finish. If one drawn job in five can finish, 50 rounds leave one job in
70,000 that can't."""


def generate(options: GeneratorOptions, seed: int, *, draw_jobs: DrawJobs = draw_jobs) -> AdmissionInstance:
    """Generate an admission instance.

    Parameters
    ----------
    options
        Sizes and distributions.
    seed
        Equal options and seeds give equal instances.
    draw_jobs
        Function that draws one job per arrival, to replace the paper's jobs.

    Returns
    -------
    AdmissionInstance
        Instance whose quantities have at most six decimal places.

    Raises
    ------
    InvalidOptionError
        If too few jobs can finish on the drawn servers (`GeneratorOptions.min_schedulable`), or the size exceeds the
        limits on input files (`ReadLimits`).

    Examples
    --------
    >>> options = GeneratorOptions(num_jobs=8, num_slots=6, num_worker_servers=2, num_ps_servers=2)
    >>> generate(options, seed=1).name
    'generated-8-6-2-2-1'
    """
    _check_sizes(options)
    server_rng, arrival_rng, job_rng = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(3))
    sides = _draw_sides(options, server_rng)
    arrival = draw_arrivals(
        options.num_jobs,
        max(1, int(options.arrival_span * options.num_slots)),
        options.slot_s,
        swing=options.arrival_swing,
        burstiness=options.arrival_burstiness,
        rng=arrival_rng,
    )
    jobs = draw_jobs(options, arrival, job_rng)
    for _ in range(MAX_ROUNDS):
        instance = _assemble(options, seed, jobs, sides)
        stuck = np.flatnonzero(instance.earliest_completion < 0)
        if len(stuck) <= (1 - options.min_schedulable) * options.num_jobs:
            return instance
        jobs = _exchange(jobs, stuck, draw_jobs(options, arrival[stuck], job_rng))
    raise InvalidOptionError(
        f"min_schedulable must be at most {1 - len(stuck) / options.num_jobs:.2f} on these servers, got "
        f"{options.min_schedulable}: {len(stuck)} of {options.num_jobs} jobs can't finish even alone; "
        "lower min_schedulable, add servers, or lower the demands"
    )


def _check_sizes(options: GeneratorOptions) -> None:
    """Raise InvalidOptionError if an instance would exceed the limits on input files (`ReadLimits`)."""
    for name in ("num_jobs", "num_slots", "num_worker_servers", "num_ps_servers"):
        check_drawn("count", getattr(options, name), name)
    check_drawn("cells", options.num_slots * options.num_jobs, "num_slots times num_jobs")


def _draw_sides(options: GeneratorOptions, rng: np.random.Generator) -> tuple[ServerClasses, ServerClasses]:
    """Draw the worker servers and the PS servers; the same object twice if workers and PSs share all servers."""
    workers, ps = (
        draw_servers(types, number, options.num_slots, rng)
        for types, number in (
            (options.worker_types, options.num_worker_servers),
            (options.ps_types, options.num_ps_servers),
        )
    )
    if options.shared_servers:
        workers = ps = merged(workers, ps)
    return workers, ps


def _assemble(
    options: GeneratorOptions, seed: int, jobs: Jobs, sides: tuple[ServerClasses, ServerClasses]
) -> AdmissionInstance:
    share = options.max_share_per_server
    return AdmissionInstance(
        name=f"generated-{options.num_jobs}-{options.num_slots}-{options.num_worker_servers}"
        f"-{options.num_ps_servers}-{seed}",
        horizon=options.num_slots,
        slot_micro_s=round(options.slot_s * MICRO),
        resources=RESOURCES,
        jobs=jobs,
        worker_servers=sides[0],
        ps_servers=sides[1],
        min_utility_share=_decimal_fraction(options.min_utility),
        max_share_per_server=None if share is None else _decimal_fraction(share),
        chunk_integral=options.chunk_integral,
    )


def _decimal_fraction(value: float) -> Fraction:
    """Return a number, rounded to six decimal places, as an exact fraction."""
    return Fraction(round(value * MICRO), MICRO)


SEED_STEP = 1000
"""Distance between the generator's seeds of successive seeds: up to this many days per seed, no two seeds share a day."""


def drawn_days(instance: AdmissionInstance, num_days: int, seed: int) -> tuple[AdmissionInstance, ...]:
    """Generate admission instances of further days, with an instance's servers and number of jobs.

    Parameters
    ----------
    instance
        Instance with the servers, slots and rules. Its jobs determine only the number of jobs; a day with the same jobs
        is left out.
    num_days, seed
        Number of days, and random seed; equal seeds give equal days.

    Raises
    ------
    InvalidOptionError
        If the instance's resources aren't the generator's.
    """
    if instance.resources != RESOURCES:
        raise InvalidOptionError(
            f"--histories generates jobs that need {', '.join(RESOURCES)}; instance {instance.name!r} has "
            f"{', '.join(instance.resources)}: give --history FILE instead"
        )
    options = GeneratorOptions(
        num_jobs=max(1, instance.num_jobs),
        num_slots=instance.horizon,
        slot_s=instance.slot_micro_s / MICRO,
        num_worker_servers=instance.worker_servers.num_servers,
        num_ps_servers=instance.ps_servers.num_servers,
    )
    drawn = (generate(options, SEED_STEP * (seed + 1) + day).jobs for day in count())
    others = (jobs for jobs in drawn if not _are_same(jobs, instance.jobs))
    return tuple(
        replace(instance, name=f"{instance.name}-drawn{day}-{seed}", jobs=jobs)
        for day, jobs in enumerate(islice(others, num_days), start=1)
    )


def _are_same(jobs: Jobs, others: Jobs) -> bool:
    """Return whether jobs have equal data at arrival, as if generated with the same seed."""
    return all(
        np.array_equal(getattr(jobs, name), getattr(others, name))
        for name in ("arrival", "epochs", "chunks", "minibatches", "gradient_micro_mb", "worker_demand")
    )

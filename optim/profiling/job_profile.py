"""Assembly of a job's profile from measurements, warnings about its quality, and rescaling of profiles."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec import UNSET, UnsetType, structs

from optim.core.arrays import FloatArray
from optim.core.errors import InvalidOptionError, check_in
from optim.models.admission.data import MEGABITS_THERE_AND_BACK
from optim.profiling.document import (
    Demand,
    JobProfile,
    MeasuredValue,
    Placement,
    ProfileDocument,
    ScalingPoint,
    SpeedFunction,
    UpdateCost,
)
from optim.profiling.fitting import TERMS, fit_times, intervals, synchronous_terms
from optim.profiling.machine_benchmarks import FLOAT_BYTES, LinkFigures
from optim.profiling.timing import MAX_NOISE, Timing

MAX_ERROR = 0.10
"""Median relative error of leave-one-out predictions above which a fit counts as unreliable."""


def _fits(job: JobProfile) -> dict[str, SpeedFunction | UpdateCost]:
    """Return the fits of a profile, by name."""
    fits = {"synchronous speed": job.speed, "update cost": job.update}
    return {name: fit for name, fit in fits.items() if fit is not UNSET}


def fit_errors(job: JobProfile) -> dict[str, float]:
    """Return the median leave-one-out error of each fit of the profile."""
    return {name: fit.error for name, fit in _fits(job).items() if fit.error is not UNSET}


def quality_warnings(profiles: ProfileDocument) -> list[str]:
    """Return one line per unreliable value, with a remedy."""
    lines = []
    machine = profiles.machine
    if machine is not UNSET and machine.noise > MAX_NOISE:
        lines.append(
            f"noisy measurement: times of equal work differ by {machine.noise:.0%}, above the limit of {MAX_NOISE:.0%} for a "
            "profile; measure again on an idle machine"
        )
    for job in profiles.jobs:
        for name, error in fit_errors(job).items():
            if error > MAX_ERROR:
                more = (
                    "a larger --scale or --option repeats=N"
                    if job.usage is UNSET
                    else "more steps or --option rounds=N"
                )
                lines.append(
                    f"{job.name}: predictions of the {name} at points left out of the fit err by {error:.0%} (median), more than "
                    f"{MAX_ERROR:.0%}; measure on a quieter machine, or with {more}"
                )
        lines += [
            f"{job.name}: measurements of the {name} can't separate {', '.join(fit.untold)}; other terms include its share"
            for name, fit in _fits(job).items()
            if fit.untold
        ]
    return lines


MIN_POINTS = 6
"""Minimum number of points: one more than the speed function has coefficients, so that the error can be estimated."""

MEGA = 1e6

MINUTE_S = 60.0

PATIENCE_S = 600.0
"""Default of `patience_s`, in seconds: longer than the preparation or a step of a script usually takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOptions:
    """Values that one machine can't measure, and the extent of the measurement.

    Parameters
    ----------
    workers_a_server
        Number of workers that one parameter server serves at once; a worker's bandwidth b is the server's bandwidth B
        divided by this number.
    rack_mbps, cluster_mbps
        Bandwidth of a worker to other machines in its rack, and to machines in other racks, in megabits per second.
    gpu, vcpu, memory_gb
        Resource demand of a worker; by default one GPU if the job was measured on a GPU.
    max_workers, max_servers
        Maximum numbers of workers and of servers in the grid on which steps are timed; the grid has powers of two.
    max_points
        Maximum number of timed grid points, for which the most informative are chosen; a smaller grid is timed in full.
    repeats
        Number of timed steps per grid point.
    rounds
        Number of runs of a user's script with each number of workers; the run with the least median step time counts.
    patience_s
        Seconds without a reported step after which a user's script is ended.
    epochs
        Number of passes of a job over its data, which the measurement doesn't determine.
    slot_s
        Suitable slot length for jobs with this many passes, in seconds.
    cache_mib, allowed_gb
        Size of the last-level cache in MiB, and memory in GB that the measurement may fill. Set them if the system
        reports the values of a shared host.
    """

    workers_a_server: int = 4
    rack_mbps: float = 10_000.0
    cluster_mbps: float = 2_500.0
    gpu: float | None = None
    vcpu: float = 1.0
    memory_gb: float = 2.0
    max_workers: int = 4
    max_servers: int = 4
    max_points: int = 12
    repeats: int = 40
    rounds: int = 1
    patience_s: float = PATIENCE_S
    epochs: float = 1e6
    slot_s: float = 60.0
    cache_mib: float | None = None
    allowed_gb: float | None = None

    def __post_init__(self) -> None:
        check_in("[1, inf)", self, "workers_a_server", "max_workers", "max_servers", "repeats", "rounds")
        check_in(
            "(0, inf)", self, "rack_mbps", "cluster_mbps", "epochs", "slot_s", "cache_mib", "allowed_gb", "patience_s"
        )
        check_in("[0, inf)", self, "gpu", "vcpu", "memory_gb")
        if self.max_points < MIN_POINTS:
            raise InvalidOptionError(
                f"max_points must be at least {MIN_POINTS}, got {self.max_points}: the speed function has five "
                "coefficients"
            )

    @property
    def grid(self) -> tuple[tuple[int, int], ...]:
        """All pairs (workers, servers) of the grid, ordered by workers."""
        return tuple(
            (2**w, 2**p) for w in range(self.max_workers.bit_length()) for p in range(self.max_servers.bit_length())
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobMeasurements:
    """Measurements of a job.

    Parameters
    ----------
    name, source
        Name of the job, and source of the measurements.
    minibatch
        Seconds of one partition's gradient.
    num_parameters, num_partitions
        Numbers of the job's parameters and data partitions.
    grid
        Numbers of workers and servers of the timed steps.
    steps
        Timing of a step at each point of `grid`.
    startup_s
        Seconds until a new worker's process can compute.
    num_samples
        Number of examples in all partitions, 0 if unknown.
    device, gpu
        Name of the computing device, and whether it is a GPU.
    """

    name: str
    source: str
    minibatch: Timing
    num_parameters: int
    num_partitions: int
    grid: tuple[tuple[int, int], ...]
    steps: tuple[Timing, ...]
    startup_s: float
    num_samples: int = 0
    device: str | UnsetType = UNSET
    gpu: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFigures:
    """Measurements of a machine as parameter server, common to all of its jobs."""

    link: LinkFigures
    update: UpdateCost
    options: ProfileOptions = field(default_factory=ProfileOptions)


def job_profile(measured: JobMeasurements, server: ServerFigures) -> JobProfile:
    """Fit and assemble a job's profile.

    tau is the time of a partition's gradient, and e the size of the parameters. B is the rate at which a server
    transfers and adds pushes, and b is the share of B per worker. A planned change costs the transfer of the
    parameters; an eviction also costs the application of outstanding pushes. For a job on several machines, a step
    takes ``tau + 2 e / b`` with the bandwidth of the rack or of the cluster as b.
    """
    options, link = server.options, server.link
    size = measured.num_parameters * FLOAT_BYTES
    tau = measured.minibatch.interval()
    ps = _server_rate(size, server)
    worker = ps.through(lambda mbps: mbps / options.workers_a_server)
    carry_s = link.start_s + size / MEGA * 8 / link.mbps.value
    apply_s = update_seconds(server.update, options.workers_a_server, size)
    workers, servers = np.array(measured.grid, dtype=np.float64).T
    batch = float(measured.num_partitions)  # a step uses all partitions
    terms = synchronous_terms(workers, servers, batch)
    workers_of_step = (workers for workers, _ in measured.grid)
    scaling = scaling_points(zip(workers_of_step, measured.steps, strict=True))
    return JobProfile(
        name=measured.name,
        source=measured.source,
        minibatch_s=tau,
        gradient_mb=size / MEGA,
        worker_mbps=worker,
        ps_mbps=ps,
        scaling=scaling,
        startup_min=measured.startup_s / MINUTE_S,
        change_min=carry_s / MINUTE_S,
        eviction_min=(carry_s + apply_s) / MINUTE_S,
        placement=placement_of(tau.value, size / MEGA, worker.value, options),
        worker=Demand(
            gpu=float(measured.gpu) if options.gpu is None else options.gpu,
            vcpu=options.vcpu,
            memory_gb=options.memory_gb,
        ),
        ps=Demand(gpu=0.0, vcpu=1.0, memory_gb=max(1.0, round(3 * size / 1e9, 3))),
        speed=_speed(terms, measured.steps, workers, batch),
        linear_error=linear_error(scaling),
        update=server.update,
        epochs=options.epochs,
        minibatches=measured.num_partitions,
        samples=measured.num_samples or measured.num_partitions,
        device=measured.device,
    )


def update_seconds(cost: UpdateCost, pushes: int, num_bytes: float) -> float:
    """Return the seconds in which a server adds pushes of this size and applies them."""
    is_inside = (pushes + 2) * num_bytes <= cost.cache_bytes
    terms = np.array([1.0, pushes, num_bytes, pushes * num_bytes])
    return float(terms @ np.array([c.value for c in (cost.in_cache if is_inside else cost.beyond)]))


def _server_rate(size: int, server: ServerFigures) -> MeasuredValue:
    """Return the rate in megabits per second at which a server transfers and adds pushes."""
    pushes = server.options.workers_a_server
    megabits = pushes * size * 8 / MEGA

    def rate(mbps: float) -> float:
        return megabits / (pushes * server.link.start_s + megabits / mbps + update_seconds(server.update, pushes, size))

    return server.link.mbps.through(rate)


def scaling_points(steps: Iterable[tuple[int, Timing]]) -> list[ScalingPoint]:
    """Return the speed-up of each number of workers, from the fastest timing of a step; the numbers must include 1."""
    best: dict[int, Timing] = {}
    for workers, timing in steps:
        if workers not in best or timing.median < best[workers].median:
            best[workers] = timing
    one = best[1].interval()
    points = []
    for workers, timing in sorted(best.items()):
        step = timing.interval()
        low, high = (one.low / step.high, one.high / step.low) if workers > 1 else (1.0, 1.0)
        points.append(ScalingPoint(workers=workers, speedup=one.value / step.value, low=low, high=high))
    return points


def linear_error(points: Sequence[ScalingPoint]) -> float:
    """Return the largest relative error of the assumption that w workers are w times as fast as one."""
    return max(abs(point.workers / point.speedup - 1.0) for point in points)


def _speed(
    terms: FloatArray, timings: Sequence[Timing], workers: FloatArray, global_batch: float | UnsetType
) -> SpeedFunction:
    """Fit a speed function to the timings of the grid's points."""
    fit = fit_times(terms, np.array([timing.median for timing in timings]))
    return SpeedFunction(
        kind="synchronous",
        coefficients=intervals(fit),
        largest_workers=int(workers.max()),
        error=fit.error if np.isfinite(fit.error) else 1.0,
        untold=[f"the term {TERMS[term]} from those before it" for term in fit.unidentifiable],
        global_batch=global_batch,
    )


def placement_of(tau_s: float, megabytes: float, own_mbps: float, options: ProfileOptions) -> Placement:
    """Return the slowdown of a mini-batch by placement; within a machine the bandwidth is `own_mbps`."""

    def step(mbps: float) -> float:
        return tau_s + MEGABITS_THERE_AND_BACK * megabytes / min(mbps, own_mbps)

    best_s = step(own_mbps)
    return Placement(rack=step(options.rack_mbps) / best_s, cluster=step(options.cluster_mbps) / best_s)


COMPUTED, CARRIED = 0, 2
"""Indices of the coefficients of computation (M/w) and of gradient transfer (w/p) in a speed function."""


def rescaled(job: JobProfile, *, tau: float = 1.0, gradient: float = 1.0, bandwidth: float = 1.0) -> JobProfile:
    """Return the profile of the same job with mini-batch time, gradient and bandwidths multiplied by these factors.

    The job's work is unchanged. A step takes ``tau + transfer``; the first part changes in proportion to `tau`, the
    second in proportion to `gradient` / `bandwidth`. Speed-ups, slowdowns by placement and losses are computed from the
    new step times. Start-up and the fixed part of a step are unchanged.

    Parameters
    ----------
    job
        The job.
    tau, gradient, bandwidth
        Positive factors on the mini-batch time tau, on the gradient size e, and on all bandwidths.
    """
    carrying = gradient / bandwidth
    own_tau, one = job.minibatch_s.value, _one_worker_s(job)
    new_one = own_tau * tau + (one - own_tau) * carrying

    def longer(seconds: float) -> float:
        """Return the new seconds of a step; its time beyond tau is transfer."""
        return own_tau * tau + max(0.0, seconds - own_tau) * carrying

    points = [
        ScalingPoint(
            workers=point.workers, speedup=point.workers * new_one / longer(point.workers * one / point.speedup)
        )
        for point in job.scaling
    ]
    slower = {place: max(1.0, longer(ratio * one) / new_one) for place, ratio in structs.asdict(job.placement).items()}
    return structs.replace(
        job,
        minibatch_s=job.minibatch_s.through(lambda value: value * tau),
        gradient_mb=job.gradient_mb * gradient,
        worker_mbps=job.worker_mbps.through(lambda value: value * bandwidth),
        ps_mbps=job.ps_mbps.through(lambda value: value * bandwidth),
        scaling=points,
        change_min=job.change_min * carrying,
        eviction_min=job.eviction_min * carrying,
        placement=Placement(**slower),
        speed=UNSET if job.speed is UNSET else _function(job.speed, tau, carrying),
        asynchronous=UNSET,
    )


def _one_worker_s(job: JobProfile) -> float:
    """Return the seconds of one worker's mini-batch, ``tau + 2 e / b``."""
    return job.minibatch_s.value + MEGABITS_THERE_AND_BACK * job.gradient_mb / job.worker_mbps.value


def _function(function: SpeedFunction, tau: float, carrying: float) -> SpeedFunction:
    factors = {COMPUTED: tau, CARRIED: carrying}
    coefficients = [
        MeasuredValue(value=coefficient.value * factor, low=coefficient.low * factor, high=coefficient.high * factor)
        for coefficient, factor in (
            (coefficient, factors.get(k, 1.0)) for k, coefficient in enumerate(function.coefficients)
        )
    ]
    return structs.replace(function, coefficients=coefficients)

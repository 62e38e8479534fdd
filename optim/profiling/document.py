"""The file format ``optim/profile/1``: profiles of training jobs, from which the three problems' generators draw jobs."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from optim.core.documents import decode
from optim.core.errors import InvalidProblemError
from optim.core.files import read_bytes, write_bytes

SCHEMA = "optim/profile/1"

Name = Annotated[str, Meta(min_length=1)]
Positive = Annotated[float, Meta(gt=0)]
NonNegative = Annotated[float, Meta(ge=0)]
AtLeastOne = Annotated[float, Meta(ge=1)]


class MeasuredValue(Struct, forbid_unknown_fields=True):
    """A value with its 95 % confidence interval."""

    value: NonNegative
    low: NonNegative
    high: NonNegative

    @classmethod
    def exactly(cls, value: float) -> "MeasuredValue":
        """Return a value that is known exactly."""
        return cls(value=value, low=value, high=value)

    def through(self, rising: Callable[[float], float]) -> "MeasuredValue":
        """Return the result of an increasing function of this value, with the interval's image as interval."""
        return MeasuredValue(value=rising(self.value), low=rising(self.low), high=rising(self.high))


class SpeedFunction(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Seconds per step as a sum of terms with coefficients of at least 0 (Optimus: Peng et al., EuroSys 2018).

    A ``synchronous`` step takes ``t0 M/w + t1 + t2 w/p + t3 w + t4 p`` for M items (`global_batch`), w workers and p
    parameter servers. Files of earlier versions also have ``asynchronous`` functions, which are ignored.
    """

    kind: Literal["synchronous", "asynchronous"]
    coefficients: list[MeasuredValue]
    largest_workers: Annotated[int, Meta(ge=1, description="largest number of workers measured")]
    error: NonNegative | UnsetType = UNSET
    """Median relative error of leave-one-out predictions."""
    untold: list[str] = []
    """Terms that the measurements can't separate: their coefficient is 0, and other terms include their share."""
    global_batch: Positive | UnsetType = UNSET


class UpdateCost(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Seconds in which a server adds W pushes of equal size and applies them: ``a0 + a1 W + a2 bytes + a3 W bytes``.

    One set of coefficients applies if pushes and parameters fit into the cache, the other if they don't.
    """

    in_cache: list[MeasuredValue]
    beyond: list[MeasuredValue]
    cache_bytes: Positive
    error: NonNegative
    untold: list[str] = []
    """Terms that the measurements can't separate."""


class ScalingPoint(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Measured speed-up relative to one worker; `low` and `high` follow from the 95 % intervals of the two step times."""

    workers: Annotated[int, Meta(ge=1)]
    speedup: Positive
    low: Positive | UnsetType = UNSET
    high: Positive | UnsetType = UNSET


class Placement(Struct, forbid_unknown_fields=True):
    """Slowdown of a step relative to the best placement, by the smallest part of the cluster that contains the job."""

    slot: AtLeastOne = 1.0
    machine: AtLeastOne = 1.0
    rack: AtLeastOne = 1.0
    cluster: AtLeastOne = 1.0


class Demand(Struct, forbid_unknown_fields=True):
    """Resources of a worker or a parameter server."""

    gpu: NonNegative = 0.0
    vcpu: NonNegative = 1.0
    memory_gb: NonNegative = 1.0
    storage_gb: NonNegative = 0.0


class Usage(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Use of the machine on which a script was profiled; unknown fields are absent.

    `model` is the model of step times that predicts the measurements best. `alone_s` is the time in a step that one
    worker computes alone (its gradient, if the script marks it by `timer.alone`). `warmup_s` is the time that the
    script's first steps took beyond that of as many typical steps.
    """

    model: Name
    warmup_s: NonNegative
    host_gb: NonNegative
    alone_s: NonNegative | None = None
    device_gb: NonNegative | None = None
    cpu_share: NonNegative | None = None
    device_share: NonNegative | None = None
    network_mbps: NonNegative | None = None


class JobProfile(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One type of training job.

    All intervals are 95 % confidence intervals. Those of times come from order statistics, those of coefficients from a
    bootstrap, and those of bandwidths from Sen's slopes. The job's work is `epochs` passes over `samples`; if these are
    absent, the generator of instances chooses the work.

    Parameters
    ----------
    name, source
        Name of the job, and origin of the measurements.
    minibatch_s
        tau of OASiS: seconds per mini-batch of a worker; for a script, a complete step of one worker.
    gradient_mb
        e: megabytes of gradients, sent once each way.
    worker_mbps, ps_mbps
        b and B: bandwidth of a worker and of a parameter server, in megabits per second.
    scaling
        Speed-up by number of workers. BidBrain's scalability is the concave envelope of these points, extrapolated to
        twice the largest measured number.
    startup_min, change_min, eviction_min
        Minutes lost in BidBrain's model by the start-up, by a planned change (sigma) and by an eviction (lambda).
    placement
        Slowdown of a step in a `slot`, `machine`, `rack` or `cluster`, relative to the best placement.
    worker, ps
        Resource demands of a worker and of a parameter server.
    speed
        Optimus' speed function: coefficients by non-negative least squares of relative errors, and the median error of
        predicting a point from the other points.
    asynchronous
        Only in files of earlier versions; ignored.
    linear_error
        Largest relative error of OASiS' assumption that w workers are w times as fast.
    update
        Cost of an update at a parameter server, by number and size of the pushes, in and beyond the cache.
    epochs, minibatches, samples
        Work of a complete job: passes over the data, mini-batches per epoch (of all workers together), and examples.
    device
        Device on which the steps ran, as JAX or PyTorch names it; absent for published jobs, and for scripts that use neither.
    usage
        Use of the machine by a profiled script.
    """

    name: Name
    source: Name
    minibatch_s: MeasuredValue
    gradient_mb: Positive
    worker_mbps: MeasuredValue
    ps_mbps: MeasuredValue
    scaling: Annotated[list[ScalingPoint], Meta(min_length=1)]
    startup_min: NonNegative
    change_min: NonNegative
    eviction_min: NonNegative
    placement: Placement
    worker: Demand
    ps: Demand
    speed: SpeedFunction | UnsetType = UNSET
    asynchronous: SpeedFunction | UnsetType = UNSET
    linear_error: NonNegative | UnsetType = UNSET
    update: UpdateCost | UnsetType = UNSET
    epochs: Positive | UnsetType = UNSET
    minibatches: (
        Annotated[int, Meta(ge=1, description="mini-batches of an epoch, of all workers together")] | UnsetType
    ) = UNSET
    samples: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    device: Name | UnsetType = UNSET
    usage: Usage | UnsetType = UNSET


class Machine(Struct, forbid_unknown_fields=True):
    """The machine on which the jobs were measured.

    `device` is the computing device, by the same name as in jobs, and `copy_gb_s` is the device's copy bandwidth. `governor`
    is the policy that sets the processor's frequency, if the system reports it.
    """

    cpu: str
    cores: int
    device: str
    jax: str
    numpy: str
    load: float
    noise: NonNegative
    copy_gb_s: MeasuredValue
    cache_gb_s: MeasuredValue
    dispatch_us: MeasuredValue
    governor: str = "unknown"


class CrbmCost(Struct, forbid_unknown_fields=True):
    """Seconds of one mini-batch of the phase encoder: ``a0 + a1 B n nv (nv + nh)``.

    B is the number of windows, n the number of delays, and nv and nh are the numbers of visible and of hidden units.
    """

    coefficients: list[MeasuredValue]
    error: NonNegative


class ProfileDocument(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A set of job profiles.

    Parameters
    ----------
    schema
        `optim/profile/1`.
    jobs
        Profiles of the jobs.
    slot_s
        Suitable slot length for the jobs' work, in seconds.
    is_work_drawn
        Whether a generated job does only a random share of its profile's work: true for the built-in set (weeks of
        training) and for the applications, false for scripts. `--instance-option draw_work=true` or `false` overrides
        this field; stderr reports the shares.
    machine
        The machine of the measurements.
    crbm
        Cost of the phase encoder.
    """

    schema: str
    jobs: Annotated[list[JobProfile], Meta(min_length=1)]
    slot_s: Positive = 3600.0
    is_work_drawn: bool = False
    machine: Machine | UnsetType = UNSET
    crbm: CrbmCost | UnsetType = UNSET


def read_profiles(path: Path) -> ProfileDocument:
    """Read a profile file, plain or gzip.

    Raises
    ------
    InvalidProblemError
        If the file isn't a profile; the message gives field and remedy.
    """
    content = read_bytes(path)
    try:
        document = decode(content, ProfileDocument)
    except InvalidProblemError as error:
        raise InvalidProblemError(f"{path}: {error}; `optim profile --out FILE` writes such files") from error
    if document.schema != SCHEMA:
        raise InvalidProblemError(f"{path}: schema is {document.schema!r}, must be {SCHEMA!r}")
    for job in document.jobs:
        _check(job, f"{path}: {job.name}")
    return document


def write_profiles(document: ProfileDocument, path: Path) -> None:
    """Write a profile file atomically."""
    write_bytes(path, msgspec.json.format(msgspec.json.encode(document), indent=1))


def _check(job: JobProfile, where: str) -> None:
    """Raise InvalidProblemError if fields of a job contradict each other."""
    work = (job.epochs, job.minibatches, job.samples)
    if any(field is UNSET for field in work) and any(field is not UNSET for field in work):
        raise InvalidProblemError(
            f"{where}: epochs, minibatches and samples state a job's work together; give all or none"
        )
    workers = [point.workers for point in job.scaling]
    if workers[0] != 1 or sorted(set(workers)) != workers:
        raise InvalidProblemError(
            f"{where}: scaling must begin at 1 worker and list increasing numbers, got workers {workers}"
        )
    if job.worker_mbps.value <= 0 or job.ps_mbps.value < job.worker_mbps.value:
        raise InvalidProblemError(
            f"{where}: worker_mbps must be positive and at most ps_mbps, got {job.worker_mbps.value} and "
            f"{job.ps_mbps.value}: a parameter server must serve at least one worker"
        )

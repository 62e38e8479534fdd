"""The file format ``optim/profile/1``: measured training jobs, as the builders of all three problems read them."""

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
    """A figure with the 95 % interval it was measured to."""

    value: NonNegative
    low: NonNegative
    high: NonNegative

    @classmethod
    def exactly(cls, value: float) -> "MeasuredValue":
        """Return a figure that is known without an interval."""
        return cls(value=value, low=value, high=value)

    def through(self, rising: Callable[[float], float]) -> "MeasuredValue":
        """Return what a rising function makes of the figure."""
        return MeasuredValue(value=rising(self.value), low=rising(self.low), high=rising(self.high))


class SpeedFunction(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Seconds a step as a sum of terms with coefficients of at least 0 (Optimus: Peng et al., EuroSys 2018).

    ``synchronous``: ``t0 M/w + t1 + t2 w/p + t3 w + t4 p`` for a step of `global_batch` M items by w workers and p
    parameter servers. Files of earlier versions also hold ``asynchronous`` ones, which are read and not used.
    """

    kind: Literal["synchronous", "asynchronous"]
    coefficients: list[MeasuredValue]
    largest_workers: Annotated[int, Meta(ge=1, description="most workers measured")]
    error: NonNegative | UnsetType = UNSET
    """Median relative error of a point predicted from all others."""
    untold: list[str] = []
    """What the measurements can't tell apart: such terms have coefficient 0, their share is in the others'."""
    global_batch: Positive | UnsetType = UNSET


class UpdateCost(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Seconds in which a server adds W pushes of so many bytes and applies them: ``a0 + a1 W + a2 bytes + a3 W bytes``.

    One set of coefficients while pushes and parameters fit in the cache, one beyond.
    """

    in_cache: list[MeasuredValue]
    beyond: list[MeasuredValue]
    cache_bytes: Positive
    error: NonNegative
    untold: list[str] = []
    """What the measurements can't tell apart."""


class ScalingPoint(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Measured speed-up of so many workers over one; `low` and `high` are what both times' 95 % intervals allow."""

    workers: Annotated[int, Meta(ge=1)]
    speedup: Positive
    low: Positive | UnsetType = UNSET
    high: Positive | UnsetType = UNSET


class Placement(Struct, forbid_unknown_fields=True):
    """Time of a step over that in the best placement, by the smallest subtree that holds the job."""

    slot: AtLeastOne = 1.0
    machine: AtLeastOne = 1.0
    rack: AtLeastOne = 1.0
    cluster: AtLeastOne = 1.0


class Demand(Struct, forbid_unknown_fields=True):
    """What a worker or a parameter server takes of a machine."""

    gpu: NonNegative = 0.0
    vcpu: NonNegative = 1.0
    memory_gb: NonNegative = 1.0
    storage_gb: NonNegative = 0.0


class Usage(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What a script took of the machine that it was profiled on; fields that nobody could tell are absent.

    `model` is the model of its step's seconds that the measurements support, `alone_s` the part of one worker's step that it
    computes alone (its gradient, where the script says: `timer.alone`), `warmup_s` what its first steps took beyond as many usual ones.
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
    """One kind of training job.

    Its own work is `epochs` passes over `samples`, each in `minibatches` mini-batches; a file without them leaves the work to
    who draws instances. `minibatch_s` is OASiS' tau (seconds a worker computes on a mini-batch), `gradient_mb` its e (sent once each way),
    `worker_mbps` and `ps_mbps` its b and B. The minutes are BidBrain's start-up, sigma and lambda.
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
    """Largest relative error, over the workers measured, of taking w workers for w times as fast, as OASiS does."""
    update: UpdateCost | UnsetType = UNSET
    epochs: Positive | UnsetType = UNSET
    minibatches: (
        Annotated[int, Meta(ge=1, description="mini-batches of an epoch, of all workers together")] | UnsetType
    ) = UNSET
    samples: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    device: Name | UnsetType = UNSET
    """What its steps ran on, as JAX or PyTorch names it; absent where a script loads neither."""
    usage: Usage | UnsetType = UNSET


class Machine(Struct, forbid_unknown_fields=True):
    """Where the jobs were measured.

    `device` is what computed, by the same name as in jobs; its copies are `copy_gb_s`. `governor` is what sets the
    processor's frequency, where the system tells.
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
    """Seconds of one mini-batch of the phase encoder: ``a0 + a1 B n nv (nv + nh)``."""

    coefficients: list[MeasuredValue]
    error: NonNegative


class ProfileDocument(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A set of job profiles."""

    schema: str
    jobs: Annotated[list[JobProfile], Meta(min_length=1)]
    slot_s: Positive = 3600.0
    """Length of a slot that suits the jobs' work."""
    is_work_drawn: bool = False
    """Whether jobs of instances make only as much of their kind's work as a drawn duration is of the usual one."""
    machine: Machine | UnsetType = UNSET
    crbm: CrbmCost | UnsetType = UNSET


def read_profiles(path: Path) -> ProfileDocument:
    """Read a profile file, plain or gzip.

    Raises
    ------
    InvalidProblemError
        If the file isn't a profile; the text names the field and the remedy.
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
    """Write a profile file whole or not at all."""
    write_bytes(path, msgspec.json.format(msgspec.json.encode(document), indent=1))


def _check(job: JobProfile, where: str) -> None:
    """Raise unless what belongs together is together."""
    work = (job.epochs, job.minibatches, job.samples)
    if any(field is UNSET for field in work) and any(field is not UNSET for field in work):
        raise InvalidProblemError(
            f"{where}: epochs, minibatches and samples state a job's work together; give all or none"
        )
    workers = [point.workers for point in job.scaling]
    if workers[0] != 1 or sorted(set(workers)) != workers:
        raise InvalidProblemError(f"{where}: scaling must begin at 1 worker and rise, got workers {workers}")
    if job.worker_mbps.value <= 0 or job.ps_mbps.value < job.worker_mbps.value:
        raise InvalidProblemError(
            f"{where}: worker_mbps must be positive and at most ps_mbps, got {job.worker_mbps.value} and "
            f"{job.ps_mbps.value}: a parameter server must serve at least one worker"
        )

"""Instances of all three problems with measured or published jobs."""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec import UNSET, structs

from optim.core.arrays import IntArray
from optim.core.errors import InvalidOptionError
from optim.models.admission.data import MEGABITS_THERE_AND_BACK, MICRO, Jobs
from optim.models.admission.instance import AdmissionInstance
from optim.models.auction.data import PRESETS, Slowdown
from optim.models.auction.instance import AuctionInstance
from optim.models.bidding.instance import BiddingInstance
from optim.profiling.document import SCHEMA, Demand, JobProfile, MeasuredValue, Placement, ProfileDocument, ScalingPoint
from optim.profiling.fitting import scalability_of, speedup_table
from optim.workloads.admission import generator as admission
from optim.workloads.auction import generator as auction
from optim.workloads.bidding import generator as bidding

THROUGHPUTS = (
    "TensorFlow performance benchmarks, May 2017, Amazon EC2 p2.8xlarge (K80), synthetic data: "
    "github.com/tensorflow/tensorflow, docs_src/performance/benchmarks.md"
)

PLACEMENTS = "Gu et al. (Tiresias), NSDI 2019, figure 3"

BYTES = 4
"""Bytes of a parameter and of its gradient, in single precision."""

MEGA = 1e6

INSTANCE_MBPS, GPUS_OF_INSTANCE = 10_000.0, 8
"""A p2.8xlarge has a network card of 10 Gbit/s for its 8 GPUs (aws.amazon.com/ec2/instance-types/p2)."""

IMAGES, EPOCHS = 1_281_167, 90
"""Size of ImageNet's training set, and passes over it: Deng et al., CVPR 2009; He et al., CVPR 2016."""

STARTUP_MIN, CHANGE_MIN, EVICTION_MIN = 3.0, 1.0, 1.0
"""Start-up time of new machines, and the time lost by a change of the portfolio and by an eviction, in minutes; assumptions."""

# Name, million parameters, batch per GPU, images/s by number of GPUs, and name of the slowdown by placement. The speed of
# one GPU is from the same series as the others. Parameters: He et al., CVPR 2016; Szegedy et al., CVPR 2016; Simonyan
# and Zisserman, ICLR 2015; Krizhevsky et al., NIPS 2012.
_MODELS: tuple[tuple[str, float, int, tuple[tuple[int, float], ...], str], ...] = (
    ("inception3", 23.8, 64, ((1, 29.7), (8, 229.0), (16, 459.0), (32, 902.0), (64, 1783.0)), "inception3"),
    ("resnet50", 25.6, 64, ((1, 52.4), (8, 378.0), (16, 751.0), (32, 1388.0), (64, 2744.0)), "resnet50"),
    ("resnet152", 60.2, 32, ((1, 19.4), (8, 146.0), (16, 291.0), (32, 565.0), (64, 981.0)), "resnet152"),
    ("alexnet", 61.0, 512, ((1, 684.0), (2, 1244.0), (4, 2479.0), (8, 4853.0)), "alexnet"),
    ("vgg16", 138.0, 32, ((1, 36.3), (2, 69.4), (4, 141.0), (8, 260.0)), "vgg16"),
)


def published_profiles() -> ProfileDocument:
    """Return the built-in set of profiles."""
    # All 90 passes over ImageNet take weeks on one GPU, so that hardly any job could finish within days.
    return ProfileDocument(schema=SCHEMA, jobs=[_profile(*model) for model in _MODELS], is_work_drawn=True)


def _profile(
    name: str, million_parameters: float, batch: int, images_s: tuple[tuple[int, float], ...], placement: str
) -> JobProfile:
    return JobProfile(
        name=name,
        source=f"{THROUGHPUTS}; placement: {PLACEMENTS}",
        minibatch_s=MeasuredValue.exactly(round(batch / images_s[0][1], 6)),
        gradient_mb=round(million_parameters * MEGA * BYTES / MEGA, 3),
        worker_mbps=MeasuredValue.exactly(INSTANCE_MBPS / GPUS_OF_INSTANCE),
        ps_mbps=MeasuredValue.exactly(INSTANCE_MBPS),
        scaling=[ScalingPoint(workers=n, speedup=round(speed / images_s[0][1], 4)) for n, speed in images_s],
        startup_min=STARTUP_MIN,
        change_min=CHANGE_MIN,
        eviction_min=EVICTION_MIN,
        placement=Placement(**asdict(PRESETS[placement])),
        worker=Demand(gpu=1, vcpu=4, memory_gb=16, storage_gb=5),
        ps=Demand(gpu=0, vcpu=2, memory_gb=8, storage_gb=5),
        epochs=EPOCHS,
        minibatches=-(-IMAGES // batch),
        samples=IMAGES,
    )


_LOG = logging.getLogger(__name__)


def admission_instance(profiles: ProfileDocument, options: admission.GeneratorOptions, seed: int) -> AdmissionInstance:
    """Generate jobs that have the profiles' mini-batch time, gradient size, bandwidths, demands, work and speed by workers.

    The generator draws arrivals, utilities and maximum workers. By default a job does all of its profile's work,
    rounded to equal chunks. With `draw_work` the work is multiplied by the ratio of the drawn duration to the
    generator's median, and the log reports the ratios. The run time follows from the profile's speed, so that slow jobs
    may be unable to finish. If a profile states no work, a job has as many mini-batches as fit in the drawn duration.

    Raises
    ------
    InvalidOptionError
        If the profiles state no work and too few of the jobs can finish (`GeneratorOptions.min_schedulable`).
    """
    has_work = all(job.epochs is not UNSET for job in profiles.jobs)
    is_drawn = profiles.is_work_drawn if options.draw_work is None else options.draw_work

    def draw(options: admission.GeneratorOptions, arrival: IntArray, rng: np.random.Generator) -> Jobs:
        drawn = admission.draw_jobs(options, arrival, rng)
        kind = rng.integers(len(profiles.jobs), size=len(arrival))
        return _with_profiles(drawn, [profiles.jobs[k] for k in kind.tolist()], options, is_drawn=is_drawn)

    # Jobs that can't finish aren't redrawn, since their run times follow from measurements.
    draw_options = replace(options, min_schedulable=0.0) if has_work else options
    instance = admission.generate(draw_options, seed, draw_jobs=draw)
    if has_work and is_drawn:
        _log_work_shares(instance, profiles)
    return replace(instance, name=instance.name.replace("generated", "profiled", 1))


def _log_work_shares(instance: AdmissionInstance, profiles: ProfileDocument) -> None:
    """Log the jobs' shares of their profiles' work."""
    if not len(instance.jobs.ids):
        return
    mini_batches_by_tau = {
        int(_micro([(job.minibatch_s.value, job.gradient_mb, 0, 0)])[0, 0]): _stated(job) for job in profiles.jobs
    }
    jobs = instance.jobs
    made = jobs.epochs * jobs.chunks * jobs.minibatches
    share = 100 * made / np.array([mini_batches_by_tau[tau] for tau in jobs.minibatch_micro_s.tolist()])
    _LOG.info(
        "%s: jobs have %.2g to %.2g %% of their profiles' work (median %.2g %%), by their drawn durations; for all of it use "
        "--instance-option draw_work=false",
        instance.name.replace("generated", "profiled", 1),
        share.min(),
        share.max(),
        np.median(share),
    )


def _stated(job: JobProfile) -> float:
    """Return the number of mini-batches of a full job, 0 if its profile states no work."""
    return 0.0 if job.epochs is UNSET or job.minibatches is UNSET else job.epochs * job.minibatches


def _with_profiles(drawn: Jobs, jobs: list[JobProfile], options: admission.GeneratorOptions, *, is_drawn: bool) -> Jobs:
    """Return drawn jobs with the demands, work and speeds of the profiles `jobs`, one profile per job."""
    compute, gradient, rate, ps_rate = _micro(
        [(job.minibatch_s.value, job.gradient_mb, job.worker_mbps.value, job.ps_mbps.value) for job in jobs]
    ).T
    drawn_s = (
        drawn.epochs
        * drawn.minibatches
        * (
            drawn.minibatch_micro_s / MICRO
            + MEGABITS_THERE_AND_BACK * drawn.gradient_micro_mb / drawn.worker_micro_mbps
        )
    )
    own_s = np.maximum(compute / MICRO + MEGABITS_THERE_AND_BACK * gradient / rate, 1.0 / MICRO)
    # Mini-batches per chunk: from the full job's work if the profile states it, else from the drawn seconds.
    stated = np.array([_stated(job) for job in jobs])
    size = drawn_s / (options.duration_median * options.slot_s)
    number = np.where(stated > 0, stated * size / drawn.chunks, drawn_s / own_s)
    minibatches = np.clip(np.round(number), 1, drawn.minibatches).astype(np.int64)
    epochs, chunks = np.maximum(1, np.round(number / minibatches)).astype(np.int64), drawn.chunks.copy()
    for place in np.flatnonzero(stated > 0).tolist() if not is_drawn else ():
        chunks[place], per_chunk = _equal_chunks(stated[place], int(chunks[place]))
        passes = jobs[place].epochs
        epochs[place] = math.gcd(per_chunk, 1 if passes is UNSET else max(1, round(passes)))
        minibatches[place] = per_chunk // epochs[place]
    return replace(
        drawn,
        epochs=epochs,
        chunks=chunks,
        minibatches=minibatches,
        minibatch_micro_s=compute,
        gradient_micro_mb=gradient,
        worker_micro_mbps=rate,
        ps_micro_mbps=ps_rate,
        worker_demand=_demands([job.worker for job in jobs]),
        ps_demand=_demands([job.ps for job in jobs]),
        speedup=tuple(map(speedup_table, jobs, chunks.tolist())),
    )


def _equal_chunks(total: float, max_chunks: int) -> tuple[int, int]:
    """Return numbers of chunks (at least `max_chunks` / 2) and mini-batches per chunk, with a product close to `total`."""
    max_chunks = max(1, min(max_chunks, round(total)))
    number = np.arange(max_chunks, -(-max_chunks // 2) - 1, -1)
    each = np.maximum(1, np.round(total / number))
    best = int(np.argmin(np.abs(number * each - total)))
    return int(number[best]), int(each[best])


def _demands(demands: list[Demand]) -> IntArray:
    return _micro([(d.gpu, d.vcpu, d.memory_gb, d.storage_gb) for d in demands])


def _micro(rows: list[tuple[float, float, float, float]]) -> IntArray:
    """Return quantities in units of 1e-6, shape (rows, 4)."""
    return np.round(np.array(rows, dtype=np.float64).reshape(-1, 4) * MICRO).astype(np.int64)


def bidding_instance(profiles: ProfileDocument, options: bidding.GeneratorOptions, seed: int) -> BiddingInstance:
    """Generate a decision for one of the profiles: with its scalability, start-up time, and losses by changes and evictions."""
    job = profiles.jobs[int(np.random.default_rng([seed, 1]).integers(len(profiles.jobs)))]
    instance = bidding.generate(replace(options, startup_min=job.startup_min), seed)
    return replace(
        instance,
        name=f"{instance.name}-{job.name}",
        scalability=scalability_of(job),
        eviction_loss_h=job.eviction_min / 60,
        change_loss_h=job.change_min / 60,
    )


def auction_instance(profiles: ProfileDocument, options: auction.GeneratorOptions, seed: int) -> AuctionInstance:
    """Generate an auction whose apps have the profiles' slowdowns by placement."""
    slowdowns = [Slowdown(**structs.asdict(job.placement)) for job in profiles.jobs]
    instance = auction.generate(options, seed, slowdowns=slowdowns)
    return replace(instance, name=instance.name.replace("generated", "profiled", 1))


_BUILDERS: Mapping[str, Callable[[ProfileDocument, Any, int], Any]] = MappingProxyType(
    {"admission": admission_instance, "auction": auction_instance, "bidding": bidding_instance}
)


def profiled_instance(problem: str, profiles: ProfileDocument, options: Any, seed: int) -> Any:
    """Generate an instance of a problem; `options` are those of the problem's generator.

    Raises
    ------
    InvalidOptionError
        If the problem can't be built from profiles.
    """
    if problem not in _BUILDERS:
        raise InvalidOptionError(f"{problem!r} can't use job profiles; only {', '.join(_BUILDERS)} can")
    return _BUILDERS[problem](profiles, options, seed)

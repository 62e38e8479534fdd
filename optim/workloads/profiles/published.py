"""The built-in profiles: image models on K80s, as published."""

from dataclasses import asdict

from optim.models.auction.slowdown import PRESETS
from optim.workloads.profiles.document import (
    SCHEMA,
    Demand,
    Interval,
    JobProfile,
    Placement,
    ProfileDocument,
    ScalingPoint,
)

THROUGHPUTS = (
    "TensorFlow performance benchmarks, May 2017, Amazon EC2 p2.8xlarge (K80), synthetic data: "
    "github.com/tensorflow/tensorflow, docs_src/performance/benchmarks.md"
)
PLACEMENTS = "Gu et al. (Tiresias), NSDI 2019, figure 3"

BYTES = 4
"""Of a parameter and of its gradient, in single precision."""

MEGA = 1e6

INSTANCE_MBPS, GPUS_OF_INSTANCE = 10_000.0, 8
"""A p2.8xlarge has a network card of 10 Gbit/s for its 8 GPUs (aws.amazon.com/ec2/instance-types/p2)."""

IMAGES, EPOCHS = 1_281_167, 90
"""Of ImageNet's training set, and passes over it: Deng et al., CVPR 2009; He et al., CVPR 2016."""

STARTUP_MIN, CHANGE_MIN, EVICTION_MIN = 3.0, 1.0, 1.0
"""Minutes until new machines work, and that a change and an eviction cost: assumed, not published."""

# Name: million parameters, batch a GPU, images/s by the number of GPUs, and the name of its placement figure. One GPU's
# speed is that of the same series as the others. Parameters: He et al., CVPR 2016; Szegedy et al., CVPR 2016; Simonyan
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
    # All 90 passes over ImageNet take a GPU weeks: within days hardly a job could end.
    return ProfileDocument(schema=SCHEMA, jobs=[_profile(*model) for model in _MODELS], is_work_drawn=True)


def _profile(
    name: str, million_parameters: float, batch: int, images_s: tuple[tuple[int, float], ...], placement: str
) -> JobProfile:
    return JobProfile(
        name=name,
        source=f"{THROUGHPUTS}; placement: {PLACEMENTS}",
        minibatch_s=Interval.exactly(round(batch / images_s[0][1], 6)),
        gradient_mb=round(million_parameters * MEGA * BYTES / MEGA, 3),
        worker_mbps=Interval.exactly(INSTANCE_MBPS / GPUS_OF_INSTANCE),
        ps_mbps=Interval.exactly(INSTANCE_MBPS),
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

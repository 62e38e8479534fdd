"""Instance types by name: how much work one does in an hour, by its GPUs or by its processors."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType

from optim.core.errors import InvalidProblemError

VCPUS: Mapping[str, int] = MappingProxyType(
    {
        **{f"c3.{size}": 4 * n for size, n in (("xlarge", 1), ("2xlarge", 2), ("4xlarge", 4), ("8xlarge", 8))},
        **{f"c4.{size}": 4 * n for size, n in (("xlarge", 1), ("2xlarge", 2), ("4xlarge", 4), ("8xlarge", 9))},
        **{f"m3.{size}": n for size, n in (("medium", 1), ("large", 2), ("xlarge", 4), ("2xlarge", 8))},
        **{
            f"r3.{size}": n
            for size, n in (("large", 2), ("xlarge", 4), ("2xlarge", 8), ("4xlarge", 16), ("8xlarge", 32))
        },
        **{"d2.8xlarge": 36, "g2.2xlarge": 8, "g2.8xlarge": 32},
        **{"p2.xlarge": 4, "p2.8xlarge": 32, "p2.16xlarge": 64, "p3.2xlarge": 8, "p3.8xlarge": 32, "p3.16xlarge": 64},
    }
)
"""Virtual processors of instance types, as listed by Amazon."""

GPUS: Mapping[str, tuple[str, int]] = MappingProxyType(
    {
        **{"g2.2xlarge": ("K520", 1), "g2.8xlarge": ("K520", 4)},
        **{"p2.xlarge": ("K80", 1), "p2.8xlarge": ("K80", 8), "p2.16xlarge": ("K80", 16)},
        **{
            "p3.2xlarge": ("V100", 1),
            "p3.8xlarge": ("V100", 4),
            "p3.16xlarge": ("V100", 8),
            "p3dn.24xlarge": ("V100", 8),
        },
        **{f"g4dn.{size}": ("T4", 1) for size in ("xlarge", "2xlarge", "4xlarge", "8xlarge", "16xlarge")},
        **{"g4dn.12xlarge": ("T4", 4), "g4dn.metal": ("T4", 8)},
        **{f"g5.{size}": ("A10G", 1) for size in ("xlarge", "2xlarge", "4xlarge", "8xlarge", "16xlarge")},
        **{"g5.12xlarge": ("A10G", 4), "g5.24xlarge": ("A10G", 4), "g5.48xlarge": ("A10G", 8)},
        **{"p4d.24xlarge": ("A100", 8), "p5.48xlarge": ("H100", 8)},
        **{f"a2-highgpu-{n}g": ("A100", n) for n in (1, 2, 4, 8)},
        **{"a3-highgpu-8g": ("H100", 8)},
        **{"Standard_NC6s_v3": ("V100", 1), "Standard_NC12s_v3": ("V100", 2), "Standard_NC24s_v3": ("V100", 4)},
        **{f"Standard_NC{24 * n}ads_A100_v4": ("A100-80", n) for n in (1, 2, 4)},
    }
)
"""GPUs of instance types of Amazon, Google and Azure, as these list them."""

GPU_RATES: Mapping[str, float] = MappingProxyType(
    {
        **{"K520": 160 / 900, "K80": 240 / 900, "T4": 320 / 900, "A10G": 600 / 900, "V100": 1.0},
        **{"P4": 192 / 900, "L4": 300 / 900, "P100": 732 / 900},
        **{"A100": 1555 / 900, "A100-80": 2039 / 900, "H100": 3350 / 900, "H100-80": 3350 / 900},
    }
)
"""Work of one GPU over a V100's: bandwidths of their memories in GB/s, as listed by Nvidia, which training follows more
closely than their peaks of arithmetic."""


class Work(StrEnum):
    """What a machine's work is counted by."""

    GPUS = "gpus"
    VCPUS = "vcpus"


def kind_of_work(types: Iterable[str]) -> Work:
    """Return what all of some types have: GPUs if each has any, else processors."""
    return Work.GPUS if all(name in GPUS or name in GPU_RATES for name in types) else Work.VCPUS


def work_rate(instance_type: str, rates: Mapping[str, float] | None = None, work: Work = Work.VCPUS) -> float:
    """Return the work of one instance in an hour: what `rates` says of its type, else what the tables say.

    Counted by GPUs, a V100 does 1; counted by processors, 4 of them (a c3.xlarge) do, and GPUs nothing.

    Raises
    ------
    InvalidProblemError
        If neither knows the type; what a name says of a size is no measure of what a machine does.
    """
    if rates and instance_type in rates:
        return rates[instance_type]
    if work is Work.GPUS and instance_type in GPUS:
        kind, count = GPUS[instance_type]
        return count * GPU_RATES[kind]
    if work is Work.GPUS and instance_type in GPU_RATES:  # Google prices GPUs by themselves
        return GPU_RATES[instance_type]
    if work is Work.VCPUS and instance_type in VCPUS:
        return VCPUS[instance_type] / 4
    unit = "1 for a V100" if work is Work.GPUS else "1 for a c3.xlarge"
    raise InvalidProblemError(
        f"instance type {instance_type!r} has no known rate of work by {work}; give one in the on-demand file's column "
        f"rate ({unit})"
    )

"""Instance types by name: how much work one does, and what it costs on demand."""

from collections.abc import Mapping
from types import MappingProxyType

from optim.core.errors import InvalidProblemError

VCPUS_PER_RATE = 4
"""vCPUs that do one unit of work in an hour: those of a c3.xlarge."""

VCPUS: Mapping[str, int] = MappingProxyType(
    {
        "c3.xlarge": 4,
        "c3.2xlarge": 8,
        "c4.xlarge": 4,
        "c4.2xlarge": 8,
        "d2.8xlarge": 36,
        "g2.2xlarge": 8,
        "m3.medium": 1,
        "m3.large": 2,
        "m3.xlarge": 4,
        "r3.large": 2,
        "r3.xlarge": 4,
        "p2.xlarge": 4,
        "p2.8xlarge": 32,
        "p2.16xlarge": 64,
        "p3.2xlarge": 8,
        "p3.8xlarge": 32,
        "p3.16xlarge": 64,
    }
)
"""vCPUs of the types in the public price files, as listed by Amazon."""

SIZES: Mapping[str, int] = MappingProxyType({"medium": 1, "large": 2, "xlarge": 4})
"""vCPUs by the size in a type's name; ``Nxlarge`` has 4 N."""


def work_rate(instance_type: str) -> float:
    """Return the work of one instance in an hour: its vCPUs over those of a c3.xlarge.

    Raises
    ------
    InvalidProblemError
        If the type is unknown and its name doesn't tell its size.
    """
    if instance_type in VCPUS:
        return VCPUS[instance_type] / VCPUS_PER_RATE
    size = instance_type.rpartition(".")[2]
    if size in SIZES:
        return SIZES[size] / VCPUS_PER_RATE
    number = size.removesuffix("xlarge")
    if size.endswith("xlarge") and number.isdecimal():
        return int(number) * SIZES["xlarge"] / VCPUS_PER_RATE
    raise InvalidProblemError(f"instance type {instance_type!r} has no known size; name it like c3.xlarge")

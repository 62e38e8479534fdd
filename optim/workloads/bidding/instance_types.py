"""Instance types by name: how much work one does in an hour."""

from collections.abc import Mapping
from types import MappingProxyType

from optim.core.errors import InvalidProblemError

RATES: Mapping[str, float] = MappingProxyType(
    {
        "c3.xlarge": 1.0,
        "c3.2xlarge": 2.0,
        "c4.xlarge": 1.0,
        "c4.2xlarge": 2.0,
        "d2.8xlarge": 9.0,
        "g2.2xlarge": 2.0,
        "m3.medium": 0.25,
        "m3.large": 0.5,
        "m3.xlarge": 1.0,
        "r3.large": 0.5,
        "r3.xlarge": 1.0,
        "p2.xlarge": 1.0,
        "p2.8xlarge": 8.0,
        "p2.16xlarge": 16.0,
        "p3.2xlarge": 2.0,
        "p3.8xlarge": 8.0,
        "p3.16xlarge": 16.0,
    }
)
"""Work of one instance in an hour over that of a c3.xlarge: vCPUs, as listed by Amazon, over its 4; of P2 and P3 that is 1
a K80 and 2 a V100."""


def work_rate(instance_type: str, rates: Mapping[str, float] | None = None) -> float:
    """Return the work of one instance in an hour: what `rates` says of its type, else `RATES`.

    Raises
    ------
    InvalidProblemError
        If neither knows the type; what a name says of a size is no measure of what a machine with GPUs does.
    """
    rate = (rates or {}).get(instance_type, RATES.get(instance_type))
    if rate is None:
        raise InvalidProblemError(
            f"instance type {instance_type!r} has no known rate of work; give one in the on-demand file's column rate "
            "(1 for a c3.xlarge)"
        )
    return rate

"""Server types of the paper's simulation: Amazon EC2 instances, GPU types for workers, C4 for PSs."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from optim.core.errors import InvalidOptionError
from optim.models.admission.instance import MICRO, IntArray, ServerClasses

RESOURCES = ("gpu", "vcpu", "memory_gb", "storage_gb")
"""Resource types of generated instances."""

HOUR_S = 3600
DAY_HOURS = (8, 20)
"""Hours of the day (begin, end) in which night-only servers serve somebody else."""


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
"""What one server of a type has, in the order of `RESOURCES`: GPUs, vCPUs and memory are the vendor's; these types have
no disks of their own, so storage is attached."""

GPU_TYPES = ("p2.xlarge", "p2.8xlarge", "p2.16xlarge", "g3.4xlarge", "g3.8xlarge", "g3.16xlarge")
CPU_TYPES = ("c4.2xlarge", "c4.4xlarge", "c4.8xlarge")
"""Default PS hosts: the smaller C4 types hold less than one PS of the usual demands."""


def check_types(name: str, types: tuple[str, ...]) -> None:
    """Raise InvalidOptionError unless there is a type, and all are known."""
    unknown = [kind for kind in types if kind not in SERVER_TYPES]
    if not types or unknown:
        found = repr(unknown[0]) if unknown else "none"
        raise InvalidOptionError(f"{name} must be among {', '.join(SERVER_TYPES)}, at least one, got {found}")


def is_day(num_slots: int, slot_s: float) -> IntArray:
    """Tell which slots begin in the daytime, the horizon starting at midnight; shape (slots,), 0 or 1."""
    hour = np.arange(num_slots) * slot_s / HOUR_S % 24
    return ((hour >= DAY_HOURS[0]) & (hour < DAY_HOURS[1])).astype(np.int64)


def draw_servers(
    types: tuple[str, ...], num_servers: int, night_only_share: float, day: IntArray, rng: np.random.Generator
) -> ServerClasses:
    """Draw each server's type uniformly; of each type a share has no capacity by day.

    Parameters
    ----------
    types
        Types to draw from.
    num_servers
        Number of servers.
    night_only_share
        Share of the servers of each type (rounded) that are lent at night only.
    day
        Which slots are by day, shape (slots,).
    rng
        Source of chance.
    """
    drawn = np.bincount(rng.integers(len(types), size=num_servers), minlength=len(types))
    names, counts, capacities = [], [], []
    for name, number in zip(types, drawn.tolist(), strict=True):
        at_night = round(night_only_share * number)
        whole = np.tile(np.rint(np.array(SERVER_TYPES[name]) * MICRO).astype(np.int64), (len(day), 1))
        for label, count, capacity in (
            (name, number - at_night, whole),
            (f"{name} (night)", at_night, whole * (1 - day)[:, None]),
        ):
            if count:
                names.append(label)
                counts.append(count)
                capacities.append(capacity)
    return ServerClasses(
        types=tuple(names),
        capacity=np.array(capacities, dtype=np.int64),
        count=np.array(counts, dtype=np.int64),
    )


def merged(first: ServerClasses, second: ServerClasses) -> ServerClasses:
    """Return one pool of servers that both workers and PSs may use."""
    return ServerClasses(
        types=first.types + second.types,
        capacity=np.concatenate([first.capacity, second.capacity]),
        count=np.concatenate([first.count, second.count]),
    )
